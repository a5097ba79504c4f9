"""What the connections of all protocols have in common: the :class:`Outlet`, through which output leaves, and the
:class:`BaseConnection` around it, with back-pressure, deadlines and the end."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Final, Generic, TypeVar

from sievemq_broker.domain.failure import NOBODY, Party
from sievemq_broker.domain.ports import Stored
from sievemq_broker.protocols.heartbeat import Heartbeat
from sievemq_broker.session.life import CLOSING, LEAVING, Life
from sievemq_broker.session.peer import Peer
from sievemq_broker.session.ports import ClientPort, PortOwner, Services
from sievemq_broker.session.settings import SessionSettings
from sievemq_core.compiled import mypyc_attr
from sievemq_core.errors import ErrorCode, ProtocolError

#: Of an outlet that is not attached yet.
_UNUSED: Final = Life()


def no_wake() -> None:
    """Wake no I/O layer: it fetches output by itself, or is gone."""


@mypyc_attr(allow_interpreted_subclasses=True)
class Outlet(ClientPort):
    """The part of a :class:`~sievemq_broker.session.ports.ClientPort` that is the same for all protocols: whether
    messages may be queued, and whether the I/O layer must be woken to write.

    Args:
        settings: `outbox_high` are the bytes of waiting output above which no more messages are accepted.
        wake: called when output appears and no flush is due.

    Attributes:
        writable: the domain may deliver. It turns False above `outbox_high`, or while the transport is congested, and
            True again only when the connection resumes its consumers. The domain reads it before every delivery, so
            nothing is ever dropped.
        needs: what must be on disk before output leaves that was queued since it was taken last.
        congested: the transport has paused writing.
    """

    __slots__ = (
        "_deliveries_wait", "_flush_due", "_high", "_life", "_owner", "_party", "_settings", "_wake", "congested",
        "needs", "writable",
    )  # fmt: skip

    def __init__(self, settings: SessionSettings, wake: Callable[[], None]) -> None:
        self._settings = settings
        self._high = settings.outbox_high
        self._wake = wake
        self._owner: PortOwner | None = None
        self._life = _UNUSED
        self._party = NOBODY
        self.writable = True
        self.needs: list[Stored] = []
        self.congested = False
        #: Deliveries were held back since the last :meth:`accept_deliveries`.
        self._deliveries_wait = False
        #: The I/O layer is going to fetch output: it need not be woken.
        self._flush_due = False

    @property
    def drops_replies(self) -> bool:
        """The refusal of one send does not end the connection."""
        return False

    @property
    def withheld(self) -> dict[int, int]:
        """Nothing: each delivery is written."""
        return {}

    def attach(self, owner: PortOwner, life: Life) -> None:
        self._owner = owner
        self._life = life

    @property
    def party(self) -> Party:
        return self._party

    def introduce(self, party: Party) -> None:
        self._party = party

    def drop_references(self) -> None:
        """The transport is gone: remove the references between connection, outlet and I/O layer. Reference counts free
        them then, without the garbage collector, which a broker seldom runs."""
        self._owner = None
        self._wake = no_wake

    def stop_deliveries(self) -> None:
        # While consumers are closed one by one, messages that one returns may cause recalls to the others.
        self.writable = self._deliveries_wait = False
        self._flush_due = True

    def closed(self, consumer_id: int, code: ErrorCode, text: str) -> None:
        if self._life.state < LEAVING and self._owner is not None:
            self._owner.consumer_closed(consumer_id, code, text)

    def hold_back(self, consumer_id: int) -> None:
        if self._owner is not None:
            self._owner.hold_back(consumer_id)

    def settled(self, consumer_id: int) -> None:
        if self._life.state < LEAVING and self._owner is not None:
            self._owner.want_settled(consumer_id)

    # -- whether the I/O layer is woken -------------------------------------------------------------------------------

    def begin_input(self) -> None:
        """The I/O layer passes input, and fetches output afterwards."""
        self._flush_due = True

    def end_input(self) -> None:
        """The input is carried out and has caused no output."""
        if self._life.state < LEAVING:
            self._flush_due = False

    def request_flush(self) -> None:
        """There is output: wake the I/O layer, unless a flush is due."""
        if not self._flush_due:
            self._flush_due = True
            self._wake()

    def wake(self) -> None:
        self._flush_due = True
        self._wake()

    def flushed(self) -> bool:
        """The I/O layer has fetched all output. True if deliveries were held back and can go on in the next turn: the
        I/O layer is woken then."""
        self._flush_due = False
        if not self._deliveries_wait or self.congested:
            return False
        self.wake()
        return True

    # -- whether messages may be queued -------------------------------------------------------------------------------

    def hold_deliveries(self) -> None:
        """Accept no deliveries until the next turn."""
        self.writable = False
        self._deliveries_wait = True

    def accept_deliveries(self) -> None:
        self.writable, self._deliveries_wait = True, False

    def pause(self) -> None:
        """The transport is congested: accept no deliveries until :meth:`resume`."""
        if self._life.state < LEAVING:
            self.congested = True
            self.hold_deliveries()

    def resume(self) -> None:
        """The transport has room again. Deliveries go on with :meth:`accept_deliveries`."""
        self.congested = False

    def end_output(self) -> None:
        """The transport is gone: accept no deliveries, and let no input wait until output is read."""
        self.congested = self.writable = self._deliveries_wait = False


OutletT = TypeVar("OutletT", bound=Outlet)


@mypyc_attr(allow_interpreted_subclasses=True)
class BaseConnection(ABC, Generic[OutletT]):
    """The broker's end of one connection: bytes in, bytes out. A protocol adds their meaning.

    The I/O layer feeds it, writes what :meth:`data_to_send` returns whenever :attr:`has_data`, and closes the transport
    after writing once :attr:`closing` is true. When the transport ends first, it calls :meth:`lost`.

    Args:
        services: of the I/O layer.
        heartbeat: the client's deadlines.
    """

    __slots__ = ("_deliver_again", "_heartbeat", "_held_back", "_services", "outbox", "peer")

    def __init__(self, services: Services[Peer], peer: Peer, outbox: OutletT, heartbeat: Heartbeat) -> None:
        self._services = services
        self._heartbeat = heartbeat
        self.peer = peer
        self.outbox = outbox
        self._deliver_again = self._held_back = False

    # -- what a protocol adds -----------------------------------------------------------------------------------------

    @abstractmethod
    def receive_data(self, data: bytes, now: int) -> None:
        """Carry out the frames in the bytes, as far as there is time (:attr:`Services.spent`). Never raises: an error
        ends at most this connection.

        Args:
            data: bytes from the peer, cut anywhere. Nothing must be :attr:`behind`.
            now: milliseconds since 1970.
        """

    @abstractmethod
    def catch_up(self, now: int) -> None:
        """Carry out what is left, as far as there is time. Never raises."""

    @property
    @abstractmethod
    def behind(self) -> bool:
        """True if there was no time for all that arrived: :meth:`catch_up` must be called."""

    @property
    @abstractmethod
    def full(self) -> bool:
        """True while nothing more may be read: earlier input waits."""

    @property
    @abstractmethod
    def frame_bytes(self) -> int:
        """Bytes that the frame has which is not complete yet, 0 between two frames; those that arrived if its size is
        not known. A message in several frames counts as one."""

    @property
    @abstractmethod
    def frame_number(self) -> int:
        """The number of that frame, another one for each; 0 between two frames."""

    @property
    @abstractmethod
    def unpublished(self) -> int:
        """Bytes received that are no messages yet: of a frame that is not complete or not carried out, and of open
        transactions."""

    @property
    @abstractmethod
    def has_data(self) -> bool:
        """True if there is something to write, or to go on with."""

    @abstractmethod
    def data_to_send(self) -> bytes:
        """Everything to write now. May wake the I/O layer again at once: it is called again in the next turn then."""

    def urgent_flow(self, text: str) -> bytes:
        """A frame that informs the client that senders wait. It overtakes the output that :meth:`data_to_send` has
        returned and that is held back. Empty if the client cannot be informed.
        """
        return b""

    def urgent_heartbeat(self) -> bytes:
        """A heartbeat that overtakes output as :meth:`urgent_flow` does. Empty where the protocol has none."""
        return b""

    # -- state --------------------------------------------------------------------------------------------------------

    @property
    def closing(self) -> bool:
        return self.peer.life.state >= CLOSING

    @property
    def caught_up(self) -> bool:
        """True if all that arrived is carried out, up to the end of a frame."""
        return not (self.frame_bytes or self.behind or self.full)

    @property
    def heartbeats(self) -> tuple[int, int]:
        """Milliseconds within which the client must send, and the broker has to; 0 for never."""
        return self._heartbeat.intervals

    # -- back-pressure ------------------------------------------------------------------------------------------------

    def pause(self) -> None:
        """The transport holds too much output: no deliveries until :meth:`resume`."""
        self.outbox.pause()

    def resume(self, now: int) -> None:
        self.outbox.resume()
        if self.peer.life.state < LEAVING:
            self._resume_consumers(now)

    def end_output(self) -> None:
        """The transport is gone, and the rest of the input is carried out: nothing is delivered from now on."""
        self._deliver_again = False
        self.outbox.end_output()

    def _resume_consumers(self, now: int) -> None:
        self.outbox.accept_deliveries()
        self._go_on_delivering()
        self._deliver_again = self.peer.deliveries.resume(now)
        if self._deliver_again:
            self.outbox.wake()

    def _go_on_delivering(self) -> None:  # most protocols hold nothing back
        """The outbox accepts messages again: write those that were held back, before any others."""

    def hold_back(self, held: bool) -> None:
        """Nothing is read from the peer from now on, or something is again: its silence does not count meanwhile."""
        self._held_back = held
        self._heartbeat.excuse()

    # -- time and the end ---------------------------------------------------------------------------------------------

    def tick(self, now: int) -> int | None:
        """Check heartbeats, the handshake's deadline, and whether a frame takes too long; send confirms that wait.

        Returns:
            When to call again at the latest (ms since 1970), None for never.
        """
        peer = self.peer
        if peer.life.state >= CLOSING:
            return None
        if peer.unconfirmed:
            peer.flush_confirms()
        offset = self._services.clock_offset
        if self._held_back or self.full:  # nothing is read from the client
            self._heartbeat.excuse()
        try:
            following = self._heartbeat.tick(now - offset)
        except ProtocolError as error:
            peer.close(error.code, error.text, now)
            return None
        if self.outbox.unread:
            self.outbox.request_flush()
        return None if following is None else following + offset

    def clock_jumped(self, by: int) -> None:
        """The machine's clock was set by this many ms: deadlines of the peer move with it."""
        self._heartbeat.clock_jumped(by)
        for sender in self.peer.blocked_senders:
            sender.clock_jumped(by)

    def close(self, code: ErrorCode, text: str, now: int) -> None:
        """End the connection from this side, with the error as its last output. Idempotent."""
        self.peer.close(code, text, now)

    def receive_eof(self, now: int) -> None:
        """The peer has sent its last byte: what is queued is the last output."""
        self.peer.end(now)

    def lost(self, now: int) -> None:
        """The connection is lost: all messages come back (ACK-18, TXN-05, CON-11). Idempotent."""
        self.peer.lost(now)
        self.outbox.drop_references()
