// What a dead letter tells: why it is one, who failed it last, and when.

import { clientLink, consumerLink, destinationLink, facts } from "./parts.js";
import { h } from "./dom.js";
import { ago, number, time } from "./format.js";

const NOTES = "JMS_SieveMQ_DeadLetter"; // begins the names of its properties
const REASONS = {
  attempts: "failed too often",
  expired: "expired before delivery",
  rejected: "refused by its consumer for good",
};

/** Why, in words; the text of the last failure, if there is one, below. */
export const why = (reason, error) => [
  REASONS[reason] ?? reason ?? "says nothing",
  error && h("small", { class: "error" }, error),
];

/** When it failed last, and which client had it then. */
export const lastFailure = (namespace, group) => [
  moment(group.last_failure),
  group.failed_by && failedBy(namespace, group.failed_by),
];

function failedBy(namespace, { client_id: id, user, address, consumer }) {
  const name = id ? clientLink(namespace, id) : user ? `user ${user}` : "a client without a name";
  const by = consumer && consumerLink(namespace, consumer, `consumer ${consumer}`);
  return [h("b", name), h("small", id && user && `user ${user} · `, address, address && by && " · ", by)];
}

/** When: the time, and how long ago. */
export const moment = (ms) => [time(ms), " ", h("small", { class: "dim" }, ago(ms))];

/** The facts of a message in a dead-letter queue; null if it is none. */
export function deadLetterFacts(namespace, { properties }) {
  const note = (name) => properties[NOTES + name]?.value;
  if (!note("Reason")) return null;
  const [client_id, user, address, consumer] = ["ClientID", "User", "Address", "Consumer"].map(
    (name) => note(`FailedBy${name}`) ?? null,
  );
  const known = [client_id, user, address, consumer].some(Boolean);
  return facts([
    ["Why", why(note("Reason"), note("Error"))],
    known && ["Failed by", failedBy(namespace, { client_id, user, address, consumer })],
    note("LastFailure") && ["Last failure", moment(note("LastFailure"))],
    note("FirstFailure") && ["First failure", moment(note("FirstFailure"))],
    ["Failed attempts", number(note("Attempts"))],
    note("Origin") && [
      "Came from",
      [destinationLink(namespace, note("Origin")), note("Subscription") && ` · ${note("Subscription")}`],
    ],
  ]);
}
