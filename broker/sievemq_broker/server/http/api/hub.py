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

from sievemq_broker.domain.queue import Queue
from sievemq_broker.domain.topic import Topic

if TYPE_CHECKING:
    from sievemq_broker.server.http.api.series import Sampler
    from sievemq_broker.server.server import Server
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
            rights = self.identity.rights
            if not rights.enters(namespace) or (
                address is not None and not self.identity.may("view", namespace, address)
            ):
                return
        elif event[0] == "tick":
            self._tick = event
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
            self._known = _Known(self._server)

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
        known, self._known = self._known, _Known(self._server)
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
    """What is compared: taken at one moment."""

    __slots__ = ("blocked", "connections", "consumers", "dead", "destinations", "paused")

    def __init__(self, server: Server) -> None:
        self.blocked = server.services.blocked
        self.connections: dict[str, dict[str, Any]] = {}
        self.consumers: dict[tuple[str, int], dict[str, Any]] = {}
        for connection in server.services.connections.values():
            space = connection.namespace.name
            self.connections[connection.id] = {
                "namespace": space,
                "connection": connection.id,
                "peer": connection.peer,
                "user": connection.identity.user,
                "client_id": connection.client_id,
            }
            for number, consumer in connection.consumers.items():
                if number not in connection.retired:
                    subscription = consumer.subscription
                    self.consumers[connection.id, number] = {
                        "namespace": space,
                        "address": consumer.queue.label if subscription is None else subscription.topic.label,
                        "connection": connection.id,
                        "consumer": number,
                    }
        self.destinations: set[tuple[str, str]] = set()
        self.paused: set[tuple[str, str]] = set()
        self.dead: dict[tuple[str, str], int] = {}
        for name, space_ in server.broker.namespaces.items():
            for address, destination in space_.destinations.items():
                key = (name, address)
                self.destinations.add(key)
                if destination.paused:
                    self.paused.add(key)
                dead = _dead(destination)
                if dead:
                    self.dead[key] = dead

    def since(self, before: _Known) -> Iterator[Event]:
        """The events that lead from `before` to this."""
        for identifier in self.connections.keys() - before.connections.keys():
            yield "connection.opened", self.connections[identifier]
        for key in sorted(self.destinations - before.destinations):
            yield "destination.created", _named(key)
        for number in self.consumers.keys() - before.consumers.keys():
            yield "consumer.opened", self.consumers[number]
        for number in before.consumers.keys() - self.consumers.keys():
            yield "consumer.closed", before.consumers[number]
        for key in sorted(self.paused - before.paused):
            yield "destination.paused", _named(key)
        for key in sorted((before.paused - self.paused) & self.destinations):
            yield "destination.resumed", _named(key)
        for key, dead in self.dead.items():
            more = dead - before.dead.get(key, 0)
            if more > 0:
                yield "dead_lettered", {**_named(key), "messages": more}
        for key in sorted(before.destinations - self.destinations):
            yield "destination.deleted", _named(key)
        for identifier in before.connections.keys() - self.connections.keys():
            yield "connection.closed", before.connections[identifier]
        if self.blocked != before.blocked:
            yield ("flow.unblocked", {}) if self.blocked is None else ("flow.blocked", {"reason": self.blocked})


def _dead(destination: Queue | Topic) -> int:
    if isinstance(destination, Topic):
        return sum(subscription.queue.dead_lettered for subscription in destination.subscriptions)
    return destination.dead_lettered


def _named(key: tuple[str, str]) -> dict[str, Any]:
    return {"namespace": key[0], "address": key[1]}
