"""What all protocols but SieveMQ's own have in common: one frame after the other, answers before the next frame,
back-pressure, deadlines.

A foreign protocol is a parser of frames, a :class:`ForeignOutbox` that writes its frames, and a
:class:`ForeignConnection` that turns each frame into commands of the client's Peer. A frame is carried out when all
before it are: while an answer is due, or a send waits for room, further frames wait in the parser and nothing more is
read from the client (:attr:`ForeignConnection.full`). A protocol with links lets only the link of that send wait.
"""

from __future__ import annotations

from abc import abstractmethod
from collections import deque
from collections.abc import Callable, Iterator, Set
from functools import partial
from typing import Any, Final, Generic, Protocol, TypeVar

from sievemq_broker.domain.broker import Broker
from sievemq_broker.domain.ports import deliver_each
from sievemq_broker.domain.settlement import Outcome
from sievemq_broker.domain.tap_log import Tapped
from sievemq_broker.domain.work import TURN, Budget, Make
from sievemq_broker.protocols.base import BaseConnection, Outlet
from sievemq_broker.protocols.heartbeat import Heartbeat
from sievemq_broker.session.life import CLOSING, LEAVING, OPEN
from sievemq_broker.session.peer import Peer, Table
from sievemq_broker.session.ports import Services, Watcher
from sievemq_broker.session.rights import Verb
from sievemq_broker.session.settings import SessionSettings
from sievemq_broker.session.verbs import Carried, Request, Welcome
from sievemq_core.compiled import mypyc_attr
from sievemq_core.errors import ErrorCode, ProtocolError, RequestError, SieveError
from sievemq_core.message.destination import foreign_notation, parse_address
from sievemq_core.message.envelope import BODY, BODY_KIND, BodyKind, EnvelopeFields
from sievemq_core.wire.codec import CommandTuple

#: The most values of a message that is converted from one protocol to another: less than 10 ms, in one turn of the
#: loop.
CONVERTED_VALUES: Final = 7_000


#: The cost of a delivery, and of a conversion beside it, in units of the scheduler; and how many bytes of an envelope
#: are converted for one more.
_DELIVERY: Final = 1
_CONVERSION: Final = 3
_CONVERTED_BYTES: Final = 24

#: Messages in one page of a browser.
PAGE: Final = 100

#: Bodies of these kinds are passed on as they are.
_PLAIN: Final = frozenset({BodyKind.TEXT, BodyKind.BYTES, BodyKind.OBJECT})


def ignore(_: object) -> None:
    """A request was carried out, and nothing follows."""


def unexpected(text: str) -> ProtocolError:
    return ProtocolError(text, ErrorCode.UNEXPECTED_COMMAND)


def refuse_schedule(named: Set[Any], unsupported: frozenset[str], instead: str) -> None:
    """Refuse a message that asks for another schedule than a delay, as ActiveMQ has them.

    Args:
        named: names of the message's headers, annotations or properties.
        unsupported: those that ask for a schedule.
        instead: how this protocol delays a message.

    Raises:
        RequestError: MESSAGE_FORMAT, there is such a name.
    """
    if not unsupported.isdisjoint(named):
        name = min([name for name in unsupported if name in named])
        raise RequestError(
            f"{name} is not supported: a message is delivered once, and {instead} delays it. Send "
            "each repetition as a message of its own",
            ErrorCode.MESSAGE_FORMAT,
        )


def user_and_namespace(user: str | None) -> tuple[str | None, str]:
    """A user name, and the namespace after an @ in it."""
    if user is None or "@" not in user:
        return user or None, ""
    name, _, namespace = user.rpartition("@")
    return name or None, namespace


class Converted:
    """The last converted message, shared by all connections of a protocol, since the subscribers of a topic get one
    message one after the other."""

    __slots__ = ("_kept",)

    def __init__(self) -> None:
        self._kept: tuple[bytes, str, Any] = (b"", "", None)

    def find(self, packed: bytes, way: str) -> Any:
        """The converted message; None if the last one was another.

        Args:
            packed: its envelope.
            way: what differs between the connections: where it is consumed from, or the version of the protocol.
        """
        kept, kept_way, made = self._kept
        return made if kept is packed and kept_way == way else None

    def keep(self, packed: bytes, made: Any, way: str) -> None:
        """Keep a converted message as the last one; see :meth:`find`."""
        self._kept = packed, way, made


