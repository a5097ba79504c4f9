// The ways to look at a message's body: text, JSON in order, the entries of a map or stream, bytes.

import { h, put } from "./dom.js";
import { bytes } from "./format.js";

const SHOWN = 256 * 1024; // characters or bytes of a body that are drawn at once

/** @param {object} body as the API gives it: its type, and its content in the form of that type. */
export function bodyView(body) {
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
    const json = parsed(body.text);
    if (json !== undefined) found.push(["JSON", () => text(JSON.stringify(json, null, 2))]);
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

function parsed(value) {
  if (!/^\s*[[{]/.test(value)) return undefined;
  try {
    return JSON.parse(value);
  } catch {
    return undefined;
  }
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
          h("th", { scope: "row" }, h("code", name)),
          h("td", h("span", { class: "type" }, type)),
          h("td", value === null ? h("i", { class: "dim" }, "null") : h("code", { class: "value" }, String(value))),
        ),
      ),
    ),
  );
}

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
