// Rules, limits of namespaces and of the broker, users: what they say, and changing them while the broker runs.

import { link } from "./address.js";
import * as api from "./api.js";
import { ask } from "./dialog.js";
import { h } from "./dom.js";
import { bytes, number, time } from "./format.js";
import { notice } from "./notice.js";
import { choice, field, textInput } from "./parts.js";

// Of each rule its name, its label, and what it is if it is not set. Then for a figure how it is shown (for an empty
// one: as if it were not set); for a word what can be chosen.
/** @type {(name: string, label: string, otherwise: string, show?: (value: number) => string) => object} */
const figure = (name, label, otherwise, show = number) => ({ name, label, otherwise, show });
/** @type {(name: string, label: string, otherwise: string, choices: Object<string, string>) => object} */
const word = (name, label, otherwise, choices) => ({
  name,
  label,
  otherwise,
  choices,
  show: (value) => choices[value],
});

const LIMITS = [figure("max_messages", "Messages at most", ""), figure("max_bytes", "Bytes at most", "", bytes)];
const WAITS = { block: "senders wait", fail: "sends are refused" };
const DROPS = { "drop-oldest": "the oldest is dropped", "drop-newest": "the new one is dropped" };

const RULES = [
  ...LIMITS,
  word("at_limit", "At the limit", "fail", { ...WAITS, ...DROPS }),
  figure("max_attempts", "Attempts", "6", (n) => (n ? number(n) : "without end")),
  figure("redelivery_delay", "Milliseconds between attempts", "0"),
  figure("redelivery_factor", "They grow each time by", "1"),
  figure("redelivery_delay_max", "And are at most", "3600000"),
  word("dead_letter_expired", "Expired messages", "false", {
    false: "are counted and dropped",
    true: "are dead letters",
  }),
  word("slow_consumer", "Slow consumers", "warn", { warn: "are shown and logged", close: "are closed" }),
  figure("slow_consumer_seconds", "They are slow after seconds", "60", (n) => (n ? number(n) : "never")),
  word("stomp_types", "Values in STOMP headers", "text", { text: "stay text", infer: "become numbers and booleans" }),
  figure("time_to_live", "Time to live of all, ms", "the sender's"),
  figure("delay", "Delay of all, ms", "the sender's"),
  figure("priority", "Priority of all", "the sender's"),
  word("delivery_mode", "Delivery mode of all", "null", { null: "the sender's", 1: "NON_PERSISTENT", 2: "PERSISTENT" }),
];

const KINDS = {
  rules: { noun: "rule", fields: RULES, example: "queue:orders.*" },
  limits: { noun: "limit", fields: [...LIMITS, word("at_limit", "At the limit", "block", WAITS)], example: "team-*" },
};

/** Every rule of a destination, with its value. */
export const rulesOf = ({ policy, rule, dead_letters: deadLetters, owner }, namespace) => [
  ["Pattern", h("a", { href: link([namespace, "rules"]) }, rule || "none fits: defaults")],
  ["Dead letters go to", deadLetters ? h("code", deadLetters) : "nowhere"],
  ...RULES.map(({ name, label, otherwise, show }) => {
    const value = policy[name];
    return [label, otherwise === "" && value === 0 ? "no limit" : value === null ? "the sender's" : show(value)];
  }),
  owner && ["Belongs to", h("code", owner)],
];

/** Where an entry comes from. */
export function source(row) {
  if (row.origin === "settings") return "the settings";
  const by = row.changed_by ? ` by ${row.changed_by}` : "";
  return `${row.removed ? "removed" : "changed"} ${time(row.changed_at)}${by}${row.kept ? "" : ", until the broker ends"}`;
}

/** The rules that were set, in one line. */
export const inShort = (table) =>
  Object.entries(table)
    .map(([name, value]) => `${name} = ${value}`)
    .join(", ") || "defaults";

/** Why the user may change no rules, and why no users; null for those who may. */
export async function refusals(signal) {
  const { may, unlimited } = await api.get("/session", {}, signal);
  return [
    may.includes("manage") ? null : "Only users who may manage everything can change this.",
    unlimited ? null : "Only users who may do everything can change users.",
  ];
}

/**
 * Asks for the rules of a pattern, and has them applied.
 * @param {"rules" | "limits"} place
 * @param {{pattern?: string, rules?: object, etag?: string | null}} [given] the pattern, empty to ask for it; what its
 *   rules are now; the ETag of what is changed, null for a pattern that is new.
 */
