// A selector on the bench: is it right, what does it mean, what would it match, and what would other providers say.

import { requery } from "../address.js";
import { h } from "../dom.js";
import { latest } from "../latest.js";
import { failure } from "../notice.js";
import { choice, field, head, section } from "../parts.js";
import { SelectorBox } from "../selectorbox.js";
import { Sample } from "./bench/sample.js";
import { Trial } from "./bench/trial.js";
import { Verdict } from "./bench/verdict.js";
import { subscriptionOf } from "./messages.js";

const DIALECTS = [
  ["jakarta", "Jakarta Messaging"],
  ["ibm-mq", "IBM MQ"],
  ["mqe", "MQ Everyplace"],
  ["amqp", "AMQP SQL filter"],
];
const PAUSE = 300; // ms without a key before the selector is tried anew

export default function workbench({ namespace, query, signal: gone }) {
  const given = (name) => query.get(name) ?? "";
  let timer = 0;
  let valid = true;

  const verdict = new Verdict();
  const trial = new Trial(given("message"), changed);
  const sample = new Sample(namespace, given("destination"), given("id"), subscriptionOf(query), changed);
  const dialect = choice(DIALECTS, given("dialect") || "jakarta", () => box.check().catch(failure));
  const box = new SelectorBox({
    value: given("selector"),
    tall: true,
    search: true,
    dialect: () => dialect.value,
    oncheck: (answer, text) => {
      valid = answer !== null;
      verdict.update(answer, text);
      changed();
    },
  });
  const node = h(
    "div",
    head("Selector workbench"),
    h("div", { class: "bench" }, h("div", box.node, field("Dialect", dialect)), verdict.node),
    h(
      "div",
      { class: "halves" },
      section("Try a message", trial.node, trial.result),
      section("Try a queue", sample.node),
    ),
    section("On other brokers", verdict.notes),
  );

  function changed() {
    requery({
      selector: box.field.value,
      dialect: dialect.value === "jakarta" ? "" : dialect.value,
      destination: sample.queue,
      message: trial.text,
    });
    clearTimeout(timer);
    timer = setTimeout(run, PAUSE);
  }

  // One at a time: trying a deep queue takes a while, and keys are faster.
  const run = latest(async () => {
    if (gone.aborted || !valid) return;
    try {
      const order = [box.value, dialect.value, gone];
      await Promise.all([trial.run(...order), sample.run(...order)]);
    } catch (error) {
      failure(error);
    }
  });

  sample.offer(gone).catch(failure);
  changed();
  return { title: "Selector workbench", node };
}
