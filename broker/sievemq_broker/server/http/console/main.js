// The console: the frame around the views, which of them is shown, and when it is read anew.

import { go, here, link } from "./address.js";
import { Refused, Unreachable, get } from "./api.js";
import { h, put, svg } from "./dom.js";
import { duration } from "./format.js";
import { help, listenToKeys } from "./keys.js";
import * as live from "./live.js";
import { failure } from "./notice.js";
import { nothing } from "./parts.js";
import * as session from "./session.js";
import connections from "./views/connections.js";
import deadLetters from "./views/deadletters.js";
import destination from "./views/destination.js";
import { queues, topics } from "./views/destinations.js";
import overview from "./views/overview.js";
import scheduled from "./views/scheduled.js";
import subscriptions from "./views/subscriptions.js";
import workbench from "./views/workbench.js";

const VIEWS = {
  overview,
  queues,
  topics,
  subscriptions,
  "dead-letters": deadLetters,
  scheduled,
  connections,
  workbench,
  destination,
};

// Name in the URL, name for people, key after "g".
const PLACES = [
  ["overview", "Overview", "o"],
  ["queues", "Queues", "q"],
  ["topics", "Topics", "t"],
  ["subscriptions", "Subscriptions", "u"],
  ["dead-letters", "Dead letters", "d"],
  ["scheduled", "Scheduled", "s"],
  ["connections", "Connections", "c"],
  ["workbench", "Selector workbench", "w"],
];

const EVERY = 2; // ticks of a second between two readings of a view

let shown = null; // the view shown: its key, its node, how it is read
let namespace = "default";
let namespaces = ["default"];
let ticks = 0;

const main = h("main", { id: "main", tabindex: "-1" });
const banner = h("div", { class: "banner", role: "alert", hidden: true });
const nav = h("nav", { class: "places", "aria-label": "Views", id: "places" });
const spaces = h("select", { "aria-label": "Namespace", change: () => changeNamespace(spaces.value) });
const foot = h("div", { class: "foot" });
const menu = h(
  "button",
  {
    type: "button",
    class: "menu",
    "aria-expanded": "false",
    "aria-controls": "side",
    click: () => fold(menu.getAttribute("aria-expanded") === "true"),
  },
  "Menu",
);
const side = h("div", { class: "side", id: "side" }, h("div", { class: "space" }, spaces), nav, foot);

function frame() {
  const skip = h(
    "a",
    {
      class: "skip",
      href: "#main",
      click: (event) => {
        event.preventDefault();
        main.focus();
      },
    },
    "Skip to content",
  );
  const brand = h("a", { class: "brand", href: "#/" }, mark(), h("span", "SieveMQ"));
  document
    .getElementById("console")
    .replaceChildren(
      skip,
      h("header", { class: "bar" }, brand, menu),
      side,
      h("div", { class: "content" }, banner, main),
    );
}

function mark() {
  return svg(
    "svg",
    { class: "mark", viewBox: "0 0 32 32", "aria-hidden": "true" },
    svg("rect", { width: 32, height: 32, rx: 8 }),
    svg("path", { d: "M7 10h18M9.5 15h13M12 20h8M14.5 25h3" }),
  );
}

function fold(closed) {
  menu.setAttribute("aria-expanded", String(!closed));
}

function changeNamespace(name) {
  const { path } = here();
  const place = path[1] && path[1] !== "destination" ? path[1] : "queues";
  go([name, place]);
}

function drawPlaces() {
  const { path } = here();
  const current =
    path[1] === "destination" ? (/^(temporary-)?topic:/.test(path[2]) ? "topics" : "queues") : (path[1] ?? "overview");
  put(
    nav,
    PLACES.map(([id, name, key]) =>
      h("a", { href: link([namespace, id]), "aria-current": id === current ? "page" : null, title: `g ${key}` }, name),
    ),
  );
  put(
    spaces,
    namespaces.map((name) => h("option", { value: name, selected: name === namespace }, name)),
  );
  spaces.value = namespace;
}

