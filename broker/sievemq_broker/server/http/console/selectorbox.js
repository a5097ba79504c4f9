// A field for a selector: checked by the broker as it is typed, with a caret under the mistake.

import { Refused, post } from "./api.js";
import { caret } from "./caret.js";
import { h, put } from "./dom.js";
import { failure } from "./notice.js";

const PAUSE = 150; // ms without a key before it is checked

let numbers = 0;

export class SelectorBox {
  /**
   * @param {{value?: string, label?: string, search?: boolean, tall?: boolean, dialect?: () => string,
   *   onapply?: ((text: string) => void) | null, oncheck?: ((answer: object | null, text: string) => void) | null}} given
   *   `search`: the `/` key leads here; `onapply`: Enter was pressed, and there is no mistake; `oncheck`: it was checked,
   *   without an answer there is a mistake.
   */
  constructor({ value = "", label = "Selector", search = false, tall = false, ...given }) {
    const { onapply = null, oncheck = null, dialect = () => "" } = given;
    numbers += 1;
    this.onapply = onapply;
    this.oncheck = oncheck;
    this.dialect = dialect;
    this.timer = 0;
    this.turn = 0;
    this.verdict = h("div", { class: "verdict", id: `verdict${numbers}`, role: "status" });
    this.field = h(tall ? "textarea" : "input", {
      type: tall ? null : "text",
      rows: tall ? 3 : null,
      class: "selector",
      id: `selector${numbers}`,
      autocomplete: "off",
      autocapitalize: "off",
      spellcheck: "false",
      placeholder: "region = 'EU' AND amount > 100",
      "aria-describedby": this.verdict.id,
      "data-search": search,
      input: () => this.#typed(),
      keydown: (event) => this.#key(event),
      value,
    });
    this.node = h(
      "div",
      { class: "field selectorbox" },
      h("label", { for: this.field.id }, label),
      this.field,
      this.verdict,
    );
    if (value) this.#look();
  }

  get value() {
    return this.field.value.trim();
  }

  set value(text) {
    this.field.value = text;
    this.#look();
  }

  /** Asks the broker now. @returns {Promise<object | null>} its answer; null: there is a mistake, which is shown. */
  async check() {
    clearTimeout(this.timer);
    this.turn += 1;
    const turn = this.turn;
    const text = this.field.value;
    /** @type {object | null} */
    let answer = {};
    if (text.trim()) {
      try {
        answer = await post("/selector/check", { selector: text, dialect: this.dialect() || undefined });
      } catch (error) {
        if (!(error instanceof Refused)) throw error;
        answer = null;
        if (turn === this.turn) this.refuse(error, text);
      }
    }
    if (turn !== this.turn) return answer;
    if (answer) {
      put(this.verdict);
      this.field.removeAttribute("aria-invalid");
    }
    this.oncheck?.(answer, text);
    return answer;
  }

  /** Shows a refusal: that of a check, or one that came with another answer. */
  refuse(error, text = this.field.value) {
    const { position, length, message, expected, hint } = error.details;
    this.field.setAttribute("aria-invalid", "true");
    const words = [message ?? error.message.split("\n")[0], expected && `expected ${expected}`, hint]
      .filter(Boolean)
      .join(" · ");
    put(this.verdict, Number.isFinite(position) && caret(text, position, length), h("p", { class: "mistake" }, words));
  }

  #typed() {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.#look(), PAUSE);
  }

  // A check on its own initiative: if the broker does not answer, the banner says so.
  #look() {
    this.check().catch(() => {});
  }

  #key(event) {
    if (event.key !== "Enter" || event.shiftKey || !this.onapply) return;
    event.preventDefault();
    this.check().then((answer) => answer && this.onapply?.(this.value), failure);
  }
}
