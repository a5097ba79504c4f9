// Open connections, and how to close them.

import * as api from "../api.js";
import { badges } from "../attention.js";
import { closeAll } from "../actions.js";
import { h } from "../dom.js";
import { bytes, number, since } from "../format.js";
import { Listing } from "../listing.js";
import { badge, clientLink, connectionLink, destinationLink, nothing } from "../parts.js";
import { firstOf, refusal } from "../rights.js";
import { figure } from "../table.js";

const ONLY = [
  ["blocked", "Blocked"],
  ["holding", "With unacknowledged messages"],
  ["congested", "Reading too slowly"],
];

/** What a connection is not as it should be. */
export function connectionBadges(row) {
  return [
    row.congested && badge("reads slowly", "warn"),
    badges(row),
    row.blocked_since && h("span", { title: row.blocked_by }, badge(`blocked ${since(row.blocked_since)}`, "bad")),
    row.blocked_at && ["at ", destinationLink(row.namespace, row.blocked_at)],
  ];
}

/** Columns of a table of connections. */
export const connectionColumns = () => [
  {
    label: "Connection",
    kind: "main",
    sorts: ["opened", "-opened"],
    cell: (row) => [connectionLink(row.namespace, row.id), " ", connectionBadges(row)],
  },
  { label: "Client id", sorts: ["client_id"], cell: (row) => clientLink(row.namespace, row.client_id) },
  { label: "From", kind: "code", sorts: ["peer"], cell: (row) => row.peer },
  { label: "User", sorts: ["user"], cell: (row) => row.user ?? "–" },
  { label: "Namespace", cell: (row) => row.namespace },
  { label: "Protocol", sorts: ["protocol"], cell: (row) => h("span", { title: row.agent }, row.protocol) },
  figure("Consumers", "consumers", null, number),
  figure("Unacked", "unacknowledged", null, number),
  figure("Received", "bytes_in", (row) => bytes(row.bytes_in)),
];

/** Asks, and closes connections. */
export const closeConnections = (rows) =>
  closeAll(rows, {
    nouns: ["connection", "connections"],
    words: "Their unacknowledged messages return to their queues. The clients may reconnect.",
    path: (row) => api.path("connections", row.id),
  });

/** Why some of these connections cannot be closed. */
export const closingRefused = (rows) =>
  firstOf(rows.map(({ may, namespace }) => refusal(may, "manage", `all of namespace ${namespace}`)));

export default (context) =>
  new Listing({
    label: "Connections",
    nouns: ["connection", "connections"],
    context,
    load: (asked, signal) => api.get("/connections", asked, signal),
    rows: "connections",
    order: "opened",
    search: "Filter by client id, user, address, agent or protocol",
    only: ONLY,
    key: (row) => row.id,
    columns: connectionColumns(),
    empty: nothing("No connections.", "Only connections to namespaces that you may view as a whole are listed."),
    verbs: [{ text: "Close…", kind: "risky", run: closeConnections, reason: closingRefused }],
  }).view("Connections");
