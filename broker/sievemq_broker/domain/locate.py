"""Finding messages of a queue by what names them: their sequence in the queue, or their JMSMessageID."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain
from typing import TYPE_CHECKING

from sievemq_broker.domain.candidates import with_ids
from sievemq_broker.domain.entry import DELAYED, GONE, READY, Entry, key_of
from sievemq_broker.domain.steps import SLICE, Steps
from sievemq_broker.domain.walk import Walk
from sievemq_core.message.envelope import MESSAGE_ID

if TYPE_CHECKING:
    from sievemq_broker.domain.queue import Queue

__all__ = ["locate"]


def locate(queue: Queue, ids: Iterable[int | str], *, held: bool) -> Steps[list[Entry]]:
    """The entries with these ids, in order of delivery; what is not there is left out.

    A number is found at once unless the message has come back from a consumer; a JMSMessageID is found by the queue's
    lookup, once there is one (candidates.py), and until then looked for among all messages. It may name several: a copy
    keeps the id of its original.

    Args:
        queue: whose.
        ids: sequences, and JMSMessageIDs.
        held: look among those in flight, too.
    """
    latest = queue.complete
    yield
    numbers = {number for number in ids if isinstance(number, int) and number <= latest}
    names = {name for name in ids if isinstance(name, str)}
    found: dict[int, Entry] = {}
    for number in numbers:
        entry = _arrival(queue, number) or queue.scheduled.get(number)
        if entry is not None:
            found[number] = entry
    missing = numbers - found.keys()
    looked = 0
    for entry in _rest(queue, held, names) if missing or names else ():
        if entry is None:
            yield
            continue
        looked += 1
        if looked % SLICE == 0:
            yield
        if entry.state == GONE or entry.sequence > latest:
            continue
        if entry.sequence in missing:
            found[entry.sequence] = entry
        elif names:
            if entry.envelope.fields[MESSAGE_ID] in names:
                found[entry.sequence] = entry
            entry.envelope.compact()
    return sorted((entry for entry in found.values() if entry.state != GONE), key=_place)


def _place(entry: Entry) -> tuple[bool, int]:
    return entry.state == DELAYED, key_of(entry)


def _arrival(queue: Queue, sequence: int) -> Entry | None:
    for lane in queue.main.lanes:
        if lane is not None:
            index = lane.after(sequence - 1)
            if index < len(lane.items) and lane.items[index].sequence == sequence:
                entry = lane.items[index]
                return entry if entry.state == READY else None
    return None


def _rest(queue: Queue, held: bool, names: set[str]) -> Iterator[Entry | None]:
    """What a sequence does not lead to; None where a slice may end."""
    named = with_ids(queue, names) if names else []
    if named is None:
        walk = Walk(queue.main)
        yield from walk.gather()
        while not walk.done:
            yield from walk.take(SLICE)
            yield None
    else:
        yield from named
        yield from chain([entry for _, entry in queue.main.heap.copy()], list(queue.main.passed))
    if names:
        yield from list(queue.scheduled.values())
    if held:
        for consumer in (*queue.consumers, *queue.holders):
            yield from [entry for entry in consumer.window if entry is not None]