class Parser(Protocol):
    """Cuts bytes into frames."""

    @property
    def number(self) -> int:
        """The number of complete frames so far."""

    @property
    def pending(self) -> int:
        """Bytes that are not carried out yet."""

    def receive(self, data: bytes) -> None:
        """Take bytes, cut anywhere."""

    def next(self) -> Any:
        """The next frame; None while it is not complete."""

    def drop(self) -> None:
        """Drop the bytes of the incomplete frame."""


@mypyc_attr(allow_interpreted_subclasses=True)
class ForeignOutbox(Outlet):
    """The :class:`~sievemq_broker.session.ports.ClientPort` of one connection, without the encoding of frames.

    Args:
        settings: its `outbox_high` are the bytes of waiting output above which no more messages are taken.
        wake: called when output appears while nothing feeds the connection.
        converted: shared by the connections of the protocol.
    """

    __slots__ = (
        "_budget", "_converted", "_failure", "_parts", "_requests", "_size", "_spent", "_stopped", "asked_back",
        "resumed", "session",
    )  # fmt: skip

    def __init__(self, settings: SessionSettings, wake: Callable[[], None], converted: Converted) -> None:
        super().__init__(settings, wake)
        self._converted = converted
        self._budget = Budget()
        #: What was spent on deliveries, in units; each turn pays for TURN of them.
        self._spent = 0
        self._parts: list[bytes] = []
        self._size = 0
        #: The connection's id, after the handshake.
        self.session = ""
        #: Consumers with recalled messages: such a client cannot return them.
        self.asked_back: list[int] = []
        #: Called with the answer to a request, and with its refusal.
        self._requests: dict[int, tuple[Callable[[Any], None], Callable[[SieveError], None]]] = {}
        #: Sessions whose send or COMMIT waits for room.
        self._stopped: set[int] = set()
        #: Those whose wait is over, where only a part of the connection has waited.
        self.resumed: list[int] = []
        self._failure: SieveError | None = None

    # -- what the connection uses -----------------------------------------------------------------------------------

    @property
    def follows_clock(self) -> bool:
        """There is no frame for that."""
        return False

    @property
    def waiting(self) -> bool:
        """True while the client's next frame cannot be carried out: an answer is due, or a send waits for room."""
        return bool(self._requests) or bool(self._stopped)

    @property
    def crowded(self) -> bool:
        """True while the client does not read its output."""
        return self.congested or self._size > self._high

    def expect(
        self, request: int, then: Callable[[Any], None], refused: Callable[[SieveError], None] | None = None
    ) -> None:
        """Call `then` with the answer to a request, or `refused` with the error; no further frame is carried out until
        then. Without `refused` an error ends the connection."""
        self._requests[request] = then, refused or self.end

    def end(self, error: SieveError) -> None:
        """End the connection for this reason."""
        if self._failure is None:
            self._failure = error
        self.wake()

    def take_recalled(self) -> list[int]:
        """Return the consumers with recalled messages, one for each recall, and forget them."""
        asked, self.asked_back = self.asked_back, []
        return asked

    def take_failure(self) -> SieveError:
        """Return the reason why the connection must end, and forget it; :attr:`failed` is true."""
        failure, self._failure = self._failure, None
        assert failure is not None
        return failure

    @property
    def failed(self) -> bool:
        """True if :meth:`take_failure` has something."""
        return self._failure is not None

    def write(self, data: bytes) -> None:
        """Queue bytes, if there are any."""
        if data:
            self._parts.append(data)
            self._size += len(data)
            if not self._flush_due:
                self.request_flush()

    def write_message(self, data: bytes) -> None:
        """Queue the bytes of a delivery. Above the limit no more messages are accepted."""
        self.write(data)
        if self._size > self._high:
            self.hold_deliveries()

    def spend_from(self, budget: Budget) -> None:
        """Deliveries are made in the turns of this budget."""
        self._budget = budget

    def count_conversion(self, packed: bytes, fields: EnvelopeFields | None, units: int = _DELIVERY) -> None:
        """A message was converted, or passed on without fields. Once a turn is spent on that, no more are accepted in
        it."""
        if fields is not None:
            body = fields[BODY]
            plain = len(body) if body is not None and fields[BODY_KIND] in _PLAIN else 0
            units += _CONVERSION + (len(packed) - plain) // _CONVERTED_BYTES
        self._budget.spend(units)
        self._spent += units
        if self._spent >= TURN:
            self.hold_deliveries()

    @property
    def has_spent(self) -> bool:
        """Deliveries have cost more than a turn: further ones are made in a later one."""
        return self._spent >= TURN

    def take(self) -> bytes:
        """Return everything that is queued, and forget it."""
        data = self._parts[0] if len(self._parts) == 1 else b"".join(self._parts)
        self._parts = []
        self._size = 0
        self._spent = max(0, self._spent - TURN)
        return data

    def drop_references(self) -> None:
        super().drop_references()
        self._requests.clear()

    # -- called by the domain -----------------------------------------------------------------------------------------

    def deliver_row(self, consumer_id: int, tag: int, row: list[bytes]) -> int:
        """Queue first deliveries of several messages."""
        return deliver_each(self, consumer_id, tag, row)

    def recall(self, consumer_id: int, tags: list[int]) -> None:
        """Other consumers wait for buffered messages. The client cannot return any."""
        if self._life.state < LEAVING:
            self.asked_back.append(consumer_id)
            self.request_flush()

    # -- called by the client's Peer ----------------------------------------------------------------------------------

    @property
    def unread(self) -> int:
        """Bytes that wait to be written."""
        return self._size

    @property
    def is_new(self) -> bool:
        """True until the handshake is complete."""
        return self._life.state < OPEN

    def welcome(self, welcome: Welcome) -> None:
        """The handshake is complete: the callback of request 0 gets the time without the offset of test clocks."""
        self.session = welcome.connection
        then, _ = self._requests.pop(0)
        then(welcome.real)

    def answer(self, request: int, result: object = None) -> None:
        """A request was carried out."""
        expected = self._requests.pop(request, None)
        if expected is not None:
            expected[0](result)

    def answer_page(self, request: int, cursor: object, messages: list[tuple[Any, ...]]) -> None:
        """A page of messages."""
        self.answer(request, (cursor, messages))

    def answer_tapped(self, request: int, first: int, found: list[Tapped]) -> None:
        """Messages of a tap."""
        self.answer(request, (first, found))

    def refuse(self, request: int, error: SieveError) -> None:
        """A request was refused."""
        expected = self._requests.pop(request, None)
        (self.end if expected is None else expected[1])(error)

    def flow(
        self, blocked: bool, text: str, session: int = 0, sequence: int = 0, destination: str | None = None
    ) -> None:
        """Sends wait for room: nothing more is read from the client until they go on."""
        if not session:
            return  # the broker's own limit: later sends wait one by one
        if blocked:
            self._stopped.add(session)
        elif session in self._stopped:
            self._stopped.discard(session)
            self.wake()

    def clock(self, offset: int, frozen_at: int | None) -> None:
        """The clock was moved. The client is not informed: the times of its messages are the broker's. The connection
        reads the new offset when it next writes."""
        self.wake()

    def shutdown(self, grace: int, text: str) -> None:  # there may be no frame for it
        """The broker stops soon."""


