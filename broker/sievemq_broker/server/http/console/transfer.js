// Messages into a file, as lines of JSON that the command line reads too, and from such a file into a destination.

import * as api from "./api.js";
import { Dialog } from "./dialog.js";
import { h, put } from "./dom.js";
import { save } from "./files.js";
import { count } from "./format.js";
import { notice } from "./notice.js";
import { field } from "./parts.js";

const LINES = 500; // of a request
const CHARACTERS = 1_000_000; // of a request; a longer line has one for itself
const LONGEST = 3_500_000; // line that the management API takes

/**
 * Saves messages of a queue.
 * @param {object} which selector, ids and limit, as the API takes them.
 */
export async function exportMessages(namespace, address, which) {
  const blob = await api.file(api.destination(namespace, address, "export"), { body: which });
  save(blob, `${address}.ndjson`);
}

/** Sends the messages of a file to a destination; says first how many they are. */
export function importMessages(namespace, address) {
  const path = api.destination(namespace, address, "import");
  const file = h("input", { type: "file", accept: ".ndjson,.jsonl,.json,.txt", required: true });
  const sentence = h("p", { class: "count", role: "status" }, "Choose a file of lines of JSON, as an export has them.");
  let batches = [];

  // Sends it, or only has it checked; gives back the sum of the answers. What is sent is not sent again by a second try.
  async function each(dry) {
    const sum = { matched: 0, touched: 0, skipped: 0 };
    const then = (text) => new Error(sum.touched ? `${count(sum.touched, "message")} sent, then: ${text}` : text);
    for (const batch of batches.filter(({ lines }) => lines.length)) {
      const { lines, from } = batch;
      let answer;
      try {
        answer = await api.post(path, { lines, dry_run: dry });
      } catch (error) {
        const unknown = dry || error instanceof api.Refused ? "" : ` Up to ${lines.length} more may be sent.`;
        throw then(
          error.message.replace(/^lines\[(\d+)\]/, (_, number) => `Message ${from + Number(number)}`) + unknown,
        );
      }
      for (const key of Object.keys(sum)) sum[key] += answer[key];
      if (dry) continue;
      const sent = answer.stopped ? answer.stopped.details.line - 1 : lines.length;
      Object.assign(batch, { lines: lines.slice(sent), from: from + sent });
      if (answer.stopped) throw then(`message ${from + sent + 1}: ${answer.stopped.text}`);
    }
    return sum;
  }

  async function chosen() {
    dialog.button.disabled = file.disabled = true; // one file at a time
    put(dialog.trouble);
    put(sentence, "Checking…");
    try {
      batches = batchesOf(await file.files[0].text());
      const { matched, skipped } = await each(true);
      put(sentence, h("b", count(matched, "message")), ` would be sent.${expired(skipped)}`);
      put(dialog.button, `Send ${count(matched, "message")}`);
      dialog.button.disabled = matched === 0;
    } catch (error) {
      put(sentence, h("span", { class: "mistake" }, error.message));
    }
    file.disabled = false;
  }

  file.addEventListener("change", chosen);
  const dialog = new Dialog({
    title: "Import messages",
    action: "Send",
    body: [h("p", "To ", h("code", address), ", with new message ids and timestamps."), field("File", file), sentence],
    opened: () => (dialog.button.disabled = true),
    run: async () => {
      put(dialog.button, "Send the rest");
      const { touched, skipped } = await each(false);
      notice(`Sent ${count(touched, "message")}.${expired(skipped)}`);
    },
  });
  return dialog.open();
}

const expired = (skipped) => (skipped ? ` ${count(skipped, "expired message")} left out.` : "");

function batchesOf(text) {
  /** @type {{lines: string[], size: number, from: number}[]} */
  const batches = [];
  let number = 0;
  for (const each of text.split("\n")) {
    if (!each.trim()) continue;
    if (each.length > LONGEST) throw new Error(`Message ${number + 1} is too large here; sievemq import sends it.`);
    let last = batches.at(-1);
    if (!last || last.lines.length === LINES || last.size + each.length > CHARACTERS) {
      last = { lines: [], size: 0, from: number };
      batches.push(last);
    }
    last.lines.push(each);
    last.size += each.length;
    number += 1;
  }
  return batches;
}
