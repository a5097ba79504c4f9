"""The broker's server for tests: its connections write the journal and carry out the faults.

No class of the broker is patched. A watched connection gets a table whose verbs pass the faults first, and observes the
commands of its client. A watched outbox observes each delivery. A watched link can hold, cut or drop the bytes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from functools import cache, partial
from typing import TYPE_CHECKING, Any, ClassVar, Final, Protocol, cast

import msgpack

from sievemq_broker.clock import Clock
from sievemq_broker.config import Settings
from sievemq_broker.domain.broker import Broker
from sievemq_broker.domain.entry import Entry
from sievemq_broker.domain.ports import deliver_each
from sievemq_broker.domain.queue import Queue
from sievemq_broker.domain.topic import Topic
from sievemq_broker.protocols import PROTOCOLS
from sievemq_broker.protocols.sieve.connection import SieveConnection, SieveOutbox, with_names
from sievemq_broker.server.net.link import Choose, Connect, Connection, Link, Links, ShardPort
from sievemq_broker.server.net.turn import Turn
from sievemq_broker.server.server import Server
from sievemq_broker.server.shard import Shard
from sievemq_broker.server.watch.counts import queues_in
from sievemq_broker.session.handlers.messages import on_send
from sievemq_broker.session.life import GONE
from sievemq_broker.session.peer import Peer, Table
from sievemq_broker.session.ports import Services
from sievemq_broker.session.session import Session
from sievemq_broker.session.table import HANDLERS, make_table
from sievemq_broker.session.verbs import CloseConsumer, CloseSession, Hello, OpenConsumer, Release, Rollback
from sievemq_core.counted import counted
from sievemq_core.errors import AddressError, ErrorCode, ProtocolError, SieveError
from sievemq_core.message.destination import parse_address
from sievemq_core.message.envelope import Envelope
from sievemq_core.wire.commands import COMMANDS, Command
from sievemq_testing.frames import Cut
from sievemq_testing.journal import Recorder, matches
from sievemq_testing.running import Running


class Tape(Protocol):
    """Records sent messages."""

    def sent(self, namespace: str, destination: str, envelope: Envelope, now: int) -> None:
        """A message was sent."""


class Rule(Protocol):
    """A fault that meets a command."""

    def act(self, connection: WatchedConnection, command: tuple[Any, ...], now: int) -> bool:
        """Apply it; True if the command is finished."""

    def after(self, connection: WatchedConnection) -> None:
        """Called after the command was carried out."""


class Rules(Protocol):
    """The faults that wait for commands."""

    @property
    def waiting(self) -> bool:
        """True if there are some."""

    def meet(self, connection: WatchedConnection, command: tuple[Any, ...]) -> Rule | None:
        """The one that happens to a command."""

    def let_on(self, now: int) -> None:
        """Time has passed: let commands continue whose delay is over."""


class Desk(Protocol):
    """What the routes of test control keep for a server."""

    def close(self) -> None:
        """The server ends."""


class Watch:
    """State that the parts of one watched broker share."""

    __slots__ = ("dropped", "faults", "recorder", "tapes")

    def __init__(self, recorder: Recorder, faults: Rules) -> None:
        self.recorder = recorder
        self.faults = faults
        #: Open recordings.
        self.tapes: list[Tape] = []
        #: Names of namespaces that a test has dropped: their clients must not bring them back.
        self.dropped: set[str] = set()


class WatchedServer(Server):
    """A server whose connections are watched.

    Args:
        settings, clock, shard, on_failure: see Server.
        watch: the journal and the faults.
        verbs: the test broker, for the routes of test control.
    """

    def __init__(
        self,
        settings: Settings,
        clock: Clock,
        shard: Shard,
        watch: Watch,
        verbs: Running,
        on_failure: Callable[[], None] = lambda: None,
    ) -> None:
        super().__init__(settings, clock, shard, on_failure)
        self._watch = watch
        self.verbs = verbs
        self.desk: Desk | None = None

    def keep(self, desk: Desk) -> None:
        """The routes of test control keep this until the server ends."""
        self.desk = desk

    async def end_desk(self) -> None:
        """No request is answered any more."""
        desk, self.desk = self.desk, None
        if desk is not None:
            desk.close()

    async def _open_shard(self) -> None:
        await super()._open_shard()
        if self.shard.opened is None:
            return
        recorder = self._watch.recorder
        found: dict[str, list[tuple[Queue, Entry]]] = {name: [] for name in recorder.journals}
        for namespace in self.shard.broker.namespaces.values():
            found[recorder.of(namespace.name).namespace] = [
                (queue, entry) for queue in queues_in(namespace) for entry in entries_of(queue)
            ]
        for known, there in found.items():
            for fate in recorder.of(known).go_on_with(there):
                recorder.lost(known, fate, "it was not on disk")

    def clock_moved(self) -> None:
        """The clock was moved; see Server. A connection that is paused counts the time as silence."""
        skipped = self.clock.offset - self._announced
        if skipped > 0:
            for link in tuple(self.links.open):
                if isinstance(link, WatchedLink) and link.frozen:
                    link.keep_silent(skipped, self.clock.now())
        self._watch.faults.let_on(self.clock.now())
        super().clock_moved()

    def _link(self, connect: Connect, choose: Choose | None) -> Link:
        return WatchedLink(self.links, self.turn, self.clock, self.shard, connect, self._refuse, choose)

    def _connectors(self) -> Mapping[str, Connect]:
        return {name: partial(_connect, name, self._watch) for name in PROTOCOLS}


def _connect(name: str, watch: Watch, shard: ShardPort, address: str, wake: Callable[[], None]) -> Connection:
    kind = WatchedSieve if name == "sieve" else _watched(name)
    return kind(shard.broker, shard.services, watch, address=address, wake=wake)


class _Deliveries:
    """Observes the deliveries of an outbox, and can stop after a few. It precedes the outbox among the bases."""

    #: Deliveries that may still be made; None for any number.
    allowance: int | None = None
    _in_row = False
    writable: bool

    def __init__(self, connection: WatchedConnection, *args: Any) -> None:
        super().__init__(*args)
        self._connection = connection

    @property
    def connection_id(self) -> str:
        return self._connection.peer.member.id

    def allow(self, deliveries: int | None) -> None:
        """Pass this many deliveries from now on; None for any number."""
        self.allowance = deliveries

    def deliver(self, consumer_id: int, tag: int, count: int, packed: bytes) -> None:
        """A delivery; see Outbox."""
        if not self._in_row:
            self._note(consumer_id, tag, count)
        super().deliver(consumer_id, tag, count, packed)  # type: ignore[misc]
        if self.allowance is not None:
            self.allowance -= 1
            if self.allowance <= 0:
                self.pause()  # type: ignore[attr-defined]

    def deliver_row(self, consumer_id: int, tag: int, row: list[bytes]) -> int:
        """Several deliveries; see Outbox."""
        if self._in_row:  # a part of it
            return cast("int", super().deliver_row(consumer_id, tag, row))  # type: ignore[misc]
        if self.allowance is not None:
            return deliver_each(cast("SieveOutbox", self), consumer_id, tag, row)
        self._in_row = True
        try:
            taken: int = super().deliver_row(consumer_id, tag, row)  # type: ignore[misc]
        finally:
            self._in_row = False
        for at in range(tag, tag + taken):
            self._note(consumer_id, at, 1)
        return taken

    def _note(self, consumer_id: int, tag: int, count: int) -> None:
        peer = self._connection.peer
        consumer = peer.deliveries.consumers.get(consumer_id)
        if consumer is not None and (entry := consumer.window[tag - consumer.base - 1]) is not None:
            again = f", attempt {count}" if count > 1 else ""
            self._connection.watch.recorder.delivered(
                consumer.source.place, entry, peer.member.id, f"to consumer {consumer_id} of {peer.member.id}{again}"
            )


class WatchedOutbox(_Deliveries, SieveOutbox):
    """The outbox of a client of SieveMQ's own protocol."""


