// What the broker tells by itself: totals each second, and what happened. Kept here across views, so that a chart of
// the overview goes on where it was left.

const KEEP = 300; // seconds of totals
const APART = 900; // ms between two samples of the same second and the next
const MISSED = 3; // heartbeats without a word after which the broker counts as gone
const PATIENT = 10_000; // ms for a stream to begin
const PATIENCE = [500, 1_000, 2_000, 5_000]; // ms before the next try to reach it again

import { brokerTime, count, setClock } from "./format.js";

export const samples = []; // totals, oldest first
export const happenings = []; // newest first
export const restarts = []; // marks of restarts that the page has seen
/** @type {{connected: boolean | null, tries: number}} */
export const state = { connected: null, tries: 0 };

// What happens, in words.
const WORDS = {
  "connection.opened": (about) => `${about.client_id ?? about.peer} connected`,
  "connection.closed": (about) => `${about.client_id ?? about.peer} disconnected`,
  "destination.created": (about) => `${about.address} was created`,
  "destination.deleted": (about) => `${about.address} was deleted`,
  "destination.paused": (about) => `${about.address} was paused`,
  "destination.resumed": (about) => `${about.address} was resumed`,
  "consumer.opened": (about) => `A consumer opened on ${about.address}`,
  "consumer.closed": (about) => `A consumer closed on ${about.address}`,
  "subscription.created": (about) => `${about.name} subscribed to ${about.address}`,
  "subscription.deleted": (about) => `${about.name} unsubscribed from ${about.address}`,
  "tap.created": (about) => `The tap ${about.name} was created on ${about.address}`,
  "tap.deleted": (about) => `The tap ${about.name} on ${about.address} was deleted`,
  dead_lettered: (about) => `${count(about.messages, "message")} of ${about.address} dead-lettered`,
  "flow.blocked": (about) => `Producers are blocked: ${about.reason}`,
  "flow.unblocked": () => "Producers are no longer blocked",
  "disk.full": (about) => `PERSISTENT messages are refused or wait: ${about.reason}`,
  "disk.has_room": () => "PERSISTENT messages are accepted again",
  "attention.began": (about) => attention(about, about.text),
  "attention.ended": (about) => attention(about, `no longer: ${about.text}`),
  "broker.started": ({ version, was_killed: wasKilled }) =>
    `The broker started${wasKilled ? " after it was killed" : ""} (${version})`,
  "broker.stopped": () => "The broker stopped in order",
  "clock.jumped": ({ seconds }) => `The clock was set by ${seconds} s`,
  "setting.changed": (about) => `${[about.kind, about.name].filter(Boolean).join(" ")} changed`,
  mark: ({ text, user }) => `${text}${user ? ` (${user})` : ""}`,
  missed: ({ events, reason }) =>
    reason === "restarted"
      ? "The broker was restarted"
      : `Missed ${events === null ? "events" : count(events, "event")}: the broker no longer had them`,
};

// Rules whose findings other events report.
const REPORTED = ["paused", "producers_blocked", "disk_full", "dead_letters"];

/** Other events report what this one is about. */
export const isReported = (about) => REPORTED.includes(about.rule);

const attention = ({ address, subscription, client_id: client, connection }, text) =>
  [subscription ?? address ?? client ?? connection, text].filter(Boolean).join(": ");

const listeners = new Set();
let source = null;
let last = ""; // id of the last event received
let watch = 0;
let silence = PATIENT; // ms of silence after which the connection counts as lost
let retry = 0;

/**
 * Calls a listener with ("tick", totals), ("event", {kind, …}), ("lost"), ("back").
 * @returns {() => void} ends it.
 */
export function listen(listener) {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

/** Takes the samples of the totals that the broker keeps, where the page has none: before it, and while it was cut off. */
export function begin(past) {
  const lacks = ({ time }) => !samples.some((sample) => Math.abs(sample.time - time) < APART);
  samples.push(...past.filter(lacks));
  samples.sort((one, other) => one.time - other.time);
  samples.splice(0, Math.max(0, samples.length - KEEP));
}

/** What has happened, in words. */
export function words(kind, about) {
  if (about.more) return `${count(about.more, "more event", "more events")} like ${kind.replace(/[._]/g, " ")}`;
  return WORDS[kind]?.(about) ?? kind.replace(/[._]/g, " ");
}

/** Takes what the broker keeps of the time before the page, and while it was cut off. */
export function recall(events) {
  const known = new Set(happenings.map(({ time, text }) => `${time} ${text}`));
  const past = events
    .filter(({ about }) => !isReported(about))
    .map(({ event, time, about }) => ({ kind: event, time, text: words(event, about) }));
  happenings.push(...past.filter(({ time, text }) => !known.has(`${time} ${text}`)));
  happenings.sort((one, other) => other.time - one.time);
  happenings.splice(50);
}

/** Takes requested totals, until the first event brings some. */
export function note(totals) {
  if (state.connected === null) samples.push(totals);
}

/** Begins to listen to the broker, and never gives up. */
export function connect() {
  clearTimeout(retry);
  source?.close();
  source = new EventSource(`/api/v1/events${last && `?since=${encodeURIComponent(last)}`}`);
  silence = PATIENT;
  hear("heartbeat", ({ seconds }) => (silence = MISSED * seconds * 1_000));
  hear("tick", ticked);
  for (const kind of Object.keys(WORDS)) hear(kind, (data) => happened(kind, data));
  source.addEventListener("error", () => lost());
  expect();
}

/** Stops listening while the page is hidden: a browser opens six connections to a host, for all its tabs together. */
export function disconnect() {
  clearTimeout(watch);
  clearTimeout(retry);
  source?.close();
  source = null;
}

function hear(kind, act) {
  source.addEventListener(kind, (event) => {
    if (event.lastEventId) last = event.lastEventId;
    act(JSON.parse(event.data));
    expect();
  });
}

function ticked(totals) {
  setClock(totals.time);
  samples.push(totals);
  if (samples.length > KEEP) samples.splice(0, samples.length - KEEP);
  const back = state.connected === false;
  state.connected = true;
  state.tries = 0;
  if (back) tell("back");
  tell("tick", totals);
}

function happened(kind, data) {
  if (kind === "missed" && data.reason === "restarted")
    restarts.push({ time: brokerTime(), text: "restarted", cuts: true });
  if (isReported(data)) return;
  happenings.unshift({ kind, time: data.time ?? brokerTime(), text: words(kind, data) });
  happenings.splice(50);
  tell("event", happenings[0]);
}

function expect() {
  clearTimeout(watch);
  watch = setTimeout(lost, silence);
}

function lost() {
  clearTimeout(watch);
  source?.close();
  const wait = PATIENCE[Math.min(state.tries, PATIENCE.length - 1)];
  state.tries += 1;
  state.connected = false;
  clearTimeout(retry);
  retry = setTimeout(connect, wait);
  tell("lost");
}

function tell(what, data) {
  for (const listener of listeners) listener(what, data);
}
