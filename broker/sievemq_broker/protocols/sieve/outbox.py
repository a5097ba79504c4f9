"""Output to the client: answers as they come, deliveries until the outbox is full."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from sievemq_broker.domain.ports import deliver_each
from sievemq_broker.protocols.heartbeat import Heartbeat
from sievemq_broker.session.life import LEAVING, OPEN, Life
from sievemq_broker.session.ports import ClientPort, PortOwner
from sievemq_broker.session.settings import SessionSettings
from sievemq_core.compiled import mypyc_attr
from sievemq_core.errors import ErrorCode, SieveError
from sievemq_core.limits import GATHER_BYTES
from sievemq_core.wire.codec import DELIVERIES_HEAD, pack_page
from sievemq_core.wire.commands import Command
from sievemq_core.wire.connection import WireConnection


@mypyc_attr(allow_interpreted_subclasses=True)  # the test kit's is one
class Outbox(ClientPort):
    """The :class:`~sievemq_broker.session.ports.ClientPort` of one connection.

    `writable` turns False when more than `settings.outbox_high` bytes wait or the transport is congested, and True
    again only when the connection resumes its consumers: the domain looks at it before every delivery, so nothing is
    ever dropped.

    Args:
        wire: where commands are queued.
        heartbeat: begins with the handshake's end.
        settings: what is announced; its `outbox_high` are the bytes of waiting output above which no more deliveries
            are taken.
        wake: called when output appears and no flush is due.
    """

    __slots__ = (
        "_awake", "_heartbeat", "_high", "_life", "_owner", "_settings", "_several", "_starved", "_wake", "_wire",
        "congested", "writable",
    )  # fmt: skip

    def __init__(
        self, wire: WireConnection, heartbeat: Heartbeat, settings: SessionSettings, wake: Callable[[], None]
    ) -> None:
        self._wire = wire
        self._heartbeat = heartbeat
        self._settings = settings
        self._high = settings.outbox_high
        self._wake = wake
        self._owner: PortOwner = _NOBODY
        self._life = _UNUSED
        self.writable = True
        #: The transport has paused writing.
        self.congested = False
        #: Deliveries were held back since the last resume.
        self._starved = False
        #: A flush is due anyway; no wake-up is needed.
        self._awake = False
        #: The client takes DELIVER_SEVERAL.
        self._several = False

    # -- called by the domain ---------------------------------------------------------------------------------------

    def deliver(self, consumer_id: int, tag: int, count: int, packed: bytes) -> None:
        """Queue a delivery; the envelope's bytes are shared with every other delivery of the message."""
        if self._wire.deliver(consumer_id, tag, count, packed) > self._high:
            self.writable = False
            self._starved = True
        if not self._awake:
            self._awake = True
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
        self.nudge()
        return len(row)

    def recall(self, consumer_id: int, tags: Sequence[int]) -> None:
        """Ask the client to give back what it has only buffered (D-23)."""
        if self._life.state < LEAVING:
            self._send(Command.RECALL, consumer_id, tuple(tags))

    def closed(self, consumer_id: int, code: ErrorCode, text: str) -> None:
        """The consumer is gone: its destination was deleted, or an administrator closed it."""
        if self._life.state < LEAVING:
            self._owner.consumer_closed(consumer_id, code, text)

    def settled(self, consumer_id: int) -> None:
        """A WANT of this consumer is answered: everything available was delivered."""
        if self._life.state < LEAVING:
            self._owner.want_settled(consumer_id)

    # -- called by the client's Peer ----------------------------------------------------------------------------------

    @property
    def protocol(self) -> str:
        """The client's protocol."""
        return "sieve"

    @property
    def follows_clock(self) -> bool:
        """WELCOME, CLOCK and the answers to PING tell the client."""
        return True

    @property
    def drops_replies(self) -> bool:
        """Its send raises."""
        return False

    @property
    def unread(self) -> int:
        """Bytes that wait to be written."""
        return self._wire.pending_bytes

    @property
    def withheld(self) -> dict[int, int]:
        """Nothing: each delivery is written."""
        return {}

    def attach(self, owner: PortOwner, life: Life) -> None:
        """From now on this is the port of `owner`."""
        self._owner = owner
        self._life = life

    def shut(self) -> None:
        """The connection is over: the domain's output is dropped, without a wake-up. While its
        consumers are closed one by one, messages that one returns may cause recalls to the others."""
        self.writable = self._starved = False
        self._awake = True
        self._wire.drop_input()

    def touch(self) -> None:
        """A deferred command ran: tell the I/O layer to flush, even if output was queued already."""
        self._awake = True
        self._wake()

    def welcome(
        self, connection: str, version: int, heartbeat: int, options: dict[str, Any], limits: dict[str, Any],
        features: dict[str, Any], now: int,
    ) -> None:  # fmt: skip
        """WELCOME, and the heartbeats begin."""
        settings = self._settings
        self._several = options.get("deliver_several") is True
        if self._several:
            self._wire.gather_deliveries()
        self._wire.set_heartbeat(settings.heartbeat_ms, heartbeat)
        self._send(
            Command.WELCOME,
            version,
            settings.broker,
            settings.incarnation,
            connection,
            settings.heartbeat_ms,
            limits,
            features,
        )
        self._heartbeat.welcomed(now - features["clock_offset"])

    def answer(self, request: int, result: object = None) -> None:
        """OK to a request."""
        self._send(Command.OK, request, result)

    def answer_page(self, request: int, cursor: object, messages: list[tuple[Any, ...]]) -> None:
        """OK to a BROWSE, around envelopes that are packed already."""
        self._wire.send_packed(pack_page(request, cursor, messages))
        self.nudge()

    def refuse(self, request: int, error: SieveError) -> None:
        """ERROR to a request."""
        self._send(Command.ERROR, request, int(error.code), error.text, error.details)

    def confirm(self, session: int, sequence: int) -> None:
        """CONFIRM."""
        self._wire.send(Command.CONFIRM, session, sequence)
        if not self._awake:
            self.nudge()

    def refuse_send(self, session: int, sequence: int, error: SieveError) -> None:
        """SEND_FAILED."""
        self._send(Command.SEND_FAILED, session, sequence, int(error.code), error.text)

    def flow(
        self, blocked: bool, text: str, session: int = 0, sequence: int = 0, destination: str | None = None
    ) -> None:
        """FLOW."""
        self._send(Command.FLOW, blocked, text, session, sequence, destination)

    def consumer_gone(self, consumer_id: int, code: ErrorCode, text: str) -> None:
        """CONSUMER_CLOSED."""
        self._send(Command.CONSUMER_CLOSED, consumer_id, int(code), text)

    def clock(self, offset: int, frozen_at: int | None) -> None:
        """CLOCK."""
        self._send(Command.CLOCK, offset, frozen_at)

    def shutdown(self, grace: int, text: str) -> None:
        """SHUTDOWN, to a client that has been welcomed."""
        if self._life.state == OPEN:
            self._send(Command.SHUTDOWN, grace, text)

    def fail(self, error: SieveError) -> None:
        """A fatal ERROR."""
        self._wire.fail(error)

    def _send(self, *command: object) -> None:
        self._wire.send(*command)
        if not self._awake:
            self.nudge()

    # -- called by the connection -------------------------------------------------------------------------------------

    def nudge(self) -> None:
        """Tell the I/O layer to write the pending output."""
        if not self._awake:
            self._awake = True
            self._wake()

    def attend(self) -> None:
        """The I/O layer checks for output when it has fed the connection."""
        self._awake = True

    def leave(self) -> None:
        """The connection was fed, and has no output."""
        if self._life.state < LEAVING:
            self._awake = False

    def sent(self) -> bool:
        """The I/O layer has taken all output. True if held-back deliveries can continue next turn; it is woken then."""
        self._awake = False
        if not self._starved or self.congested:
            return False
        self.touch()
        return True

    def pause(self) -> None:
        """The transport is congested."""
        self.congested = self._starved = True
        self.writable = False

    def unpause(self) -> None:
        """The transport has room again."""
        self.congested = False

    def reopen(self) -> None:
        """Deliveries are taken again."""
        self.writable, self._starved = True, False

    def urgent_flow(self, text: str) -> bytes:
        """A frame with a FLOW, past what waits; empty before the handshake and after the end."""
        return self._wire.frame_of(Command.FLOW, True, text) if self._life.state == OPEN else b""

    def disown(self) -> None:
        """Break the references between connection, outbox and I/O layer: reference counts then free them at once,
        without the garbage collector, which a broker seldom runs."""
        self._owner = _NOBODY
        self._wake = _no_wake


class _Nobody:
    """Owner of the outbox of a connection that is gone."""

    __slots__ = ()

    def consumer_closed(self, consumer_id: int, code: ErrorCode, text: str) -> None:
        """No output."""

    def want_settled(self, consumer_id: int) -> None:
        """No caller waits."""


_NOBODY = _Nobody()
_UNUSED = Life()


def _no_wake() -> None:
    """The transport is gone: no write."""
