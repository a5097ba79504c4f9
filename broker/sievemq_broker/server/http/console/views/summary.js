// A queue's figures, charts, consumers and rules; a topic's, with its subscriptions.

import * as api from "../api.js";
import { Chart, ratesChart, samplesOf } from "../chart.js";
import { h, put } from "../dom.js";
import { marks, range, rangeChoice } from "../ranges.js";
import { brokerTime, bytes, compact, duration, number } from "../format.js";
import { button, facts, gauge, nothing, section } from "../parts.js";
import { allow } from "../rights.js";
import { changeRulesOf, refusals, rulesOf } from "../rules.js";
import { Table } from "../table.js";
import { consumerList } from "./consumers.js";
import { subscriptionColumns, subscriptionKey } from "./subscriptions.js";
import { tapColumns, tapKey } from "./taps.js";

const PAGE = 50;

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
    columns: subscriptionColumns(namespace).slice(1),
    key: subscriptionKey,
    empty: nothing("No subscriptions.", "Messages published now are dropped."),
  });
  const consumers = consumerList(
    { namespace, query, read: reread },
    { destination: address },
    {
      destination: false,
      subscription: !isQueue,
      empty: isQueue
        ? nothing("No consumers.", "Messages of this queue wait.")
        : nothing("No consumers.", "This topic has no open consumer."),
    },
  );
  const taps = new Table({
    label: "Taps",
    columns: tapColumns(namespace, reread).filter(({ label }) => label !== "On"),
    key: tapKey,
    empty: "",
  });
  const tapped = section("Taps", taps.node);
  const rules = h("div");
  let shown = null;
  const changing = button("Change…", async () => (await changeRulesOf(shown)) && reread(), "small", "");
  tapped.hidden = true;
  const node = h(
    "div",
    figures,
    rangeChoice(() => reread()),
    h("div", { class: "charts" }, depth.node, rates.node),
    !isQueue && section("Subscriptions", subscriptions.node),
    section("Consumers", consumers.node),
    tapped,
    section("Rules", rules, h("div", { class: "buttons" }, changing)),
  );

  async function read(signal, _, state) {
    put(figures, facts(figuresOf(state, isQueue)));
    put(rules, facts(rulesOf(state, namespace)));
    if (!shown) allow(changing, (await refusals(signal))[0]);
    shown = state;
    const [series, subscribed, tapping] = await Promise.all([
      api.get(api.destination(namespace, address, "series"), { range: range.name() }, signal),
      isQueue ? null : api.list(namespace, "subscriptions", { topic: address, limit: PAGE }, signal),
      api.list(namespace, "taps", { destination: address, limit: PAGE }, signal),
      consumers.read(signal),
    ]);
    const samples = samplesOf(series);
    const seen = await marks({ namespace, address }, brokerTime(), signal);
    for (const chart of [depth, rates]) chart.update(samples, seen, range.ms());
    tapped.hidden = tapping.taps.length === 0;
    taps.update(tapping.taps);
    if (subscribed) subscriptions.update(subscribed.subscriptions);
  }

  return {
    node,
    read,
    query: (fresh) => consumers.query(fresh),
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
