"""Message groups: messages with one JMSXGroupID go to one consumer at a time, in order.

A group belongs to the consumer that got its first message, and stays with it while it can take more or still holds
some; otherwise the next consumer may have it. When a consumer goes, its groups are free. What a consumer must have but
cannot take now is put aside for it, so that the messages behind are not held up.

Groups are looked at only where a view has several consumers: with one, everything goes to it anyway. There, a message
without a group costs one search for the property's name in its bytes.
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import TYPE_CHECKING

from sievemq_broker.domain.entry import STRAY, Entry, key_of
from sievemq_core.errors import SieveError
from sievemq_core.limits import MAX_PROPERTIES_BYTES
from sievemq_core.message.envelope import Envelope

if TYPE_CHECKING:
    from sievemq_broker.domain.consumer import Consumer
    from sievemq_broker.domain.queue import Queue
    from sievemq_broker.domain.view import View

__all__ = ["Groups", "group_of"]

_NAME = b"JMSXGroupID"
_WITHIN = MAX_PROPERTIES_BYTES + 256 * 1024  # the properties stand before the body, the headers before them

#: Groups remembered by one view before those that nobody holds anything of are forgotten.
MANY = 10_000


def group_of(envelope: Envelope) -> str | None:
    """The group of a message, or None (JSX-02). What cannot be decoded has none; a number is as good as its text."""
    if envelope.packed.find(_NAME, 0, _WITHIN) < 0:
        return None
    try:
        group = envelope.properties.get("JMSXGroupID")
    except SieveError:
        return None
    if isinstance(group, str):
        return group or None
    return None if group is None else str(group)


class Groups:
    """Which group belongs to whom, in one view.

    Attributes:
        owners: group -> consumer, and the tag of the last message of the group that it was delivered.
        aside: what is put aside per consumer, as a heap by key.
    """

    __slots__ = ("_many", "_number", "_view", "aside", "owners")

    def __init__(self, view: View) -> None:
        self._view = view
        self._many = MANY
        self._number = 0
        self.owners: dict[str, tuple[Consumer, int]] = {}
        self.aside: dict[Consumer, list[tuple[int, int, Entry]]] = {}
        for consumer in view.consumers:  # what was delivered while nobody asked for groups
            for tag, entry in enumerate(consumer.window, consumer.base + 1):
                if entry is not None and (group := group_of(entry.envelope)) is not None:
                    self.owners[group] = (consumer, tag)

    def owner(self, group: str) -> Consumer | None:
        """Who must get the group's next message; None if anybody may."""
        known = self.owners.get(group)
        if known is None:
            return None
        consumer, tag = known
        if not consumer.open:
            del self.owners[group]
            return None
        if consumer.base >= tag and not consumer.can_take() and not self.aside.get(consumer):
            return None  # it has done with the group and cannot go on: no reason to wait for it
        return consumer

    def delivered(self, group: str, consumer: Consumer) -> None:
        """A message of the group was delivered, with the consumer's latest tag."""
        self.owners[group] = (consumer, consumer.tag)
        if len(self.owners) > self._many:
            self.owners = {
                group: (owner, tag) for group, (owner, tag) in self.owners.items() if owner.open and owner.base < tag
            }
            self._many = max(MANY, 2 * len(self.owners))

    def _put_aside(self, entry: Entry, consumer: Consumer) -> None:
        """Keep an entry for its owner. It goes on waiting: to all others it looks as before."""
        self._number += 1
        heappush(self.aside.setdefault(consumer, []), (key_of(entry), self._number, entry))

    def _first_aside(self, consumer: Consumer) -> Entry | None:
        """What is put aside for a consumer, next one first; what has gone another way meanwhile is dropped."""
        aside = self.aside.get(consumer)
        while aside:
            key, _, entry = aside[0]
            if entry.state <= STRAY and key_of(entry) == key:
                return entry
            heappop(aside)
        return None

    def _left(self, consumer: Consumer) -> list[Entry]:
        """A consumer leaves: its groups are free. What was put aside for it is to be served anew."""
        self.owners = {group: known for group, known in self.owners.items() if known[0] is not consumer}
        return [entry for _, _, entry in sorted(self.aside.pop(consumer, ())) if entry.state <= STRAY]

    def _idle_owners(self) -> list[Consumer]:
        """Those for whom something is put aside while they neither hold anything nor can take anything."""
        return [owner for owner in self.aside if not owner.unacknowledged and not owner.can_take()]

    def serve(self, queue: Queue, now: int) -> None:
        """Deliver what waits in the view, as far as those who may have it can take it."""
        for owner in self._idle_owners():
            queue.arrive_again(self._left(owner))
        while (consumer := self._view.next_consumer()) is not None:
            entry = self._next_for(consumer)
            if entry is None:
                break
            queue.hand_waiting(consumer, entry, now)
        for owner in list(self.aside):
            while owner.can_take() and (entry := self._first_aside(owner)) is not None:
                heappop(self.aside[owner])
                self._view.passed.pop(entry, None)
                queue.hand_waiting(owner, entry, now)

    def leave(self, queue: Queue, consumer: Consumer, now: int) -> None:
        """A removed consumer has given back what it had to: now others may have the rest of its groups. With one
        consumer left there are no groups any more."""
        view = self._view
        free = self._left(consumer)
        if len(view.consumers) < 2:
            view.groups = None
            for remaining in view.consumers:
                free += self._left(remaining)
            free.sort(key=key_of)
        queue.arrive_again(free)
        queue.serve(view, now)

    def _next_for(self, consumer: Consumer) -> Entry | None:
        """The next message for a consumer that can take one, no longer in the view; None if there is none. What belongs
        to others is put aside on the way."""
        view = self._view
        while True:
            kept, entry = self._first_aside(consumer), view.first()
            if kept is not None and (entry is None or key_of(kept) <= key_of(entry)):
                heappop(self.aside[consumer])
                view.passed.pop(kept, None)
                return kept
            if entry is None:
                return None
            group = group_of(entry.envelope)
            owner = None if group is None else self.owner(group)
            if owner is None or owner is consumer:
                view.take(entry)
                return entry
            view.pass_over(entry)
            self._put_aside(entry, owner)
