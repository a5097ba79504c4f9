"""One accepted connection: bytes in, verbs of the table out; answers and deliveries in, bytes out. No I/O, no clock.

rim ── receive_data(bytes, now) ──> wire ──> Peer ──> table ──> domain
rim <── data_to_send() ──────────── wire <── SieveOutbox <────────── domain
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from sievemq_broker.domain.broker import Broker
from sievemq_broker.domain.ports import deliver_each
from sievemq_broker.domain.tap_log import Tapped
from sievemq_broker.protocols.base import BaseConnection, Outlet, no_wake
from sievemq_broker.protocols.heartbeat import Heartbeat
from sievemq_broker.protocols.sieve.handshake import Greeting, divide, welcome_of
from sievemq_broker.session import table
from sievemq_broker.session.life import CLOSING, LEAVING, OPEN
from sievemq_broker.session.peer import Handler, Peer, Table, Verbs
from sievemq_broker.session.ports import Services, Watcher
from sievemq_broker.session.settings import SessionSettings
from sievemq_broker.session.verbs import NamedCommand, Welcome, named_commands
from sievemq_core.compiled import mypyc_attr
from sievemq_core.errors import ErrorCode, ProtocolError, SieveError
from sievemq_core.limits import GATHER_BYTES
from sievemq_core.wire.codec import DELIVERIES_HEAD, CommandTuple, pack_page, pack_tapped
from sievemq_core.wire.commands import Command
from sievemq_core.wire.connection import WireConnection

#: Commands that are decoded at a time, in addition to those of one frame that need no examination: input is decoded
#: while it is carried out, so that a read does not take longer than a turn allows.
BATCH = 256


@mypyc_attr(allow_interpreted_subclasses=True)  # the test kit's is one
class SieveOutbox(Outlet):
    """The :class:`~sievemq_broker.session.ports.ClientPort` of one connection.

    Args:
        wire: where commands are queued.
        heartbeat: begins with the handshake's end.
        settings: what is announced; see also :class:`~sievemq_broker.protocols.base.Outlet`.
        wake: called when output appears and no flush is due.
    """

    __slots__ = ("_greeting", "_heartbeat", "_several", "_wire")

    def __init__(
        self, wire: WireConnection, heartbeat: Heartbeat, settings: SessionSettings, wake: Callable[[], None]
    ) -> None:
        super().__init__(settings, wake)
        self._wire = wire
        self._heartbeat = heartbeat
        #: The client takes DELIVER_SEVERAL.
        self._several = False
        #: From HELLO to WELCOME.
        self._greeting: Greeting | None = None

    # -- called by the domain ---------------------------------------------------------------------------------------

    def deliver(self, consumer_id: int, tag: int, count: int, packed: bytes) -> None:
        """Queue a delivery; the envelope's bytes are shared with every other delivery of the message."""
        if self._wire.deliver(consumer_id, tag, count, packed) > self._high:
            self.writable = False
            self._deliveries_wait = True
        if not self._flush_due:
            self._flush_due = True
            self._wake()

    def deliver_row(self, consumer_id: int, tag: int, row: list[bytes]) -> int:
        """Queue first deliveries of several messages, as one command if the client knows it."""
        if not self._several or len(row) < 2:
            return deliver_each(self, consumer_id, tag, row)
        wire = self._wire
        size = DELIVERIES_HEAD + sum(map(len, row))
        if size > GATHER_BYTES or wire.pending_bytes + size > self._high:
            # Too much for one command, or it may reach the limit of the outbox: try smaller rows.
            half = len(row) >> 1
            taken = self.deliver_row(consumer_id, tag, row[:half])
            if taken < half or not self.writable:
                return taken
            return half + self.deliver_row(consumer_id, tag + half, row[half:])
        wire.deliver_several(consumer_id, tag, row)
        self.request_flush()
        return len(row)

    def recall(self, consumer_id: int, tags: Sequence[int]) -> None:
        """Ask the client to give back what it has only buffered (D-23)."""
        if self._life.state < LEAVING:
            self._send(Command.RECALL, consumer_id, tuple(tags))

    # -- called by the client's Peer ----------------------------------------------------------------------------------

    @property
    def protocol(self) -> str:
        return "sieve"

    @property
    def follows_clock(self) -> bool:
        """WELCOME, CLOCK and the answers to PING tell the client."""
        return True

    @property
    def unread(self) -> int:
        return self._wire.pending_bytes

    def stop_deliveries(self) -> None:
        super().stop_deliveries()
        self._wire.drop_input()

    def greet(self, greeting: Greeting) -> None:
        """The client has sent its HELLO: what WELCOME depends on."""
        self._greeting = greeting

    def welcome(self, welcome: Welcome) -> None:
        """WELCOME, and the heartbeats begin."""
        greeting, self._greeting = self._greeting, None
        assert greeting is not None
        self._several = greeting.several
        if self._several:
            self._wire.gather_deliveries()
        self._wire.set_heartbeat(self._settings.heartbeat_ms, greeting.heartbeat)
        self._send(*welcome_of(greeting, welcome, self._settings))
        self._heartbeat.welcomed(welcome.real)

    def answer(self, request: int, result: object = None) -> None:
        self._send(Command.OK, request, result)

    def answer_page(self, request: int, cursor: object, messages: list[tuple[Any, ...]]) -> None:
        """OK to a BROWSE, around envelopes that are packed already."""
        self._wire.send_packed(pack_page(request, cursor, messages))
        self.request_flush()

    def answer_tapped(self, request: int, first: int, found: list[Tapped]) -> None:
        """OK to a FETCH_TAP, likewise."""
        times, counts = [each.time for each in found], [each.delivery for each in found]
        self._wire.send_packed(pack_tapped(request, first, times, counts, [each.packed for each in found]))
        self.request_flush()

    def refuse(self, request: int, error: SieveError) -> None:
        self._send(Command.ERROR, request, int(error.code), error.text, error.details)

    def confirm(self, session: int, sequence: int) -> None:
        self._wire.send(Command.CONFIRM, session, sequence)
        if not self._flush_due:
            self.request_flush()

    def refuse_send(self, session: int, sequence: int, error: SieveError) -> None:
        """SEND_FAILED."""
        self._send(Command.SEND_FAILED, session, sequence, int(error.code), error.text)

    def flow(
        self, blocked: bool, text: str, session: int = 0, sequence: int = 0, destination: str | None = None
    ) -> None:
        self._send(Command.FLOW, blocked, text, session, sequence, destination)

    def consumer_gone(self, consumer_id: int, code: ErrorCode, text: str) -> None:
        self._send(Command.CONSUMER_CLOSED, consumer_id, int(code), text)

    def clock(self, offset: int, frozen_at: int | None) -> None:
        self._send(Command.CLOCK, offset, frozen_at)

    def shutdown(self, grace: int, text: str) -> None:
        if self._life.state == OPEN:
            self._send(Command.SHUTDOWN, grace, text)

    def fail(self, error: SieveError) -> None:
        self._wire.fail(error)

    def _send(self, *command: object) -> None:
        self._wire.send(*command)
        if not self._flush_due:
            self.request_flush()

    def urgent_flow(self, text: str) -> bytes:
        """A frame with a FLOW, past what waits; empty before the handshake and after the end."""
        return self._wire.frame_of(Command.FLOW, True, text) if self._life.state == OPEN else b""


