"""Messages that cannot be sent at once. Costly selectors are evaluated for them in slices before, and messages for very
many subscriptions wait until the broker delivers them in slices (:mod:`.fan_out`).

A message has no effect until all selectors are evaluated: then the broker accepts or refuses it and chooses its
receivers, in one step. Later commands of its sender wait.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sievemq_broker.domain.overrides import overridden
from sievemq_broker.matching.asking import AT_ONCE, LISTED, Answers
from sievemq_core.message.envelope import Envelope

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sievemq_broker.domain.fan_out import Deliverer
    from sievemq_broker.domain.publishing import Weighing
    from sievemq_broker.domain.queue import Queue
    from sievemq_broker.domain.topic import Gathering, Topic

#: Units (condition.units) of selectors, or deliveries, between two checks of the time. Unless one of them is long, that
#: is less than a millisecond.
EXAMINED = 200

#: Groups of subscriptions whose queues are gathered in one go, and in the time of a unit: each is somewhere else in
#: memory.
GATHERED = 800
GATHERED_PER_UNIT = 4

#: Selectors of a message whose cost is estimated in the time of one unit.
WEIGHED = 8


class Examining:
    """One or several messages of a sender.

    Args:
        sends: address and message; a message is replaced by what the administrator's rules make of it (D-21): selectors
            are evaluated for that.
        costly: the destinations whose selectors may take long, or whose subscriptions are very many, by address.
        broker: theirs, if they wait until it may deliver them in slices.
        weighed: by address, what finds out how much of a batch each subscription of a topic gets.
    """

    __slots__ = ("_answers", "_broker", "_costly", "_gathering", "_place", "_sends", "_weighed", "_weighing")

    def __init__(
        self,
        sends: list[tuple[str, Envelope]],
        costly: dict[str, Queue | Topic],
        broker: Deliverer | None,
        weighed: Mapping[str, Weighing],
    ) -> None:
        self._sends = sends
        self._costly = costly
        self._broker = broker if any(destination.large for destination in costly.values()) else None
        self._place = 0
        self._answers: Answers[Any] | None = None
        self._gathering: Gathering | None = None
        self._weighed = weighed
        self._weighing: Weighing | None = None

    @property
    def _under_way(self) -> bool:
        return self._answers is not None or self._gathering is not None or self._weighing is not None

    @property
    def blocked(self) -> bool:
        """True if it cannot go on before the broker's pending work has gone on."""
        broker = self._broker
        if broker is None or self._under_way or self._place < len(self._sends):
            return False
        if broker.fan_out is not None:
            return broker.fan_out.over
        return broker.busy is not None

    def work(self, budget: int, now: int) -> bool:
        """Go on.

        Args:
            budget: units (condition.units).
            now: ms epoch.

        Returns:
            True if all have been asked, and the messages may be sent now.
        """
        sends, costly = self._sends, self._costly
        while budget > 0:
            answers = self._answers
            if answers is not None:
                budget -= answers.ask(budget)
                if answers.left:
                    return False
                self._answers = None
                self._gathering = costly[sends[self._place - 1][0]].gathering(answers)
                continue
            if self._gathering is not None:
                gathered = self._gathering.work(GATHERED)
                budget -= 1 + gathered // GATHERED_PER_UNIT
                if gathered < GATHERED:
                    self._gathering = None
                continue
            if self._weighing is not None:
                weighed = self._weighing.work(GATHERED)
                budget -= 1 + weighed // GATHERED_PER_UNIT
                if weighed < GATHERED:
                    self._weighing = None
                continue
            place = self._place
            if place == len(sends):
                return self._may_send(budget, now)
            self._place = place + 1
            budget -= 1
            address, envelope = sends[place]
            destination = costly.get(address)
            if destination is not None:
                envelope = overridden(destination.policy, envelope, now)
                sends[place] = address, envelope
                index = destination.index
                budget -= min(index.most, AT_ONCE) // WEIGHED + index.most // LISTED
                self._answers = index.asking(envelope)
                weighing = self._weighed.get(address)
                if weighing is not None:
                    weighing.take(envelope)
                    self._weighing = weighing
        return False

    def _may_send(self, budget: int, now: int) -> bool:
        if self._broker is None:
            return True
        fan_out = self._broker.fan_out
        if fan_out is None:
            return not self.blocked
        fan_out.work(budget, now)
        return False
