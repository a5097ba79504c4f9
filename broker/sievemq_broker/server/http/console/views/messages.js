// The messages that wait in a queue, page by page, chosen by a selector; nothing is consumed by looking.

import { link, requery } from "../address.js";
import * as api from "../api.js";
import { act } from "../actions.js";
import { h } from "../dom.js";
import { bytes, count, number, time } from "../format.js";
import { failure } from "../notice.js";
import { Pager, badge, button, nothing } from "../parts.js";
import { SelectorBox } from "../selectorbox.js";
import { Table } from "../table.js";

const PAGE = 50;
const SHOWN = 4; // properties of a row

export default function messages({ namespace, address, query, read: reread }) {
  let asked = query;
  const chosen = new Set();
  const box = new SelectorBox({
    value: query.get("selector") ?? "",
    search: true,
    onapply: (selector) => change({ selector, cursor: "" }),
  });
  const apply = button(
    "Show",
    async () => (await box.check().catch(failure)) && change({ selector: box.value, cursor: "" }),
    "primary",
  );
  const clear = button("Clear", () => {
    box.value = "";
    change({ selector: "", cursor: "" });
  });
  const workbench = h("a", { href: link([namespace, "workbench"]) }, "Workbench");
  const onChosen = h("div", { class: "chosen", hidden: true });
  const words = h("span");
  onChosen.append(
    words,
    ...["move", "copy", "delete", "retry"]
      .filter((action) => action !== "retry" || address.startsWith("queue:DLQ."))
      .map((action) =>
        button(
          { move: "Move…", copy: "Copy…", delete: "Delete…", retry: "Retry…" }[action],
          () => acted(action),
          action === "delete" ? "risky" : "",
        ),
      ),
  );
  const table = new Table({
    label: "Messages",
    key: (row) => row.id,
    empty: nothing(
      "No message here.",
      "Nothing waits that matches. Messages in flight, delayed or expired are not shown.",
    ),
    columns: [
      {
        label: "Choose",
        kind: "check",
        cell: (row) => h("input", { type: "checkbox", "aria-label": `choose ${row.id}`, "data-id": row.id }),
      },
      {
        label: "Message",
        kind: "main code",
        cell: (row) => h("a", { href: link([namespace, "destination", address, "messages", row.id]) }, row.id),
      },
      { label: "Type", cell: (row) => row.type ?? "" },
      { label: "Properties", kind: "properties", cell: (row) => properties(row) },
      { label: "Body", cell: (row) => row.body_type.toLowerCase() },
      { label: "Size", kind: "number", cell: (row) => bytes(row.size) },
      { label: "Priority", kind: "number", cell: (row) => number(row.priority) },
      { label: "Sent", kind: "when", cell: (row) => time(row.timestamp) },
      {
        label: "Attempts",
        kind: "number",
        cell: (row) => (row.delivery_count ? badge(String(row.delivery_count), "warn") : "0"),
      },
    ],
  });
  table.body.addEventListener("change", (event) => {
    const id = event.target.dataset.id;
    if (event.target.checked) chosen.add(id);
    else chosen.delete(id);
    drawChosen();
  });
  const pager = new Pager((cursor) => change({ cursor }));
  const node = h(
    "div",
    h("div", { class: "tools top" }, box.node, h("div", { class: "buttons" }, apply, clear, workbench)),
    onChosen,
    table.node,
    pager.node,
  );

  function drawChosen() {
    onChosen.hidden = chosen.size === 0;
    words.textContent = `${count(chosen.size, "message")} chosen`;
  }

  async function acted(action) {
    if (await act(namespace, address, action, { ids: [...chosen] })) {
      chosen.clear();
      drawChosen();
      reread();
    }
  }

  function change(changes) {
    requery(changes);
    asked = new URLSearchParams({ ...Object.fromEntries(asked), ...changes });
    reread();
  }

  async function read(signal) {
    workbench.href = link([namespace, "workbench"], { selector: asked.get("selector") ?? "", destination: address });
    let answer;
    try {
      answer = await api.get(
        api.destination(namespace, address, "messages"),
        { selector: asked.get("selector"), cursor: asked.get("cursor"), limit: PAGE },
        signal,
      );
    } catch (error) {
      if (error.code !== "INVALID_SELECTOR") throw error;
      box.refuse(error);
      return;
    }
    table.update(answer.messages);
    for (const id of chosen) if (!table.rows.has(id)) chosen.delete(id);
    drawChosen();
    pager.update(
      answer.next,
      Boolean(asked.get("cursor")),
      answer.messages.length ? `${count(answer.messages.length, "message")} on this page` : "",
    );
  }

  return {
    node,
    read,
    query: (fresh) => {
      asked = fresh;
      if (box.value !== (fresh.get("selector") ?? "")) box.value = fresh.get("selector") ?? "";
    },
  };
}

function properties(row) {
  if (row.unreadable) return badge("unreadable", "bad");
  const all = Object.entries(row.properties);
  const shown = all
    .slice(0, SHOWN)
    .map(([name, { value }]) => h("span", { class: "property" }, h("i", name), " ", h("b", cut(value))));
  return [shown, all.length > SHOWN && h("span", { class: "dim" }, `and ${all.length - SHOWN} more`)];
}

const cut = (value) => {
  const text = value === null ? "null" : String(value);
  return text.length > 32 ? `${text.slice(0, 31)}…` : text;
};
