// What has happened, from the newest on, restarts included.

import * as api from "../api.js";
import { h } from "../dom.js";
import { ago, time } from "../format.js";
import { Listing } from "../listing.js";
import { isReported, words } from "../live.js";
import { destinationLink, nothing } from "../parts.js";

const LEAD = "Kept over a restart where messages are. What connections and consumers do is not.";

export default function history(context) {
  const { namespace } = context;
  const list = new Listing({
    label: "What happened",
    nouns: ["event", "events"],
    context,
    load,
    rows: "events",
    order: "-time",
    search: "Filter by event or destination",
    tools: [h("p", { class: "note" }, LEAD)],
    key: (row) => String(row.id),
    empty: nothing("Nothing has happened here."),
    columns: [
      { label: "When", kind: "when", sorts: ["-time", "time"], cell: (row) => when(row.time) },
      { label: "What", kind: "main", sorts: ["event"], cell: (row) => words(row.event, row.about) },
      {
        label: "On",
        cell: ({ about }) =>
          about.address ? destinationLink(about.namespace, about.address) : (about.namespace ?? ""),
      },
    ],
  });
  const when = (at) => h("span", { title: ago(at) }, time(at));

  async function load({ like, sort, cursor, limit }, signal) {
    const found = await api.get("/history", { namespace, like, sort, cursor, limit }, signal);
    return { ...found, events: found.events.filter(({ about }) => !isReported(about)) };
  }

  return list.view("What happened");
}
