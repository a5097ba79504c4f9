"""One connected client, whatever protocol it speaks: its sessions and consumers, what it holds, and its answers.

    protocol ── carry_out(commands, now) ──> Peer ──> table ──> handlers ──> domain
    protocol <── ClientPort ──────────────── Peer <── answers ──┘      domain ── deliveries ──> ClientPort

A protocol turns its frames into commands (verbs.py) and encodes what is passed to its :class:`ClientPort`. No I/O, no
clock, no bytes of any protocol.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, Final, NamedTuple, TypeAlias

from sievemq_broker.domain.broker import Broker
from sievemq_broker.domain.consumer import Consumer
from sievemq_broker.domain.failure import Party
from sievemq_broker.domain.namespace import Namespace
from sievemq_broker.domain.ports import Stored
from sievemq_broker.domain.queue import Queue
from sievemq_broker.domain.settlement import Outcome
from sievemq_broker.domain.work import Budget, Job, Make, Task
from sievemq_broker.session.agenda import Agenda
from sievemq_broker.session.deliveries import Deliveries
from sievemq_broker.session.life import CLOSING, LEAVING, OPEN, Life
from sievemq_broker.session.lost import Memory, Report
from sievemq_broker.session.member import Member
from sievemq_broker.session.ports import ClientPort, Services, Watcher
from sievemq_broker.session.rights import Identity, Verb, forbidden
from sievemq_broker.session.session import Session, SessionMode
from sievemq_broker.session.tally import Refusal, RolledBack, Tally, destination_of, reason_of
from sievemq_broker.session.transaction import StagedBytes
from sievemq_broker.session.verbs import CloseConsumer, CloseSession, DeleteTemporary, Hello, Resume, Unsubscribe
from sievemq_broker.session.waiting import BlockedSender
from sievemq_core.errors import ErrorCode, ProtocolError, RequestError, SieveError
from sievemq_core.wire.codec import CommandTuple
from sievemq_core.wire.commands import COMMANDS, Command

_SEND: Final = int(Command.SEND)

# Commands with an answer: their first field is the request.
_REQUESTS = frozenset(n for n, spec in COMMANDS.items() if spec.fields and spec.fields[0].name == "request")

#: Requests that open something, with the place of its address, 0 for none; and the errors that count as a refusal.
_OPENS = {
    number: next((place for place, field in enumerate(COMMANDS[number].fields, 1) if field.name == "destination"), 0)
    for number in (
        Command.OPEN_CONSUMER, Command.BROWSE, Command.DECLARE, Command.OPEN_TAP, Command.CREATE_TEMPORARY,
        Command.OPEN_SESSION,
    )
}  # fmt: skip
_REFUSALS = frozenset(
    {ErrorCode.RESOURCE_ALLOCATION, ErrorCode.SECURITY, ErrorCode.INVALID_DESTINATION, ErrorCode.INVALID_SELECTOR,
     ErrorCode.SUBSCRIPTION_IN_USE}
)  # fmt: skip

#: Characters of an address that are kept of what was refused: a client may name anything.
_MOST_ADDRESS: Final = 300

#: Sends of small NON_PERSISTENT messages whose confirm may wait: far below the window of any client.
LAZY_CONFIRMS: Final = 64


class Peer:
    """One connected client.

    Args:
        broker: the domain.
        services: what the rim provides.
        out: writes output to the client.
        table: what is done for each verb.
        address: of the other end, for people.
        watcher: observes the client.
        leaving: what its end in order means for messages that it has not settled: FAILED if a client of its protocol
            states what its application has, LEFT if it does not.
    """

    __slots__ = (
        "_handlers",
        "_lazy",
        "_leaving_as",
        "_send",
        "_table",
        "_urgent",
        "address",
        "agenda",
        "broker",
        "clock_lag",
        "clock_seen",
        "clock_stands",
        "deliveries",
        "highest_session",
        "life",
        "member",
        "namespace",
        "out",
        "port",
        "services",
        "sessions",
        "settings",
        "staged",
        "tally",
        "unconfirmed",
        "watcher",
    )
    namespace: Namespace

    def __init__(
        self,
        broker: Broker,
        services: Services[Peer],
        out: ClientPort,
        table: Table,
        address: str = "",
        watcher: Watcher[Peer] | None = None,
        leaving: Outcome = Outcome.FAILED,
    ) -> None:
        self.broker = broker
        self.services = services
        self.settings = services.settings
        self.out = out
        self.address = address
        #: Of the broker, by which the client has come; 0 if that is not known.
        self.port = 0
        self.watcher = watcher
        self._leaving_as = leaving
        self._table = table
        #: The handlers of SEND and of the other verbs, with checks in front if the user is limited.
        self._send: SendHandler = table.free.send
        self._handlers: Mapping[int, Handler] = table.free.others
        self.sessions: dict[int, Session] = {}
        self.member = Member(broker, services, self.sessions)
        #: Memory of all its transactions.
        self.staged = StagedBytes(self.settings.staged_bytes, broker.drop)
        self.deliveries = Deliveries(out)
        self.tally = Tally()
        #: Sessions with sends to confirm at the end of the turn; and whether the client may wait for one of the
        #: confirms.
        self.unconfirmed: dict[Session, None] = {}
        self._urgent = False
        #: The number of sends to confirm.
        self._lazy = 0
        self.highest_session = 0
        #: Offset of the clock that the client's times include, and by how much that is behind the broker's.
        self.clock_seen = self.clock_lag = 0
        #: The client knows that the clock is frozen, and when: its times stand still as well.
        self.clock_stands = False
        self.life = Life()
        self.agenda = Agenda(broker.scheduler, self.life, self._conclude)
        out.attach(self.deliveries, self.life)

    # -- what a protocol calls --------------------------------------------------------------------------------------

    def carry_out(self, commands: list[CommandTuple], size: int, now: int) -> None:
        """Carry out commands of the client in order, as far as there is time (:attr:`Services.spent`, decision 0026).
        Never raises: an error ends at most this client's connection.

        Args:
            commands: each a verb of the table and its fields. The agenda must not be :attr:`~Agenda.behind`.
            size: bytes that they were.
            now: milliseconds since 1970.
        """
        agenda = self.agenda
        if agenda.begun:  # behind the last of them, when another command was put off
            agenda.put_off(commands, size)
            return
        at, count = 0, len(commands)
        while at < count and self.life.state < CLOSING:
            command = commands[at]
            number = command[0]
            try:
                if number == _SEND:
                    at += self._send(self, commands, at, now)
                else:
                    at += 1
                    self._handlers[number](self, command, now)
            except ProtocolError as error:
                self.fail(error, now)
                break
            except SieveError as error:
                if not self.refuse(command, error, now):
                    break
            except Exception as error:  # the broker's own fault: other connections must go on
                self.crash(command, error, now)
                break
            if agenda.begun or (at < count and self.services.spent()):
                agenda.put_off(commands[at:], size * (count - at) // count)
                break
        if self._urgent or self._lazy >= LAZY_CONFIRMS:
            self.flush_confirms()

    def catch_up(self, now: int) -> None:
        """Carry out the commands that were put off, as far as there is time. Never raises.

        Args:
            now: milliseconds since 1970.
        """
        if not self.agenda.begun:
            commands, size = self.agenda.take_up()
            self.carry_out(commands, size, now)

    @property
    def unpublished(self) -> int:
        """Bytes that arrived and are no messages yet: of waiting commands, and of open transactions."""
        return self.staged.used + self.agenda.bytes

    def lost(self, now: int) -> None:
        """The connection is lost: all messages come back (ACK-18, TXN-05, CON-11). Nothing more is written.
        Idempotent."""
        if self.life.lose():
            self._close_sessions(now, None)

    def end(self, now: int) -> None:
        """As :meth:`lost`, but what is queued is written first. Idempotent."""
        if self.life.end():
            self._close_sessions(now, None)

    def come_by(self, port: int) -> None:
        """The client has connected to this port of the broker."""
        self.port = port

    # -- what the rim and the management call -------------------------------------------------------------------------

    def close(self, code: ErrorCode, text: str, now: int) -> None:
        """End the connection from this side, with an error. Idempotent."""
        if self.life.state < CLOSING:
            self.fail(ProtocolError(text, code), now)
            self.late_output()

    def entitle(self, identity: Identity) -> None:
        """Give the user these rights from now on. Consumers without a right are closed.

        Args:
            identity: the same user; its rights may be others than before.
        """
        self.member.entitle(identity)
        verbs = self._table.free if identity.rights.unlimited else self._table.limited
        self._send, self._handlers = verbs.send, verbs.others
        for consumer in tuple(self.deliveries.consumers.values()):
            if consumer.open:
                label = consumer.source.place.destination
                if not identity.may(Verb.CONSUME, self.namespace.name, label) and not self.member.is_own(label):
                    refusal = forbidden(identity, Verb.CONSUME, self.namespace.name, label)
                    consumer.expel(ErrorCode.SECURITY, refusal.text, self.services.now())

    def clock_moved(self) -> None:
        """The clock's offset changed: inform the client. Its times are shifted here until it knows the new offset."""
        offset = self.services.clock_offset
        self.clock_lag = offset - self.clock_seen
        self.out.clock(offset, self.services.frozen_at)

    def clock_drifted(self, milliseconds: int) -> None:
        """The broker's clock stands still while the client's runs on: shift the client's times by so much more."""
        if not self.clock_stands:
            self.clock_lag += milliseconds

    def flow_changed(self) -> None:
        """The broker has reached a limit, or is below it again."""
        blocked = self.services.blocked
        self.out.flow(blocked is not None, blocked or "")
        self.flush_confirms()

    @property
    def is_busy(self) -> bool:
        """True while the client holds messages, or a transaction is open."""
        return self.deliveries.hold_messages or any(
            session.committing or (session.transaction is not None and session.transaction.staged)
            for session in self.sessions.values()
        )

    @property
    def name(self) -> str:
        """For people, and the same after it has reconnected: its client id, or its user, or its host."""
        return self.member.client_id or self.member.identity.user or self.host

    @property
    def host(self) -> str:
        """The address of the other end, without its port."""
        return (self.address.rpartition(":")[0] or self.address).strip("[]")

    @property
    def open_transactions(self) -> int:
        """How many of its transactions have sends."""
        return sum([bool(each.transaction and each.transaction.staged) for each in self.sessions.values()])

    @property
    def blocked_senders(self) -> list[BlockedSender]:
        """The sends and COMMITs that wait for room."""
        return [session.blocked_sender for session in self.sessions.values() if session.blocked_sender is not None]

    # -- the handshake ------------------------------------------------------------------------------------------------

    def enter(self, identity: Identity, hello: Hello, namespace: str) -> None:
        """See :meth:`Member.enter`."""
        self.member.enter(identity, hello, namespace)
        self.namespace = self.member.namespace
        self.entitle(identity)

    def take_place(self, resume: Resume, now: int) -> Memory | None:
        """Continue a lost connection, with its id and with what is remembered of it. Allowed only for the same user in
        the same namespace; otherwise the request is ignored.

        Args:
            resume: what the client states of the lost one, which has ended and returned its messages.
            now: ms since 1970.

        Returns:
            What was remembered; None if nothing was.
        """
        memory = self.member.resume(resume.connection, resume.report, now)
        # Late commands for its old sessions and consumers may still arrive: they are skipped.
        self.highest_session = resume.session
        self.deliveries.claim(resume.consumer)
        return memory

    def end_lost(self, resume: Resume, now: int) -> None:
        """End another connection of the same client, if the broker still considers it alive, so that its client id and
        its messages are free.

        Args:
            resume, now: as :meth:`take_place`.

        Raises:
            ProtocolError: the client has reconnected by a later attempt.
        """
        lost = self.services.connections.get(resume.connection)
        if lost is not None and self.member.is_same(lost.member):
            lost.give_way(resume.report, now)

    def give_way(self, report: Report, now: int) -> None:
        """The client has come back on another connection (D-32).

        Args:
            report: what the client states of messages that were delivered here.
            now: ms since 1970.
        """
        self.deliveries.acknowledge(report.done, now)
        self.member.give_way(report.handed)
        self.close(ErrorCode.HEARTBEAT_MISSED, "its client has reconnected on another connection", now)

    def introduce(self) -> None:
        """The client has its names, or has claimed a client id."""
        member = self.member
        self.out.introduce(Party(member.id, member.client_id, member.identity.user, self.address))

    def welcomed(self) -> None:
        """The handshake is complete."""
        self.life.welcome()
        self.introduce()
        self.see_clock(self.services.clock_offset, self.out.follows_clock)
        if self.services.blocked is not None:
            self.flow_changed()

    # -- time ---------------------------------------------------------------------------------------------------------

    def see_clock(self, offset: int, follows: bool = False) -> None:
        """The client's times include this offset from now on (test clocks only).

        Args:
            offset: in ms.
            follows: the client was told as well whether the clock stands still.
        """
        self.clock_seen = offset
        self.clock_stands = follows and self.services.frozen_at is not None
        self.clock_lag = 0 if self.clock_stands else self.services.clock_offset - offset

    def sent_after_move(self, timestamp: int) -> bool:
        """True if a client sent a message after the clock had moved, without knowing that: its times must be shifted. A
        message that was in transit when the clock moved keeps its time.

        Args:
            timestamp: JMSTimestamp of the message, ms; 0 where the producer sets none, which decides nothing.
        """
        return not timestamp or timestamp - self.clock_seen > self.services.moved_at

    def lag_of(self, timestamp: int) -> int:
        """By how much the times of such a message are shifted.

        Args:
            timestamp: as for :meth:`sent_after_move`; 0 if the message has none.
        """
        if timestamp and self.services.frozen_at is not None:
            return self.services.now() - timestamp
        return self.clock_lag

    # -- sessions -----------------------------------------------------------------------------------------------------

    def session(self, session_id: int) -> Session:
        """The open session with this id.

        Raises:
            RequestError: NOT_FOUND, there is none.
        """
        session = self.sessions.get(session_id)
        if session is None:
            raise RequestError(f"session {session_id} is not open on this connection", ErrorCode.NOT_FOUND)
        return session

    def open_session(self, session_id: int, mode: int, sent: int) -> None:
        """Open a session (CON-02).

        Args:
            session_id: the client's number for it.
            mode: see :class:`SessionMode`.
            sent: sends that the client counts already, if it had this session on a connection that was lost.

        Raises:
            RequestError: the id is in use, there is no such mode, or there are too many.
        """
        if session_id in self.sessions:
            raise RequestError(f"session {session_id} is open already; ids are not reused", ErrorCode.ILLEGAL_STATE)
        self.highest_session = max(self.highest_session, session_id)
        if mode > 3:
            raise RequestError(f"session mode {mode} is none of 0, 1, 2, 3", ErrorCode.ILLEGAL_STATE)
        limit = self.settings.max_sessions
        if len(self.sessions) >= limit:
            raise RequestError(
                f"a connection may have {limit} sessions; close unused ones",
                ErrorCode.RESOURCE_ALLOCATION,
                {"limit": "max_sessions"},
            )
        session = self.sessions[session_id] = Session(session_id, SessionMode(mode), self.staged)
        if self.member.resumed:  # it may continue a session of the connection that was lost
            known, settled = self.member.sends_of(session_id)
            session.go_on_from(max(sent, known), settled)
            if session.sent:
                self.took(session, 0, urgent=True)

    def close_session(self, session: Session, handed: Mapping[int, int], command: CloseSession, now: int) -> None:
        """Close a session and its consumers; an open transaction is rolled back (TXN-05). Its messages come back at
        once, or in slices, a turn each, if they are many. The command is answered then.

        Args:
            session: the one.
            handed: what the application has seen, by consumer.
            command: that is answered.
            now: ms since 1970.
        """
        self.end_blocked_sender(session)
        self._count_abandoned(session)
        self.confirm(session, session.sent)
        del self.sessions[session.id]
        self.deliveries.release(session)
        leave = partial(session.leave, self._leaving_as, handed)
        job = self.broker.scheduler.start(self.member.id, leave, now)
        answer = partial(self.when_over, job, command, lambda now: self.out.answer(command.request))
        if job.over:
            answer(now)
        else:
            job.then(answer)

    def give_back(self, make: Make[int], command: CommandTuple, act: Callable[[int], None], now: int) -> None:
        """Let messages come back: at once, or over some turns if they are many. Later commands of this client wait. All
        of them come back even if the connection is lost meanwhile.

        Args:
            make: makes the task; it returns the time.
            command: because of which they come back.
            act: called then, with the time, unless the connection is lost.
            now: ms since 1970.
        """
        job = self.broker.scheduler.start(self.member.id, make, now)
        if job.over and job.error is None:
            act(now)
        else:
            self.agenda.go_on_after(job, command, act, now)

    def answer_when_empty(self, queue: Queue, command: DeleteTemporary | Unsubscribe, now: int) -> None:
        """Answer a command that has deleted a queue, once all its messages are removed. Later commands wait.

        Args:
            queue: the one.
            command: the command.
            now: ms since 1970.
        """
        job = None if queue.empty else self.broker.scheduler.last(queue)
        if job is None:
            self.out.answer(command.request)
        else:
            self.agenda.go_on_after(job, command, lambda now: self.out.answer(command.request), now)

    def when_over(self, job: Job[Any], command: CommandTuple, act: Callable[[int], None], now: int) -> None:
        """A task of a command is over. Never raises."""
        self._conclude(job.error, command, act, now)

    def _conclude(self, error: Exception | None, command: CommandTuple, act: Callable[[int], None], now: int) -> None:
        if error is None and self.life.state < CLOSING:
            try:
                act(now)
            except Exception as fault:
                error = fault
        if error is not None and self.life.state >= CLOSING:
            if not isinstance(error, SieveError):
                self.services.report(self, "completing a task", error)
            return
        if isinstance(error, SieveError):
            self.refuse(command, error, now)
        elif error is not None:  # the broker's own fault: other connections must go on
            self.crash(command, error, now)
        self.late_output()

    # -- consumers ----------------------------------------------------------------------------------------------------

    def close_consumer(self, consumer: Consumer, handed: int, command: CloseConsumer, now: int) -> None:
        """Close a consumer. Messages that the application has stay with the session (MCO-09), the others go back
        (MCO-10).

        Args:
            consumer: the one.
            handed: the last tag that the application has seen.
            command: that is answered then, if it wants to be.
            now: ms since 1970.
        """
        self.give_back(partial(consumer.close, handed), command, partial(self._closed, consumer, command), now)

    def _closed(self, consumer: Consumer, command: CloseConsumer, now: int) -> None:
        self.deliveries.retire(consumer)
        if command.request:
            self.out.answer(command.request)

    # -- sends --------------------------------------------------------------------------------------------------------

    def took(self, session: Session, count: int, urgent: bool) -> None:
        """Sends were accepted; they are confirmed at the end of the turn.

        Args:
            session: whose.
            count: how many.
            urgent: the client waits for the confirm, or may.
        """
        session.took(count)
        self.unconfirmed[session] = None
        self._lazy += count
        if urgent:
            self._urgent = True

    def flush_confirms(self) -> None:
        """Confirm what was taken, once per session.

        That is at the end of each turn for PERSISTENT messages, whose senders wait. Sends of NON_PERSISTENT ones return
        at once (D-24), so a confirm of each is not worth its work at both ends: it follows once some have gathered, on
        PING, or with the next tick.
        """
        self._urgent = False
        self._lazy = 0
        for session in self.unconfirmed:
            self.confirm(session, session.sent)
        self.unconfirmed.clear()

    def confirm(self, session: Session, sequence: int) -> None:
        """Settle the session's sends up to `sequence`."""
        if session.confirm(sequence):
            self.out.confirm(session.id, sequence)

    def count_refusal(
        self, error: SieveError, address: str = "", reason: str = "", messages: int = 1, *, opens: bool = False
    ) -> None:
        """A send, a COMMIT or another request is refused.

        Args:
            address: where it was sent to; what the error says if not given.
            reason: likewise.
            messages: how many.
            opens: the request opens something.
        """
        self.tally.refuse(messages)
        address = (address or destination_of(error))[:_MOST_ADDRESS]
        refusal = Refusal(self.namespace.name, address, reason or reason_of(error), self.name, opens)
        self.services.tallies.refuse(refusal, self.services.now(), self.member.id, messages)

    def count_transaction(self, committed: bool, refused: bool = False) -> None:
        """A transaction with at least one message has ended.

        Args:
            committed: it was not rolled back.
            refused: its COMMIT was refused.
        """
        tallies = self.services.tallies
        for tally in (self.tally, tallies.total):
            if committed:
                tally.commit()
            else:
                tally.roll_back(refused)
        if not committed:
            tallies.rollbacks.note(RolledBack(self.namespace.name, self.name), self.services.now(), self.member.id)

    def _count_abandoned(self, session: Session) -> None:
        """A session ends: its staged sends are rolled back (TXN-05)."""
        if session.transaction is not None and session.transaction.staged:
            self.count_transaction(committed=False)

    # -- waiting for room ---------------------------------------------------------------------------------------------

    def wait_for_delivery(self, sessions: Iterable[Session], command: CommandTuple, handler: Handler, now: int) -> bool:
        """True if a send that has waited for room is being delivered in slices: then the command is carried out after
        it.

        Args:
            sessions: whose sends are meant.
            command: the command.
            handler: carries it out.
            now: ms since 1970.
        """
        for session in sessions:
            sender = session.blocked_sender
            delivery = None if sender is None else sender.delivery
            if sender is not None and delivery is not None:
                act = partial(self._carry_out_behind, session, sender, command, handler)
                self.agenda.go_on_after(delivery, command, act, now)
                return True
        return False

    def _carry_out_behind(
        self, session: Session, sender: BlockedSender, command: CommandTuple, handler: Handler, now: int
    ) -> None:
        """A send has been delivered: confirm it, unless that is done, and carry out the command that waits for it."""
        if session.blocked_sender is sender:
            sender.go_on(now)
        if self.life.state < CLOSING:
            self.carry_out_late(command, handler, now)

    def end_blocked_sender(self, session: Session) -> None:
        """The session is about to be closed or rolled back: drop what waits."""
        sender = session.blocked_sender
        if sender is None:
            return
        text = f"this was rolled back while its commit waited for room: {sender.text}"
        session.end_wait()
        if sender.request and self.life.state < CLOSING:
            self.out.refuse(sender.request, RequestError(text, ErrorCode.TRANSACTION_ROLLED_BACK))
            self.out.flow(False, "", session.id)

    # -- answers ------------------------------------------------------------------------------------------------------

    def late_output(self) -> None:
        """A command was carried out after the turn in which it came, or the client learns what others have done: its
        output waits for all that is not on disk yet."""
        if self._urgent:
            self.flush_confirms()
        self.owe()
        self.out.wake()

    def owe(self, *shares: Stored) -> None:
        """Output up to here waits for all that is complete and not on disk yet.

        Args:
            shares: of verbs that are not complete, for which it waits as well.
        """
        journal = self.broker.journal
        if journal is not None:
            self.out.needs.extend([*journal.unwritten, *shares])

    def owe_all(self) -> None:
        """Output up to here shows what other clients do: it waits for all of that, verbs that are not complete
        included."""
        journal = self.broker.journal
        if journal is not None:
            self.owe(*journal.shares)

    def carry_out_late(self, command: CommandTuple, handler: Handler, now: int) -> None:
        """Carry out a command that had to wait; its rights were checked on arrival. Never raises.

        Args:
            command: the command.
            handler: does it, or what is left of it.
            now: milliseconds since 1970.
        """
        try:
            handler(self, command, now)
        except SieveError as error:
            self.refuse(command, error, now)
        except Exception as error:  # the broker's own fault: other connections must go on
            self.crash(command, error, now)
        self.late_output()

    def wait_for_publishing(
        self, command: CommandTuple, handler: Handler, session: Session | None = None, *, first: bool = False
    ) -> bool:
        """True if a large batch is being published in this namespace: the command is carried out after that. See
        :meth:`Agenda.wait_for_publishing`."""
        act = partial(self.carry_out_late, command, handler)
        return self.agenda.wait_for_publishing(self.namespace, act, session, first=first)

    def wait_for_commit(self, session: Session, command: CommandTuple, handler: Handler) -> bool:
        """True if a large COMMIT of the session is under way, or a command of it waits behind one: this command is
        carried out after that."""
        return (session.committing or self.agenda.waits_in(session)) and self.wait_for_publishing(
            command, handler, session
        )

    def refuse(self, command: CommandTuple, error: SieveError, now: int) -> bool:
        """Answer a request with an error. True if the connection goes on."""
        request = command[1] if command[0] in _REQUESTS else 0
        place = _OPENS.get(command[0])
        if not self.member.id:
            pass  # a sign-in, which has counts of its own
        elif place is not None and error.code in _REFUSALS:
            self.count_refusal(error, str(command[place] or "") if place else "", opens=True)
        elif error.code is ErrorCode.RESOURCE_ALLOCATION:
            self.count_refusal(error)
        if not request or error.code.fatal:
            self.fail(error, now)
            return False
        self.out.refuse(request, error)
        return True

    def crash(self, command: CommandTuple, error: Exception, now: int) -> None:
        """A fault of the broker: inform this client and end its connection. All others go on."""
        name = COMMANDS[command[0]].name
        self.services.report(self, f"carrying out {name}", error)
        self.fail(SieveError(f"an internal error of the broker while carrying out {name}; see the broker's log"), now)

    def fail(self, error: SieveError, now: int) -> None:
        """Send the error, then end the connection."""
        if self.life.state == OPEN:
            self.flush_confirms()  # accepted sends stay accepted
        if not error.code.repairable:
            self.member.cannot_resume()  # it would send the same again, or an operator closed it
        self.out.fail(error)
        if self.life.end():
            self._close_sessions(now, None)

    # -- the end ------------------------------------------------------------------------------------------------------

    def leave(self, now: int, handed: Mapping[int, int], request: int) -> None:
        """The client ends the connection in order. Idempotent.

        Args:
            now: milliseconds since 1970.
            handed: what the application has, or may have, seen, by consumer.
            request: of its GOODBYE, answered when all messages are returned.
        """
        if self.life.goodbye():
            self._close_sessions(now, handed, request)

    def _close_sessions(self, now: int, handed: Mapping[int, int] | None, request: int | None = None) -> None:
        """Return all messages that this client holds, in slices if they are many.

        Until all are returned, the client id stays taken and the request unanswered. A connection that cannot wait (of
        the same client, or of another with the same client id) completes this: :meth:`Scheduler.finish`.

        Args:
            now, handed, request: as :meth:`leave`; `handed` is None if the connection is lost (ACK-18).
        """
        if self.watcher is not None:
            self.watcher.ending(self, handed is None)
        self.agenda.clear()
        if handed is not None:
            self.deliveries.settle_wants()
        # Deliver nothing more to this client: messages that one consumer returns would go to another, and count as
        # delivered once more.
        self.out.stop_deliveries()
        if not self.member.id:
            return
        services = self.services
        services.connections.pop(self.member.id, None)
        for session in self.sessions.values():
            self.end_blocked_sender(session)
            self._count_abandoned(session)
        memory = self._remember() if handed is None and self.member.keep else None
        outcome = self._leaving_as
        if handed is None:
            outcome, handed = services.lost_as, {**self.out.withheld, **self.member.handed_elsewhere}
        else:
            for session in self.sessions.values():
                self.confirm(session, session.sent)
        sessions = tuple(self.sessions.values())
        leave = partial(self._leave, sessions, outcome, handed, memory, request)
        self.broker.scheduler.start(self.member.id, leave, now)
        if memory is not None:
            services.lost.remember(memory, now - services.clock_offset + self.member.keep, self.broker)
        self.sessions.clear()
        self.deliveries.clear()
        self.unconfirmed.clear()

    def _remember(self) -> Memory:
        memory = self.member.remembers()
        memory.returned.update(self.deliveries.returned())
        return memory

    def _leave(
        self,
        sessions: tuple[Session, ...],
        outcome: Outcome,
        handed: Mapping[int, int],
        memory: Memory | None,
        request: int | None,
        now: int,
        budget: Budget,
    ) -> Task[None]:
        """Return the messages.

        Args:
            sessions: that it had.
            outcome, handed: as :meth:`Session.leave`.
            memory: of it, if it may come back: gets what it held; its temporary destinations stay until then.
            request: is answered then.
            now: ms since 1970.
            budget: of the turn.
        """
        report = self.services.report
        returned = {} if memory is None else {number: each.held for number, each in memory.returned.items()}
        until = 0 if memory is None else now + self.member.keep
        for session in sessions:
            try:
                now = yield from session.leave(outcome, handed, now, budget, returned, until)
            except Exception as error:  # the remaining steps must still be done
                report(self, "giving back messages", error)
        if memory is None:
            try:
                yield from self.namespace.temporaries.delete_all(self.member.id, now, budget)
            except Exception as error:
                report(self, "deleting temporary destinations", error)
        if self.member.client_id is not None:
            try:
                self.namespace.client_ids.free(self.member.client_id, self.member.id)
            except Exception as error:
                report(self, "freeing the client id", error)
        if request is not None and self.life.state == LEAVING:
            self.out.answer(request)
            self.life.end()
            self.late_output()


Handler: TypeAlias = Callable[[Peer, Any, int], None]
"""Carries out a command; session/verbs.py has its type. ``ProtocolError``: the client broke the protocol, and its
connection ends. Any other ``SieveError``: this request is refused, nothing was changed, the connection goes on. Any
other exception is a fault of the broker: it is logged and answered with INTERNAL, and only this connection ends."""

SendHandler: TypeAlias = Callable[[Peer, list[CommandTuple], int, int], int]
"""The same for consecutive sends in `commands` from a position on. Returns how many were carried out, at least one."""


class Verbs(NamedTuple):
    """The handlers of SEND and of each other verb."""

    send: SendHandler
    others: Mapping[int, Handler]


class Table(NamedTuple):
    """The handlers for a user without limits, and for a limited one."""

    free: Verbs
    limited: Verbs
