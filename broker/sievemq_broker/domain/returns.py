"""Messages that come back to their queue: not acknowledged, given back, or thought lost with a connection."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sievemq_broker.domain import delays
from sievemq_broker.domain.dead_letters import FAILED, REFUSED_DELAY_MS, Burial
from sievemq_broker.domain.entry import GONE, STRAY, Entry, key_of

if TYPE_CHECKING:
    from sievemq_broker.domain.consumer import Consumer
    from sievemq_broker.domain.queue import Queue

__all__ = ["give_back", "give_back_oldest", "settle_returned", "unmark"]


def give_back(
    queue: Queue, unmarked: list[Entry], now: int, marked: list[Entry] | None = None, suspects: int | None = None
) -> None:
    """Take back what a consumer held, in the original order.

    Args:
        queue: where it came from.
        unmarked: nobody has seen these; count and place are as before (MCO-10).
        now: ms epoch.
        marked: these may have been seen: count + 1, redelivered (ACK-08), dead-lettered after too many attempts.
        suspects: how many of `marked` may be dead-lettered now; None for all.
    """
    back: list[tuple[int, Entry]] = []
    for entry in unmarked:
        entry.state = STRAY
        back.append((key_of(entry), entry))
        if queue.observer is not None:
            queue.observer.released(queue, entry)
    for number, entry in enumerate(marked or ()):
        if _mark(queue, entry, now, suspects is None or number < suspects):
            back.append((key_of(entry), entry))
    back.sort()
    for _, entry in back:
        envelope = entry.envelope
        if queue.deleted:
            if queue.observer is not None:
                queue.observer.removed(queue, entry, "deleted")
            entry.state = GONE
            del entry.envelope
        elif envelope.expiration and envelope.expiration <= now:
            queue.expire(entry, now)
        else:
            queue.arrive(entry)


def give_back_oldest(consumer: Consumer, count: int, now: int, suspects: int) -> None:
    """Take back, marked, what an open consumer has held longest; it has no credit.

    Args:
        consumer: that goes on with the rest.
        count: of tags.
        now: ms epoch.
        suspects: as in :func:`give_back`.
    """
    window = consumer.window
    entries = [window.popleft() for _ in range(min(count, len(window)))]
    consumer.base += len(entries)
    marked = [entry for entry in entries if entry is not None]
    consumer.holes -= len(entries) - len(marked)
    give_back(consumer.queue, [], now, marked, suspects)


def _mark(queue: Queue, entry: Entry, now: int, suspect: bool) -> bool:
    """Count a failed delivery; False if the entry does not come back now."""
    entry.state = STRAY
    entry.count += 1
    if entry.count == 1:
        entry.failed = now
    queue.redelivered += 1
    if queue.deleted:
        return True
    if queue.observer is not None:
        queue.observer.returned(queue, entry)
    policy = queue.policy
    delay = policy.redelivery_delay_after(entry.count)
    if suspect and 0 < policy.max_attempts <= entry.count:
        burial = queue.namespace.bury(queue, entry, FAILED, now)
        if burial is Burial.DONE:
            entry.state = GONE
            del entry.envelope
            return False
        if burial is Burial.REFUSED:
            delay = max(delay, REFUSED_DELAY_MS)
    if delay:
        delays.delay(queue, entry, now + delay, span=True)
        return False
    return True


def unmark(queue: Queue, entries: list[tuple[Entry, int]], now: int) -> None:
    """Messages came back marked, and it turns out that nobody has seen them: those that still wait are as before
    (D-32).

    Args:
        queue: where they came from.
        entries: each with its count as it came back; one that was delivered since then stays marked.
        now: ms epoch.
    """
    back: list[Entry] = []
    for entry, count in entries:
        if entry.count != count or not queue.take_out(entry):
            continue
        entry.count -= 1
        queue.redelivered -= 1
        back.append(entry)
    give_back(queue, back, now)


def settle_returned(queue: Queue, entries: list[tuple[Entry, int]]) -> None:
    """Messages came back, and it turns out that they had been acknowledged: those that still wait are gone.

    Args:
        queue: where they came from.
        entries: each with its count as it came back.
    """
    for entry, count in entries:
        if entry.count == count and queue.take_out(entry):
            queue.acknowledged += 1
            if queue.observer is not None:
                queue.observer.acknowledged(queue, entry, None)
            entry.state = GONE
            del entry.envelope
