// The broker at a glance: what flows, what waits, what is wrong.

import { link } from "../address.js";
import { listOf } from "../attention.js";
import { get, list } from "../api.js";
import { Chart, ratesChart, samplesOf } from "../chart.js";
import { h, put, say } from "../dom.js";
import { ago, bytes, compact, number, rate } from "../format.js";
import * as live from "../live.js";
import { marks, range, rangeChoice } from "../ranges.js";
import { gauge, head, linkButton, nothing, section } from "../parts.js";
import { sparkline } from "../sparkline.js";
import { Table } from "../table.js";
import { RECENT, queueColumns } from "./destinations.js";

const BUSY = 8;
const SELDOM = 5; // readings of the view to one of the broker as a whole
const KEEP = 150; // samples, one each reading

const TILES = [
  ["in_rate", "Messages in", rate],
  ["out_rate", "Messages out", rate],
  ["depth", "Ready", number],
  ["in_flight", "In flight", number],
  ["scheduled", "Scheduled", number],
  ["memory_bytes", "Memory", bytes],
  ["connections", "Connections", number],
  ["consumers", "Consumers", number],
];

export default function overview({ namespace, signal: gone, read: reread }) {
  const alarms = h("ul", { class: "alarms", "aria-label": "Needs attention" });
  const tiles = TILES.map(([key, name, format]) => tile(key, name, format));
  const rates = ratesChart();
  const depth = new Chart({
    title: "Messages held",
    lines: [
      { name: "ready", key: "depth" },
      { name: "in flight", key: "in_flight" },
    ],
    format: compact,
  });
  const ranges = rangeChoice(() => reread());
  const busiest = new Table({
    label: "Deepest queues",
    columns: queueColumns(namespace),
    key: (row) => row.address,
    empty: nothing(
      "No queues yet.",
      "A queue is created at its first use. ",
      h("a", { href: link([namespace, "destination", "queue:hello", "send"]) }, "Send a first message"),
    ),
  });
  const news = h("ol", { class: "news" });
  const node = h(
    "div",
    head("Overview", { actions: [linkButton("All queues", link([namespace, "queues"]))] }),
    alarms,
    h(
      "div",
      { class: "tiles" },
      tiles.map((item) => item.node),
    ),
    ranges,
    h("div", { class: "charts" }, rates.node, depth.node),
    section("Deepest queues", busiest.node),
    section("What happened", news, h("p", h("a", { href: link([namespace, "history"]) }, "All that happened"))),
  );

  let found = null; // what needs attention
  let whole = false; // all of it is shown
  let lacks = live.samples.length < 2;
  let own = null; // samples of what the user may see, where the broker's totals are not for them
  let past = { marks: [], samples: null }; // what happened in the range that is shown, and the samples of a longer one

  function draw() {
    const samples = own ?? live.samples;
    for (const item of tiles) item.update(samples);
    for (const chart of [rates, depth])
      chart.update(past.samples ?? samples, [...past.marks, ...live.restarts], own ? 0 : range.ms());
    put(
      news,
      live.happenings.length
        ? live.happenings.slice(0, 12).map((item) => h("li", h("time", ago(item.time)), item.text))
        : h("li", { class: "dim" }, "Nothing yet."),
    );
  }

  function drawFindings() {
    const showAll = () => {
      whole = true;
      drawFindings();
    };
    put(alarms, listOf(found, whole, showAll));
  }

  // The ticks have the broker's totals: to add them up for every reading would cost it much.
  let reads = 0;
  let last = null;
  const about = (signal, ticking) =>
    ticking && own === null && (reads += 1) % SELDOM ? last : get("/broker", {}, signal);

  async function read(signal, ticking) {
    const [broker, attention, deepest] = await Promise.all([
      about(signal, ticking),
      get("/attention", {}, signal),
      list(namespace, "destinations", { kind: "queue", sort: "-depth", limit: BUSY, recent: RECENT }, signal),
    ]);
    last = broker;
    busiest.update(deepest.destinations);
    found = attention;
    drawFindings();
    const memory = tiles.find((item) => item.key === "memory_bytes");
    const connections = tiles.find((item) => item.key === "connections");
    connections?.share(broker.connections / broker.connections_limit, `of ${number(broker.connections_limit)}`);
    ranges.hidden = broker.memory === null;
    if (memory) memory.node.hidden = broker.memory === null;
    if (memory && broker.memory) {
      live.note({ ...sampleOf(broker), memory_bytes: broker.memory.bytes });
      begin();
      const { bytes: used, limit } = broker.memory;
      memory.share(limit ? used / limit : null, limit ? `of ${bytes(limit)}` : "no limit");
      const [seen, series] = await Promise.all([
        marks({ namespace }, broker.now, signal),
        range.isLive() ? null : get("/series", { range: range.name() }, signal),
      ]);
      past = { marks: seen, samples: series && samplesOf(series) };
    } else {
      own = [...(own ?? []), sampleOf(broker)].slice(-KEEP);
    }
    draw();
  }

  // Samples from before this page was opened; a user who may not see all destinations sees totals from now on.
  function begin() {
    if (!lacks) return;
    lacks = false;
    get("/series", {}, gone)
      .then((series) => live.begin(samplesOf(series)))
      .then(draw, () => {});
  }

  // What happened before this page was opened, and while it was cut off.
  function recall() {
    get("/history", { limit: 30 }, gone)
      .then(({ events }) => live.recall(events))
      .then(draw, () => {});
  }

  // What the broker has kept of the time in which the page heard nothing fills the gap.
  function heard(what) {
    if (what === "back") recall();
    if (what === "back" && own === null) {
      lacks = true;
      begin();
    }
    draw();
  }

  draw();
  recall();
  return { title: "Overview", node, read, heard };
}

function sampleOf({ now, messages, rates, connections, consumers }) {
  const { ready, in_flight: inFlight, scheduled } = messages;
  return { time: now, depth: ready, in_flight: inFlight, scheduled, connections, consumers, ...rates };
}

function tile(key, name, format) {
  const value = h("b", "–");
  const line = h("span", { class: "line" });
  const bar = h("span");
  const more = h("small");
  const node = h("div", { class: "tile" }, h("span", { class: "name" }, name), value, bar, more, line);
  return {
    key,
    node,
    update(samples) {
      say(value, format(samples.at(-1)?.[key]));
      put(
        line,
        sparkline(
          samples.slice(-60).map((sample) => sample[key]),
          `${name}, last minute`,
        ),
      );
    },
    share(part, words) {
      put(bar, gauge(part, `${name}, share of the limit`));
      say(more, words);
    },
  };
}
