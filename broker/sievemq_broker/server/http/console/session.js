// The signed-in user. Without users at the broker there is nothing to show.

import { setToken } from "./api.js";
import { h } from "./dom.js";

let user = null;
let csrf = null;

/**
 * Reads the signed-in user, and takes the token that changes have to carry. Leads to the sign-in page where that is
 * needed, and back to the view shown.
 * @returns {Promise<boolean>} whether the console may go on.
 */
export async function resume() {
  let found;
  try {
    const answer = await fetch("/session", { headers: { Accept: "application/json" } });
    if (!answer.ok) return true; // what follows says what is wrong
    found = await answer.json();
  } catch {
    return true; // no answer: the banner says so
  }
  if (found.secured && found.user === null) {
    signIn();
    return false;
  }
  user = found.user;
  csrf = found.csrf;
  setToken(csrf);
  return true;
}

/** Goes to the sign-in page. */
export function signIn() {
  location.assign(`/sign-in?next=${encodeURIComponent(location.pathname + location.hash)}`);
}

/** The user, their rights, and signing out. */
export function node(failed, rights) {
  if (user === null) return null;
  const out =
    csrf !== null && h("button", { type: "button", class: "plain", click: () => signOut().catch(failed) }, "Sign out");
  return h("span", { class: "user" }, h("span", { title: rights }, user), " ", out);
}

async function signOut() {
  await fetch("/session", { method: "DELETE", headers: { "X-CSRF-Token": csrf } });
  location.assign("/sign-in");
}
