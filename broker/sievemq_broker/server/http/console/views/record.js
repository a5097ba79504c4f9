// The record of actions: who did what, when, and to how many messages.

import { link } from "../address.js";
import * as api from "../api.js";
import { h, put } from "../dom.js";
import { number, time } from "../format.js";
import { Listing } from "../listing.js";
import { badge, destinationLink, nothing } from "../parts.js";

const ONLY = [
  ["actions", "What was done"],
  ["attempts", "Sign-ins and refusals"],
];

const NOBODY = ["signal", "file"]; // what came so has no caller

export default function record(context) {
  const { namespace } = context;
  const user = h("p", { class: "note" });
  const save = h("a", { class: "button", download: "audit.ndjson" }, "Download");
  const list = new Listing({
    label: "Record",
    nouns: ["row", "rows"],
    context,
    load,
    rows: "rows",
    order: "-time",
    search: "Filter by action or destination",
    only: ONLY,
    tools: [user],
    key: (row) => String(row.id),
    empty: nothing("Nothing is recorded here.", "Each change through console, command or API is, and each sign-in."),
    columns: [
      { label: "When", kind: "when", sorts: ["-time", "time"], cell: (row) => time(row.time) },
      {
        label: "What",
        kind: "main",
        sorts: ["action"],
        cell: (row) => [
          h("span", row.action.replaceAll("_", " ")),
          " ",
          row.outcome !== "done" && badge(row.outcome, ["accepted", "signed_out"].includes(row.outcome) ? "" : "bad"),
          row.times > 1 && h("span", { class: "dim" }, ` ${number(row.times)} times since ${time(row.since)}`),
        ],
      },
      {
        label: "On",
        cell: (row) => [
          row.namespace && row.namespace !== namespace && h("div", { class: "dim" }, row.namespace),
          row.address ? destinationLink(row.namespace, row.address) : "",
        ],
      },
      {
        label: "How many",
        kind: "number",
        sorts: ["-touched", "touched"],
        cell: (row) => (row.touched === null || row.touched === undefined ? "" : number(row.touched)),
      },
      { label: "More", cell: (row) => more(row) },
      {
        label: "Who",
        sorts: ["user"],
        cell: (row) =>
          row.user
            ? h("a", { href: link([namespace, "record"], { user: row.user }) }, row.user)
            : !NOBODY.includes(row.via) && h("span", { class: "dim" }, "anonymous"),
      },
      { label: "From", cell: (row) => [row.peer ?? "", h("div", { class: "dim" }, row.via)] },
    ],
  });

  function load({ like, only, user: whose, sort, cursor, limit }, signal) {
    const given = { like, only, user: whose };
    save.href = `/api/v1/audit/export?${new URLSearchParams(Object.entries(given).filter(([, value]) => value))}`;
    user.hidden = !whose;
    if (whose) put(user, "Only ", h("b", whose), ". ", h("a", { href: link([namespace, "record"]) }, "All users"));
    return api.get("/audit", { ...given, sort, cursor, limit }, signal);
  }

  return list.view("Record", [save]);
}

const more = ({ details }) =>
  Object.entries(details ?? {}).map(([name, value]) =>
    h("div", h("span", { class: "dim" }, `${name.replaceAll("_", " ")} `), shown(value)),
  );

const shown = (value) => (typeof value === "object" ? JSON.stringify(value) : String(value));
