// A form to send a message: headers, typed properties, body. With ?like=id it begins as a copy of another message.

import * as api from "../api.js";
import { h, put } from "../dom.js";
import { count } from "../format.js";
import { notice } from "../notice.js";
import { choice, field } from "../parts.js";
import { allow, refusal } from "../rights.js";
import { Rows } from "../rows.js";

const BODIES = [
  ["TEXT", "Text"],
  ["BYTES", "Bytes, as hexadecimal"],
  ["MAP", "Map"],
  ["STREAM", "Stream"],
  ["NONE", "No body"],
];

export default function send({ namespace, address, query, signal: gone }) {
  const text = h("textarea", { rows: 8, spellcheck: "false", "aria-label": "Body", placeholder: '{"order": 17}' });
  const rows = new Rows({ label: "Properties", adds: "Add a property" });
  const entries = new Rows({ label: "Entries", adds: "Add an entry", body: true });
  const place = h("div");
  const kind = choice(BODIES, "TEXT", draw);
  const input = (given) => h("input", { autocomplete: "off", spellcheck: "false", ...given });
  const type = input({ type: "text" });
  const correlation = input({ type: "text" });
  const reply = input({ type: "text", placeholder: "queue:answers" });
  const priority = input({ type: "number", min: "0", max: "9", required: true, value: "4" });
  const mode = choice(
    [
      ["PERSISTENT", "Persistent"],
      ["NON_PERSISTENT", "Non-persistent"],
    ],
    "PERSISTENT",
  );
  const live = input({ type: "number", min: "0", step: "any", placeholder: "for ever" });
  const delay = input({ type: "number", min: "0", step: "any", placeholder: "none" });
  const copies = input({ type: "number", min: "1", max: "1000", required: true, value: "1" });
  const trouble = h("p", { class: "mistake", role: "alert" });
  const submit = h("button", { type: "submit", class: "primary" }, "Send");
  let refused = null; // why the user may not send here
  let sending = false;
  const node = h(
    "form",
    { class: "send", submit: sent },
    h(
      "div",
      { class: "halves" },
      h(
        "div",
        h("fieldset", h("legend", "Body"), field("Kind", kind), place),
        h("fieldset", h("legend", "Properties"), rows.node),
      ),
      h(
        "fieldset",
        h("legend", "Headers"),
        h(
          "div",
          { class: "grid" },
          field("JMSType", type),
          field("JMSCorrelationID", correlation),
          field("JMSReplyTo", reply),
          field("Priority", priority, "0 to 9; 9 goes first"),
          field("Delivery mode", mode),
          field("Time to live", live, "seconds"),
          field("Delay", delay, "seconds"),
          field("How many", copies),
        ),
      ),
    ),
    trouble,
    h("div", { class: "buttons" }, submit),
  );

  function draw() {
    entries.named = kind.value === "MAP";
    put(place, ["TEXT", "BYTES"].includes(kind.value) ? text : ["MAP", "STREAM"].includes(kind.value) && entries.node);
  }

  async function sent(event) {
    event.preventDefault();
    put(trouble);
    submit.disabled = sending = true;
    try {
      const order = message();
      const times = Number(copies.value);
      const to = api.destination(namespace, address, "messages");
      for (let i = 0; i < times; i += 1) await api.within(namespace, () => api.post(to, order, gone));
      notice(`Sent ${count(times, "message")} to ${address}.`);
    } catch (error) {
      if (error.name !== "AbortError") put(trouble, error.message);
    } finally {
      sending = false;
      allow(submit, refused);
    }
  }

  function message() {
    const milliseconds = (given) => Math.round(Number(given.value || 0) * 1000);
    return {
      type: type.value || null,
      correlation_id: correlation.value || null,
      reply_to: reply.value.trim() || null,
      priority: Number(priority.value),
      delivery_mode: mode.value,
      time_to_live: milliseconds(live),
      delivery_delay: milliseconds(delay),
      properties: rows.byName(),
      body_type: kind.value,
      body: body(),
    };
  }

  function body() {
    if (kind.value === "TEXT") return text.value;
    if (kind.value === "BYTES") return base64(text.value);
    if (kind.value === "MAP") return entries.byName();
    if (kind.value === "STREAM") return entries.values().map(({ type: of, value }) => ({ type: of, value }));
    return null;
  }

  async function begin(id) {
    const like = await api.get(api.destination(namespace, address, "messages", id), {}, gone);
    type.value = like.type ?? "";
    correlation.value = like.correlation_id ?? "";
    reply.value = like.reply_to ?? "";
    priority.value = like.priority;
    mode.value = like.delivery_mode;
    for (const [name, { type: of, value }] of Object.entries(like.properties)) {
      if (!name.startsWith("JMS_SieveMQ_") && !name.startsWith("JMSX")) rows.add({ name, type: of, value });
    }
    kind.value = BODIES.some(([id]) => id === like.body.type) ? like.body.type : "NONE";
    text.value = like.body.text ?? hexOf(like.body.base64 ?? "");
    for (const [name, { type: of, value }] of Object.entries(like.body.map ?? like.body.stream ?? {})) {
      entries.add({ name, type: of, value });
    }
    draw();
  }

  async function read(signal, ticking, { may }) {
    refused = refusal(may, "send", address);
    if (!sending) allow(submit, refused);
  }

  draw();
  if (query.get("like"))
    begin(query.get("like")).catch((error) => error.name !== "AbortError" && put(trouble, error.message));
  return { node, read };
}

function base64(text) {
  const digits = text.replace(/\s+/g, "");
  if (!/^([0-9a-f]{2})*$/i.test(digits)) throw new Error("Bytes are pairs of hexadecimal digits, such as 00 ff 1b.");
  return btoa((digits.match(/../g) ?? []).map((pair) => String.fromCharCode(parseInt(pair, 16))).join(""));
}

const hexOf = (text) => Array.from(atob(text), (c) => c.charCodeAt(0).toString(16).padStart(2, "0")).join(" ");
