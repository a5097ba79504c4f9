// What needs attention: the list of the overview, and the badges of lists. The broker finds it (`/attention`).

import { here, link } from "./address.js";
import { h } from "./dom.js";
import { number, since } from "./format.js";
import { badge, button, connectionLink, consumerLink, destinationLink } from "./parts.js";

const SHOWN = 6; // findings that are listed at first
const KINDS = { critical: "bad", warning: "warn", notice: "calm" };

// Badges by rule. Rules that a row shows by other badges have none: at its limit, paused, reads slowly.
const BADGES = {
  consumer_stuck: ["stuck consumer", "bad"],
  no_consumer: ["no consumer", "bad"],
  sends_refused: ["refuses sends", "bad"],
  opens_refused: ["refuses consumers", "bad"],
  rollbacks: ["rolls back", "warn"],
  growing: ["growing", "warn"],
  dead_letters: ["new dead letters", "warn"],
  dead_letters_refused: ["dead letters refused", "bad"],
  nearly_full: ["nearly full", "warn"],
};

/** The badges of a row of any list: what the broker has found about it. */
export const badges = (row) => row.attention.map((rule) => rule in BADGES && badge(...BADGES[rule]));

/**
 * The list of what needs attention; nothing where nothing does.
 * @param {{findings: object[], totals: Record<string, number>}} attention as the broker answers.
 * @param {boolean} whole show all that the broker lists. @param {() => void} showAll called to have it so.
 */
export function listOf({ findings, totals }, whole, showAll) {
  const shown = whole ? findings : findings.slice(0, SHOWN);
  const more = Object.values(totals).reduce((sum, n) => sum + n, 0) - shown.length;
  const rest = shown.length < findings.length ? button("Show them", showAll, "small") : "with badges in the lists";
  return [shown.map(item), more > 0 && h("li", { class: "calm" }, `and ${number(more)} more `, rest)];
}

/** How many findings are no mere notices, and how bad the worst is. */
export function summaryOf({ findings, totals }) {
  const notices = new Set(findings.filter(({ severity }) => severity === "notice").map(({ rule }) => rule));
  const count = Object.entries(totals).reduce((sum, [rule, n]) => sum + (notices.has(rule) ? 0 : n), 0);
  return { count, kind: findings[0]?.severity === "critical" ? "bad" : "warn" };
}

function item(finding) {
  return h(
    "li",
    { class: KINDS[finding.severity] },
    h("div", h("span", { class: "for" }, `for ${since(finding.since)}`), placeOf(finding), finding.text),
    h("small", finding.advice),
  );
}

// The object, as a link to the view that shows it.
function placeOf({ namespace, address, subscription, connection, consumer, client_id: client, rule }) {
  const found = [];
  if (address && rule === "dead_letters")
    found.push(h("a", { href: link([namespace, "dead-letters"]) }, h("code", address)));
  else if (address) found.push(destinationLink(namespace, address, subscription ?? address));
  if (consumer) found.push(consumerLink(namespace, consumer, client ?? consumer));
  else if (connection) found.push(connectionLink(namespace, connection, client ?? connection));
  if (namespace && namespace !== "default") found.push(h("span", namespace));
  if (!namespace) found.push(h("a", { href: link([here().path[0] ?? "default", "broker"]) }, "broker"));
  return found.map((each, i) => [i ? ", " : "", each, i === found.length - 1 ? ": " : ""]);
}
