"""The consumers of a connection, and which of them deliveries are for."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Final

from sievemq._engine.consumer import EngineConsumer
from sievemq.destinations import TemporaryQueue

#: The most closed consumers whose last acknowledgement is remembered.
_MAX_CLOSED: Final = 1_000


class Deliveries:
    """The consumers of one connection.

    Args:
        average_bytes: returns the size of a command that arrived of late.
        received_bytes: returns how many bytes have arrived.

    Attributes:
        started: they flow (CON-15).
        consumers: all that are open or about to be opened, by id.
        routes: consumers that deliveries are for; not those that wait for the answer to RECOVER or ROLLBACK.
        closed: the consumers that were closed last, of sessions that acknowledge by themselves: by id, the last tag
            that the application has seen, and the last that was acknowledged. The broker may not know of it when
            the connection is lost.
        next_id: gives the next consumer its id.
        last_id: of the last consumer.
    """

    __slots__ = (
        "_temporary", "average_bytes", "closed", "consumers", "last_id", "next_id", "received_bytes", "routes",
        "started",
    )  # fmt: skip

    def __init__(self, average_bytes: Callable[[], int], received_bytes: Callable[[], int]) -> None:
        self.average_bytes = average_bytes
        self.received_bytes = received_bytes
        self.started = False
        self.consumers: dict[int, EngineConsumer] = {}
        self.routes: dict[int, EngineConsumer] = {}
        self.closed: dict[int, tuple[int, int]] = {}
        self.next_id: Callable[[], int] = itertools.count(1).__next__
        self.last_id = 0
        #: The consumers of temporary queues, by address: those of the connection are all that there are (TMP-03).
        self._temporary: dict[str, list[EngineConsumer]] = {}

    def flow(self, started: bool) -> None:
        self.started = started

    def begin(self, consumer: EngineConsumer) -> None:
        self.last_id = consumer.id
        self.consumers[consumer.id] = self.routes[consumer.id] = consumer
        if isinstance(consumer.selection.destination, TemporaryQueue):
            sharing = self._temporary.setdefault(consumer.selection.address, [])
            sharing.append(consumer)
            for each in sharing:
                each.set_lone(len(sharing) == 1)

    def forget(self, consumer: EngineConsumer) -> None:
        if consumer.acknowledges_itself and consumer.done:
            self.closed[consumer.id] = consumer.handed, consumer.done
            if len(self.closed) > _MAX_CLOSED:
                del self.closed[next(iter(self.closed))]
        self.consumers.pop(consumer.id, None)
        self.routes.pop(consumer.id, None)
        if isinstance(consumer.selection.destination, TemporaryQueue):
            self._leave_temporary(consumer)

    def _leave_temporary(self, consumer: EngineConsumer) -> None:
        address = consumer.selection.address
        left = [each for each in self._temporary.pop(address, ()) if each is not consumer]
        if left:
            self._temporary[address] = left
        if len(left) == 1:
            left[0].set_lone(True)

    def ignore(self, consumer: EngineConsumer) -> None:
        """Drop what arrives for a consumer until :meth:`stop_ignoring`."""
        self.routes.pop(consumer.id, None)

    def stop_ignoring(self, consumer: EngineConsumer) -> None:
        if consumer.id in self.consumers:
            self.routes[consumer.id] = consumer

    def wake(self) -> None:
        """Wake everything that waits for a message: its time may be over."""
        for consumer in tuple(self.consumers.values()):
            consumer.wake()

    def end(self) -> None:
        self.routes.clear()
        for consumer in tuple(self.consumers.values()):
            consumer.end()
        self.consumers.clear()
