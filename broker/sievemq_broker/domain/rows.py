"""What waits in a row, for the one consumer that can take it.

:meth:`View.first`, :meth:`View.take` and :meth:`Queue.hand_waiting` for many messages at once. A backlog is mostly
drained like that, by who has just granted credit, and their calls are more than half of what a message costs there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sievemq_broker.domain.entry import HELD
from sievemq_broker.domain.view import PIECE

if TYPE_CHECKING:
    from sievemq_broker.domain.consumer import Consumer
    from sievemq_broker.domain.queue import Queue
    from sievemq_broker.domain.view import View

__all__ = ["serve_row"]

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
        False if nothing was delivered: only tombstones are here, or what is next has expired.
    """
    lane = view.lanes[view.mask.bit_length() - 1]
    assert lane is not None
    port, observer, consumer_id, first = consumer.port, queue.observer, consumer.id, consumer.tag
    deliver, hold = port.deliver, consumer.window.append
    tag, head, newest, size, dead = first, lane.head, 0, 0, 0
    try:
        for entry in lane.items[head : head + min(consumer.credit, ROW)]:
            if entry.state:  # a tombstone
                head += 1
                continue
            envelope = entry.envelope
            if envelope.expiration:
                if envelope.expiration <= now:
                    break
                queue.namespace.broker.deadlines.void()
            head += 1
            tag += 1
            packed = envelope.packed
            newest = entry.sequence
            size += len(packed)
            dead += entry.places - 1
            entry.places = 0
            entry.state = HELD
            hold(entry)
            if observer is not None:
                observer.handed(queue, entry)
            deliver(consumer_id, tag, entry.count + 1, packed)
            if not port.writable:
                break
    finally:
        lane.head = head
        if head > PIECE:  # a queue that is never drained, whose consumer never asks for more than waits: as View.first
            lane.trim()
        delivered = tag - first
        if delivered:  # else its turn has not been
            consumer.tag = tag
            consumer.credit -= delivered
            if newest > consumer.newest:
                consumer.newest = newest
            queue.turn = consumer.turn = queue.turn + delivered
            queue.depth -= delivered
            queue.bytes -= size
            queue.upkeep.note_dead(queue, dead)
    return tag > first
