// Messages of a queue or topic as they arrive, the latest first. Nothing is taken: the broker copies them to this page.

import { link, requery } from "../address.js";
import * as api from "../api.js";
import { h, say } from "../dom.js";
import { count } from "../format.js";
import { failure } from "../notice.js";
import { button, nothing } from "../parts.js";
import { SelectorBox } from "../selectorbox.js";
import { Table } from "../table.js";
import { PREVIEW, columns } from "./messages.js";

const KEEP = 200; // messages that are shown

export default function tail({ namespace, address, isQueue, query, signal }) {
  const box = new SelectorBox({ value: query.get("selector") ?? "", search: true, onapply: follow });
  const words = h("span", { class: "dim", role: "status" });
  const toggle = button("Stop", () => {
    if (!source) return follow();
    wanted = false;
    return stop("Stopped.");
  });
  const table = new Table({
    label: "Arriving messages",
    key: (row) => row.id,
    empty: nothing(
      "Nothing has arrived yet.",
      "Each message is shown as it arrives, also if a consumer takes it at once.",
    ),
    columns: columns(({ message_id: id }) =>
      isQueue && id ? link([namespace, "destination", address, "messages", id]) : null,
    ),
  });
  const node = h(
    "div",
    h("div", { class: "tools top" }, box.node, h("div", { class: "buttons" }, toggle, words)),
    table.node,
  );
  let source = null;
  let wanted = true; // not stopped by the button
  let selector = "";
  let rows = [];
  let seen = 0;
  let missed = 0;
  let due = 0;

  async function follow() {
    wanted = true;
    try {
      if (!(await box.check()) || signal.aborted) return;
    } catch (error) {
      failure(error);
      return;
    }
    stop("Following…");
    requery({ selector: box.value });
    if (box.value !== selector) [rows, seen, missed] = [[], 0, 0];
    selector = box.value;
    const given = new URLSearchParams({ preview: String(PREVIEW), ...(selector && { selector }) });
    source = new EventSource(`/api/v1${api.destination(namespace, address, "tail")}?${given}`);
    source.addEventListener("message", ({ data }) => arrived(JSON.parse(data)));
    source.addEventListener("missed", ({ data }) => (missed += JSON.parse(data).messages));
    source.addEventListener("ended", () => stop(`${address} or its tap was deleted.`));
    source.addEventListener("heartbeat", draw);
    source.addEventListener(
      "error",
      () => source?.readyState === EventSource.CLOSED && stop("The broker does not follow."),
    );
    say(toggle, "Stop");
  }

  function stop(why) {
    source?.close();
    source = null;
    say(toggle, "Follow");
    say(words, why);
  }

  function arrived(row) {
    seen += 1;
    rows = [{ ...row, id: `${seen}` }, ...rows.slice(0, KEEP - 1)];
    due ||= requestAnimationFrame(draw);
  }

  function draw() {
    due = 0;
    table.update(rows);
    const lost = missed ? `, ${count(missed, "message")} came too fast to be shown` : "";
    if (source) say(words, `${count(seen, "message")} so far${lost}`);
  }

  signal.addEventListener("abort", () => stop(""));
  const look = () => wanted && (document.hidden ? stop("Stopped while the page was hidden.") : follow());
  document.addEventListener("visibilitychange", look, { signal });
  table.update(rows);
  follow();
  return { node };
}
