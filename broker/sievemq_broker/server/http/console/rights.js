// What the user may not do is not offered: a control that would be refused is there, so that one sees what there is,
// but switched off, and says why. The broker decides, and refuses all the same.

import { get } from "./api.js";

const VERBS = { send: "send to", consume: "consume from", browse: "see messages of", manage: "manage", view: "see" };

/**
 * Why something cannot be done; null where it can.
 * @param {string[]} may what the API said that may be done. @param {string} verb @param {string} what with which.
 */
export const refusal = (may, verb, what) =>
  may.includes(verb) ? null : `You have no right to ${VERBS[verb]} ${what}. An administrator can grant it.`;

/** The first reason against something for several rows; null where there is none. */
export const firstOf = (reasons) => reasons.find(Boolean) ?? null;

/** Switches a control off and says why, unless it can be used. */
export function allow(control, reason) {
  control.disabled = reason !== null;
  if (reason === null) control.removeAttribute("title");
  else control.title = reason;
  return control;
}

/** Why nothing can be made in a namespace: the user manages nothing there. null where something can. */
export async function makes(namespace, kind, signal) {
  const { unlimited, rights } = await get("/session", { namespace }, signal);
  if (unlimited || rights.some(({ may }) => may.includes("manage"))) return null;
  return `You have no right to manage any ${kind} in ${namespace}. An administrator can grant it.`;
}

/** What may be done with a destination that is not there. */
export const mayWith = async (namespace, destination, signal) =>
  (await get("/session", { namespace, destination }, signal)).may;

/** The rights of a user, a line each. */
export const described = ({ unlimited, rights }) =>
  unlimited
    ? "may do everything"
    : rights.map(({ may, destination, namespace }) => `${may.join(", ")}: ${destination} in ${namespace}`).join("\n") ||
      "has no rights here";
