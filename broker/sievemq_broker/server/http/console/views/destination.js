// One queue or topic: its charts and consumers, its messages, what waits for its moment, a form to send to it.

import { link } from "../address.js";
import * as api from "../api.js";
import { badges as marks } from "../attention.js";
import { act, pause, removeDestination } from "../actions.js";
import { h, put } from "../dom.js";
import { failure } from "../notice.js";
import { badge, button, limitBadge, tabs } from "../parts.js";
import { allow, mayWith, refusal } from "../rights.js";
import message from "./message.js";
import messages from "./messages.js";
import { scheduledOf } from "./scheduled.js";
import send from "./send.js";
import summary from "./summary.js";
import tail from "./tail.js";

const PARTS = { "": summary, messages, tail, scheduled: scheduledOf, send };

const VERBS = { move: "Move messages…", copy: "Copy messages…", delete: "Delete messages…", purge: "Purge…" };

export default function destination(context) {
  const { namespace, rest, read: reread } = context;
  const [address = "", part = "", id] = rest;
  const isQueue = !/^(temporary-)?topic:/.test(address);
  const given = { ...context, address, isQueue, id };
  const below = id !== undefined && part === "messages" ? message(given) : (PARTS[part] ?? summary)(given);
  const badges = h("span", { class: "badges" });
  const buttons = h("div", { class: "buttons" });
  const at = (...more) => link([namespace, "destination", address, ...more]);
  const places = h("div");
  const up = h("a", { href: link([namespace, isQueue ? "queues" : "topics"]) }, isQueue ? "Queues" : "Topics");
  const title = h("h1", h("span", { class: "address" }, address), " ", badges);
  const node = h(
    "div",
    h("div", { class: "head" }, h("div", h("p", { class: "lead" }, up), title), buttons),
    places,
    below.node,
  );
  let latest = null;
  drawTabs(null);

  // Until it is known what the user may do, everything is offered.
  function drawTabs(may) {
    const browses = may && refusal(may, "browse", address);
    const items = [
      ["", "Overview", at()],
      isQueue && ["messages", "Messages", at("messages"), browses],
      ["tail", "Arriving", at("tail"), browses],
      isQueue && ["scheduled", "Scheduled", at("scheduled"), browses],
      ["send", "Send", at("send"), may && refusal(may, "send", address)],
    ];
    put(places, tabs(address, items.filter(Boolean), part));
  }

  const then = async (promise) => {
    try {
      await promise;
      reread();
    } catch (error) {
      failure(error);
    }
  };

  function drawButtons(state) {
    const { paused, may } = state;
    put(
      badges,
      paused && badge("paused", "warn"),
      limitBadge(state),
      marks(state),
      address.startsWith("temporary-") && badge("temporary"),
    );
    const drawn = JSON.stringify([paused, may]);
    if (buttons.dataset.drawn === drawn) return;
    buttons.dataset.drawn = drawn;
    const reason = refusal(may, "manage", address);
    const retry =
      address.startsWith("queue:DLQ.") && button("Retry…", () => then(act(namespace, address, "retry")), "primary");
    const stop = button(
      paused ? "Resume" : "Pause",
      () => then(pause(namespace, address, !paused)),
      paused ? "primary" : "",
    );
    put(buttons, retry && allow(retry, reason), allow(stop, reason), menu(reason));
  }

  function menu(reason) {
    const items = h("div", { class: "menu-list" });
    const list = h("details", { class: "actions" }, h("summary", "More"), items);
    const item = (text, run, kind) =>
      button(
        text,
        () => {
          list.open = false;
          then(run());
        },
        kind,
        reason,
      );
    if (isQueue) {
      for (const verb of /** @type {(keyof typeof VERBS)[]} */ (Object.keys(VERBS))) {
        items.append(item(VERBS[verb], () => act(namespace, address, verb), /delete|purge/.test(verb) ? "risky" : ""));
      }
    }
    const whole = isQueue ? "Delete the queue…" : "Delete the topic…";
    items.append(item(whole, () => removeDestination(namespace, address), "risky"));
    list.addEventListener("keydown", ({ key }) => {
      if (key !== "Escape" || !list.open) return;
      list.open = false;
      list.firstElementChild.focus();
    });
    return list;
  }

  // A menu that was left is closed: by the pointer, or by the keyboard.
  for (const event of ["pointerdown", "focusin"]) {
    const leave = ({ target }) => {
      const open = node.querySelector("details.actions[open]");
      if (open && !open.contains(target)) open.open = false;
    };
    document.addEventListener(event, leave, { signal: context.signal });
  }

  async function read(signal, ticking) {
    try {
      latest = await api.get(api.destination(namespace, address), {}, signal);
    } catch (error) {
      if (part !== "send" || error.status !== 404) throw error;
      const may = await mayWith(namespace, address, signal); // sending makes it
      drawTabs(may);
      await below.read?.(signal, ticking, { may });
      return;
    }
    drawTabs(latest.may);
    drawButtons(latest);
    await below.read?.(signal, ticking, latest);
  }

  return { title: address, node, read, query: below.query, heard: below.heard };
}
