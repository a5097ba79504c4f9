// The text of a body, laid out for reading. Nothing is parsed into values: no number loses digits, no name is dropped.

const DEEPEST = 40; // levels that are indented
const line = (depth) => `\n${"  ".repeat(Math.min(depth, DEEPEST))}`;

/** JSON with a line for each value; undefined if the text is none. */
export function json(text) {
  if (!/^\s*[[{]/.test(text)) return undefined;
  try {
    JSON.parse(text);
  } catch {
    return undefined;
  }
  const out = [];
  let depth = 0;
  let opened = false; // the last token was an opening bracket
  for (const [token] of text.matchAll(/"(?:[^"\\]|\\.)*"|[[\]{},:]|[^\s"[\]{},:]+/g)) {
    if (token === "}" || token === "]") {
      depth -= 1;
      out.push(opened ? token : line(depth) + token);
      opened = false;
      continue;
    }
    if (opened) out.push(line(depth));
    opened = token === "{" || token === "[";
    if (opened) depth += 1;
    out.push(token === ":" ? ": " : token);
    if (token === ",") out.push(line(depth));
  }
  return out.join("");
}

const MARKUP =
  /<!--[^]*?-->|<!\[CDATA\[[^]*?\]\]>|<\?[^]*?\?>|<![^>[]*>|<\/?[^\s<>/!?]+(?:\s(?:[^<>"']|"[^"]*"|'[^']*')*)?\/?>|[^<]+/g;

/** XML with a line for each element; undefined if its elements do not nest. Nothing in it is looked up or carried out. */
export function xml(text) {
  if (!/^\s*<[?!\p{L}_]/u.test(text)) return undefined;
  const out = [];
  const open = []; // names of elements
  let within = false; // the last tag has opened an element, which holds no other one so far
  let end = 0;
  for (const { 0: token, index } of text.matchAll(MARKUP)) {
    if (index !== end) return undefined;
    end += token.length;
    const isText = !token.startsWith("<") || token.startsWith("<![CDATA[");
    if (isText) {
      const words = token.trim();
      if (words) out.push(within ? words : line(open.length) + words);
    } else if (token.startsWith("</")) {
      if (open.pop() !== token.slice(2, -1).trim()) return undefined;
      out.push(within ? token : line(open.length) + token);
      within = false;
    } else {
      out.push(line(open.length) + token);
      within = !/^<[!?]|\/>$/.test(token);
      if (within) open.push(token.slice(1).split(/[\s>]/, 1)[0]);
    }
  }
  return open.length || end !== text.length ? undefined : out.join("").trimStart();
}
