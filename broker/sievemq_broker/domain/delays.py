"""Messages that wait for a moment: their delivery time (EXP-07), or the end of their redelivery delay (D-22)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sievemq_broker.domain.entry import DELAYED, READY, STRAY, Entry
from sievemq_core.message.envelope import Envelope

if TYPE_CHECKING:
    from sievemq_broker.domain.queue import Queue

__all__ = ["delay", "delay_new", "end"]


def delay_new(queue: Queue, envelope: Envelope, now: int) -> None:
    """Take in a message that is to be delivered later."""
    sequence = queue.sequence = queue.sequence + 1
    entry = Entry(sequence, envelope, DELAYED)
    if queue.observer is not None:
        queue.observer.accepted(queue, entry)
    for tap in queue.taps:
        tap.copy(envelope, now)
    delay(queue, entry, envelope.delivery_time)


def delay(queue: Queue, entry: Entry, when: int, *, span: bool = False) -> None:
    """Let an entry wait for a moment. It expires before if it must (EXP-10).

    Args:
        queue: whose.
        entry: in no view.
        when: ms epoch.
        span: it is to wait so long, whatever the machine's clock is set to meanwhile.
    """
    entry.state = DELAYED
    entry.due = when
    envelope = entry.envelope
    envelope.compact()
    queue.scheduled[entry.sequence] = entry
    queue.bytes += len(envelope.packed)
    deadlines = queue.namespace.broker.deadlines
    if span:
        deadlines.push_span(when, queue, entry)
        if envelope.expiration:
            deadlines.push(envelope.expiration, queue, entry)
    else:
        deadlines.push(min(when, envelope.expiration) if envelope.expiration else when, queue, entry)


def end(queue: Queue, entry: Entry, now: int) -> None:
    """The moment of a delayed entry has come: it expires, or arrives."""
    if queue.scheduled.pop(entry.sequence, None) is None:
        return
    queue.bytes -= len(entry.envelope.packed)
    expiration = entry.envelope.expiration
    if expiration and expiration <= now:
        queue.expire(entry, now)
        return
    if entry.count:
        entry.state = STRAY  # end of a redelivery delay: to the front (ORD-07)
    else:
        # It arrives now: behind what came in the meantime (ORD-05).
        queue.again += 1
        entry.sequence = queue.sequence = queue.sequence + 1
        entry.state = READY
    queue.arrive(entry)
