"""What comes or waits in a row, for the one consumer that can take it.

:func:`serve_row` is :meth:`View.first`, :meth:`View.take` and :meth:`Queue.hand_waiting` for many messages at once. A
backlog is mostly drained like that, by who has just granted credit, and their calls are more than half of what a
message costs there. :func:`accept_row` is :meth:`Queue.accept`: what a busy producer has sent in one go is looked at
once for each queue, not once for each message and queue.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sievemq_broker.domain.entry import HELD, Entry
from sievemq_broker.domain.view import PIECE

if TYPE_CHECKING:
    from sievemq_broker.domain.consumer import Consumer
    from sievemq_broker.domain.queue import Queue
    from sievemq_broker.domain.view import View
    from sievemq_core.message.envelope import Envelope

__all__ = ["accept_row", "serve_row"]

#: Messages looked at in one go: the list of them is made before it is known how many the consumer's port takes.
ROW: Final = 512


def serve_row(queue: Queue, view: View, consumer: Consumer, now: int) -> bool:
    """Deliver what is next in a view, as far as the consumer can take it.

    Args:
        queue: whose.
        view: something arrived and waits in it; nothing that came back, which might go before; it has no groups.
        consumer: the only one whose turn it may be; it can take a message.
        now: ms epoch.

    Returns:
        False if nothing was delivered: only tombstones are here, or what is next has expired or was delivered before.
    """
    lane = view.lanes[view.mask.bit_length() - 1]
    assert lane is not None
    items, head = lane.items, lane.head
    entries: list[Entry] = []
    row: list[bytes] = []
    for entry in items[head : head + min(consumer.credit, ROW)]:
        if not entry.state:  # else a tombstone
            envelope = entry.envelope
            if entry.count or 0 < envelope.expiration <= now:
                break
            entries.append(entry)
            row.append(envelope.packed)
    if not entries:
        return False
    delivered = _deliver(consumer, entries, row)
    if delivered < len(entries):
        del entries[delivered:], row[delivered:]
    observer, void, dead = queue.observer, queue.namespace.broker.deadlines.void, 0
    for entry in entries:
        if entry.envelope.expiration:
            void()
        dead += entry.places - 1
        entry.places = 0
        entry.state = HELD
        if observer is not None:
            observer.handed(queue, entry)
    lane.head = head = items.index(entry, head) + 1
    if head > PIECE:  # a queue that is never drained, whose consumer never asks for more than waits: as View.first
        lane.trim()
    if entry.sequence > consumer.newest:
        consumer.newest = entry.sequence
    queue.turn = consumer.turn = queue.turn + delivered
    queue.depth -= delivered
    queue.bytes -= sum(map(len, row))
    queue.upkeep.note_dead(queue, dead)
    return True


def accept_row(queue: Queue, envelopes: list[Envelope], packed: list[bytes], now: int) -> None:
    """:meth:`Queue.accept` for several messages, one after the other.

    Args:
        queue: whose.
        envelopes: at least one; none of them expires, or is for later.
        packed: their bytes; the same list for all queues that they go to.
        now: ms epoch.
    """
    consumer = queue.sole
    if queue.direct and consumer is not None and not consumer.waiting:
        credit = consumer.credit
        if credit > 0 and not queue.depth and consumer.port.writable:  # else what waits goes first
            row = packed
            if credit < len(packed):
                envelopes, rest, row, packed = envelopes[:credit], envelopes[credit:], packed[:credit], packed[credit:]
            else:
                rest, packed = [], []
            sequence = queue.sequence
            entries = [Entry(number, envelope, HELD) for number, envelope in enumerate(envelopes, sequence + 1)]
            taken = _deliver(consumer, entries, row)
            queue.sequence = consumer.newest = sequence + taken
            if taken < len(row):  # its port is full
                rest, packed = envelopes[taken:] + rest, row[taken:] + packed
            envelopes = rest
        if not consumer.can_take() and not queue.lookups:
            if envelopes:
                _wait(queue, envelopes, packed)
            return
    for envelope in envelopes:
        queue.accept(envelope, now)


def _wait(queue: Queue, envelopes: list[Envelope], packed: list[bytes]) -> None:
    """Let them wait where nobody has a selector: :meth:`Queue._place` of several."""
    push = queue.main.push
    for sequence, envelope in enumerate(envelopes, queue.sequence + 1):
        push(Entry(sequence, envelope), envelope.priority)
    queue.sequence += len(envelopes)
    queue.depth += len(envelopes)
    queue.bytes += sum(map(len, packed))


def _deliver(consumer: Consumer, entries: list[Entry], row: list[bytes]) -> int:
    """Deliver for the first time, as far as the port takes it. How many that were: one at least."""
    tag, window, taken = consumer.tag, consumer.window, 0
    window += entries
    try:
        taken = consumer.port.deliver_row(consumer.id, tag + 1, row)
    finally:
        for _ in range(taken, len(entries)):
            window.pop()
    consumer.tag = tag + taken
    consumer.credit -= taken
    return taken
