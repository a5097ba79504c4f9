// One queue or topic: its charts and consumers, its messages, what waits for its moment, a form to send to it.

import { link } from "../address.js";
import * as api from "../api.js";
import { h, put } from "../dom.js";
import { badge, head, tabs } from "../parts.js";
import { act, pause, removeDestination } from "../actions.js";
import { button, linkButton } from "../parts.js";
import { failure } from "../notice.js";
import message from "./message.js";
import messages from "./messages.js";
import send from "./send.js";
import summary from "./summary.js";
import { scheduledOf } from "./scheduled.js";

const PARTS = { "": summary, messages, scheduled: scheduledOf, send };

export default function destination(context) {
  const { namespace, rest, read: reread } = context;
  const [address = "", part = "", id] = rest;
  const isQueue = !address.includes("topic:");
  const inner = { ...context, address, isQueue, id };
  const below = id !== undefined && part === "messages" ? message(inner) : (PARTS[part] ?? summary)(inner);
  const title = h("span", { class: "address" }, address);
  const badges = h("span", { class: "badges" });
  const buttons = h("div", { class: "buttons" });
  const at = (...more) => link([namespace, "destination", address, ...more]);
  const items = [
    ["", isQueue ? "Overview" : "Subscriptions", at()],
    isQueue && ["messages", "Messages", at("messages")],
    isQueue && ["scheduled", "Scheduled", at("scheduled")],
    ["send", "Send", at("send")],
  ].filter(Boolean);
  const place = h("a", { href: link([namespace, isQueue ? "queues" : "topics"]) }, isQueue ? "Queues" : "Topics");
  const node = h(
    "div",
    h("div", { class: "head" }, h("div", h("p", { class: "lead" }, place), h("h1", title, " ", badges)), buttons),
    tabs(address, items, part),
    below.node,
  );

  const again = (promise) => promise.then(() => reread()).catch(failure);

  function drawButtons(state) {
    put(
      badges,
      state.paused && badge("paused", "warn"),
      !isQueue && badge("topic"),
      address.startsWith("temporary-") && badge("temporary"),
    );
    if (buttons.dataset.state === `${state.paused}`) return;
    buttons.dataset.state = `${state.paused}`;
    const menu = h(
      "details",
      { class: "actions" },
      h("summary", "More"),
      h(
        "div",
        { class: "menu-list" },
        isQueue &&
          ["move", "copy", "delete", "purge"].map((action) =>
            button(
              { move: "Move messages…", copy: "Copy messages…", delete: "Delete messages…", purge: "Purge…" }[action],
              () => {
                menu.open = false;
                again(act(namespace, address, action));
              },
              action === "purge" || action === "delete" ? "risky" : "",
            ),
          ),
        button(
          isQueue ? "Delete the queue…" : "Delete the topic…",
          () => {
            menu.open = false;
            again(removeDestination(namespace, address, latest?.depth ?? 0));
          },
          "risky",
        ),
      ),
    );
    put(
      buttons,
      isQueue &&
        address.startsWith("queue:DLQ.") &&
        button("Retry…", () => again(act(namespace, address, "retry")), "primary"),
      isQueue &&
        button(
          state.paused ? "Resume" : "Pause",
          () => again(pause(namespace, address, !state.paused)),
          state.paused ? "primary" : "",
        ),
      menu,
    );
  }

  let latest = null;
  async function read(signal) {
    latest = await api.get(api.destination(namespace, address), {}, signal);
    drawButtons(latest);
    await below.read?.(signal, latest);
  }

  return { title: address, node, read, query: below.query, heard: below.heard };
}
