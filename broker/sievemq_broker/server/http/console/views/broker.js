// The broker itself: what its process and its disk have, what it refuses, and to whom.

import { get } from "../api.js";
import { away, h, put } from "../dom.js";
import { ago, bytes, duration, number } from "../format.js";
import { connectionLink, destinationLink, facts, head, nothing, section } from "../parts.js";
import { Table } from "../table.js";

export default function broker({ namespace }) {
  const limits = h("div");
  const transactions = h("div");
  const counts = h("div");
  const refused = list("Refused sends and requests", "Nothing was refused.", [
    ["Where", (row) => (row.address ? destinationLink(row.namespace, row.address) : row.namespace)],
    ["Reason", (row) => h("code", `${row.opens ? "open: " : ""}${row.reason}`)],
  ]);
  const rolledBack = list("Clients that rolled back", "No client has rolled back.", [
    ["Namespace", (row) => row.namespace],
  ]);
  const failures = list("Failed sign-ins", "No sign-in has failed.", [
    ["User", (row) => row.user ?? h("span", { class: "dim" }, "unknown name")],
    ["Port", (row) => `${row.port} (${row.protocol})`],
  ]);
  const shards = new Table({
    label: "Shards",
    key: (row) => row.name,
    empty: "",
    columns: [
      { label: "Shard", kind: "main", cell: (row) => row.name },
      { label: "Owner", kind: "code", cell: owner },
      { label: "Followers", kind: "number", cell: (row) => (row.followers === null ? "–" : number(row.followers)) },
      { label: "Namespaces", kind: "number", cell: (row) => number(row.namespaces) },
    ],
  });
  const cluster = section("Shards", shards.node);
  const signIns = h("div", section("Sign-ins", counts), section("Failed sign-ins lately", failures.node));
  const node = h(
    "div",
    head("Broker"),
    cluster,
    section("Limits of the process and the disk", limits),
    section("Refused lately", refused.node),
    section("Transactions", transactions),
    section("Rolled back lately", rolledBack.node),
    signIns,
  );

  async function read(signal) {
    const paths = ["/broker", "/refusals", "/shards"];
    const [state, refusals, all] = await Promise.all(paths.map((path) => get(path, {}, signal)));
    cluster.hidden = !all.cluster;
    shards.update(all.shards);
    const whole = state.process !== null; // the user may view everything
    put(limits, whole ? facts(limitsOf(state)) : nothing("Only for users who may view everything."));
    put(transactions, whole && facts(transactionsOf(state.transactions)));
    refused.update(refusals.refused);
    rolledBack.update(refusals.rolled_back);
    const found = whole ? await get("/sign-ins", {}, signal) : { counts: [], failures: [] };
    signIns.hidden = found.counts.length === 0;
    put(counts, facts(found.counts.map((of) => [`${of.protocol}, ${of.outcome}`, number(of.count)])));
    failures.update(found.failures.map((row) => ({ ...row, client: row.address })));
  }

  function list(label, empty, columns) {
    return new Table({
      label,
      key: (row) => Object.values({ ...row, connection: 0, count: 0, first: 0, last: 0 }).join("\n"),
      empty: nothing(empty),
      columns: [
        { label: "Client", kind: "main", cell: client },
        ...columns.map(([name, cell]) => ({ label: name, cell })),
        { label: "Times", kind: "number", cell: (row) => number(row.count) },
        { label: "Last", kind: "when", cell: (row) => ago(row.last) },
      ],
    });
  }

  function client(row) {
    if (!row.connection) return h("span", row.client);
    return connectionLink(namespace, row.connection, row.client);
  }

  return { title: "Broker", node, read };
}

const owner = ({ here, url, http_url: to }) => (here ? "this broker" : away(to, url ?? "none at present"));

const of = (used, limit, format) => (limit ? `${format(used)} of ${format(limit)}` : format(used));

function limitsOf({ process, memory, storage, connections, connections_limit: most }) {
  return [
    ["Memory of the process", of(process.memory_bytes, process.memory_limit, bytes)],
    ["Memory of messages", of(memory.bytes, memory.limit, bytes)],
    ["Open files", of(process.files, process.files_limit, number)],
    ["Processor time", duration(1000 * process.cpu_seconds)],
    ["Connections", of(connections, most, number)],
    storage && ["Stored messages", bytes(storage.bytes)],
    storage?.total_bytes > 0 && ["Free on the disk", of(storage.free_bytes, storage.total_bytes, bytes)],
    storage?.total_bytes > 0 && ["Kept in reserve", bytes(storage.reserve_bytes)],
    storage && ["Refused for lack of room", number(storage.refused)],
  ];
}

const transactionsOf = ({ open, committed, rolled_back: rolledBack, refused }) => [
  ["Open, with sends", number(open)],
  ["Committed", number(committed)],
  ["Rolled back", number(rolledBack)],
  ["Commits refused", number(refused)],
];