export function change(place, { pattern = "", rules = {}, etag = null } = {}) {
  const { noun, fields, example } = KINDS[place];
  const name = h("input", { type: "text", required: true, value: pattern, placeholder: example, spellcheck: "false" });
  const controls = fields.map((rule) => {
    const value = String(rules[rule.name] ?? "");
    const control = rule.choices
      ? choice(Object.entries(rule.choices), value || rule.otherwise)
      : h("input", { type: "number", min: "0", step: "any", value, placeholder: rule.otherwise || "no limit" });
    return { rule, control };
  });
  return ask({
    title: pattern ? `Change the ${noun}s of ${pattern}` : `New ${noun}`,
    action: "Apply now",
    body: [
      !pattern && field("Pattern", name, "* matches any text."),
      h(
        "div",
        { class: "rule-fields" },
        controls.map(({ rule, control }) => field(rule.label, control)),
      ),
      h("p", { class: "dim" }, "No message is deleted: what exceeds a limit stays, and nothing more is accepted."),
    ],
    run: async () => {
      const path = api.path(place, pattern || name.value.trim());
      const made = await api.put(path, { rules: Object.fromEntries(controls.flatMap(given)) }, etag ?? "");
      notice(`The ${noun}s of ${made.pattern} apply.${made.kept ? "" : " They end with the broker."}`);
    },
  });
}

// What the form says of a rule; nothing for its default.
function given({ rule: { name, choices, otherwise }, control: { value } }) {
  if (value === "" || value === otherwise) return [];
  if (name === "dead_letter_expired") return [[name, true]];
  return [[name, choices && name !== "delivery_mode" ? value : Number(value)]];
}

/** Asks for the rules of one destination: those of its own pattern, or a new one that begins with what applies. */
export async function changeRulesOf({ address, rule }) {
  const { rules } = await api.get("/rules");
  const found = rules.find(({ pattern, removed }) => pattern === rule && !removed);
  const own = rule === address ? found : null;
  return change("rules", { pattern: address, rules: found?.rules, etag: own?.etag ?? null });
}

const VERBS = ["send", "consume", "browse", "manage", "view"];

/**
 * Asks for a user, and has it applied.
 * @param {any} [row] null for a new one.
 */
export function changeUser(row = null) {
  const name = h("input", { type: "text", required: true, value: row?.name ?? "", autocomplete: "off" });
  const password = h("input", { type: "password", required: row === null, autocomplete: "new-password" });
  const everything = h("input", { type: "checkbox", checked: row?.everything ?? false });
  const rights = h("textarea", {
    rows: "4",
    spellcheck: "false",
    placeholder: "send, consume: queue:orders.* in default",
  });
  rights.value = row && !row.everything ? lines(row) : "";
  return ask({
    title: row ? `Change user ${row.name}` : "New user",
    action: "Apply now",
    body: [
      !row && h("p", { class: "dim" }, "The first user ends all connections: clients need a password from then on."),
      !row && field("Name", name),
      field("Password", password, row ? "Empty: it stays. A new one ends the user's connections." : null),
      h("label", { class: "check" }, everything, " May do everything"),
      field("Rights", rights, `One line each: ${VERBS.join(", ")}; then a pattern of destinations and of namespaces.`),
    ],
    run: async () => {
      const body = everything.checked ? { everything: true } : { rights: rights.value.split("\n").flatMap(right) };
      if (password.value) body.password = password.value;
      const made = await api.put(api.path("users", row?.name ?? name.value.trim()), body, row?.etag ?? "");
      notice(`User ${made.name} is changed.${made.kept ? "" : " That ends with the broker."}`);
    },
  });
}

/** The rights of a user, a line each. */
export const lines = ({ rights }) =>
  rights.map(({ may, destination, namespace }) => `${may.join(", ")}: ${destination} in ${namespace}`).join("\n");

function right(line) {
  if (!line.trim()) return [];
  const found = /^([\w, ]+):\s*(\S+)(?:\s+in\s+(\S+))?$/.exec(line.trim());
  if (!found) throw new Error(`This line is no right: ${line}`);
  const may = found[1].split(",").map((verb) => verb.trim());
  return [{ may, destination: found[2], namespace: found[3] ?? "default" }];
}

/** Asks for the value of a limit of the broker, and has it applied. */
export function changeSetting({ name, value, etag }) {
  const input = textInput({ value: String(value), required: true });
  return ask({
    title: `Change ${name}`,
    action: "Apply now",
    body: [
      field("Value", input, "A number; of bytes also 64MiB, or auto."),
      h("p", { class: "dim" }, "What exceeds it stays, and nothing more is accepted."),
    ],
    run: async () => {
      const made = await api.put(api.path("settings", name), { value: input.value.trim() }, etag);
      notice(`${name} is ${made.value}.${made.kept ? "" : " That ends with the broker."}`);
    },
  });
}

/** Asks whether an entry shall be removed, or its change taken back, and does it. */
export function end(place, name, etag, { reset = false } = {}) {
  const path = api.path(place, name);
  return ask({
    title: reset ? `Reset ${name}?` : `Remove ${name}?`,
    action: reset ? "Reset" : "Remove",
    danger: !reset,
    body: h(
      "p",
      reset
        ? "What the settings say applies again."
        : `It ends at once${place === "users" ? ", with its connections" : ""}.`,
    ),
    run: async () => {
      await (reset ? api.post(`${path}/actions/reset`) : api.remove(path, {}, etag));
      notice(reset ? `${name} is as in the settings.` : `${name} is removed.`);
    },
  });
}
