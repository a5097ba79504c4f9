// One consumer: whose it is, how it gets on, and the messages that it holds.

import { go, link, turn } from "../address.js";
import * as api from "../api.js";
import { h, put } from "../dom.js";
import { bytes, duration, number, time } from "../format.js";
import {
  Pager,
  badge,
  button,
  clientLink,
  connectionLink,
  destinationLink,
  facts,
  head,
  nothing,
  section,
  selectorLink,
} from "../parts.js";
import { Table } from "../table.js";
import { closeConsumers, consumerBadges, ratio } from "./consumers.js";

const PAGE = 50;

export default function consumer({ namespace, rest, query, read: reread }) {
  const [id = ""] = rest;
  const badges = h("span", { class: "badges" });
  const lead = h("span");
  const figures = h("div");
  let row = null;
  let cursor = query.get("cursor") ?? "";
  const close = button("Close…", async () => {
    if (await closeConsumers([row])) go([namespace, "connection", row.connection]);
  });
  const messageLink = (message) => {
    const text = message.message_id ?? message.id;
    return row.subscription
      ? text
      : h("a", { href: link([namespace, "destination", row.address, "messages", message.id]) }, text);
  };
  const held = new Table({
    label: "Messages that it holds",
    compact: true,
    key: (message) => message.id,
    empty: nothing("It holds no messages.", "All that were delivered are acknowledged or returned."),
    columns: [
      { label: "Message", kind: "main code", cell: messageLink },
      { label: "Type", cell: (message) => message.type ?? "" },
      { label: "Size", kind: "number", cell: (message) => bytes(message.size) },
      { label: "Sent", kind: "when", cell: (message) => time(message.timestamp) },
      {
        label: "Deliveries",
        kind: "number",
        cell: (message) =>
          message.delivery_count > 1 ? badge(number(message.delivery_count), "warn") : number(message.delivery_count),
      },
    ],
  });
  const pager = new Pager((to, before) => {
    turn({ cursor: to }, before);
    cursor = to;
    reread();
  });
  const node = h(
    "div",
    head(id, { lead, badges: [badges], actions: [close] }),
    figures,
    section("Messages that it holds, oldest first", held.node, pager.node),
  );

  async function read(signal) {
    row = await api.get(api.path("consumers", id), {}, signal);
    put(badges, consumerBadges(row));
    put(lead, "Consumer of ", destinationLink(namespace, row.address));
    put(
      figures,
      facts([
        ["Destination", destinationLink(namespace, row.address)],
        row.subscription && ["Subscription", row.subscription],
        ["Connection", connectionLink(namespace, row.connection)],
        ["Client id", row.client_id === null ? "none" : clientLink(namespace, row.client_id)],
        ["From", h("code", row.peer)],
        ["User", row.user ?? "anonymous"],
        ["Selector", selectorLink(namespace, row, row.subscription ? "" : row.address)],
        ["Match ratio", ratio(row)],
        ["In flight", number(row.in_flight)],
        ["Oldest in flight", row.oldest_ms ? duration(row.oldest_ms) : "–"],
        row.in_flight > 0 && ["Acknowledged nothing for", duration(row.idle_ms)],
        ["Delivered", number(row.delivered)],
        ["Acknowledged", number(row.acknowledged)],
        ["Credit", number(row.credit)],
      ]),
    );
    try {
      const answer = await api.get(api.path("consumers", id, "messages"), { cursor, limit: PAGE }, signal);
      held.update(answer.messages);
      pager.update(answer.next, cursor);
    } catch (error) {
      if (error.status !== 403) throw error;
      put(held.empty, nothing("Not shown.", error.message));
      held.update([]);
    }
  }

  return {
    title: id,
    node,
    read,
    query: (fresh) => {
      cursor = fresh.get("cursor") ?? "";
    },
  };
}
