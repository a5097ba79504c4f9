// Rules of destinations, limits of namespaces and users: what they say, and changing them while the broker runs.

import { link } from "./address.js";
import * as api from "./api.js";
import { ask } from "./dialog.js";
import { h } from "./dom.js";
import { bytes, duration, number, time } from "./format.js";
import { notice } from "./notice.js";
import { choice, field } from "./parts.js";

/**
 * @typedef {object} Rule
 * @property {string} name
 * @property {string} label
 * @property {string} [otherwise] what it is without one, where it is a number.
 * @property {[string, string][]} [choices] where it is a word: what can be chosen, the default first.
 */

/** @type {(name: string, label: string, otherwise: string) => Rule} */
const figure = (name, label, otherwise) => ({ name, label, otherwise });
/** @type {(name: string, label: string, ...choices: [string, string][]) => Rule} */
const word = (name, label, ...choices) => ({ name, label, choices });

const MESSAGES = figure("max_messages", "Messages at most", "no limit");
const BYTES = figure("max_bytes", "Bytes at most", "no limit");
/** @type {[string, string]} */
const REFUSED = ["fail", "sends are refused"];
/** @type {[string, string]} */
const WAIT = ["block", "senders wait"];

const RULES = [
  MESSAGES,
  BYTES,
  word(
    "at_limit",
    "At the limit",
    REFUSED,
    WAIT,
    ["drop-oldest", "the oldest is dropped"],
    ["drop-newest", "the new one is dropped"],
  ),
  figure("max_attempts", "Attempts (0: without end)", "6"),
  figure("redelivery_delay", "Between attempts, ms", "0"),
  figure("redelivery_factor", "Grows each time by", "1"),
  figure("redelivery_delay_max", "Between attempts at most, ms", "3600000"),
  word("dead_letter_expired", "Expired messages", ["", "are counted and dropped"], ["true", "become dead letters"]),
  word("slow_consumer", "Slow consumers", ["warn", "are shown and logged"], ["close", "are closed"]),
  figure("slow_consumer_seconds", "Slow after, seconds (0: never)", "60"),
  word("stomp_types", "Values in STOMP headers", ["text", "stay text"], ["infer", "become numbers and booleans"]),
  figure("time_to_live", "Time to live of all, ms", "the sender's"),
  figure("delay", "Delay of all, ms", "the sender's"),
  figure("priority", "Priority of all", "the sender's"),
  word("delivery_mode", "Delivery mode of all", ["", "the sender's"], ["1", "NON_PERSISTENT"], ["2", "PERSISTENT"]),
];

/** The kinds of entries, by their place in the API. */
export const KINDS = {
  rules: { noun: "rule", fields: RULES, example: "queue:orders.*", words: "Destinations: * matches any text." },
  limits: {
    noun: "limit",
    fields: [MESSAGES, BYTES, word("at_limit", "At the limit", WAIT, REFUSED)],
    example: "team-*",
    words: "Names of namespaces: * matches any text.",
  },
};

const words = (name, value) =>
  RULES.find((rule) => rule.name === name)?.choices?.find(([key]) => key === String(value))?.[1] ?? String(value);

/** Every rule of a destination, with its value. */
export function rulesOf({ policy, rule, dead_letters: deadLetters, owner }, namespace) {
  const given = (value, text) => (value === null ? "the sender's" : text(value));
  const limit = (value, text) => (value ? text(value) : "none");
  const grows = policy.redelivery_factor > 1;
  const most = grows ? `, × ${policy.redelivery_factor} each time, up to ${duration(policy.redelivery_delay_max)}` : "";
  return [
    ["Pattern", h("a", { href: link([namespace, "rules"]) }, rule || "none fits: defaults")],
    ["Attempts", policy.max_attempts ? number(policy.max_attempts) : "without end"],
    ["Between attempts", policy.redelivery_delay ? `${duration(policy.redelivery_delay)}${most}` : "no delay"],
    ["Dead letters go to", deadLetters ? h("code", deadLetters) : "nowhere"],
    ["Expired messages", policy.dead_letter_expired ? "become dead letters" : "are counted and dropped"],
    ["Messages at most", limit(policy.max_messages, number)],
    ["Bytes at most", limit(policy.max_bytes, bytes)],
    ["At the limit", words("at_limit", policy.at_limit)],
    [
      "Slow consumers",
      policy.slow_consumer_seconds
        ? `${words("slow_consumer", policy.slow_consumer)} after ${duration(policy.slow_consumer_seconds * 1000)}`
        : "are not looked for",
    ],
    ["Values in STOMP headers", words("stomp_types", policy.stomp_types)],
    ["Time to live", given(policy.time_to_live, (ms) => (ms ? duration(ms) : "without end"))],
    ["Delay", given(policy.delay, (ms) => (ms ? duration(ms) : "none"))],
    ["Priority", given(policy.priority, number)],
    ["Delivery mode", given(policy.delivery_mode, (mode) => words("delivery_mode", mode))],
    owner && ["Belongs to", h("code", owner)],
  ];
}

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
  const { noun, fields, example, words: hint } = KINDS[place];
  const name = h("input", { type: "text", required: true, value: pattern, placeholder: example, spellcheck: "false" });
  const controls = fields.map((rule) => {
    const value = String(rules[rule.name] ?? "");
    const control = rule.choices
      ? choice(rule.choices, value || rule.choices[0][0])
      : h("input", { type: "number", min: "0", step: "any", value, placeholder: rule.otherwise });
    return { rule, control };
  });
  return ask({
    title: pattern ? `Change the ${noun}s of ${pattern}` : `New ${noun}`,
    action: "Apply now",
    body: [
      !pattern && field("Pattern", name, hint),
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

/**
 * What the form says of a rule; nothing for its default.
 * @param {{rule: Rule, control: any}} field
 */
function given({ rule: { name, choices }, control: { value } }) {
  if (value === "" || value === choices?.[0][0]) return [];
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
  const rights = h("textarea", { rows: "4", spellcheck: "false", placeholder: "send, consume: queue:orders.* in default" });
  rights.value = row && !row.everything ? lines(row) : "";
  return ask({
    title: row ? `Change user ${row.name}` : "New user",
    action: "Apply now",
    body: [
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

/** Asks whether an entry shall be removed, or its change taken back, and does it. */
export function end(place, name, etag, { reset = false } = {}) {
  const path = api.path(place, name);
  return ask({
    title: reset ? `Reset ${name}?` : `Remove ${name}?`,
    action: reset ? "Reset" : "Remove",
    danger: !reset,
    body: h("p", reset ? "What the settings say applies again." : `It ends at once${place === "users" ? ", with its connections" : ""}.`),
    run: async () => {
      await (reset ? api.post(`${path}/actions/reset`) : api.remove(path, {}, etag));
      notice(reset ? `${name} is as in the settings.` : `${name} is removed.`);
    },
  });
}

