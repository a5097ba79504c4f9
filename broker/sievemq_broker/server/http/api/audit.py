"""The record of actions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, Final, TypeAlias

import msgspec

from sievemq_broker.domain.work import Budget, Task
from sievemq_broker.server.http.api import answers, requests
from sievemq_broker.server.http.api.call import Call
from sievemq_broker.server.http.api.declare import Routes
from sievemq_broker.server.http.api.pages import LAST, Order, decode_cursor, encode_cursor, name_matcher, page_of
from sievemq_broker.server.http.tasks import run
from sievemq_broker.session.rights import EVERYTHING, Verb

routes = Routes("Record")

#: Units of reading a row, some ten microseconds.
_READ: Final = 3

#: Rows of an export that are written at once.
_WRITTEN: Final = 500

_Row: TypeAlias = dict[str, Any]


def _id(row: _Row) -> int:
    number: int = row["id"]
    return number


#: Texts and figures to sort by.
_TEXTS: Final[Mapping[str, Callable[[_Row], str]]] = {
    "action": lambda row: str(row["action"]),
    "user": lambda row: str(row.get("user") or LAST),
}
_FIGURES: Final[Mapping[str, Callable[[_Row], float]]] = {
    "time": lambda row: row["time"],
    "touched": lambda row: row.get("touched", -1),
}


@routes.add("GET", "/audit", None, answers.Record, query=requests.ListRecord)
async def list_record(call: Call[requests.ListRecord, Any]) -> answers.Record:
    """Who did what, when, to how many messages, newest first: calls of this API that changed something, whatever made
    them, sign-ins, and what was refused for want of a right; by `sort` in another order.

    The newest 10,000 actions and 5,000 attempts are kept, over a restart too where messages are. A row has no body, no
    selector and no password. Attempts that repeat one within ten minutes are counted in one row. Rows of a namespace
    are for users who may view all of it, the others for users who may view everything."""
    limit, sort = call.query.limit, call.query.sort
    if sort != "-time":
        order: Order[_Row] = Order(sort, _TEXTS, _FIGURES, _id, int)
        after = decode_cursor(call.query.cursor, order.kind)
        items = call.server.audit.before(None, call.query.only)
        found = await page_of(call.server, items, order.place, after, limit, _filter(call), cost=lambda _: _READ)
        return answers.Record(rows=[msgspec.convert(row, answers.Recorded) for row in found[0]], next=found[2])
    rows = await run(call.server, partial(_some, _fitting(call), limit + 1))
    more = encode_cursor(rows[limit - 1]["id"]) if len(rows) > limit else None
    return answers.Record(rows=[msgspec.convert(row, answers.Recorded) for row in rows[:limit]], next=more)


@routes.add("GET", "/audit/export", None, None, query=requests.ExportRecord, media="application/x-ndjson")
async def export_record(call: Call[requests.ExportRecord, Any]) -> None:
    """The same rows as lines of JSON, all of them."""
    rows = _fitting(call)
    head = [
        (b"content-type", b"application/x-ndjson"),
        (b"content-disposition", b'attachment; filename="audit.ndjson"'),
    ]
    await call.send({"type": "http.response.start", "status": 200, "headers": head})
    while some := await run(call.server, partial(_some, rows, _WRITTEN)):
        lines = b"".join(msgspec.json.encode(row) + b"\n" for row in some)
        await call.send({"type": "http.response.body", "body": lines, "more_body": True})
    await call.send({"type": "http.response.body", "body": b""})


def _fitting(call: Call[Any, Any]) -> Iterator[_Row | None]:
    """Rows, newest first; None for each that does not fit."""
    query, keep = call.query, _filter(call)
    after = decode_cursor(getattr(query, "cursor", None), int)
    return (row if keep(row) else None for row in call.server.audit.before(after, query.only))


def _filter(call: Call[Any, Any]) -> Callable[[_Row], bool]:
    query, identity = call.query, call.identity
    fits = name_matcher(query.like)

    def keep(row: _Row) -> bool:
        namespace = row.get("namespace")
        return (
            query.namespace in (None, namespace)
            and query.user in (None, row.get("user"))
            and (query.like is None or fits(row["action"]) or fits(row.get("address", "")))
            and identity.may(Verb.VIEW, namespace or EVERYTHING, EVERYTHING)
        )

    return keep


def _some(rows: Iterator[_Row | None], count: int, now: int, budget: Budget) -> Task[list[_Row]]:
    found: list[_Row] = []
    for row in rows:
        if budget.spent:
            yield
        budget.spend(_READ)
        if row is not None:
            found.append(row)
            if len(found) == count:
                break
    return found
