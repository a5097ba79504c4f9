"""A batch that is too large for one turn of the loop: added in slices, and seen all at once.

    begin ─► hold every queue it goes to ─► slice ─► slice ─► … ─► release: consumers are served, who waited is told

While a queue is held nothing is delivered from it, and whoever looks into it waits: so nobody sees a part of the batch,
and what is sent meanwhile, by others, stands between its messages without harm. A journal gathers everything in one
batch until it is done, so a broker that dies has kept all of it or nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, TypeAlias

from sievemq_broker.domain.overrides import overridden
from sievemq_broker.domain.queue import Queue
from sievemq_broker.domain.steps import SLICE
from sievemq_core.message.envelope import Envelope

if TYPE_CHECKING:
    from sievemq_broker.domain.namespace import Namespace
    from sievemq_broker.domain.topic import Topic

__all__ = ["AT_ONCE", "Publishing", "Told"]

#: Messages that are added within one turn without further ado.
AT_ONCE: Final = SLICE

Told: TypeAlias = Callable[[int], None]
"""Called when it is over, with the time (ms epoch)."""


class Publishing:
    """One batch on its way. At most one of a namespace: the next one waits until it is over.

    Args:
        namespace: where it goes.
        sends: address and message, in order; consumed.
        destinations: where each address leads; they have no limits.
        connection: id of the sender's connection, for no_local.

    Attributes:
        error: a fault of the broker that ended it early.
    """

    __slots__ = ("_connection", "_destinations", "_held", "_left", "_namespace", "_told", "error")

    def __init__(
        self,
        namespace: Namespace,
        sends: list[tuple[str, Envelope]],
        destinations: dict[str, Queue | Topic],
        connection: str | None,
    ) -> None:
        self._namespace = namespace
        sends.reverse()
        self._left = sends  # the next one last: taken from there they are freed one by one, not in one long turn
        self._destinations = destinations
        self._connection = connection
        self._told: list[Told] = []
        self.error: Exception | None = None
        #: Who subscribes from now on gets nothing of it.
        self._held: dict[Queue, None] = {}
        for destination in dict.fromkeys(destinations.values()):
            if isinstance(destination, Queue):
                self._held[destination] = None
            else:
                self._held |= dict.fromkeys(subscription.queue for subscription in destination.subscriptions)
        for queue in self._held:
            queue.hold()
        journal = namespace.broker.journal
        if journal is not None:
            journal.holds += 1

    @property
    def added(self) -> bool:
        """True once all of it is there for everybody."""
        return not self._left

    def then(self, told: Told) -> None:
        """Call this when it is over; in the order in which it was asked for."""
        self._told.append(told)

    def work(self, budget: int, now: int) -> int:
        """Add so many messages; at the end let consumers have them.

        Args:
            budget: messages, each counted once for every queue that it goes to.
            now: ms epoch.

        Returns:
            What was done of the budget.
        """
        left, destinations, held, done = self._left, self._destinations, self._held, 0
        try:
            while left and done < budget:
                address, envelope = left.pop()
                destination = destinations[address]
                if destination.policy.overrides:
                    envelope = overridden(destination.policy, envelope, now)
                if isinstance(destination, Queue):
                    queues = [destination]
                else:
                    destination.take(envelope, now)
                    queues = destination.matching(envelope, self._connection)
                    done += 1
                for queue in queues:
                    if queue in held and not queue.deleted:
                        queue.accept(envelope, now)
                        done += 1
        except Exception as error:
            self.error = error
            left.clear()  # the queues must be served all the same
            self._release(now)
            raise
        if not left:
            self._release(now)
        return done

    def tell(self, now: int) -> None:
        """It is over. In a turn of its own: what comes next may be another batch, and a journal must be written in
        between."""
        self._namespace.publishing = None
        for told in self._told:
            told(now)

    def finish(self, now: int) -> None:
        """Carry it to its end at once: the broker ends."""
        while self._left:
            self.work(SLICE, now)
        self.tell(now)

    def _release(self, now: int) -> None:
        journal = self._namespace.broker.journal
        if journal is not None:
            journal.holds -= 1
        for queue in self._held:
            queue.release(now)
