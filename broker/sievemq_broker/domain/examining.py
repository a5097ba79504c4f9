"""Messages that costly selectors are asked about before they are sent, a piece at a time.

Nothing has happened to such a message yet: whether it can be sent at all, and to whom, is decided when the answers are
there, in one go. What its sender says behind it waits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sievemq_broker.domain.overrides import overridden
from sievemq_broker.matching.asking import Answers
from sievemq_core.message.envelope import Envelope

if TYPE_CHECKING:
    from sievemq_broker.domain.queue import Queue
    from sievemq_broker.domain.topic import Topic

__all__ = ["Examining"]


class Examining:
    """One or several messages of a sender.

    Args:
        sends: address and message; a message is replaced by what the administrator makes of it (D-21), since selectors
            are asked about that.
        costly: the destinations whose selectors may take long, by address.
    """

    __slots__ = ("_answers", "_costly", "_place", "_sends")

    def __init__(self, sends: list[tuple[str, Envelope]], costly: dict[str, Queue | Topic]) -> None:
        self._sends = sends
        self._costly = costly
        self._place = 0
        self._answers: Answers[Any] | None = None

    def work(self, budget: int, now: int) -> bool:
        """Go on.

        Args:
            budget: units (condition.units).
            now: ms epoch.

        Returns:
            True if all have been asked.
        """
        sends, costly = self._sends, self._costly
        while budget > 0:
            answers = self._answers
            if answers is not None:
                budget -= answers.ask(budget)
                if answers.left:
                    return False
                self._answers = None
                continue
            place = self._place
            if place == len(sends):
                return True
            self._place = place + 1
            budget -= 1
            address, envelope = sends[place]
            destination = costly.get(address)
            if destination is not None:
                envelope = overridden(destination.policy, envelope, now)
                sends[place] = address, envelope
                self._answers = destination.index.asking(envelope)
        return self._answers is None and self._place == len(sends)
