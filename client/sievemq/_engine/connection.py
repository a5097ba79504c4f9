"""The client's end of a connection without its I/O: handshake, sessions, commands of the broker, loss and end."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Mapping
from typing import Any, Final

from sievemq._engine.deliveries import Deliveries
from sievemq._engine.handshake import LINES, Handshake
from sievemq._engine.heartbeat import Heartbeat
from sievemq._engine.options import EngineOptions
from sievemq._engine.outbox import Completion, Outbox, Undo, when_settled
from sievemq._engine.recovery import Recovery
from sievemq._engine.repair import for_how_long
from sievemq._engine.sends import Blocked, Deadlines, Flow, Sends
from sievemq._engine.session import EngineSession
from sievemq._engine.terms import Terms
from sievemq.exceptions import IllegalStateException, InvalidClientIDException, JMSException, exception_for
from sievemq.session_mode import session_mode
from sievemq_core.errors import ErrorCode, ProtocolError
from sievemq_core.harmless import harmless
from sievemq_core.wire.codec import CommandTuple
from sievemq_core.wire.commands import PROTOCOL_VERSION, Command
from sievemq_core.wire.connection import State

_log = logging.getLogger("sievemq")

#: Decoded commands over which the average size of a delivery is kept.
_AVERAGE_OVER: Final = 1_024
_DELIVER: Final = int(Command.DELIVER)
_REPAIRABLE: Final = frozenset(code for code in ErrorCode if code.repairable)


class ClientConnection:
    """The engine of one connection. :mod:`sievemq._engine` describes how a front drives it.

    Args:
        clock: returns the time in milliseconds since 1970-01-01 UTC.

    Attributes:
        outbox: pending commands, and whether any may be sent.
        terms: what holds between this client and the present broker.
        deliveries: the consumers.
        sessions: those that are open, by id.
        temporaries: temporary destinations by address: True for a topic.
        flow: what sends wait for.
        outages: how often it was lost.
        leaving: it is about to be closed; a loss is no longer repaired.
    """

    def __init__(self, options: EngineOptions, clock: Callable[[], int]) -> None:
        self.options = options
        self.outbox = Outbox()
        self.terms = Terms(options, clock)
        self._bytes_in = self._commands_in = self._received = 0
        self.deliveries = Deliveries(self._average_bytes, lambda: self._received)
        self.sessions: dict[int, EngineSession] = {}
        self.temporaries: dict[str, bool] = {}
        self.flow = Flow(lambda: [session.sends for session in tuple(self.sessions.values())], clock)
        self._recovery = Recovery(
            self.outbox, self.terms, self.deliveries, self.sessions, self.temporaries, self.give_up
        )
        self._deadlines = Deadlines(clock)
        self._on_lost: Callable[[JMSException], None] | None = None
        self._on_restored: Callable[[], None] | None = None
        self.leaving = False
        self._until_lost: list[Completion[None]] = []  # to be settled when it is lost
        self.outages = 0
        self._welcomed = False
        self._hellos = 0
        self._used = options.client_id is not None
        self._shutdown_notice: str | None = None
        self._last_session = 0
        self._next_session = itertools.count(1).__next__
        # Set by a call that no longer waited for it, which cannot be undone: a call with the same id succeeds once.
        self._claimed_late: str | None = None
        self._heartbeat = Heartbeat(0, 0)
        self._asked = 0  # when the broker was last asked for its time

    def listen(
        self,
        on_exception: Callable[[Exception], None] | None,
        on_lost: Callable[[JMSException], None] | None,
        on_restored: Callable[[], None] | None,
    ) -> None:
        """Set the callbacks. They are called under the front's lock; the front calls the ExceptionListener outside of
        it.

        Args:
            on_exception: called with errors that no call can raise (EXL-03).
            on_lost: with the reason when it is lost and is going to be repaired.
        """
        self.outbox.listen(on_exception)
        self._on_lost, self._on_restored = on_lost, on_restored

    # -- the state, for fronts ----------------------------------------------------------------------------------------

    @property
    def failure(self) -> JMSException | None:
        """Why the connection is lost beyond repair; None while it is not."""
        return self.outbox.failure

    @property
    def repairing(self) -> bool:
        """It is lost, and tried to be repaired: nothing is delivered, commands wait."""
        return self.outbox.repairing

    @property
    def closing(self) -> bool:
        """GOODBYE was sent."""
        return self.outbox.closing

    @property
    def closed(self) -> bool:
        return self.outbox.closed

    @property
    def usable(self) -> bool:
        """True until the connection is closed or lost beyond repair."""
        return self.outbox.usable

    @property
    def down(self) -> bool:
        return self.outbox.failure is not None or self.outbox.repairing

    @property
    def reads(self) -> bool:
        """True while what the present transport brings is of use."""
        outbox = self.outbox
        return outbox.failure is None and not outbox.closed and not outbox.repairing

    @property
    def has_output(self) -> bool:
        """Something waits for :meth:`data_to_send`. May be read without the lock."""
        return self.outbox.has_output

    @property
    def next_deadline(self) -> int | None:
        """When :meth:`tick` must be called at the latest for calls with a timeout; None for never."""
        return self._deadlines.next

    @property
    def started(self) -> bool:
        """Deliveries flow (CON-15)."""
        return self.deliveries.started

    # -- the boundary to the transport -------------------------------------------------------------------------------

    def hello(self, peer: tuple[str, int] | None = None, closed: JMSException | None = None) -> Handshake:
        """A HELLO for one transport: for a new connection, or to continue a lost one. There may be several at a time;
        the first that succeeds is for :meth:`welcomed`.

        Args:
            closed: what it means if the peer closes the transport without an answer.
        """
        options = self.options
        more: dict[str, object] = {"deliver_several": True}
        if options.reconnect:  # the broker may notice a loss at once, this end only after some silent heartbeats
            more["keep"] = options.reconnect + 3 * options.heartbeat
        resume = None
        if self._welcomed:
            # Of several the broker follows the last; one that it reads late must not end its successor.
            self._hellos += 1
            more["attempt"] = self._hellos
            more |= self._recovery.options(self._last_session)
            resume = self.terms.connection_id
        hello = (
            Command.HELLO,
            PROTOCOL_VERSION,
            options.namespace,
            options.user,
            options.password,
            self.terms.client_id,
            options.heartbeat,
            options.agent,
            resume,
            more,
        )
        return Handshake(hello, peer, closed or JMSException(_CLOSED_EARLY, "CONNECTION_LOST"), self.terms.clock())

    def welcomed(self, handshake: Handshake) -> None:
        """Continue with a transport on which the client was welcomed. Everything that waits is sent on it."""
        assert handshake.welcome is not None
        self._shutdown_notice = None
        self.terms.connected_to(handshake.peer)
        self.outbox.continue_with(handshake.wire)
        self._asked = handshake.asked
        self._on_welcome(handshake.welcome)
        for command in handshake.rest:
            HANDLERS[command[0]](self, command)

    def receive_data(self, data: bytes) -> None:
        """Take bytes from the broker and carry out the commands in them. Errors of the peer are not raised: a broken
        protocol loses the connection. Call :meth:`data_to_send` afterwards."""
        outbox = self.outbox
        if outbox.failure is not None or outbox.closed:
            return
        try:
            commands = outbox.wire.receive_data(data)
        except ProtocolError as error:
            self._lose(self._loss(error, error.code.name), repairable=False)  # the same error would follow
            return
        self._received += len(data)
        routes = self.deliveries.routes
        for command in commands:
            if command[0] == _DELIVER:  # first because it is the most frequent by far
                consumer = routes.get(command[1])
                if consumer is not None:
                    consumer.arrive(command)
            else:
                HANDLERS[command[0]](self, command)
        self._bytes_in += len(data)
        self._commands_in += len(commands)
        if self._commands_in > _AVERAGE_OVER:
            self._bytes_in //= 2
            self._commands_in //= 2

    def _average_bytes(self) -> int:
        """Size of a command that arrived of late; at full speed nearly all of them are deliveries."""
        return self._bytes_in // max(1, self._commands_in)

    def receive_eof(self) -> None:
        """The broker's stream ended."""
        try:
            self.outbox.wire.receive_eof()
        except ProtocolError as error:
            self.lost(error)
        else:
            self.lost(None)

    def data_to_send(self) -> bytes:
        """The bytes to write now: everything queued since the last call, acknowledgements included (D-25). They must be
        written before those of a later call."""
        return self.outbox.data_to_send()

    def tick(self, now: int) -> int | None:
        """Keep the heartbeats (HELLO, WELCOME): send a heartbeat after half an interval without output; lose the
        connection when nothing arrived for two. End the calls whose timeout is over, also while it is repaired.

        Args:
            now: milliseconds of any clock that never goes back.

        Returns:
            Milliseconds until it should be called again; None if never.
        """
        outbox, wait = self.outbox, None
        if not outbox.usable:
            return None
        if not outbox.repairing:
            if outbox.wire.state is not State.OPEN:
                return None
            wait = self._heartbeat.tick(outbox.wire, now, outbox.has_output, self._ask_for_time)
            if wait == 0:
                self.lost(TimeoutError(f"the broker was silent for {2 * self._heartbeat.incoming} ms"))
                wait = None
        deadlines = self._deadlines
        if deadlines.next is not None:
            now += int(self.terms.skipped * 1000.0)
            next_due = deadlines.due(now)
            if next_due is not None and (wait is None or next_due - now < wait):
                return max(1, next_due - now)
        return wait

    def _ask_for_time(self) -> None:
        self._asked = asked = self.terms.clock()

        def answered(answer: Completion[Any]) -> None:
            if answer.error is None and self._asked == asked:
                self.terms.see_time(answer.result(), asked)

        self.outbox.request(Command.PING).add_callback(answered)

    def expect(
        self, sends: Sends, completion: Completion[Any] | None, now: int, timeout: int, sequence: int = 0
    ) -> None:
        """Set a timeout for a call; :meth:`tick` must be called when it is over.

        Args:
            completion: settled with its fate; None of an asynchronous send.
            timeout: ms.
            sequence: of the send; 0 for a commit, and for a window to open.
        """
        self._deadlines.expect(sends, completion, now + int(self.terms.skipped * 1000.0), timeout, sequence)

    def expect_commit(self, sends: Sends, answer: Completion[Any], now: int, timeout: int) -> Completion[None]:
        """Set a timeout for a commit; arguments as of :meth:`expect`.

        Returns:
            What the caller waits for before the answer: succeeds with that, whatever it is; fails if the time is over
            while the connection is lost. The outcome stays in doubt then.
        """
        wait: Completion[None] = Completion()
        answer.add_callback(lambda _: wait.succeed(None))
        self.expect(sends, wait, now, timeout)
        return wait

    # -- the connection's own verbs ----------------------------------------------------------------------------------

    def check_open(self) -> None:
        """Raise unless the connection can be used; errors as of :meth:`Outbox.check_open`."""
        self.outbox.check_open()

    def mark_used(self) -> None:
        """An action that makes it too late to set a client id (CON-08, CON-09)."""
        self._used = True

    def set_client_id(self, client_id: object) -> Completion[Any]:
        """Claim a client id (CON-05).

        Raises:
            IllegalStateException: closed; the id is administered (CON-06), set already (CON-07), or it is too late
                (CON-08).
            InvalidClientIDException: None, empty, or not text.
        """
        self.check_open()
        if self.options.client_id is not None:
            raise IllegalStateException("the client id is administered: it was given to the ConnectionFactory")
        if self.terms.client_id is not None:
            if client_id == self._claimed_late:
                self._claimed_late = None
                return _done()
            raise IllegalStateException(f"the client id is set already, to {self.terms.client_id!r}")
        if self._used:
            raise IllegalStateException("a client id is set before anything else is done with the connection")
        if not isinstance(client_id, str) or not client_id:
            raise InvalidClientIDException(f"a client id is text that is not empty, not {client_id!r}")
        claimed = client_id

        def claimed_late(_: object) -> None:
            self._claimed_late = claimed

        completion = self.outbox.request(Command.SET_CLIENT_ID, claimed, undo=claimed_late)

        def keep(answer: Completion[Any]) -> None:
            if answer.error is None:  # CON-10: after a refusal the connection is id-less and usable
                self.terms.claim(claimed)

        completion.add_callback(keep)
        return completion

    def start(self) -> None:
        """Start delivery (CON-15)."""
        self.check_open()
        self.mark_used()
        if not self.deliveries.started:
            self.deliveries.flow(True)
            for session in tuple(self.sessions.values()):
                session.set_flowing(True)

    def stop(self) -> None:
        """Shut the gate of every consumer (CON-17). The front then waits for running calls (CON-16)."""
        self.check_open()
        self.mark_used()
        self.deliveries.flow(False)
        for session in tuple(self.sessions.values()):
            session.set_flowing(False)

    def open_session(self, mode: object, is_action: bool = True) -> EngineSession:
        """Open a session; wait for its `opened`.

        Args:
            is_action: it makes it too late to set a client id (CON-08); not the session that a context is born with.

        Raises:
            JMSException: another mode (CON-02).
            IllegalStateException: the connection is closed.
            ResourceAllocationException: it has as many sessions as the broker allows.
        """
        self.check_open()
        self.terms.check_limit("sessions", len(self.sessions), "the connection")
        chosen = session_mode(mode)
        if is_action:
            self.mark_used()
        self._last_session = number = self._next_session()
        session = EngineSession(self.outbox, self.terms, self.deliveries, self._forget_session, number, chosen)
        session.open()
        self.sessions[number] = session  # last: an exception from outside leaves no session that has no request
        return session

    def _forget_session(self, session: EngineSession) -> None:
        self.sessions.pop(session.id, None)
        if session.sends.blocked is not None:
            self.flow.changed()

    def create_temporary(self, topic: bool) -> Completion[Any]:
        """Make a temporary destination; the value is its address in text (TMP-01)."""
        self.check_open()
        self.terms.check_limit("temporaries", len(self.temporaries), "the connection")

        def undo(answer: Completion[Any]) -> None:
            self.delete_temporary(answer.result())

        completion = self.outbox.request(Command.CREATE_TEMPORARY, topic, None, undo=undo)

        def keep(answer: Completion[Any]) -> None:
            if answer.error is None:
                self.temporaries[answer.result()] = topic

        completion.add_callback(keep)
        return completion

    def delete_temporary(self, address: str) -> Completion[Any]:
        """Delete a temporary destination of this connection (TMP-07)."""
        self.check_open()
        completion = self.outbox.request(Command.DELETE_TEMPORARY, address)

        def forget(answer: Completion[Any]) -> None:
            if answer.error is None:
                self.temporaries.pop(address, None)

        completion.add_callback(forget)
        return completion

    def ping(self) -> Completion[Any]:
        """Answered once everything sent before has been carried out."""
        self.check_open()
        return self.outbox.request(Command.PING)

    def request(self, number: int, *fields: object, undo: Undo | None = None) -> Completion[Any]:
        """Make a request of the connection itself: about taps, staged sends.

        Args:
            fields: behind its request number.
            undo: takes back what it makes, if no caller waits for the answer any more.
        """
        return self.outbox.request(number, *fields, undo=undo)

    # -- a lost connection --------------------------------------------------------------------------------------------

    def lost(self, error: BaseException | None) -> None:
        """The transport is gone. If the connection may be repaired it freezes, and the front opens another transport
        (:meth:`welcomed`); otherwise everything that waits fails, in order, and everything is woken (D-32). Idempotent.

        Args:
            error: why; None if the broker just ended the stream.
        """
        if not self.usable:
            return
        if self.closing:
            # The answer to GOODBYE is lost; the broker has ended the connection, as was requested.
            self.outbox.blame(self._loss(error))
            self._end()
            return
        if self.repairing:
            return  # that was known
        self._lose(self._loss(error), repairable=True)

    def interrupted(self, error: BaseException) -> None:
        """An exception from outside, such as KeyboardInterrupt, interrupted a call of this engine half-way. Repair what
        must not stay so; then the connection is lost (decision 0029)."""
        self.outbox.requests.finish()
        for session in tuple(self.sessions.values()):
            session.finish()
        if self.closed:
            self._end()
        elif self.outbox.failure is not None:
            self._fail(self.outbox.failure)
        else:
            cause = InterruptedError(f"{type(error).__name__} broke into it")
            if self.repairing:  # it may have broken into the beginning or the end of the repair
                self._recovery.freeze()
                self.outbox.lose(self._loss(cause))
            self.lost(cause)

    def _lose(self, error: JMSException, repairable: bool) -> None:
        """The connection is lost."""
        if not repairable or self.leaving or not self.options.reconnect:
            self._fail(error)
            return
        self.outbox.lose(error)
        self.outages += 1
        _log.warning("%s; trying to reconnect %s", error, for_how_long(self.options.reconnect))
        self._recovery.freeze()
        self._settle_until_lost()
        self.flow.block(None)
        self.flow.changed()
        if self._on_lost is not None:
            self._on_lost(error)

    def attempt_failed(self, error: JMSException) -> None:
        """No new transport could be opened this time."""
        if self.repairing:
            self.outbox.blame(error)

    def give_up(self, error: Exception | None = None) -> None:
        """The connection is lost beyond repair: all pending calls fail.

        Args:
            error: the cause; None if the time for repairs has passed.
        """
        if not self.usable:
            return
        if error is None:
            self._fail(self._unrepaired())
        else:
            self._fail(error if isinstance(error, JMSException) else self._loss(error))

    def until_lost(self, completion: Completion[Any]) -> Completion[None]:
        """Settled with another completion, or as soon as the connection is lost: for what does not wait for a
        repair."""
        either: Completion[None] = Completion()
        completion.add_callback(lambda _: either.succeed(None))
        if not self.usable or self.repairing:
            either.succeed(None)
        else:
            self._until_lost = [other for other in self._until_lost if not other.done]
            self._until_lost.append(either)
        return either

    def _settle_until_lost(self) -> None:
        for either in self._until_lost:
            either.succeed(None)
        self._until_lost = []

    def leave(self) -> None:
        """Closing begins. If the connection is lost, pending calls fail at once (D-32)."""
        self.leaving = True
        if self.repairing:
            self._fail(self.outbox.cause or self._loss(None), notify=False)

    def disown(self) -> None:
        """In a child made by fork: the connection is the parent's. Here every call raises, and nothing is reported."""
        self.listen(None, None, None)
        self.flow.listen(None, None)
        for session in self.sessions.values():
            session.sends.disown()
        self.leave()
        self.lost(OSError("it belongs to the process that this one was forked from; make a new one here"))

    def _fail(self, error: JMSException, notify: bool = True) -> None:
        """Everything that waits fails: sends before requests, each kind in the order of its calls."""
        self.outbox.fail(error)
        for session in tuple(self.sessions.values()):
            session.sends.give_up(error)
        self.outbox.end_requests(error)
        self._settle_until_lost()
        self.deliveries.end()
        if self._welcomed and notify:
            self.outbox.report(error)

    def _loss(self, error: BaseException | None, code: str = "CONNECTION_LOST") -> JMSException:
        """The exception for pending calls.

        Args:
            error: what happened; None if the broker just ended the stream.
        """
        if self._shutdown_notice is not None:
            reason = f"the broker has shut down: {self._shutdown_notice}"
        elif error is None:
            reason = "the broker closed the connection"
        else:
            reason = f"the connection to the broker is lost: {error}"
        return JMSException(reason, code, error)

    def _unrepaired(self) -> JMSException:
        """The exception for pending calls after the time for repairs is over."""
        text = (
            f"the connection to the broker was not repaired within {self.options.reconnect} ms ({self.outbox.cause}). "
            f"Create a new connection or context; a service sets the option reconnect=forever"
        )
        return JMSException(text, "CONNECTION_LOST", self.outbox.cause)

    # -- the end ------------------------------------------------------------------------------------------------------

    def close(self) -> Completion[Any]:
        """Close sessions, consumers, temporary destinations, then the connection (CLO-02). Idempotent (CLO-01).

        The completion succeeds in any state of the connection; then the transport can be closed. Requests without an
        answer have failed by then.
        """
        done: Completion[Any] = Completion()
        self.leave()
        if self.outbox.ended or not self._welcomed:
            self._end()
            done.succeed(None)
            return done
        for session in self.sessions.values():
            session.mark_closed()
        self.outbox.undo_lasting()
        self.outbox.flush()  # D-26: sends and acknowledgements go first
        handed = tuple(field for session in self.sessions.values() for field in session.handed())
        self.outbox.send_goodbye(handed, done)

        def ended(_: Completion[Any]) -> None:
            if not self.closed:  # the answer has come: unconfirmed sends were not accepted
                for session in tuple(self.sessions.values()):
                    session.sends.give_up()
            self._end()

        done.add_callback(ended)
        return done

    def _end(self) -> None:
        """Closed on purpose: pending calls get no answer."""
        self.outbox.close()
        error = IllegalStateException("the connection is closed")
        for session in tuple(self.sessions.values()):
            session.mark_closed()
            session.sends.give_up(error, self.outbox.cause)
        self.outbox.end_requests(error)
        self._settle_until_lost()
        self.deliveries.end()
        self.sessions.clear()

    # -- what the broker sends -----------------------------------------------------------------------------------------

    def _on_welcome(self, command: CommandTuple) -> None:
        renewed = command[3] != self.terms.incarnation
        _, _, _, _, _, outgoing, _, features, *_ = command
        jumps = len(self.terms.jumps)
        if self.terms.welcome(command, self._asked):
            self.deliveries.wake()
        for moved_at, seconds in self.terms.jumps[jumps:]:
            self._deadlines.jump(moved_at, round(seconds * 1000.0))
        self.outbox.welcome(features)
        self._heartbeat = Heartbeat(self.options.heartbeat, outgoing)
        self.outbox.wire.set_heartbeat(self.options.heartbeat, outgoing)
        if self.repairing:
            try:
                self._restore(renewed)
            except ProtocolError as error:
                self._lose(self._loss(error, error.code.name), repairable=False)
        else:
            self._welcomed = True

    def _restore(self, renewed: bool) -> None:
        """The connection is repaired: send what waits, and let everything continue. The front is notified when
        everything that was open is open again: its callbacks may publish, and the subscribers are there."""
        answers = self._recovery.restore(self.terms.features.get("resumed"), renewed)
        self.outbox.resume()
        _log.info("the connection to the broker is restored as %s", self.terms.connection_id)
        for session in tuple(self.sessions.values()):
            session.set_flowing(self.deliveries.started)
        outage = self.outages

        def notify() -> None:
            if self._on_restored is not None and self.usable and self.outages == outage:
                self._on_restored()

        when_settled(answers, notify)

    def _on_ok(self, command: CommandTuple) -> None:
        try:
            self.outbox.requests.succeed(command[1], command[2])
        except ProtocolError as error:
            self._lose(self._loss(error, error.code.name), repairable=False)

    def _on_error(self, command: CommandTuple) -> None:
        _, request, code, text, details, *_ = command
        error = exception_for(code, harmless(text, LINES), details)
        if request == 0:  # fatal: the connection ends
            if self.closing:
                self._end()
            else:
                self._lose(error, repairable=code in _REPAIRABLE)
            return
        self.outbox.requests.fail(request, code, error)

    def _on_confirm(self, command: CommandTuple) -> None:
        session = self.sessions.get(command[1])
        if session is not None:
            session.sends.confirm(command[2])

    def _on_send_failed(self, command: CommandTuple) -> None:
        session = self.sessions.get(command[1])
        if session is not None:
            session.sends.failed(command[2], command[3], harmless(command[4], LINES))

    def _on_deliver_several(self, command: CommandTuple) -> None:
        _, number, tag, envelopes = command
        self._commands_in += len(envelopes) - 1
        consumer = self.deliveries.routes.get(number)
        if consumer is not None:  # handle each as a DELIVER of its own
            consumer.arrive_several([(_DELIVER, number, at, 1, fields) for at, fields in enumerate(envelopes, tag)])

    def _on_recall(self, command: CommandTuple) -> None:
        consumer = self.deliveries.consumers.get(command[1])
        if consumer is not None:  # a closed one has given everything back
            consumer.recall(command[2])

    def _on_consumer_closed(self, command: CommandTuple) -> None:
        _, number, code, text, *_ = command
        consumer = self.deliveries.consumers.get(number)
        if consumer is not None:
            error = exception_for(code, harmless(text, LINES))
            self._recovery.close_consumer(consumer, error)

    def _on_flow(self, command: CommandTuple) -> None:
        _, blocked, text, number, sequence, destination, *_ = command
        text = harmless(text)
        if not number:
            self.flow.block(text if blocked else None)
        else:
            session = self.sessions.get(number)
            if session is None:
                return
            if blocked:
                session.sends.wait_for_room(Blocked(destination, text), sequence)
            else:
                session.sends.go_on(sequence)
        self.flow.changed()

    def _on_clock(self, command: CommandTuple) -> None:
        offset = command[1]
        if type(offset) is int:
            if self.terms.move_clock(offset, command[2]):
                self.deliveries.wake()
            self.outbox.append((Command.CLOCK_SEEN, offset))

    def _on_shutdown(self, command: CommandTuple) -> None:
        self._shutdown_notice = harmless(command[2])


_CLOSED_EARLY: Final = (
    "the broker closed the connection before it answered: it may have ended; or it takes TLS, and its URL begins with "
    "sievemqs://"
)


def _done() -> Completion[Any]:
    completion: Completion[Any] = Completion()
    completion.succeed(None)
    return completion


HANDLERS: Final[Mapping[int, Callable[[ClientConnection, CommandTuple], None]]] = {
    Command.HEARTBEAT: lambda connection, command: None,
    Command.OK: ClientConnection._on_ok,
    Command.ERROR: ClientConnection._on_error,
    Command.CONFIRM: ClientConnection._on_confirm,
    Command.SEND_FAILED: ClientConnection._on_send_failed,
    Command.DELIVER_SEVERAL: ClientConnection._on_deliver_several,
    Command.RECALL: ClientConnection._on_recall,
    Command.CONSUMER_CLOSED: ClientConnection._on_consumer_closed,
    Command.FLOW: ClientConnection._on_flow,
    Command.CLOCK: ClientConnection._on_clock,
    Command.SHUTDOWN: ClientConnection._on_shutdown,
}
"""By the number of the command. DELIVER is decoded where it arrives."""