# -- the table for decoded commands -----------------------------------------------------------------------------------

_COMMANDS = named_commands()


def with_names(table: Table) -> Table:
    """The same table for commands as the wire carries them: their fields get names before the handler sees them.

    SEND, ACKNOWLEDGE and CREDIT keep theirs by position, and cost nothing here. HELLO is divided: the session gets what
    every protocol knows of a client, the outbox keeps what only this protocol has.

    Args:
        table: for commands with names. Its mappings are read at each command.
    """
    return Table(_with_names(table.free), _with_names(table.limited))


def _with_names(verbs: Verbs) -> Verbs:
    handlers = verbs.others
    named = {number: _behind(handlers, number, _COMMANDS[number]) for number in handlers if number in _COMMANDS}
    return Verbs(verbs.send, {**handlers, **named, Command.HELLO: partial(_greet, handlers)})


def _behind(handlers: Mapping[int, Handler], number: int, kind: type[NamedCommand]) -> Handler:
    named = partial(tuple.__new__, kind)

    def handle(peer: Peer, command: CommandTuple, now: int) -> None:
        handlers[number](peer, named(command), now)

    return handle


def _greet(handlers: Mapping[int, Handler], peer: Peer, command: CommandTuple, now: int) -> None:
    greeting, hello = divide(command)
    outbox = peer.out
    assert isinstance(outbox, SieveOutbox)
    outbox.greet(greeting)
    handlers[Command.HELLO](peer, hello, now)


