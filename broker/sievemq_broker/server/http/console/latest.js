// Work that is requested faster than it can be done: one at a time, and after it only the latest.

/**
 * @param {() => Promise<void>} work
 * @returns {() => Promise<void>} does it now, or once more when what is at work has ended.
 */
export function latest(work) {
  let running = null;
  let again = false;
  const run = async () => {
    do {
      again = false;
      await work();
    } while (again);
  };
  return () => {
    again = true;
    running ??= run().finally(() => {
      running = null;
    });
    return running;
  };
}
