// Taps: what the broker keeps for archives and queries until they have read it, and how far those are behind.

import * as api from "../api.js";
import { ask } from "../dialog.js";
import { h } from "../dom.js";
import { ago, bytes, count, duration, number } from "../format.js";
import { Listing } from "../listing.js";
import { notice } from "../notice.js";
import { badge, button, destinationLink, nothing, selectorLink } from "../parts.js";
import { figure } from "../table.js";

const FULL = 0.8; // of what it may hold; then it is shown

export const tapKey = (row) => `${row.destination} ${row.id}`;

/** Columns of a table of taps. The second names the destination. */
export function tapColumns(namespace, reread) {
  return [
    { label: "Tap", kind: "main", sorts: ["name"], cell: (row) => [h("span", row.name), " ", badges(row)] },
    { label: "On", kind: "main", sorts: ["destination"], cell: (row) => destinationLink(namespace, row.destination) },
    { label: "Selector", kind: "code", cell: (row) => selectorLink(namespace, row, row.destination) },
    figure("Lag", "lag"),
    figure("Behind", "lag_ms", (row) => (row.lag_ms ? duration(row.lag_ms) : "–")),
    figure("Missed", "missed", missed),
    figure("Holds", "bytes", held),
    { label: "Reader", kind: "when", cell: reader },
    {
      label: "Actions",
      kind: "actions",
      cell: (row) => button("Delete…", () => remove(namespace, row, reread), "small risky", reason(row)),
    },
  ];
}

function badges(row) {
  return [
    badge(row.mode),
    " ",
    row.ended && badge("takes no more", "bad"),
    !row.ended && share(row) >= FULL && badge("nearly full", "warn"),
  ];
}

const share = ({ lag, bytes: size, retention }) =>
  Math.min(1, Math.max(lag / retention.messages, size / retention.bytes));

const held = (row) => h("span", { title: allowed(row) }, bytes(row.bytes));

function allowed(row) {
  const { messages, bytes: size, age, lease } = row.retention;
  return [
    `${Math.round(100 * share(row))} % full: its limit is ${count(messages, "message")} or ${bytes(size)}`,
    age ? `, each for ${duration(age)}` : "",
    lease ? `; after ${duration(lease)} of silence from its reader it ends, or returns its messages` : "",
    ".",
  ].join("");
}

function missed(row) {
  if (!row.missed) return "0";
  return h("span", { class: "badge warn", title: `Up to number ${number(row.lost)}` }, number(row.missed));
}

function reader(row) {
  if (row.reader === null) return h("span", { class: "dim" }, "none so far");
  const title = `${row.reader}, last request ${ago(row.heard)}`;
  if (row.connected) return h("span", { title }, "connected");
  return [badge("gone", "warn"), " ", h("small", { class: "dim", title }, ago(row.heard))];
}

const reason = (row) =>
  row.yours
    ? null
    : `The tap is ${row.owner ?? "another user"}'s: deleting it needs the right to manage ${row.destination}.`;

async function remove(namespace, row, reread) {
  const what = count(row.lag, "message");
  const done = await ask({
    title: `Delete the tap ${row.name}?`,
    action: "Delete it",
    danger: true,
    body: [
      h(
        "p",
        row.mode === "copy"
          ? `${what} that its reader has not read will be lost to the reader; ${row.destination} keeps its messages.`
          : `${what} that it holds return to ${row.destination}, marked as redelivered.`,
      ),
      row.connected && h("p", h("b", "It has an active reader."), " Its reads will fail."),
    ],
    run: () => api.remove(api.destination(namespace, row.destination, "taps", row.name)),
  });
  if (!done) return;
  notice(`The tap ${row.name} is deleted.`);
  reread();
}

export default (context) =>
  new Listing({
    label: "Taps",
    nouns: ["tap", "taps"],
    context,
    load: (asked, signal) => api.list(context.namespace, "taps", asked, signal),
    rows: "taps",
    order: "destination",
    search: "Filter by name or destination",
    columns: tapColumns(context.namespace, context.read),
    key: tapKey,
    empty: nothing(
      "No taps.",
      "A tap keeps the messages of a destination until an archive or a query has read them. A Spark query with a tap " +
        "creates one, and so does ",
      h("code", "sievemq tap create"),
      ".",
    ),
  }).view("Taps");
