// Subscriptions of topics, what waits for them, and whether they have a consumer.

import { link, turn } from "../address.js";
import * as api from "../api.js";
import { badges } from "../attention.js";
import { ask } from "../dialog.js";
import { h } from "../dom.js";
import { bytes, count, number } from "../format.js";
import { notice } from "../notice.js";
import { Pager, badge, button, destinationLink, head, nothing, selectorLink } from "../parts.js";
import { allow, refusal } from "../rights.js";
import { Table } from "../table.js";

const PAGE = 100;

export const subscriptionKey = (row) =>
  JSON.stringify([row.topic, row.client_id, row.name, row.shared, row.selector, row.counters.enqueued]);

/** Columns of a table of subscriptions. The first names the topic. */
export function subscriptionColumns(namespace, reread) {
  return [
    { label: "Topic", kind: "main", cell: (row) => destinationLink(namespace, row.topic) },
    { label: "Subscription", kind: "main", cell: (row) => row.name ?? h("span", { class: "dim" }, "unnamed") },
    { label: "Client id", cell: (row) => row.client_id ?? "" },
    {
      label: "Kind",
      kind: "kinds",
      cell: (row) => [
        row.durable && badge("durable"),
        " ",
        row.shared && badge("shared"),
        " ",
        row.active ? badges(row) : badge("offline", "warn"),
      ],
    },
    { label: "Selector", kind: "code", cell: (row) => selectorLink(namespace, row) },
    { label: "Waiting", kind: "number", cell: (row) => waiting(namespace, row) },
    { label: "In flight", kind: "number", cell: (row) => number(row.in_flight) },
    { label: "Size", kind: "number", cell: (row) => bytes(row.bytes) },
    { label: "Consumers", kind: "number", cell: (row) => number(row.consumers) },
    {
      label: "Actions",
      kind: "actions",
      cell: (row) =>
        row.durable &&
        allow(
          button("Remove…", () => removeSubscription(namespace, row, reread), "small risky"),
          refusal(row.may, "manage", row.topic),
        ),
    },
  ];
}

function waiting(namespace, row) {
  if (!row.name || !row.depth) return number(row.depth);
  const whose = { subscription: row.name, client_id: row.client_id };
  return h("a", { href: link([namespace, "destination", row.topic, "messages"], whose) }, number(row.depth));
}

async function removeSubscription(namespace, row, reread) {
  const done = await ask({
    title: `Remove the subscription ${row.name}?`,
    action: "Remove it",
    danger: true,
    body: h(
      "p",
      row.depth ? `${count(row.depth, "message")} that wait in it will be lost. ` : "No messages wait in it. ",
      "This cannot be undone.",
    ),
    run: () => api.remove(api.path("namespaces", namespace, "subscriptions", row.client_id ?? "-", row.name)),
  });
  if (!done) return;
  notice(`The subscription ${row.name} is removed.`);
  reread();
}

export default function subscriptions({ namespace, query, read: reread }) {
  let asked = query;
  const table = new Table({
    label: "Subscriptions",
    columns: subscriptionColumns(namespace, reread),
    key: subscriptionKey,
    empty: nothing("No subscriptions.", "They appear when a consumer subscribes to a topic."),
  });
  const pager = new Pager((cursor, before) => {
    turn({ cursor }, before);
    asked = new URLSearchParams({ cursor });
    reread();
  });
  const node = h("div", head("Subscriptions"), table.node, pager.node);

  async function read(signal) {
    const answer = await api.list(
      namespace,
      "subscriptions",
      { cursor: asked.get("cursor"), like: asked.get("like"), limit: PAGE },
      signal,
    );
    table.update(answer.subscriptions);
    pager.update(answer.next, asked.get("cursor"));
  }

  return {
    title: "Subscriptions",
    node,
    read,
    query: (fresh) => {
      asked = fresh;
    },
  };
}
