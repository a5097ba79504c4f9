// A client id: its connection, its durable subscriptions, its consumers.

import { link } from "../address.js";
import * as api from "../api.js";
import { h } from "../dom.js";
import { head, nothing, section } from "../parts.js";
import { Table } from "../table.js";
import { connectionColumns } from "./connections.js";
import { consumerList } from "./consumers.js";
import { subscriptionColumns, subscriptionKey } from "./subscriptions.js";

const PAGE = 100;

export default function client(context) {
  const { namespace, rest } = context;
  const [id = ""] = rest;
  const connected = new Table({
    label: "Connections",
    columns: connectionColumns().filter(({ label }) => label !== "Client id"),
    key: (row) => row.id,
    empty: nothing("No connections.", "Only connections to namespaces that you may view as a whole are listed."),
  });
  const subscribed = new Table({
    label: "Subscriptions",
    columns: subscriptionColumns(namespace).filter(({ label }) => label !== "Client id"),
    key: subscriptionKey,
    empty: nothing("No subscriptions.", "Nothing is kept for this client id."),
  });
  const consumers = consumerList(context, { client_id: id }, { client: false, subscription: true });
  const lead = h("a", { href: link([namespace, "connections"]) }, "Connections");
  const node = h(
    "div",
    head(id, { lead: [lead, " · client id"] }),
    section("Connections", connected.node),
    section("Subscriptions", subscribed.node),
    section("Consumers", consumers.node),
  );

  async function read(signal) {
    const whose = { namespace, client_id: id, limit: PAGE };
    const [here, kept] = await Promise.all([
      api.get("/connections", whose, signal),
      api.list(namespace, "subscriptions", { client_id: id, limit: PAGE }, signal),
      consumers.read(signal),
    ]);
    connected.update(here.connections);
    subscribed.update(kept.subscriptions);
  }

  return { title: id, node, read, query: (fresh) => consumers.query(fresh) };
}
