"""One accepted connection: bytes in, domain verbs out; deliveries in, bytes out. No I/O, no clock of its own.

rim ── receive_data(bytes, now) ──> wire ──> HANDLERS ──> domain
rim <── data_to_send() ──────────── wire <── Outbox <──── domain (DeliveryPort)
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any, ClassVar

from sievemq_broker.domain.broker import Broker
from sievemq_broker.domain.consumer import Consumer
from sievemq_broker.domain.namespace import Namespace
from sievemq_broker.session.checks import check_identifier, unknown
from sievemq_broker.session.commands import HANDLERS, Handler
from sievemq_broker.session.dispatch import dispatch
from sievemq_broker.session.guard import guarded, is_own
from sievemq_broker.session.handshake import welcome
from sievemq_broker.session.heartbeat import Heartbeat
from sievemq_broker.session.leaving import leaving
from sievemq_broker.session.outbox import Outbox
from sievemq_broker.session.pending import Pending
from sievemq_broker.session.resume import Memory, Refusal
from sievemq_broker.session.rights import Identity, Verb, forbidden
from sievemq_broker.session.services import AuthenticationError, Services
from sievemq_broker.session.session import Session
from sievemq_broker.session.stall import Stall
from sievemq_broker.session.transaction import StagedBytes
from sievemq_core.compiled import mypyc_attr
from sievemq_core.errors import ErrorCode, ProtocolError, RequestError, SieveError
from sievemq_core.wire.codec import CommandTuple
from sievemq_core.wire.commands import COMMANDS, Command
from sievemq_core.wire.connection import State, WireConnection

__all__ = ["BrokerConnection"]

# Commands that are answered: their first field is the request.
_REQUESTS = frozenset(n for n, spec in COMMANDS.items() if spec.fields and spec.fields[0].name == "request")

#: Commands that are decoded at a time, and as many more as a frame may hold: what came is decoded while it is carried
#: out, so that a read of tiny frames takes no longer than a turn has.
BATCH = 1_024

#: Sends of small NON_PERSISTENT messages that may wait for their confirm: far below the window of any client.
LAZY_CONFIRMS = 64


@mypyc_attr(allow_interpreted_subclasses=True)  # the test kit's is one
class BrokerConnection:
    """The broker's end of one connection.

    The rim feeds it, writes what :meth:`data_to_send` returns whenever :attr:`has_data`, and closes the transport
    after writing once :attr:`closing` is true. When the transport ends first, it calls :meth:`lost`.

    Args:
        broker: the domain.
        services: what the rim provides.
        peer: address of the other end, for people.
    """

    __slots__ = (
        "_gone",
        "_held_back",
        "_resume_due",
        "_turn",
        "agent",
        "allowed",
        "before",
        "broker",
        "client_id",
        "clock_lag",
        "clock_seen",
        "closing",
        "consumers",
        "handed",
        "heartbeat",
        "hello",
        "highest_consumer",
        "highest_session",
        "hurry",
        "id",
        "identity",
        "keep",
        "late",
        "late_bytes",
        "namespace",
        "outbox",
        "owners",
        "peer",
        "pending",
        "refused_before",
        "resumed",
        "retired",
        "services",
        "sessions",
        "settings",
        "staged",
        "stalls",
        "table",
        "temporaries",
        "unconfirmed",
        "wants",
        "wire",
    )
    namespace: Namespace
    #: What to do for each command; the test kit puts faults and a journal in front.
    handlers: ClassVar[Mapping[int, Handler]] = HANDLERS

    def __init__(self, broker: Broker, services: Services, *, peer: str = "") -> None:
        self.broker = broker
        self.services = services
        self.settings = services.settings
        self.peer = peer
        self.wire = WireConnection("broker", services.settings.frame_bytes)
        self.outbox = Outbox(self.wire, self, services.settings.outbox_high)
        #: Who and where; set by HELLO.
        self.id = ""
        self.agent = ""
        self.identity = Identity()
        #: The HELLO whose sender the rim has to find out about.
        self.hello: tuple[Any, ...] | None = None
        #: What is done for each command; with checks in front if the user is limited. And where it may send to, as far
        #: as it has.
        self.table: Mapping[int, Handler] = self.handlers
        self.allowed: set[str] = set()
        self.client_id: str | None = None
        #: Milliseconds for which it is remembered once it is lost; 0 for not at all.
        self.keep = 0
        #: It takes the place of a lost one; what that one's sessions had done, by session, as long as they are not open
        #: again, and which of its sends were refused.
        self.resumed = False
        self.before: dict[int, tuple[int, int]] = {}
        self.refused_before: tuple[Refusal, ...] = ()
        #: Consumer -> last tag that the application may have seen, where the client has said so from elsewhere.
        self.handed: Mapping[int, int] = {}
        self.sessions: dict[int, Session] = {}
        #: Memory of all their transactions.
        self.staged = StagedBytes(self.settings.staged_bytes)
        #: Consumers of all sessions by id, and the session of each. `retired` are closed but still hold messages of
        #: their session (ACK-19).
        self.consumers: dict[int, Consumer] = {}
        self.owners: dict[int, Session] = {}
        self.retired: set[int] = set()
        #: Requests of WANTs that the domain has not settled, by consumer.
        self.wants: dict[int, list[int]] = {}
        #: Of sessions that wait for room, by session.
        self.stalls: dict[int, Stall] = {}
        #: Sessions with sends to confirm at the end of the turn.
        self.unconfirmed: list[Session] = []
        #: Somebody waits for one of these confirms, or may.
        self.hurry = False
        self.highest_session = self.highest_consumer = self.temporaries = 0
        #: Offset of the clock that the client's times include, and how far that is behind the broker's.
        self.clock_seen = self.clock_lag = 0
        #: True once the transport is to be closed after writing.
        self.closing = False
        self._gone = self._held_back = False
        #: Commands that wait for their turn, and how many bytes they were.
        self.late: list[CommandTuple] = []
        self.late_bytes = 0
        #: The one before them that has begun.
        self.pending: Pending | None = None
        self._resume_due = False
        self._turn = 0
        self.heartbeat = Heartbeat(self.wire, self.settings, services.now() - services.clock_offset)

    # -- what the rim calls -----------------------------------------------------------------------------------------

    def receive_data(self, data: bytes, now: int) -> None:
        """Carry out what arrived, as far as there is time (:attr:`Services.spent`). Never raises: what is wrong ends
        this connection at most.

        Args:
            data: bytes from the peer, cut anywhere. Nothing must be :attr:`behind`.
            now: milliseconds since 1970.
        """
        if self.closing:
            return
        self.outbox.awake = True
        try:
            commands = self.wire.receive_data(data, BATCH)
        except ProtocolError as error:
            self.fail(error, now)
            return
        self.late_bytes = len(data)
        dispatch(self, commands, now)
        self._go_on(now)

    @property
    def behind(self) -> bool:
        """True if there was no time for all that arrived: :meth:`catch_up` is to be called."""
        return bool(self.late) or self.pending is not None or self.wire.behind

    def catch_up(self, now: int) -> None:
        """Carry out what is left, as far as there is time. Never raises.

        Args:
            now: milliseconds since 1970.
        """
        commands, self.late = self.late, []
        if commands or self.pending is not None:
            dispatch(self, commands, now)
        else:
            self._decode_more(now)
        self._go_on(now)

    def _go_on(self, now: int) -> None:
        """Decode what else arrived, and carry it out, as far as there is time."""
        while self.wire.behind and not self.late and self.pending is None and not self.services.spent():
            self._decode_more(now)

    def _decode_more(self, now: int) -> None:
        try:
            commands = self.wire.receive_more(BATCH)
        except ProtocolError as error:
            self.fail(error, now)
        else:
            dispatch(self, commands, now)

    def receive_eof(self, now: int) -> None:
        """The peer has sent its last byte; nothing can be answered usefully any more."""
        self.lost(now)

    def lost(self, now: int) -> None:
        """The transport is gone: everything comes back (ACK-18, TXN-05, CON-11). Idempotent."""
        self.closing = True
        self.end(now, None)
        self.outbox.disown()

    def take_acknowledgements(self, done: Mapping[int, int], now: int) -> None:
        """What the client has acknowledged and this connection did not live to hear (D-32)."""
        for consumer_id, tag in done.items():
            consumer = self.consumers.get(consumer_id)
            if consumer is not None and self.owners[consumer_id].transaction is None:
                consumer.acknowledge(min(tag, consumer.tag), now)

    def close(self, code: ErrorCode, text: str, now: int) -> None:
        """End the connection from this side, with a fatal ERROR as the last word. Idempotent."""
        if not self.closing:
            self.fail(ProtocolError(text, code), now)
            self.services.wake(self)

    @property
    def has_data(self) -> bool:
        """True if there is something to write."""
        return self.wire.pending_bytes > 0 or self._resume_due

    def data_to_send(self) -> bytes:
        """Everything to write now, in frames. May wake the connection again at once: call it again next turn then."""
        outbox = self.outbox
        if self._resume_due and not outbox.paused:
            self._resume_due = False
            self._resume_consumers(self.services.now())
        if self.unconfirmed and self.wire.out:
            self.flush_confirms()
        data = self.wire.data_to_send()
        if not self._gone:
            outbox.awake = False
            if outbox.starved and not outbox.paused:
                # The outbox was full and is empty now. Deliveries go on next turn, when it is known whether the
                # transport took all this or has asked for a pause.
                self._resume_due = outbox.awake = True
                self.services.wake(self)
        return data

    def pause(self) -> None:
        """The transport holds more than it likes: no deliveries until :meth:`resume`."""
        if not self._gone:
            self.outbox.pause()

    def resume(self, now: int) -> None:
        """The transport has room again."""
        self.outbox.paused = False
        if not self._gone:
            self._resume_due = False
            self._resume_consumers(now)

    def tick(self, now: int) -> int | None:
        """Heartbeats, the handshake's deadline, and confirms that found no other way out.

        Returns:
            When to call again at the latest (ms since 1970), None for never.
        """
        if self.closing:
            return None
        if self.unconfirmed:
            self.flush_confirms()
        offset = self.services.clock_offset
        if self._held_back:
            self.heartbeat.excuse()
        try:
            following = self.heartbeat.tick(now - offset)
        except ProtocolError as error:
            self.close(error.code, error.text, now)
            return None
        if self.wire.pending_bytes:
            self.nudge()
        return None if following is None else following + offset

    def hold_back(self, held: bool) -> None:
        """From now on nothing is read from the peer, or something is again: until then its silence is no fault of it.

        Args:
            held: nothing is read.
        """
        self._held_back = held
        self.heartbeat.excuse()

    @property
    def unpublished(self) -> int:
        """Bytes that came and are no messages yet: of a frame that is not complete, or is not carried out; of open
        transactions."""
        late = (self.late_bytes if self.late else 0) + (0 if self.pending is None else self.pending.size)
        return self.wire.unfinished + self.staged.used + late

    def clock_jumped(self, by: int) -> None:
        """The machine's clock was set, by so many ms: deadlines of the peer are where they would have been."""
        self.heartbeat.clock_jumped(by)

    def announce_shutdown(self, grace: int, text: str) -> None:
        """Tell the client that the broker ends in `grace` milliseconds."""
        if self.wire.state is State.OPEN:
            self.outbox.send(Command.SHUTDOWN, grace, text)

    def identified(self, found: Identity | AuthenticationError, now: int) -> None:
        """Who it is, some time after :meth:`Services.authenticate` had to find out. Never raises, as receive_data."""
        command, self.hello = self.hello, None
        if command is None or self.closing:
            return
        try:
            if isinstance(found, AuthenticationError):
                raise found
            welcome(self, found, command, now)
        except SieveError as error:
            self.fail(error, now)
        except Exception as error:  # the broker's own fault: it must not take other connections along
            self.crash(command, error, now)
        self.services.wake(self)

    def entitle(self, identity: Identity) -> None:
        """From now on the user may do what this identity's rights say. Consumers without one are closed.

        Args:
            identity: the same user; its rights may be others than before.
        """
        self.identity = identity
        self.allowed.clear()
        self.table = self.handlers if identity.rights.unlimited else guarded(self.handlers)
        for consumer in tuple(self.consumers.values()):
            if consumer.open:
                label = consumer.source.place.destination
                if not identity.may(Verb.CONSUME, self.namespace.name, label) and not is_own(self, label):
                    refusal = forbidden(identity, Verb.CONSUME, self.namespace.name, label)
                    consumer.stop(ErrorCode.SECURITY, refusal.text)

    # -- what Services calls ------------------------------------------------------------------------------------------

    def clock_moved(self) -> None:
        """The clock's offset changed: the client is told, and until it says CLOCK_SEEN its times are shifted here."""
        offset = self.services.clock_offset
        self.clock_lag = offset - self.clock_seen
        self.outbox.send(Command.CLOCK, offset)

    def sent_after_move(self, timestamp: int) -> bool:
        """True if a client that has not seen the clock move sent a message after it moved: its times are to be shifted.

        What was sent before, and was only on its way, was sent at the time it says.

        Args:
            timestamp: JMSTimestamp of the message, ms; 0 where the producer gives none, which says nothing.
        """
        return not timestamp or timestamp - self.clock_seen > self.services.moved_at

    def clock_drifted(self, milliseconds: int) -> None:
        """The broker's clock stands, and the client's runs on: its times are shifted by so much more."""
        self.clock_lag += milliseconds

    def flow_changed(self) -> None:
        """The broker is at its limit from now on, or not any more."""
        blocked = self.services.blocked
        self.outbox.send(Command.FLOW, blocked is not None, blocked or "")
        self.flush_confirms()

    # -- what the outbox calls ----------------------------------------------------------------------------------------

    def wake(self) -> None:
        """Output appeared while nobody was feeding this connection."""
        self.services.wake(self)

    def want_settled(self, consumer_id: int) -> None:
        """Answer the WANTs of a consumer."""
        for request in self.wants.pop(consumer_id, ()):
            self.answer(request)

    def consumer_closed(self, consumer_id: int, code: ErrorCode, text: str) -> None:
        """The domain closed a consumer under us."""
        self.want_settled(consumer_id)
        consumer = self.consumers.get(consumer_id)
        if consumer is None:
            return  # its session is being closed
        self.outbox.send(Command.CONSUMER_CLOSED, consumer_id, int(code), text)
        if consumer.unacknowledged:
            self.retired.add(consumer_id)
        else:
            self.forget_consumers((consumer_id,))

    def carry_out_late(self, command: tuple[Any, ...], now: int, handler: Handler | None = None) -> None:
        """Carry out a command that had to wait; whether it may be was looked at when it came. Never raises.

        Args:
            command: the command.
            now: milliseconds since 1970.
            handler: does what is left of it; None for all of it.
        """
        try:
            (handler or HANDLERS[command[0]])(self, command, now)
        except SieveError as error:
            self.refuse(command, error, now)
        except Exception as error:  # the broker's own fault: it must not take other connections along
            self.crash(command, error, now)
        self.acted()

    def go_on_with(self, pending: Pending, now: int) -> None:
        """Go on with a command, as far as there is time; what follows it waits until it is over."""
        if pending.go_on(self.services.spent, now):
            pending.act(now)
        else:
            self.pending = pending

    def guarded(self, number: int, act: Callable[[int], None], now: int) -> None:
        """Do what belongs to a command that came before. Never raises, as receive_data.

        Args:
            number: of the command.
            act: what is done, with the time.
            now: milliseconds since 1970.
        """
        try:
            act(now)
        except Exception as error:  # the broker's own fault: it must not take other connections along
            self.crash((number,), error, now)
            self.nudge()

    def wait_for_publishing(self, command: tuple[Any, ...]) -> bool:
        """True if a large batch is on its way, of which nobody may see a part: the command is carried out behind it."""
        publishing = self.namespace.publishing
        if publishing is None:
            return False
        publishing.then(lambda now: None if self.closing else self.carry_out_late(command, now))
        return True

    # -- what handlers call -------------------------------------------------------------------------------------------

    def answer(self, request: int, result: object = None) -> None:
        """OK to a request."""
        self.outbox.send(Command.OK, request, result)

    def send_packed(self, packed: bytes) -> None:
        """Queue an answer that is packed already."""
        self.wire.send_packed(packed)
        self.nudge()

    def nudge(self) -> None:
        """There is output; see that somebody writes it."""
        if not self.outbox.awake:
            self.outbox.awake = True
            self.services.wake(self)

    def acted(self) -> None:
        """Something of this connection's was carried out, though nothing came from it just now. The rim must hear of it
        even where it knows of output already: a store has to note how far the connection has come with the very batch
        that this is in, or a client that comes back after a crash says it again."""
        self.outbox.awake = True
        self.services.wake(self)

    def welcomed(self, now: int) -> None:
        """The handshake is done."""
        offset = self.services.clock_offset
        self.clock_seen = offset
        self.heartbeat.welcomed(now - offset)
        if self.services.blocked is not None:
            self.flow_changed()

    def claim_client_id(self, client_id: str) -> None:
        """Take a client id for this connection, or raise RequestError INVALID_CLIENT_ID."""
        try:
            check_identifier("a client id", client_id)
        except RequestError as error:
            raise RequestError(error.text, ErrorCode.INVALID_CLIENT_ID) from None
        holder = self.namespace.client_ids.holder(client_id)
        if holder is not None:
            self.broker.finish_leaving(self.services.now(), holder)
        self.namespace.client_ids.claim(client_id, self.id)
        self.client_id = client_id

    def check_once_open(self, consumer_id: int) -> None:
        """Pass over a command for a consumer that was closed meanwhile; refuse one for an id that never was."""
        if consumer_id > self.highest_consumer:
            raise unknown("consumer", consumer_id)

    def forget_consumers(self, ids: Iterable[int]) -> None:
        """Drop consumers that are closed and hold nothing any more."""
        for consumer_id in tuple(ids):
            self.want_settled(consumer_id)
            self.consumers.pop(consumer_id, None)
            self.retired.discard(consumer_id)
            session = self.owners.pop(consumer_id, None)
            if session is not None:
                session.consumers.pop(consumer_id, None)

    def let_go(self, session: Session) -> None:
        """A session is over, though its consumers may not have given back everything: nothing is said to them, or by
        them, any more."""
        del self.sessions[session.id]
        for consumer_id in session.consumers:
            self.want_settled(consumer_id)
            self.consumers.pop(consumer_id, None)
            self.owners.pop(consumer_id, None)
        self.retired.difference_update(session.consumers)

    def forget_settled(self, session: Session) -> None:
        """Drop the session's closed consumers whose last message is settled."""
        if self.retired:
            self.forget_consumers(
                [i for i, c in session.consumers.items() if i in self.retired and not c.unacknowledged]
            )

    # -- sends --------------------------------------------------------------------------------------------------------

    def flush_confirms(self) -> None:
        """Confirm what was taken, once per session.

        That is at the end of each turn for PERSISTENT messages, whose senders wait. Sends of NON_PERSISTENT ones return
        at once (D-24), so a confirm alone is not worth a write at both ends: it goes with what else is written, or once
        some have gathered, or is asked for (PING), or with the next tick.
        """
        self.hurry = False
        for session in self.unconfirmed:
            session.unconfirmed = False
            self.confirm(session, session.sent)
        self.unconfirmed.clear()

    def many_unconfirmed(self) -> bool:
        """True if confirms that nobody is known to wait for should not wait any longer."""
        return any(session.sent - session.confirmed >= LAZY_CONFIRMS for session in self.unconfirmed)

    def confirm(self, session: Session, sequence: int) -> None:
        """Settle the session's sends up to `sequence`."""
        if sequence > session.confirmed:
            session.confirmed = sequence
            self.outbox.send(Command.CONFIRM, session.id, sequence)

    def refuse_send(self, session: Session, sequence: int, error: SieveError) -> None:
        """One send failed: earlier ones are confirmed first. In a transaction it dooms the commit (TXN-09)."""
        self.confirm(session, sequence - 1)
        session.confirmed = sequence
        if self.keep and session.transaction is None:  # the client may have to hear it again
            if session.refused is None:
                session.refused = deque(maxlen=self.settings.window_messages)  # as many as can be unsettled there
            session.refused.append((sequence, int(error.code), error.text))
        self.outbox.send(Command.SEND_FAILED, session.id, sequence, int(error.code), error.text)
        if session.transaction is not None:
            session.transaction.fail(error)

    # -- the end ------------------------------------------------------------------------------------------------------

    def end(self, now: int, handed: Mapping[int, int] | None, request: int | None = None) -> None:
        """Give everything back that this connection holds, in slices if that is much. Idempotent.

        Args:
            now: milliseconds since 1970.
            handed: what the application has seen, by consumer; None if nobody can say (ACK-18).
            request: a GOODBYE, answered when all is given back.
        """
        if self._gone:
            return
        self._gone = True
        self.late = []
        self.pending = None
        self.wire.drop_input()
        if handed is not None:
            for consumer_id in tuple(self.wants):
                self.want_settled(consumer_id)
        # Nothing is delivered to this connection any more; otherwise what one consumer gives back would go to its
        # sisters, and be counted as delivered once more.
        self.outbox.shut()
        if not self.id:
            return
        services = self.services
        services.connections.pop(self.id, None)
        for stall in tuple(self.stalls.values()):
            stall.end()
        memory = Memory.of(self) if handed is None and self.keep else None
        if handed is not None:
            for session in self.sessions.values():
                self.confirm(session, session.sent)
        self.broker.begin_leaving(self.id, leaving(self, now, handed, memory is not None, request))
        if memory is not None:
            services.lost.remember(memory, now - services.clock_offset + self.keep, self.broker)
        for mapping in (self.sessions, self.consumers, self.owners, self.wants):
            mapping.clear()
        self.retired.clear()
        self.unconfirmed.clear()

    def _resume_consumers(self, now: int) -> None:
        outbox = self.outbox
        outbox.writable, outbox.starved = True, False
        # Begins where the last round stopped: a consumer with a long backlog must not keep the others waiting.
        consumers = tuple(self.consumers.values())
        for turn in range(self._turn, self._turn + len(consumers)):
            consumers[turn % len(consumers)].resume(now)
            if not outbox.writable:
                self._turn = turn + 1
                break

    # -- errors -------------------------------------------------------------------------------------------------------

    def refuse(self, command: tuple[Any, ...], error: SieveError, now: int) -> bool:
        """Answer ERROR to a request; True if the connection goes on."""
        request = command[1] if command[0] in _REQUESTS else 0
        if not request or error.code.fatal:
            self.fail(error, now)
            return False
        self.outbox.send(Command.ERROR, request, int(error.code), error.text, error.details)
        return True

    def crash(self, command: tuple[Any, ...], error: Exception, now: int) -> None:
        """A fault of the broker: this connection is told and ends, all others go on."""
        name = COMMANDS[command[0]].name
        self.services.report(self, f"carrying out {name}", error)
        self.fail(SieveError(f"an internal error of the broker while carrying out {name}; it was logged there"), now)

    def fail(self, error: SieveError, now: int) -> None:
        """The last word, then the end."""
        for session in self.unconfirmed:
            if self.wire.state is State.OPEN:
                self.confirm(session, session.sent)  # what was accepted is accepted
        if not error.code.repairable:
            self.keep = 0  # it would say the same again, or somebody wants it to be gone
        self.closing = True
        self.wire.fail(error)
        self.end(now, None)
