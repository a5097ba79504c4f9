"""Whose turn it is among the consumers that share a selector.

Message groups: messages with one JMSXGroupID go to one consumer at a time, in order. A group belongs to the consumer
that got its first message, and stays with it while it can take more or still holds some; otherwise the next consumer
may have it. When a consumer goes, its groups are free. What a consumer must have but cannot take now is put aside for
it, so that the messages behind are not held up. Groups matter only where there are several consumers: with one,
everything goes to it anyway. There, a message without a group costs one search for the property's name in its bytes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from heapq import heappop, heappush
from itertools import islice

from sievemq_broker.domain.consumer import Consumer
from sievemq_broker.domain.entry import READY, STRAY, Entry, key_of
from sievemq_broker.domain.view import ALL_SCANNED, View
from sievemq_core.errors import SieveError
from sievemq_core.limits import MAX_PROPERTIES_BYTES
from sievemq_core.message.envelope import Envelope

__all__ = ["Turns", "group_of"]

_NAME = b"JMSXGroupID"
_WITHIN = MAX_PROPERTIES_BYTES + 256 * 1024  # the properties stand before the body, the headers before them

#: Groups remembered before those of which no consumer holds anything are forgotten.
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


class Turns:
    """The consumers of one view.

    Args:
        view: what they see.

    Attributes:
        view: as above.
        consumers: all of them.
        ready: those that may have credit, next one first. One without is dropped when its turn comes.
        waiting: those that wait to be served at once (WANT), next one first.
        listed: those in `ready`.
        groups: message groups; only there while there are several consumers.
        freed: waiting messages that were put aside for a consumer and may go to any: to be placed anew before anything
            is delivered.
    """

    __slots__ = ("consumers", "freed", "groups", "listed", "ready", "view", "waiting")

    def __init__(self, view: View) -> None:
        self.view = view
        self.consumers: list[Consumer] = []
        self.ready: deque[Consumer] = deque()
        self.waiting: deque[Consumer] = deque()
        self.groups: Groups | None = None
        self.listed: set[Consumer] = set()
        self.freed: list[Entry] = []

    def add(self, consumer: Consumer) -> None:
        """A consumer comes."""
        self.consumers.append(consumer)
        if len(self.consumers) == 2:
            self.groups = Groups(self)

    def remove(self, consumer: Consumer) -> None:
        """A consumer goes."""
        self.consumers.remove(consumer)
        if consumer in self.listed:
            self.listed.remove(consumer)
            self.ready.remove(consumer)
        self.stop_waiting(consumer)

    def leave(self, consumer: Consumer) -> None:
        """A removed consumer has given back what it had to: its groups are free. With one consumer left there are no
        groups any more."""
        groups = self.groups
        if groups is None:
            return
        self.freed += groups.leave({consumer})
        if len(self.consumers) < 2:
            self.groups = None
            self.freed += groups.leave(set(self.consumers))

    def free_idle(self) -> None:
        """Free what is put aside for consumers that neither hold anything nor can take anything."""
        if self.groups is not None:
            self.freed += self.groups.free_idle()

    def take_freed(self, limit: int) -> list[Entry]:
        """Up to `limit` messages of :attr:`freed`; those that do not wait any longer are left out."""
        freed = self.freed
        taken = [entry for entry in freed[-limit:] if entry.state <= STRAY]
        del freed[-limit:]
        return taken

    def list_ready(self, consumer: Consumer) -> None:
        """A consumer may have credit."""
        if consumer not in self.listed:
            self.listed.add(consumer)
            self.ready.append(consumer)

    def wait(self, consumer: Consumer) -> None:
        """A consumer goes before those that only prefetch."""
        self.waiting.append(consumer)
        self.list_ready(consumer)

    def stop_waiting(self, consumer: Consumer) -> None:
        """It does not any more."""
        waiting = self.waiting
        if waiting and waiting[0] is consumer:
            waiting.popleft()
        elif consumer in waiting:
            waiting.remove(consumer)

    def next(self) -> Consumer | None:
        """Whose turn it is, if any consumer can take a message now."""
        waiting = self.waiting
        while waiting:
            consumer = waiting[0]
            if consumer.waiting and consumer.credit > 0 and consumer.port.writable:
                return consumer
            waiting.popleft()  # resume() brings one back whose port was not writable
        ready = self.ready
        while ready:
            consumer = ready[0]
            if consumer.credit > 0 and consumer.port.writable:
                return consumer
            ready.popleft()
            self.listed.remove(consumer)
        return None

    def next_for(self, entry: Entry) -> Consumer | None:
        """Whose turn it is to get an arrival; None where it has to wait behind something, or for a consumer.

        A consumer that can take something has nothing waiting that it could be served, so nothing is overtaken.
        """
        view = self.view
        if view.scanning != ALL_SCANNED:  # what the scan has still to find goes before it, or is it
            if entry.state == READY:
                if entry.envelope.priority <= view.scanning:
                    return None
            elif key_of(entry) > view.scanned:
                return None
        consumer = self.next()
        if consumer is not None and self.groups is not None:
            return self.groups.next_for(consumer, entry)
        return consumer

    @property
    def has_single_turn(self) -> bool:
        """True if only the next consumer can have a turn."""
        return len(self.ready) == 1 and not self.waiting and self.groups is None

    def take(self, consumer: Consumer, budget: int) -> Entry | None:
        """The next message for a consumer whose turn it is, no longer in the view; None if there is none, or `budget`
        messages belong to others: see :attr:`Groups.passed`."""
        if self.groups is not None:
            return self.groups.take(consumer, budget)
        entry = self.view.first()
        if entry is not None:
            self.view.take(entry)
        return entry

    def served(self, consumer: Consumer, entry: Entry) -> None:
        """A consumer was delivered a message."""
        if self.groups is not None:
            self.groups.delivered(consumer, entry)
        ready = self.ready
        if len(ready) > 1 and ready[0] is consumer:
            ready.rotate(-1)


class Groups:
    """Which group belongs to whom.

    Attributes:
        owners: group -> consumer, and the tag of the last message of the group that it was delivered.
        aside: what is put aside per consumer, as a heap by key.
        passed: messages that the last :meth:`take` put aside.
    """

    __slots__ = ("_learnt", "_many", "_number", "_turns", "_unlearnt", "aside", "owners", "passed")

    def __init__(self, turns: Turns) -> None:
        self._turns = turns
        self._many = MANY
        self._number = 0
        self.passed = 0
        self.owners: dict[str, tuple[Consumer, int]] = {}
        self.aside: dict[Consumer, list[tuple[int, int, Entry]]] = {}
        #: Consumers that hold what was delivered while there was only one; and the tag, of the last of them, up to
        #: which the groups of that are known.
        self._unlearnt = [consumer for consumer in turns.consumers if consumer.window]
        self._learnt = 0

    @property
    def learnt(self) -> bool:
        """The groups of what was delivered while there was only one consumer are known. Nothing may be delivered
        before."""
        return not self._unlearnt

    def learn(self, budget: int) -> int:
        """Look at so many messages that were delivered while there was only one consumer; how many that were."""
        done = 0
        while self._unlearnt and done < budget:
            consumer = self._unlearnt[-1]
            start = max(self._learnt, consumer.base)
            first = start - consumer.base
            row = list(islice(consumer.window, first, first + budget - done)) if consumer.open else []
            for tag, entry in enumerate(row, start + 1):
                if entry is not None and (group := group_of(entry.envelope)) is not None:
                    self.owners[group] = (consumer, tag)
            done += len(row)
            self._learnt = start + len(row)
            if done < budget:
                self._unlearnt.pop()
                self._learnt = 0
        return done

    def owner(self, group: str) -> Consumer | None:
        """The consumer that must get the group's next message; None if any may."""
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

    def next_for(self, consumer: Consumer, entry: Entry) -> Consumer | None:
        """As :meth:`Turns.next_for`, where it would be a consumer's turn."""
        group = group_of(entry.envelope)
        owner = None if group is None else self.owner(group)
        if owner is None:
            return consumer
        return owner if owner.can_take() else None

    def delivered(self, consumer: Consumer, entry: Entry) -> None:
        """A message was delivered, with the consumer's latest tag."""
        group = group_of(entry.envelope)
        if group is None:
            return
        self.owners[group] = (consumer, consumer.tag)
        if len(self.owners) > self._many:
            self.owners = {
                group: (owner, tag) for group, (owner, tag) in self.owners.items() if owner.open and owner.base < tag
            }
            self._many = max(MANY, 2 * len(self.owners))

    def leave(self, consumers: set[Consumer]) -> list[Entry]:
        """Consumers leave: their groups are free. What was put aside for them is to be placed anew."""
        self.owners = {group: known for group, known in self.owners.items() if known[0] not in consumers}
        return [entry for owner in consumers for _, _, entry in self.aside.pop(owner, ())]

    def free_idle(self) -> list[Entry]:
        """What is put aside for consumers that neither hold anything nor can take anything, to be placed anew."""
        idle = {owner for owner in self.aside if not owner.unacknowledged and not owner.can_take()}
        return self.leave(idle) if idle else []

    def take(self, consumer: Consumer, budget: int) -> Entry | None:
        """As :meth:`Turns.take`. What belongs to other consumers is put aside on the way."""
        view = self._turns.view
        self.passed = 0
        while True:
            kept, entry = self._first_aside(consumer), view.first()
            if kept is not None and (entry is None or key_of(kept) <= key_of(entry)):
                return self._pop_aside(consumer)
            if entry is None:
                return None
            group = group_of(entry.envelope)
            owner = None if group is None else self.owner(group)
            if owner is None or owner is consumer:
                view.take(entry)
                return entry
            if self.passed >= budget:
                return None
            view.pass_over(entry)
            self._put_aside(entry, owner)
            self.passed += 1

    def take_aside(self) -> Iterator[tuple[Consumer, Entry]]:
        """What is put aside for consumers that can take it, no longer in the view, each to be delivered at once."""
        for owner in list(self.aside):
            while owner.can_take() and self._first_aside(owner) is not None:
                yield owner, self._pop_aside(owner)

    def _put_aside(self, entry: Entry, consumer: Consumer) -> None:
        """Keep an entry for its owner. It goes on waiting: to all others it looks as before."""
        self._number += 1
        heappush(self.aside.setdefault(consumer, []), (key_of(entry), self._number, entry))

    def _pop_aside(self, consumer: Consumer) -> Entry:
        entry = heappop(self.aside[consumer])[2]
        self._turns.view.forget_passed(entry)
        return entry

    def _first_aside(self, consumer: Consumer) -> Entry | None:
        """What is put aside for a consumer, next one first; what has gone another way meanwhile is dropped."""
        aside = self.aside.get(consumer)
        while aside:
            key, _, entry = aside[0]
            if entry.state <= STRAY and key_of(entry) == key:
                return entry
            heappop(aside)
        return None
