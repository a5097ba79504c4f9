// The messages of a queue, or of a subscription to a topic, page by page, chosen by a selector; looking takes nothing.

import { link, requery, turn } from "../address.js";
import * as api from "../api.js";
import { act } from "../actions.js";
import { h } from "../dom.js";
import { brokerTime, bytes, clock, count, number, time } from "../format.js";
import { failure } from "../notice.js";
import { Pager, badge, button, choice, field, nothing } from "../parts.js";
import { allow, refusal } from "../rights.js";
import { SelectorBox } from "../selectorbox.js";
import { Table } from "../table.js";
import { exportMessages, importMessages } from "../transfer.js";

const PAGE = 50;
const SHOWN = 4; // properties of a row
export const PREVIEW = 160; // characters of a body

const STATES = [
  ["ready", "Waiting"],
  ["in_flight", "In flight"],
  ["scheduled", "Scheduled"],
];

const VERBS = { retry: "Retry…", move: "Move…", copy: "Copy…", delete: "Delete…" };

/** Which subscription is meant, where the destination is a topic: as a parameter of the API. */
export const subscriptionOf = (query) =>
  query.get("subscription")
    ? { subscription: query.get("subscription"), client_id: query.get("client_id") || undefined }
    : {};

export default function messages({ namespace, address, query, read: reread }) {
  let asked = query;
  const whose = subscriptionOf(query);
  const box = new SelectorBox({
    value: query.get("selector") ?? "",
    search: true,
    onapply: (selector) => change({ selector, cursor: "" }),
  });
  const state = choice(STATES, query.get("state") || "ready", (value) =>
    change({ state: value === "ready" ? "" : value, cursor: "" }),
  );
  const workbench = h("a", { href: link([namespace, "workbench"]) }, "Workbench");
  const words = h("span");
  const verbs = Object.entries(VERBS).filter(([verb]) => verb !== "retry" || address.startsWith("queue:DLQ."));
  const buttons = verbs.map(([verb, text]) => button(text, () => acted(verb), verb === "delete" ? "risky" : ""));
  const save = (which) => exportMessages(namespace, address, { ...which, ...whose }).catch(failure);
  const onChosen = h(
    "div",
    { class: "chosen", hidden: true },
    words,
    buttons,
    button("Export", () => save({ ids: [...table.chosen] })),
  );
  const bring = button("Import…", async () => (await importMessages(namespace, address)) && reread());
  const table = new Table({
    label: "Messages",
    key: (row) => row.id,
    empty: nothing("No messages.", "No message matches. Expired messages are not shown."),
    columns: columns((row) => link([namespace, "destination", address, "messages", row.id], whose)),
    onchoose: drawChosen,
  });
  const pager = new Pager((cursor, before) => change({ cursor }, (changes) => turn(changes, before)));
  const node = h(
    "div",
    whose.subscription && h("p", { class: "note" }, "Of the subscription ", h("b", whose.subscription), "."),
    h(
      "div",
      { class: "tools top" },
      box.node,
      field("State", state),
      h("div", { class: "buttons" }, button("Show", show, "primary"), button("Clear", clear), workbench),
      h(
        "div",
        { class: "buttons" },
        button("Export", () => save({ selector: asked.get("selector") || undefined })),
        whose.subscription ? null : bring,
      ),
    ),
    onChosen,
    table.node,
    pager.node,
  );

  async function show() {
    try {
      if (await box.check()) change({ selector: box.value, cursor: "" });
    } catch (error) {
      failure(error);
    }
  }

  function clear() {
    box.value = "";
    change({ selector: "", cursor: "" });
  }

  function drawChosen() {
    onChosen.hidden = table.chosen.size === 0;
    for (const each of buttons) each.hidden = state.value !== "ready";
    words.textContent = `${count(table.chosen.size, "message")} chosen`;
  }

  async function acted(verb) {
    if (!(await act(namespace, address, verb, { ids: [...table.chosen], whose }))) return;
    table.choose([]);
    reread();
  }

  function change(changes, show = requery) {
    show(changes);
    asked = new URLSearchParams({ ...Object.fromEntries(asked), ...changes });
    reread();
  }

  async function read(signal, ticking, { may }) {
    for (const each of buttons) allow(each, refusal(may, "manage", address));
    allow(bring, refusal(may, "send", address));
    if (ticking) return; // a selector may have a million messages to look at
    workbench.href = link([namespace, "workbench"], { selector: asked.get("selector") ?? "", destination: address });
    const wanted = ["selector", "state", "cursor"].map((name) => [name, asked.get(name)]);
    let answer;
    try {
      const given = { ...Object.fromEntries(wanted), limit: PAGE, preview: PREVIEW, ...whose };
      answer = await api.get(api.destination(namespace, address, "messages"), given, signal);
    } catch (error) {
      if (error.code !== "INVALID_SELECTOR") throw error;
      box.refuse(error);
      return;
    }
    table.update(answer.messages);
    drawChosen();
    const shown = answer.messages.length;
    pager.update(
      answer.next,
      asked.get("cursor"),
      shown ? `${count(shown, "message")} on this page, read at ${clock(brokerTime())}` : "",
    );
  }

  function requeried(fresh) {
    asked = fresh;
    state.value = fresh.get("state") || "ready";
    if (box.value !== (fresh.get("selector") ?? "")) box.value = fresh.get("selector") ?? "";
  }

  return { node, read, query: requeried };
}

/**
 * Columns of a table of messages.
 * @param {(row: object) => string | null} at the link to a message.
 */
export function columns(at) {
  return [
    { label: "Message", kind: "main code", cell: (row) => h(at(row) ? "a" : "span", { href: at(row) }, nameOf(row)) },
    { label: "Type", cell: (row) => row.type ?? "" },
    { label: "Properties", kind: "properties", cell: properties },
    { label: "Body", kind: "preview", cell: (row) => h("span", bodyKind(row), " ", row.preview) },
    { label: "Size", kind: "number", cell: (row) => bytes(row.size) },
    { label: "Priority", kind: "number", cell: (row) => number(row.priority) },
    { label: "Sent", kind: "when", cell: (row) => time(row.timestamp) },
    {
      label: "Attempts",
      kind: "number",
      cell: ({ delivery_count: times, state }) =>
        times > Number(state === "in_flight") ? badge(String(times), "warn") : String(times),
    },
  ];
}

const nameOf = (row) => row.message_id ?? row.id;

// A text speaks for itself.
const bodyKind = ({ body_type: type, preview }) => (type === "TEXT" && preview ? null : h("i", type.toLowerCase()));

function properties(row) {
  if (row.unreadable) return badge("unreadable", "bad");
  const all = Object.entries(row.properties);
  const shown = all
    .slice(0, SHOWN)
    .map(([name, { value }]) => h("span", { class: "property" }, h("i", name), " ", h("b", cut(value))));
  return [shown, all.length > SHOWN && h("span", { class: "dim" }, `and ${all.length - SHOWN} more`)];
}

function cut(value) {
  const text = String(value);
  return text.length > 32 ? `${text.slice(0, 31)}…` : text;
}
