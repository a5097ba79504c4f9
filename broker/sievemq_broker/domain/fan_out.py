"""Delivers one message to a very large number of subscriptions, a slice at a time, in the order of its topic.

    publish ─► subscriptions are chosen ─► slice ─► … ─► over: its sender is confirmed ─► released

Once begun, a delivery always completes: the decision to accept the message was made before. Until then the broker
begins no other delivery in slices, and nothing else is published to the topic. Producers that can wait do so; otherwise
the delivery is completed first. A journal writes all of it in one batch, so a broker that dies has kept all of it or
nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias

if TYPE_CHECKING:
    from sievemq_broker.domain.queue import Queue
    from sievemq_core.message.envelope import Envelope

#: Above this number of subscriptions of a topic a message is delivered in slices. One or two milliseconds; eight if
#: they are those of STOMP clients.
LARGE: Final = 1_000

Admit: TypeAlias = "Callable[[Queue, Envelope, int], None]"
"""Adds a message to one queue, with the time (ms epoch). Cannot fail."""


class Gatherer(Protocol):
    """A journal."""

    @property
    def holds(self) -> int:
        """Verbs that are not complete."""

    def hold(self) -> None:
        """A verb begins that takes more than a turn."""

    def let_go(self) -> None:
        """Such a verb is complete."""


class Deliverer(Protocol):
    """A broker."""

    @property
    def fan_out(self) -> FanOut | None:
        """The message that is being delivered in slices."""

    @property
    def busy(self) -> object:
        """The work that must complete before another message may be delivered in slices; None if one may begin."""

    @property
    def journal(self) -> Gatherer | None:
        """The journal."""

    def begin_fan_out(self, fan_out: FanOut) -> None:
        """Begin to deliver a message in slices. No other one is under way."""


class FanOut:
    """Delivers one message.

    Args:
        queues: of the subscriptions that get it; consumed.
        envelope: the message.
        admit: adds it to a queue.
        journal: gathers it; None if nothing does.

    Attributes:
        over: every subscription has the message, or there was an error.
        error: a fault of the broker that ended it early.
    """

    __slots__ = ("_admit", "_envelope", "_journal", "_left", "error", "over")

    #: As in Examining: it can always go on.
    blocked: Final = False

    def __init__(self, queues: list[Queue], envelope: Envelope, admit: Admit, journal: Gatherer | None) -> None:
        queues.reverse()
        self._left = queues  # the next one last
        self._envelope = envelope
        self._admit = admit
        self._journal = journal
        self.over = False
        self.error: Exception | None = None
        if journal is not None:
            journal.hold()

    def work(self, budget: int, now: int) -> bool:
        """Deliver to the next subscriptions. Never raises: see :attr:`error`.

        Args:
            budget: subscriptions.
            now: ms epoch.

        Returns:
            True if it is over.
        """
        if self.over:
            return True
        left, envelope, admit = self._left, self._envelope, self._admit
        start = max(0, len(left) - budget)
        try:
            for queue in reversed(left[start:]):
                if not queue.deleted:
                    admit(queue, envelope, now)
        except Exception as error:
            self.error = error
            left.clear()
        else:
            del left[start:]
        if not left:
            self.over = True
            if self._journal is not None:
                self._journal.let_go()
        return self.over

    @property
    def has_room(self) -> bool:
        """True if the next message may be sent, as for a limit at which senders wait."""
        return self.over

    @property
    def limit_text(self) -> str:
        """The text of the limit."""
        return "another message is being delivered to very many subscriptions"

    def finish(self, now: int) -> None:
        """Deliver to all that are left."""
        while not self.work(LARGE, now):
            pass
