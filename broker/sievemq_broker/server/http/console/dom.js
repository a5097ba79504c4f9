// Elements without markup. Every piece of data becomes a text node or a plain attribute, so it can never become an
// element or a script: nothing in the console parses HTML, and the page's Content-Security-Policy forbids it
// (require-trusted-types-for 'script').

const SVG = "http://www.w3.org/2000/svg";

/**
 * An HTML element.
 * @param {string} tag name of the element.
 * @param parts in any order and nesting: text and numbers (text nodes), nodes, and objects of attributes, in which a
 *   function is a listener: `h("button", { type: "button", click: save }, "Save")`. null and false are nothing.
 */
export function h(tag, ...parts) {
  return fill(document.createElement(tag), parts);
}

/** The same for SVG. */
export function svg(tag, ...parts) {
  return fill(document.createElementNS(SVG, tag), parts);
}

/** A link to the console of another broker. Nothing of this session goes with it; one that is no link is its words. */
export const away = (url, ...words) =>
  /^https?:\/\/[^/]/.test(url ?? "")
    ? Object.assign(h("a", { target: "_blank", rel: "noopener noreferrer" }, words), { href: url })
    : h("span", words);

/** Replaces the children of a node, unless they would be the same: focus and selection stay where they are. */
export function put(node, ...parts) {
  const fresh = fill(document.createDocumentFragment(), parts);
  const [now, then] = [node.childNodes, fresh.childNodes];
  const same = now.length === then.length && Array.prototype.every.call(now, (child, i) => child.isEqualNode(then[i]));
  if (!same) node.replaceChildren(fresh);
  return node;
}

/** Sets the text of a node, if it is another one. */
export function say(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

function fill(node, parts) {
  for (const part of parts) {
    if (part === null || part === undefined || part === false) continue;
    else if (part instanceof Node) node.append(part);
    else if (Array.isArray(part)) fill(node, part);
    else if (typeof part === "object") attributes(node, part);
    else node.append(String(part));
  }
  return node;
}

function attributes(node, given) {
  for (const [name, value] of Object.entries(given)) {
    if (value === null || value === undefined || value === false) continue;
    if (typeof value === "function") node.addEventListener(name, value);
    else if (name === "value" && "value" in node) node.value = value;
    else node.setAttribute(allowed(name, value), value === true ? "" : String(value));
  }
}

// A listener in text, inline style and an address outside of this page have no use here: a mistake, not data.
function allowed(name, value) {
  if (/^on|^style$|^src/i.test(name)) throw new TypeError(`attribute ${name} is not used in the console`);
  if (/href$/i.test(name) && !String(value).startsWith("#")) throw new TypeError(`${value} leads out of the console`);
  return name;
}
