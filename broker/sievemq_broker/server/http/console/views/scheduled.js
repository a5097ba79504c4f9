// Messages that wait for their moment, and can be cancelled until then.

import { link } from "../address.js";
import * as api from "../api.js";
import { act } from "../actions.js";
import { h } from "../dom.js";
import { ago, bytes, count, time } from "../format.js";
import { button, destinationLink, groups, head, nothing, pages } from "../parts.js";
import { allow, refusal } from "../rights.js";
import { Table } from "../table.js";

const PAGE = 50;
const TOGETHER = 20; // queues of a page

/** Of one queue. */
export function scheduledOf(context) {
  const { namespace, address, read: reread } = context;
  let reason = null; // why the user may not cancel
  const pager = pages(context);
  const table = scheduledTable(namespace, address, reread, () => reason, pager.onsort);
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
    table.sorted(pager.sort || "due");
    const given = { cursor: pager.cursor, sort: pager.sort, limit: PAGE };
    const answer = await api.get(api.destination(namespace, address, "scheduled"), given, signal);
    table.update(answer.messages);
    all.hidden = answer.messages.length === 0;
    pager.update(answer.next);
  }

  return { node, read, query: pager.query };
}

/** Of all queues of a namespace. */
export default function scheduled(context) {
  const { namespace, read: reread } = context;
  const pager = pages(context);
  const none = "Messages sent with a delivery delay wait here, and can be cancelled.";
  const parts = groups(group, nothing("Nothing is scheduled.", none));
  const node = h("div", head("Scheduled"), parts.node, pager.node);

  async function read(signal) {
    const given = { only: "scheduled", sort: "-scheduled", cursor: pager.cursor, limit: TOGETHER };
    const list = await api.list(namespace, "destinations", given, signal);
    const shown = (row) => !row.kind.endsWith("topic") && row.may.includes("browse");
    const queues = list.destinations.filter(shown);
    const found = await Promise.all(
      queues.map((row) => api.get(api.destination(namespace, row.address, "scheduled"), { limit: 10 }, signal)),
    );
    pager.update(list.next);
    parts.update(
      queues,
      found.map(({ messages }) => messages),
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

  return { title: "Scheduled", node, read, query: pager.query };
}

function scheduledTable(namespace, address, reread, reason, onsort) {
  return new Table({
    label: `Scheduled in ${address}`,
    onsort,
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
        sorts: ["due", "-due"],
        cell: (row) => [time(row.due), " ", h("small", { class: "dim" }, ago(row.due))],
      },
      { label: "Type", cell: (row) => row.type ?? "" },
      { label: "Size", kind: "number", sorts: ["-size", "size"], cell: (row) => bytes(row.size) },
      {
        label: "Actions",
        kind: "actions",
        cell: (row) =>
          button(
            "Cancel",
            async () => (await act(namespace, address, "cancel", { ids: [row.id] })) && reread(),
            "small risky",
            reason(),
          ),
      },
    ],
  });
}