if TYPE_CHECKING:

    class _Face:
        """Any other attribute is the protocol's."""

        peer: Peer

        def __init__(self, *args: Any, **keywords: Any) -> None:
            """As of the protocol's connection."""

        @property
        def closing(self) -> bool:
            return False

        @property
        def heartbeats(self) -> tuple[int, int]:
            return 0, 0

        def pause(self) -> None:
            """See Connection."""

        def resume(self, now: int) -> None:
            """See Connection."""

        def close(self, code: ErrorCode, text: str, now: int) -> None:
            """See Connection."""

        def lost(self, now: int) -> None:
            """See Connection."""

else:
    _Face = object


class WatchedConnection(_Face):
    """The watched part of a connection of any protocol: its commands pass the faults and the journal first. It precedes
    the protocol's connection among the bases.
    """

    outbox: Any
    #: Observes deliveries.
    _outbox: ClassVar[Callable[..., _Deliveries]]
    #: Commands that are held until the test releases them; None while commands are carried out immediately.
    held: list[tuple[Any, ...]] | None = None
    #: The command that was held last and continues now: no rule delays it again.
    let: tuple[Any, ...] | None = None

    def __init__(
        self, broker: Broker, services: Services[Peer], watch: Watch, address: str, wake: Callable[[], None]
    ) -> None:
        self.watch = watch
        outbox = partial(type(self)._outbox, self)
        super().__init__(broker, services, self._table(), address=address, wake=wake, watcher=self, make_outbox=outbox)

    def _table(self) -> Table:
        """The handlers of its commands."""
        return make_table(self._pass_send, dict.fromkeys(HANDLERS, self._pass_on))

    def note(self, kind: str, where: str = "", envelope: Envelope | None = None, detail: str = "") -> None:
        peer = self.peer
        if peer.member.id:
            self.watch.recorder.note(peer.namespace.name, kind, where, envelope, peer.member.id, detail)

    # -- commands -------------------------------------------------------------------------------------------------

    def _pass_on(self, peer: Peer, command: tuple[Any, ...], now: int) -> None:
        """Faults, then the handler and the journal."""
        if self.held is not None and command[0] not in _NEVER_HELD:
            self.held.append(command)
            return
        rule = self.watch.faults.meet(self, command)
        if rule is not None and rule.act(self, command, now):
            return
        note = _NOTES.get(command[0])
        if note is None:
            HANDLERS[command[0]](peer, command, now)
        else:
            note(self, command, now)
        if rule is not None:
            rule.after(self)

    def _pass_send(self, peer: Peer, commands: list[tuple[Any, ...]], at: int, now: int) -> int:
        """The same for SEND: several at once while there are no faults that might meet one of them."""
        command = commands[at]
        if self.held is not None:
            self.held.append(command)
            return 1
        _, number, sequence, _, _ = command
        session = peer.sessions.get(number)
        out_of_turn = session is not None and not session.is_next(sequence)
        if out_of_turn or not self.watch.faults.waiting:
            return on_send(peer, commands, at, now)
        rule = self.watch.faults.meet(self, command)
        if rule is None:
            return on_send(peer, [command], 0, now)
        if not rule.act(self, command, now):
            on_send(peer, [command], 0, now)
            rule.after(self)
        return 1

    def hold(self, command: tuple[Any, ...] | None = None) -> None:
        """Hold commands back from now on, beginning with this one."""
        if self.held is None:
            self.held = []
        if command is not None:
            self.held.append(command)

    def stop_holding(self) -> list[tuple[Any, ...]]:
        """Stop holding commands.

        Returns:
            What was held, and what came behind it and there was no time for: all for :meth:`let_on`, in this order.
        """
        held, self.held = self.held or [], None
        return held + self.peer.agenda.take_up()[0]

    def let_on(self, command: tuple[Any, ...], now: int) -> None:
        """Carry out one command that was held, unless the one before it takes time: it waits behind that one then.
        Errors are answered as if the command had just arrived."""
        if self.closing:
            return
        self.let = command
        if self.peer.agenda.behind:
            self.peer.agenda.put_off([command])
        else:
            self.peer.carry_out([command], 0, now)
            self.peer.flush_confirms()
            self.outbox.request_flush()

    def allow(self, deliveries: int | None, now: int) -> None:
        """Pass this many deliveries from now on; None for any number."""
        if not self.closing:
            self.outbox.allow(deliveries)
            self.resume(now)
            self.outbox.request_flush()

    # -- called by the client's Peer: see Watcher -----------------------------------------------------------------

    def sending(self, peer: Peer, address: str, envelope: Envelope, transacted: bool) -> None:
        where = canonical(address)
        self.note("sent", where, envelope, "in a transaction" if transacted else "")
        if not transacted:
            _fan_out(self, where, envelope)

    def sent(self, peer: Peer, address: str, envelopes: Sequence[Envelope], now: int) -> None:
        where = canonical(address)
        for envelope in envelopes:
            _published(self, where, envelope)
            for tape in self.watch.tapes:
                tape.sent(peer.namespace.name, where, envelope, now)

    def refused(self, peer: Peer, session: Session, sequence: int, error: SieveError) -> None:
        self.note("refused", detail=f"send {sequence} of session {session.id}: {error.text} ({error.code.name})")

    def committed(self, peer: Peer, sends: Sequence[tuple[str, Envelope]], error: SieveError | None, now: int) -> None:
        """A transaction was committed, or rolled back because its commit was refused."""
        if error is not None:
            self.note("rolled back", detail=f"commit refused: {error.text}")
            return
        self.note("committed", detail=counted(len(sends), "send"))
        for text, envelope in sends:
            where = canonical(text)
            _fan_out(self, where, envelope)
            _published(self, where, envelope)
            for tape in self.watch.tapes:
                tape.sent(peer.namespace.name, where, envelope, now)

    def ending(self, peer: Peer, lost: bool) -> None:
        held = sum(consumer.unacknowledged for consumer in peer.deliveries.consumers.values())
        for session in tuple(peer.sessions.values()):
            self.leaving(session)
        with_held = f", with {counted(held, 'message')} unacknowledged" if held else ""
        self.note("disconnected", detail=f"{peer.member.id}: {'lost' if lost else 'closed'}{with_held}")

    def leaving(self, session: Session) -> None:
        """A session ends: the journal notes its idle consumers and sends that were never committed."""
        for consumer in session.consumers.values():
            if consumer.open:
                self.watch.recorder.closing(consumer)
        staged = 0 if session.transaction is None else len(session.transaction.staged)
        if staged and not session.committing:
            self.note("rolled back", detail=f"{counted(staged, 'send')} never committed")


