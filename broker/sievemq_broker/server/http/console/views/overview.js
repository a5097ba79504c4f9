// The broker at a glance: what flows, what waits, what is wrong.

import { link } from "../address.js";
import { get, list } from "../api.js";
import { Chart, ratesChart, samplesOf } from "../chart.js";
import { h, put, say } from "../dom.js";
import { ago, bytes, compact, count, number, rate, since } from "../format.js";
import { note } from "../recent.js";
import * as live from "../live.js";
import { destinationLink, head, linkButton, nothing, section } from "../parts.js";
import { sparkline } from "../sparkline.js";
import { Table } from "../table.js";
import { queueColumns } from "./destinations.js";

const BUSY = 8;
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

export default function overview({ namespace, signal: gone }) {
  const alarms = h("ul", { class: "alarms", "aria-label": "Alarms" });
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
    h("div", { class: "charts" }, rates.node, depth.node),
    section("Deepest queues", busiest.node),
    section("What happened", news),
  );

  let lacks = live.samples.length < 2;
  let own = null; // samples of what the user may see, where the broker's totals are not for them

  function draw() {
    const samples = own ?? live.samples;
    for (const item of tiles) item.update(samples);
    rates.update(samples, live.restarts);
    depth.update(samples, live.restarts);
    put(
      news,
      live.happenings.length
        ? live.happenings.slice(0, 12).map((item) => h("li", h("time", ago(item.time)), item.text))
        : h("li", { class: "dim" }, "No events since this page was opened."),
    );
  }

  async function read(signal) {
    const [broker, deepest] = await Promise.all([
      get("/broker", {}, signal),
      list(namespace, "destinations", { kind: "queue", sort: "-depth", limit: BUSY }, signal),
    ]);
    busiest.update(deepest.destinations);
    put(
      alarms,
      alarmsOf(broker).map(([kind, ...words]) => h("li", { class: kind }, words)),
    );
    const memory = tiles.find((item) => item.key === "memory_bytes");
    if (memory) memory.node.hidden = broker.memory === null;
    if (memory && broker.memory) {
      live.note({ ...sampleOf(broker), memory_bytes: broker.memory.bytes });
      begin();
      const { bytes: used, limit } = broker.memory;
      memory.share(limit ? used / limit : null, limit ? `of ${bytes(limit)}` : "no limit");
    } else {
      own = [...(own ?? []), sampleOf(broker)].slice(-KEEP);
      draw();
    }
    await note(deepest.destinations, signal);
    busiest.update(deepest.destinations);
  }

  // Samples from before this page was opened; a user who may not see all destinations sees totals from now on.
  function begin() {
    if (!lacks) return;
    lacks = false;
    get("/series", {}, gone)
      .then((series) => live.begin(samplesOf(series)))
      .then(draw, () => {});
  }

  // What the broker has kept of the time in which the page heard nothing fills the gap.
  function heard(what) {
    if (what === "back" && own === null) {
      lacks = true;
      begin();
    }
    draw();
  }

  draw();
  return { title: "Overview", node, read, heard };
}

function sampleOf({ now, messages, rates, connections, consumers }) {
  const { ready, in_flight: inFlight, scheduled } = messages;
  return { time: now, depth: ready, in_flight: inFlight, scheduled, connections, consumers, ...rates };
}

function tile(key, name, format) {
  const value = h("b", "–");
  const line = h("span", { class: "line" });
  const more = h("small");
  const node = h("div", { class: "tile" }, h("span", { class: "name" }, name), value, more, line);
  const bar = key === "memory_bytes" ? h("progress", { max: "1", value: "0", "aria-label": "memory in use" }) : null;
  if (bar) more.before(bar);
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
      bar.hidden = part === null;
      bar.value = part ?? 0;
      bar.className = part > 0.8 ? "high" : "";
      say(more, words);
    },
  };
}

// Blocked senders: links to the queue or topic and to the connections.
function blockedAt({ namespace, address, text, senders, since: from, connections }) {
  const links = connections.map((id, i) => [
    i ? ", " : "",
    h("a", { href: link([namespace, "connections"], { id }) }, h("code", id)),
  ]);
  return [
    `${count(senders, "sender")} ${senders === 1 ? "waits" : "wait"} for room`,
    address && [" in ", destinationLink(namespace, address)],
    `, the first for ${since(from)} (${connections.length === 1 ? "connection" : "connections"} `,
    links,
    `): ${text}.`,
  ];
}

function alarmsOf(broker) {
  const found = [];
  if (broker.phase !== "ready") found.push(["bad", `The broker is ${broker.phase}: new connections are refused.`]);
  if (broker.storage?.stuck) found.push(["bad", `Nothing is confirmed or delivered: ${broker.storage.stuck}.`]);
  if (broker.storage?.full) found.push(["bad", `PERSISTENT messages are refused or wait: ${broker.storage.full}.`]);
  if (broker.blocked) found.push(["bad", `Producers are blocked: ${broker.blocked}.`]);
  else for (const place of broker.blocked_at) found.push(["warn", ...blockedAt(place)]);
  if (!broker.blocked && broker.memory?.limit && broker.memory.bytes > 0.8 * broker.memory.limit)
    found.push(["warn", "More than 80 % of the memory for messages is in use."]);
  return found;
}