class Line:
    """The view that a :class:`~sievemq_broker.protocols.heartbeat.Heartbeat` has of a connection.

    Args:
        parser: has what arrived and is no whole frame.
        outbox: knows whether the handshake is over.
        awaited: the frame of the handshake that is awaited, for people.
        heartbeat: a frame.
    """

    __slots__ = ("_awaited", "_outbox", "_parser", "_received", "heartbeat", "interval_in", "interval_out")

    def __init__(self, parser: Parser, outbox: ForeignOutbox, awaited: str, heartbeat: bytes) -> None:
        self._parser = parser
        self._outbox = outbox
        self._awaited = awaited
        self.heartbeat = heartbeat
        self._received = False
        self.interval_in = self.interval_out = 0

    def agree(self, incoming: int, outgoing: int) -> None:
        """Set the intervals of heartbeats from the client and to it, in milliseconds; 0 for none."""
        self.interval_in, self.interval_out = incoming, outgoing

    @property
    def awaited(self) -> str:
        """The part of the handshake that is awaited, for people."""
        return self._awaited if self._outbox.is_new else ""

    @property
    def frame_text(self) -> str:
        """What is incomplete, for people. The size of a frame may not be known before its end."""
        return "a frame"

    @property
    def frame_number(self) -> int:
        """The number of the incomplete frame, another one for each; 0 between two frames."""
        return self._parser.number + 1 if self._parser.pending else 0

    @property
    def unfinished(self) -> int:
        """Bytes of the incomplete frame that have arrived."""
        return self._parser.pending

    def received(self) -> bool:
        """True if any bytes arrived since the last call."""
        received, self._received = self._received, False
        return received

    def excuse(self) -> None:
        """Count as if bytes had arrived."""
        self._received = True

    def heartbeat_due(self) -> None:
        """Write a heartbeat."""
        self._outbox.write(self.heartbeat)


ParserT = TypeVar("ParserT", bound=Parser)
OutboxT = TypeVar("OutboxT", bound=ForeignOutbox)


