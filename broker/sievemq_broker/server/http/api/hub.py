"""Who listens to events, and what they are told: a tick with totals each second, and what changed since the last.

Changes are found by comparing two looks a second apart, so they cost the data path nothing, and nobody listening costs
nothing at all. What comes and goes between two looks shows only in the tick's counters.

Each listener has a buffer of its own. A slow one finds only the latest tick, and where its buffer was full the number
of events it missed.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sievemq_broker.domain.queue import Queue
    from sievemq_broker.domain.topic import Topic
    from sievemq_broker.server.http.api.series import Sampler
    from sievemq_broker.server.server import Server
    from sievemq_broker.session.connection import BrokerConnection
    from sievemq_broker.session.rights import Identity

__all__ = ["BUFFER", "MAX_LISTENERS", "Event", "Hub", "Listener"]

#: Events that a listener may have waiting.
BUFFER = 500

#: Listeners at a time.
MAX_LISTENERS = 64

Event = tuple[str, dict[str, Any]]
"""Its name and what it says."""


class Listener:
    """One open stream.

    Args:
        identity: who listens; what they may not view is not told.
        namespace: only events of this one; None for all.
    """

    def __init__(self, identity: Identity, namespace: str | None) -> None:
        self.identity = identity
        self.namespace = namespace
        self.missed = 0
        self.ended = False
        self._everything = identity.may("view", "*", "*")  # totals tell of what others do
        self._events: deque[Event] = deque()
        self._tick: Event | None = None
        self._awake = asyncio.Event()

    def tell(self, event: Event) -> None:
        """Put an event into the buffer, or count it as missed."""
        about = event[1]
        namespace = about.get("namespace")
        if namespace is not None:
            if self.namespace not in (None, namespace):
                return
            address = about.get("address")
            if event[0].startswith("connection."):
                address = "*"  # who is there is said to those who may see the list of connections
            rights = self.identity.rights
            if not rights.enters(namespace) or (
                address is not None and not self.identity.may("view", namespace, address)
            ):
                return
        elif event[0] == "tick":
            self._tick = (
                event if self._everything else ("tick", {name: about.get(name) for name in ("time", "blocked")})
            )
            self._awake.set()
            return
        if len(self._events) >= BUFFER:
            self.missed += 1
        else:
            self._events.append(event)
        self._awake.set()

    def end(self) -> None:
        """No more events."""
        self.ended = True
        self._awake.set()

    async def next(self, seconds: float) -> list[Event]:
        """What there is to tell; waits for it, `seconds` at most.

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
        events: list[Event] = [("missed", {"events": self.missed})] if self.missed else []
        self.missed = 0
        events += self._events
        self._events.clear()
        if self._tick is not None:
            events.append(self._tick)
            self._tick = None
        return events


class Hub:
    """All listeners, and what is compared for them.

    Args:
        server: the broker.
        sampler: whose looks are compared.
    """

    def __init__(self, server: Server, sampler: Sampler) -> None:
        self._server = server
        self._sampler = sampler
        self._known: _Known | None = None
        self.listeners: set[Listener] = set()
        sampler.on_look = self.look

    def add(self, listener: Listener) -> None:
        """Begin to tell."""
        self.listeners.add(listener)
        if self._known is None:
            self._known = _Known(self._server, self._sampler)

    def discard(self, listener: Listener) -> None:
        """No more."""
        self.listeners.discard(listener)
        if not self.listeners:
            self._known = None

    def end(self) -> None:
        """The broker ends: every stream does."""
        for listener in self.listeners:
            listener.end()

    def look(self) -> None:
        """Tell what changed since the last look, then the tick."""
        if not self.listeners or self._known is None:
            return
        known, self._known = self._known, _Known(self._server, self._sampler)
        for event in self._known.since(known):
            for listener in self.listeners:
                listener.tell(event)
        tick = ("tick", self._totals())
        for listener in self.listeners:
            listener.tell(tick)

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
            "connections": len(server.services.connections),
            "connections_opened": server.links.accepted,
            "blocked": server.services.blocked,
            "memory_bytes": server.memory.bytes or sums.bytes,
        }


class _Known:
    """What is compared: taken at one moment, by copying tables that are there."""

    __slots__ = ("blocked", "connections", "consumers", "dead", "destinations", "paused")

    def __init__(self, server: Server, sampler: Sampler) -> None:
        self.blocked = server.services.blocked
        self.connections = dict(server.services.connections)
        self.consumers = {
            identifier: {n: c for n, c in connection.consumers.items() if n not in connection.retired}
            for identifier, connection in self.connections.items()
            if connection.consumers
        }
        self.destinations = {name: set(space.destinations) for name, space in server.broker.namespaces.items()}
        self.paused = sampler.paused
        self.dead = sampler.dead

    def since(self, before: _Known) -> Iterator[Event]:
        """The events that lead from `before` to this."""
        for identifier in self.connections.keys() - before.connections.keys():
            yield "connection.opened", _connection(self.connections[identifier])
        yield from _added("destination.created", before.destinations, self.destinations)
        yield from _consumers("consumer.opened", before, self)
        yield from _consumers("consumer.closed", self, before)
        for destination in self.paused - before.paused:
            yield "destination.paused", _named(destination)
        for destination in before.paused - self.paused:
            if not _deleted(destination):
                yield "destination.resumed", _named(destination)
        for destination, dead in self.dead.items():
            more = dead - before.dead.get(destination, 0)
            if more > 0:
                yield "dead_lettered", {**_named(destination), "messages": more}
        yield from _added("destination.deleted", self.destinations, before.destinations)
        for identifier in before.connections.keys() - self.connections.keys():
            yield "connection.closed", _connection(before.connections[identifier])
        if self.blocked != before.blocked:
            yield ("flow.unblocked", {}) if self.blocked is None else ("flow.blocked", {"reason": self.blocked})


def _added(name: str, before: dict[str, set[str]], after: dict[str, set[str]]) -> Iterator[Event]:
    for namespace, addresses in after.items():
        for address in sorted(addresses - before.get(namespace, set())):
            yield name, {"namespace": namespace, "address": address}


def _consumers(name: str, before: _Known, after: _Known) -> Iterator[Event]:
    for identifier, consumers in after.consumers.items():
        known = before.consumers.get(identifier, {})
        if consumers.keys() == known.keys():
            continue
        for number in consumers.keys() - known.keys():
            consumer = consumers[number]
            subscription = consumer.subscription
            label = consumer.queue.label if subscription is None else subscription.topic.label
            namespace = consumer.queue.namespace.name
            yield name, {"namespace": namespace, "address": label, "connection": identifier, "consumer": number}


def _connection(connection: BrokerConnection) -> dict[str, Any]:
    return {
        "namespace": connection.namespace.name,
        "connection": connection.id,
        "peer": connection.peer,
        "user": connection.identity.user,
        "client_id": connection.client_id,
    }


def _deleted(destination: Queue | Topic) -> bool:
    return destination.namespace.destinations.get(destination.label) is not destination


def _named(destination: Queue | Topic) -> dict[str, Any]:
    return {"namespace": destination.namespace.name, "address": destination.label}
