// A selector tried on the messages of a queue: how many match, and for the first of them why or why not.

import { link } from "../../address.js";
import * as api from "../../api.js";
import { h, put } from "../../dom.js";
import { explanation, truth } from "../../explanation.js";
import { count } from "../../format.js";
import { field } from "../../parts.js";

const SHOWN = 8; // messages
const KNOWN = 100; // queues that are offered

export class Sample {
  /**
   * @param {string} namespace @param {string} queue its address. @param {string} id of a message that comes first.
   * @param {object} whose the subscription, where the address is a topic.
   * @param {() => void} onchange another queue was named.
   */
  constructor(namespace, queue, id, whose, onchange) {
    this.namespace = namespace;
    this.id = id;
    this.whose = whose;
    const given = {
      type: "text",
      list: "queues",
      placeholder: "queue:orders",
      autocomplete: "off",
      spellcheck: "false",
    };
    this.input = h("input", { ...given, value: queue, input: onchange });
    this.known = h("datalist", { id: "queues" });
    this.verdict = h("div", { class: "verdict", role: "status" });
    this.list = h("div", { class: "sample" });
    this.node = h("div", { class: "card" }, field("Queue", this.input), this.known, this.verdict, this.list);
  }

  get queue() {
    return this.input.value.trim();
  }

  /** Offers the queues there are. */
  async offer(signal) {
    const { destinations } = await api.list(this.namespace, "destinations", { kind: "queue", limit: KNOWN }, signal);
    put(
      this.known,
      destinations.map(({ address }) => h("option", { value: address })),
    );
  }

  /** Evaluates a selector for it. */
  async run(selector, dialect, signal) {
    if (!this.queue) {
      put(this.verdict, h("p", { class: "dim" }, "Name a queue to see which of its messages match."));
      put(this.list);
      return;
    }
    try {
      const state = await api.get(api.destination(this.namespace, this.queue), {}, signal);
      const matching = selector ? await this.#count(selector, dialect, signal) : `${state.depth}`;
      put(this.verdict, h("p", h("b", matching), ` of ${count(state.depth, "waiting message")} would match.`));
      await this.#explain(selector, dialect, signal);
    } catch (error) {
      if (error.name === "AbortError" || error instanceof api.Unreachable) throw error;
      put(this.verdict, h("p", { class: "mistake" }, error.message.split("\n")[0]));
      put(this.list);
    }
  }

  // A dry run counts all. A user who may only view counts the first page.
  async #count(selector, dialect, signal) {
    const order = { selector, dialect, ...this.whose };
    try {
      const path = api.destination(this.namespace, this.queue, "actions", "delete");
      return `${(await api.post(path, { ...order, dry_run: true }, signal)).matched}`;
    } catch (error) {
      if (error.status !== 403) throw error;
      const path = api.destination(this.namespace, this.queue, "messages");
      const page = await api.get(path, { ...order, limit: 1000 }, signal);
      return `${page.messages.length}${page.next === null ? "" : " or more"}`;
    }
  }

  async #explain(selector, dialect, signal) {
    const path = api.destination(this.namespace, this.queue, "messages");
    const page = await api.get(path, { limit: SHOWN, ...this.whose }, signal);
    const messages = page.messages.map(({ id, message_id: name, type }) => ({ id, name: name ?? id, type }));
    if (this.id && !messages.some(({ id }) => id === this.id))
      messages.unshift({ id: this.id, name: this.id, type: null });
    const place = { namespace: this.namespace, destination: this.queue, ...this.whose };
    const answers = await Promise.all(
      messages.map(({ id }) => api.post("/selector/explain", { selector, dialect, ...place, id }, signal).catch(gone)),
    );
    const opened = new Set(Array.from(this.list.querySelectorAll("details[open]"), (item) => item.dataset.id));
    const rows = messages.map((message, i) => answers[i] && this.#row(message, answers[i], opened));
    put(this.list, rows, page.next !== null && h("p", { class: "dim" }, `The first ${SHOWN} of them.`));
  }

  #row({ id, name, type }, answer, opened) {
    return h(
      "details",
      { "data-id": id, open: opened.has(id) || id === this.id },
      h("summary", truth(answer.truth), h("code", name), type && h("span", { class: "dim" }, type)),
      h("div", { class: "explanation" }, explanation(answer.explanation)),
      h(
        "a",
        { href: link([this.namespace, "destination", this.queue, "messages", id], this.whose) },
        "Open the message",
      ),
    );
  }
}

// A message that was taken meanwhile has nothing to explain.
function gone(error) {
  if (error.status === 404) return null;
  throw error;
}
