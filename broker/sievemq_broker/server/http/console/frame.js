// What stands around every view: the menu, the namespace, what runs, and a banner when something is wrong.

import { go, here, link } from "./address.js";
import { h, put, say, svg } from "./dom.js";
import { duration, number } from "./format.js";
import { failure } from "./notice.js";
import { badge } from "./parts.js";
import { described } from "./rights.js";
import * as session from "./session.js";

// Name in the URL, name for people, key after "g".
const PLACES = [
  ["overview", "Overview", "o"],
  ["queues", "Queues", "q"],
  ["topics", "Topics", "t"],
  ["subscriptions", "Subscriptions", "u"],
  ["dead-letters", "Dead letters", "d"],
  ["scheduled", "Scheduled", "s"],
  ["taps", "Taps", "a"],
  ["connections", "Connections", "c"],
  ["broker", "Broker", "b"],
  ["rules", "Rules and users", "l"],
  ["workbench", "Selector workbench", "w"],
  ["record", "Record", "r"],
];

// The list in which what a view shows is found.
const PARENTS = { destination: "queues", connection: "connections", consumer: "connections", client: "connections" };

/** Where a view is shown. */
export const main = h("main", { id: "main", tabindex: "-1" });

const banner = h("div", { class: "banner", role: "alert", hidden: true });
const nav = h("nav", { class: "places", "aria-label": "Views" });
const spaces = h("select", { "aria-label": "Namespace", change: () => change(spaces.value) });
const version = h("b");
const state = h("div", { class: "dim" });
const user = h("span");
const menu = h(
  "button",
  { type: "button", class: "menu", "aria-controls": "side", click: () => fold(isOpen()) },
  "Menu",
);

/**
 * Draws the frame.
 * @param {HTMLElement} place where. @param {() => void} help shows the keys.
 */
export function build(place, help) {
  const skip = h("a", { class: "skip", href: "#main", click: toContent }, "Skip to content");
  const brand = h("a", { class: "brand", href: "#/" }, mark(), h("span", "SieveMQ"));
  const keys = h("button", { type: "button", class: "plain", click: help }, "Keys ?");
  const foot = h(
    "div",
    { class: "foot" },
    h("div", h("span", { class: "dot" }), version),
    state,
    h("div", { class: "buttons" }, keys, user),
  );
  place.append(
    skip,
    h("header", { class: "bar" }, brand, menu),
    h("aside", { class: "side", id: "side", "aria-label": "Menu" }, h("div", { class: "space" }, spaces), nav, foot),
    h("div", { class: "content" }, banner, main),
  );
  fold(true);
}

/** Where "g" and a letter lead, from the namespace shown. */
export const places = () =>
  PLACES.map(([id, name, key]) => ({ key, name, go: () => go([here().path[0] ?? "default", id]) }));

let attention = null; // a badge beside the overview's name

/** Shows beside the overview's name how much needs attention. */
export function alert({ count, kind }) {
  attention = count ? badge(number(count), kind) : null;
  draw();
}

/** Marks where one is, and folds the menu of a narrow window. */
export function locate(namespace) {
  draw();
  offer([namespace], namespace);
  fold(true);
}

function draw() {
  const [namespace = "default", place = "overview", address = ""] = here().path;
  const kind = /^(temporary-)?topic:/.test(address) ? "topics" : "queues";
  const current = place === "destination" ? kind : (PARENTS[place] ?? place);
  put(
    nav,
    PLACES.map(([id, name, key]) => {
      const isHere = id === current ? "page" : null;
      const more = id === "overview" && attention && [" ", attention.cloneNode(true)];
      return h("a", { href: link([namespace, id]), "aria-current": isHere, title: `g ${key}` }, name, more);
    }),
  );
}

/** Shows the broker, its namespaces, and the user's rights. */
export function describe(broker, { namespaces, elsewhere }, rights) {
  existing = new Map(namespaces.map(({ name }) => [name, name]));
  for (const { name, shard } of elsewhere) existing.set(name, `${name} (shard ${shard})`);
  offer([spaces.value], spaces.value);
  say(version, `SieveMQ ${broker.version}`);
  say(state, `up ${duration(broker.uptime_seconds * 1000)} · ${broker.durable ? "durable" : "in memory only"}`);
  put(user, session.node(failure, described(rights)));
}

/** Shows that something is wrong; without words, that it is not any more. */
export function warn(...words) {
  banner.hidden = words.length === 0;
  put(banner, words);
}

let existing = null; // namespaces that there are, and their names for people, once they are known

function offer(names, current) {
  const known = [...new Set([...(existing?.keys() ?? []), ...names])].filter(Boolean).sort();
  const unused = (name) => (existing === null || name === "default" ? name : `${name} (does not exist)`);
  put(
    spaces,
    known.map((name) => h("option", { value: name }, existing?.get(name) ?? unused(name))),
  );
  spaces.value = current;
}

function change(name) {
  const [, place = "overview"] = here().path;
  go([name, PARENTS[place] ?? place]);
}

function toContent(event) {
  event.preventDefault();
  main.focus();
}

const isOpen = () => menu.getAttribute("aria-expanded") === "true";

function fold(closed) {
  menu.setAttribute("aria-expanded", String(!closed));
}

function mark() {
  return svg(
    "svg",
    { class: "mark", viewBox: "0 0 32 32", "aria-hidden": "true" },
    svg("rect", { width: 32, height: 32, rx: 8 }),
    svg("path", { d: "M7 10h18M9.5 15h13M12 20h8M14.5 25h3" }),
  );
}
