"""What each namespace with limits holds, and what happens at them."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from sievemq_broker import logs
from sievemq_broker.domain.policy import FAIL
from sievemq_broker.domain.room import Overfull
from sievemq_broker.server.counts import queues_in
from sievemq_broker.server.memory import OVERHEAD_BYTES, RESUME

if TYPE_CHECKING:
    from sievemq_broker.domain.broker import Broker
    from sievemq_broker.domain.namespace import Namespace

__all__ = ["NamespaceLimits"]

#: The longest share of the time that adding up may take.
_COST = 0.02

log = logs.get("server")


class NamespaceLimits:
    """Adds up a few times a second what namespaces with limits hold.

    Args:
        broker: whose.
        clock: seconds, for how long adding up takes.
    """

    __slots__ = ("_any", "_broker", "_clock", "_next")

    def __init__(self, broker: Broker, clock: Callable[[], float] = time.perf_counter) -> None:
        self._broker = broker
        self._any = bool(broker.settings.namespaces)
        self._clock = clock
        self._next = 0.0

    def look(self) -> None:
        """Measure, unless that was done lately enough or nobody has a limit; hold senders back, or let them go on."""
        if not self._any:
            return
        begin = self._clock()
        if begin < self._next:
            return
        for space in tuple(self._broker.namespaces.values()):
            if space.policy is not None:
                _look_at(space)
        self._next = begin + (self._clock() - begin) / _COST


def _look_at(space: Namespace) -> None:
    policy = space.policy
    assert policy is not None
    size = messages = 0
    for queue in queues_in(space):
        held = queue.depth + len(queue.scheduled)
        messages += held
        size += queue.bytes + OVERHEAD_BYTES * held
    share = 1.0 if space.over is None else RESUME
    for held, limit, what in ((size, policy.max_bytes, "max_bytes"), (messages, policy.max_messages, "max_messages")):
        if limit and held >= limit * share:
            if space.over is None:
                log.warning("namespace.limit_reached", namespace=space.name, held=held, limit=limit, rule=what)
                text = f"namespace {space.name!r} holds {held} and may hold {limit} ({what}); consume or purge some"
                space.set_over(Overfull(text, policy.at_limit == FAIL))
            return
    if space.over is not None:
        log.info("namespace.below_limit", namespace=space.name)
        space.set_over(None)
