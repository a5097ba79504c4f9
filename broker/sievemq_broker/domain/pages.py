"""Reading what waits in a queue page by page, without changing it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sievemq_broker.domain.entry import Entry, key_of
from sievemq_broker.matching.condition import Condition, is_true
from sievemq_core.errors import ErrorCode, RequestError

if TYPE_CHECKING:
    from sievemq_broker.domain.queue import Queue

__all__ = ["check_cursor", "matching", "page"]

#: Entries that one page may cost: a page may be short, or empty, but never stops the broker.
EXAMINED = 5_000

#: Packed bytes after which a page ends.
PAGE_BYTES = 1024 * 1024


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


def page(
    queue: Queue, condition: Condition | None, after: int, limit: int, now: int, examine: int = EXAMINED
) -> tuple[int | None, list[Entry]]:
    """Up to `limit` waiting entries that match, in order of delivery, with the cursor for more or None at the end.

    Not shown are messages in flight (BRW-07), delayed (BRW-06) or expired ones (BRW-09).
    """
    if limit <= 0:
        return None, []
    found: list[Entry] = []
    size = 0
    entries = queue.main.waits(after, examine if condition is not None else min(limit + 1, examine))
    for entry in entries:
        if len(found) == limit or size >= PAGE_BYTES:
            return after, found
        after = key_of(entry)
        envelope = entry.envelope
        if envelope.expiration and envelope.expiration <= now:
            continue
        if condition is None or matching(queue, condition, entry):
            found.append(entry)
            size += len(envelope.packed)
    if len(entries) < (examine if condition is not None else min(limit + 1, examine)):
        return None, found
    return after, found


def matching(queue: Queue, condition: Condition, entry: Entry) -> bool:
    """True if the condition is TRUE for a waiting entry; False also where that cannot be found out (D-14)."""
    try:
        return is_true(condition, entry.envelope)
    except Exception:
        return False  # reported when the message arrived
    finally:
        entry.envelope.compact()
