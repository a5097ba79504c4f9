// What has happened, from the newest on, restarts included.

import * as api from "../api.js";
import { h } from "../dom.js";
import { ago, time } from "../format.js";
import { isReported, words } from "../live.js";
import { destinationLink, head, nothing, pages } from "../parts.js";
import { Table } from "../table.js";

const PAGE = 100;
const LEAD = "Kept over a restart where messages are. What connections and consumers do is not.";

export default function history(context) {
  const { namespace } = context;
  const table = new Table({
    label: "What happened",
    key: (row) => String(row.id),
    empty: nothing("Nothing has happened here."),
    columns: [
      { label: "When", kind: "when", cell: (row) => h("span", { title: ago(row.time) }, time(row.time)) },
      { label: "What", kind: "main", cell: (row) => words(row.event, row.about) },
      {
        label: "On",
        cell: ({ about }) =>
          about.address ? destinationLink(about.namespace, about.address) : (about.namespace ?? ""),
      },
    ],
  });
  const pager = pages(context);

  async function read(signal) {
    const { events, next } = await api.get("/history", { namespace, cursor: pager.cursor, limit: PAGE }, signal);
    table.update(events.filter(({ about }) => !isReported(about)));
    pager.update(next);
  }

  return {
    title: "What happened",
    node: h("div", head("What happened"), h("p", { class: "note" }, LEAD), table.node, pager.node),
    read,
    query: pager.query,
  };
}
