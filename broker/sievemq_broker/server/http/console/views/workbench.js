// A selector on the bench: is it right, what does it mean, what would it match, and what would other providers say.

import { link, requery } from "../address.js";
import * as api from "../api.js";
import { h, put } from "../dom.js";
import { count } from "../format.js";
import { failure } from "../notice.js";
import { badge, button, choice, field, head, nothing, section } from "../parts.js";
import { Rows } from "../rows.js";
import { SelectorBox } from "../selectorbox.js";

const DIALECTS = [
  ["jakarta", "Jakarta Messaging"],
  ["ibm-mq", "IBM MQ"],
  ["mqe", "MQ Everyplace"],
];
const PAUSE = 300; // ms without a key before the message is evaluated anew
const LIVE = 20; // messages of a queue that are shown

const HEADERS = ["JMSType", "JMSCorrelationID", "JMSPriority", "JMSDeliveryMode"];

export default function workbench({ namespace, query, read: reread, signal: gone }) {
  const given = (name) => query.get(name) ?? "";
  let timer = 0;
  let checked = null;

  const dialect = choice(DIALECTS, given("dialect") || "jakarta", () => {
    keep();
    box.check().catch(failure);
  });
  const box = new SelectorBox({
    value: "",
    label: "Selector",
    tall: true,
    search: true,
    dialect: () => dialect.value,
    oncheck: (answer, text) => {
      checked = answer;
      drawCheck(answer, text);
      keep();
      soon();
    },
  });
  const verdict = h("div", { class: "card check" });
  const notes = h("div");

  const rows = new Rows({ label: "Properties", adds: "Add a property", onchange: soon });
  const headers = Object.fromEntries(
    HEADERS.map((name) => [
      name,
      h("input", { type: "text", autocomplete: "off", spellcheck: "false", input: soon, id: `header-${name}` }),
    ]),
  );
  const tree = h("div", { class: "explanation", role: "region", "aria-label": "Explanation", "aria-live": "polite" });

  const queue = h("input", {
    type: "text",
    list: "queues",
    placeholder: "queue:orders",
    autocomplete: "off",
    spellcheck: "false",
    value: given("destination"),
    input: () => {
      keep();
      soonLive();
    },
  });
  const known = h("datalist", { id: "queues" });
  const matches = h("div", { role: "status" });
  const sample = h("ul", { class: "sample" });

  const node = h(
    "div",
    head("Selector workbench"),
    h("div", { class: "bench" }, h("div", box.node, field("Dialect", dialect)), verdict),
    h(
      "div",
      { class: "halves" },
      section(
        "Try a message",
        h(
          "div",
          { class: "card" },
          h(
            "div",
            { class: "grid" },
            HEADERS.map((name) => field(name, headers[name])),
          ),
          h("h3", "Properties"),
          rows.node,
        ),
        tree,
      ),
      section("Try a queue", h("div", { class: "card" }, field("Queue", queue), known, matches), sample),
    ),
    section("Elsewhere", notes),
  );

  function keep() {
    requery({
      selector: box.field.value,
      dialect: dialect.value === "jakarta" ? "" : dialect.value,
      destination: queue.value.trim(),
    });
  }

  function drawCheck(answer, text) {
    verdict.className = `card check ${answer ? (text.trim() ? "good" : "") : "bad"}`;
    if (!answer) {
      put(verdict, h("h3", "Not valid"), h("p", "A consumer with this selector would be refused."));
      put(notes, nothing("Nothing to say", "until the selector is valid."));
      return;
    }
    if (!text.trim()) {
      put(verdict, h("h3", "No condition"), h("p", "Every message matches."));
      put(notes, nothing("Nothing to say", "about an empty selector."));
      return;
    }
    put(
      verdict,
      h("h3", "Valid"),
      h("dl", { class: "plainfacts" }, h("dt", "Canonical"), h("dd", h("code", answer.canonical))),
      (answer.advice ?? []).map((item) => h("p", { class: "advice" }, badge(item.code, "warn"), " ", item.message)),
    );
    const list = answer.portability ?? [];
    put(
      notes,
      list.length
        ? h(
            "ul",
            { class: "notes" },
            list.map((note) =>
              h(
                "li",
                h(
                  "div",
                  note.providers.map((name) => badge(name)),
                  " ",
                  h("span", { class: "dim" }, note.code),
                ),
                h("p", note.message),
                note.rewrite && h("p", "Write ", h("code", note.rewrite)),
              ),
            ),
          )
        : nothing(
            "Every provider agrees.",
            "No provider that SieveMQ knows would refuse this selector or answer differently.",
          ),
    );
  }

  function soon() {
    clearTimeout(timer);
    timer = setTimeout(() => tryAll().catch(failure), PAUSE);
  }
  const soonLive = soon;

  async function tryAll() {
    if (gone.aborted) return;
    await Promise.all([tryMessage(), tryQueue()]);
  }

  async function tryMessage() {
    if (!checked || !box.value) {
      put(tree);
      return;
    }
    let message;
    try {
      message = typed();
    } catch (error) {
      put(tree, h("p", { class: "mistake" }, error.message));
      return;
    }
    const answer = await api.post("/selector/explain", { selector: box.value, dialect: dialect.value, message }, gone);
    put(tree, branch(answer.explanation));
  }

  function typed() {
    const given = (name) => headers[name].value || undefined;
    return {
      type: given("JMSType"),
      correlation_id: given("JMSCorrelationID"),
      priority: headers.JMSPriority.value ? Number(headers.JMSPriority.value) : undefined,
      delivery_mode: given("JMSDeliveryMode"),
      properties: rows.byName(),
    };
  }

  async function tryQueue() {
    const address = queue.value.trim();
    if (!address || !checked) {
      put(matches, h("p", { class: "dim" }, "Name a queue to see which of its messages would match."));
      put(sample);
      return;
    }
    try {
      const [all, some] = await Promise.all([
        api.get(api.destination(namespace, address), {}, gone),
        api.post(
          api.destination(namespace, address, "actions", "delete"),
          { selector: box.value || undefined, dry_run: true },
          gone,
        ),
      ]);
      put(
        matches,
        h(
          "p",
          h("b", `${count(some.matched, "message")}${some.more ? " or more" : ""}`),
          ` of ${count(all.depth, "message")} would match.`,
        ),
      );
    } catch (error) {
      if (error.name === "AbortError") throw error;
      put(matches, h("p", { class: "mistake" }, error.message.split("\n")[0]));
      put(sample);
      return;
    }
    const list = await api.get(api.destination(namespace, address, "messages"), { limit: LIVE }, gone);
    put(
      sample,
      list.messages.map((row) =>
        h(
          "li",
          h("button", { type: "button", class: "plain", click: () => explainLive(address, row.id) }, h("code", row.id)),
          h("span", { class: "dim" }, row.type ?? ""),
        ),
      ),
    );
  }

  async function explainLive(address, id) {
    try {
      const answer = await api.post(
        "/selector/explain",
        { selector: box.value, dialect: dialect.value, namespace, destination: address, id },
        gone,
      );
      put(tree, h("p", h("code", id)), branch(answer.explanation));
      tree.scrollIntoView({ block: "nearest" });
    } catch (error) {
      failure(error);
    }
  }

  drawCheck({}, "");
  if (given("selector")) box.value = given("selector");
  else soon();

  return { title: "Selector workbench", node };
}

/** A condition with its truth and why, and its parts below. */
function branch(part) {
  return h(
    "div",
    { class: "branch" },
    h(
      "div",
      { class: `step ${part.truth.toLowerCase()}` },
      h("span", { class: "truth" }, part.truth),
      h("code", part.condition),
      h("span", { class: "reason" }, part.reason),
    ),
    (part.parts ?? []).map(branch),
  );
}