class WatchedSieve(WatchedConnection, SieveConnection):
    """A client of SieveMQ's own protocol."""

    _outbox = WatchedOutbox

    def _table(self) -> Table:
        return with_names(super()._table())


@cache
def _watched(name: str) -> Callable[..., Any]:
    """The class of watched connections of a protocol."""
    connection, outbox = PROTOCOLS[name].classes()
    return type(name, (WatchedConnection, connection), {"_outbox": type(name, (_Deliveries, outbox), {})})


# Without these a connection could not begin, stay or end.
_NEVER_HELD = frozenset({Command.HELLO, Command.GOODBYE, Command.HEARTBEAT, Command.CLOCK_SEEN})


# -- the journal of commands ------------------------------------------------------------------------------------------


def _hello(connection: WatchedConnection, command: Hello, now: int) -> None:
    name = command.wanted or "default"
    if name in connection.watch.dropped:
        raise ProtocolError(
            f"the test kit has dropped namespace {name!r}, since its test has ended; close every context before a test "
            f"ends, or open the namespace again with broker.namespace({name!r})",
            ErrorCode.CLOSED_BY_ADMINISTRATOR,
        )
    HANDLERS[Command.HELLO](connection.peer, command, now)
    client_id = f" as {connection.peer.member.client_id!r}" if connection.peer.member.client_id else ""
    peer = connection.peer
    library = peer.member.agent or "unnamed"
    connection.note("connected", detail=f"{peer.member.id}: {library}{client_id}, protocol {peer.out.protocol}")


