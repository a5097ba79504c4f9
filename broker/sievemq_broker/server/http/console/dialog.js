// Questions before something is changed. The browser's own dialog keeps the focus inside and gives it back.

import { h, put } from "./dom.js";

/**
 * @typedef {{title: string, body: Node | string | Array, action: string, danger?: boolean,
 *   run: (controls: Dialog) => Promise<void>, opened?: ((controls: Dialog) => void) | null}} Question `action` is on the
 *   button, `danger` cannot be undone. The dialog closes when `run` is done, and stays with the error if it fails.
 */

/** @param {Question} given */
export function ask(given) {
  return new Dialog(given).open();
}

export class Dialog {
  /** @param {Question} given */
  constructor({ title, body, action, danger = false, run, opened = null }) {
    this.run = run;
    this.opened = opened;
    this.done = false;
    /** @type {(done: boolean) => void} */
    this.resolve = () => {};
    this.trouble = h("p", { class: "mistake", role: "alert" });
    this.button = h("button", { type: "submit", class: danger ? "danger" : "primary" }, action);
    this.cancel = h("button", { type: "button", click: () => this.node.close() }, "Cancel");
    this.node = h(
      "dialog",
      { "aria-labelledby": "dialog-title", close: () => this.#closed() },
      h(
        "form",
        { submit: (event) => this.#submit(event) },
        h("h2", { id: "dialog-title" }, title),
        h("div", { class: "dialog-body" }, body),
        this.trouble,
        h("div", { class: "buttons" }, this.cancel, this.button),
      ),
    );
  }

  /** @returns {Promise<boolean>} whether it was done. */
  open() {
    document.body.append(this.node);
    this.node.showModal();
    this.opened?.(this);
    this.done = false;
    return new Promise((resolve) => {
      this.resolve = resolve;
    });
  }

  async #submit(event) {
    event.preventDefault();
    this.button.disabled = true;
    put(this.trouble);
    try {
      await this.run(this);
      this.done = true;
      this.node.close();
    } catch (error) {
      put(this.trouble, error.message);
      this.button.disabled = false;
    }
  }

  #closed() {
    this.node.remove();
    this.resolve(this.done);
  }
}
