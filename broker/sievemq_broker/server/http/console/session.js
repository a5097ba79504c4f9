// Who is signed in. Without security on the broker there is nobody to sign in, and nothing of this shows.

import { h } from "./dom.js";

export async function resume() {}
export function node() {
  return null;
}
export function signIn() {}