@mypyc_attr(allow_interpreted_subclasses=True)
class ForeignConnection(BaseConnection[OutboxT], Generic[ParserT, OutboxT]):
    """The broker's end of one connection, without the meaning of its frames.

    Args:
        broker: the domain.
        services: of the I/O layer.
        table: the handler of each verb.
        address: of the other end, for people.
        watcher: is informed of the client's commands.
        parser: cuts what arrives into frames.
        outbox: what the client is sent.
        line: deadlines look at it.
    """

    __slots__ = (
        "_ids", "_laden", "_later", "_line", "_more", "_parser", "_todo",
    )  # fmt: skip

    def __init__(
        self,
        broker: Broker,
        services: Services[Peer],
        table: Table,
        address: str,
        watcher: Watcher[Peer] | None,
        parser: ParserT,
        outbox: OutboxT,
        line: Line,
    ) -> None:
        outbox.spend_from(broker.scheduler.budget)
        peer = Peer(broker, services, outbox, table, address, watcher, Outcome.LEFT)
        heartbeat = Heartbeat(line, services.settings, services.now() - services.clock_offset)
        super().__init__(services, peer, outbox, heartbeat)
        self._parser = parser
        self._line = line
        #: Number of the last request or consumer.
        self._ids = 0
        #: Called after an answer, before the next frame; and whether a whole frame may follow.
        self._todo: deque[Callable[[int], None]] = deque()
        self._more = False
        #: Called when nothing is left of that, before the next frame: frames that have waited.
        self._later: deque[Callable[[int], None]] = deque()
        #: So much waits for room that no further frame is carried out.
        self._laden = False

    # -- what a protocol adds -----------------------------------------------------------------------------------------

    @abstractmethod
    def _carry_out(self, frame: Any, now: int) -> None:
        """Carry out a frame.

        Raises:
            SieveError: the connection ends.
        """

    def _finish(self, now: int) -> None:
        """Carry out what was gathered of several frames."""

    @abstractmethod
    def _fail(self, error: SieveError, frame: Any, now: int) -> None:
        """End the connection because of a frame; None: because of an earlier error."""

    @property
    @abstractmethod
    def _has_duties(self) -> bool:
        """True if commands must be generated for the client, since clients of this protocol do not send them."""

    @abstractmethod
    def _do_duties(self, now: int) -> None:
        """Carry out these commands."""

    # -- in -----------------------------------------------------------------------------------------------------------

    def receive_data(self, data: bytes, now: int) -> None:
        if self.peer.life.state >= CLOSING:
            return
        self._line.excuse()
        self._parser.receive(data)
        self.outbox.begin_input()
        self._go_on(now)
        if not self.outbox.unread:
            self.outbox.end_input()

    def catch_up(self, now: int) -> None:
        self.outbox.begin_input()
        if self.peer.agenda.behind:
            self.peer.catch_up(now)
        self._go_on(now)
        if not self.outbox.unread:
            self.outbox.end_input()

    @property
    def behind(self) -> bool:
        return self.peer.agenda.behind or self._ready

    @property
    def full(self) -> bool:
        """True while frames wait: for an answer, for room, or until the client has read its output."""
        return self.outbox.waiting or self.outbox.crowded or self._laden

    def _go_on(self, now: int) -> None:
        """Carry out frames, as far as there is time and nothing must be waited for."""
        peer, outbox, spent = self.peer, self.outbox, self._services.spent
        life, agenda = peer.life, peer.agenda
        self._more = True
        while not (life.state >= CLOSING or agenda.behind or outbox.waiting or outbox.crowded or outbox.failed):
            frame: Any = None
            try:
                if self._todo:
                    self._todo.popleft()(now)
                elif self._later:
                    self._later.popleft()(now)
                elif self._laden:
                    break
                else:
                    frame = self._parser.next()
                    if frame is None:
                        self._more = False
                        break
                    self._carry_out(frame, now)
            except SieveError as error:
                self._fail(error, frame, now)
            if spent():
                break
        self._finish(now)
        if outbox.failed and life.state < CLOSING:
            self._fail(outbox.take_failure(), None, now)

    def _in_slices(self, make: Make[int], command: CommandTuple, then: Callable[[int], None], now: int) -> None:
        """Do something that is only about this connection, a slice in each turn; later frames wait.

        Args:
            make: makes the task.
            command: that it leads to.
            then: called afterwards, with the time, before the next frame; not if the connection is lost.
            now: ms epoch.
        """
        if self.peer.agenda.behind:
            self._todo.appendleft(partial(self._in_slices, make, command, then))
        else:
            self.peer.agenda.examine(make, command, lambda now: self._todo.appendleft(then), now)

    def _do_each(self, commands: Iterator[Carried], then: Callable[[int], None], now: int) -> None:
        """Carry out commands as far as there is time, the rest before the next frame; then `then`, with the time."""
        peer, spent = self.peer, self._services.spent
        for command in commands:
            peer.carry_out([command], 0, now)
            if peer.agenda.behind or spent():
                self._todo.appendleft(partial(self._do_each, commands, then))
                return
        then(now)

    def _check_name(self, address: str) -> None:
        """Refuse a name that is written as for another broker, unless there is such a destination. A user without any
        right to it does not learn whether there is.

        Args:
            address: canonical text.

        Raises:
            RequestError: INVALID_DESTINATION, with what to write instead.
        """
        peer = self.peer
        if address in peer.namespace.destinations:
            return
        found = foreign_notation(parse_address(address))
        if found is not None and peer.member.identity.may(Verb.VIEW, peer.namespace.name, address):
            raise RequestError(
                f"{found[0]}. If a destination of that very name is meant, create it first",
                ErrorCode.INVALID_DESTINATION,
                {"destination": address},
            )

    def _new_id(self) -> int:
        """The number of the next request or consumer."""
        self._ids += 1
        return self._ids

    def _do(self, now: int, command: Carried, size: int = 0) -> None:
        """Let the client's Peer carry out a command, of so many bytes."""
        self.peer.carry_out([command], size, now)

    def _ask(
        self,
        now: int,
        then: Callable[[Any], None],
        request: Request,
        *,
        refused: Callable[[SieveError], None] | None = None,
    ) -> None:
        """The same for a request, whose answer is passed to `then`. No frame is carried out before it."""
        self.outbox.expect(request.request, then, refused)
        self._do(now, request)

    # -- out ----------------------------------------------------------------------------------------------------------

    @property
    def has_data(self) -> bool:
        outbox = self.outbox
        return outbox.unread > 0 or self._deliver_again or outbox.failed or self._ready or self._duties_due

    @property
    def _ready(self) -> bool:
        """Frames, or what follows an answer, can be carried out."""
        outbox, peer = self.outbox, self.peer
        due = bool(self._todo) or bool(self._later) or bool(outbox.resumed) or (self._more and not self._laden)
        return due and not (outbox.waiting or outbox.crowded or peer.agenda.behind or peer.life.state >= CLOSING)

    @property
    def _duties_due(self) -> bool:
        peer = self.peer
        return not (peer.agenda.behind or peer.life.state >= CLOSING) and (
            peer.clock_lag != 0 or bool(self.outbox.asked_back) or self._has_duties
        )

    def urgent_heartbeat(self) -> bytes:
        return self._line.heartbeat if self.peer.life.state == OPEN else b""

    def data_to_send(self) -> bytes:
        peer, outbox = self.peer, self.outbox
        now = self._services.now()
        if outbox.failed or self._ready:
            journal = peer.broker.journal
            before = () if journal is None else journal.extent
            outbox.begin_input()
            self._go_on(now)
            if journal is not None and journal.extent != before:
                peer.owe()  # the answers: what the I/O layer notes of changes, it notes of input
        if self._deliver_again and not outbox.congested:
            self._resume_consumers(now)
        if peer.unconfirmed:
            peer.flush_confirms()
        data = outbox.take()
        if outbox.flushed():
            self._deliver_again = True
        if peer.life.state < LEAVING:
            if self._duties_due:
                if peer.clock_lag:
                    peer.see_clock(self._services.clock_offset)
                for consumer in outbox.take_recalled():
                    self._give_back(consumer, now)
                self._do_duties(now)
            # A frame that was carried out here may have left commands for which there was no time.
            if self._ready or (peer.agenda.behind and not peer.agenda.begun):
                outbox.wake()
        return data

    def _resume_consumers(self, now: int) -> None:
        if self.outbox.has_spent:
            self.outbox.hold_deliveries()
            self.outbox.request_flush()
        else:
            super()._resume_consumers(now)

    @abstractmethod
    def _give_back(self, consumer: int, now: int) -> None:
        """Answer a RECALL of a consumer's buffered messages."""

    # -- state, time and the end --------------------------------------------------------------------------------------

    @property
    def frame_bytes(self) -> int:
        return self._parser.pending

    @property
    def frame_number(self) -> int:
        return self._line.frame_number

    @property
    def unpublished(self) -> int:
        return self._parser.pending + self.peer.unpublished

    def lost(self, now: int) -> None:
        super().lost(now)
        self._parser.drop()
        self._todo.clear()
        self._later.clear()
