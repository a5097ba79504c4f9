"""Connections that a test holds back, stops or slows down, until it lets them go on."""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from types import TracebackType
from typing import TYPE_CHECKING, Self

from sievemq_broker.domain.broker import Broker
from sievemq_testing.watched import WatchedConnection, WatchedLink, WatchedOutbox, name_of

if TYPE_CHECKING:
    from sievemq_testing.broker import TestBroker

__all__ = ["Held", "Paused", "Slow"]


class Held:
    """Commands that were held back, of several connections; see :meth:`Faults.hold`."""

    def __init__(self, broker: TestBroker, connections: list[WatchedConnection]) -> None:
        self._broker = broker
        self._connections = connections

    @property
    def commands(self) -> list[str]:
        """What waits, connection by connection, such as ``send``."""
        return self._broker.call(
            lambda _: [name_of(command) for connection in self._connections for command in connection.held or ()]
        )

    def release(self, *, reverse: bool = False, seed: int | None = None) -> int:
        """Let everything on. Each connection's own order stays; it is the order across connections that changes.

        Args:
            reverse: the connection that came last goes first.
            seed: interleave the connections at random, the same way for the same seed.

        Returns:
            How many commands went on.
        """
        return self._broker.call(self._release, reverse, seed)

    def _release(self, _: Broker, reverse: bool, seed: int | None) -> int:
        queues = [(connection, connection.held or []) for connection in self._connections]
        for connection, _commands in queues:
            connection.held = None
        if reverse:
            queues.reverse()
        now = self._broker.server.clock.now()
        order: list[int] = [index for index, (_, commands) in enumerate(queues) for _ in commands]
        if seed is not None:
            random.Random(seed).shuffle(order)  # noqa: S311  repeatable is the point
        positions = [0] * len(queues)
        for index in order:
            connection, commands = queues[index]
            connection.let_on(commands[positions[index]], now)
            positions[index] += 1
        return len(order)


class _UntilResumed(ABC):
    """A context manager that resumes at the end of the block."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.resume()

    @abstractmethod
    def resume(self) -> None:
        """As before the block."""


class Paused(_UntilResumed):
    """Connections that stand still."""

    def __init__(self, broker: TestBroker, links: list[WatchedLink]) -> None:
        self._broker = broker
        self._links = links

    def resume(self) -> None:
        """Let pass what has gathered, then everything."""

        def resume(_: Broker) -> None:
            for link in self._links:
                if link.standing:
                    link.go_on()

        self._broker.call(resume)


class Slow(_UntilResumed):
    """Connections that nothing is delivered to."""

    def __init__(self, broker: TestBroker, connections: list[WatchedConnection]) -> None:
        self._broker = broker
        self._connections = connections

    def let(self, deliveries: int) -> None:
        """Let pass so many deliveries to each connection, now or when there are some."""
        self._set(deliveries)

    def resume(self) -> None:
        """Deliver as usual."""
        self._set(None)

    def _set(self, deliveries: int | None) -> None:
        def set_allowance(_: Broker) -> None:
            now = self._broker.server.clock.now()
            for connection in self._connections:
                if not connection.closing:
                    outbox = connection.outbox
                    assert isinstance(outbox, WatchedOutbox)
                    outbox.allowance = deliveries
                    connection.resume(now)
                    connection.nudge()

        self._broker.call(set_allowance)
