"""What a client's dispositions mean for its messages."""

from __future__ import annotations

from typing import Final

from sievemq_broker.domain.settlement import Outcome
from sievemq_broker.domain.work import Budget, Task
from sievemq_broker.protocols.amqp.composites import read
from sievemq_broker.protocols.amqp.links import AmqpSession, OutgoingLink, Settled, Transaction
from sievemq_broker.protocols.amqp.performatives import (
    Accepted,
    Disposition,
    Modified,
    Received,
    Rejected,
    Released,
    Source,
)
from sievemq_broker.protocols.foreign import unexpected
from sievemq_core.errors import ErrorCode, ProtocolError, RequestError, shown

#: In place of a state: all deliveries have the same outcome.
_SAME: Final = object()


class Settlement:
    """The deliveries of a disposition, as they are found.

    Args:
        transaction: that settles them when it is discharged; None: they are settled at once.

    Attributes:
        settled: those that were found, but for those of a transaction, which stand there.
        found: there are any.

    Raises:
        ProtocolError: the disposition has no such range or outcome.
    """

    __slots__ = ("_first", "_last", "_outcome", "_session", "_state", "_transaction", "found", "settled")

    def __init__(self, session: AmqpSession, given: Disposition, transaction: Transaction | None) -> None:
        state = given.state if transaction is None else given.state.outcome
        #: What becomes of all of them; without a state that depends on their links.
        self._state: object = state
        self._outcome: Outcome | None = None
        if transaction is not None or not (state is None or type(state) is Received):
            self._state, self._outcome = _SAME, outcome_of(state)
        self._session = session
        last = given.first if given.last is None else given.last
        self._first, self._last = session.numbers_of(given.first, last)
        if self._last < self._first:
            raise unexpected(f"a disposition of the deliveries from {given.first} to {last}")
        self._transaction = transaction
        self.settled: Settled = {} if transaction is None else transaction.settled
        self.found = False

    def take(self, most: int) -> int:
        """Find more of the deliveries, up to `most`. If fewer are found, that were all."""
        found = self._session.settle(self._first, self._last, most)
        if not found:
            return 0
        if not self.found:
            self.found = True
            if self._transaction is not None:
                self._transaction.has_settled(self._session)
        last: OutgoingLink | None = None
        tags: list[int] = []
        for link, tag in found:
            if link is not last:
                last = link
                outcome = self._outcome if self._state is _SAME else outcome_of(final(self._state, link))
                tags = self.settled.setdefault((link, outcome), [])
            tags.append(tag)
        return len(found)

    def take_all(self, now: int, budget: Budget) -> Task[int]:
        """Find all that are left. Returns the time by now."""
        while True:
            if budget.spent:
                now = yield
                continue
            room = budget.left
            count = self.take(room)
            budget.spend(count)
            if count < room:
                return now


def default_outcome(source: Source) -> object:
    """What a client wants to become of deliveries that it settles without an outcome; None for nothing special."""
    outcome = read(source.default_outcome)
    if outcome is not None:
        try:
            outcome_of(outcome)
        except ProtocolError:
            text = f"the default outcome {shown(outcome)} is none of accepted, rejected, released and modified"
            raise RequestError(text, ErrorCode.ILLEGAL_STATE) from None
    return outcome


def final(state: object, consumer: OutgoingLink) -> object:
    if state is None or isinstance(state, Received):
        return consumer.outcome or (None if state is None else Released())
    return state


def outcome_of(state: object) -> Outcome | None:
    """What an outcome means for a message; None for back to its place, without a count."""
    match state:
        case None | Accepted():
            return Outcome.ACKNOWLEDGED
        case Rejected():
            return Outcome.REJECTED
        case Modified():
            if state.undeliverable_here:
                return Outcome.REJECTED
            return Outcome.FAILED if state.delivery_failed else None
        case Released():
            return None
    raise unexpected(f"the outcome {type(state).__name__.lower()}")
