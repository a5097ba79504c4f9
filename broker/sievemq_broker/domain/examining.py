"""What must be done before messages are sent, where that takes long. Costly selectors are evaluated for them, and those
for very many subscriptions wait until the broker may deliver them (:mod:`.fan_out`).

A message has no effect until all selectors are evaluated: then the broker accepts or refuses it and chooses its
receivers, in one step. Later commands of its sender wait.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from sievemq_broker.domain.overrides import overridden
from sievemq_broker.domain.publishing import Sends, Total, Weighing, add_to
from sievemq_broker.domain.queue import Queue
from sievemq_broker.domain.topic import Topic
from sievemq_broker.domain.work import Budget, Job, Task
from sievemq_broker.matching.asking import AT_ONCE, LISTED

#: Groups of subscriptions whose queues are gathered in one go, and for one unit: each is somewhere else in memory.
WORKED = 800
WORKED_PER_UNIT = 4

#: Selectors of a message whose cost is estimated for one unit.
WEIGHED = 8


class Occupied(Protocol):
    """A broker."""

    @property
    def busy(self) -> Job[Any] | None:
        """The task that must be over before another message may be delivered to very many subscriptions; None if that
        may begin."""


class _Worker(Protocol):
    def work(self, budget: int) -> int: ...


def examine(
    sends: Sends,
    costly: Mapping[str, Queue | Topic],
    broker: Occupied | None,
    weighed: Mapping[str, Weighing],
    now: int,
    budget: Budget,
) -> Task[int]:
    """Evaluate costly selectors for messages of a sender. Returns the time.

    Args:
        sends: a message is replaced by what the administrator's rules make of it (D-21): selectors are evaluated for
            that, and limits count it.
        costly: the destinations whose selectors may take long, or whose subscriptions are very many, by address.
        broker: theirs, if they wait until it may deliver them to very many subscriptions.
        weighed: by address, what finds out how much of a batch each subscription of a topic gets.
        now: ms epoch.
    """
    totals: dict[str, Total] = {}
    for place, (address, envelope) in enumerate(sends):
        if budget.spent:
            now = yield
        budget.spend(1)
        destination = costly.get(address)
        if destination is None:
            continue
        if destination.policy.overrides:
            envelope = overridden(destination.policy, envelope, now)
            sends.each[place] = address, envelope
            size = len(envelope.packed)
            add_to(totals, address, 1, size, size)
        index = destination.index
        budget.spend(min(index.most, AT_ONCE) // WEIGHED + index.most // LISTED)
        answers = index.asking(envelope)
        if answers is not None:
            while answers.left:
                if budget.spent:
                    now = yield
                else:
                    budget.spend(answers.ask(budget.left))
            gathering = destination.gathering(answers)  # type: ignore[arg-type]
            if gathering is not None:
                now = yield from _through(gathering, now, budget)
        weighing = weighed.get(address)
        if weighing is not None:
            weighing.take(envelope)
            now = yield from _through(weighing, now, budget)
    sends.totals.update(totals)
    if any(destination.large for destination in costly.values()):
        while broker is not None and (busy := broker.busy) is not None:
            now = yield busy
    return now


def _through(worker: _Worker, now: int, budget: Budget) -> Task[int]:
    """Let something go through all groups of a topic."""
    done = WORKED
    while done == WORKED:
        if budget.spent:
            now = yield
            continue
        done = worker.work(WORKED)
        budget.spend(1 + done // WORKED_PER_UNIT)
    return now
