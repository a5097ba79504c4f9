// The address of what is shown: everything after the # of the page's URL, so that any view can be sent to a colleague.
//
//   #/overview                                     #/{namespace}/queues?like=orders.*&sort=-depth
//   #/{namespace}/destination/{address}/messages?selector=…

/** What the URL says: the parts of the path, decoded, and the query. */
export function here(hash = location.hash) {
  const text = hash.replace(/^#\/?/, "");
  const at = text.indexOf("?");
  const path = at < 0 ? text : text.slice(0, at);
  return {
    path: path.split("/").filter(Boolean).map(decode),
    query: new URLSearchParams(at < 0 ? "" : text.slice(at + 1)),
  };
}

/** The link to a view. Parts of the query that are empty are left out. */
export function link(path, query = {}) {
  const pairs = Object.entries(query).filter(
    ([, value]) => value !== "" && value !== null && value !== undefined && value !== false,
  );
  const search = new URLSearchParams(pairs).toString();
  return `#/${path.map((part) => encodeURIComponent(part)).join("/")}${search && `?${search}`}`;
}

/** Goes to a view, as a click on its link does. */
export function go(path, query) {
  location.hash = link(path, query).slice(1);
}

/** Changes the query of the view shown, without a step in the browser's history and without building it anew. */
export function requery(changes) {
  history.replaceState(null, "", changed(changes));
}

/**
 * Goes to another page of the list shown: a step in the browser's history.
 * @param {object} changes of the query. @param {string[]} before cursors of the pages before that one.
 */
export function turn(changes, before) {
  history.pushState({ before }, "", changed(changes));
}

/** Cursors of the pages that were left for the one shown, as far as they are known. */
export const pagesBefore = () => history.state?.before ?? [];

function changed(changes) {
  const { path, query } = here();
  return link(path, { ...Object.fromEntries(query), ...changes });
}

function decode(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part; // typed by hand, with a lone %
  }
}
