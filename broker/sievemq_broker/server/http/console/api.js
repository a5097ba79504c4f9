// Requests to the management API: the same that `curl` and the command line use, nothing is for the console alone.

const BASE = "/api/v1";

/** The broker answered, and refused. */
export class Refused extends Error {
  /** @param {number} status @param {string} code such as INVALID_SELECTOR @param {string} text @param {object} details */
  constructor(status, code, text, details) {
    super(text);
    this.status = status;
    this.code = code;
    this.details = details ?? {};
  }
}

/** No answer. */
export class Unreachable extends Error {
  constructor() {
    super("The broker does not answer.");
  }
}

/** @type {string | null} */
let token = null;

/** The token that changing requests carry, given at sign-in. */
export function setToken(value) {
  token = value;
}

/** A path of the API; its parts may hold any character. */
export const path = (...parts) => parts.map((part) => `/${encodeURIComponent(part)}`).join("");

/** The path of a destination. */
export const destination = (namespace, address, ...parts) =>
  path("namespaces", namespace, "destinations", address, ...parts);

export const get = (to, query, signal) => call("GET", to, { query, signal });
export const post = (to, body = {}, signal = undefined) => call("POST", to, { body, signal });
/** `etag`: what is changed must still have it; empty: it must not exist; null: whatever there is. */
export const put = (to, body = {}, /** @type {string | null} */ etag = null) => call("PUT", to, { body, etag });
export const remove = (to, query = {}, /** @type {string | null} */ etag = null) =>
  call("DELETE", to, { query, etag: etag || null });

/** A file: of a GET, or of a POST where there is a body. */
export const file = (to, { query = {}, body = undefined } = {}) =>
  call(body === undefined ? "GET" : "POST", to, { query, body, whole: true });

/**
 * Reads a list of a namespace. The default one is not there before it is used, and has nothing in it then.
 * @param {string} name of the list in the answer.
 */
export async function list(namespace, name, query, signal) {
  try {
    return await get(path("namespaces", namespace, name), query, signal);
  } catch (error) {
    if (namespace !== "default" || !isMissing(error, namespace)) throw error;
    return { [name]: [], messages: [], queues: [], total: 0, next: null };
  }
}

/** Does something in a namespace, which is made if it is not there. */
export async function within(namespace, change) {
  try {
    return await change();
  } catch (error) {
    if (!isMissing(error, namespace)) throw error;
    await post("/namespaces", { name: namespace });
    return change();
  }
}

const isMissing = (error, namespace) =>
  error.status === 404 && error.details?.namespace === namespace && !("address" in error.details);

/**
 * @param {string} method @param {string} to
 * @param {{query?: object, body?: object, signal?: AbortSignal, etag?: string | null, whole?: boolean}} given `whole`:
 *   no JSON, but a file.
 */
async function call(method, to, { query = {}, body, signal, etag = null, whole = false }) {
  const pairs = Object.entries(query).filter(([, value]) => value !== "" && value !== null && value !== undefined);
  const search = pairs.length ? `?${new URLSearchParams(pairs)}` : "";
  const headers = { Accept: "application/json" };
  if (body !== undefined) headers["Content-Type"] = "application/json";
  if (etag !== null) headers[etag ? "If-Match" : "If-None-Match"] = etag || "*";
  if (method !== "GET" && token) headers["X-CSRF-Token"] = token;
  let response;
  let answer = null;
  try {
    response = await fetch(`${BASE}${to}${search}`, {
      method,
      headers,
      signal,
      body: body === undefined ? undefined : JSON.stringify(body),
    });
    if (whole && response.ok) return await response.blob();
    if (response.status !== 204) answer = await response.json();
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw response?.ok === false
      ? new Refused(response.status, "ERROR", `The broker answered ${response.status}.`, {})
      : new Unreachable();
  }
  if (response.ok) return answer;
  if (response.status === 401) dispatchEvent(new CustomEvent("signed-out"));
  const { error = "ERROR", text = `The broker answered ${response.status}.`, details } = answer ?? {};
  throw new Refused(response.status, error, text, details);
}
