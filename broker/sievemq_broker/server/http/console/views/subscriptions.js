// Subscriptions of topics, what waits for them, and whether they have a consumer.

import { link } from "../address.js";
import { actOnEach } from "../actions.js";
import * as api from "../api.js";
import { badges } from "../attention.js";
import { h } from "../dom.js";
import { bytes, duration, number } from "../format.js";
import { Listing } from "../listing.js";
import { badge, clientLink, destinationLink, nothing, selectorLink } from "../parts.js";
import { firstOf, refusal } from "../rights.js";
import { figure } from "../table.js";

const ONLY = [
  ["offline", "Offline"],
  ["waiting", "With waiting messages"],
  ["in_flight", "With messages in flight"],
];

export const subscriptionKey = (row) =>
  JSON.stringify([row.topic, row.client_id, row.name, row.shared, row.selector, row.counters.enqueued]);

/** Columns of a table of subscriptions. The first names the topic. */
export function subscriptionColumns(namespace) {
  return [
    { label: "Topic", kind: "main", sorts: ["topic"], cell: (row) => destinationLink(namespace, row.topic) },
    {
      label: "Subscription",
      kind: "main",
      sorts: ["name"],
      cell: (row) => row.name ?? h("span", { class: "dim" }, "unnamed"),
    },
    { label: "Client id", sorts: ["client_id"], cell: (row) => clientLink(namespace, row.client_id) },
    {
      label: "Kind",
      kind: "kinds",
      cell: (row) => [
        [row.durable && "durable", row.shared && "shared"].filter(Boolean).join(" "),
        " ",
        row.active ? badges(row) : badge("offline", "warn"),
      ],
    },
    { label: "Selector", kind: "code", cell: (row) => selectorLink(namespace, row) },
    figure("Waiting", "depth", (row) => waiting(namespace, row), number),
    figure("Oldest", "oldest", (row) => (row.oldest_ms ? duration(row.oldest_ms) : "–")),
    figure("In flight", "in_flight", null, number),
    figure("Size", "bytes", (row) => bytes(row.bytes), bytes),
    figure("Consumers", "consumers", null, number),
  ];
}

function waiting(namespace, row) {
  if (!row.name || !row.depth) return number(row.depth);
  const whose = { subscription: row.name, client_id: row.client_id };
  return h("a", { href: link([namespace, "destination", row.topic, "messages"], whose) }, number(row.depth));
}

const removal = {
  text: "Remove…",
  kind: "risky",
  run: (rows) =>
    actOnEach(rows, {
      nouns: ["subscription", "subscriptions"],
      verb: "Remove",
      done: "Removed",
      words: "Messages that wait in it will be lost. This cannot be undone.",
      dry: (row) => remove(row, { dry_run: true }),
      run: (row) => remove(row),
    }),
  reason: (rows) =>
    rows.every(({ durable }) => durable)
      ? firstOf(rows.map(({ may, topic }) => refusal(may, "manage", topic)))
      : "One that is not durable ends with its consumers.",
};

const remove = (row, query = {}) =>
  api.remove(api.path("namespaces", row.namespace, "subscriptions", row.client_id ?? "-", row.name), query);

export default (context) =>
  new Listing({
    label: "Subscriptions",
    nouns: ["subscription", "subscriptions"],
    context,
    load: (asked, signal) => api.list(context.namespace, "subscriptions", asked, signal),
    rows: "subscriptions",
    order: "topic",
    search: "Filter by name, client id or topic",
    only: ONLY,
    columns: subscriptionColumns(context.namespace),
    verbs: [removal],
    key: subscriptionKey,
    empty: nothing("No subscriptions.", "They appear when a consumer subscribes to a topic."),
  }).view("Subscriptions");
