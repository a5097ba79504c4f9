"""A session: its acknowledgement mode, its consumers and the messages handed to the application, its transaction."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from sievemq._engine.consumer import EngineConsumer, Selection
from sievemq._engine.deliveries import Deliveries
from sievemq._engine.outbox import Completion, Outbox, when_settled
from sievemq._engine.outcomes import Outcome, Outcomes
from sievemq._engine.sends import Sends
from sievemq._engine.terms import Terms
from sievemq.destinations import Destination
from sievemq.exceptions import (
    IllegalStateException,
    JMSException,
    TransactionRolledBackException,
)
from sievemq.session_mode import SessionMode
from sievemq_core.wire.commands import Command

SESSION_TRANSACTED: Final = SessionMode.SESSION_TRANSACTED
AUTO_ACKNOWLEDGE: Final = SessionMode.AUTO_ACKNOWLEDGE
CLIENT_ACKNOWLEDGE: Final = SessionMode.CLIENT_ACKNOWLEDGE
DUPS_OK_ACKNOWLEDGE: Final = SessionMode.DUPS_OK_ACKNOWLEDGE

#: Requests of a session that its thread of control waits for.
_ENDING: Final = frozenset({Command.COMMIT, Command.ROLLBACK, Command.RECOVER, Command.STAGE})

#: The answer where no request is needed.
_NOTHING_TO_DO: Final[Completion[Any]] = Completion()
_NOTHING_TO_DO.succeed(None)


def no_hook() -> None:
    """The default until a front sets `acknowledge_hook`."""


class EngineSession:
    """One session of a connection. Created by :meth:`ClientConnection.open_session`.

    Args:
        forget: called when it is closed at both ends.

    Attributes:
        opened: settled when the broker has opened or refused it.
        acknowledge_hook: what ``message.acknowledge()`` of a message received here calls; set by the front.
        outcomes: of its requests that the application does not know yet.
        sends: what it sent and is not settled.
        recoveries: how often :meth:`recover` was called; what is received after one is another message (LIS-07).
        retry_rule: of its listeners, as the field `failure` of RECOVER has it; empty for that of the destination.
    """

    __slots__ = (
        "_began", "_consumed", "_deliveries", "_forget", "_pausing", "_returned", "acknowledge_hook",
        "acknowledges_itself", "closed", "consumers", "id", "mode", "opened", "outbox", "outcomes", "recoveries",
        "retry_rule", "sends", "shut", "terms", "transacted",
    )  # fmt: skip

    def __init__(
        self,
        outbox: Outbox,
        terms: Terms,
        deliveries: Deliveries,
        forget: Callable[[EngineSession], None],
        number: int,
        mode: SessionMode,
    ) -> None:
        self.outbox = outbox
        self.terms = terms
        self._deliveries = deliveries
        self._forget = forget
        self.id = number
        self.mode = mode
        self.transacted = mode == SESSION_TRANSACTED
        self.acknowledges_itself = mode in (AUTO_ACKNOWLEDGE, DUPS_OK_ACKNOWLEDGE)
        self.acknowledge_hook: Callable[[], None] = no_hook
        self.opened: Completion[Any] = Completion()
        self.sends = Sends(outbox, terms, number, self.transacted)
        self.recoveries = 0
        self.retry_rule: Mapping[str, object] = {}
        self.closed = self.shut = False
        self.consumers: dict[int, EngineConsumer] = {}
        # Closed consumers whose last messages may be unacknowledged: id -> last tag (MCO-09).
        self._consumed: dict[int, int] = {}
        # True if messages that the application has, or sends of its transaction, were lost with a connection (ACK-18).
        self._returned = False
        self._began = 0  # sequence of the last send before the present transaction
        self.outcomes = Outcomes()
        # Requests without an answer; until the last one has its answer nothing is handed to the application.
        self._pausing: list[Outcome] = []

    def open(self) -> Completion[Any]:
        """Send OPEN_SESSION; answered by :attr:`opened`."""
        self.opened = self.outbox.request(Command.OPEN_SESSION, self.id, self.mode, 0, undo=lambda _: self.close())

        def opened(answer: Completion[Any]) -> None:
            if answer.error is not None:
                self._forget(self)

        self.opened.add_callback(opened)
        return self.opened

    def call_to_acknowledge(self, hook: Callable[[], Any]) -> None:
        self.acknowledge_hook = hook

    def retry_by(self, rule: Mapping[str, object]) -> None:
        """Set the rule by which the broker redelivers what its listeners fail."""
        self.retry_rule = rule

    # -- what a call may do ------------------------------------------------------------------------------------------

    def check_open(self) -> None:
        """Raise unless the session can be used (CLO-17).

        Raises:
            IllegalStateException: the session or its connection is closed.
            JMSException: the connection is lost.
        """
        if self.closed:
            raise IllegalStateException("the session is closed")
        self.outbox.check_open()

    # -- consumers ---------------------------------------------------------------------------------------------------

    def open_consumer(
        self,
        destination: Destination,
        address: str,
        selector: object = None,
        *,
        no_local: bool = False,
        subscription: object = None,
        durable: bool = False,
        shared: bool = False,
    ) -> EngineConsumer:
        """Open a consumer; it is in the session's list once its `opened` has succeeded.

        Args:
            selector: condition; None or blank for none (SEL-03, D-12). Verified here, before anything is sent (SEL-01).
            no_local: topics: not what this connection publishes (SES-21).
            durable, shared: kind of the subscription (section 29).

        Raises:
            InvalidSelectorException: with the place of the mistake (SEL-02).
            IllegalStateException: the session is closed, or an unshared durable consumer without a client id (SUB-10).
            JMSException: a subscription without a name (SUB-29).
            ResourceAllocationException: the session has as many consumers as the broker allows.
        """
        self.check_open()
        terms, deliveries = self.terms, self._deliveries
        terms.check_limit("consumers", len(self.consumers), "the session")
        condition = terms.check_selector(selector)
        name: str | None = None
        if durable or shared:
            if not isinstance(subscription, str) or not subscription:
                raise JMSException("a durable or shared consumer needs the name of its subscription")
            if durable and not shared and terms.client_id is None:
                raise IllegalStateException(
                    "an unshared durable consumer needs a client id: set it on the connection first (SUB-10)"
                )
            name = subscription
        consumer = EngineConsumer(
            self.outbox,
            terms,
            self.id,
            self.acknowledges_itself,
            self.acknowledge_hook,
            deliveries.average_bytes,
            deliveries.received_bytes,
            deliveries.next_id(),
            Selection(destination, address, condition, no_local, name, durable, shared),
        )

        def opened(answer: Completion[Any]) -> None:
            if answer.error is not None:
                deliveries.forget(consumer)  # SEL-02: nothing is left behind
                consumer.mark_closed()
            else:
                self.consumers[consumer.id] = consumer
                if self._pausing:
                    consumer.pause()
                consumer.has_opened(deliveries.started, self.shut)

        def undo(answer: Completion[Any]) -> None:
            self.close_consumer(consumer)
            if durable:  # it would collect messages without a reader
                self.outbox.request(Command.UNSUBSCRIBE, name, answer.request)

        consumer.open(deliveries.started, undo).add_callback(opened)
        deliveries.begin(consumer)  # last: an exception from outside leaves no consumer that has no request
        return consumer

    def close_consumer(self, consumer: EngineConsumer) -> Completion[Any]:
        """Close it (MCO-07, MCO-10): the buffer goes back unmarked, what the application saw stays with the session.

        The caller has made sure that nothing is between `take` and `settle` in another thread.
        """
        consumer.mark_closed()
        self._forget_consumer(consumer)
        outbox = self.outbox
        if consumer.gone is not None or outbox.ended:
            return _NOTHING_TO_DO
        outbox.requests.end_wants((consumer.id,))
        if consumer.of_queue and consumer.holds_nothing:
            # Nothing goes back to a queue, and the time does not matter: no answer is requested. What ends with the
            # consumer of a topic, its subscription, others may ask about at once.
            outbox.pack_acknowledgements()
            outbox.append((Command.CLOSE_CONSUMER, 0, consumer.id, consumer.handed))
            return _NOTHING_TO_DO
        consumer.buffer.clear()
        return outbox.request(Command.CLOSE_CONSUMER, consumer.id, consumer.handed)

    def consumer_is_gone(self, consumer: EngineConsumer, error: Exception) -> None:
        """The broker closed the consumer: its destination is deleted, or an administrator did it."""
        self._forget_consumer(consumer)
        consumer.has_gone(error)

    def _forget_consumer(self, consumer: EngineConsumer) -> None:
        """It is closed; messages that the application has stay with the session."""
        if consumer.holds_returned:
            self._returned = True
        # Also in AUTO mode: the consumer may be closed by its own listener, before the message is done (MCO-08).
        if consumer.gone is None and consumer.handed != consumer.done:
            self._consumed[consumer.id] = consumer.handed
        self._deliveries.forget(consumer)
        self.consumers.pop(consumer.id, None)

    def finish(self) -> None:
        """An exception from outside may have broken into a call here: do the rest. The connection has to be lost with
        that."""
        self.sends.recount()
        for consumer in tuple(self.consumers.values()):
            if consumer.closed:
                self._forget_consumer(consumer)
        requested = [completion for completion, _ in self.outbox.requests.pending.values()]
        for outcome in (*self._pausing, *self.outcomes.doubts):
            if not outcome.done and outcome not in requested:
                text = "a call was interrupted before its request was sent, and the connection was lost with it"
                outcome.fail(TransactionRolledBackException(text) if self.transacted else JMSException(text))

    def _all_done(self) -> None:
        self._consumed.clear()
        self._returned = False
        for consumer in self.consumers.values():
            consumer.all_done()

    def set_flowing(self, flowing: bool) -> None:
        """The connection starts or stops: open or shut the gate of every consumer."""
        for consumer in tuple(self.consumers.values()):
            consumer.set_flowing(flowing and not self.shut)

    def handed(self) -> tuple[int, ...]:
        """The field `handed` of a request: consumer, tag, consumer, tag, …"""
        pairs: list[int] = []
        for number, tag in self._consumed.items():
            pairs += (number, tag)
        for consumer in self.consumers.values():
            if consumer.handed:
                pairs += (consumer.id, consumer.handed)
        return tuple(pairs)

    # -- acknowledgement, recovery, transactions ---------------------------------------------------------------------

    def acknowledge(self, waits: bool = True) -> Completion[Any]:
        """Acknowledge everything the session was handed (MSG-01, ACK-05, CTX-15).

        Args:
            waits: the caller waits for the answer; if not, it calls :meth:`Outcomes.add` when it begins to.

        Returns:
            The broker's answer; settled at once where acknowledge() has no effect (ACK-07).

        Raises:
            IllegalStateException: the session is closed (CLO-20).
            JMSException: some of them were received on a connection that was lost since (ACK-18).
        """
        self.check_open()
        if self.mode != CLIENT_ACKNOWLEDGE:
            return _NOTHING_TO_DO
        if self._is_broken:
            self._returned = False  # messages received since then stay unacknowledged
            for consumer in self.consumers.values():
                consumer.forget_returned()
            raise JMSException(
                "the connection was lost and repaired since some of these messages were received: they are "
                "redelivered with JMSRedelivered set, or have become dead letters meanwhile; nothing was acknowledged, "
                "and the next acknowledge() counts",
                "CONNECTION_LOST",
                self.outbox.cause,
            )
        pairs = self.handed()
        if not pairs:
            return _NOTHING_TO_DO
        outcome = self.outcomes.expect(listed=waits)
        self.outbox.request(Command.ACKNOWLEDGE_ALL, self.id, pairs, answer=outcome)
        self._all_done()
        return outcome

    def recover(self, failure: Mapping[str, object] | None = None) -> Completion[Any]:
        """Redeliver everything handed and not acknowledged, marked (ACK-08).

        Args:
            failure: why the application has failed the message, and how it is retried: the last field of RECOVER.

        Raises:
            IllegalStateException: the session is transacted (ACK-12) or closed.
        """
        self.recoveries += 1
        self.check_open()
        if self.transacted:
            raise IllegalStateException("recover() is for sessions that are not transacted: use rollback()")
        if self.acknowledges_itself and not self._consumed and all(c.done == c.handed for c in self.consumers.values()):
            return _NOTHING_TO_DO  # ACK-10: everything is acknowledged; buffered messages just follow
        return self._take_back(Command.RECOVER, failure=failure)

    def begin(self, verb: str) -> None:
        """A call of commit() or rollback() begins. It covers what was sent and received before, even if it is broken
        off before its request is made: then a commit() is decided with the next one, and nothing that a rollback() was
        to cover can be committed any more.
        """
        if verb == "commit":
            self.outcomes.begin_commit()
        else:
            self._returned = True

    def commit(self) -> Completion[Any]:
        """Publish what the session sent, acknowledge what it was handed, all or nothing (TXN-10).

        The completion fails with TransactionRolledBackException if it ended as a rollback (TXN-09).

        Raises:
            IllegalStateException: the session is not transacted (TXN-08) or closed.
        """
        self._check_transacted("commit")
        if self._is_broken:
            return self._commit_broken()
        outcome = self.outcomes.expect(commits=True)
        outcome.add_callback(self._committed)
        self._pause(outcome)
        stated = (self.retry_rule,) if self.retry_rule else ()
        self.outbox.request(Command.COMMIT, self.id, self.handed(), *stated, answer=outcome)
        self._cover()
        return outcome

    def stage(self, key: str, batch: int, lease: int) -> Completion[Any]:
        """Move what the session sent since its last commit to a stage; the value is its name.

        Args:
            lease: ms for which it is kept unpublished.

        Raises:
            IllegalStateException: the session is not transacted, or closed.
        """
        self._check_transacted("stage")
        if self._is_broken:
            return self._commit_broken()

        def undo(answer: Completion[Any]) -> None:
            self._returned = True  # what it sent is gone: the next commit() or stage() raises
            self.outbox.request(Command.DISCARD, key, batch, answer.result())

        outcome = self.outcomes.expect(undo=undo)
        self.outbox.request(Command.STAGE, self.id, key, batch, lease, answer=outcome)
        self._began = self.sends.sequence
        return outcome

    def rollback(self, failure: Mapping[str, object] | None = None) -> Completion[Any]:
        """Drop the session's sends; redeliver its messages, marked (TXN-04).

        Args:
            failure: as of :meth:`recover`.

        Raises:
            IllegalStateException: the session is not transacted (TXN-08) or closed.
        """
        self._check_transacted("rollback")
        return self._take_back(Command.ROLLBACK, failure=failure)

    def resolve(self) -> Completion[None]:
        """Before a request about what the session has sent and received, if :attr:`Outcomes.doubts` has some: wait for
        this, then call :meth:`Outcomes.tell`.

        Returns:
            Settled when every request in doubt has its answer. If one of them has failed, the transaction is rolled
            back by then: what was sent and received since went with it.
        """
        resolved: Completion[None] = Completion()

        def known() -> None:
            if resolved.done:
                return
            if self.transacted and self.outcomes.must_tell:
                self._take_back(Command.ROLLBACK, listed=False).add_callback(lambda _: resolved.succeed(None))
            else:
                resolved.succeed(None)

        when_settled(tuple(self.outcomes.doubts), known)
        return resolved

    def _commit_broken(self) -> Completion[Any]:
        """A part of the transaction was lost with a connection: roll back the rest, too (TXN-09)."""
        text = (
            "the connection was lost in the middle of the transaction, or its rollback() or stage() was cancelled, "
            "interrupted or timed out: it was rolled back"
        )
        error = TransactionRolledBackException(text, "TRANSACTION_ROLLED_BACK", self.outbox.cause)
        return self._take_back(Command.ROLLBACK, instead=error)

    def _check_transacted(self, verb: str) -> None:
        self.check_open()
        if not self.transacted:
            raise IllegalStateException(f"{verb}() is for transacted sessions")

    def _cover(self) -> None:
        """A request covers what was sent and handed over until now; what follows belongs to the next one."""
        self._began = self.sends.sequence
        self._all_done()

    def _committed(self, answer: Completion[Any]) -> None:
        assert isinstance(answer, Outcome)
        self.outcomes.answered(answer)
        if isinstance(answer.error, TransactionRolledBackException):
            # Buffered messages were sent before the broker took them back.
            self._reset_credit()

    def _take_back(
        self,
        verb: int,
        listed: bool = True,
        instead: Exception | None = None,
        failure: Mapping[str, object] | None = None,
    ) -> Completion[Any]:
        # The request packs waiting acknowledgements; they must not cover its own messages: `done` moves after it.
        outcome = self.outcomes.expect(listed=listed, instead=instead)
        self._pause(outcome)
        stated = () if failure is None else (failure,)
        self.outbox.request(verb, self.id, self.handed(), *stated, answer=outcome)
        if self.transacted:
            self.outcomes.roll_back()
            if self.outbox.repairing:
                self.sends.drop()  # the request precedes later sends
        for consumer in self.consumers.values():
            consumer.fail()
        self._cover()
        for consumer in self.consumers.values():
            self._deliveries.ignore(consumer)  # until the answer: sent before the broker took them back
        self._reset_credit()
        return outcome

    def _reset_credit(self) -> None:
        for consumer in self.consumers.values():
            consumer.reset_credit()

    def _pause(self, outcome: Outcome) -> None:
        """Hand nothing to the application until the answer: if it is a rollback, what was handed over later would be
        redelivered unmarked."""
        outcome.add_callback(self._resume)
        self._pausing.append(outcome)
        for consumer in self.consumers.values():
            consumer.pause()

    def _resume(self, answer: Completion[Any]) -> None:
        """A request has its answer: go on with the last one."""
        self._pausing = [outcome for outcome in self._pausing if outcome is not answer]
        if self._pausing:
            return
        for consumer in tuple(self.consumers.values()):
            consumer.taken_back()
            if not self.outbox.repairing:  # else when the consumer is opened again
                self._deliveries.stop_ignoring(consumer)
            consumer.go_on()

    # -- a lost connection -------------------------------------------------------------------------------------------

    @property
    def _is_broken(self) -> bool:
        return self._returned or any(consumer.holds_returned for consumer in self.consumers.values())

    def freeze(self) -> list[tuple[int, int]]:
        """The connection is lost: messages of the session go back, and its transaction is rolled back (TXN-05). What a
        request covers that is on its way is decided by that.

        Returns:
            Pairs of consumer and last tag that may have been seen.
        """
        handed: list[tuple[int, int]] = []
        for consumer in self.consumers.values():
            seen = consumer.freeze()
            if self._pausing:  # no thread can be taking a message now
                seen = consumer.handed
            handed.append((consumer.id, seen))
        if not self.acknowledges_itself:
            self._returned = (
                self._returned
                or bool(self._consumed)
                or any(consumer.done < consumer.handed for consumer in self.consumers.values())
                or (self.transacted and self.sends.sequence > self._began)
            )
        self._consumed.clear()
        self.sends.freeze()
        return handed

    @property
    def covered(self) -> int | None:
        """The last send that a COMMIT or STAGE covers which waits for its answer; None if there is none."""
        waits = self.transacted and not self.outcomes.known
        return self._began if waits else None

    def recreate(self, confirmed: int, number: int | None) -> Completion[Any]:
        """Open it again on a connection that is being restored.

        Args:
            number: of an OPEN_SESSION that waits for its answer; None if it was open.
        """
        return self.outbox.send_first(Command.OPEN_SESSION, self.id, self.mode, confirmed, number=number)

    # -- verbs of the connection that an application calls on a session -----------------------------------------------

    def declare(self, address: str) -> Completion[Any]:
        self.outbox.check_open()
        return self.outbox.request(Command.DECLARE, address)

    def unsubscribe(self, name: object) -> Completion[Any]:
        """Delete a durable subscription (SES-27)."""
        self.outbox.check_open()
        return self.outbox.request(Command.UNSUBSCRIBE, name)

    # -- closing -----------------------------------------------------------------------------------------------------

    def shut_gate(self) -> None:
        """Closing begins: nothing is handed over from here on, and calls that wait at a consumer return (CLO-06).

        The session stays usable, for listeners that still run (CLO-08).
        """
        self.shut = True
        for consumer in tuple(self.consumers.values()):
            consumer.shut_gate()

    @property
    def awaits_answer(self) -> bool:
        """A call that ends a transaction, takes messages back or asks for one waits for the broker."""
        for _, command in tuple(self.outbox.requests.pending.values()):
            about = command[0] in _ENDING and command[2] == self.id
            if about or (command[0] == Command.WANT and command[2] in self.consumers):
                return True
        return False

    @property
    def awaits_broker(self) -> bool:
        """A call of this session waits for the broker."""
        return self.sends.awaits_broker or self.awaits_answer

    @property
    def stranded(self) -> bool:
        """A call of this session waits for the broker, and there is no connection."""
        return (self.outbox.repairing or not self.outbox.usable) and self.awaits_broker

    def mark_closed(self) -> None:
        """Closed: no method but close may be used any more (CLO-17)."""
        self.closed = self.shut = True
        for consumer in tuple(self.consumers.values()):
            consumer.mark_closed()

    def close(self) -> Completion[Any]:
        """Close it: a transaction is rolled back, unacknowledged messages go back (CLO-03, ACK-15, TXN-05).

        The caller has made sure that no call is between `take` and `settle` in another thread, and that listeners have
        returned (CLO-08).
        """
        self.mark_closed()
        if self.outbox.ended:
            self._forget(self)
            return _NOTHING_TO_DO
        completion = self.outbox.request(Command.CLOSE_SESSION, self.id, self.handed())
        self.outbox.requests.end_wants(self.consumers)
        for consumer in tuple(self.consumers.values()):
            self._deliveries.forget(consumer)
        self.consumers.clear()

        def closed(answer: Completion[Any]) -> None:
            if answer.error is None:
                self.sends.give_up()
            if (failed := self.outcomes.failed) is not None:  # no call is left that could raise it
                self.outbox.report(failed)
            self._forget(self)

        completion.add_callback(closed)
        return completion
