"""Reading what waits in a queue page by page, without changing it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from zlib import crc32

from sievemq_broker.domain.candidates import few, view_of
from sievemq_broker.domain.entry import Entry, key_of
from sievemq_broker.matching.condition import Condition, is_true, units
from sievemq_core.errors import ErrorCode, RequestError
from sievemq_core.message.envelope import Envelope

if TYPE_CHECKING:
    from sievemq_broker.domain.queue import Queue

__all__ = ["check_cursor", "check_part", "matching", "page", "part_of"]

#: The cursor of the first page: before every key.
BEGINNING = 0

#: What one page may cost, in entries of two to four microseconds each, and in more for costly selectors and messages
#: (condition.units): it may be short, or empty, but never holds a turn of the loop for more than some 5 ms.
EXAMINED = 1_500

#: Packed bytes after which a page ends.
PAGE_BYTES = 1024 * 1024

#: Entries of other parts that are passed over at the cost of one that is examined.
PASSED_OVER = 4

#: Packed bytes that decide to which part a message belongs: header fields, the message id first.
ID_BYTES = 64


def check_cursor(cursor: Any) -> int:
    """The key after which a page begins.

    Raises:
        RequestError: ILLEGAL_STATE, this is no cursor.
    """
    if cursor is None:
        return -1
    if type(cursor) is not int or cursor < 0:
        raise RequestError("a browse cursor is what the page before answered", ErrorCode.ILLEGAL_STATE)
    return cursor


def check_part(part: int, parts: int) -> None:
    """Check which part of a queue is browsed.

    Raises:
        RequestError: ILLEGAL_STATE, there is no such part.
    """
    if part >= parts and (part or parts):
        raise RequestError(f"there is no part {part} of {parts}: parts count from 0", ErrorCode.ILLEGAL_STATE)


def part_of(envelope: Envelope, parts: int) -> int:
    """The part to which a message belongs. It depends on the message alone: a redelivery changes the place in the order
    of delivery, and a restart the sequence, but neither brings the message into another part."""
    return crc32(envelope.packed[:ID_BYTES]) % parts


def page(
    queue: Queue,
    condition: Condition | None,
    after: int,
    limit: int,
    now: int,
    examine: int = EXAMINED,
    part: int = 0,
    parts: int = 0,
) -> tuple[int | None, list[Entry]]:
    """Up to `limit` waiting entries that match, in order of delivery, with the cursor for more or None at the end.

    Not shown are messages in flight (BRW-07), delayed (BRW-06) or expired ones (BRW-09); nor those of other parts, if
    there are several `parts`.
    """
    if limit <= 0:
        return max(after, BEGINNING), []
    found: list[Entry] = []
    size = 0
    entries = few(queue, condition, after)
    complete = entries is not None
    if entries is None:
        view = view_of(queue, condition)
        wanted = examine if condition is not None and view is queue.main else min(limit + 1, examine)
        if parts > 1:
            wanted *= min(parts, PASSED_OVER)
        entries = view.waits(after, wanted)
        complete = len(entries) < wanted
    left = examine
    for entry in entries:
        if len(found) == limit or size >= PAGE_BYTES:
            return after, found
        envelope = entry.envelope
        if parts > 1 and part_of(envelope, parts) != part:
            after = key_of(entry)
            continue
        if condition is not None:
            cost = units(condition, envelope)
            if cost > left < examine:  # the first is examined whatever it costs
                envelope.compact()
                return after, found
            left -= cost
        after = key_of(entry)
        if envelope.expiration and envelope.expiration <= now:
            continue
        if condition is None or matching(queue, condition, entry):
            found.append(entry)
            size += len(envelope.packed)
    return None if complete else after, found


def matching(queue: Queue, condition: Condition, entry: Entry) -> bool:
    """True if the condition is TRUE for a waiting entry; False also where that cannot be found out (D-14)."""
    queue.upkeep.examined += 1
    try:
        return is_true(condition, entry.envelope)
    except Exception:
        return False  # reported when the message arrived
    finally:
        entry.envelope.compact()
