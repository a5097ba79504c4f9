// Pieces that several views are made of.

import { h, put } from "./dom.js";
import { link, pagesBefore, turn } from "./address.js";
import { count } from "./format.js";

/**
 * The head of a view: what it shows, and what can be done there.
 * @param {string} title @param {{lead?: Node | string | Array | null, badges?: Array, actions?: Array}} [more]
 */
export function head(title, { lead = null, badges = [], actions = [] } = {}) {
  return h(
    "div",
    { class: "head" },
    h("div", lead && h("p", { class: "lead" }, lead), h("h1", title, " ", badges)),
    h("div", { class: "buttons" }, actions),
  );
}

export const badge = (text, kind = "") => h("span", { class: `badge ${kind}` }, text);

/** At its limit, and how many senders wait for room there; nothing below it. */
export function limitBadge({ at_limit: full, blocked_senders: blocked }) {
  if (blocked) return badge(`at its limit, ${count(blocked, "sender")} blocked`, "bad");
  return full && badge("at its limit", "warn");
}

/**
 * A bar beside a figure: how much of its limit is in use.
 * @param {number | null} share of the limit; null where there is none. @param {string} label
 */
export const gauge = (share, label) =>
  share === null
    ? null
    : h("progress", { class: share > 0.8 ? "high" : null, max: "1", value: share.toFixed(3), "aria-label": label });

/**
 * @param {string} text @param {(event?: any) => any} click @param {string} [kind]
 * @param {string | null} [reason] why it cannot be pressed.
 */
export const button = (text, click, kind = "", reason = null) =>
  h("button", { type: "button", class: kind || null, disabled: reason !== null, title: reason, click }, text);

/** @param {object} given attributes of a field for a line of text that is no prose. */
export const textInput = (given) => h("input", { type: "text", spellcheck: "false", autocomplete: "off", ...given });

/**
 * A link that looks like a button; where there is a reason against it, a button that cannot be pressed.
 * @param {string} text @param {string} href @param {string} [kind] @param {string | null} [reason]
 */
export const linkButton = (text, href, kind = "", reason = null) =>
  reason === null
    ? h("a", { class: `button ${kind}`, href }, text)
    : h("button", { type: "button", class: kind || null, disabled: true, title: reason }, text);

/** A part of a view with a heading. */
export function section(title, ...content) {
  return h("section", h("div", { class: "section-head" }, h("h2", title)), content);
}

/** Names and values. */
export function facts(pairs) {
  return h(
    "dl",
    { class: "facts" },
    pairs.filter(Boolean).map(([name, value]) => h("div", h("dt", name), h("dd", value))),
  );
}

let fields = 0;

/** A field of a form with its label. @param {string} label @param {*} control @param {string | null} [hint] */
export function field(label, control, hint = null) {
  const id = (control.id ||= `field-${(fields += 1)}`);
  return h("div", { class: "field" }, h("label", { for: id }, label), control, hint && h("small", hint));
}

/**
 * A choice among few: values and what is shown for them.
 * @param {string[][]} options @param {string} value @param {((value: string) => void) | null} [change]
 */
export function choice(options, value, change = null) {
  const select = h(
    "select",
    change && { change: () => change(select.value) },
    options.map(([key, text]) => h("option", { value: key, selected: key === value }, text)),
  );
  return select;
}

/** Tabs are links: each has an address of its own. One with a reason against it leads nowhere. */
export function tabs(label, items, current) {
  return h(
    "nav",
    { class: "tabs", "aria-label": label },
    items.map(([id, text, href, reason = null]) =>
      reason === null || id === current
        ? h("a", { href, "aria-current": id === current ? "page" : null }, text)
        : h("span", { title: reason, role: "link", "aria-disabled": "true" }, text),
    ),
  );
}

/** The link to a destination; its place shows its kind. */
export function destinationLink(namespace, address, text = address) {
  return h("a", { class: "address", href: link([namespace, "destination", address]) }, text);
}

const linkTo =
  (place) =>
  (namespace, id, text = id) =>
    h("a", { class: "id", href: link([namespace, place, id]) }, text);

/** The links to a connection, a consumer and a client id; nothing where there is no client id. */
export const connectionLink = linkTo("connection");
export const consumerLink = linkTo("consumer");
export const clientLink = (namespace, id) => (id === null ? "" : linkTo("client")(namespace, id));

/** A selector that leads to the workbench. */
export function selectorLink(namespace, { selector, dialect }, destination = "") {
  if (!selector) return h("span", { class: "dim" }, "every message");
  return h(
    "a",
    { href: link([namespace, "workbench"], { selector, dialect: dialect === "jakarta" ? "" : dialect, destination }) },
    h("code", selector),
  );
}

/** What a view says when there is nothing to show. */
export function nothing(title, ...words) {
  return h("div", { class: "nothing" }, h("strong", title), h("p", words));
}

/**
 * Parts of a view by their rows, kept from one reading to the next.
 * @param {(address: string) => {node: Node, update: Function}} make @param {Node} none where there are no rows.
 */
export function groups(make, none) {
  const made = new Map();
  const node = h("div");
  return {
    node,
    update(rows, ...more) {
      for (const { address } of rows) if (!made.has(address)) made.set(address, make(address));
      rows.forEach((row, i) => made.get(row.address).update(row, ...more.map((each) => each[i])));
      put(node, rows.length ? rows.map(({ address }) => made.get(address).node) : none);
    },
  };
}

/** A pager whose page is all that the address says. */
export function pages({ query, read: reread }) {
  const go = (changes, before) => {
    turn(changes, before);
    Object.assign(found, changes);
    reread();
  };
  const pager = new Pager((cursor, before) => go({ cursor }, before));
  const named = (from) => ({ cursor: from.get("cursor") ?? "", sort: from.get("sort") ?? "" });
  const found = {
    node: pager.node,
    ...named(query),
    onsort: (sort) => go({ sort, cursor: "" }, []),
    update: (next) => pager.update(next, found.cursor),
    query: (fresh) => Object.assign(found, named(fresh)),
  };
  return found;
}

/** "First", "previous" and "next" below a list that comes in pages. */
export class Pager {
  /** @param {(cursor: string, before: string[]) => void} turn goes to a page, past those before it. */
  constructor(turn) {
    /** @type {string[]} */
    this.before = [];
    this.here = "";
    /** @type {string | null} */
    this.cursor = null;
    const go = (/** @type {string} */ cursor, /** @type {string[]} */ before) => {
      this.first.disabled = this.previous.disabled = this.next.disabled = true; // until that page is there
      turn(cursor, before);
    };
    this.first = button("First page", () => go("", []));
    this.previous = button("Previous page", () => go(this.before.at(-1) ?? "", this.before.slice(0, -1)));
    this.next = button("Next page", () => go(this.cursor ?? "", [...this.before, this.here]));
    this.words = h("span", { class: "dim" });
    this.node = h("div", { class: "pager", hidden: true }, this.words, this.first, this.previous, this.next);
  }

  /**
   * @param {string | null} next cursor of the page that follows. @param {string | null} here cursor of the page shown.
   * @param {string} words text beside the buttons.
   */
  update(next, here, words = "") {
    this.cursor = next;
    this.here = here ?? "";
    this.before = here ? pagesBefore() : [];
    this.words.textContent = words;
    this.first.disabled = !here;
    this.previous.disabled = this.before.length === 0;
    this.next.disabled = next === null || next === undefined;
    this.node.hidden = this.first.disabled && this.next.disabled && !words;
  }
}
