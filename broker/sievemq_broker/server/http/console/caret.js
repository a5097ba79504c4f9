// A selector's mistake, with a caret under it.

import { h } from "./dom.js";

/**
 * @param {string} text the selector.
 * @param {number} position of the mistake, in characters (code points, as the broker counts).
 * @param {number} length how many characters are wrong; a caret is drawn for 0 as well.
 */
export function caret(text, position, length) {
  const characters = Array.from(text);
  const at = Math.min(position, characters.length);
  let start = at;
  while (start > 0 && characters[start - 1] !== "\n") start -= 1;
  let end = characters.indexOf("\n", at);
  if (end < 0) end = characters.length;
  const wrong = characters.slice(at, Math.min(at + Math.max(length, 0), end)).join("");
  const carets = "^".repeat(Math.max(1, Math.min(length, end - at)));
  return h(
    "pre",
    { class: "caret" },
    characters.slice(start, at).join(""),
    h("mark", wrong || " "),
    characters.slice(at + Array.from(wrong).length, end).join(""),
    "\n",
    " ".repeat(at - start),
    h("b", { "aria-hidden": "true" }, carets),
  );
}
