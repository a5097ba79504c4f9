"""Delivers one message to a very large number of subscriptions, as a task, in the order of its topic.

    publish ─► subscriptions are chosen ─► slice ─► … ─► over: its sender is confirmed

Once begun, a delivery always completes: the decision to accept the message was made before. Until then the broker
begins no other delivery of this kind, and nothing else is published to the topic. Producers that can wait do so;
otherwise the delivery is completed first. A journal writes all of it together, so a broker that dies has kept all of it
or nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol, TypeAlias

from sievemq_broker.domain.queue import Queue
from sievemq_broker.domain.work import TURN, Budget, Job, Make, Task
from sievemq_core.message.envelope import Envelope

#: Above this number of subscriptions of a topic a message is delivered by a task. Each costs a unit for its queue, and
#: what its port spends: up to three for a STOMP client (measured on one busy core: 2 ms in all for SieveMQ's clients,
#: 3 ms over AMQP, 6 ms over STOMP).
LARGE: Final = TURN

#: The same for subscriptions whose selectors differ. A message rarely matches them all, and a task costs more than
#: a delivery to the few that it does.
LARGE_IN_ALL: Final = 2 * LARGE

#: Subscriptions that get a message between two looks at the budget, which their ports may overspend.
_STRETCH: Final = 25

Admit: TypeAlias = "Callable[[Queue, Envelope, int], None]"
"""Adds a message to one queue, with the time (ms epoch). Cannot fail."""


class Deliverer(Protocol):
    """A broker."""

    @property
    def fan_out(self) -> Job[None] | None:
        """The message that is being delivered to very many subscriptions."""

    def begin_fan_out(self, deliver: Make[None], take: Callable[[], None], *, moved: bool) -> None:
        """Begin to deliver a message to very many subscriptions. No other one is under way.

        Args:
            deliver: makes the task.
            take: gives it to the taps of the topic.
            moved: it leaves another place, which must be stored together with its arrival here.
        """

    def finish_fan_out(self, now: int) -> None:
        """Complete such a delivery at once."""


def deliver(queues: list[Queue], envelope: Envelope, admit: Admit, now: int, budget: Budget) -> Task[None]:
    """Deliver a message.

    Args:
        queues: of the subscriptions that get it; consumed.
        now: ms epoch.
    """
    queues.reverse()
    while queues:
        if budget.spent:
            now = yield
            continue
        count = min(budget.left, len(queues), _STRETCH)
        budget.spend(count)
        for _ in range(count):
            queue = queues.pop()
            if not queue.deleted:
                admit(queue, envelope, now)
