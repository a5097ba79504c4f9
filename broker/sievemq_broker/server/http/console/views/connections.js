// Open connections, and how to close them.

import { link, turn } from "../address.js";
import * as api from "../api.js";
import { badges } from "../attention.js";
import { ask } from "../dialog.js";
import { h, put } from "../dom.js";
import { number, since } from "../format.js";
import { notice } from "../notice.js";
import { Pager, badge, button, destinationLink, head, nothing } from "../parts.js";
import { allow, refusal } from "../rights.js";
import { Table } from "../table.js";

const PAGE = 100;

export default function connections({ namespace, query, read: reread }) {
  let asked = query;
  const table = new Table({
    label: "Connections",
    key: (row) => row.id,
    empty: nothing("No connections.", "Only connections to namespaces that you may view as a whole are listed."),
    columns: [
      {
        label: "Client",
        kind: "main",
        cell: (row) => [
          h("span", row.client_id ?? row.id),
          " ",
          row.congested && badge("reads slowly", "warn"),
          badges(row),
          row.blocked_since &&
            h("span", { title: row.blocked_by }, badge(`blocked ${since(row.blocked_since)}`, "bad")),
          row.blocked_at && ["at ", destinationLink(row.namespace, row.blocked_at)],
        ],
      },
      { label: "From", kind: "code", cell: (row) => row.peer },
      { label: "User", cell: (row) => row.user ?? h("span", { class: "dim" }, "anonymous") },
      { label: "Namespace", cell: (row) => row.namespace },
      {
        label: "Protocol",
        cell: (row) => [row.protocol, row.agent && h("div", { class: "dim" }, row.agent)],
      },
      { label: "Sessions", kind: "number", cell: (row) => number(row.sessions) },
      { label: "Consumers", kind: "number", cell: (row) => number(row.consumers) },
      { label: "Unacknowledged", kind: "number", cell: (row) => number(row.unacknowledged) },
      {
        label: "Actions",
        kind: "actions",
        cell: (row) =>
          allow(
            button("Close…", () => close(row), "small risky"),
            refusal(row.may, "manage", `all of namespace ${row.namespace}`),
          ),
      },
    ],
  });
  const pager = new Pager((cursor, before) => {
    turn({ cursor }, before);
    asked = new URLSearchParams({ cursor });
    reread();
  });
  const only = h("p", { class: "note" });
  const node = h("div", head("Connections"), only, table.node, pager.node);

  async function close(row) {
    const done = await ask({
      title: "Close this connection?",
      action: "Close it",
      danger: true,
      body: [
        h("p", h("code", row.client_id ?? row.id), " from ", h("code", row.peer)),
        h("p", "Its unacknowledged messages return to their queues. The client may reconnect."),
      ],
      run: () => api.remove(api.path("connections", row.id)),
    });
    if (!done) return;
    notice("The connection is closed.");
    reread();
  }

  async function read(signal) {
    const id = asked.get("id");
    only.hidden = !id;
    if (id)
      put(only, "Only ", h("code", id), ". ", h("a", { href: link([namespace, "connections"]) }, "All connections"));
    const answer = await api.get("/connections", { id, cursor: asked.get("cursor"), limit: PAGE }, signal);
    table.update(answer.connections);
    pager.update(answer.next, asked.get("cursor"));
  }

  return {
    title: "Connections",
    node,
    read,
    query: (fresh) => {
      asked = fresh;
    },
  };
}
