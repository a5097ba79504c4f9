// What has happened, from the newest on, restarts included.

import { turn } from "../address.js";
import * as api from "../api.js";
import { h } from "../dom.js";
import { ago, time } from "../format.js";
import { isReported, words } from "../live.js";
import { Pager, destinationLink, head, nothing } from "../parts.js";
import { Table } from "../table.js";

const PAGE = 100;
const LEAD = "Kept over a restart where messages are. What connections and consumers do is not.";

export default function history({ namespace, query, read: reread }) {
  let cursor = query.get("cursor") ?? "";
  const table = new Table({
    label: "What happened",
    key: (row) => String(row.id),
    empty: nothing("Nothing has happened here."),
    columns: [
      { label: "When", cell: (row) => h("span", { title: ago(row.time) }, time(row.time)) },
      { label: "What", kind: "main", cell: (row) => words(row.event, row.about) },
      {
        label: "On",
        cell: ({ about }) => (about.address ? destinationLink(about.namespace, about.address) : (about.namespace ?? "")),
      },
    ],
  });
  const pager = new Pager((to, before) => {
    turn({ cursor: to }, before);
    cursor = to;
    reread();
  });

  async function read(signal) {
    const { events, next } = await api.get("/history", { namespace, cursor, limit: PAGE }, signal);
    table.update(events.filter(({ about }) => !isReported(about)));
    pager.update(next, cursor);
  }

  return {
    title: "What happened",
    node: h("div", head("What happened"), h("p", { class: "note" }, LEAD), table.node, pager.node),
    read,
    query: (fresh) => {
      cursor = fresh.get("cursor") ?? "";
    },
  };
}