def _rollback(connection: WatchedConnection, command: Rollback, now: int) -> None:
    session = connection.peer.sessions.get(command.session)
    staged = 0 if session is None or session.transaction is None else len(session.transaction.staged)
    connection.note("rolled back", detail=counted(staged, "send") if staged else "")
    HANDLERS[Command.ROLLBACK](connection.peer, command, now)


def _open_consumer(connection: WatchedConnection, command: OpenConsumer, now: int) -> None:
    where, name = canonical(command.destination), f"consumer {command.consumer} of {connection.peer.member.id}"
    shown = f'{name}, selector "{command.selector}"' if command.selector else f"{name}, no selector"
    connection.note("consumer opened", where, detail=shown)
    try:
        HANDLERS[Command.OPEN_CONSUMER](connection.peer, command, now)
    except SieveError as error:
        connection.note("refused", where, detail=f"{shown}: {error.text.partition(chr(10))[0]} ({error.code.name})")
        raise
    consumer = connection.peer.deliveries.consumers.get(command.consumer)
    if consumer is not None and consumer.view.condition is not None:
        connection.watch.recorder.opened(consumer.source.place, name, consumer.view.condition)


def _close_consumer(connection: WatchedConnection, command: CloseConsumer, now: int) -> None:
    consumer = connection.peer.deliveries.consumers.get(command.consumer)
    where = consumer.source.place.label if consumer is not None else ""
    if consumer is not None and consumer.open:
        connection.watch.recorder.closing(consumer)
    connection.note("consumer closed", where, detail=f"consumer {command.consumer} of {connection.peer.member.id}")
    HANDLERS[Command.CLOSE_CONSUMER](connection.peer, command, now)


