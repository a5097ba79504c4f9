// Dead letters, per dead-letter queue, by reason.

import { link } from "../address.js";
import * as api from "../api.js";
import { act } from "../actions.js";
import { lastFailure, why } from "../deadletter.js";
import { h, put } from "../dom.js";
import { count, number } from "../format.js";
import { button, destinationLink, groups, head, linkButton, nothing, pages } from "../parts.js";
import { allow, refusal } from "../rights.js";
import { Table } from "../table.js";

const TOGETHER = 20; // queues of a page

/** The selector of one group; a quote within a string is doubled. */
export function selectorOf(group) {
  const quoted = (text) => `'${text.replaceAll("'", "''")}'`;
  return [
    group.reason && `JMS_SieveMQ_DeadLetterReason = ${quoted(group.reason)}`,
    group.origin && `JMS_SieveMQ_DeadLetterOrigin = ${quoted(group.origin)}`,
    group.subscription && `JMS_SieveMQ_DeadLetterSubscription = ${quoted(group.subscription)}`,
  ]
    .filter(Boolean)
    .join(" AND ");
}

export default function deadLetters(context) {
  const { namespace, read: reread } = context;
  const pager = pages(context);
  const none = "Messages that fail too often are moved here, with the reason. They can be sent back to their origin.";
  const parts = groups(group, nothing("No dead letters.", none));

  async function read(signal, ticking) {
    if (ticking) return; // the broker looks at thousands of messages for the groups
    const given = { cursor: pager.cursor, limit: TOGETHER };
    const { queues, next } = await api.list(namespace, "dead-letters", given, signal);
    parts.update(queues);
    pager.update(next);
  }

  function group(address) {
    const words = h("span", { class: "dim" });
    let reason = null; // why the user may do nothing to them
    const all = button("Retry all…", () => run("retry", {}), "primary");
    const run = async (action, given) => (await act(namespace, address, action, given)) && reread();
    const table = new Table({
      label: `Dead letters in ${address}`,
      key: (row) => JSON.stringify([row.reason, row.origin, row.subscription]),
      empty: nothing("Empty."),
      columns: [
        { label: "Reason", kind: "main", cell: (row) => why(row.reason, row.error) },
        {
          label: "Came from",
          cell: (row) =>
            row.origin ? [destinationLink(namespace, row.origin), row.subscription && ` · ${row.subscription}`] : "–",
        },
        { label: "Messages", kind: "number", cell: (row) => number(row.messages) },
        {
          label: "Last failure",
          kind: "failure",
          cell: (row) => h("div", row.last_failure ? lastFailure(namespace, row) : "–"),
        },
        {
          label: "Actions",
          kind: "actions",
          cell: (row) =>
            h(
              "div",
              { class: "buttons" },
              linkButton(
                "Browse",
                link([namespace, "destination", address, "messages"], { selector: selectorOf(row) }),
                "small",
              ),
              button("Retry…", () => run("retry", { selector: selectorOf(row) }), "small", reason),
              button("Delete…", () => run("delete", { selector: selectorOf(row) }), "small risky", reason),
            ),
        },
      ],
    });
    return {
      node: h(
        "section",
        h("div", { class: "section-head" }, h("h2", destinationLink(namespace, address), " ", words), all),
        table.node,
      ),
      update(queue) {
        words.textContent = count(queue.depth, "message");
        reason = refusal(queue.may, "manage", address);
        const unseen = refusal(queue.may, "browse", address);
        put(table.empty, unseen ? nothing("Not shown.", unseen) : nothing("Empty."));
        allow(all, reason);
        table.update(queue.groups);
      },
    };
  }

  const heard = (what, about) => (what === "begin" || (what === "event" && about.kind === "dead_lettered")) && reread();

  const node = h("div", head("Dead letters"), parts.node, pager.node);
  return { title: "Dead letters", node, read, query: pager.query, heard };
}
