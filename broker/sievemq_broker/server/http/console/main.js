// The console: which view is shown, and when it is read anew.

import { go, here, link } from "./address.js";
import { Refused, Unreachable, get, post } from "./api.js";
import { summaryOf } from "./attention.js";
import { away, h, put } from "./dom.js";
import { setClock } from "./format.js";
import * as frame from "./frame.js";
import { help, listenToKeys } from "./keys.js";
import * as live from "./live.js";
import { failure, recovered } from "./notice.js";
import { button, head, nothing } from "./parts.js";
import * as session from "./session.js";
import broker from "./views/broker.js";
import client from "./views/client.js";
import connection from "./views/connection.js";
import connections from "./views/connections.js";
import consumer from "./views/consumer.js";
import deadLetters from "./views/deadletters.js";
import destination from "./views/destination.js";
import { queues, topics } from "./views/destinations.js";
import history from "./views/history.js";
import overview from "./views/overview.js";
import rules from "./views/rules.js";
import record from "./views/record.js";
import scheduled from "./views/scheduled.js";
import subscriptions from "./views/subscriptions.js";
import taps from "./views/taps.js";
import workbench from "./views/workbench.js";

/**
 * A view is made by a function of its context, and gives back
 * @typedef {object} View
 * @property {string} title
 * @property {HTMLElement} node
 * @property {(signal: AbortSignal, ticking: boolean) => Promise<void>} [read] reads its data and shows them; called
 *   again and again, `ticking` where only time has passed: what costs the broker much is not read again for that.
 * @property {(query: URLSearchParams) => void} [query] the query of its address has changed; without it, the view is
 *   made anew.
 * @property {(what: string, about: object) => void} [heard] the broker told something; "begin" in place of the first
 *   tick: what happened between the first reading and this was not told.
 */
const VIEWS = {
  overview,
  history,
  queues,
  topics,
  subscriptions,
  "dead-letters": deadLetters,
  scheduled,
  taps,
  connections,
  connection,
  consumer,
  client,
  broker,
  rules,
  workbench,
  record,
  destination,
};

const EVERY = 2; // ticks of a second between two readings of a view
const SELDOM = 10; // ticks between two looks at the broker as a whole

let shown = null; // the view shown: its key, what made it, how it is read
let ticks = 0;

/** Shows what the URL says. */
function route() {
  const { path, query } = here();
  const [namespace = "default", place = "overview", ...rest] = path;
  const key = JSON.stringify([namespace, place, rest]);
  frame.locate(namespace);
  if (shown?.key === key && shown.view.query) {
    shown.view.query(query);
    read();
    return;
  }
  const moved = shown !== null;
  shown?.stop.abort();
  const stop = new AbortController();
  const view = VIEWS[place]?.({ namespace, rest, query, signal: stop.signal, read: () => read() }) ?? unknown();
  shown = { key, namespace, view, stop, reading: null, again: false, failed: null };
  document.title = `${view.title} · SieveMQ`;
  put(frame.main);
  frame.main.append(view.node);
  frame.main.dataset.address = location.hash.split("?")[0];
  frame.main.setAttribute("aria-busy", "true");
  if (moved) {
    scrollTo(0, 0);
    frame.main.focus({ preventScroll: true });
  }
  read();
}

const unknown = () => ({
  title: "Not found",
  node: h("div", head("Not found"), nothing("There is no such view.", "Choose one from the menu.")),
});

/** Reads the data of the view shown; anew on a request meanwhile, since the view may show something else by then. */
async function read(ticking = false) {
  const now = shown;
  if (now.reading) {
    if (!ticking) {
      now.again = true;
      now.reading.abort();
    }
    return;
  }
  now.reading = new AbortController();
  try {
    // A view that has failed is read whole: one that reads nothing on a tick would count as shown again.
    await now.view.read?.(AbortSignal.any([now.stop.signal, now.reading.signal]), ticking && !now.failed);
    if (now === shown) succeed(now);
  } catch (error) {
    if (now === shown && error.name !== "AbortError") fail(now, error);
  } finally {
    now.reading = null;
    if (now.again && now === shown) {
      now.again = false;
      read();
    }
  }
}

function succeed(now) {
  frame.main.setAttribute("aria-busy", "false");
  now.failed?.remove();
  now.failed = null;
  now.view.node.hidden = false;
}