def _close_session(connection: WatchedConnection, command: CloseSession, now: int) -> None:
    session = connection.peer.sessions.get(command.session)
    if session is not None:
        connection.leaving(session)
    HANDLERS[Command.CLOSE_SESSION](connection.peer, command, now)


def _release(connection: WatchedConnection, command: Release, now: int) -> None:
    consumer = connection.peer.deliveries.consumers.get(command.consumer)
    if consumer is not None and command.tags:
        detail = f"{len(command.tags)} only buffered by consumer {consumer.id} of {connection.peer.member.id}"
        connection.note("returned", consumer.source.place.label, detail=detail)
    HANDLERS[Command.RELEASE](connection.peer, command, now)


_NOTES: dict[int, Callable[[WatchedConnection, Any, int], None]] = {
    Command.HELLO: _hello,
    Command.ROLLBACK: _rollback,
    Command.OPEN_CONSUMER: _open_consumer,
    Command.CLOSE_CONSUMER: _close_consumer,
    Command.CLOSE_SESSION: _close_session,
    Command.RELEASE: _release,
}


_TOPICS: Final = ("topic:", "temporary-topic:")


def _published(connection: WatchedConnection, where: str, envelope: Envelope) -> None:
    """A topic has accepted a message, with or without subscribers."""
    if where.startswith(_TOPICS):
        connection.note("published", where, envelope)


