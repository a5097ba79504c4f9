"""What happens at the limits of namespaces: sends wait or are refused, one by one, as at a destination's.

What a namespace may still take is counted send by send (`domain/admission.py`); when that is used up, what
is there is added up here. Whether one that was full has room again is looked at a few times a second.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from sievemq_broker import logs
from sievemq_broker.domain.admission import MESSAGE_BYTES, UNLIMITED, Gate, Overfull
from sievemq_broker.domain.policy import FAIL
from sievemq_broker.server.watch.counts import queues_in
from sievemq_broker.server.watch.memory import COSTLY, RESUME, STEP
from sievemq_core.errors import ErrorCode, RequestError

if TYPE_CHECKING:
    from sievemq_broker.domain.broker import Broker
    from sievemq_broker.domain.namespace import Namespace

__all__ = ["NamespaceLimits"]

#: The longest share of the time that looking after those that are full may take.
_COST = 0.02

_RULES = ("max_messages", "max_bytes")

log = logs.get("server")


class NamespaceLimits:
    """Gives each namespace with limits its gate, and looks after those that are full.

    Args:
        broker: whose.
        clock: seconds, for how long adding up takes.
    """

    __slots__ = ("_broker", "_clock", "_full", "_next")

    def __init__(self, broker: Broker, clock: Callable[[], float] = time.perf_counter) -> None:
        self._broker = broker
        self._clock = clock
        self._full: dict[Namespace, _Keeper] = {}
        self._next = 0.0
        broker.limit_namespaces(self._gate_of)

    def look(self) -> None:
        """Have those that are full room again? Not if that was looked at lately enough."""
        if not self._full:
            return
        begin = self._clock()
        if begin < self._next:
            return
        for space, keeper in tuple(self._full.items()):
            if self._broker.namespaces.get(space.name) is not space or keeper.has_room():
                del self._full[space]
        self._next = begin + (self._clock() - begin) / _COST

    def _gate_of(self, space: Namespace) -> Gate | None:
        return None if space.policy is None else _Keeper(self._full, space, self._clock).gate


class _Keeper:
    """Adds up one namespace.

    Args:
        full: where to stand while it is full.
        space: the namespace; it has a policy.
        clock: seconds.
    """

    __slots__ = ("_clock", "_full", "_space", "gate")

    def __init__(self, full: dict[Namespace, _Keeper], space: Namespace, clock: Callable[[], float]) -> None:
        self._full = full
        self._space = space
        self._clock = clock
        self.gate = Gate(self.enter)

    def enter(self, messages: int, size: int) -> Overfull | None:
        """See :class:`~sievemq_broker.domain.admission.Gate`."""
        space, gate, policy = self._space, self.gate, self._space.policy
        assert policy is not None
        limits = (policy.max_messages, policy.max_bytes)
        for wanted, limit, rule in zip((messages, size), limits, _RULES, strict=True):
            if limit and wanted > limit:
                raise RequestError(
                    f"namespace {space.name!r} may hold {limit} ({rule}) and this alone has {wanted}; "
                    f"send less at once, or raise {rule} of the namespace",
                    ErrorCode.RESOURCE_ALLOCATION,
                    {"namespace": space.name, "limit": rule},
                )
        begin = self._clock()
        held, rooms = self._measure()
        costly = self._clock() - begin > COSTLY
        for wanted, has, room, limit, rule in zip((messages, size), held, rooms, limits, _RULES, strict=True):
            if wanted > room or (costly and limit and room < limit // STEP):
                log.warning("namespace.limit_reached", namespace=space.name, held=has, limit=limit, rule=rule)
                text = f"namespace {space.name!r} holds {has} and may hold {limit} ({rule}); consume or purge some"
                over = Overfull(text, policy.at_limit == FAIL)
                self._full[space] = self
                space.set_over(over)
                return over
        gate.allow(*rooms)
        gate.count(messages, size)
        return None

    def has_room(self) -> bool:
        """True if its senders go on: a tenth is free, and the first that waits has room."""
        space, policy = self._space, self._space.policy
        assert policy is not None
        assert space.over is not None
        _, rooms = self._measure()
        load = space.broker.rooms.load_of_first(space.over)
        for wanted, room, limit in zip(load, rooms, (policy.max_messages, policy.max_bytes), strict=True):
            if limit and (room < wanted or limit - room >= limit * RESUME):
                return False
        log.info("namespace.below_limit", namespace=space.name)
        space.set_over(None)
        return True

    def _measure(self) -> tuple[tuple[int, int], tuple[int, int]]:
        """Messages and bytes that are there, and that may come."""
        policy = self._space.policy
        assert policy is not None
        messages = size = 0
        for queue in queues_in(self._space):
            messages += queue.depth + len(queue.scheduled)
            size += queue.bytes
        size += MESSAGE_BYTES * messages
        rooms = (
            policy.max_messages - messages if policy.max_messages else UNLIMITED,
            policy.max_bytes - size if policy.max_bytes else UNLIMITED,
        )
        return (messages, size), rooms
