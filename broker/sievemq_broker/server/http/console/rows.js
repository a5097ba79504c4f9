// Typed names and values to fill in: the properties of a message, the entries of a map or stream.

import { h } from "./dom.js";
import { textInput } from "./parts.js";

// Types of the Jakarta Messaging text with how they are read from what was typed. char and bytes are for bodies only.
const TYPES = ["string", "int", "long", "double", "boolean", "float", "short", "byte"];
const BODY_TYPES = [...TYPES, "char", "bytes"];

export class Rows {
  /**
   * @param {{label: string, adds: string, body?: boolean, onchange?: (() => void) | null}} given `adds` is on the
   *   button; with `body`, there are the types that only bodies have.
   */
  constructor({ label, adds, body = false, onchange = null }) {
    this.types = body ? BODY_TYPES : TYPES;
    this.onchange = onchange;
    this.list = h("div", { class: "rows" });
    this.node = h(
      "div",
      { role: "group", "aria-label": label },
      this.list,
      h("button", { type: "button", click: () => this.add().focus() }, adds),
    );
    this.node.addEventListener("input", () => this.onchange?.());
  }

  /** Entries of a stream have no names. */
  set named(value) {
    this.list.classList.toggle("nameless", !value);
  }

  /** One more row. @returns {HTMLElement} its first field. */
  add({ name = "", type = "string", value = "" } = {}) {
    const input = (kind, label, text) =>
      textInput({ class: kind, placeholder: label, "aria-label": label, value: text });
    const first = input("name", "name", name);
    const kind = h(
      "select",
      { class: "kind", "aria-label": "type" },
      this.types.map((item) => h("option", { value: item, selected: item === type }, item)),
    );
    const text = input("what", "value", value === null ? "" : String(value));
    const remove = () => {
      row.remove();
      this.onchange?.();
    };
    const gone = h("button", { type: "button", class: "plain", "aria-label": "Remove", click: remove }, "×");
    const row = h("div", { class: "row" }, first, kind, text, gone);
    this.list.append(row);
    return this.list.classList.contains("nameless") ? text : first;
  }

  clear() {
    this.list.replaceChildren();
  }

  /**
   * The rows as the API takes them.
   * @returns {{name: string, type: string, value: any}[]}
   * @throws {Error} a value is none of its type; says which.
   */
  values() {
    return Array.from(this.list.children, (row) => {
      const [name, type, value] = ["name", "kind", "what"].map((part) => row.querySelector(`.${part}`).value);
      return { name: name.trim(), type, value: valueOf(name, type, value) };
    }).filter(({ name }) => name || this.list.classList.contains("nameless"));
  }

  /** The same by name. */
  byName() {
    return Object.fromEntries(this.values().map(({ name, type, value }) => [name, { type, value }]));
  }
}

function valueOf(name, type, text) {
  const wrong = (what) => new Error(`${name || "entry"}: ${text === "" ? "nothing" : `“${text}”`} is no ${what}`);
  if (type === "boolean") {
    if (!/^(true|false)$/i.test(text.trim())) throw wrong("boolean: enter true or false");
    return /true/i.test(text);
  }
  if (["int", "long", "short", "byte"].includes(type)) {
    if (!/^[+-]?\d+$/.test(text.trim())) throw wrong("whole number");
    const value = Number(text);
    return Number.isSafeInteger(value) ? value : text.trim();
  }
  if (type === "double" || type === "float") {
    if (text.trim() === "" || Number.isNaN(Number(text))) throw wrong("number");
    return Number(text);
  }
  return text;
}
