// Queues, or topics: a list that can be filtered, sorted and paged, with what each did in the last minutes.

import { requery, turn } from "../address.js";
import * as api from "../api.js";
import { badges } from "../attention.js";
import { declare } from "../actions.js";
import { h } from "../dom.js";
import { bytes, number, rate } from "../format.js";
import { Pager, badge, button, choice, destinationLink, head, limitBadge, nothing } from "../parts.js";
import { depths, note } from "../recent.js";
import { allow, makes } from "../rights.js";
import { sparkline } from "../sparkline.js";
import { Table } from "../table.js";

const PAGE = 50;

/** Columns of a table of queues. */
export function queueColumns(namespace, kind = "Queue") {
  return [
    { label: kind, kind: "main", sorts: ["address"], cell: (row) => name(namespace, row) },
    { label: "Ready", kind: "number", sorts: ["-depth", "depth"], cell: (row) => number(row.depth) },
    { label: "Recently", kind: "spark", cell: (row) => sparkline(depths(row), `recent depth of ${row.name}`) },
    { label: "In flight", kind: "number", sorts: ["-in_flight"], cell: (row) => number(row.in_flight) },
    { label: "Scheduled", kind: "number", sorts: ["-scheduled"], cell: (row) => number(row.scheduled) },
    { label: "In", kind: "number", sorts: ["-in_rate"], cell: (row) => rate(row.in_rate) },
    { label: "Out", kind: "number", sorts: ["-out_rate"], cell: (row) => rate(row.out_rate) },
    { label: "Consumers", kind: "number", sorts: ["-consumers"], cell: (row) => number(row.consumers) },
    { label: "Size", kind: "number", sorts: ["-bytes"], cell: (row) => bytes(row.bytes) },
  ];
}

function topicColumns(namespace) {
  return [
    { label: "Topic", kind: "main", sorts: ["address"], cell: (row) => name(namespace, row) },
    { label: "Published", kind: "number", cell: (row) => number(row.counters.published) },
    { label: "In", kind: "number", sorts: ["-in_rate"], cell: (row) => rate(row.in_rate) },
    { label: "Out", kind: "number", sorts: ["-out_rate"], cell: (row) => rate(row.out_rate) },
    { label: "Subscriptions", kind: "number", cell: (row) => number(row.subscriptions) },
    { label: "Consumers", kind: "number", sorts: ["-consumers"], cell: (row) => number(row.consumers) },
    { label: "Waiting", kind: "number", sorts: ["-depth", "depth"], cell: (row) => number(row.depth) },
    { label: "In flight", kind: "number", sorts: ["-in_flight"], cell: (row) => number(row.in_flight) },
    { label: "Size", kind: "number", sorts: ["-bytes"], cell: (row) => bytes(row.bytes) },
  ];
}

function name(namespace, row) {
  return [
    destinationLink(namespace, row.address, row.name),
    " ",
    row.paused && badge("paused", "warn"),
    limitBadge(row),
    badges(row),
    row.dead_letter_queue && badge("dead letters"),
  ];
}

export const queues = (context) =>
  destinations(context, { kind: "queue", title: "Queues", columns: queueColumns(context.namespace) });

export const topics = (context) =>
  destinations(context, { kind: "topic", title: "Topics", columns: topicColumns(context.namespace) });

function destinations({ namespace, query, read: reread, signal: gone }, { kind, title, columns }) {
  const order = "address";
  let asked = query;
  const filter = h("input", {
    type: "search",
    placeholder: "Filter by name, such as orders or *.eu",
    "aria-label": "Filter by name",
    "data-search": true,
    spellcheck: "false",
    value: query.get("like") ?? "",
    input: () => change({ like: filter.value.trim(), cursor: "" }),
  });
  const kinds = choice(
    [
      [kind, title],
      [`temporary-${kind}`, `Temporary ${title.toLowerCase()}`],
    ],
    query.get("kind") ?? kind,
    (value) => change({ kind: value === kind ? "" : value, cursor: "" }),
  );
  kinds.setAttribute("aria-label", "Kind");
  const table = new Table({
    label: title,
    columns,
    key: (row) => row.address,
    sort: query.get("sort") ?? order,
    onsort: (sort) => change({ sort, cursor: "" }),
    empty: nothing(
      `No ${title.toLowerCase()} here.`,
      `A ${kind} is created at its first use, or with the button above.`,
    ),
  });
  const total = h("span", { class: "dim", role: "status" });
  const pager = new Pager((cursor, before) => change({ cursor }, (changes) => turn(changes, before)));
  const make = button(`New ${kind}`, () => declare(namespace, kind), "primary");
  makes(namespace, kind, gone).then(
    (reason) => allow(make, reason),
    () => {}, // the read below reports errors
  );
  const node = h(
    "div",
    head(title, { actions: [make] }),
    h("div", { class: "tools" }, filter, kinds, total),
    table.node,
    pager.node,
  );

  function change(changes, show = requery) {
    show(changes);
    asked = new URLSearchParams({ ...Object.fromEntries(asked), ...changes });
    reread();
  }

  async function read(signal) {
    const answer = await api.list(
      namespace,
      "destinations",
      {
        kind: asked.get("kind") || kind,
        like: asked.get("like"),
        sort: asked.get("sort") || order,
        cursor: asked.get("cursor"),
        limit: PAGE,
      },
      signal,
    );
    table.update(answer.destinations);
    total.textContent = `${number(answer.total)} ${answer.total === 1 ? kind : title.toLowerCase()}`;
    pager.update(answer.next, asked.get("cursor"));
    if (kind !== "queue") return;
    await note(answer.destinations, signal); // the lines come when they are known
    table.update(answer.destinations);
  }

  function requeried(fresh) {
    asked = fresh;
    if (document.activeElement !== filter) filter.value = fresh.get("like") ?? "";
    kinds.value = fresh.get("kind") || kind;
    table.sorted(fresh.get("sort") || order);
  }

  return { title, node, read, query: requeried };
}
