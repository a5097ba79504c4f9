"""Whose turn it is among the consumers that share a selector.

Message groups: messages with one JMSXGroupID go to one consumer at a time, in order. A group belongs to the consumer
that got its first message, and stays with it while that consumer can take more or still holds some of its messages.
Otherwise the next consumer may become its owner. When a consumer leaves, its groups are free. A message whose owner
cannot take it now is set aside, so that later messages are not held up. Groups are kept only while there are several
consumers. A message without a group costs one search for the property's name in its bytes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from heapq import heappop, heappush
from itertools import islice

from sievemq_broker.domain.consumer import Consumer
from sievemq_broker.domain.entry import STRAY, Entry, key_of
from sievemq_broker.domain.view import ALL_SCANNED, View
from sievemq_core.errors import SieveError
from sievemq_core.limits import MAX_PROPERTIES_BYTES
from sievemq_core.message.envelope import Envelope

_NAME = b"JMSXGroupID"
_WITHIN = MAX_PROPERTIES_BYTES + 256 * 1024  # headers come before the properties, the body after them

#: Above this number of groups, those without a message in flight are forgotten.
MANY = 10_000


def group_of(envelope: Envelope) -> str | None:
    """The group of a message, or None (JSX-02). A number counts as its text; a message that cannot be decoded has no
    group."""
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

    Attributes:
        view: as above.
        consumers: all of them.
        ready: consumers that may have credit, the next one first. One without credit is dropped when its turn comes.
        waiting: consumers that wait in receive() (WANT), the next one first.
        listed: the consumers in `ready`.
        groups: message groups; None unless there are several consumers.
        freed: messages that were set aside and may go to any consumer now. They are placed again before anything is
            delivered.
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
        self.consumers.append(consumer)
        if len(self.consumers) == 2:
            self.groups = Groups(self)

    def remove(self, consumer: Consumer) -> None:
        self.consumers.remove(consumer)
        if consumer in self.listed:
            self.listed.remove(consumer)
            self.ready.remove(consumer)
        self.stop_waiting(consumer)

    def leave(self, consumer: Consumer) -> None:
        """A removed consumer has returned its messages: its groups are free. If one consumer is left, groups are no
        longer kept."""
        groups = self.groups
        if groups is None:
            return
        self.freed += groups.leave({consumer})
        if len(self.consumers) < 2:
            self.groups = None
            self.freed += groups.leave(set(self.consumers))

    def free_idle(self) -> None:
        """Free the messages set aside for consumers that hold nothing and can take nothing."""
        if self.groups is not None:
            self.freed += self.groups.free_idle()

    def take_freed(self, limit: int) -> list[Entry]:
        """Up to `limit` messages of :attr:`freed`, without those that no longer wait."""
        freed = self.freed
        taken = [entry for entry in freed[-limit:] if entry.state <= STRAY]
        del freed[-limit:]
        return taken

    def list_ready(self, consumer: Consumer) -> None:
        if consumer not in self.listed:
            self.listed.add(consumer)
            self.ready.append(consumer)

    def wait(self, consumer: Consumer) -> None:
        """A consumer waits in receive(): it is served before those that only prefetch."""
        self.waiting.append(consumer)
        self.list_ready(consumer)

    def stop_waiting(self, consumer: Consumer) -> None:
        waiting = self.waiting
        if waiting and waiting[0] is consumer:
            waiting.popleft()
        elif consumer in waiting:
            waiting.remove(consumer)

    def next(self) -> Consumer | None:
        """The consumer whose turn it is, among those that can take a message now."""
        waiting = self.waiting
        while waiting:
            consumer = waiting[0]
            if consumer.waiting and consumer.credit > 0:
                if consumer.port.writable:
                    return consumer
                consumer.port.hold_back(consumer.id)
            waiting.popleft()  # resume() adds a consumer again when its port is writable
        ready = self.ready
        while ready:
            consumer = ready[0]
            if consumer.credit > 0:
                if consumer.port.writable:
                    return consumer
                consumer.port.hold_back(consumer.id)
            ready.popleft()
            self.listed.remove(consumer)
        return None

    def next_for(self, entry: Entry) -> Consumer | None:
        """The consumer that gets an arrival. None if the message must wait behind others, or for the owner of its
        group. A consumer that can take a message has nothing waiting that it could be served, so nothing is
        overtaken."""
        view = self.view
        if view.scanning != ALL_SCANNED:  # Messages that the scan has still to find come before it.
            if entry.state != STRAY:
                if entry.envelope.priority <= view.scanning:
                    return None
            elif key_of(entry) > view.scanned:
                return None
        consumer = self.next()
        if consumer is not None and self.groups is not None:
            return self.groups.next_for(consumer, entry)
        return consumer

    @property
    def single(self) -> Consumer | None:
        """The consumer that gets the next messages, if it can take one and no other consumer has a turn."""
        ready = self.ready
        if len(ready) == 1 and not self.waiting and self.groups is None:
            consumer = ready[0]
            if consumer.credit > 0 and consumer.port.writable:
                return consumer
        return None

    def served(self, consumer: Consumer, entry: Entry) -> None:
        if self.groups is not None:
            self.groups.delivered(consumer, entry)
        ready = self.ready
        if len(ready) > 1 and ready[0] is consumer:
            ready.rotate(-1)


class Groups:
    """The owners of message groups.

    Attributes:
        owners: group -> its owner, and the tag of the group's last message delivered to it.
        aside: the messages set aside for each consumer, as a heap by key.
        passed: messages that the last :meth:`take` set aside.
    """

    __slots__ = ("_learnt", "_many", "_number", "_turns", "_unlearnt", "aside", "owners", "passed")

    def __init__(self, turns: Turns) -> None:
        self._turns = turns
        self._many = MANY
        self._number = 0
        self.passed = 0
        self.owners: dict[str, tuple[Consumer, int]] = {}
        self.aside: dict[Consumer, list[tuple[int, int, Entry]]] = {}
        #: Consumers that hold messages from the time when there was only one; and the tag up to which the groups of
        #: those messages are known.
        self._unlearnt = [consumer for consumer in turns.consumers if consumer.window]
        self._learnt = 0

    @property
    def learnt(self) -> bool:
        """True if the groups of messages from the time with one consumer are known. Before that nothing may be
        delivered."""
        return not self._unlearnt

    def learn(self, budget: int) -> int:
        """Look up the groups of up to `budget` messages that were delivered while there was only one consumer. Returns
        how many were looked up."""
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
            return None  # it holds none of the group and can take none: do not wait for it
        return consumer

    def next_for(self, consumer: Consumer, entry: Entry) -> Consumer | None:
        """As :meth:`Turns.next_for`, when it is the turn of the given consumer."""
        group = group_of(entry.envelope)
        owner = None if group is None else self.owner(group)
        if owner is None:
            return consumer
        return owner if owner.can_take() else None

    def delivered(self, consumer: Consumer, entry: Entry) -> None:
        """A message was delivered, with this tag of the consumer."""
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
        """Consumers leave: their groups are free. Returns the messages set aside for them, to be placed again."""
        self.owners = {group: known for group, known in self.owners.items() if known[0] not in consumers}
        return [entry for owner in consumers for _, _, entry in self.aside.pop(owner, ())]

    def free_idle(self) -> list[Entry]:
        """Messages set aside for consumers that hold nothing and can take nothing, to be placed again."""
        idle = {owner for owner in self.aside if not owner.unacknowledged and not owner.can_take()}
        return self.leave(idle) if idle else []

    def take(self, consumer: Consumer, budget: int) -> Entry | None:
        """Take the next message for a consumer whose turn it is out of the view, or of those set aside for it. Messages
        that belong to other consumers are set aside. None if there is none, or if `budget` messages belong to
        others."""
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
        """Take messages set aside for consumers that can take them out of the view, each to be delivered at once."""
        for owner in list(self.aside):
            while owner.can_take() and self._first_aside(owner) is not None:
                yield owner, self._pop_aside(owner)

    def _put_aside(self, entry: Entry, consumer: Consumer) -> None:
        """Set an entry aside for its owner. It stays in the views."""
        self._number += 1
        heappush(self.aside.setdefault(consumer, []), (key_of(entry), self._number, entry))

    def _pop_aside(self, consumer: Consumer) -> Entry:
        entry = heappop(self.aside[consumer])[2]
        self._turns.view.forget_passed(entry)
        return entry

    def _first_aside(self, consumer: Consumer) -> Entry | None:
        """The next message set aside for a consumer. Messages that have gone meanwhile are dropped."""
        aside = self.aside.get(consumer)
        while aside:
            key, _, entry = aside[0]
            if entry.state <= STRAY and key_of(entry) == key:
                return entry
            heappop(aside)
        return None
