// Messages that wait for their moment, and can be cancelled until then.

import { link } from "../address.js";
import * as api from "../api.js";
import { act } from "../actions.js";
import { h } from "../dom.js";
import { ago, bytes, time } from "../format.js";
import { Listing } from "../listing.js";
import { button, destinationLink, nothing, pages } from "../parts.js";
import { allow, refusal } from "../rights.js";
import { Table, figure } from "../table.js";

const PAGE = 50;

/** Of one queue. */
export function scheduledOf(context) {
  const { namespace, address, read: reread } = context;
  let reason = null; // why the user may not cancel
  const pager = pages(context);
  const table = new Table({
    label: `Scheduled in ${address}`,
    onsort: pager.onsort,
    key: (row) => row.id,
    empty: nothing("Nothing is scheduled here."),
    columns: columns(namespace, reread, () => [address, reason]),
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
export default (context) => {
  const { namespace, read: reread } = context;
  const where = ({ destination, may }) => [destination, refusal(may, "manage", destination)];
  const on = {
    label: "On",
    kind: "main",
    sorts: ["destination"],
    cell: (row) => destinationLink(namespace, row.destination),
  };
  return new Listing({
    label: "Scheduled",
    nouns: ["message", "messages"],
    context,
    load: (asked, signal) => api.list(namespace, "scheduled", asked, signal),
    rows: "messages",
    order: "due",
    search: "Filter by queue",
    key: (row) => `${row.destination} ${row.id}`,
    empty: nothing("Nothing is scheduled.", "Messages sent with a delivery delay wait here, and can be cancelled."),
    columns: columns(namespace, reread, where, on),
  }).view("Scheduled");
};

/** @param {(row: any) => any[]} where the queue of a row, and why the user may cancel nothing in it. @param {any} [on] */
function columns(namespace, reread, where, on = false) {
  const id = (row) => {
    const href = link([namespace, "destination", where(row)[0], "messages", row.id]);
    return h("a", { href }, row.message_id ?? row.id);
  };
  const due = (row) => [time(row.due), " ", h("small", { class: "dim" }, ago(row.due))];
  const cancel = (row) => {
    const [address, reason] = where(row);
    const ask = async () => (await act(namespace, address, "cancel", { ids: [row.id] })) && reread();
    return button("Cancel", ask, "small risky", reason);
  };
  return [
    { label: "Message", kind: "main code", cell: id },
    on,
    { label: "Due", kind: "when", sorts: ["due", "-due"], cell: due },
    { label: "Type", cell: (row) => row.type ?? "" },
    figure("Size", "size", (row) => bytes(row.size)),
    { label: "Actions", kind: "actions", cell: cancel },
  ];
}