async function readBroker() {
  const [broker, list] = await Promise.all([get("/broker"), get("/namespaces")]);
  namespaces = [...new Set([...list.namespaces.map(({ name }) => name), namespace])].sort();
  put(
    foot,
    h("div", h("span", { class: "dot" }), h("b", `SieveMQ ${broker.version}`)),
    h(
      "div",
      { class: "dim" },
      `up ${duration(broker.uptime_seconds * 1000)} · ${broker.durable ? "durable" : "in memory only"}`,
    ),
    h(
      "div",
      { class: "buttons" },
      h("button", { type: "button", class: "plain", click: () => help(keyPlaces()) }, "Keys ?"),
      session.node(failure),
    ),
  );
  drawPlaces();
}

const keyPlaces = () => PLACES.map(([id, name, key]) => ({ key, name, go: () => go([namespace, id]) }));

/** Shows what the URL says. */
function route() {
  const { path, query } = here();
  const [space = namespace, place = "overview", ...rest] = path;
  namespace = space;
  const key = JSON.stringify([space, place, rest]);
  drawPlaces();
  fold(true);
  if (shown?.key === key) {
    shown.view.query?.(query);
    read();
    return;
  }
  const moved = shown !== null;
  shown?.stop.abort();
  const stop = new AbortController();
  const make = VIEWS[place];
  const view = make
    ? make({ namespace, rest, query, signal: stop.signal, read: () => read() })
    : { title: "Not found", node: nothing("There is no such view.", "Choose one from the menu.") };
  shown = { key, view, stop, reading: false, again: false };
  document.title = `${view.title} · SieveMQ`;
  put(main);
  main.append(view.node);
  main.dataset.view = place;
  main.setAttribute("aria-busy", "true");
  if (moved) {
    scrollTo(0, 0);
    main.focus({ preventScroll: true });
  }
  read();
}

/** Reads the data of the view shown. */
async function read() {
  const now = shown;
  if (!now) return;
  if (now.reading) {
    now.again = true;
    return;
  }
  now.reading = true;
  try {
    await now.view.read?.(now.stop.signal);
    if (now !== shown) return;
    main.setAttribute("aria-busy", "false");
    now.failed?.remove();
    now.failed = null;
    now.view.node.hidden = false;
  } catch (error) {
    if (now === shown && error.name !== "AbortError") fail(now, error);
  } finally {
    now.reading = false;
    if (now.again && now === shown) {
      now.again = false;
      read();
    }
  }
}

function fail(now, error) {
  if (error instanceof Unreachable) {
    unreachable();
    return;
  }
  if (!(error instanceof Refused)) throw error;
  if (error.status === 401) return;
  main.setAttribute("aria-busy", "false");
  const title =
    { 403: "You may not see this.", 404: "This does not exist." }[error.status] ?? "The broker refused this.";
  now.failed?.remove();
  now.failed = nothing(
    title,
    error.message.split("\n")[0],
    " ",
    h("a", { href: link([namespace, "overview"]) }, "Back to the overview"),
  );
  main.append(now.failed);
  now.view.node.hidden = true;
}

function unreachable() {
  banner.hidden = false;
  put(
    banner,
    h("strong", "The broker does not answer."),
    " What you see is the last that was read. Trying again… ",
    h("button", { type: "button", click: () => live.connect() }, "Try now"),
  );
}

function heard(what) {
  if (what === "lost") {
    if (live.state.tries > 1) unreachable(); // the first try may find it again
    document.body.classList.add("lost");
    session.resume(); // perhaps the session has ended, not the broker
    return;
  }
  if (what === "back") readBroker().catch(() => {});
  if (what === "back" || what === "tick") {
    banner.hidden = true;
    document.body.classList.remove("lost");
  }
  if (what === "tick") ticks += 1;
  if (document.hidden) return;
  shown?.view.heard?.(what);
  if (what === "back" || (what === "tick" && ticks % EVERY === 0)) read();
  if (what === "tick" && ticks % 10 === 0) readBroker().catch(() => {});
}

// Somebody looks again: at what is there now.
function look() {
  live.connect();
  read();
}

async function start() {
  frame();
  listenToKeys(keyPlaces());
  addEventListener("hashchange", route);
  addEventListener("pagehide", live.disconnect);
  addEventListener("pageshow", ({ persisted }) => persisted && look());
  document.addEventListener("visibilitychange", () => (document.hidden ? live.disconnect() : look()));
  addEventListener("signed-out", session.signIn);
  if (!(await session.resume())) return;
  live.connect();
  route();
  await readBroker();
}

live.listen(heard);
start();
