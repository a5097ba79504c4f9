// Figures, sizes and times as text for people.

const whole = new Intl.NumberFormat("en");
const short = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });
const tenth = new Intl.NumberFormat("en", { maximumFractionDigits: 1 });

/** 1234567 -> "1,234,567"; what is no number -> "–". */
export const number = (n) => (Number.isFinite(n) ? whole.format(n) : "–");

/** 1234567 -> "1.2M", for axes and tiles. */
export const compact = (n) => (Number.isFinite(n) ? (Math.abs(n) < 10_000 ? tenth.format(n) : short.format(n)) : "–");

/** Messages per second. */
export const rate = (n) =>
  Number.isFinite(n) ? `${n > 0 && n < 10 ? tenth.format(n) : compact(Math.round(n))}/s` : "–";

/** "1 message", "2 messages". */
export const count = (n, noun, nouns = `${noun}s`) => `${number(n)} ${n === 1 ? noun : nouns}`;

/** Bytes in binary units. */
export function bytes(n) {
  if (!Number.isFinite(n)) return "–";
  let unit = 0;
  while (Math.abs(n) >= 1024 && unit < 4) {
    n /= 1024;
    unit += 1;
  }
  return `${unit && n < 100 ? n.toFixed(1) : whole.format(Math.round(n))} ${["B", "KiB", "MiB", "GiB", "TiB"][unit]}`;
}

/** A length of time in its two largest units: "3 m 12 s". */
export function duration(ms) {
  if (!Number.isFinite(ms)) return "–";
  if (ms < 1000) return `${Math.max(0, Math.round(ms))} ms`;
  const seconds = Math.floor(ms / 1000);
  /** @type {[number, string][]} */
  const parts = [
    [Math.floor(seconds / 86_400), "d"],
    [Math.floor(seconds / 3600) % 24, "h"],
    [Math.floor(seconds / 60) % 60, "m"],
    [seconds % 60, "s"],
  ];
  const first = parts.findIndex(([value]) => value > 0);
  return parts
    .slice(first, first + 2)
    .filter(([value], i) => i === 0 || value > 0)
    .map(([value, unit]) => `${value} ${unit}`)
    .join(" ");
}

const two = (n) => String(n).padStart(2, "0");

/** A moment of local time, to the second. One that no calendar has stays a number: a producer may choose any. */
export function time(ms) {
  if (!Number.isFinite(ms) || ms <= 0) return "–";
  const date = new Date(ms);
  if (Number.isNaN(date.getTime())) return `${ms} ms`;
  const day = `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())}`;
  return `${day} ${clock(ms)}`;
}

/** The time of day. */
export function clock(ms) {
  const date = new Date(ms);
  return `${two(date.getHours())}:${two(date.getMinutes())}:${two(date.getSeconds())}`;
}

let ahead = 0; // ms by which the broker's clock is ahead of the browser's

/** Takes the broker's time: ages are shown by its clock. */
export function setClock(ms) {
  ahead = ms - Date.now();
}

/** The broker's time, ms since 1970. */
export const brokerTime = () => Date.now() + ahead;

/** How long something has lasted: "12 s". */
export const since = (ms) => duration(Math.max(1000, brokerTime() - ms));

/** "12 s ago" or "in 12 s". */
export function ago(ms) {
  if (!Number.isFinite(ms) || ms <= 0) return "–";
  const now = brokerTime();
  if (Math.abs(now - ms) < 1000) return "now";
  return ms <= now ? `${duration(now - ms)} ago` : `in ${duration(ms - now)}`;
}
