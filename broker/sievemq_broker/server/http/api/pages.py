"""Pages of lists: a cursor is the place of the last row, so that rows which come and go in between neither repeat the
others nor hide them."""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from heapq import nsmallest
from typing import Any, Final, Generic, TypeAlias, TypeVar

import msgspec

from sievemq_broker.domain.work import Budget, Task
from sievemq_broker.server.http.errors import bad_request
from sievemq_broker.server.http.tasks import run
from sievemq_broker.server.server import Server

T = TypeVar("T")

Page: TypeAlias = tuple[list[T], int, str | None]
"""Rows in order, how many there are on all pages, and the cursor of the next page."""

#: Units of finding out whether a row is wanted, and of its place.
PLACE_UNITS: Final = 2

#: Text of what has none: behind all that have one.
LAST: Final = chr(0x10FFFF)

#: Figure of what has no time: behind all that have one.
_NO_TIME: Final = -float(2**53)

#: Rows that are ordered in one go.
_CHUNK = 1_000


def encode_cursor(place: object) -> str:
    return urlsafe_b64encode(msgspec.json.encode(place)).decode().rstrip("=")


def decode_cursor(text: str | None, kind: type[T]) -> T | None:
    """The place in a cursor; None for the first page.

    Raises:
        ApiError: 400, it is none of ours.
    """
    if text is None:
        return None
    try:
        return msgspec.json.decode(urlsafe_b64decode(text + "=" * (-len(text) % 4)), type=kind)
    except (ValueError, msgspec.MsgspecError):
        raise bad_request("a cursor is what the page before answered as `next`", parameter="cursor") from None


class Order(Generic[T]):
    """The order of a list: by a text or figure of its rows, then by what tells them apart.

    Args:
        sort: the name of the text or figure; with `-` in front the largest figure comes first.
        texts, figures: of a row, by name.
        last: tells rows apart.
        kind: of what that returns.

    Attributes:
        place: of a row in this order.
        kind: of a place, for its cursor.
    """

    __slots__ = ("kind", "place")

    def __init__(
        self,
        sort: str,
        texts: Mapping[str, Callable[[T], str]],
        figures: Mapping[str, Callable[[T], float]],
        last: Callable[[T], Any],
        kind: Any,
    ) -> None:
        name = sort.removeprefix("-")
        self.kind: Any = tuple[str, kind] if name in texts else tuple[float, kind]
        if name in texts:
            text = texts[name]
            self.place: Callable[[T], tuple[Any, Any]] = lambda row: (text(row), last(row))
        else:
            figure, sign = figures[name], -1.0 if sort != name else 1.0
            self.place = lambda row: (sign * figure(row), last(row))


def by_age(since: int) -> float:
    """The figure of an age by which rows are sorted: it does not change while a list is read.

    Args:
        since: ms since 1970; 0 for none, which is the least age.
    """
    return -float(since) if since else _NO_TIME


def name_matcher(like: str | None) -> Callable[[str], bool]:
    """True if a name matches: it contains the text, in either case; `*` matches any text."""
    if like is None:
        return lambda _: True
    parts = like.lower().split("*")

    def found(name: str) -> bool:
        name = name.lower()
        start = 0
        for part in parts:  # each at its first place behind the one before: if there is a way to fit, that is one
            start = name.find(part, start)
            if start < 0:
                return False
            start += len(part)
        return True

    return found


async def page_of(
    server: Server,
    items: Iterable[T],
    place: Callable[[T], Any],
    after: Any,
    limit: int,
    keep: Callable[[T], bool] = lambda _: True,
    add: Callable[[T], object] = lambda _: None,
    cost: Callable[[T], int] = lambda _: PLACE_UNITS,
) -> Page[T]:
    """The rows of a page, out of many in no order.

    Args:
        server: whose scheduler finds them.
        items: a snapshot of the requested list.
        place: the order; no two have the same.
        after: place of the last row of the page before; None for the first page.
        limit: rows.
        keep: is a row wanted at all?
        add: called with each that is, on all pages: for totals.
        cost: units of finding that out, and of its place.
    """
    return await run(server, partial(_page_of, items, place, after, limit, keep, add, cost))


def _page_of(
    items: Iterable[T],
    place: Callable[[T], Any],
    after: Any,
    limit: int,
    keep: Callable[[T], bool],
    add: Callable[[T], object],
    cost: Callable[[T], int],
    now: int,
    budget: Budget,
) -> Task[Page[T]]:
    best: list[tuple[Any, int, T]] = []
    chunk: list[tuple[Any, int, T]] = []
    total = 0
    for item in items:
        if budget.spent:
            yield
        budget.spend(cost(item))
        if not keep(item):
            continue
        total += 1
        add(item)
        key = place(item)
        if after is None or key > after:
            chunk.append((key, total, item))
            if len(chunk) >= _CHUNK:
                best = nsmallest(limit + 1, [*best, *chunk])
                chunk.clear()
    best = nsmallest(limit + 1, [*best, *chunk])
    more = encode_cursor(best[limit - 1][0]) if len(best) > limit else None
    return [item for _, _, item in best[:limit]], total, more
