"""A session: its acknowledgement mode, what it was handed, its transaction, and its sends that are not yet settled."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from sievemq._engine.completion import Completion
from sievemq._engine.consumer import EngineConsumer
from sievemq._engine.hold import Blocked, Hold
from sievemq.exceptions import (
    IllegalStateException,
    JMSException,
    ResourceAllocationException,
    TransactionRolledBackException,
    exception_for,
)
from sievemq_core.wire.codec import pack
from sievemq_core.wire.commands import Command

if TYPE_CHECKING:
    from sievemq._engine.connection import ClientConnection
    from sievemq.destinations import Destination

__all__ = [
    "AUTO_ACKNOWLEDGE",
    "CLIENT_ACKNOWLEDGE",
    "DUPS_OK_ACKNOWLEDGE",
    "SESSION_TRANSACTED",
    "EngineSession",
]

SESSION_TRANSACTED: Final = 0
AUTO_ACKNOWLEDGE: Final = 1
CLIENT_ACKNOWLEDGE: Final = 2
DUPS_OK_ACKNOWLEDGE: Final = 3


def no_hook() -> None:
    """Stands in until a front sets `acknowledge_hook`."""


class EngineSession:
    """One session of a connection. Made by :meth:`ClientConnection.open_session`.

    Args:
        connection: where it belongs.
        number: its id.
        mode: one of the four acknowledgement modes.

    Attributes:
        opened: settled when the broker has opened or refused it.
        acknowledge_hook: what ``message.acknowledge()`` of a message received here calls; set by the front.
        waits: by delivery mode, whether a synchronous send waits for the broker's confirm (D-24).
        unconfirmed: packed SENDs that are not settled, in order; said again if the connection is lost, or where the
            broker did not take them.
        hold: there while it does not, and until they have been said again.
        blocked: for what its sends, or its commit, wait now; `last_blocked` for what they did last.
        waiting: sends whose fate somebody waits for: (sequence, completion), in order.
    """

    __slots__ = (
        "_barriers",
        "_began",
        "_consumed",
        "_returned",
        "acknowledge_hook",
        "acknowledges_itself",
        "blocked",
        "byte_limit",
        "closed",
        "confirmed",
        "confirmed_bytes",
        "connection",
        "consumers",
        "hold",
        "id",
        "last_blocked",
        "mode",
        "opened",
        "sent_bytes",
        "sequence",
        "sequence_limit",
        "shut",
        "transacted",
        "unconfirmed",
        "waiting",
        "waits",
        "window_waiters",
        "withdrawn",
    )

    def __init__(self, connection: ClientConnection, number: int, mode: int) -> None:
        self.connection = connection
        self.id = number
        self.mode = mode
        self.transacted = mode == SESSION_TRANSACTED
        self.acknowledges_itself = mode in (AUTO_ACKNOWLEDGE, DUPS_OK_ACKNOWLEDGE)
        self.acknowledge_hook: Callable[[], None] = no_hook
        policy = connection.options.send_confirm
        self.waits = (False, policy == "always", policy == "always" or (policy == "auto" and not self.transacted))
        self.opened: Completion[Any] = Completion()
        self.closed = self.shut = False
        self.consumers: dict[int, EngineConsumer] = {}
        # Consumers that are closed here but handed messages over that may be unacknowledged: id -> last tag (MCO-09).
        self._consumed: dict[int, int] = {}
        # Messages that the application has, or what it sent in its transaction, were lost with a connection (ACK-18).
        self._returned = False
        self._began = 0  # sequence of the last send before the present transaction
        # Sends: `sequence` and `sent_bytes` are written by the sender alone, the rest by whoever holds the lock.
        self.sequence = 0
        self.sent_bytes = 0
        self.confirmed = 0
        self.confirmed_bytes = 0
        self.unconfirmed: deque[bytes] = deque()
        self.waiting: deque[tuple[int, Completion[None]]] = deque()
        self._barriers: deque[tuple[int, Completion[None]]] = deque()
        self.window_waiters: list[Completion[None]] = []
        self.hold: Hold | None = None
        self.blocked: Blocked | None = None
        self.last_blocked: Blocked | None = None
        #: What whoever waits for a send is told that was withdrawn, by sequence.
        self.withdrawn: dict[int, Exception] = {}
        self.sequence_limit = connection.window_messages
        self.byte_limit = connection.window_bytes

    # -- what a call may do ------------------------------------------------------------------------------------------

    def check_open(self) -> None:
        """Raise unless the session can be used (CLO-17).

        Raises:
            IllegalStateException: the session or its connection is closed.
            JMSException: the connection is lost.
        """
        if self.closed:
            raise IllegalStateException("the session is closed")
        self.connection.check_open()

    # -- consumers ---------------------------------------------------------------------------------------------------

    def open_consumer(
        self,
        destination: Destination,
        address: str,
        selector: str | None = None,
        *,
        no_local: bool = False,
        subscription: str | None = None,
        durable: bool = False,
        shared: bool = False,
    ) -> EngineConsumer:
        """Open a consumer; it is in the session's list once its `opened` has succeeded.

        Args:
            destination: what its messages show as JMSDestination.
            address: the destination's address in text.
            selector: condition; None or blank for none (SEL-03, D-12). Verified here, before anything is sent (SEL-01).
            no_local: topics: not what this connection publishes (SES-21).
            subscription: name of a durable or shared subscription.
            durable, shared: kind of the subscription (section 29).

        Raises:
            InvalidSelectorException: with the place of the mistake (SEL-02).
            IllegalStateException: the session is closed, or an unshared durable consumer without a client id (SUB-10).
            JMSException: a subscription without a name (SUB-29).
            ResourceAllocationException: the session has as many consumers as the broker allows.
        """
        self.check_open()
        connection = self.connection
        connection.check_limit("consumers", len(self.consumers), "the session")
        selector = connection.check_selector(selector)
        if durable or shared:
            if not subscription:
                raise JMSException("a durable or shared consumer needs the name of its subscription")
            if durable and not shared and connection.client_id is None:
                raise IllegalStateException(
                    "an unshared durable consumer needs a client id: set it on the connection first (SUB-10)"
                )
        consumer = EngineConsumer(
            self,
            connection.next_consumer(),
            destination,
            address,
            selector,
            no_local=no_local,
            subscription=subscription,
            durable=durable,
            shared=shared,
        )
        connection.open_consumer(consumer)
        return consumer

    def close_consumer(self, consumer: EngineConsumer) -> Completion[Any]:
        """See :meth:`EngineConsumer.close`."""
        consumer.mark_closed()
        self.consumers.pop(consumer.id, None)
        connection = self.connection
        connection.forget_consumer(consumer)
        if consumer.gone is not None or connection.failure is not None or connection.closing or connection.closed:
            done: Completion[Any] = Completion()
            done.succeed(None)
            return done
        self._keep_consumed(consumer)
        # Nothing goes back to a queue, and nobody can tell when: the answer need not be waited for. What ends with the
        # consumer of a topic, its subscription, others may ask about at once.
        at_once = consumer.of_queue and consumer.holds_nothing
        consumer.buffer.clear()
        completion = connection.request(Command.CLOSE_CONSUMER, consumer.id, consumer.handed)
        return _nothing_to_do() if at_once else completion

    def consumer_is_gone(self, consumer: EngineConsumer, error: Exception) -> None:
        """The broker closed the consumer: its destination is deleted, or an administrator did it."""
        consumer.gone = error
        consumer.buffer.clear()
        self.consumers.pop(consumer.id, None)
        self.connection.forget_consumer(consumer)
        self._keep_consumed(consumer)
        consumer.mark_closed()

    def _keep_consumed(self, consumer: EngineConsumer) -> None:
        if consumer.holds_returned:
            self._returned = True
        # Also in AUTO mode: the consumer may be closed by its own listener, before the message is done (MCO-08).
        if consumer.handed != consumer.done:
            self._consumed[consumer.id] = consumer.handed

    def _all_done(self) -> None:
        self._consumed.clear()
        self._returned = False
        for consumer in self.consumers.values():
            consumer.done = consumer.handed_then = consumer.handed

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

    def acknowledge(self) -> Completion[Any]:
        """Acknowledge everything the session was handed (MSG-01, ACK-05, CTX-15).

        Returns:
            The broker's answer; settled at once where acknowledge() has no effect (ACK-07).

        Raises:
            IllegalStateException: the session is closed (CLO-20).
            JMSException: some of them were received on a connection that was lost since (ACK-18).
        """
        self.check_open()
        if self.mode != CLIENT_ACKNOWLEDGE:
            return _nothing_to_do()
        if self._is_broken:
            self._returned = False  # what was received since stays unacknowledged
            for consumer in self.consumers.values():
                consumer.handed_then = consumer.handed
            raise JMSException(
                "the connection was lost and repaired since some of these messages were received: they come again, "
                "marked as redelivered, and nothing was acknowledged; acknowledge() counts again from here on",
                "CONNECTION_LOST",
                self.connection.cause,
            )
        pairs = self.handed()
        if not pairs:
            return _nothing_to_do()
        completion = self.connection.request(Command.ACKNOWLEDGE_ALL, self.id, pairs)
        self._all_done()
        return completion

    def recover(self) -> Completion[Any]:
        """Have everything handed and not acknowledged come again, marked (ACK-08).

        Raises:
            IllegalStateException: the session is transacted (ACK-12) or closed.
        """
        self.check_open()
        if self.transacted:
            raise IllegalStateException("recover() is for sessions that are not transacted: use rollback()")
        if self.acknowledges_itself and not self._consumed and all(c.done == c.handed for c in self.consumers.values()):
            return _nothing_to_do()  # ACK-10: everything is acknowledged; what is buffered just comes
        return self._take_back(Command.RECOVER)

    def commit(self) -> Completion[Any]:
        """Publish what the session sent, acknowledge what it was handed, all or nothing (TXN-10).

        The completion fails with TransactionRolledBackException if it ended as a rollback (TXN-09).

        Raises:
            IllegalStateException: the session is not transacted (TXN-08) or closed.
        """
        self._check_transacted("commit")
        if self._is_broken:
            return self._commit_broken()
        self._began = self.sequence
        completion = self.connection.request(Command.COMMIT, self.id, self.handed())
        completion.add_callback(self._committed)
        return completion

    def rollback(self) -> Completion[Any]:
        """Forget what the session sent; what it was handed comes again, marked (TXN-04).

        Raises:
            IllegalStateException: the session is not transacted (TXN-08) or closed.
        """
        self._check_transacted("rollback")
        return self._take_back(Command.ROLLBACK)

    def _commit_broken(self) -> Completion[Any]:
        """Part of the transaction was lost with a connection: the rest goes the same way (TXN-09)."""
        completion: Completion[Any] = Completion()

        def ended(answer: Completion[Any]) -> None:
            completion.fail(
                answer.error
                or TransactionRolledBackException(
                    "the connection was lost in the middle of the transaction: it was rolled back",
                    "TRANSACTION_ROLLED_BACK",
                    self.connection.cause,
                )
            )

        self._take_back(Command.ROLLBACK).add_callback(ended)
        return completion

    def _check_transacted(self, verb: str) -> None:
        self.check_open()
        if not self.transacted:
            raise IllegalStateException(f"{verb}() is for transacted sessions")

    def _committed(self, completion: Completion[Any]) -> None:
        self._all_done()
        if isinstance(completion.error, TransactionRolledBackException):
            # What is in the buffers was sent before the broker took it back.
            self._reset_credit()
            self._resume()

    def _take_back(self, verb: int) -> Completion[Any]:
        # The request packs the acknowledgements that wait; they must not cover what it is about: `done` moves after it.
        completion = self.connection.request(verb, self.id, self.handed())
        if self.transacted and self.connection.repairing:
            self._drop_unconfirmed()  # the request is said before what is sent from here on
        self._began = self.sequence
        self._all_done()
        for consumer in self.consumers.values():
            self.connection.ignore_deliveries(consumer)  # until the answer: sent before the broker took them back
        self._reset_credit()
        completion.add_callback(lambda _: self._resume())
        return completion

    def _reset_credit(self) -> None:
        for consumer in self.consumers.values():
            consumer.reset_credit()

    def _resume(self) -> None:
        for consumer in tuple(self.consumers.values()):
            self.connection.heed_deliveries(consumer)
            consumer.set_flowing(self.connection.started)

    # -- sends -------------------------------------------------------------------------------------------------------

    @property
    def window_is_full(self) -> bool:
        """Too many messages or bytes are unconfirmed: a further send has to wait for :meth:`window_opens`."""
        return self.sequence >= self.sequence_limit or self.sent_bytes >= self.byte_limit

    def window_opens(self) -> Completion[None]:
        """Settled as soon as the window has room again, or the connection is lost."""
        completion: Completion[None] = Completion()
        if self.connection.failure is not None:
            completion.fail(self.connection.failure)
        elif not self.window_is_full:
            completion.succeed(None)
        else:
            self.window_waiters.append(completion)
            self.connection.hurried = True
        return completion

    @property
    def leaves_sends(self) -> bool:
        """Sends for which nobody waits may not be taken yet; what a transaction has sent ends with it (TXN-05)."""
        return len(self.unconfirmed) > len(self.waiting) and not self.transacted

    def sends_settled(self) -> Completion[None]:
        """Settled once every send made so far is confirmed or has failed (CPL-09, CPL-10)."""
        completion: Completion[None] = Completion()
        if self.confirmed >= self.sequence or self.connection.failure is not None:
            completion.succeed(None)
        else:
            self._barriers.append((self.sequence, completion))
            self.connection.hurried = True
        return completion

    def confirm(self, sequence: int) -> None:
        """CONFIRM: every send up to this one is settled."""
        if sequence < self.confirmed:
            return
        settled = self.unconfirmed.popleft
        count = min(sequence - self.confirmed, len(self.unconfirmed))
        done = sum(map(len, [settled() for _ in range(count)]))
        self.confirmed = sequence
        self.confirmed_bytes += done
        self.sequence_limit = sequence + self.connection.window_messages
        self.byte_limit = self.confirmed_bytes + self.connection.window_bytes
        if self.hold is not None:
            self.hold.advance(count)
        waiting = self.waiting
        while waiting and waiting[0][0] <= sequence:
            waiting.popleft()[1].succeed(None)
        while self._barriers and self._barriers[0][0] <= sequence:
            self._barriers.popleft()[1].succeed(None)
        if self.window_waiters and not self.window_is_full:
            self._wake_waiters()

    def _wake_waiters(self) -> None:
        waiters, self.window_waiters = self.window_waiters, []
        for waiter in waiters:
            waiter.succeed(None)

    def open_window(self) -> None:
        """Nothing keeps senders any more but what is unconfirmed."""
        self.sequence_limit = self.confirmed + self.connection.window_messages
        if self.window_waiters and not self.window_is_full:
            self._wake_waiters()

    def send_failed(self, sequence: int, code: int, text: str) -> None:
        """SEND_FAILED: one send was refused; all before it are settled."""
        self.confirm(sequence - 1)
        withdrawn = self.withdrawn.pop(sequence, None)
        error = withdrawn or exception_for(code, text)
        waiting = self.waiting
        known = False
        while waiting and waiting[0][0] <= sequence:
            known = True
            waiting.popleft()[1].fail(error)
        self.confirm(sequence)
        if (
            not known and not self.transacted and withdrawn is None
        ):  # D-24: nobody waits for it; in a transaction the commit tells
            self.connection.report(error)

    def fail_sends(self, error: Exception) -> None:
        """The connection is lost: everything that somebody waits for fails, in order (D-32)."""
        while True:
            try:
                completion = self.waiting.popleft()[1]
            except IndexError:
                break
            completion.fail(error)
        while self._barriers:
            self._barriers.popleft()[1].succeed(None)
        waiters, self.window_waiters = self.window_waiters, []
        for waiter in waiters:
            waiter.fail(error)

    # -- sends that wait for room ------------------------------------------------------------------------------------

    def wait_for_room(self, blocked: Blocked, sequence: int) -> None:
        """FLOW: from this send on nothing is taken; or with 0 the session's commit waits."""
        self.blocked = self.last_blocked = blocked
        if sequence:
            if self.hold is None:
                self.hold = Hold(self)
            else:
                self.hold.wait()

    def go_on(self, sequence: int) -> None:
        """FLOW: there is room again, from this send on."""
        self.blocked = None
        if sequence and self.hold is not None:
            self.hold.go_on(sequence)

    def withdraw(self, sequence: int, completion: Completion[Any], error: Exception) -> None:
        """Take a send back that waits for room. Whoever waits for it gets `error`, unless the broker has taken it; that
        it says before it answers.

        Args:
            sequence: of the send.
            completion: settled with its fate.
            error: that tells why.
        """
        index = sequence - self.confirmed - 1
        instead = pack((Command.WITHDRAW, 0, self.id, sequence))  # where it is to be said again: its number stays
        self.confirmed_bytes += len(self.unconfirmed[index]) - len(instead)
        self.unconfirmed[index] = instead
        self.withdrawn[sequence] = error

        def heard(answer: Completion[Any]) -> None:
            if answer.error is None:
                if sequence <= self.confirmed:
                    self.withdrawn.pop(sequence, None)
                completion.fail(error)

        self.connection.request(Command.WITHDRAW, self.id, sequence).add_callback(heard)

    def withdraw_commit(self) -> None:
        """If the commit that is under way waits for room, it becomes a rollback, which is its answer."""
        self.connection.request(Command.WITHDRAW, self.id, 0)

    def give_up_sends(self) -> None:
        """The session is closed, and the broker has not taken all that was sent: who waits learns it."""
        lost = len(self.unconfirmed)
        if not lost:
            return
        why = f": {self.last_blocked.reason}" if self.last_blocked is not None else ""
        error = ResourceAllocationException(
            f"{lost} messages were not taken by the broker before their session was closed, and are lost{why}",
            "SEND_TIMEOUT",
        )
        waited = len(self.waiting) + len(self.withdrawn)
        self.fail_sends(error)
        if lost > waited:
            self.connection.report(error)

    # -- a lost connection -------------------------------------------------------------------------------------------

    @property
    def _is_broken(self) -> bool:
        return self._returned or any(consumer.holds_returned for consumer in self.consumers.values())

    def freeze(self, committing: bool, recovering: bool) -> list[tuple[int, int]]:
        """The connection is lost: what the session was handed goes back, and its transaction is rolled back (TXN-05).

        Args:
            committing: the fate of its transaction depends on a commit that is on its way.
            recovering: it has asked for everything to be taken back, and emptied its buffers.

        Returns:
            Pairs of consumer and last tag that may have been seen, of consumers where that is known.
        """
        handed: list[tuple[int, int]] = []
        for consumer in self.consumers.values():
            seen = consumer.freeze()
            if recovering:  # nobody can be taking a message now
                seen = consumer.handed
            if seen is not None:
                handed.append((consumer.id, seen))
        if not committing and not self.acknowledges_itself:
            self._returned = (
                self._returned
                or bool(self._consumed)
                or any(consumer.done < consumer.handed for consumer in self.consumers.values())
                or (self.transacted and self.sequence > self._began)
            )
        self._consumed.clear()
        self.blocked = None
        if self.hold is not None:  # all that is not confirmed is said again
            self.hold = None
            self.open_window()
        if self.transacted:
            self._drop_unconfirmed()
        return handed

    def _drop_unconfirmed(self) -> None:
        """What was sent in the transaction is gone. Whoever waits for the fate of a single send learns it."""
        last = self.confirmed + len(self.unconfirmed)
        while self.waiting and self.waiting[0][0] <= last:
            self.waiting.popleft()[1].fail(
                TransactionRolledBackException(
                    "the connection was lost, and the transaction of this send was rolled back",
                    "TRANSACTION_ROLLED_BACK",
                )
            )
        self.confirm(last)

    # -- closing -----------------------------------------------------------------------------------------------------

    def shut_gate(self) -> None:
        """Closing begins: nothing is handed over from here on, and whoever waits at a consumer learns it (CLO-06).

        The session stays usable, for listeners that still run (CLO-08).
        """
        self.shut = True
        for consumer in tuple(self.consumers.values()):
            consumer.shut_gate()

    def mark_closed(self) -> None:
        """Closed: no method but close may be used any more (CLO-17)."""
        self.closed = self.shut = True
        for consumer in tuple(self.consumers.values()):
            consumer.mark_closed()

    def close(self) -> Completion[Any]:
        """Close it: a transaction is rolled back, unacknowledged messages go back (CLO-03, ACK-15, TXN-05).

        The caller has made sure that nobody is between `take` and `settle` in another thread, and that listeners have
        returned (CLO-08).
        """
        self.mark_closed()
        connection = self.connection
        if connection.failure is not None or connection.closing or connection.closed:
            connection.forget_session(self)
            return _nothing_to_do()
        completion = connection.request(Command.CLOSE_SESSION, self.id, self.handed())
        for consumer in tuple(self.consumers.values()):
            connection.forget_consumer(consumer)
        self.consumers.clear()

        def closed(answer: Completion[Any]) -> None:
            if answer.error is None:
                self.give_up_sends()
            connection.forget_session(self)

        completion.add_callback(closed)
        return completion


def _nothing_to_do() -> Completion[Any]:
    completion: Completion[Any] = Completion()
    completion.succeed(None)
    return completion