def _fan_out(connection: WatchedConnection, where: str, envelope: Envelope) -> None:
    """Which of a topic's subscriptions do not get a message, and why."""
    if not where.startswith(_TOPICS):
        return
    topic = connection.peer.namespace.destinations.get(where)
    subscriptions = list(topic.subscriptions) if isinstance(topic, Topic) else []
    refusing = [s for s in subscriptions if s.condition is not None and not matches(s.condition, envelope)]
    if not subscriptions:
        connection.note("not matched", where, envelope, "no subscription")
    elif refusing:
        connection.watch.recorder.note(
            connection.peer.namespace.name,
            "not matched",
            where,
            envelope,
            connection.peer.member.id,
            f"by {len(refusing)} of {counted(len(subscriptions), 'subscription')}",
            tuple(s.condition for s in refusing if s.condition is not None),
        )


def canonical(text: str) -> str:
    try:
        return str(parse_address(text))
    except AddressError:
        return text


def name_of(command: tuple[Any, ...]) -> str:
    """A command's name as the faults take it: ``send``, ``open_consumer``."""
    return COMMANDS[command[0]].name.lower()


# -- bytes ------------------------------------------------------------------------------------------------------------


class WatchedLink(Link):
    """A link that can hold, cut and drop the bytes of its connection."""

    def __init__(
        self,
        links: Links,
        turn: Turn,
        clock: Clock,
        shard: ShardPort,
        connect: Connect,
        refuse: Callable[[Connection, int], None],
        choose: Choose | None,
    ) -> None:
        super().__init__(links, turn, clock, shard, connect, refuse, choose)
        self._waiting: list[bytes] = []
        #: Nothing passes, in either direction.
        self.frozen = False
        self._silence = 0
        #: Where the bytes for the client end, and the connection with them.
        self._cut_out: Cut | None = None
        #: They have ended; what waits for the disk is still written.
        self._is_cut_off = False
        #: Where the bytes from the client end, likewise.
        self._cut_in: Cut | None = None

    def data_received(self, data: bytes) -> None:
        """Bytes have arrived; see Link."""
        if self.frozen:
            self._waiting.append(data)
            closed = _closed_by(data)
            if closed is not None:
                connection = self.connection
                assert isinstance(connection, WatchedConnection)
                connection.note(
                    "fault", detail=f"the pause ends, since the client closes {closed} ({connection.peer.member.id})"
                )
                self.go_on()
            return
        if self._cut_in is not None and (end := self._cut_in.at(data)) is not None:
            self._cut_in = None
            if end:
                super().data_received(data[:end])
            self._process_rest()  # what arrived before the cut is carried out, on a busy machine too
            self.abort()
            return
        super().data_received(data)

    def _process_rest(self) -> None:
        while self.behind:
            self._turn.grant()
            self.connection.peer.broker.finish(self._clock.now())  # it may wait for a task
            self._go_on()
            self._turn.fed(self)

    def flush(self) -> None:
        """Write; see Link."""
        if self.frozen:
            return
        if self._cut_out is not None and self.connection.has_data and self.life.state < GONE:
            data = self.connection.data_to_send()
            end = self._cut_out.at(data)
            passes = data[:end]
            if self.commits is not None and self.commits.hold(self, passes, self.connection.peer.out.needs):
                self.held += len(passes)
            else:
                self.transport.write(passes)
            if end is not None:
                self._cut_out, self._is_cut_off = None, True
                self._lose()
                self._close_behind()
                return
        super().flush()

    def release(self, data: bytes) -> None:
        """Write what waited for the disk; see Link."""
        if not self._is_cut_off:
            super().release(data)
            return
        self.held -= len(data)
        if not self.transport.is_closing():
            self.transport.write(data)
            self._close_behind()

    def _close_behind(self) -> None:
        """The output was cut: written output is sent, and nothing after it."""
        if not self.held:
            self.transport.close()

    def cut_next(self, *, to_client: bool, skip: int, between: bool) -> None:
        """The bytes to the client, or from it, end after so many frames, and so does the connection."""
        connection = self.connection
        assert isinstance(connection, WatchedConnection)
        cut = Cut(connection.peer.out.protocol, skip, between)
        if to_client:
            self._cut_out = cut
        else:
            self._cut_in = cut

    def let_on(self) -> None:
        """Held commands have continued: carry out the commands that followed them."""
        if self.behind:
            self._put_off()

    def freeze(self) -> None:
        """Let nothing pass until :meth:`go_on`."""
        self.frozen = True
        self._silence = 0

    def keep_silent(self, milliseconds: int, now: int) -> None:
        """Time is skipped while nothing passes: after two heartbeat intervals each end has noticed.

        Args:
            milliseconds: by which the clock was moved.
        """
        self._silence += milliseconds
        connection = self.connection
        assert isinstance(connection, WatchedConnection)
        wanted, promised = connection.heartbeats
        if wanted and self._silence >= 2 * wanted:
            text = f"nothing was heard for {2 * wanted} ms"
            who = connection.peer.member.id
            connection.note("fault", detail=f"end the connection: HEARTBEAT_MISSED, {text} ({who})")
            connection.close(ErrorCode.HEARTBEAT_MISSED, text, now)
        if promised and self._silence >= 2 * promised:
            self.abort()

    def go_on(self) -> None:
        """Let queued deliveries pass, then all others."""
        self.frozen = False
        waiting, self._waiting = self._waiting, []
        for data in waiting:
            super().data_received(data)
        self._turn.mark(self)


