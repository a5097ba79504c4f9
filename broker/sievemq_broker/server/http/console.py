"""The console: one page, rendered here, without scripts; it reloads itself every few seconds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING

from sievemq_broker.server.http import overview
from sievemq_broker.server.http.html import Html, element, page
from sievemq_broker.server.http.overview import Row

if TYPE_CHECKING:
    from sievemq_broker.server.server import Server

__all__ = ["MAX_ROWS", "REFRESH_SECONDS", "STYLE", "console_page"]

#: Rows of one table; the API has the rest.
MAX_ROWS = 500

REFRESH_SECONDS = 5

STYLE = """\
:root { --ink: #1d2430; --dim: #5d6778; --line: #d9dee7; --ground: #fbfcfe; --card: #fff; --mark: #0b6bcb;
  --warn: #b3261e; }
@media (prefers-color-scheme: dark) { :root { --ink: #e4e8ef; --dim: #98a2b3; --line: #323a47; --ground: #14181f;
  --card: #1b212b; --mark: #6cb2ff; --warn: #ff8a80; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 84rem; padding: 1rem; color: var(--ink); background: var(--ground);
  font: 15px/1.45 system-ui, sans-serif; }
header { display: flex; flex-wrap: wrap; gap: .25rem 1rem; align-items: baseline; }
h1 { font-size: 1.4rem; margin: 0; }
h2 { font-size: 1.05rem; margin: 1.6rem 0 .4rem; }
a { color: var(--mark); }
.dim { color: var(--dim); }
.warn { color: var(--warn); font-weight: 600; }
.figures { display: flex; flex-wrap: wrap; gap: .6rem; margin: 1rem 0 0; padding: 0; list-style: none; }
.figures li { background: var(--card); border: 1px solid var(--line); border-radius: .5rem; padding: .5rem .9rem;
  min-width: 7rem; }
.figures b { display: block; font-size: 1.25rem; font-variant-numeric: tabular-nums; }
.scroll { overflow-x: auto; border: 1px solid var(--line); border-radius: .5rem; background: var(--card); }
table { border-collapse: collapse; width: 100%; }
th, td { text-align: left; padding: .35rem .7rem; border-bottom: 1px solid var(--line); vertical-align: top; }
tbody tr:last-child td { border-bottom: 0; }
th { color: var(--dim); font-weight: 600; white-space: nowrap; }
td.number, th.number { text-align: right; font-variant-numeric: tabular-nums; }
code { font: .92em ui-monospace, monospace; overflow-wrap: anywhere; }
"""

Column = tuple[str, str, str]
"""Heading, key of the row, kind: "text", "number" or "code"."""

_QUEUES: Sequence[Column] = (
    ("Queue", "destination", "code"),
    ("Ready", "depth", "number"),
    ("In flight", "in_flight", "number"),
    ("Scheduled", "scheduled", "number"),
    ("Consumers", "consumers", "number"),
    ("Enqueued", "enqueued", "number"),
    ("Acknowledged", "acknowledged", "number"),
    ("Dead letters", "dead_lettered", "number"),
)
_SUBSCRIPTIONS: Sequence[Column] = (
    ("Topic", "destination", "code"),
    ("Subscription", "subscription", "text"),
    ("Kind", "kind", "text"),
    ("Selector", "selector", "code"),
    ("Ready", "depth", "number"),
    ("In flight", "in_flight", "number"),
    ("Consumers", "consumers", "number"),
    ("Published", "published", "number"),
)
_CONSUMERS: Sequence[Column] = (
    ("Destination", "destination", "code"),
    ("Subscription", "subscription", "text"),
    ("Selector", "selector", "code"),
    ("Credit", "credit", "number"),
    ("In flight", "in_flight", "number"),
    ("Delivered", "delivered", "number"),
    ("Client id", "client_id", "text"),
    ("Peer", "peer", "text"),
)
_CONNECTIONS: Sequence[Column] = (
    ("Connection", "id", "code"),
    ("Peer", "peer", "text"),
    ("User", "user", "text"),
    ("Client id", "client_id", "text"),
    ("Library", "agent", "text"),
    ("Sessions", "sessions", "number"),
    ("Consumers", "consumers", "number"),
)


def console_page(server: Server, query: Mapping[str, str]) -> str:
    """The page as it stands.

    Args:
        server: the broker.
        query: of the URL: `namespace` chooses one, `refresh` the seconds between reloads, 0 for none.
    """
    facts = overview.broker(server)
    wanted = query.get("namespace")
    seconds = query.get("refresh", "")
    refresh = (
        min(int(seconds), 3600) if seconds.isascii() and seconds.isdigit() and len(seconds) < 6 else REFRESH_SECONDS
    )

    def here(rows: Iterable[Row]) -> list[Row]:
        return [row for row in rows if wanted is None or row["namespace"] == wanted]

    shown = here(overview.destinations(server))
    several = wanted is None and len(server.broker.namespaces) > 1
    queues = [row for row in shown if row["kind"] == "queue"]
    subscriptions = [line for row in shown if row["kind"] == "topic" for line in _lines(row)]
    return page(
        "SieveMQ",
        _head(facts, wanted),
        _figures(facts),
        _table("Queues", _QUEUES, queues, several),
        _table("Topics and subscriptions", _SUBSCRIPTIONS, subscriptions, several),
        _table("Consumers", _CONSUMERS, here(overview.consumers(server)), several),
        _table("Connections", _CONNECTIONS, here(overview.connections(server)), several),
        refresh_seconds=refresh,
    )


def _head(facts: Row, wanted: str | None) -> Html:
    state = element("span", facts["phase"], class_=None if facts["phase"] == "ready" else "warn")
    return element(
        "header",
        element("h1", "SieveMQ"),
        element("span", facts["version"], class_="dim"),
        state,
        element("code", facts["url"]),
        element("span", "messages are kept in memory only", class_="dim") if not facts["durable"] else None,
        element("span", f"producers are blocked: {facts['blocked']}", class_="warn") if facts["blocked"] else None,
        element("span", "namespace ", element("b", wanted), " ", element("a", "show all", href="/"))
        if wanted
        else None,
    )


def _figures(facts: Row) -> Html:
    messages = facts["messages"]
    figures = (
        ("ready", messages["ready"]),
        ("in flight", messages["in_flight"]),
        ("scheduled", messages["scheduled"]),
        ("bytes", messages["bytes"]),
        ("consumers", facts["consumers"]),
        ("connections", facts["connections"]),
        ("destinations", facts["destinations"]),
        ("seconds up", int(facts["uptime_seconds"])),
    )
    return element("ul", *(element("li", element("b", f"{n:,}"), name) for name, n in figures), class_="figures")


def _lines(topic: Row) -> list[Row]:
    """A topic as lines of the table: one per subscription, or one that says there is none."""
    line = {"namespace": topic["namespace"], "destination": topic["destination"], "published": topic["published"]}
    if not topic["subscriptions"]:
        return [{**line, "subscription": None, "kind": "no subscriptions", "selector": None, "depth": 0, "in_flight": 0,
                 "consumers": 0}]  # fmt: skip
    return [
        {
            **subscription,
            **line,
            "subscription": subscription["name"],
            "kind": ("shared " if subscription["shared"] else "")
            + ("durable" if subscription["durable"] else "non-durable"),
        }
        for subscription in topic["subscriptions"]
    ]


def _table(title: str, columns: Sequence[Column], rows: list[Row], several: bool) -> Html:
    """A table with its heading. With several namespaces the first column says which, as a link that chooses it."""
    if not rows:
        return element("section", element("h2", title), element("p", "None.", class_="dim"))
    heads = [element("th", "Namespace", scope="col")] if several else []
    heads += [
        element("th", head, scope="col", class_="number" if kind == "number" else None) for head, _, kind in columns
    ]
    body = []
    for row in islice(rows, MAX_ROWS):
        name = row["namespace"]
        cells = [element("td", element("a", name, href=f"/?namespace={_quote(name)}"))] if several else []
        cells += [_cell(row[key], kind) for _, key, kind in columns]
        body.append(element("tr", *cells))
    more = len(rows) - MAX_ROWS
    return element(
        "section",
        element("h2", f"{title} ({len(rows)})"),
        element(
            "div", element("table", element("thead", element("tr", *heads)), element("tbody", *body)), class_="scroll"
        ),
        element("p", f"{more} more: the API under /api/ has them all.", class_="dim") if more > 0 else None,
    )


def _cell(value: object, kind: str) -> Html:
    if value is None:
        return element("td", "–", class_="dim")
    if kind == "number":
        return element("td", f"{value:,}", class_="number")
    return element("td", element("code", str(value)) if kind == "code" else str(value))


def _quote(name: str) -> str:
    from urllib.parse import quote

    return quote(name, safe="")
