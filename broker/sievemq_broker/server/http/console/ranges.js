// How far back charts show, the same in all views, and what happened meanwhile, as marks.

import * as api from "./api.js";
import { h } from "./dom.js";
import { words } from "./live.js";

/** @type {[string, string, number][]} name in the API, name for people, ms. */
const RANGES = [
  ["5m", "5 minutes", 300_000],
  ["1h", "1 hour", 3_600_000],
  ["1d", "1 day", 86_400_000],
  ["1w", "1 week", 604_800_000],
];
const MARKS = 100; // the newest that are shown
const CUTS = "broker.started"; // no line is drawn across it

let [chosen] = RANGES;

export const range = {
  name: () => chosen[0],
  ms: () => chosen[2],
  isLive: () => chosen === RANGES[0], // the page has its samples as they come
};

/** The choice. @param {() => void} change called when another one was chosen. */
export function rangeChoice(change) {
  const buttons = RANGES.map((each) =>
    h("button", { type: "button", class: "small", click: () => choose(each) }, each[1]),
  );
  const press = () => buttons.forEach((one, i) => one.setAttribute("aria-pressed", String(RANGES[i] === chosen)));
  function choose(each) {
    chosen = each;
    press();
    change();
  }
  press();
  return h("div", { class: "buttons ranges", role: "group", "aria-label": "Charts show the last" }, buttons);
}

/**
 * What happened meanwhile that changes how figures are to be read.
 * @param {{namespace: string, address?: string}} where @param {number} until ms since 1970. @param {AbortSignal} signal
 */
export async function marks(where, until, signal) {
  const asked = { ...where, only: "marks", since: Math.max(0, until - range.ms()), limit: MARKS };
  const { events } = await api.get("/history", asked, signal);
  return events.map(({ event, time, about }) => {
    const cuts = event === CUTS;
    return { time, text: cuts ? "started" : words(event, about), cuts };
  });
}
