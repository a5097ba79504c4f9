// Queues, or topics: a list that can be filtered, sorted and paged, with what each did in the last minute.

import * as api from "../api.js";
import { actOnEach, declare } from "../actions.js";
import { badges } from "../attention.js";
import { bytes, duration, number, rate } from "../format.js";
import { Listing } from "../listing.js";
import { badge, button, choice, destinationLink, gauge, limitBadge, nothing } from "../parts.js";
import { allow, firstOf, makes, refusal } from "../rights.js";
import { sparkline } from "../sparkline.js";
import { figure } from "../table.js";

/** Samples of a row, for its line. */
export const RECENT = 60;

const ONLY = [
  ["waiting", "With waiting messages"],
  ["unconsumed", "Waiting without a consumer"],
  ["in_flight", "With messages in flight"],
  ["scheduled", "With scheduled messages"],
  ["paused", "Paused"],
  ["at_limit", "At a limit"],
  ["blocked", "With blocked senders"],
];

// What waits, and how much of the queue's limit that is.
const ready = (row) =>
  row.fill === null ? number(row.depth) : [number(row.depth), gauge(row.fill, `limit of ${row.name}, in use`)];

const age = (ms) => (ms ? duration(ms) : "–");

/** Columns of a table of queues. */
export function queueColumns(namespace, kind = "Queue") {
  return [
    { label: kind, kind: "main", sorts: ["address"], cell: (row) => name(namespace, row) },
    figure("Ready", "depth", ready, number),
    figure("Oldest", "oldest", (row) => age(row.oldest_ms)),
    { label: "Recently", kind: "spark", cell: (row) => sparkline(row.recent, `recent depth of ${row.name}`) },
    figure("In flight", "in_flight", null, number),
    figure("Scheduled", "scheduled", null, number),
    figure("In", "in_rate", (row) => rate(row.in_rate)),
    figure("Out", "out_rate", (row) => rate(row.out_rate)),
    { ...figure("Consumers", "consumers", null, number), sorts: ["consumers", "-consumers"] },
    figure("Size", "bytes", (row) => bytes(row.bytes), bytes),
  ];
}

function topicColumns(namespace) {
  return [
    { label: "Topic", kind: "main", sorts: ["address"], cell: (row) => name(namespace, row) },
    figure("Published", "published", (row) => number(row.counters.published)),
    figure("In", "in_rate", (row) => rate(row.in_rate)),
    figure("Out", "out_rate", (row) => rate(row.out_rate)),
    figure("Subscriptions", "subscriptions"),
    figure("Consumers", "consumers", null, number),
    figure("Waiting", "depth", ready, number),
    figure("Oldest", "oldest", (row) => age(row.oldest_ms)),
    figure("In flight", "in_flight", null, number),
    figure("Size", "bytes", (row) => bytes(row.bytes), bytes),
  ];
}

function name(namespace, row) {
  return [
    destinationLink(namespace, row.address, row.name),
    " ",
    row.paused && badge("paused", "warn"),
    limitBadge(row),
    badges(row),
    row.dead_letter_queue && badge("dead letters"),
  ];
}

export const queues = (context) =>
  destinations(context, { kind: "queue", title: "Queues", columns: queueColumns(context.namespace) });

export const topics = (context) =>
  destinations(context, { kind: "topic", title: "Topics", columns: topicColumns(context.namespace) });

// What can be done with several at a time: how it is told, and the request.
const VERBS = {
  Pause: ["Paused", "Delivery stops. Messages are still accepted.", (at) => api.post(`${at}/actions/pause`)],
  Resume: ["Resumed", "Delivery goes on.", (at) => api.post(`${at}/actions/resume`)],
  Purge: [
    "Purged",
    "Messages in flight stay. This cannot be undone.",
    (at, dry) => api.post(`${at}/actions/purge`, { dry_run: dry }),
  ],
  Delete: [
    "Deleted",
    "Their consumers will be closed. This cannot be undone.",
    (at, dry) => api.remove(at, { dry_run: dry }),
  ],
};

function verbOf(namespace, kind, verb) {
  const [done, words, request] = VERBS[verb];
  const danger = verb === "Purge" || verb === "Delete";
  const run = (row, dry = false) => request(api.destination(namespace, row.address), dry);
  const dry = danger ? (row) => run(row, true) : null;
  const nouns = /** @type {[string, string]} */ ([kind, `${kind}s`]);
  return {
    text: `${verb}…`,
    kind: danger ? "risky" : "",
    run: (rows) => actOnEach(rows, { nouns, verb, done, words, danger, dry, run: (row) => run(row) }),
    reason: (rows) => firstOf(rows.map((row) => refusal(row.may, "manage", row.address))),
  };
}

function destinations(context, { kind, title, columns }) {
  const { namespace, query, signal: gone } = context;
  const kinds = choice(
    [
      [kind, title],
      [`temporary-${kind}`, `Temporary ${title.toLowerCase()}`],
    ],
    query.get("kind") ?? kind,
    (value) => list.change({ kind: value === kind ? "" : value, cursor: "" }),
  );
  kinds.setAttribute("aria-label", "Kind");
  const list = new Listing({
    label: title,
    nouns: [kind, title.toLowerCase()],
    context,
    load: (asked, signal) =>
      api.list(namespace, "destinations", { recent: RECENT, ...asked, kind: asked.kind || kind }, signal),
    rows: "destinations",
    order: "address",
    search: "Filter by name, such as orders or *.eu",
    only: ONLY,
    tools: [kinds],
    columns,
    key: (row) => row.address,
    verbs: Object.keys(VERBS)
      .filter((verb) => verb !== "Purge" || kind === "queue")
      .map((verb) => verbOf(namespace, kind, verb)),
    empty: nothing(
      `No ${title.toLowerCase()} here.`,
      `A ${kind} is created at its first use, or with the button above.`,
    ),
  });
  const make = button(`New ${kind}`, () => declare(namespace, kind), "primary");
  makes(namespace, kind, gone).then(
    (reason) => allow(make, reason),
    () => {}, // the read below reports errors
  );
  const view = list.view(title, [make]);
  return {
    ...view,
    query: (fresh) => {
      kinds.value = fresh.get("kind") || kind;
      view.query(fresh);
    },
  };
}
