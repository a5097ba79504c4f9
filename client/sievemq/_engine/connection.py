"""The client's end of a connection without its I/O: requests and answers, sessions, deliveries, heartbeats, the end."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable
from typing import Any, Final

from sievemq._engine.completion import Completion
from sievemq._engine.consumer import EngineConsumer
from sievemq._engine.deadlines import Deadlines
from sievemq._engine.ending import end, fail, goodbye, lose, loss, unrepaired
from sievemq._engine.flow import Flow
from sievemq._engine.heartbeat import Heartbeat
from sievemq._engine.incoming import HANDLERS, WINDOW_BYTES, WINDOW_MESSAGES
from sievemq._engine.options import EngineOptions
from sievemq._engine.outgoing import gather, pack_acknowledgements
from sievemq._engine.requests import Requests
from sievemq._engine.restore import resume_options
from sievemq._engine.selector import verified
from sievemq._engine.sends import Sends
from sievemq._engine.session import (
    EngineSession,
)
from sievemq.exceptions import (
    IllegalStateException,
    InvalidClientIDException,
    JMSException,
    MessageFormatException,
    ResourceAllocationException,
)
from sievemq.session_mode import session_mode
from sievemq_core.errors import ProtocolError
from sievemq_core.limits import MAX_BODY_BYTES
from sievemq_core.wire.busy_poll import BusyPoll
from sievemq_core.wire.codec import CommandTuple, pack
from sievemq_core.wire.commands import PROTOCOL_VERSION, Command
from sievemq_core.wire.connection import State, WireConnection

__all__ = ["ClientConnection"]

#: Decoded commands over which the average size of a delivery is kept.
_AVERAGE_OVER: Final = 1_024


class ClientConnection:
    """The engine of one connection. How a front drives it is told in :mod:`sievemq._engine`.

    Args:
        options: what to open it with.
        clock: returns the time in milliseconds since 1970-01-01 UTC.

    Attributes:
        outbox: packed commands in the order of their calls, not yet in frames. A sender appends here without the lock.
        outbox_bytes: about how many bytes of sends it holds; for deciding when to write, not exact with many senders.
        hurried: somebody waits for the confirm of a NON_PERSISTENT message; a sender sets it without the lock.
        unsettled: consumers with something to acknowledge at the next write.
        failure: why the connection is lost for good; None as long as it is not.
        repairing: it is lost, and tried to be repaired: nothing is delivered, what is asked for waits.
        reopened: while it is repaired: a new transport is there, and HELLO was said.
        outages: how often it was lost.
        cause: of the last outage; of the last attempt, while it is repaired; of a loss after GOODBYE.
        leaving: it is about to be closed; a loss is not repaired any more.
        closed: it was closed by :meth:`close`.
        started: deliveries flow (CON-15).
        on_exception: called with what has no other place to be reported (EXL-03), under the front's lock; the front
            hands it to the ExceptionListener outside.
        on_lost: called with the reason when it is lost and is going to be repaired; as `on_exception`.
        on_restored: called when it is repaired; as `on_exception`.
        clock_offset: milliseconds to add to the clock: the broker's clock was moved (test clocks only).
        skipped: seconds that the broker's clock was moved forward by, in all: they count as time that a receive has
            waited. Moving it back gives nobody more time.
        flow: what sends wait for.
        deadlines: what may wait only for so long.
        broker, incarnation, features, limits: what WELCOME said.
        acknowledges_several: the broker takes ACKNOWLEDGE_SEVERAL.
        requests: those that wait for an answer.
        opened, goodbye: settled with WELCOME; the number of GOODBYE, once it is said.
        routes: consumers that deliveries are for; not those that wait for the answer to RECOVER or ROLLBACK.
        busy_poll: how the front waits for the present broker's answers.
        peer: host and port that it was last connected to, as the URL has them; None where the front does not say.
    """

    def __init__(self, options: EngineOptions, clock: Callable[[], int]) -> None:
        self.options = options
        self.clock = clock
        self.clock_offset = 0
        self.skipped = 0.0
        self.on_exception: Callable[[Exception], None] | None = None
        self.on_lost: Callable[[JMSException], None] | None = None
        self.on_restored: Callable[[], None] | None = None
        self.repairing = self.reopened = self.leaving = False
        self.outages = 0
        self.cause: JMSException | None = None
        self.failure: JMSException | None = None
        self.closed = self.closing = self.started = False
        self.client_id: str | None = options.client_id
        self.connection_id = ""
        self.broker = self.incarnation = ""
        self.peer: tuple[str, int] | None = None
        self.features: dict[str, Any] = {}
        self.acknowledges_several = False
        self.flow = Flow(self)
        self.deadlines = Deadlines()
        self.shutdown_notice: str | None = None
        self.window_messages, self.window_bytes = WINDOW_MESSAGES, WINDOW_BYTES
        self.max_body = MAX_BODY_BYTES
        self.limits: dict[str, Any] = {}
        self.outbox: deque[bytes] = deque()
        self.outbox_bytes = 0
        self.hurried = False
        self.unsettled: deque[EngineConsumer] = deque()
        self.sessions: dict[int, EngineSession] = {}
        self.wire = WireConnection("client")
        #: Temporary destinations by address: True for a topic.
        self.temporaries: dict[str, bool] = {}
        self.requests = Requests()
        #: Pairs of consumer and last tag that the application may have seen, from the last loss.
        self.handed_when_lost: list[int] = []
        self._last_session = self._last_consumer = 0
        self.welcomed = False
        self._used = options.client_id is not None
        self.opened: Completion[None] = Completion()
        self.goodbye = 0
        self._next_session = itertools.count(1).__next__
        self.next_consumer: Callable[[], int] = itertools.count(1).__next__
        self.next_message: Callable[[], int] = itertools.count(1).__next__
        self.id_prefix = "ID:"
        self.routes: dict[int, EngineConsumer] = {}
        self.consumers: dict[int, EngineConsumer] = {}
        self._bytes_in, self._commands_in = 0, 0
        self.heartbeat = Heartbeat(0, 0)
        self.busy_poll = BusyPoll(0)

    # -- the boundary to the transport -------------------------------------------------------------------------------

    def open(self) -> Completion[None]:
        """Say HELLO. The completion succeeds with WELCOME, or fails: JMSSecurityException for bad credentials
        (FAC-02), InvalidClientIDException for an administered id that somebody has (SUB-32)."""
        self._say_hello(None, {})
        return self.opened

    def _say_hello(self, resume: str | None, more: dict[str, object]) -> None:
        options = self.options
        if options.reconnect:  # the broker may notice a loss when it happens, this end after some silent heartbeats
            more = {"keep": options.reconnect + 3 * options.heartbeat, **more}
        more = {"deliver_several": True, **more}
        self.wire.send(
            Command.HELLO,
            PROTOCOL_VERSION,
            options.namespace,
            options.user,
            options.password,
            self.client_id,
            options.heartbeat,
            options.agent,
            resume,
            more,
        )

    def receive_data(self, data: bytes) -> None:
        """Take bytes from the broker and carry out what they say. Never raises for what a peer sent: a broken
        protocol loses the connection. Call :meth:`data_to_send` afterwards."""
        if self.failure is not None or self.closed:
            return
        try:
            commands = self.wire.receive_data(data)
        except ProtocolError as error:
            lose(self, loss(self, error, error.code.name), repairable=False)  # it would say the same again
            return
        routes = self.routes
        for command in commands:
            if command[0] == 80:  # DELIVER, first because it is the most frequent by far
                consumer = routes.get(command[1])
                if consumer is not None:
                    consumer.buffer.append(command)
                    waker = consumer.waker
                    if waker is not None:
                        consumer.waker = None
                        waker()
            else:
                HANDLERS[command[0]](self, command)
        self._bytes_in += len(data)
        self._commands_in += len(commands)
        if self._commands_in > _AVERAGE_OVER:
            self._bytes_in //= 2
            self._commands_in //= 2

    def received_more(self, messages: int) -> None:
        """A command was as many deliveries more."""
        self._commands_in += messages

    def receive_eof(self) -> None:
        """The broker's stream ended."""
        try:
            self.wire.receive_eof()
        except ProtocolError as error:
            self.lost(error)
        else:
            self.lost(None)

    def lost(self, error: BaseException | None) -> None:
        """The transport is gone. If the connection may be repaired it freezes, and the front opens another transport
        (:meth:`reopen`); otherwise everything that waits fails, in order, and everybody is woken (D-32). Idempotent.

        Args:
            error: why; None if the broker just ended the stream.
        """
        if self.failure is not None or self.closed:
            return
        if self.closing:
            # The answer to GOODBYE is lost; the broker has ended the connection, which is what was asked for.
            self.cause = loss(self, error)
            end(self)
            return
        if self.repairing and not self.reopened:
            return  # that was known
        lose(self, loss(self, error), repairable=True)

    def reopen(self) -> None:
        """There is a new transport: say HELLO on it, in the place of the lost connection. With WELCOME everything goes
        on; if the transport is lost before, :attr:`reopened` is False again."""
        self.wire = WireConnection("client")
        self.shutdown_notice = None
        self.reopened = True
        self._say_hello(self.connection_id, resume_options(self))

    def attempt_failed(self, error: JMSException) -> None:
        """No new transport could be opened this time."""
        if self.repairing:
            self.cause = error

    def give_up(self, error: Exception | None = None) -> None:
        """The connection is lost for good: what waits fails.

        Args:
            error: why; None because the time is over that a repair may take.
        """
        if self.failure is not None or self.closed:
            return
        if error is None:
            fail(self, unrepaired(self))
        else:
            fail(self, error if isinstance(error, JMSException) else loss(self, error))

    def leave(self) -> None:
        """Closing begins. If the connection is lost, what is pending fails at once (D-32)."""
        self.leaving = True
        if self.repairing:
            fail(self, self.cause or loss(self, None), tell=False)

    @property
    def usable(self) -> bool:
        """Neither lost for good nor closed."""
        return self.failure is None and not self.closed

    @property
    def down(self) -> bool:
        """There is no transport that is of any use."""
        return self.failure is not None or (self.repairing and not self.reopened)

    def data_to_send(self) -> bytes:
        """What is to be written now: everything said since the last call, acknowledgements included (D-25).

        Whoever calls it must write the bytes before anybody writes those of a later call.
        """
        if not self.closing and not self.repairing:  # after GOODBYE, and before WELCOME, nothing else may be said
            if self.hurried:
                self._confirm_soon()
            if self.unsettled:
                pack_acknowledgements(self)
            if self.outbox:
                gather(self)
        return self.wire.data_to_send()

    @property
    def has_output(self) -> bool:
        """Something waits for :meth:`data_to_send`. May be read without the lock."""
        return bool(self.wire.pending_bytes or (not self.repairing and (self.outbox or self.unsettled or self.hurried)))

    @property
    def urgent(self) -> bool:
        """What waits is more than acknowledgements: answers to the broker, requests, sends."""
        return bool(self.wire.pending_bytes or ((self.outbox or self.hurried) and not self.repairing))

    def tick(self, now: int) -> int | None:
        """Keep the heartbeats (HELLO, WELCOME): say something when nothing was said for half an interval; lose the
        connection when nothing was heard for two.

        Args:
            now: milliseconds of any clock that never goes back.

        Returns:
            Milliseconds until it should be called again; None if never.
        """
        if self.failure is not None or self.closed or self.wire.state is not State.OPEN:
            return None
        wait = self.heartbeat.tick(self.wire, now, self.has_output)
        if wait == 0:
            self.lost(TimeoutError(f"the broker was silent for {2 * self.heartbeat.incoming} ms"))
            return None
        deadlines = self.deadlines
        if deadlines.next is not None:
            now += int(self.skipped * 1000.0)
            next_due = deadlines.due(now)
            if next_due is not None and (wait is None or next_due - now < wait):
                return max(1, next_due - now)
        return wait

    def expect(
        self, sends: Sends, completion: Completion[Any] | None, now: int, timeout: int, sequence: int = 0
    ) -> None:
        """Something may take so long and no longer; call :meth:`tick` when that is over.

        Args:
            sends: of the session whose send or commit it is.
            completion: settled with its fate; None of an asynchronous send.
            now: as of :meth:`tick`.
            timeout: ms.
            sequence: of the send; 0 for a commit, and for a window to open.
        """
        self.deadlines.expect(sends, completion, now + int(self.skipped * 1000.0), timeout, sequence)

    # -- the connection's own verbs ----------------------------------------------------------------------------------

    def check_open(self) -> None:
        """Raise unless the connection can be used.

        Raises:
            IllegalStateException: it is closed (CLO-16).
            JMSException: it is lost.
        """
        if self.closed or self.closing:
            raise IllegalStateException("the connection is closed")
        if self.failure is not None:
            # A new exception each time: a traceback belongs to one raise.
            raise JMSException(str(self.failure), self.failure.get_error_code(), self.failure.get_linked_exception())

    def mark_used(self) -> None:
        """An action that makes it too late to set a client id (CON-08, CON-09)."""
        self._used = True

    def set_client_id(self, client_id: object) -> Completion[Any]:
        """Claim a client id (CON-05).

        Args:
            client_id: what the application gave.

        Raises:
            IllegalStateException: closed; the id is administered (CON-06), set already (CON-07), or it is too late
                (CON-08).
            InvalidClientIDException: None, empty, or not text.
        """
        self.check_open()
        if self.options.client_id is not None:
            raise IllegalStateException("the client id is administered: it was given to the ConnectionFactory")
        if self.client_id is not None:
            raise IllegalStateException(f"the client id is set already, to {self.client_id!r}")
        if self._used:
            raise IllegalStateException("a client id is set before anything else is done with the connection")
        if not isinstance(client_id, str) or not client_id:
            raise InvalidClientIDException(f"a client id is text that is not empty, not {client_id!r}")
        claimed = client_id
        completion = self.request(Command.SET_CLIENT_ID, claimed)

        def keep(answer: Completion[Any]) -> None:
            if answer.error is None:  # CON-10: after a refusal the connection is id-less and usable
                self.client_id = claimed

        completion.add_callback(keep)
        return completion

    def start(self) -> None:
        """Let messages flow (CON-15)."""
        self.check_open()
        self.mark_used()
        if not self.started:
            self.started = True
            for session in tuple(self.sessions.values()):
                session.set_flowing(True)

    def stop(self) -> None:
        """Shut the gate of every consumer (CON-17). The front then waits for whoever is inside (CON-16)."""
        self.check_open()
        self.mark_used()
        self.started = False
        for session in tuple(self.sessions.values()):
            session.set_flowing(False)

    def open_session(self, mode: object, is_action: bool = True) -> EngineSession:
        """Open a session; wait for its `opened`.

        Args:
            mode: a SessionMode, or its number.
            is_action: it makes it too late to set a client id (CON-08); not the session that a context is born with.

        Raises:
            JMSException: another mode (CON-02).
            IllegalStateException: the connection is closed.
            ResourceAllocationException: it has as many sessions as the broker allows.
        """
        self.check_open()
        self.check_limit("sessions", len(self.sessions), "the connection")
        chosen = session_mode(mode)
        if is_action:
            self.mark_used()
        self._last_session = number = self._next_session()
        session = EngineSession(self, number, chosen)
        self.sessions[session.id] = session
        session.opened = self.request(Command.OPEN_SESSION, session.id, chosen, 0)

        def opened(answer: Completion[Any]) -> None:
            if answer.error is not None:
                self.forget_session(session)

        session.opened.add_callback(opened)
        return session

    def check_limit(self, limit: str, there: int, where: str) -> None:
        """Raise unless there may be one more. The broker looks as well; this saves the way there.

        Args:
            limit: its name in WELCOME; what is counted.
            there: how many there are.
            where: whose limit it is, for people.

        Raises:
            ResourceAllocationException: there are as many as the broker allows.
        """
        most = self.limits.get(limit)
        if type(most) is int and 0 < most <= there:
            raise ResourceAllocationException(
                f"{where} has as many {limit} as the broker allows, {most}; close those that are done",
                "RESOURCE_ALLOCATION",
            )

    def create_temporary(self, topic: bool) -> Completion[Any]:
        """Make a temporary destination; the value is its address in text (TMP-01)."""
        self.check_open()
        self.check_limit("temporaries", len(self.temporaries), "the connection")
        completion = self.request(Command.CREATE_TEMPORARY, topic, None)

        def keep(answer: Completion[Any]) -> None:
            if answer.error is None:
                self.temporaries[answer.result()] = topic

        completion.add_callback(keep)
        return completion

    def delete_temporary(self, address: str) -> Completion[Any]:
        """Delete a temporary destination of this connection (TMP-07)."""
        self.check_open()
        completion = self.request(Command.DELETE_TEMPORARY, address)

        def forget(answer: Completion[Any]) -> None:
            if answer.error is None:
                self.temporaries.pop(address, None)

        completion.add_callback(forget)
        return completion

    def unsubscribe(self, name: object) -> Completion[Any]:
        """Delete a durable subscription (SES-27)."""
        self.check_open()
        return self.request(Command.UNSUBSCRIBE, name)

    def declare(self, address: str) -> Completion[Any]:
        """Ask whether a destination can be sent to."""
        self.check_open()
        return self.request(Command.DECLARE, address)

    def ping(self) -> Completion[Any]:
        """Answered once everything said before has been carried out."""
        self.check_open()
        return self.request(Command.PING)

    def close(self) -> Completion[Any]:
        """Close sessions, consumers, temporary destinations, then the connection (CLO-02). Idempotent (CLO-01).

        The completion succeeds, whatever state the connection is in; then the transport can be closed. What waits for
        an answer that will not come has failed by then.
        """
        return goodbye(self)

    # -- what sessions and consumers use -----------------------------------------------------------------------------

    def put(self, packed: bytes) -> None:
        """Queue a send. Needs no lock."""
        self.outbox.append(packed)
        self.outbox_bytes += len(packed)

    def hurry(self) -> None:
        """Something waits for the confirm of a NON_PERSISTENT message. Needs no lock."""
        self.hurried = True

    def append(self, command: CommandTuple) -> None:
        """Queue a command that is not answered."""
        if self.failure is None and not self.closing and not self.repairing:
            self.outbox.append(pack(command))

    def request(self, number: int, *fields: object) -> Completion[Any]:
        """Queue a command that is answered by OK or ERROR. Acknowledgements that wait go out before it."""
        completion: Completion[Any]
        if self.failure is not None or self.closing or self.closed:
            completion = Completion()
            completion.fail(self.failure or IllegalStateException("the connection is closed"))
            return completion
        if self.unsettled and not self.repairing:
            pack_acknowledgements(self)
        completion, packed = self.requests.make(number, fields)
        if not self.repairing:  # else it is said behind WELCOME
            self.outbox.append(packed)
        return completion

    def say(self, kind: int, *fields: object, number: int | None = None) -> Completion[Any]:
        """Say a request before anything that waits in the outbox, while the connection is restored.

        Args:
            kind: of the command.
            fields: behind its request number.
            number: of a request that waits already, and may have been said before; None for a new one.
        """
        requests = self.requests
        completion, packed = requests.make(kind, fields) if number is None else requests.repeat(number, kind, fields)
        self.wire.send_packed(packed)
        return completion

    def _confirm_soon(self) -> None:
        """Have the broker confirm what it has: confirms of NON_PERSISTENT messages wait for company otherwise."""
        self.hurried = False
        self.request(Command.PING)

    def check_selector(self, selector: Any) -> str | None:
        """The selector to send, None for none; checked as the broker will check it (SEL-01).

        Raises:
            InvalidSelectorException: with the place of the mistake.
        """
        return verified(selector, self.options.dialect or self.features.get("dialect") or "jakarta")

    def route(self, consumer: EngineConsumer) -> None:
        """Deliver to a consumer, which is about to be opened."""
        self._last_consumer = consumer.id
        self.consumers[consumer.id] = self.routes[consumer.id] = consumer

    @property
    def last_ids(self) -> tuple[int, int]:
        """The last session id and the last consumer id."""
        return self._last_session, self._last_consumer

    def forget_consumer(self, consumer: EngineConsumer) -> None:
        """Drop what arrives for a consumer from here on."""
        self.consumers.pop(consumer.id, None)
        self.routes.pop(consumer.id, None)

    def forget_session(self, session: EngineSession) -> None:
        """The session is closed at both ends."""
        self.sessions.pop(session.id, None)
        if session.sends.blocked is not None:
            self.flow.changed()

    def ignore_deliveries(self, consumer: EngineConsumer) -> None:
        """Drop what arrives for a consumer until :meth:`heed_deliveries`."""
        self.routes.pop(consumer.id, None)

    def heed_deliveries(self, consumer: EngineConsumer) -> None:
        """Deliver to the consumer again, unless it is closed."""
        if consumer.id in self.consumers:
            self.routes[consumer.id] = consumer

    def is_expired(self, expiration: Any) -> bool:
        """True if this time (ms since 1970), as a message says it, has passed on the broker's clock.

        Raises:
            MessageFormatException: it is no time.
        """
        try:
            return bool(expiration <= self.clock() + self.clock_offset)
        except TypeError as error:
            raise MessageFormatException("the broker delivered a message whose expiration is no number") from error

    def report(self, error: Exception) -> None:
        """Tell what has no other place to be reported."""
        if self.on_exception is not None:
            self.on_exception(error)

    @property
    def average_bytes(self) -> int:
        """Size of a command that arrived of late; at full speed nearly all of them are deliveries."""
        return self._bytes_in // max(1, self._commands_in)
