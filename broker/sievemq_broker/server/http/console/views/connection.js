// One connection: who it is, its sessions and consumers.

import { go, link } from "../address.js";
import * as api from "../api.js";
import { h, put } from "../dom.js";
import { bytes, number, since } from "../format.js";
import { button, clientLink, facts, head, nothing, section } from "../parts.js";
import { allow } from "../rights.js";
import { Table } from "../table.js";
import { closeConnections, closingRefused, connectionBadges } from "./connections.js";
import { consumerList } from "./consumers.js";

export default function connection(context) {
  const { namespace, rest } = context;
  const [id = ""] = rest;
  const badges = h("span", { class: "badges" });
  const figures = h("div");
  let row = null;
  const close = button("Close…", async () => (await closeConnections([row])) && go([namespace, "connections"]));
  const sessions = new Table({
    label: "Sessions",
    key: (session) => String(session.id),
    empty: nothing("No sessions.", "The client has opened none."),
    columns: [
      { label: "Session", kind: "main", cell: (session) => number(session.id) },
      { label: "Acknowledges", cell: (session) => session.mode.toLowerCase().replaceAll("_", " ") },
      { label: "Consumers", kind: "number", cell: (session) => number(session.consumers) },
      { label: "Sent", kind: "number", cell: (session) => number(session.sent) },
      { label: "In its transaction", kind: "number", cell: (session) => number(session.staged) },
      { label: "Blocked", cell: blocked },
    ],
  });
  const consumers = consumerList(context, { connection: id }, { client: false });
  const lead = h("a", { href: link([namespace, "connections"]) }, "Connections");
  const node = h(
    "div",
    head(id, { lead, badges: [badges], actions: [close] }),
    figures,
    section("Sessions", sessions.node),
    section("Consumers", consumers.node),
  );

  async function read(signal) {
    row = await api.get(api.path("connections", id), {}, signal);
    put(badges, connectionBadges(row));
    allow(close, closingRefused([row]));
    put(
      figures,
      facts([
        ["Client id", row.client_id === null ? "none" : clientLink(row.namespace, row.client_id)],
        ["From", h("code", row.peer)],
        ["User", row.user ?? "anonymous"],
        ["Namespace", row.namespace],
        ["Protocol", row.protocol],
        ["Agent", row.agent || "–"],
        ["Unacknowledged", number(row.unacknowledged)],
        ["Refused", number(row.refused)],
        ["Committed", number(row.committed)],
        ["Rolled back", number(row.rolled_back)],
        ["In open transactions", bytes(row.staged_bytes)],
        ["Temporary destinations", number(row.temporary_destinations)],
        ["Received", bytes(row.bytes_in)],
        ["Sent", bytes(row.bytes_out)],
      ]),
    );
    sessions.update(row.open_sessions);
    await consumers.read(signal);
  }

  return { title: id, node, read, query: (fresh) => consumers.query(fresh) };
}

const blocked = (session) =>
  session.blocked_since === null ? "" : h("span", { title: session.blocked_by }, since(session.blocked_since));
