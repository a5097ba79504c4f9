// The last minutes of every queue that a list shows, for its sparkline: asked for once, then carried on with what each
// reading of the list says.

import * as api from "./api.js";

const KEEP = 60; // samples
const ASKED = 30; // rows of a list whose past is requested
const AT_ONCE = 4; // requests
const MOST = 5_000; // destinations whose past is kept

const known = new Map();

/** The depths of a destination, oldest first. */
export const depths = (row) => known.get(nameOf(row)) ?? [];

/** Takes note of what a list said, and asks for the past of what was not seen before. */
export async function note(rows, signal) {
  if (known.size > MOST) known.clear();
  const unseen = [];
  for (const row of rows) {
    const past = known.get(nameOf(row));
    if (past === undefined) unseen.push(row);
    else remember(past, row.depth);
  }
  const waiting = unseen.slice(0, ASKED);
  const work = async () => {
    for (let row = waiting.shift(); row && !signal?.aborted; row = waiting.shift()) await ask(row, signal);
  };
  await Promise.all(Array.from({ length: AT_ONCE }, work));
}

async function ask(row, signal) {
  try {
    const series = await api.get(api.destination(row.namespace, row.address, "series"), {}, signal);
    known.set(nameOf(row), series.depth.slice(-KEEP));
  } catch (error) {
    if (!(error instanceof api.Refused)) throw error;
    known.set(nameOf(row), [row.depth]); // it is gone already
  }
}

function remember(past, depth) {
  past.push(depth);
  if (past.length > KEEP) past.shift();
}

const nameOf = (row) => JSON.stringify([row.namespace, row.address]);
