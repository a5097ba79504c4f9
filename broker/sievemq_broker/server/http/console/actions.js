// What an administrator does to messages and destinations. First it is said how many messages it touches (a dry run),
// then it is done, step by step until nothing is left.

import { go } from "./address.js";
import * as api from "./api.js";
import { Dialog, ask } from "./dialog.js";
import { h, put } from "./dom.js";
import { count } from "./format.js";
import { notice } from "./notice.js";
import { field } from "./parts.js";
import { SelectorBox } from "./selectorbox.js";

const PAUSE = 250; // ms without a key before it is counted anew

/**
 * What can be done to the messages of a queue. `verb` and `done` are of the sentence, `target` asks where to.
 */
const ACTIONS = {
  move: {
    title: "Move messages",
    verb: "Move",
    done: "Moved",
    target: true,
    words: "They leave this queue once they have arrived.",
  },
  copy: { title: "Copy messages", verb: "Copy", done: "Copied", target: true, words: "They stay here as well." },
  delete: { title: "Delete messages", verb: "Delete", done: "Deleted", danger: true, words: "This cannot be undone." },
  purge: {
    title: "Purge the queue",
    verb: "Delete",
    done: "Deleted",
    danger: true,
    whole: true,
    words: "Every waiting message is removed. This cannot be undone.",
  },
  retry: {
    title: "Retry dead letters",
    verb: "Retry",
    done: "Sent back",
    words: "They go back where they came from, their attempts counted anew.",
  },
  cancel: {
    title: "Cancel scheduled messages",
    verb: "Cancel",
    done: "Cancelled",
    danger: true,
    words: "They will not be delivered. This cannot be undone.",
  },
};

/**
 * Asks, with a dry run first, and does it.
 * @param {string} namespace @param {string} address of the queue. @param {keyof ACTIONS} action
 * @param {object} [given]
 * @param {string} [given.selector] @param {string[]} [given.ids] only these messages.
 * @param {string} [given.origin] more words about what is touched.
 * @returns {Promise<boolean>} whether it was done.
 */
export function act(namespace, address, action, { selector = "", ids = null } = {}) {
  const kind = ACTIONS[action];
  const path = api.destination(namespace, address, "actions", action);
  const target = h("input", {
    type: "text",
    placeholder: "queue:orders",
    required: true,
    spellcheck: "false",
    autocomplete: "off",
  });
  const limit = h("input", { type: "number", min: "1", step: "1", placeholder: "all", inputmode: "numeric" });
  const sentence = h("p", { class: "count", role: "status" }, "Counting…");
  const box =
    kind.whole || ids
      ? null
      : new SelectorBox({
          value: selector,
          label: "Only messages that match",
          oncheck: (answer) => answer && counted(),
        });
  let timer = 0;
  let turn = 0;

  const order = (dry) => ({
    selector: box?.value || undefined,
    ids: ids ?? undefined,
    limit: limit.value ? Number(limit.value) : undefined,
    to: kind.target ? target.value.trim() : undefined,
    dry_run: dry,
  });

  // The button says how many, and cannot be pressed before that is known.
  async function counted() {
    turn += 1;
    const mine = turn;
    dialog.button.disabled = true;
    if (kind.target && !target.value.trim()) {
      put(sentence, "Say where to, to see how many messages it would be.");
      return;
    }
    put(sentence, "Counting…");
    try {
      const answer = await api.post(path, order(true));
      if (mine !== turn) return;
      const [matched, more] = [answer.matched, answer.more];
      const messages = count(matched, "message");
      put(
        sentence,
        h("b", more ? `At least ${messages}` : messages),
        matched === 1 && !more ? " matches. " : " match. ",
        matched ? kind.words : "",
      );
      put(dialog.button, `${kind.verb} ${more ? `${messages} or more` : messages}`);
      dialog.button.disabled = matched === 0;
    } catch (error) {
      if (mine !== turn) return;
      if (error.code === "INVALID_SELECTOR" && box) box.refuse(error);
      put(sentence, h("span", { class: "mistake" }, error.message.split("\n")[0]));
    }
  }

  function soon() {
    clearTimeout(timer);
    dialog.button.disabled = true;
    timer = setTimeout(counted, PAUSE);
  }

  for (const input of [target, limit]) input.addEventListener("input", soon);
  const dialog = new Dialog({
    title: kind.title,
    danger: kind.danger,
    action: kind.verb,
    body: [
      h("p", "In ", h("code", address), ids && ` · ${count(ids.length, "chosen message")}`),
      kind.target && field("To", target, "A queue or topic; a bare name is a queue."),
      box?.node,
      !ids && !kind.whole && field("At most", limit),
      sentence,
    ],
    opened: counted,
    run: () => perform(path, order(false), sentence, kind),
  });
  return dialog.open();
}

// One request touches no more than a step's worth; `more` says that there is more to do.
async function perform(path, order, sentence, kind) {
  let touched = 0;
  let left = order.limit ?? Infinity;
  for (;;) {
    const answer = await api.post(path, { ...order, limit: Number.isFinite(left) ? left : undefined });
    touched += answer.touched;
    left -= answer.touched;
    put(sentence, h("b", `${kind.done} ${count(touched, "message")}…`));
    if (!answer.more || answer.touched === 0 || left <= 0) break;
  }
  notice(`${kind.done} ${count(touched, "message")}.`);
}

/** Pauses or resumes the delivery of a queue; asks nothing, because it can be taken back. */
export async function pause(namespace, address, paused) {
  await api.post(api.destination(namespace, address, "actions", paused ? "pause" : "resume"));
  notice(paused ? "Delivery is paused. Messages are still accepted." : "Delivery goes on.");
}

/** Makes a queue or topic. */
export function declare(namespace, kind) {
  const name = h("input", {
    type: "text",
    required: true,
    maxlength: "200",
    spellcheck: "false",
    autocomplete: "off",
    placeholder: kind === "queue" ? "orders" : "prices",
  });
  return ask({
    title: `New ${kind}`,
    action: `Make the ${kind}`,
    body: field("Name", name),
    run: async () => {
      const address = `${kind}:${name.value.trim()}`;
      await api.put(api.destination(namespace, address));
      notice(`${address} is there.`);
      go([namespace, "destination", address]);
    },
  });
}

/** Deletes a destination with all that is in it. */
export function removeDestination(namespace, address, depth) {
  return ask({
    title: `Delete ${address}?`,
    action: "Delete it",
    danger: true,
    body: h("p", depth ? `${count(depth, "message")} in it will be lost. ` : "It is empty. ", "This cannot be undone."),
    run: async () => {
      await api.remove(api.destination(namespace, address));
      notice(`${address} is deleted.`);
      go([namespace, address.includes("topic:") ? "topics" : "queues"]);
    },
  });
}
