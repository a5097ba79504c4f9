// What an administrator does to messages and destinations. First it shows how many messages it touches (a dry run),
// then it is done, step by step until nothing is left.

import { go } from "./address.js";
import * as api from "./api.js";
import { Dialog, ask } from "./dialog.js";
import { h, put } from "./dom.js";
import { count } from "./format.js";
import { latest } from "./latest.js";
import { notice } from "./notice.js";
import { field, textInput } from "./parts.js";
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
    words: "They leave this queue once the target has them.",
  },
  copy: { title: "Copy messages", verb: "Copy", done: "Copied", target: true, words: "They stay here as well." },
  delete: {
    title: "Delete messages",
    verb: "Delete",
    done: "Deleted",
    danger: true,
    chosen: true,
    words: "This cannot be undone.",
  },
  purge: {
    title: "Purge the queue",
    verb: "Delete",
    done: "Deleted",
    danger: true,
    whole: true,
    words: "Waiting and scheduled messages are deleted; messages in flight stay. This cannot be undone.",
  },
  retry: {
    title: "Retry dead letters",
    verb: "Retry",
    done: "Sent back",
    words: "They return to their original destination. Their attempts are counted from zero.",
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
 * @param {string} [given.selector]
 * @param {string[] | null} [given.ids] only these messages.
 * @param {object} [given.whose] the subscription, where the address is a topic.
 * @returns {Promise<boolean>} whether it was done.
 */
export function act(namespace, address, action, { selector = "", ids = null, whose = {} } = {}) {
  const kind = ACTIONS[action];
  const path = api.destination(namespace, address, "actions", action);
  const target = textInput({ placeholder: "queue:orders", required: true });
  const limit = h("input", { type: "number", min: "1", step: "1", placeholder: "all", inputmode: "numeric" });
  const sentence = h("p", { class: "count", role: "status" }, "Counting…");
  const box =
    kind.whole || ids
      ? null
      : new SelectorBox({
          value: selector,
          label: "Only messages that match",
          oncheck: (answer) => (answer ? counted() : wait()),
        });
  let timer = 0;
  let turn = 0;

  const order = (dry) => ({
    selector: box?.value || undefined,
    ids: ids ?? undefined,
    limit: limit.value ? Number(limit.value) : undefined,
    to: kind.target ? target.value.trim() : undefined,
    dry_run: dry,
    ...whose,
  });

  // The button says how many, and cannot be pressed before that is known.
  function counted() {
    stale();
    const missing =
      kind.target && !target.value.trim()
        ? "Enter a target to count the messages."
        : kind.chosen && box && !box.value
          ? "Enter a selector. To delete all messages, purge the queue."
          : "";
    if (!missing) return askHowMany();
    put(sentence, missing);
    put(dialog.button, kind.verb);
    return null;
  }

  // One at a time: counting in a deep queue takes a while, and keys are faster.
  const askHowMany = latest(async () => {
    const mine = turn;
    try {
      const { matched, more } = await api.post(path, order(true));
      if (mine !== turn) return;
      const [one, several] = kind.whole || ids ? [" is there. ", " are there. "] : [" matches. ", " match. "];
      const words = more ? ": the first that match. " : matched === 1 ? one : several;
      put(sentence, h("b", count(matched, "message")), words, matched > 0 && kind.words);
      put(dialog.button, `${kind.verb} ${count(matched, "message")}`);
      dialog.button.disabled = matched === 0;
    } catch (error) {
      if (mine !== turn) return;
      if (error.code === "INVALID_SELECTOR" && box) box.refuse(error);
      put(sentence, h("span", { class: "mistake" }, error.message.split("\n")[0]));
    }
  });

  // What was counted is not what would be done any more.
  function stale() {
    turn += 1;
    dialog.button.disabled = true;
  }

  function wait() {
    stale();
    put(sentence, "The selector has a mistake.");
  }

  function soon() {
    stale();
    clearTimeout(timer);
    timer = setTimeout(counted, PAUSE);
  }

  for (const input of [target, limit]) input.addEventListener("input", soon);
  box?.field.addEventListener("input", stale); // it is checked first, and counted then
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

async function perform(path, order, sentence, kind) {
  put(sentence, h("b", "At work…"));
  const { touched, skipped, stopped } = await api.post(path, order);
  const rest = skipped ? ` ${count(skipped, "message")} could not be changed and stayed.` : "";
  if (stopped) throw new Error(`${kind.done} ${count(touched, "message")}, then: ${stopped.text}`);
  notice(`${kind.done} ${count(touched, "message")}.${rest}`);
}

const AT_ONCE = 4; // requests

/** Does something with each of many rows, a few at a time. Returns the errors of those that refused. */
async function withEach(rows, run, tell) {
  const waiting = [...rows];
  /** @type {Error[]} */
  const refused = [];
  const work = async () => {
    for (let row = waiting.shift(); row; row = waiting.shift()) {
      await run(row).catch((error) => (error instanceof api.Refused ? refused.push(error) : Promise.reject(error)));
      tell(rows.length - waiting.length);
    }
  };
  await Promise.all(Array.from({ length: AT_ONCE }, work));
  return refused;
}

/**
 * Asks, and does something with each of many rows: `run`, after `dry` has counted the messages of each.
 * @param {object[]} rows
 * @param {{verb: string, done: string, nouns: [string, string], words: string, danger?: boolean,
 *   run: (row: object) => Promise<object>, dry?: ((row: object) => Promise<{matched: number}>) | null}} given `words`
 *   say what becomes of them.
 * @returns {Promise<boolean>} whether it was done.
 */
export function actOnEach(rows, { verb, done, nouns, words, run, dry = null, danger = true }) {
  const sentence = h("p", { class: "count", role: "status" }, dry ? "Counting…" : words);
  const what = count(rows.length, ...nouns);
  const tell = (doing) => (ready) => put(sentence, `${doing}: ${count(ready, ...nouns)} of ${rows.length}`);
  async function counted() {
    dialog.button.disabled = true;
    let messages = 0;
    const add = async (row) => {
      const found = await dry?.(row); // several add to it
      messages += found?.matched ?? 0;
    };
    await withEach(rows, add, tell("Counted"));
    put(sentence, h("b", count(messages, "message")), ` in ${what}. ${words}`);
    put(dialog.button, `${verb} ${count(messages, "message")}`);
    dialog.button.disabled = false;
  }
  const dialog = new Dialog({
    title: `${verb} ${what}?`,
    danger,
    action: `${verb} ${what}`,
    body: sentence,
    opened: dry && (() => counted().catch((error) => put(sentence, error.message))),
    run: async () => {
      const refused = await withEach(rows, run, tell(done));
      if (refused.length) throw new Error(`${count(refused.length, ...nouns)} refused: ${refused[0].message}`);
      notice(`${done} ${what}.`);
    },
  });
  return dialog.open();
}

/** Asks, and closes connections or consumers; `path` is that of one. */
export const closeAll = (rows, given) =>
  actOnEach(rows, { ...given, verb: "Close", done: "Closed", run: (row) => api.remove(given.path(row)) });

/** Pauses or resumes the delivery of a queue; asks nothing, because it can be taken back. */
export async function pause(namespace, address, paused) {
  await api.post(api.destination(namespace, address, "actions", paused ? "pause" : "resume"));
  notice(paused ? "Delivery is paused. Messages are still accepted." : "Delivery is resumed.");
}

/** Makes a queue or topic. */
export function declare(namespace, kind) {
  const name = textInput({ required: true, maxlength: "200", placeholder: kind === "queue" ? "orders" : "prices" });
  return ask({
    title: `New ${kind}`,
    action: `Create the ${kind}`,
    body: field("Name", name),
    run: async () => {
      const address = `${kind}:${name.value.trim()}`;
      await api.within(namespace, () => api.put(api.destination(namespace, address)));
      notice(`${address} is created.`);
      go([namespace, "destination", address]);
    },
  });
}

/** Deletes a destination with all that is in it; says first how much that is. */
export async function removeDestination(namespace, address) {
  const { matched } = await api.remove(api.destination(namespace, address), { dry_run: true });
  return ask({
    title: `Delete ${address}?`,
    action: "Delete it",
    danger: true,
    body: h(
      "p",
      matched ? [h("b", count(matched, "message")), " in it will be lost. "] : "It is empty. ",
      "Its consumers will be closed. This cannot be undone.",
    ),
    run: async () => {
      await api.remove(api.destination(namespace, address));
      notice(`${address} is deleted.`);
      go([namespace, /topic:/.test(address) ? "topics" : "queues"]);
    },
  });
}
