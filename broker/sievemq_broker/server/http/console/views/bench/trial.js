// A message typed in, for a selector to be tried on; the broker evaluates it.

import * as api from "../../api.js";
import { h, put } from "../../dom.js";
import { explanation } from "../../explanation.js";
import { field } from "../../parts.js";
import { Rows } from "../../rows.js";

const HEADERS = [
  ["JMSType", "type"],
  ["JMSCorrelationID", "correlation_id"],
  ["JMSPriority", "priority"],
  ["JMSDeliveryMode", "delivery_mode"],
];

export class Trial {
  /**
   * @param {string} text the message as :meth:`text` gave it, "" for none.
   * @param {() => void} onchange it was typed in.
   */
  constructor(text, onchange) {
    this.rows = new Rows({ label: "Properties", adds: "Add a property", onchange });
    this.fields = HEADERS.map(([name, key]) => {
      const input = h("input", { type: "text", autocomplete: "off", spellcheck: "false", input: onchange });
      return { key, input, node: field(name, input) };
    });
    this.result = h("div", {
      class: "explanation",
      role: "region",
      "aria-label": "Explanation",
      "aria-live": "polite",
    });
    this.node = h(
      "div",
      { class: "card" },
      h("h3", "Properties"),
      this.rows.node,
      h("h3", "Headers"),
      h(
        "div",
        { class: "grid" },
        this.fields.map(({ node }) => node),
      ),
    );
    this.#begin(text);
  }

  #begin(text) {
    let given = {};
    try {
      given = JSON.parse(text || "{}");
    } catch {
      // an address that was cut short begins with an empty message
    }
    for (const { key, input } of this.fields) input.value = given[key] ?? "";
    for (const [name, { type, value }] of Object.entries(given.properties ?? {})) this.rows.add({ name, type, value });
    if (!Object.keys(given.properties ?? {}).length) this.rows.add();
  }

  /** The message as the API takes it. */
  get message() {
    const filled = this.fields.filter(({ input }) => input.value !== "");
    const headers = filled.map(({ key, input }) => [key, key === "priority" ? Number(input.value) : input.value]);
    return { ...Object.fromEntries(headers), properties: this.rows.byName() };
  }

  /** The same as text, for the page's address; "" while there is none, or one with a mistake. */
  get text() {
    try {
      const { message } = this;
      const blank = Object.keys(message).length === 1 && Object.keys(message.properties).length === 0;
      return blank ? "" : JSON.stringify(message);
    } catch {
      return "";
    }
  }

  /** Evaluates a selector for it. */
  async run(selector, dialect, signal) {
    try {
      const given = { selector, dialect, message: this.message };
      const answer = await api.post("/selector/explain", given, signal);
      put(this.result, explanation(answer.explanation));
    } catch (error) {
      if (error.name === "AbortError" || error instanceof api.Unreachable) throw error;
      put(this.result, h("p", { class: "mistake" }, error.message.split("\n")[0]));
    }
  }
}