def entries_of(queue: Queue) -> list[Entry]:
    return [*queue.main.waits(-1, queue.depth), *queue.scheduled.values()]


_CLOSES: Final = {
    Command.GOODBYE: "its connection",
    Command.CLOSE_SESSION: "a session",
    Command.CLOSE_CONSUMER: "a consumer",
}


def _closed_by(data: bytes) -> str | None:
    """Name the object that complete frames in `data` close: their client would wait for an answer in vain."""
    if data.startswith(b"DISCONNECT"):
        return "its connection"
    start = 0
    while start + 4 <= len(data):
        stop = start + 4 + int.from_bytes(data[start : start + 4], "big")
        unpacker = msgpack.Unpacker(use_list=False, strict_map_key=False, unicode_errors="surrogatepass")
        unpacker.feed(data[start + 4 : stop])
        try:
            for value in unpacker:
                if type(value) is tuple and value and value[0] in _CLOSES:
                    return _CLOSES[value[0]]
        except (ValueError, TypeError, msgpack.UnpackException):
            return None  # it begins in the middle of a frame
        start = stop
    return None


def is_idle(server: Server) -> bool:
    """True if the broker is idle: no backlog to search, no bytes to write, no recalled message that a client has still
    to return."""
    if server.shard.broker.scheduler.ring:
        return False
    for link in server.links.open:
        connection = getattr(link, "connection", None)
        if connection is None or link.late or server.turn.has(link) or connection.has_data:
            return False
        if link.transport.get_write_buffer_size():
            return False
    return not any(queue.recalling for space in server.shard.broker.namespaces.values() for queue in queues_in(space))


def when_idle(server: Server, idle: Future[None]) -> None:
    """Set `idle` once the broker has been idle for three turns of its loop in a row, so that what was in the sockets
    when this began has been read. Looks until then, or until `idle` is cancelled."""
    loop = asyncio.get_running_loop()
    quiet = 0
    read = server.links.bytes_in

    def look() -> None:
        nonlocal quiet, read
        if idle.done():
            return
        if is_idle(server) and read == server.links.bytes_in:
            quiet += 1
        else:
            quiet, read = 0, server.links.bytes_in
        if quiet >= 3:
            with suppress(InvalidStateError):  # cancelled meanwhile
                idle.set_result(None)
        elif quiet:
            loop.call_soon(look)
        else:
            loop.call_later(0.001, look)  # uvloop rounds to ms: less would be a busy loop

    loop.call_soon(look)
