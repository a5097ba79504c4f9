"""The limits of namespaces: sends wait or are refused individually, as at the limits of a destination.

The room of a namespace is counted down by each send (`domain/admission.py`); when it is used up, a new sum is computed
here. Full namespaces are checked a few times a second."""

from __future__ import annotations

import time
from collections.abc import Callable

from sievemq_broker import logs
from sievemq_broker.domain.admission import MESSAGE_BYTES, UNLIMITED, Gate, Overfull
from sievemq_broker.domain.broker import Broker
from sievemq_broker.domain.namespace import Namespace
from sievemq_broker.domain.policy import FAIL
from sievemq_broker.domain.topic import Topic
from sievemq_broker.domain.work import TURN, Budget, Task, finish
from sievemq_broker.server.watch.counts import queues_at
from sievemq_broker.server.watch.memory import COSTLY, LAST_PART, RESUME
from sievemq_broker.server.watch.rounds import Round
from sievemq_core.errors import ErrorCode, RequestError

_RULES = ("max_messages", "max_bytes")

log = logs.get("server")


class NamespaceLimits:
    """Gives each namespace with limits its gate, and checks the full ones.

    Args:
        clock: seconds.
    """

    __slots__ = ("_broker", "_full", "_round")

    def __init__(self, broker: Broker, clock: Callable[[], float] = time.perf_counter) -> None:
        self._broker = broker
        self._full: dict[Namespace, _Keeper] = {}
        self._round = Round(broker.scheduler, self._look, clock)
        broker.limit_namespaces(self._gate_of)

    def look(self) -> None:
        """Check whether the full ones have room again, unless that was just done."""
        if self._full:
            self._round.look()

    def _look(self, now: int, budget: Budget) -> Task[int]:
        units = 0
        for space, keeper in tuple(self._full.items()):
            units += yield from keeper.add_up(now, budget)
            if self._full.get(space) is not keeper:
                continue  # its limits have changed meanwhile
            if self._broker.namespaces.get(space.name) is not space or keeper.has_room():
                self._full.pop(space, None)
        return units

    def _gate_of(self, space: Namespace) -> Gate | None:
        self._full.pop(space, None)
        return None if space.policy is None else _Keeper(self._full, space).gate


class _Keeper:
    """Sums up one namespace.

    Args:
        full: contains the namespace while it is full.
        space: the namespace; it has a policy.
    """

    __slots__ = ("_full", "_held", "_space", "_unsure", "gate")

    def __init__(self, full: dict[Namespace, _Keeper], space: Namespace) -> None:
        self._full = full
        self._space = space
        self.gate = Gate(self.enter)
        #: Messages and bytes of the last sum.
        self._held = 0, 0
        #: Senders wait until the sum is known.
        self._unsure = False

    def enter(self, messages: int, size: int) -> Overfull | None:
        """See :class:`~sievemq_broker.domain.admission.Gate`."""
        space, gate, policy = self._space, self.gate, self._space.policy
        assert policy is not None
        limits = (policy.max_messages, policy.max_bytes)
        for wanted, limit, rule in zip((messages, size), limits, _RULES, strict=True):
            if limit and wanted > limit:
                raise RequestError(
                    f"namespace {space.name!r} may hold {limit} ({rule}) and this alone has {wanted}; "
                    f"send less at a time, or raise {rule} in {policy.where}",
                    ErrorCode.RESOURCE_ALLOCATION,
                    {"namespace": space.name, "limit": rule, "rule": policy.pattern},
                )
        if _is_large(space):
            self._unsure = True
            self._full[space] = self
            over = Overfull(f"what namespace {space.name!r} holds is being added up", refuses=False, limit=_RULES[0])
            space.set_over(over)
            return over
        costly = finish(self.add_up, 0) > COSTLY
        rooms = self._rooms()
        for index, (wanted, room, limit) in enumerate(zip((messages, size), rooms, limits, strict=True)):
            if wanted > room or (costly and limit and room < limit // LAST_PART):
                self._full[space] = self
                return self._set_over(index)
        gate.allow(*rooms)
        gate.count(messages, size)
        return None

    def _set_over(self, index: int) -> Overfull:
        """The namespace has reached one of its limits."""
        space, policy = self._space, self._space.policy
        assert policy is not None
        rule, limit, has = _RULES[index], (policy.max_messages, policy.max_bytes)[index], self._held[index]
        log.warning("namespace.limit_reached", namespace=space.name, held=has, limit=limit, rule=rule)
        text = (
            f"namespace {space.name!r} holds {has} and may hold {limit} ({rule} in {policy.where}); "
            "consume or purge some"
        )
        over = Overfull(text, policy.at_limit == FAIL, rule)
        space.set_over(over)
        return over

    def has_room(self) -> bool:
        """True if its senders may go on: a tenth is free, and the first blocked sender has room. Called after a new
        sum."""
        space, policy = self._space, self._space.policy
        assert policy is not None
        assert space.over is not None
        rooms = self._rooms()
        load = space.broker.rooms.load_of_first(space.over)
        unsure, self._unsure = self._unsure, False
        limits = policy.max_messages, policy.max_bytes
        for index, (wanted, room, limit) in enumerate(zip(load, rooms, limits, strict=True)):
            enough = room >= limit // LAST_PART if unsure else limit - room < limit * RESUME
            if limit and (room < wanted or room <= 0 or not enough):
                if unsure:
                    self._set_over(index)
                return False
        if not unsure:
            log.info("namespace.below_limit", namespace=space.name)
        self.gate.allow(*rooms)
        space.set_over(None)
        return True

    def add_up(self, now: int, budget: Budget) -> Task[int]:
        """Compute the sum. Returns the units that it took."""
        messages = size = units = 0
        for destination in tuple(self._space.destinations.values()):
            if isinstance(destination, Topic):  # it may have no subscriptions
                if budget.spent:
                    yield
                budget.spend(1)
                units += 1
            for queue in queues_at(destination):
                if budget.spent:
                    yield
                budget.spend(1)
                units += 1
                messages += queue.depth + len(queue.scheduled)
                size += queue.bytes
        self._held = messages, size + MESSAGE_BYTES * messages
        return units

    def _rooms(self) -> tuple[int, int]:
        """The room for messages and bytes."""
        policy = self._space.policy
        assert policy is not None
        messages, size = self._held
        return (
            policy.max_messages - messages if policy.max_messages else UNLIMITED,
            policy.max_bytes - size if policy.max_bytes else UNLIMITED,
        )


def _is_large(space: Namespace) -> bool:
    """True if a namespace has more queues than one turn sums up."""
    left = TURN - len(space.destinations)
    if left < 0:
        return True
    topics = (each for each in space.destinations.values() if isinstance(each, Topic))
    return sum([len(topic.subscriptions) for topic in topics]) > left
