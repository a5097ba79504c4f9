// Files and the clipboard.

import { notice } from "./notice.js";

const HELD = 60_000; // ms after which the browser has read what it saves

/** Saves data as a file where the browser puts downloads. */
export function save(blob, name) {
  const address = URL.createObjectURL(blob);
  const anchor = document.createElement("a");
  anchor.href = address;
  anchor.download = name.replace(/[^\w.-]+/g, "-");
  document.body.append(anchor);
  anchor.click();
  anchor.remove();
  setTimeout(() => URL.revokeObjectURL(address), HELD);
}

/** Puts text into the clipboard. */
export async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    // Without TLS, browsers have a clipboard for selected text alone.
    const area = document.createElement("textarea");
    area.value = text;
    document.body.append(area);
    area.select();
    document.execCommand("copy");
    area.remove();
  }
  notice("Copied.");
}
