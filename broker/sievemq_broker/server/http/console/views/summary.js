// A queue's figures, charts, consumers and rules; a topic's, with its subscriptions.

import { turn } from "../address.js";
import * as api from "../api.js";
import { badges } from "../attention.js";
import { Chart, ratesChart, samplesOf } from "../chart.js";
import { h, put } from "../dom.js";
import { bytes, compact, count, duration, number } from "../format.js";
import { Pager, badge, button, facts, gauge, nothing, section, selectorLink } from "../parts.js";
import { ask } from "../dialog.js";
import { notice } from "../notice.js";
import { allow, refusal } from "../rights.js";
import { changeRulesOf, mayNotChange, rulesOf } from "../rules.js";
import { Table } from "../table.js";
import { subscriptionColumns, subscriptionKey } from "./subscriptions.js";
import { tapColumns, tapKey } from "./taps.js";

const PAGE = 50;
const LONG = 60_000; // ms that a message is in flight, from which on it is shown

export default function summary({ namespace, address, isQueue, query, read: reread }) {
  const figures = h("div");
  const rates = ratesChart();
  const depth = new Chart({
    title: isQueue ? "Depth" : "Waiting for subscribers",
    lines: [
      { name: "ready", key: "depth" },
      { name: "in flight", key: "in_flight" },
    ],
    format: compact,
  });
  const subscriptions = new Table({
    label: "Subscriptions",
    columns: subscriptionColumns(namespace, reread).slice(1),
    key: subscriptionKey,
    empty: nothing("No subscriptions.", "Messages published now are dropped."),
  });
  let reason = null; // why the user may not close consumers
  const consumers = consumerTable(namespace, address, isQueue, reread, () => reason);
  const taps = new Table({
    label: "Taps",
    columns: tapColumns(namespace, reread).filter(({ label }) => label !== "On"),
    key: tapKey,
    empty: "",
  });
  const tapped = section("Taps", taps.node);
  let cursor = query.get("cursor") ?? "";
  const pager = new Pager((to, before) => {
    turn({ cursor: to }, before);
    cursor = to;
    reread();
  });
  const rules = h("div");
  let shown = null;
  const changing = allow(
    button("Change…", async () => (await changeRulesOf(shown)) && reread(), "small"),
    "",
  );
  tapped.hidden = true;
  const node = h(
    "div",
    figures,
    h("div", { class: "charts" }, depth.node, rates.node),
    !isQueue && section("Subscriptions", subscriptions.node),
    section("Consumers", consumers.node, pager.node),
    tapped,
    section("Rules", rules, h("div", { class: "buttons" }, changing)),
  );

  async function read(signal, _, state) {
    reason = refusal(state.may, "manage", address);
    put(figures, facts(figuresOf(state, isQueue)));
    put(rules, facts(rulesOf(state, namespace)));
    if (!shown) allow(changing, await mayNotChange(signal));
    shown = state;
    const [series, list, subscribed, tapping] = await Promise.all([
      api.get(api.destination(namespace, address, "series"), {}, signal),
      api.get(api.destination(namespace, address, "consumers"), { cursor, limit: PAGE }, signal),
      isQueue ? null : api.list(namespace, "subscriptions", { topic: address, limit: PAGE }, signal),
      api.list(namespace, "taps", { destination: address, limit: PAGE }, signal),
    ]);
    const samples = samplesOf(series);
    depth.update(samples);
    rates.update(samples);
    consumers.update(list.consumers);
    const words = list.next || cursor ? `${count(list.total, "consumer")} in all` : "";
    pager.update(list.next, cursor, words);
    tapped.hidden = tapping.taps.length === 0;
    taps.update(tapping.taps);
    if (subscribed) subscriptions.update(subscribed.subscriptions);
  }

  return {
    node,
    read,
    query: (fresh) => {
      cursor = fresh.get("cursor") ?? "";
    },
  };
}

function figuresOf(state, isQueue) {
  const { counters } = state;
  return [
    [isQueue ? "Ready" : "Waiting", number(state.depth)],
    ["Oldest waits", state.oldest_ms ? duration(state.oldest_ms) : "–"],
    ["In flight", number(state.in_flight)],
    state.in_flight > 0 && ["Oldest in flight", duration(state.oldest_in_flight_ms)],
    ["Scheduled", number(state.scheduled)],
    ["Size", bytes(state.bytes)],
    state.fill !== null && ["Limit in use", [`${Math.round(100 * state.fill)} %`, gauge(state.fill, "limit in use")]],
    isQueue ? ["Enqueued", number(counters.enqueued)] : ["Published", number(counters.published)],
    ["Acknowledged", number(counters.acknowledged)],
    ["Redelivered", number(counters.redelivered)],
    ["Expired", number(counters.expired)],
    ["Dead letters", number(counters.dead_lettered)],
    ["Removed by an operator", number(counters.removed)],
    counters.refused > 0 && ["Refused at the limit", number(counters.refused)],
    state.selectors > 0 && ["Selectors in use", number(state.selectors)],
    state.selectors > 0 && ["Selector evaluations", `${compact(state.evaluations)}, ${compact(state.matches)} matched`],
  ];
}

function consumerTable(namespace, address, isQueue, reread, reason) {
  return new Table({
    label: "Consumers",
    key: (row) => row.id,
    empty: isQueue
      ? nothing("No consumers.", "Messages of this queue wait.")
      : nothing("No consumers.", "This topic has no open consumer."),
    columns: [
      {
        label: "Client",
        kind: "main",
        cell: (row) => [
          h("span", row.client_id ?? row.peer),
          row.client_id && [" ", h("small", { class: "dim" }, row.peer)],
          " ",
          row.waiting && badge("waiting"),
          row.congested && badge("reads slowly", "warn"),
          badges(row),
        ],
      },
      !isQueue && { label: "Subscription", cell: (row) => row.subscription ?? "" },
      { label: "Selector", kind: "code", cell: (row) => selectorLink(namespace, row, isQueue ? address : "") },
      { label: "Match ratio", kind: "number", cell: ratio },
      { label: "Delivered", kind: "number", cell: (row) => number(row.delivered) },
      {
        label: "In flight",
        kind: "number",
        cell: (row) => [
          number(row.in_flight),
          row.oldest_ms >= LONG && h("div", { class: "dim" }, `oldest ${duration(row.oldest_ms)}`),
        ],
      },
      { label: "Credit", kind: "number", cell: (row) => number(row.credit) },
      {
        label: "Actions",
        kind: "actions",
        cell: (row) =>
          allow(
            button("Close…", () => closeConsumer(namespace, address, row, reread), "small risky"),
            reason(),
          ),
      },
    ],
  });
}

async function closeConsumer(namespace, address, row, reread) {
  const done = await ask({
    title: "Close this consumer?",
    action: "Close it",
    danger: true,
    body: h("p", "Its unacknowledged messages return to the queue. Its client gets an error."),
    run: () => api.remove(api.destination(namespace, address, "consumers", row.id)),
  });
  if (!done) return;
  notice("The consumer is closed.");
  reread();
}

function ratio(row) {
  if (!row.selector) return "all";
  if (row.match_ratio === null) return "–";
  const percent = 100 * row.match_ratio;
  const text = `${percent > 0 && percent < 10 ? percent.toFixed(1) : Math.round(percent)} %`;
  return h("span", { title: `${number(row.matched)} of ${number(row.examined)} messages examined` }, text);
}
