// Keys: "/" to the search field, "?" for help, "g" and a letter to a view.

import { h } from "./dom.js";

const LATER = 1_000; // ms within which the second key follows

let first = 0;

/** @param {{key: string, name: string, go: () => void}[]} places what "g" and a letter lead to. */
export function listenToKeys(places) {
  addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
    if (event.target instanceof Element && event.target.closest("input, textarea, select, [contenteditable]")) return;
    if (event.key === "?") help(places);
    else if (event.key === "/") focusSearch();
    else if (event.key === "g") {
      first = Date.now();
      return;
    } else {
      const place = Date.now() - first < LATER && places.find(({ key }) => key === event.key);
      first = 0;
      if (!place) return;
      place.go();
    }
    event.preventDefault();
  });
}

/** Shows the keys. */
export function help(places) {
  const rows = [
    ["/", "Search or filter"],
    ["?", "These keys"],
    ...places.map(({ key, name }) => [`g ${key}`, name]),
    ["← →", "Read a chart, once it has the focus"],
    ["Esc", "Close a dialog"],
  ];
  const dialog = h(
    "dialog",
    { class: "help", "aria-labelledby": "help-title", close: () => dialog.remove() },
    h("h2", { id: "help-title" }, "Keys"),
    h(
      "dl",
      { class: "keys" },
      rows.map(([keys, words]) => [
        h(
          "dt",
          keys.split(" ").map((key) => h("kbd", key)),
        ),
        h("dd", words),
      ]),
    ),
    h(
      "div",
      { class: "buttons" },
      h("button", { type: "button", class: "primary", click: () => dialog.close() }, "Close"),
    ),
  );
  document.body.append(dialog);
  dialog.showModal();
}

function focusSearch() {
  const field = document.querySelector("[data-search]");
  if (!(field instanceof HTMLInputElement || field instanceof HTMLTextAreaElement)) return;
  field.focus();
  field.select();
}
