// The ways to look at a message's body: text, JSON and XML laid out, the entries of a map or stream, bytes.

import { h, put } from "./dom.js";
import { copy } from "./files.js";
import { bytes } from "./format.js";
import { button } from "./parts.js";
import * as pretty from "./pretty.js";

const SHOWN = 256 * 1024; // characters or bytes of a body that are drawn at once

/**
 * @param {object} body as the API gives it: its type, and its content in the form of that type.
 * @param {() => void} download saves it whole.
 */
export function bodyView(body, download) {
  const views = viewsOf(body);
  const place = h("div", { class: "body-view" });
  const chips = views.map(([name, draw]) =>
    h("button", { type: "button", class: "chip", click: (event) => choose(draw, event.currentTarget) }, name),
  );

  function choose(draw, chip) {
    for (const other of chips) other.setAttribute("aria-pressed", String(other === chip));
    put(place, draw());
  }

  choose(views[0][1], chips[0]);
  return h(
    "div",
    { class: "body" },
    h(
      "div",
      { class: "chips", role: "group", "aria-label": "View of the body" },
      chips,
      h("span", { class: "dim" }, `${body.type.toLowerCase()} · ${bytes(body.size)}`),
      body.size > 0 && [button("Copy", () => copy(place.innerText), "chip"), button("Download", download, "chip")],
    ),
    body.truncated && h("p", { class: "dim" }, "Only the beginning is shown."),
    body.unreadable && h("p", { class: "mistake" }, body.unreadable),
    place,
  );
}

/** Shown as bytes and nothing else. */
export const isBytes = (body) => (body.base64 !== null || Boolean(body.hex)) && viewsOf(body).length === 1;

function viewsOf(body) {
  const found = [];
  if (body.text !== null) {
    for (const [name, lay] of Object.entries({ JSON: pretty.json, XML: pretty.xml })) {
      const laid = lay(body.text);
      if (laid !== undefined) found.push([name, () => text(laid)]);
    }
    found.push(["Text", () => text(body.text)]);
  }
  if (body.map) found.push(["Map", () => typed(body.map)]);
  if (body.stream) found.push(["Stream", () => typed(body.stream)]);
  if (body.object !== null) found.push(["Outline", () => text(JSON.stringify(body.object, null, 2))]);
  if (body.base64 !== null)
    found.push(["Hex", () => text(hex(Uint8Array.from(atob(body.base64), (c) => c.charCodeAt(0))), "text hex")]);
  else if (body.hex) found.push(["Hex", () => text(body.hex, "text hex")]);
  if (!found.length) found.push(["Empty", () => h("p", { class: "dim" }, "This message has no body.")]);
  return found;
}

function text(value, kind = "text") {
  const rest = value.length - SHOWN;
  return [
    h("pre", { class: kind, tabindex: "0", "aria-label": "Body" }, value.slice(0, SHOWN)),
    rest > 0 && h("p", { class: "dim" }, `… and ${bytes(rest)} more`),
  ];
}

/** Typed values as a table: of a map by name, of a stream in order. */
export function typed(values) {
  return h(
    "table",
    { class: "typed" },
    h(
      "thead",
      h(
        "tr",
        ["Name", "Type", "Value"].map((name) => h("th", { scope: "col" }, name)),
      ),
    ),
    h(
      "tbody",
      Object.entries(values).map(([name, { type, value }]) =>
        h(
          "tr",
          h("th", { scope: "row" }, h("code", words(name))),
          h("td", h("span", { class: "type" }, type)),
          h("td", value === null ? h("i", { class: "dim" }, "null") : h("code", { class: "value" }, String(value))),
        ),
      ),
    ),
  );
}

/** A name that may be broken between its words, and nowhere else. */
const words = (name) => name.split(/(?<=[_.])|(?<=[a-z])(?=[A-Z])/).flatMap((part, i) => (i ? [h("wbr"), part] : part));

/** Sixteen bytes a line: offset, hexadecimal, printable characters. */
export function hex(data) {
  const lines = [];
  for (let at = 0; at < Math.min(data.length, SHOWN); at += 16) {
    const part = data.subarray(at, at + 16);
    const codes = Array.from(part, (byte) => byte.toString(16).padStart(2, "0"));
    const [left, right] = [codes.slice(0, 8), codes.slice(8)].map((half) => half.join(" ").padEnd(23));
    const shown = Array.from(part, (byte) => (byte >= 32 && byte < 127 ? String.fromCharCode(byte) : "·")).join("");
    lines.push(`${at.toString(16).padStart(8, "0")}  ${left}  ${right}  ${shown}`);
  }
  return lines.join("\n");
}
