// One message: headers, typed properties, body.

import { go, link } from "../address.js";
import * as api from "../api.js";
import { act } from "../actions.js";
import { bodyView, isBytes, typed } from "../body.js";
import { deadLetterFacts, moment } from "../deadletter.js";
import { h, put } from "../dom.js";
import { save } from "../files.js";
import { bytes, count, number, time } from "../format.js";
import { failure } from "../notice.js";
import { button, facts, linkButton, section } from "../parts.js";
import { allow, refusal } from "../rights.js";
import { exportMessages } from "../transfer.js";
import { subscriptionOf } from "./messages.js";

export default function message({ namespace, address, id, query }) {
  const whose = subscriptionOf(query);
  const list = [namespace, "destination", address, "messages"];
  const content = h("div");
  const title = h("h2", h("code", id));
  const leave = async (action) => {
    try {
      if (await act(namespace, address, action, { ids: [id], whose })) go(list);
    } catch (error) {
      failure(error);
    }
  };
  const buttons = h("div", { class: "buttons" });
  let whole = null;

  function drawButtons(may) {
    const like = link([namespace, "destination", address, "send"], { like: id });
    const manages = refusal(may, "manage", address);
    const retry = address.startsWith("queue:DLQ.") && button("Retry…", () => leave("retry"), "primary");
    put(
      buttons,
      linkButton("Send like this", like, "", refusal(may, "send", address)),
      button("Export", () => exportMessages(namespace, address, { ids: [id], ...whose }).catch(failure)),
      linkButton("Try a selector", link([namespace, "workbench"], { destination: address, id, ...whose })),
      retry && allow(retry, manages),
      button("Move…", () => leave("move"), "", manages),
      button("Delete…", () => leave("delete"), "risky", manages),
    );
  }

  async function read(signal, _, { may }) {
    drawButtons(may);
    if (whole) return; // a message does not change
    whole = await api.get(api.destination(namespace, address, "messages", id), whose, signal);
    put(title, h("code", whole.message_id ?? id));
    const letter = deadLetterFacts(namespace, whole);
    put(
      content,
      letter && section("Why it is here", letter),
      letter ? section("Headers", facts(headers(whole))) : facts(headers(whole)),
      h(
        "div",
        { class: isWide(whole) ? "" : "halves" },
        section("Properties", propertiesOf(whole)),
        section("Body", bodyView(whole.body, download)),
      ),
    );
  }

  async function download() {
    try {
      const file = await api.file(api.destination(namespace, address, "messages", id, "body"), { query: whose });
      save(file, `${whole.message_id ?? id}.${whole.body.type === "TEXT" ? "txt" : "bin"}`);
    } catch (error) {
      failure(error);
    }
  }

  return { node: h("div", h("div", { class: "section-head" }, title, buttons), content), read };
}

// Without properties half of the page would stay empty; a line of bytes needs more than half.
const isWide = ({ properties, body }) => Object.keys(properties).length === 0 || isBytes(body);

function propertiesOf(whole) {
  if (whole.unreadable) return h("p", { class: "mistake" }, whole.unreadable);
  if (!Object.keys(whole.properties).length) return h("p", { class: "dim" }, "None.");
  const read = ([name, { type, value }]) =>
    /^JMS_SieveMQ_DeadLetter(First|Last)Failure$/.test(name)
      ? { type, value: `${value} (${time(value)})` }
      : { type, value };
  return typed(Object.fromEntries(Object.entries(whole.properties).map((each) => [each[0], read(each)])));
}

function headers(whole) {
  return [
    ["JMSDestination", h("code", whole.destination)],
    ["JMSTimestamp", whole.timestamp ? moment(whole.timestamp) : "not set"],
    ["JMSType", whole.type ?? "–"],
    ["JMSCorrelationID", h("code", whole.correlation_id ?? whole.correlation_id_bytes ?? "–")],
    ["JMSReplyTo", h("code", whole.reply_to ?? "–")],
    ["JMSPriority", number(whole.priority)],
    ["JMSDeliveryMode", whole.delivery_mode],
    ["JMSExpiration", whole.expiration ? moment(whole.expiration) : "never"],
    ["JMSDeliveryTime", whole.delivery_time ? moment(whole.delivery_time) : "at once"],
    ["Deliveries from here", whole.delivery_count ? count(whole.delivery_count, "time") : "none"],
    ["Failed attempts here", whole.attempts ? number(whole.attempts) : "none"],
    ["State", whole.state.replace("_", " ")],
    ["Size", bytes(whole.size)],
  ];
}
