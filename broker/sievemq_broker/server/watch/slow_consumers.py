"""Consumers that hold delivered messages and do not acknowledge them while more wait."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Final

from sievemq_broker import logs
from sievemq_broker.clock import Clock
from sievemq_broker.domain.consumer import Consumer
from sievemq_broker.domain.policy import CLOSE
from sievemq_broker.domain.work import Budget, Scheduler, Task
from sievemq_broker.server.watch.rounds import Round
from sievemq_broker.session.peer import Peer
from sievemq_core.counted import counted
from sievemq_core.errors import ErrorCode

#: Units of visiting a consumer. With very many, their queues and views are not in the processor's cache.
_VISIT_UNITS: Final = 2

log = logs.get("server")


class SlowConsumers:
    """Checks all consumers, as often as their number allows, and has them note how long they hold messages.

    A consumer is slow when it can take nothing more (its credit is used up, or its connection does not read), holds
    messages, has neither acknowledged nor received one for the time in its destination's rule, and messages wait that
    it could receive. It remains slow until it makes progress.

    Args:
        scheduler: carries the rounds out.
        clock: the broker's time.
        seconds: when the next round may begin is a matter of this clock.

    Attributes:
        slow: those that are slow now, and since when they have stood still; ms since 1970.
    """

    __slots__ = ("_clock", "_connections", "_round", "_watched", "slow")

    def __init__(
        self,
        connections: Mapping[str, Peer],
        scheduler: Scheduler,
        clock: Clock,
        seconds: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._connections = connections
        self._clock = clock
        self._round = Round(scheduler, self._look, seconds)
        #: Its progress when it was first found to stand still, and the time of that.
        self._watched: dict[Consumer, tuple[tuple[int, int], int]] = {}
        self.slow: dict[Consumer, int] = {}

    def look(self) -> None:
        self._round.look()

    def _look(self, now: int, budget: Budget) -> Task[int]:
        """Check every consumer once. Returns the units that it took."""
        units = 0
        for consumer in [consumer for consumer in self._watched if not consumer.open]:
            self._forget(consumer)
        for connection_id in tuple(self._connections):
            if budget.spent:
                yield
            budget.spend(1)
            units += 1
            connection = self._connections.get(connection_id)
            if connection is None:
                continue
            for consumer in tuple(connection.deliveries.consumers.values()):
                if budget.spent:
                    yield
                budget.spend(_VISIT_UNITS)
                units += _VISIT_UNITS
                self._look_at(connection, consumer, self._clock.now())
        return units

    def _look_at(self, connection: Peer, consumer: Consumer, now: int) -> None:
        consumer.look(now)
        queue = consumer.source
        policy = queue.policy
        if (
            not policy.slow_consumer_seconds
            or not queue.depth
            or queue.paused
            or not consumer.open
            or consumer.can_take()
            or not consumer.unacknowledged
            or consumer.view.first() is None
        ):
            self._forget(consumer)
            return
        done = consumer.tag, consumer.acknowledged
        watched = self._watched.get(consumer)
        if watched is None or watched[0] != done:
            self._forget(consumer)
            self._watched[consumer] = done, now
            return
        if consumer in self.slow or now - watched[1] < policy.slow_consumer_seconds * 1000:
            return
        self.slow[consumer] = watched[1]
        closes = policy.slow_consumer == CLOSE
        log.warning(
            "consumer.slow",
            destination=queue.place.label,
            peer=connection.address,
            client_id=connection.member.client_id,
            holds=consumer.unacknowledged,
            waiting=queue.depth,
            seconds=(now - watched[1]) // 1000,
            note="its connection is closed" if closes else "the rule slow_consumer is warn",
        )
        if closes:
            text = (
                f"consumer {consumer.id} of {queue.place.label} has held {counted(consumer.unacknowledged, 'message')} "
                f"for {policy.slow_consumer_seconds} s without a sign while {queue.depth} wait (rule slow_consumer)"
            )
            connection.close(ErrorCode.CLOSED_BY_ADMINISTRATOR, text, now)
            self._forget(consumer)

    def clock_jumped(self, by: int) -> None:
        """The machine's clock was set by this many ms: idle times keep their length."""
        self._watched = {consumer: (done, since + by) for consumer, (done, since) in self._watched.items()}
        self.slow = {consumer: since + by for consumer, since in self.slow.items()}
        for connection in self._connections.values():
            for consumer in connection.deliveries.consumers.values():
                consumer.clock_jumped(by)

    def _forget(self, consumer: Consumer) -> None:
        self._watched.pop(consumer, None)
        self.slow.pop(consumer, None)
