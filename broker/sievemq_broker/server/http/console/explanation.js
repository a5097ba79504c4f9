// Why a selector does or does not match a message: every condition with its truth, and the values that made it so.

import { h } from "./dom.js";
import { badge } from "./parts.js";

/** @param {object} part a condition as the API explains it, with its parts below. */
export function explanation(part) {
  return h(
    "div",
    { class: "branch" },
    h(
      "div",
      { class: "step" },
      truth(part.truth),
      h("code", part.condition || "no condition"),
      h("span", { class: "reason" }, part.reason),
      part.decides && part.parts.length === 0 && badge("decides"),
    ),
    part.parts.map(explanation),
  );
}

/** TRUE, FALSE or UNKNOWN. */
export const truth = (text) => h("span", { class: `truth ${text.toLowerCase()}` }, text);
