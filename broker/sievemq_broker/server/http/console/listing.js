// A list that is searched, filtered, sorted, paged and chosen from. What it shows is in the address.

import { requery, turn } from "./address.js";
import { h, put } from "./dom.js";
import { count, number } from "./format.js";
import { failure } from "./notice.js";
import { Pager, button, choice } from "./parts.js";
import { allow } from "./rights.js";
import { Table } from "./table.js";

const PAGE = 50;
const AT_ONCE = 1000; // rows of a request for all of them
const MOST = 10_000; // rows that are chosen together

/**
 * @typedef {object} Verb what can be done with chosen rows.
 * @property {string} text of its button.
 * @property {(rows: object[]) => Promise<boolean>} run whether it was done.
 * @property {string} [kind] of the button.
 * @property {(rows: object[]) => string | null} [reason] why it cannot be done.
 */

export class Listing {
  /**
   * @param {object} given
   * @param {[string, string]} given.nouns one row and several.
   * @param {URLSearchParams} given.query of the address.
   * @param {() => void} given.reread
   * @param {(asked: object, signal?: AbortSignal) => Promise<object>} given.load reads a page.
   * @param {string} given.rows name of the rows in it.
   * @param {string} given.order where the address has none.
   * @param {string} given.search what can be searched for.
   * @param {string[][]} [given.only] kinds of rows: values and what is shown for them.
   * @param {string} [given.kind] name of that choice in the address.
   * @param {Verb[]} [given.verbs]
   * @param {Node[]} [given.tools] further controls.
   * @param {(row: object) => string} given.key as of a table, like `label`, `columns` and `empty`.
   * @param {string} given.label
   * @param {Array} given.columns
   * @param {string | Node} given.empty
   */
  constructor({ nouns, query, reread, load, rows, order, search, only = [], verbs = [], tools = [], ...given }) {
    this.nouns = nouns;
    this.asked = query;
    this.reread = reread;
    this.load = load;
    this.rows = rows;
    this.order = order;
    this.verbs = verbs;
    this.everything = false; // chosen are the rows of all pages
    this.all = 0;
    this.filter = h("input", {
      type: "search",
      placeholder: search,
      "aria-label": search,
      "data-search": true,
      spellcheck: "false",
      value: query.get("like") ?? "",
      input: () => this.change({ like: this.filter.value.trim(), cursor: "" }),
    });
    this.only = choice([["", `All ${nouns[1]}`], ...only], query.get("only") ?? "", (value) =>
      this.change({ only: value, cursor: "" }, (changes) => turn(changes, [])),
    );
    this.only.setAttribute("aria-label", "Only");
    this.total = h("span", { class: "dim", role: "status" });
    this.table = new Table({
      ...given,
      compact: true,
      sort: query.get("sort") || order,
      onsort: (sort) => this.change({ sort, cursor: "" }, (changes) => turn(changes, [])),
      onchoose: verbs.length ? () => this.#chose(false) : null,
    });
    this.pager = new Pager((cursor, before) => this.change({ cursor }, (changes) => turn(changes, before)));
    this.words = h("span");
    this.whole = button("", () => this.#chose(true), "plain");
    this.buttons = verbs.map((verb) => button(verb.text, () => this.#act(verb).catch(failure), verb.kind));
    this.bar = h("div", { class: "chosen", hidden: true }, h("span", this.words, " ", this.whole), this.buttons);
    this.node = h(
      "div",
      h("div", { class: "tools" }, this.filter, only.length > 0 && this.only, tools, this.total),
      this.bar,
      this.table.node,
      this.pager.node,
    );
  }

  /** Shows something else: the address says so, and it is read. */
  change(changes, show = requery) {
    show(changes);
    this.asked = new URLSearchParams({ ...Object.fromEntries(this.asked), ...changes });
    this.reread();
  }

  /** Reads what the address names. */
  async read(signal) {
    const answer = await this.load({ ...this.#given(), cursor: this.asked.get("cursor"), limit: PAGE }, signal);
    this.all = answer.total;
    this.table.update(answer[this.rows], answer.totals);
    put(this.total, count(answer.total, ...this.nouns));
    this.pager.update(answer.next, this.asked.get("cursor"));
    this.#draw();
  }

  /** The address has changed. */
  query(fresh) {
    this.asked = fresh;
    if (document.activeElement !== this.filter) this.filter.value = fresh.get("like") ?? "";
    this.only.value = fresh.get("only") ?? "";
    this.table.sorted(fresh.get("sort") || this.order);
  }

  #given() {
    return { ...Object.fromEntries(this.asked), sort: this.asked.get("sort") || this.order };
  }

  #chose(everything) {
    this.everything = everything;
    this.#draw();
  }

  #draw() {
    const { chosen, data } = this.table;
    if (chosen.size < data.size) this.everything = false;
    const chose = this.everything ? this.all : chosen.size;
    this.bar.hidden = chosen.size === 0;
    put(this.words, `${count(chose, ...this.nouns)} chosen`);
    put(this.whole, `Choose all ${number(this.all)}`);
    this.whole.hidden = this.everything || chosen.size < data.size || this.all <= data.size;
    const rows = [...chosen].map((key) => data.get(key));
    this.verbs.forEach(({ reason }, i) => allow(this.buttons[i], reason?.(rows) ?? null));
  }

  async #act(verb) {
    const rows = this.everything ? await this.#whole() : [...this.table.chosen].map((key) => this.table.data.get(key));
    if (!(await verb.run(rows))) return;
    this.table.choose([]);
    this.#chose(false);
    this.reread();
  }

  /** The rows of all pages. */
  async #whole() {
    const rows = [];
    let cursor = "";
    do {
      const answer = await this.load({ ...this.#given(), recent: null, cursor, limit: AT_ONCE });
      rows.push(...answer[this.rows]);
      cursor = answer.next;
    } while (cursor && rows.length < MOST);
    return rows;
  }
}
