// Short words about what was done or failed; read out by screen readers, gone after a while.

import { Unreachable } from "./api.js";
import { h } from "./dom.js";

const STAYS = 6_000;

const place = h("div", { class: "notices", role: "status", "aria-live": "polite" });
document.body.append(place);

/** @param {string} text @param {"good" | "bad"} [kind] */
export function notice(text, kind = "good") {
  const node = h(
    "div",
    { class: `notice ${kind}` },
    h("span", text),
    h("button", { type: "button", class: "plain", "aria-label": "Dismiss", click: () => node.remove() }, "×"),
  );
  // A modal dialog hides what is outside of it, and takes away what is inside when it closes.
  const dialog = document.querySelector("dialog[open]");
  dialog?.addEventListener("close", () => document.body.append(place), { once: true });
  (dialog ?? document.body).append(place);
  place.append(node);
  setTimeout(() => node.remove(), kind === "bad" ? 2 * STAYS : STAYS);
  return node;
}

const unanswered = new Set(); // notices that the broker does not answer

/** What failed, in the broker's words. */
export function failure(error) {
  if (error.name === "AbortError") return;
  const node = notice(error.message.split("\n")[0], "bad");
  if (error instanceof Unreachable) unanswered.add(node);
}

/** The broker answers again: notices that it does not are out of date. */
export function recovered() {
  for (const node of unanswered) node.remove();
  unanswered.clear();
}
