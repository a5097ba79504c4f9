// Rules of destinations, limits of namespaces and of the broker, users, and settings that differ from what was read.

import * as api from "../api.js";
import { h, put } from "../dom.js";
import { failure, notice } from "../notice.js";
import { badge, button, head, nothing, section } from "../parts.js";
import { allow } from "../rights.js";
import { change, changeSetting, changeUser, end, inShort, lines, refusals, source } from "../rules.js";
import { Table } from "../table.js";

export default function rules({ read: reread }) {
  /** @type {(string | null)[]} */
  let [reason, ofUser] = [null, null]; // why the user may change no rules, and no users
  const done = async (question) => (await question) && reread();

  function actions(place, edit) {
    return {
      label: "Actions",
      kind: "actions",
      cell: (row) => {
        const name = row.pattern ?? row.name;
        return [
          button("Change…", () => done(edit(row)), "small", reason),
          " ",
          row.origin === "run time"
            ? button("Reset…", () => done(end(place, name, row.etag, { reset: true })), "small", reason)
            : place !== "settings" && button("Remove…", () => done(end(place, name, row.etag)), "small risky", reason),
        ];
      },
    };
  }

  const sorts = {};
  const table = (place, label, empty) =>
    new Table({
      label,
      sort: "order",
      onsort(sort) {
        sorts[place] = sort;
        reread();
      },
      key: (row) => row.pattern,
      empty,
      columns: [
        { label: "Pattern", kind: "main", sorts: ["order", "pattern"], cell: (row) => [h("code", row.pattern), " ", removed(row)] },
        { label: place === "rules" ? "Rules" : "Limits", kind: "code", cell: (row) => inShort(row.rules) },
        { label: "From", kind: "kinds", sorts: ["-changed", "changed"], cell: source },
        actions(place, (row) => change(place, { ...row, etag: row.etag || null })),
      ],
    });

  const ofDestinations = table("rules", "Rules of destinations", nothing("No rules.", "The defaults apply."));
  const ofNamespaces = table("limits", "Limits of namespaces", nothing("No limits."));
  const named = (place, label, column, second, edit) =>
    new Table({
      label,
      key: (row) => row.name,
      empty: nothing(`No ${place}.`),
      columns: [
        { label: column, kind: "main", cell: (row) => [h("span", row.name), " ", removed(row)] },
        second,
        { label: "From", kind: "kinds", cell: source },
        actions(place, edit),
      ],
    });
  const value = { label: "Value", kind: "code", cell: (row) => String(row.value) };
  const ofBroker = named("settings", "Limits of the broker", "Limit", value, changeSetting);
  const users = named("users", "Users", "User", { label: "Rights", kind: "code", cell: rightsOf }, changeUser);
  const differences = h("ul", { class: "plain-list" });
  const add = (text, ask) => button(text, () => done(ask()), "small");
  const buttons = [
    add("New rule…", () => change("rules")),
    add("New limit…", () => change("limits")),
    add("New user…", () => changeUser()),
    button("Read the settings again", reload, "small"),
  ];
  const ofUsers = section("Users", users.node);
  const limits = section("Limits of the broker", ofBroker.node);
  const ofSettings = section("Settings that differ from what was read", differences);
  const node = h(
    "div",
    head("Rules and users", { lead: "They apply at once. The first pattern that fits applies.", actions: buttons }),
    section("Rules of destinations", ofDestinations.node),
    section("Limits of namespaces", ofNamespaces.node),
    limits,
    ofUsers,
    ofSettings,
  );

  async function read(signal, ticking) {
    if (ticking) return; // they change seldom
    [reason, ofUser] = await refusals(signal);
    for (const each of buttons) allow(each, reason);
    allow(buttons[2], ofUser);
    ofUsers.hidden = ofUser !== null;
    limits.hidden = ofSettings.hidden = reason !== null;
    for (const [place, shown] of Object.entries({ rules: ofDestinations, limits: ofNamespaces }))
      shown.update((await api.get(`/${place}`, { sort: sorts[place] }, signal)).rules);
    if (reason !== null) return;
    const settings = await api.get("/settings", {}, signal);
    ofBroker.update(settings.values);
    if (ofUser === null) users.update((await api.get("/users", {}, signal)).users);
    allow(buttons[3], settings.error ? `They cannot be read again: ${settings.error}` : null);
    const waits = { reload: "applied when they are read again", restart: "needs a restart" };
    put(
      differences,
      settings.differences.map((each) => h("li", h("code", each.name), ` ${each.text} · ${waits[each.applies]}`)),
      !settings.differences.length && h("li", { class: "dim" }, settings.error || "None."),
    );
  }

  async function reload() {
    try {
      const { differences: found } = await api.post("/settings/actions/reload");
      const left = found.filter(({ applies }) => applies === "restart").length;
      notice(`The settings were read.${left ? ` ${left} of them need a restart.` : ""}`);
      reread();
    } catch (error) {
      failure(error);
    }
  }

  return { title: "Rules and users", node, read };
}

const rightsOf = (row) =>
  h("div", (row.everything ? "everything" : lines(row) || "none").split("\n").map((line) => h("div", line)));

const removed = (row) => row.removed && badge("removed", "warn");
