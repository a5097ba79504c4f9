"""One accepted connection: bytes in, verbs of the table out; answers and deliveries in, bytes out. No I/O, no clock.

rim ── receive_data(bytes, now) ──> wire ──> Peer ──> table ──> domain
rim <── data_to_send() ──────────── wire <── Outbox <────────── domain
"""

from __future__ import annotations

from collections.abc import Callable

from sievemq_broker.domain.broker import Broker
from sievemq_broker.protocols.heartbeat import Heartbeat
from sievemq_broker.protocols.sieve.outbox import Outbox
from sievemq_broker.session.life import CLOSING, LEAVING
from sievemq_broker.session.peer import Peer, Table
from sievemq_broker.session.ports import Services, Watcher
from sievemq_broker.session.table import TABLE
from sievemq_core.compiled import mypyc_attr
from sievemq_core.errors import ErrorCode, ProtocolError
from sievemq_core.wire.connection import WireConnection

#: Commands that are decoded at a time, in addition to one frame's: input is decoded while it is carried out, so that a
#: read of tiny frames does not take longer than a turn allows.
BATCH = 1_024


def _no_wake() -> None:
    """The caller that feeds the connection checks for output itself."""


@mypyc_attr(allow_interpreted_subclasses=True)
class SieveConnection:
    """The broker's end of one connection.

    The rim feeds it, writes what :meth:`data_to_send` returns whenever :attr:`has_data`, and closes the transport
    after writing once :attr:`closing` is true. When the transport ends first, it calls :meth:`lost`.

    Args:
        broker: the domain.
        services: of the I/O layer.
        table: the handler of each verb.
        address: of the other end, for people.
        wake: called when output appears while the connection is not being fed: call :meth:`data_to_send` soon, not from
            there.
        watcher: is informed of the client's commands.
        make_outbox: makes the outbox.
    """

    __slots__ = ("_deliver_again", "_heartbeat", "_held_back", "_services", "outbox", "peer", "wire")

    def __init__(
        self,
        broker: Broker,
        services: Services[Peer],
        table: Table = TABLE,
        *,
        address: str = "",
        wake: Callable[[], None] = _no_wake,
        watcher: Watcher[Peer] | None = None,
        make_outbox: Callable[..., Outbox] = Outbox,
    ) -> None:
        settings = services.settings
        self._services = services
        self.wire = WireConnection("broker", settings.frame_bytes)
        self._heartbeat = Heartbeat(self.wire, settings, services.now() - services.clock_offset)
        self.outbox = make_outbox(self.wire, self._heartbeat, settings, wake)
        self.peer = Peer(broker, services, self.outbox, table, address, watcher)
        self._held_back = self._deliver_again = False

    # -- in -----------------------------------------------------------------------------------------------------------

    def receive_data(self, data: bytes, now: int) -> None:
        """Carry out commands as far as there is time (:attr:`Services.spent`). Never raises: an error ends this
        connection at most.

        Args:
            data: bytes from the peer, cut anywhere. Nothing must be :attr:`behind`.
            now: milliseconds since 1970.
        """
        peer = self.peer
        if peer.life.state >= CLOSING:
            return
        self.outbox.attend()
        try:
            commands = self.wire.receive_data(data, BATCH)
        except ProtocolError as error:
            peer.fail(error, now)
            return
        peer.carry_out(commands, len(data), now)
        if self.wire.payloads:
            self._go_on(now)
        if not self.wire.pending_bytes:
            self.outbox.leave()

    @property
    def caught_up(self) -> bool:
        """True if all that arrived is carried out, up to the end of a frame."""
        return not (self.wire.unfinished or self.peer.behind)

    @property
    def behind(self) -> bool:
        """True if there was no time for all that arrived: :meth:`catch_up` is to be called."""
        return self.peer.behind or bool(self.wire.payloads)

    @property
    def full(self) -> bool:
        """False: a client of this protocol waits by itself when it has to."""
        return False

    def catch_up(self, now: int) -> None:
        """Carry out the remaining commands, as far as there is time. Never raises.

        Args:
            now: milliseconds since 1970.
        """
        self.outbox.attend()
        if self.peer.behind:
            self.peer.catch_up(now)
        else:
            self._decode(now)
        self._go_on(now)
        if not self.wire.pending_bytes:
            self.outbox.leave()

    def _go_on(self, now: int) -> None:
        """Decode what else arrived, and carry it out, as far as there is time."""
        while self.wire.payloads and not self.peer.behind and not self._services.spent():
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

    def receive_eof(self, now: int) -> None:
        """The peer has sent its last byte: what is queued is the last output."""
        self.peer.end(now)

    def lost(self, now: int) -> None:
        """The transport is closed or broken: all unacknowledged messages return (ACK-18, TXN-05, CON-11).
        Idempotent."""
        self.peer.lost(now)
        self.outbox.disown()

    def hold_back(self, held: bool) -> None:
        """From now on nothing is read from the peer, or something is again: until then its silence is no fault of it.

        Args:
            held: nothing is read.
        """
        self._held_back = held
        self._heartbeat.excuse()

    @property
    def heartbeats(self) -> tuple[int, int]:
        """Milliseconds within which the client must send, and the broker has to; 0 for never."""
        return self.wire.interval_in, self.wire.interval_out

    @property
    def frame_bytes(self) -> int:
        """Bytes that the frame has which is not complete yet, 0 between two frames."""
        return self.wire.frame_bytes

    @property
    def frame_number(self) -> int:
        """Which frame is not complete yet: another number for each; 0 between two frames."""
        return self.wire.frame_number

    @property
    def unpublished(self) -> int:
        """Bytes received that are no messages yet: of a frame that is not complete or not carried out, and of open
        transactions."""
        return self.wire.unfinished + self.peer.unpublished

    # -- out ----------------------------------------------------------------------------------------------------------

    @property
    def has_data(self) -> bool:
        """True if there is something to write."""
        return self.wire.pending_bytes > 0 or self._deliver_again

    def data_to_send(self) -> bytes:
        """Everything to write now, in frames. May wake the rim again at once: call it again next turn then."""
        outbox = self.outbox
        if self._deliver_again and not outbox.congested:
            self._resume_consumers(self._services.now())
        data = self.wire.data_to_send()
        # When the outbox was full and is empty now, deliveries continue in the next turn: by then the transport has
        # taken everything, or has paused.
        if outbox.sent():
            self._deliver_again = True
        return data

    def urgent_flow(self, text: str) -> bytes:
        """A frame that informs the client that senders wait. It overtakes the output that :meth:`data_to_send` has
        returned and that is held back. Empty if the client cannot be informed.

        Args:
            text: why, for people.
        """
        return self.outbox.urgent_flow(text)

    def pause(self) -> None:
        """The transport holds more than it likes: no deliveries until :meth:`resume`."""
        if self.peer.life.state < LEAVING:
            self.outbox.pause()

    def resume(self, now: int) -> None:
        """The transport has room again."""
        self.outbox.unpause()
        if self.peer.life.state < LEAVING:
            self._resume_consumers(now)

    def _resume_consumers(self, now: int) -> None:
        self._deliver_again = False
        self.outbox.reopen()
        self.peer.resume_consumers(now)

    # -- time and the end ---------------------------------------------------------------------------------------------

    @property
    def closing(self) -> bool:
        """True once the transport is to be closed after writing."""
        return self.peer.life.state >= CLOSING

    def close(self, code: ErrorCode, text: str, now: int) -> None:
        """End the connection from this side, with a fatal ERROR as the last word. Idempotent."""
        self.peer.close(code, text, now)

    def tick(self, now: int) -> int | None:
        """Heartbeats, the handshake's deadline, and confirms that found no other way out.

        Returns:
            When to call again at the latest (ms since 1970), None for never.
        """
        peer = self.peer
        if peer.life.state >= CLOSING:
            return None
        if peer.unconfirmed:
            peer.flush_confirms()
        offset = self._services.clock_offset
        if self._held_back:
            self._heartbeat.excuse()
        try:
            following = self._heartbeat.tick(now - offset)
        except ProtocolError as error:
            peer.close(error.code, error.text, now)
            return None
        if self.wire.pending_bytes:
            self.outbox.nudge()
        return None if following is None else following + offset

    def clock_jumped(self, by: int) -> None:
        """The machine's clock was set, by this many ms: deadlines of the peer move with it."""
        self._heartbeat.clock_jumped(by)