function fail(now, error) {
  if (error instanceof Unreachable) unreachable();
  else if (!(error instanceof Refused)) throw error;
  else if (error.status === 429 || error.status >= 500) frame.warn(h("strong", error.message));
  else if (error.status !== 401) refused(now, error);
}

// In place of the view: why it cannot be shown.
function refused(now, error) {
  if (now.refusal === error.message && now.failed) return; // it stands there already
  now.refusal = error.message;
  const titles = { 403: "You may not see this.", 404: "This does not exist.", 421: "Another broker has this." };
  const { url } = error.details;
  const back = url
    ? away(`${url}/${location.hash}`, "Open its console")
    : h("a", { href: link([now.namespace, "overview"]) }, "Back to the overview");
  now.failed?.remove();
  const why = isNoNamespace(error)
    ? noNamespace(now)
    : nothing(titles[error.status] ?? "The broker refused this.", error.message.split("\n")[0], " ", back);
  now.failed = h("div", head(now.view.title), why);
  frame.main.append(now.failed);
  frame.main.setAttribute("aria-busy", "false");
  now.view.node.hidden = true;
}

const isNoNamespace = ({ status, details }) => status === 404 && "namespace" in details && !("address" in details);

function noNamespace({ namespace }) {
  const there = h("span");
  const make = button("Make it", async () => {
    try {
      await post("/namespaces", { name: namespace });
      await Promise.all([read(), readBroker()]);
    } catch (error) {
      failure(error);
    }
  });
  get("/namespaces", { limit: 1000 }).then(
    ({ namespaces }) =>
      put(
        there,
        namespaces.map(({ name }, i) => [i ? ", " : "", h("a", { href: link([name, "overview"]) }, name)]),
      ),
    () => {}, // the banner says what is wrong
  );
  return nothing(`There is no namespace ${namespace}.`, "There are: ", there, ". ", make);
}

function unreachable() {
  frame.warn(
    h("strong", "The broker does not answer."),
    " The page shows the last known state. Reconnecting… ",
    h("button", { type: "button", click: () => live.connect() }, "Try now"),
  );
}

// No events: no answer at all, or only no events. Then the views are read at each try to hear them again.
async function lost() {
  document.body.classList.replace("live", "lost") || document.body.classList.add("lost");
  if (!(await session.resume())) return; // the session has ended, not the broker
  if (live.state.tries < 2) return; // the first try may find it again
  try {
    await get("/broker");
  } catch (error) {
    fail(shown, error);
    return;
  }
  if (live.state.connected) return;
  frame.warn(h("strong", "Live updates are off."), " The page is refreshed every few seconds.");
  read();
}

/** Reads what the frame shows. */
async function readBroker() {
  try {
    const [broker, attention, list, rights] = await Promise.all([
      get("/broker"),
      get("/attention"),
      get("/namespaces", { limit: 1000 }),
      get("/session"),
    ]);
    setClock(broker.now);
    frame.describe(broker, list, rights);
    const first = list.namespaces[0]?.name; // to begin with, where the default one is elsewhere
    if (first && !here().path.length && list.elsewhere.some(({ name }) => name === "default")) go([first, "overview"]);
    frame.alert(summaryOf(attention));
  } catch (error) {
    fail(shown, error);
  }
}

function heard(what, about) {
  if (what === "lost") {
    lost();
    return;
  }
  const begins = what === "tick" && !document.body.classList.contains("live");
  if (what !== "event") {
    frame.warn();
    document.body.classList.remove("lost");
    document.body.classList.add("live"); // from here on, events arrive
  }
  shown.view.heard?.(begins ? "begin" : what, about);
  if (what === "tick") ticks += 1;
  if (what === "back") {
    recovered();
    read();
  }
  if (what === "tick" && ticks % EVERY === 0) read(true);
  if (what === "back" || (what === "tick" && ticks % SELDOM === 0)) readBroker();
}

// The page is visible again: show the present state.
function look() {
  live.connect();
  read();
}

async function start() {
  const showKeys = () => help(frame.places());
  frame.build(/** @type {HTMLElement} */ (document.getElementById("console")), showKeys);
  if (!(await session.resume())) return;
  listenToKeys(frame.places());
  addEventListener("hashchange", route);
  addEventListener("pagehide", live.disconnect);
  addEventListener("pageshow", ({ persisted }) => persisted && look());
  document.addEventListener("visibilitychange", () => (document.hidden ? live.disconnect() : look()));
  addEventListener("signed-out", session.signIn);
  route();
  live.listen(heard);
  live.connect();
  await readBroker();
}

start();
