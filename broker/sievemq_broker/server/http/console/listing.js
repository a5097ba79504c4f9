// A list that is searched, filtered, sorted, paged and chosen from. What it shows is in the address.

import { requery, turn } from "./address.js";
import { h, put } from "./dom.js";
import { count, number } from "./format.js";
import { failure } from "./notice.js";
import { Pager, button, choice, head } from "./parts.js";
import { allow } from "./rights.js";
import { Table } from "./table.js";

const PAGE = 50;
const AT_ONCE = 1000; // rows of a request for all of them
const MOST = 10_000; // rows that are chosen together

/**
 * @typedef {{text: string, kind?: string, run: (rows: object[]) => Promise<boolean>,
 *   reason?: (rows: object[]) => string | null}} Verb what can be done with chosen rows, and why it cannot.
 */

export class Listing {
  /**
   * @param {{nouns: [string, string], context: {query: URLSearchParams, read: () => void}, search: string,
   *   load: (asked: object, signal?: AbortSignal) => Promise<object>, rows: string, order: string, only?: string[][],
   *   verbs?: Verb[], tools?: Node[], label: string, columns: Array, key: (row: object) => string,
   *   empty: string | Node}} given `load` reads a page, which has the `rows`; `only` are kinds of rows, as of a choice;
   *   the last four are as of a Table.
   */
  constructor({ nouns, context, load, rows, order, search, only = [], verbs = [], tools = [], ...given }) {
    const { query, read: reread } = context;
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
    put(this.total, answer.total === undefined ? "" : count(answer.total, ...this.nouns));
    this.pager.update(answer.next, this.asked.get("cursor"));
    this.#draw();
  }

  /** The view that shows this list, with what can be done above it. */
  view(title, actions = []) {
    return {
      title,
      node: h("div", head(title, { actions }), this.node),
      read: (signal) => this.read(signal),
      query: (fresh) => this.query(fresh),
    };
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
