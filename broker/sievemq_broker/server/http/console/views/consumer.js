// One consumer: whose it is, how it gets on, and the messages that it holds.

import { go, link } from "../address.js";
import * as api from "../api.js";
import { h, put } from "../dom.js";
import { duration, number } from "../format.js";
import {
  button,
  clientLink,
  connectionLink,
  destinationLink,
  facts,
  head,
  nothing,
  pages,
  section,
  selectorLink,
} from "../parts.js";
import { allow } from "../rights.js";
import { Table } from "../table.js";
import { closeConsumers, closingRefused, consumerBadges, ratio } from "./consumers.js";
import { columns } from "./messages.js";

const PAGE = 50;

export default function consumer(context) {
  const { namespace, rest } = context;
  const [id = ""] = rest;
  const badges = h("span", { class: "badges" });
  const lead = h("span");
  const figures = h("div");
  let row = null;
  const close = button("Close…", async () => {
    if (await closeConsumers([row])) go([namespace, "connection", row.connection]);
  });
  const at = (message) =>
    row.subscription ? null : link([namespace, "destination", row.address, "messages", message.id]);
  const held = new Table({
    label: "Messages that it holds",
    key: (message) => message.id,
    empty: nothing("It holds no messages.", "All that were delivered are acknowledged or returned."),
    columns: columns(at),
  });
  const pager = pages(context);
  const node = h(
    "div",
    head(id, { lead, badges: [badges], actions: [close] }),
    figures,
    section("Messages that it holds, oldest first", held.node, pager.node),
  );

  async function read(signal) {
    row = await api.get(api.path("consumers", id), {}, signal);
    put(badges, consumerBadges(row));
    allow(close, closingRefused([row]));
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
      const answer = await api.get(
        api.path("consumers", id, "messages"),
        { cursor: pager.cursor, limit: PAGE },
        signal,
      );
      held.update(answer.messages);
      pager.update(answer.next);
    } catch (error) {
      if (error.status !== 403) throw error;
      put(held.empty, nothing("Not shown.", error.message));
      held.update([]);
    }
  }

  return { title: id, node, read, query: pager.query };
}
