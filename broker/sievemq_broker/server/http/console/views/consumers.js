// Consumers: of a queue or topic, of a connection, of a client id.

import * as api from "../api.js";
import { closeAll } from "../actions.js";
import { badges } from "../attention.js";
import { h } from "../dom.js";
import { duration, number } from "../format.js";
import { Listing } from "../listing.js";
import { badge, clientLink, connectionLink, consumerLink, destinationLink, nothing, selectorLink } from "../parts.js";
import { firstOf, refusal } from "../rights.js";
import { figure } from "../table.js";

const ONLY = [
  ["slow", "Holding without acknowledging"],
  ["holding", "With messages in flight"],
  ["waiting", "Waiting for a message"],
];

/** What a consumer does, or does not do as it should. */
export const consumerBadges = (row) => [
  row.waiting && badge("waiting"),
  row.congested && badge("reads slowly", "warn"),
  badges(row),
];

/**
 * A list of consumers.
 * @param {object} context of the view. @param {object} whose parameters of the API.
 * @param {{client?: boolean, destination?: boolean, subscription?: boolean, empty?: Node}} shown which columns.
 */
export function consumerList(context, whose, shown) {
  const { namespace } = context;
  const { client = true, destination = true, subscription = false } = shown;
  return new Listing({
    label: "Consumers",
    nouns: ["consumer", "consumers"],
    context,
    load: (asked, signal) => api.get("/consumers", { ...asked, namespace, ...whose }, signal),
    rows: "consumers",
    order: "opened",
    search: "Filter by client, selector or id",
    only: ONLY,
    key: (row) => row.id,
    empty: shown.empty ?? nothing("No consumers."),
    columns: [
      {
        label: "Consumer",
        kind: "main",
        sorts: ["opened", "-opened"],
        cell: (row) => [consumerLink(namespace, row.id), " ", consumerBadges(row)],
      },
      client && {
        label: "Client",
        sorts: ["client_id"],
        cell: (row) =>
          row.client_id === null
            ? connectionLink(namespace, row.connection, row.peer)
            : clientLink(namespace, row.client_id),
      },
      destination && {
        label: "On",
        kind: "main",
        sorts: ["address"],
        cell: (row) => destinationLink(namespace, row.address),
      },
      subscription && { label: "Subscription", cell: (row) => row.subscription ?? "" },
      {
        label: "Selector",
        kind: "code",
        cell: (row) => selectorLink(namespace, row, row.subscription ? "" : row.address),
      },
      { label: "Match ratio", kind: "number", cell: ratio },
      figure("Delivered", "delivered", null, number),
      figure("In flight", "in_flight", null, number),
      figure("Oldest", "oldest", (row) => (row.oldest_ms ? duration(row.oldest_ms) : "–")),
      figure("Credit", "credit"),
    ],
    verbs: [{ text: "Close…", kind: "risky", run: closeConsumers, reason: closingRefused }],
  });
}

/** Asks, and closes consumers. */
export const closeConsumers = (rows) =>
  closeAll(rows, {
    nouns: ["consumer", "consumers"],
    words: "Unacknowledged messages stay with the session until it acknowledges or ends. The clients get an error.",
    path: (row) => api.destination(row.namespace, row.address, "consumers", row.id),
  });

/** Why some of these consumers cannot be closed. */
export const closingRefused = (rows) => firstOf(rows.map(({ may, address }) => refusal(may, "manage", address)));

/** The share of messages that its selector matched. */
export function ratio(row) {
  if (!row.selector) return "all";
  if (row.match_ratio === null) return "–";
  const percent = 100 * row.match_ratio;
  const text = `${percent > 0 && percent < 10 ? percent.toFixed(1) : Math.round(percent)} %`;
  return h("span", { title: `${number(row.matched)} of ${number(row.examined)} messages examined` }, text);
}
