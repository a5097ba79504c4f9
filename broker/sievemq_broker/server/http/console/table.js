// Rows of data. Rows keep their elements from one reading to the next (by key), so that focus, selection and scroll
// position survive, and nothing jumps. In a narrow window CSS shows each row as a card (data-label names its cells).

import { h, put, say } from "./dom.js";
import { number } from "./format.js";

/**
 * @typedef {object} Column
 * @property {string} label heading.
 * @property {(row: object) => (string | Node | Array)} cell what stands in a row.
 * @property {string[]} [sorts] orders that a press of the heading goes through, "-name" for the largest first; without
 *   them the heading is no button.
 * @property {string} [kind] class of its cells: "number", "main", "actions", "code", "spark".
 * @property {((totals: object) => (string | Node)) | null} [total] what stands below all rows.
 */

/**
 * A column of figures, by which rows can be sorted.
 * @param {string} label @param {string} name of the order, and of the figure.
 * @param {((row: object) => (string | Node | Array)) | null} [cell] what stands in a row; the figure by default.
 * @param {((figure: number) => string) | null} [total] the form of the figure of all rows, where there is one.
 */
export const figure = (label, name, cell = null, total = null) => ({
  label,
  kind: "number",
  sorts: [`-${name}`, name],
  cell: cell ?? ((row) => number(row[name])),
  total: total && ((totals) => total(totals[name])),
});

export class Table {
  /**
   * @param {{label: string, columns: (Column | false)[], key: (row: object) => string, empty: string | Node,
   *   sort?: string, onsort?: ((sort: string) => void) | null, onchoose?: (() => void) | null}} given `key` tells rows
   *   apart, `empty` is shown without any. Headings can be pressed with `onsort`, rows chosen with `onchoose`.
   */
  constructor({ label, columns, key, empty, sort = "", onsort = null, onchoose = null }) {
    this.columns = columns.filter((column) => column !== false);
    this.key = key;
    this.rows = new Map();
    this.data = new Map(); // rows as they were given, by key
    this.chosen = new Set(); // keys
    this.onchoose = onchoose;
    if (onchoose) this.columns.unshift({ label: "Choose", kind: "check", cell: (row) => this.#box(row) });
    this.sort = sort;
    this.onsort = onsort;
    this.body = h("tbody", { role: "rowgroup", change: ({ target }) => this.#pick(target) });
    this.foot = h("tfoot", { role: "rowgroup", hidden: true });
    this.heads = this.columns.map((column) => this.#head(column));
    this.table = h(
      "table",
      { role: "table", "aria-label": label },
      h("thead", { role: "rowgroup" }, h("tr", { role: "row" }, this.heads)),
      this.body,
      this.foot,
    );
    this.empty = h("div", { class: "empty", hidden: true }, empty);
    this.node = h(
      "div",
      { class: "table", tabindex: "0", role: "region", "aria-label": label },
      this.table,
      this.empty,
    );
    this.#mark();
  }

  /**
   * Shows these rows, in this order.
   * @param {object[]} rows @param {object | null} [totals] of all rows there are, where columns show some.
   */
  update(rows, totals = null) {
    const before = this.rows;
    this.rows = new Map();
    this.data = new Map();
    let at = this.body.firstElementChild;
    for (const row of rows) {
      let key = this.key(row);
      while (this.rows.has(key)) key += "'"; // two that cannot be told apart are two all the same
      const line = before.get(key) ?? this.#line();
      this.rows.set(key, line);
      this.data.set(key, row);
      this.columns.forEach((column, i) => show(line.cells[i], column.cell(row)));
      if (line === at) at = at.nextElementSibling;
      else this.body.insertBefore(line, at);
    }
    for (const [key, line] of before) if (this.rows.get(key) !== line) line.remove();
    this.empty.hidden = rows.length > 0;
    this.table.hidden = rows.length === 0;
    this.foot.hidden = totals === null || rows.length < 2;
    if (totals) put(this.foot, this.#totals(totals));
    this.choose([...this.chosen].filter((key) => this.rows.has(key)));
  }

  /** Chooses rows by their keys, and no others. */
  choose(keys) {
    this.chosen = new Set(keys);
    if (!this.onchoose) return;
    for (const [key, line] of this.rows) line.querySelector(".check input").checked = this.chosen.has(key);
    const box = this.heads[0].querySelector("input");
    box.checked = this.chosen.size > 0 && this.chosen.size === this.rows.size;
    box.indeterminate = this.chosen.size > 0 && !box.checked;
  }

  #box(row) {
    const key = this.key(row);
    return h("input", { type: "checkbox", "aria-label": `Choose ${key}`, "data-key": key });
  }

  #pick({ checked, dataset: { key } }) {
    if (key === undefined) return;
    const others = [...this.chosen].filter((other) => other !== key);
    this.choose(checked ? [...others, key] : others);
    this.onchoose?.();
  }

  #totals(totals) {
    const name = this.columns.findIndex(({ kind }) => kind === "main");
    return h(
      "tr",
      { role: "row" },
      this.columns.map(({ kind, label, total }, i) =>
        h(
          "td",
          { role: "cell", class: i === name || total ? kind : null, "data-label": label },
          i === name ? "All" : total?.(totals),
        ),
      ),
    );
  }

  #line() {
    return h(
      "tr",
      { role: "row" },
      this.columns.map((column) => h("td", { role: "cell", class: column.kind ?? null, "data-label": column.label })),
    );
  }

  /** Says in which order it is now. */
  sorted(sort) {
    this.sort = sort;
    this.#mark();
  }

  #head(column) {
    const sortable = column.sorts && this.onsort;
    const every = ({ target }) => {
      this.choose(target.checked ? this.rows.keys() : []);
      this.onchoose?.();
    };
    const chooses = this.onchoose && column.kind === "check";
    const content = chooses
      ? h("input", { type: "checkbox", "aria-label": "Choose all on this page", change: every })
      : sortable
        ? h("button", { type: "button", class: "sort", click: () => this.#press(column.sorts) }, column.label)
        : column.kind === "actions"
          ? h("span", { class: "hidden" }, column.label)
          : column.label;
    return h("th", { role: "columnheader", scope: "col", class: column.kind ?? null }, content);
  }

  #press(sorts) {
    this.sorted(sorts[(sorts.indexOf(this.sort) + 1) % sorts.length]);
    this.onsort?.(this.sort);
  }

  #mark() {
    if (!this.onsort) return;
    this.columns.forEach((column, i) => {
      if (!column.sorts) return;
      const current = column.sorts.includes(this.sort);
      const direction = !current ? "none" : this.sort.startsWith("-") ? "descending" : "ascending";
      this.heads[i].setAttribute("aria-sort", direction);
    });
  }
}

function show(cell, content) {
  if (typeof content === "string" && cell.childElementCount === 0) say(cell, content);
  else put(cell, content);
  cell.classList.toggle("zero", content === "0" || content === "0/s" || content === "0 B");
}
