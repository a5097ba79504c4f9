"""One session of a connection: its mode, its consumers, the order of its sends, its transaction."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from enum import IntEnum
from typing import TYPE_CHECKING

from sievemq_broker.domain.consumer import Consumer
from sievemq_broker.domain.steps import Steps
from sievemq_broker.session.leaving import Meter
from sievemq_broker.session.transaction import StagedBytes, Transaction

if TYPE_CHECKING:
    from sievemq_broker.session.stall import Stall

__all__ = ["Session", "SessionMode"]


class SessionMode(IntEnum):
    """How a session acknowledges; the numbers are those of the API (section 3)."""

    TRANSACTED = 0
    AUTO_ACKNOWLEDGE = 1
    CLIENT_ACKNOWLEDGE = 2
    DUPS_OK_ACKNOWLEDGE = 3


class Session:
    """State of one session. Everything is decided by the handlers in :mod:`sievemq_broker.session.commands`.

    Args:
        session_id: the client's number for it.
        mode: acknowledgement mode.
        staged: memory of the connection's transactions.
    """

    __slots__ = (
        "again", "committing", "confirmed", "consumers", "id", "mode", "refused", "sent", "settled", "stall",
        "transaction", "unconfirmed",
    )  # fmt: skip

    def __init__(self, session_id: int, mode: SessionMode, staged: StagedBytes) -> None:
        self.id = session_id
        self.mode = mode
        #: Consumers by id, closed ones included while they hold messages of the session (ACK-19).
        self.consumers: dict[int, Consumer] = {}
        #: Sequence of the last SEND that arrived; and of the last one that was settled by CONFIRM or SEND_FAILED.
        self.sent = self.confirmed = 0
        #: For a client that loses the answers: the last COMMIT or ACKNOWLEDGE_ALL that was carried out, and the last
        #: sends that were refused (sequence, code, text).
        self.settled = 0
        self.refused: deque[tuple[int, int, str]] | None = None
        #: True while it waits in its connection's list to be confirmed.
        self.unconfirmed = False
        #: There while it waits for room where it has sent to; and the send from which its client was told to say again
        #: what was passed over in the meantime, 0 if it never was.
        self.stall: Stall | None = None
        self.again = 0
        #: True from a large COMMIT to its answer, while it is published in slices or waits until another one is.
        self.committing = False
        self.transaction = Transaction(staged) if mode is SessionMode.TRANSACTED else None

    def passes_over(self, sequence: int) -> bool:
        """True if a send is not looked at: it is the one that waits for room or comes behind it; or it comes out of
        turn in a session that has waited, whose client says some of them twice."""
        if self.stall is not None and self.stall.envelope is not None:
            return True
        return self.again > 0 and sequence != self.sent + 1

    def acknowledge(self, handed: Mapping[int, int], now: int) -> None:
        """Everything the application has seen of every consumer is consumed (ACK-05)."""
        consumers = self.consumers
        for consumer_id, tag in handed.items():
            consumer = consumers.get(consumer_id)
            if consumer is not None and tag:
                consumer.acknowledge(tag, now)

    def recover(self, handed: Mapping[int, int], now: int) -> None:
        """What was handed and is unacknowledged goes back marked, what was only buffered unmarked (ACK-08, ACK-14)."""
        # All stand still first: what one consumer gives back must not be delivered to its sister, whose own recovery
        # would give it back once more.
        self.halt()
        for consumer_id, consumer in tuple(self.consumers.items()):
            consumer.recover(handed.get(consumer_id, 0), now)

    def leave(self, handed: Mapping[int, int] | None, known: Mapping[int, int], now: int, meter: Meter) -> Steps[int]:
        """Close all consumers, in slices.

        Args:
            handed: what the application has seen, by consumer: it goes back marked, the rest unmarked (ACK-15). None if
                the connection is lost: then all goes back marked, since it may have been seen (ACK-18).
            known: if so, the last tag that may have been seen, for those consumers of which that is known (D-32).
            now: ms since 1970.
            meter: says when a slice is full.

        Returns:
            The time by now.
        """
        self.halt()
        for consumer_id, consumer in tuple(self.consumers.items()):
            if meter.spent(1 + consumer.unacknowledged):
                now = yield
            if handed is None:
                consumer.abandon(now, known.get(consumer_id))
                continue
            tag = handed.get(consumer_id, 0)
            # In this order: all goes back at once, so that the next consumer gets it in its old order.
            consumer.recover(tag, now)
            consumer.close(tag, now)
        self.consumers.clear()
        if self.transaction is not None:
            self.transaction.clear()
        return now

    def halt(self) -> None:
        """Take the credit of all consumers."""
        for consumer in self.consumers.values():
            consumer.halt()
