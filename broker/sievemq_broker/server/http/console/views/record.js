// The record of actions: who did what, when, and to how many messages.

import { link, requery, turn } from "../address.js";
import * as api from "../api.js";
import { h, put } from "../dom.js";
import { count, number, time } from "../format.js";
import { Pager, badge, choice, destinationLink, field, head, nothing } from "../parts.js";
import { Table } from "../table.js";

const PAGE = 100;
const KINDS = [
  ["", "Everything"],
  ["actions", "What was done"],
  ["attempts", "Sign-ins and refusals"],
];

export default function record({ namespace, query, read: reread }) {
  let asked = query;
  const like = h("input", {
    type: "search",
    "data-search": true,
    value: query.get("like") ?? "",
    input: () => filter({ like: like.value.trim() }),
  });
  const only = choice(KINDS, query.get("only") ?? "", (value) => filter({ only: value }));
  const user = h("p", { class: "note" });
  const save = h("a", { class: "button", download: "audit.ndjson" }, "Download");
  const table = new Table({
    label: "Record",
    compact: true,
    key: (row) => String(row.id),
    empty: nothing("Nothing is recorded here.", "Each change through console, command or API is, and each sign-in."),
    columns: [
      { label: "When", kind: "when", cell: (row) => time(row.time) },
      {
        label: "What",
        kind: "main",
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
        cell: (row) => (row.touched === null || row.touched === undefined ? "" : number(row.touched)),
      },
      { label: "More", cell: (row) => more(row) },
      {
        label: "Who",
        cell: (row) =>
          row.user
            ? h("a", { href: link([namespace, "record"], { user: row.user }) }, row.user)
            : h("span", { class: "dim" }, "anonymous"),
      },
      { label: "From", cell: (row) => [row.peer ?? "", h("div", { class: "dim" }, row.via)] },
    ],
  });
  const pager = new Pager((cursor, before) => {
    turn({ cursor }, before);
    asked.set("cursor", cursor);
    reread();
  });
  const tools = h("div", { class: "tools" }, field("Action or destination", like), field("Show", only));
  const node = h("div", head("Record", { actions: [save] }), tools, user, table.node, pager.node);

  function filter(changes) {
    requery({ ...changes, cursor: "" });
    for (const [name, value] of Object.entries({ ...changes, cursor: "" })) asked.set(name, value);
    reread();
  }

  async function read(signal) {
    const given = Object.fromEntries(["like", "only", "user"].map((name) => [name, asked.get(name) ?? ""]));
    save.href = `/api/v1/audit/export?${new URLSearchParams(Object.entries(given).filter(([, value]) => value))}`;
    user.hidden = !given.user;
    if (given.user)
      put(user, "Only ", h("b", given.user), ". ", h("a", { href: link([namespace, "record"]) }, "All users"));
    const answer = await api.get("/audit", { ...given, cursor: asked.get("cursor"), limit: PAGE }, signal);
    table.update(answer.rows);
    pager.update(answer.next, asked.get("cursor"), answer.rows.length ? count(answer.rows.length, "row") : "");
  }

  return {
    title: "Record",
    node,
    read,
    query: (fresh) => {
      asked = fresh;
      if (document.activeElement !== like) like.value = fresh.get("like") ?? "";
      only.value = fresh.get("only") ?? "";
    },
  };
}

const more = ({ details }) =>
  Object.entries(details ?? {}).map(([name, value]) =>
    h("div", h("span", { class: "dim" }, `${name.replaceAll("_", " ")} `), shown(value)),
  );

const shown = (value) => (typeof value === "object" ? JSON.stringify(value) : String(value));
