"""Listeners to events, and their events: a tick with totals each second, and the changes since the last.

Changes are found by comparing two samples a second apart, so the data path pays nothing. Objects that are created and
deleted between two samples show only in the tick's counters. The sampler finds the changes of destinations, limits and
findings are compared here: these are kept for later (watch/happenings.py). Connections, consumers, subscriptions and
taps are compared here as well, but only while there is a listener.

Each listener has its own buffer. A slow one gets only the latest tick and, if its buffer was full, the number of events
that it missed. One that reconnects soon gets the events that it missed, see :mod:`.history`."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any, Self, TypeAlias

from sievemq_broker.domain.consumer import Consumer
from sievemq_broker.domain.queue import Queue
from sievemq_broker.domain.shares import Shares
from sievemq_broker.domain.tap import Tap
from sievemq_broker.domain.topic import Subscription, Topic
from sievemq_broker.domain.work import Budget, Task
from sievemq_broker.server.http.api.history import Event, History
from sievemq_broker.server.http.api.series import Changes, Sampler
from sievemq_broker.server.http.tasks import run
from sievemq_broker.server.server import Server
from sievemq_broker.session.peer import Peer
from sievemq_broker.session.rights import Identity

#: Events that a listener may have waiting; not fewer than a history keeps.
BUFFER = 500

#: Listeners at a time. One more of a user with few takes the place of one of the user with the most.
MAX_LISTENERS = 64

#: Sampling continues for this time after the last listener left: it may reconnect.
LINGER_SECONDS = 60.0

Told: TypeAlias = tuple[str | None, Event]
"""An event with its id; None for what concerns one listener alone."""


class Listener:
    """One open stream.

    Args:
        identity: the user; what it may not view is left out.
        namespace: only events of this one; None for all.
    """

    def __init__(self, identity: Identity, namespace: str | None) -> None:
        self.identity = identity
        self.namespace = namespace
        self.missed = 0
        self.ended = False
        self._everything = identity.may("view", "*", "*")  # totals include what others do
        self._events: deque[Told] = deque()
        self._tick: Told | None = None
        self._awake = asyncio.Event()

    @property
    def receives_all(self) -> bool:
        return self._everything and self.namespace is None

    def receives(self, event: Event) -> bool:
        """True if it subscribed to events of this kind, and may view their subject."""
        name, about = event
        namespace = about.get("namespace")
        if namespace is None:
            return self._everything or not name.startswith(("attention.", "action", "setting."))
        if self.namespace not in (None, namespace):
            return False
        address = about.get("address")
        if name.startswith(("connection.", "action")) or (name.startswith("attention.") and address is None):
            address = "*"  # only for users who may list connections
        return self.identity.rights.enters(namespace) and (
            address is None or self.identity.may("view", namespace, address)
        )

    def put(self, event_id: str | None, event: Event) -> None:
        """Put an event for it into the buffer, or count it as missed."""
        if len(self._events) >= BUFFER:
            self.missed += 1
        else:
            self._events.append((event_id, event))
        self._awake.set()

    def tick(self, event_id: str, totals: dict[str, Any]) -> None:
        """Replace the totals by the latest, as far as it may view them."""
        told = totals if self._everything else {name: totals.get(name) for name in ("time", "blocked")}
        self._tick = event_id, ("tick", told)
        self._awake.set()

    def end(self) -> None:
        self.ended = True
        self._awake.set()

    async def next(self, seconds: float) -> list[Told]:
        """The buffered events; waits for some, `seconds` at most.

        Returns:
            Events in order, the tick last; `missed` first where some did not fit. Empty if there was none.
        """
        if not self._awake.is_set():
            try:
                async with asyncio.timeout(seconds):
                    await self._awake.wait()
            except TimeoutError:
                return []
        self._awake.clear()
        events: list[Told] = []
        if self.missed:
            events.append((None, ("missed", {"events": self.missed, "reason": "slow"})))
            self.missed = 0
        events += self._events
        self._events.clear()
        if self._tick is not None:
            events.append(self._tick)
            self._tick = None
        return events


class Hub:
    """All listeners, and the state that is compared for them.

    Args:
        server: the broker.
        sampler: whose looks are compared.
    """

    def __init__(self, server: Server, sampler: Sampler) -> None:
        self._server = server
        self._sampler = sampler
        self._known: _Known | None = None
        #: Held while that is taken: a later state must not take the place of one that a listener relies on.
        self._taking = asyncio.Lock()
        self._left = 0.0  # when the last listener did
        self._history = History()
        self.listeners: set[Listener] = set()
        self._shares: Shares[Listener] = Shares()

    def has_room(self, user: str | None) -> bool:
        """True if the user may have one more listener; the user with the most loses its oldest for it."""
        if len(self.listeners) < MAX_LISTENERS:
            return True
        other, oldest = self._shares.first_to_go()
        if self._shares.of(other) <= self._shares.of(user) + 1:
            return False
        oldest.end()
        self.discard(oldest)
        return True

    def add(self, listener: Listener, since: str | None = None) -> None:
        """Add a listener; :meth:`ready` follows before its stream begins.

        Args:
            listener: the one to add.
            since: id of the last event that it got on an earlier stream; None for only what comes.
        """
        self.listeners.add(listener)
        self._shares.add(listener.identity.user, listener)
        if since is not None:
            missed, events = self._history.since(since, listener.receives, listener.receives_all)
            if missed is not None:
                listener.put(None, ("missed", missed._asdict()))
            for event_id, event in events:
                listener.put(event_id, event)

    async def ready(self) -> None:
        """Return when no event from now on is missed: there is a state that the next look compares with."""
        async with self._taking:
            if self._known is None or not self._known.is_whole:
                before, self._known = self._known, await run(self._server, partial(_Known.taken, self._server, None))
                if before is not None:
                    self._known.go_on(before)

    def discard(self, listener: Listener) -> None:
        self.listeners.discard(listener)
        self._shares.discard(listener.identity.user, listener)
        self._left = time.monotonic()

    def end(self) -> None:
        for listener in self.listeners:
            listener.end()

    async def look(self) -> None:
        """Keep what changed since the last look, and send it to the listeners with a tick."""
        history = self._history
        async with self._taking:
            before = self._known
            is_whole = before is not None and before.is_whole
            if is_whole and not self.listeners and time.monotonic() - self._left >= LINGER_SECONDS:
                is_whole = False
                history.forget()
            if is_whole:
                self._known = await run(self._server, partial(_Known.taken, self._server, before))
            else:
                self._known = _Known(self._server)
        now = self._sampler.latest.time
        found: list[Event] = []
        if before is not None:
            found += self._known.since(before, self._sampler.changes)
            found += (("action", row) for row in self._server.audit.since(before.acted))
        events: list[Event] = [(name, {"time": now, **about}) for name, about in found]
        self._server.happenings.keep(events)
        if not is_whole:
            return
        history.add(events)
        totals = self._totals()
        for listener in self.listeners:
            for number, event in enumerate(filter(listener.receives, events), 1):
                listener.put(history.id_of(history.look, number), event)
            listener.tick(history.id_of(history.look), totals)

    def _totals(self) -> dict[str, Any]:
        sums, server = self._sampler.latest, self._server
        return {
            "time": sums.time,
            "depth": sums.depth,
            "in_flight": sums.in_flight,
            "scheduled": sums.scheduled,
            "bytes": sums.bytes,
            "in_rate": round(sums.in_rate, 1),
            "out_rate": round(sums.out_rate, 1),
            "dead_lettered": sums.dead_lettered,
            "expired": sums.expired,
            "destinations": sums.destinations,
            "consumers": sums.consumers,
            "connections": len(server.shard.services.connections),
            "connections_opened": server.links.accepted,
            "blocked": server.shard.services.blocked,
            "memory_bytes": server.memory.bytes or sums.bytes,
        }


class _Known:
    """The state that is compared, besides that of the sampler.

    Attributes:
        is_whole: connections, consumers, subscriptions and taps are in it.
    """

    __slots__ = (
        "acted", "attention", "blocked", "connections", "consumers", "full_disk", "is_whole", "subscriptions", "taps",
    )  # fmt: skip

    def __init__(self, server: Server, is_whole: bool = False) -> None:
        self.blocked = server.shard.services.blocked
        self.full_disk = server.full_disk
        self.attention = server.attention.listed
        self.acted = server.audit.last
        self.is_whole = is_whole
        self.connections = dict(server.shard.services.connections) if is_whole else {}
        self.consumers: dict[str, dict[int, Consumer]] = {}
        self.subscriptions: set[Subscription] = set()
        self.taps: set[Tap] = set()

    @classmethod
    def taken(cls, server: Server, before: _Known | None, now: int, budget: Budget) -> Task[Self]:
        """Collect the current state. Consumers of a connection that are the same as before are the same dict."""
        earlier = {} if before is None else before.consumers
        known = cls(server, is_whole=True)
        for connection in list(known.connections.values()):
            if budget.spent:
                yield
            budget.spend(1 + len(connection.deliveries.consumers))
            if connection.deliveries.consumers:
                there, retired = connection.deliveries.consumers, connection.deliveries.retired
                consumers = {n: c for n, c in there.items() if n not in retired}
                same = earlier.get(connection.member.id)
                known.consumers[connection.member.id] = same if same == consumers else consumers
        for space in list(server.shard.broker.namespaces.values()):
            if budget.spent:
                yield
            count = len(known.subscriptions) + len(known.taps)
            known.subscriptions.update(space.subscriptions)
            known.taps.update(space.taps)
            budget.spend(1 + len(known.subscriptions) + len(known.taps) - count)
        return known

    def go_on(self, before: _Known) -> None:
        """The next look compares what is always compared with this state."""
        self.blocked, self.full_disk, self.attention = before.blocked, before.full_disk, before.attention

    def forget(self) -> None:
        """Forget what is compared only while an event stream is open."""
        for told in (self.connections, self.consumers, self.subscriptions, self.taps):
            told.clear()

    def since(self, before: _Known, changes: Changes) -> Iterator[Event]:
        """The events that lead from `before` to this, with the changes that the sampler has found."""
        if before.is_whole and not self.is_whole:
            before.forget()
        created, deleted = map(_labels, (changes.created, changes.deleted))
        for identifier in self.connections.keys() - before.connections.keys():
            yield "connection.opened", _connection(self.connections[identifier])
        for namespace, address in sorted(created - deleted):
            yield "destination.created", {"namespace": namespace, "address": address}
        for subscription in self.subscriptions - before.subscriptions:
            yield "subscription.created", _subscription(subscription)
        for tap in self.taps - before.taps:
            yield "tap.created", _tap(tap)
        yield from _consumers("consumer.opened", before, self)
        yield from _consumers("consumer.closed", self, before)
        for destination in changes.paused:
            yield "destination.paused", _named(destination)
        for destination in changes.resumed:
            yield "destination.resumed", _named(destination)
        for destination, dead in changes.dead.items():
            yield "dead_lettered", {**_named(destination), "messages": dead}
        for tap in before.taps - self.taps:
            yield "tap.deleted", _tap(tap)
        for subscription in before.subscriptions - self.subscriptions:
            yield "subscription.deleted", _subscription(subscription)
        for namespace, address in sorted(deleted - created):
            yield "destination.deleted", {"namespace": namespace, "address": address}
        for identifier in before.connections.keys() - self.connections.keys():
            yield "connection.closed", _connection(before.connections[identifier])
        if self.blocked != before.blocked:
            yield ("flow.unblocked", {}) if self.blocked is None else ("flow.blocked", {"reason": self.blocked})
        if self.full_disk != before.full_disk:
            yield ("disk.has_room", {}) if self.full_disk is None else ("disk.full", {"reason": self.full_disk})
        yield from _findings("attention.ended", self, before)
        yield from _findings("attention.began", before, self)


def _findings(name: str, before: _Known, after: _Known) -> Iterator[Event]:
    for key in after.attention.keys() - before.attention.keys():
        finding = after.attention[key]
        rule = finding.rule
        yield name, {"rule": rule.name, "severity": rule.severity, "text": finding.text, **finding.about}


def _labels(destinations: Iterable[Queue | Topic]) -> set[tuple[str, str]]:
    return {(destination.place.namespace, destination.label) for destination in destinations}


def _consumers(name: str, before: _Known, after: _Known) -> Iterator[Event]:
    for identifier, consumers in after.consumers.items():
        known = before.consumers.get(identifier, {})
        if consumers is known or consumers.keys() == known.keys():
            continue
        for number in consumers.keys() - known.keys():
            consumer = consumers[number]
            place = consumer.source.place
            yield (
                name,
                {
                    "namespace": place.namespace,
                    "address": place.destination,
                    "connection": identifier,
                    "consumer": number,
                },
            )


def _connection(connection: Peer) -> dict[str, Any]:
    return {
        "namespace": connection.namespace.name,
        "connection": connection.member.id,
        "peer": connection.address,
        "user": connection.member.identity.user,
        "client_id": connection.member.client_id,
    }


def _subscription(subscription: Subscription) -> dict[str, Any]:
    return {
        **_named(subscription.topic),
        "client_id": subscription.client_id,
        "name": subscription.name,
        "durable": subscription.durable,
        "shared": subscription.shared,
    }


def _tap(tap: Tap) -> dict[str, Any]:
    return {**_named(tap.destination), "name": tap.name, "mode": tap.mode}


def _named(destination: Queue | Topic) -> dict[str, Any]:
    return {"namespace": destination.place.namespace, "address": destination.label}
