// Rows of data. Rows keep their elements from one reading to the next (by key), so that focus, selection and scroll
// position survive, and nothing jumps. In a narrow window CSS shows each row as a card (data-label names its cells).

import { h, put, say } from "./dom.js";

/**
 * @typedef {object} Column
 * @property {string} label heading.
 * @property {(row: object) => (string | Node | Array)} cell what stands in a row.
 * @property {string[]} [sorts] orders that a press of the heading goes through, "-name" for the largest first; without
 *   them the heading is no button.
 * @property {string} [kind] class of its cells: "number", "main", "actions", "code", "spark".
 */

export class Table {
  /**
   * @param {object} given
   * @param {string} given.label accessible name.
   * @param {(Column | false)[]} given.columns
   * @param {(row: object) => string} given.key tells rows apart.
   * @param {string | Node} given.empty what to say without rows.
   * @param {string} [given.sort] the order it has now, one of those of a column.
   * @param {((sort: string) => void) | null} [given.onsort] a heading was pressed.
   */
  constructor({ label, columns, key, empty, sort = "", onsort = null }) {
    this.columns = columns.filter((column) => column !== false);
    this.key = key;
    this.rows = new Map();
    this.sort = sort;
    this.onsort = onsort;
    this.body = h("tbody", { role: "rowgroup" });
    this.heads = this.columns.map((column) => this.#head(column));
    this.table = h(
      "table",
      { role: "table", "aria-label": label },
      h("thead", { role: "rowgroup" }, h("tr", { role: "row" }, this.heads)),
      this.body,
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

  /** Shows these rows, in this order. */
  update(rows) {
    const before = this.rows;
    this.rows = new Map();
    let at = this.body.firstElementChild;
    for (const row of rows) {
      let key = this.key(row);
      while (this.rows.has(key)) key += "'"; // two that cannot be told apart are two all the same
      const line = before.get(key) ?? this.#line();
      this.rows.set(key, line);
      this.columns.forEach((column, i) => show(line.cells[i], column.cell(row)));
      if (line === at) at = at.nextElementSibling;
      else this.body.insertBefore(line, at);
    }
    for (const [key, line] of before) if (this.rows.get(key) !== line) line.remove();
    this.empty.hidden = rows.length > 0;
    this.table.hidden = rows.length === 0;
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
    const content = sortable
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
