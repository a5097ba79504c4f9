"""What a client's dispositions mean for its messages."""

from __future__ import annotations

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
    TransactionalState,
)
from sievemq_broker.protocols.foreign import unexpected
from sievemq_core.errors import ErrorCode, ProtocolError, RequestError, shown


class Settlement:
    """The deliveries of a disposition, as they are found.

    Args:
        session: of the deliveries.
        given: the disposition. Its range is not empty.
        transaction: that settles them when it is discharged; None: they are settled at once.

    Attributes:
        settled: those that were found, but for those of a transaction, which stand there.
        found: there are any.
    """

    __slots__ = ("_first", "_last", "_session", "_state", "_transaction", "found", "settled")

    def __init__(self, session: AmqpSession, given: Disposition, transaction: Transaction | None) -> None:
        state = given.state
        self._state = state.outcome if isinstance(state, TransactionalState) else state
        if transaction is not None or not isinstance(self._state, Received):
            outcome_of(self._state)  # it is one that there is
        self._session = session
        self._first = given.first
        self._last = given.first if given.last is None else given.last
        self._transaction = transaction
        self.settled: Settled = {} if transaction is None else transaction.settled
        self.found = False

    def take(self, most: int) -> int:
        """Find more of the deliveries, up to `most`. If fewer are found, that were all."""
        found, settled = self._session.settle(self._first, self._last, most), self.settled
        if found and not self.found:
            self.found = True
            if self._transaction is not None:
                self._transaction.has_settled(self._session)
        link: OutgoingLink | None = None
        tags: list[int] = []
        for each, tag in found:
            if each is not link:
                link = each
                state = self._state if self._transaction is not None else final(self._state, link)
                tags = settled.setdefault((link, outcome_of(state)), [])
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
    """The outcome of a delivery that the client has settled with this state."""
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
