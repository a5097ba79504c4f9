// Messages that wait for their moment, and can be cancelled until then.

import { link, turn } from "../address.js";
import * as api from "../api.js";
import { act } from "../actions.js";
import { h, put } from "../dom.js";
import { ago, bytes, count, time } from "../format.js";
import { Pager, button, destinationLink, head, nothing } from "../parts.js";
import { allow, refusal } from "../rights.js";
import { Table } from "../table.js";

const PAGE = 50;
const TOGETHER = 20; // queues of a page

/** Of one queue. */
export function scheduledOf({ namespace, address, query, read: reread }) {
  let cursor = query.get("cursor") ?? "";
  let reason = null; // why the user may not cancel
  const table = scheduledTable(namespace, address, reread, () => reason);
  const pager = new Pager((to, before) => {
    turn({ cursor: to }, before);
    cursor = to;
    reread();
  });
  const all = button("Cancel several…", async () => (await act(namespace, address, "cancel")) && reread(), "risky");
  const node = h(
    "div",
    h(
      "div",
      { class: "tools" },
      h("p", { class: "dim" }, "Messages with a delivery delay, and messages that wait for their next attempt."),
      all,
    ),
    table.node,
    pager.node,
  );

  async function read(signal, _, { may }) {
    reason = refusal(may, "manage", address);
    allow(all, reason);
    const answer = await api.get(api.destination(namespace, address, "scheduled"), { cursor, limit: PAGE }, signal);
    table.update(answer.messages);
    all.hidden = answer.messages.length === 0;
    pager.update(answer.next, cursor);
  }

  return { node, read };
}

/** Of all queues of a namespace. */
export default function scheduled({ namespace, query, read: reread }) {
  const place = h("div");
  const tables = new Map();
  let cursor = query.get("cursor") ?? "";
  const pager = new Pager((to, before) => {
    turn({ cursor: to }, before);
    cursor = to;
    reread();
  });
  const node = h("div", head("Scheduled"), place, pager.node);

  async function read(signal) {
    const given = { only: "scheduled", sort: "-scheduled", cursor, limit: TOGETHER };
    const list = await api.list(namespace, "destinations", given, signal);
    const shown = (row) => !row.kind.endsWith("topic") && row.may.includes("browse");
    const queues = list.destinations.filter(shown);
    pager.update(list.next, cursor);
    const pages = await Promise.all(
      queues.map((row) => api.get(api.destination(namespace, row.address, "scheduled"), { limit: 10 }, signal)),
    );
    const parts = queues.map((row, i) => {
      const part = tables.get(row.address) ?? group(row.address);
      tables.set(row.address, part);
      part.update(row, pages[i].messages);
      return part.node;
    });
    put(
      place,
      parts.length
        ? parts
        : nothing("Nothing is scheduled.", "Messages sent with a delivery delay wait here, and can be cancelled."),
    );
  }

  function group(address) {
    let reason = null;
    const table = scheduledTable(namespace, address, reread, () => reason);
    const words = h("span", { class: "dim" });
    const all = h("a", { href: link([namespace, "destination", address, "scheduled"]) }, "All of them");
    return {
      node: h(
        "section",
        h("div", { class: "section-head" }, h("h2", destinationLink(namespace, address), " ", words), all),
        table.node,
      ),
      update(row, rows) {
        words.textContent = count(row.scheduled, "message");
        reason = refusal(row.may, "manage", address);
        table.update(rows);
      },
    };
  }

  return {
    title: "Scheduled",
    node,
    read,
    query: (fresh) => {
      cursor = fresh.get("cursor") ?? "";
    },
  };
}

function scheduledTable(namespace, address, reread, reason) {
  return new Table({
    label: `Scheduled in ${address}`,
    key: (row) => row.id,
    empty: nothing("Nothing is scheduled here."),
    columns: [
      {
        label: "Message",
        kind: "main code",
        cell: (row) =>
          h("a", { href: link([namespace, "destination", address, "messages", row.id]) }, row.message_id ?? row.id),
      },
      {
        label: "Due",
        kind: "when",
        cell: (row) => [time(row.due), " ", h("small", { class: "dim" }, ago(row.due))],
      },
      { label: "Type", cell: (row) => row.type ?? "" },
      { label: "Size", kind: "number", cell: (row) => bytes(row.size) },
      {
        label: "Actions",
        kind: "actions",
        cell: (row) =>
          allow(
            button(
              "Cancel",
              async () => (await act(namespace, address, "cancel", { ids: [row.id] })) && reread(),
              "small risky",
            ),
            reason(),
          ),
      },
    ],
  });
}
