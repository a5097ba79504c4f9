// What the broker says about a selector: valid or not, its canonical text, advice, what an index can do with it, and
// where other providers would disagree.

import { h, put } from "../../dom.js";
import { badge, nothing } from "../../parts.js";

export class Verdict {
  constructor() {
    this.node = h("div", { class: "card checked" });
    this.notes = h("div");
    this.update({}, "");
  }

  /** @param {object | null} answer of the check; null: it has a mistake. @param {string} text the selector. */
  update(answer, text) {
    const empty = !text.trim();
    this.node.className = `card checked ${!answer ? "bad" : empty ? "" : "good"}`;
    if (!answer) {
      put(this.node, h("h2", "Not valid"), h("p", "A consumer with this selector would be refused."));
      put(this.notes, nothing("Nothing to say yet.", "Other providers are compared once the selector is valid here."));
    } else if (empty) {
      put(this.node, h("h2", "No condition"), h("p", "Every message matches."));
      put(this.notes, nothing("Nothing to say yet.", "Write a selector to see which providers would read it differently."));
    } else {
      put(this.node, h("h2", "Valid"), facts(answer), answer.advice.map(advice));
      put(this.notes, portability(answer.portability));
    }
  }
}

function facts({ canonical, index }) {
  return h(
    "dl",
    { class: "plainfacts" },
    h("dt", "Canonical"),
    h("dd", h("code", canonical)),
    h("dt", "Index"),
    h("dd", index.length ? index.map((line) => h("div", line)) : "Cannot help: every message is looked at."),
  );
}

const advice = ({ code, message }) => h("p", { class: "advice" }, badge(code, "warn"), " ", message);

function portability(list) {
  if (!list.length) {
    return nothing(
      "Every provider agrees.",
      "None that SieveMQ knows would refuse this selector or answer differently.",
    );
  }
  return h(
    "ul",
    { class: "notes" },
    list.map((note) =>
      h(
        "li",
        h(
          "div",
          note.providers.map((name) => badge(name)),
          " ",
          h("span", { class: "dim" }, note.code),
        ),
        h("p", note.message),
        note.rewrite && h("p", "Write ", h("code", note.rewrite)),
      ),
    ),
  );
}
