"""One session of a client: its mode, its consumers, the order of its sends, its transaction."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from enum import IntEnum
from typing import Final

from sievemq_broker.domain.consumer import Consumer, Held
from sievemq_broker.domain.failure import PLAIN, Failure
from sievemq_broker.domain.settlement import Outcome
from sievemq_broker.domain.work import Budget, Task
from sievemq_broker.session.transaction import StagedBytes, Transaction
from sievemq_broker.session.waiting import BlockedSender
from sievemq_core.errors import SieveError

#: The cost of closing a consumer, in messages that come back: 10 to 20 microseconds.
_CLOSING_COST: Final = 5

_NONE: Final[Mapping[int, list[Held]]] = {}


class SessionMode(IntEnum):
    """How a session acknowledges; the numbers are those of the API (section 3)."""

    TRANSACTED = 0
    AUTO_ACKNOWLEDGE = 1
    CLIENT_ACKNOWLEDGE = 2
    DUPS_OK_ACKNOWLEDGE = 3


class Session:
    """The state of one session. The handlers in :mod:`sievemq_broker.session.handlers` decide everything.

    Args:
        staged: memory of the connection's transactions.
    """

    __slots__ = (
        "again", "blocked_sender", "committing", "confirmed", "consumers", "id", "mode", "refused", "sent", "settled",
        "transaction",
    )  # fmt: skip

    def __init__(self, session_id: int, mode: SessionMode, staged: StagedBytes) -> None:
        self.id = session_id
        self.mode = mode
        #: Consumers by id, closed ones included while they hold messages of the session (ACK-19).
        self.consumers: dict[int, Consumer] = {}
        #: Sequence of the last SEND that arrived; and of the last one settled by CONFIRM or SEND_FAILED.
        self.sent = self.confirmed = 0
        #: For a client that loses the answers: the last COMMIT or ACKNOWLEDGE_ALL that was carried out, and the last
        #: refused sends (sequence, code, text).
        self.settled = 0
        self.refused: deque[tuple[int, int, str]] | None = None
        #: Set while it waits for room; and the send from which its client must repeat what was skipped meanwhile, 0 if
        #: it never had to.
        self.blocked_sender: BlockedSender | None = None
        self.again = 0
        #: True from a large COMMIT to its answer, while it is published in slices or waits until another one is.
        self.committing = False
        self.transaction = Transaction(staged) if mode is SessionMode.TRANSACTED else None

    # -- sends ------------------------------------------------------------------------------------------------------

    def go_on_from(self, sent: int, settled: int) -> None:
        """Continue a session of a lost connection.

        Args:
            sent: sequence of the last SEND that arrived there.
            settled: the last COMMIT or ACKNOWLEDGE_ALL that was carried out there.
        """
        self.sent = sent
        self.settled = settled

    def took(self, count: int) -> None:
        self.sent += count

    def count_next(self) -> None:
        """Count the next send, which is accepted or refused. If it has waited for room, its client repeats those behind
        it."""
        self.sent += 1
        if self.send_waits:
            self.again = self.sent + 1

    @property
    def send_waits(self) -> bool:
        return self.blocked_sender is not None and self.blocked_sender.envelope is not None

    def confirm(self, sequence: int) -> bool:
        """Settle the sends up to `sequence`. True if the client must be informed."""
        if sequence <= self.confirmed:
            return False
        self.confirmed = sequence
        return True

    def refuse(self, sequence: int, error: SieveError, remember: int) -> None:
        """Settle a send that was refused; in a transaction it dooms the commit (TXN-09).

        Args:
            remember: refusals to remember, for a client that may have to hear them again; 0 for none.
        """
        self.confirmed = sequence
        if self.transaction is not None:
            self.transaction.fail(error)
        elif remember:
            if self.refused is None:
                self.refused = deque(maxlen=remember)
            self.refused.append((sequence, int(error.code), error.text))

    def wait(self, sender: BlockedSender) -> None:
        self.blocked_sender = sender

    def end_wait(self) -> None:
        if self.blocked_sender is not None:
            self.blocked_sender.finish()
            self.blocked_sender = None

    def is_next(self, sequence: int) -> bool:
        return sequence == self.sent + 1 and not self.send_waits

    def passes_over(self, sequence: int) -> bool:
        """True if a send must be skipped: it waits for room or comes behind one that does. Or it is out of order in a
        session that has waited, since the client repeats some sends twice."""
        return self.send_waits or (self.again > 0 and sequence != self.sent + 1)

    # -- transactions -----------------------------------------------------------------------------------------------

    def is_begun(self, handed: Mapping[int, int]) -> bool:
        """True if its transaction has a send, or a message that the application has seen.

        Args:
            handed: by consumer, the last tag that the application has seen.
        """
        if self.transaction is not None and self.transaction.staged:
            return True
        consumers = self.consumers
        return any(number in consumers and tag > consumers[number].base for number, tag in handed.items())

    def begin_commit(self) -> None:
        """A large COMMIT begins to be published in slices, or waits until another one is done."""
        self.committing = True

    def end_commit(self) -> None:
        """The COMMIT is done, or can begin."""
        self.committing = False

    def settle(self, request: int) -> None:
        """A COMMIT or ACKNOWLEDGE_ALL was carried out."""
        self.settled = request

    # -- deliveries -------------------------------------------------------------------------------------------------

    def acknowledge(self, handed: Mapping[int, int], now: int) -> None:
        """Acknowledge everything that the application has seen of every consumer (ACK-05)."""
        consumers = self.consumers
        for consumer_id, tag in handed.items():
            consumer = consumers.get(consumer_id)
            if consumer is not None and tag:
                consumer.acknowledge(tag, now)

    def recover(self, handed: Mapping[int, int], now: int, budget: Budget, failure: Failure = PLAIN) -> Task[int]:
        """Return unacknowledged messages: marked if they were handed out, unmarked if they were only buffered
        (ACK-08, ACK-14). Returns the time by now."""
        # Halt all consumers first: a message that one returns must not be delivered to another, which would return it
        # again.
        self.halt()
        for consumer_id, consumer in tuple(self.consumers.items()):
            if budget.spent:
                now = yield
            budget.spend(1)
            now = yield from consumer.recover(handed.get(consumer_id, 0), now, budget, Outcome.FAILED, failure)
        return now

    def leave(
        self,
        outcome: Outcome,
        handed: Mapping[int, int],
        now: int,
        budget: Budget,
        returned: Mapping[int, list[Held]] = _NONE,
        until: int = 0,
    ) -> Task[int]:
        """Close all consumers.

        Args:
            outcome: what ends their deliveries. FAILED: the client states what its application has seen. LEFT, LOST or
                KILLED: the application may have seen everything (ACK-18), except what is known otherwise (D-32).
            handed: by consumer, the last tag that the application has, or may have, seen: up to it messages go back
                marked, the rest unmarked (ACK-15).
            now: ms since 1970.
            returned: gets what goes back of a lost connection, by consumer.
            until: ms since 1970 until which a message at its last attempt waits for a lost client; 0 for not.

        Returns:
            The time by now.
        """
        self.halt()
        left = [*reversed(self.consumers.items())]
        while left:
            consumer_id, consumer = left.pop()  # freed one by one
            if budget.spent:
                now = yield
            budget.spend(_CLOSING_COST)
            if outcome in (Outcome.LOST, Outcome.KILLED):
                seen, held = handed.get(consumer_id), returned.get(consumer_id)
                now = yield from consumer.abandon(seen, now, budget, held, until, outcome)
            else:
                tag = handed.get(consumer_id, 0 if outcome is Outcome.FAILED else consumer.tag)
                # In this order all goes back at once, so that the next consumer gets it in its old order.
                now = yield from consumer.recover(tag, now, budget, outcome)
                now = yield from consumer.close(tag, now, budget)
            self.consumers.pop(consumer_id, None)
        if self.transaction is not None:
            self.transaction.clear()
        return now

    def halt(self) -> None:
        for consumer in self.consumers.values():
            consumer.halt()