TABLE: Table = with_names(table.TABLE)
"""The handlers of all verbs, for SieveMQ's own protocol."""


# -- the connection ---------------------------------------------------------------------------------------------------


@mypyc_attr(allow_interpreted_subclasses=True)
class SieveConnection(BaseConnection[SieveOutbox]):
    """The broker's end of one connection.

    Args:
        services: of the I/O layer.
        table: the handler of each verb, for decoded commands.
        wake: called when output appears while the connection is not being fed: call :meth:`data_to_send` soon, not from
            there.
        watcher: is informed of the client's commands.
    """

    __slots__ = ("wire",)

    def __init__(
        self,
        broker: Broker,
        services: Services[Peer],
        table: Table = TABLE,
        *,
        address: str = "",
        wake: Callable[[], None] = no_wake,
        watcher: Watcher[Peer] | None = None,
        make_outbox: Callable[..., SieveOutbox] = SieveOutbox,
    ) -> None:
        settings = services.settings
        self.wire = WireConnection("broker", settings.frame_bytes)
        heartbeat = Heartbeat(self.wire, settings, services.now() - services.clock_offset)
        outbox = make_outbox(self.wire, heartbeat, settings, wake)
        super().__init__(services, Peer(broker, services, outbox, table, address, watcher), outbox, heartbeat)

    # -- in -----------------------------------------------------------------------------------------------------------

    def receive_data(self, data: bytes, now: int) -> None:
        peer = self.peer
        if peer.life.state >= CLOSING:
            return
        self.outbox.begin_input()
        try:
            commands = self.wire.receive_data(data, BATCH)
        except ProtocolError as error:
            peer.fail(error, now)
            return
        peer.carry_out(commands, len(data), now)
        if self.wire.payloads:
            self._go_on(now)
        if not self.wire.pending_bytes:
            self.outbox.end_input()

    @property
    def caught_up(self) -> bool:
        return not (self.wire.unfinished or self.peer.agenda.behind)

    @property
    def behind(self) -> bool:
        return self.peer.agenda.behind or bool(self.wire.payloads)

    @property
    def full(self) -> bool:
        """False: a client of this protocol waits by itself when it has to."""
        return False

    def catch_up(self, now: int) -> None:
        self.outbox.begin_input()
        if self.peer.agenda.behind:
            self.peer.catch_up(now)
        else:
            self._decode(now)
        self._go_on(now)
        if not self.wire.pending_bytes:
            self.outbox.end_input()

    def _go_on(self, now: int) -> None:
        """Decode what else arrived, and carry it out, as far as there is time."""
        while self.wire.payloads and not self.peer.agenda.behind and not self._services.spent():
            self._decode(now)

    def _decode(self, now: int) -> None:
        wire = self.wire
        before = wire.unfinished
        try:
            commands = wire.receive_more(BATCH)
        except ProtocolError as error:
            self.peer.fail(error, now)
        else:
            self.peer.carry_out(commands, before - wire.unfinished, now)

    @property
    def frame_bytes(self) -> int:
        return self.wire.frame_bytes

    @property
    def frame_number(self) -> int:
        return self.wire.frame_number

    @property
    def unpublished(self) -> int:
        return self.wire.unfinished + self.peer.unpublished

    # -- out ----------------------------------------------------------------------------------------------------------

    @property
    def has_data(self) -> bool:
        return self.wire.pending_bytes > 0 or self._deliver_again

    def data_to_send(self) -> bytes:
        outbox = self.outbox
        if self._deliver_again and not outbox.congested:
            self._resume_consumers(self._services.now())
        data = self.wire.data_to_send()
        # When the outbox was full and is empty now, deliveries continue in the next turn: by then the transport has
        # taken everything, or has paused.
        if outbox.flushed():
            self._deliver_again = True
        return data

    def urgent_flow(self, text: str) -> bytes:
        return self.outbox.urgent_flow(text)

    def urgent_heartbeat(self) -> bytes:
        return self.wire.frame_of(Command.HEARTBEAT) if self.peer.life.state == OPEN else b""
