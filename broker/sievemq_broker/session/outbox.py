"""The outgoing side of one connection, as the domain sees it: a port that takes deliveries until it is full."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from sievemq_broker.domain.ports import deliver_each
from sievemq_core.compiled import mypyc_attr
from sievemq_core.errors import ErrorCode
from sievemq_core.limits import GATHER_BYTES
from sievemq_core.wire.codec import DELIVERIES_HEAD, delivery_head, pack_deliveries
from sievemq_core.wire.commands import Command
from sievemq_core.wire.connection import WireConnection

__all__ = ["Outbox", "OutboxOwner"]


class OutboxOwner(Protocol):
    """What an outbox tells its connection."""

    def wake(self) -> None:
        """Output appeared."""

    def consumer_closed(self, consumer_id: int, code: ErrorCode, text: str) -> None:
        """The domain closed a consumer."""

    def want_settled(self, consumer_id: int) -> None:
        """The domain has sent what a waiting consumer could get."""


@mypyc_attr(allow_interpreted_subclasses=True)  # the test kit's is one
class Outbox:
    """The DeliveryPort of one connection.

    `writable` turns False when more than `high` bytes wait or the transport is congested, and True again only when
    the connection resumes its consumers: the domain looks at it before every delivery, so nothing is ever dropped.

    Args:
        wire: where commands are queued.
        owner: the connection.
        high: bytes of waiting output above which no more deliveries are taken.
    """

    __slots__ = ("_append", "_high", "_owner", "_wire", "awake", "over", "paused", "several", "starved", "writable")

    def __init__(self, wire: WireConnection, owner: OutboxOwner, high: int) -> None:
        self._wire = wire
        self._append = wire.out.append
        self._owner = owner
        self._high = high
        self.writable = True
        #: The transport asked for a pause.
        self.paused = False
        #: Deliveries were held back since the last resume.
        self.starved = False
        #: The connection has ended.
        self.over = False
        #: Somebody will call data_to_send anyway; nobody needs to be woken.
        self.awake = False
        #: The client takes DELIVER_SEVERAL.
        self.several = False

    # -- DeliveryPort -------------------------------------------------------------------------------------------------

    def deliver(self, consumer_id: int, tag: int, count: int, packed: bytes) -> None:
        """Queue a delivery; the envelope's bytes are shared with every other delivery of the message."""
        # codec.pack_delivery and wire.send_packed, written out: this is half of what a delivery costs here.
        command = delivery_head(0x9550, 0xCE, consumer_id, 0xCF, tag, 0xCE, count) + packed
        self._append(command)
        wire = self._wire
        wire.pending_bytes = pending = wire.pending_bytes + len(command)
        if pending > self._high:
            self.writable = False
            self.starved = True
        if not self.awake:
            self.awake = True
            self._owner.wake()

    def deliver_row(self, consumer_id: int, tag: int, row: list[bytes]) -> int:
        """Queue first deliveries of several messages, as one command where the client knows that."""
        if not self.several or len(row) < 2:
            return deliver_each(self, consumer_id, tag, row)
        wire = self._wire
        size = DELIVERIES_HEAD + sum(map(len, row))
        if size > GATHER_BYTES or wire.pending_bytes + size > self._high:
            # Too much for one command, or it may come to the point where no more is taken: that is a matter of each.
            half = len(row) >> 1
            taken = self.deliver_row(consumer_id, tag, row[:half])
            if taken < half or not self.writable:
                return taken
            return half + self.deliver_row(consumer_id, tag + half, row[half:])
        self._append(pack_deliveries(consumer_id, tag, row))
        wire.pending_bytes += size
        if not self.awake:
            self.awake = True
            self._owner.wake()
        return len(row)

    def recall(self, consumer_id: int, tags: Sequence[int]) -> None:
        """Ask the client to give back what it has only buffered (D-23)."""
        if not self.over:
            self.send(Command.RECALL, consumer_id, tuple(tags))

    def closed(self, consumer_id: int, code: ErrorCode, text: str) -> None:
        """The consumer is gone: its destination was deleted, or an administrator closed it."""
        if not self.over:
            self._owner.consumer_closed(consumer_id, code, text)

    def settled(self, consumer_id: int) -> None:
        """A WANT of this consumer is answered: what could be delivered has been."""
        if not self.over:
            self._owner.want_settled(consumer_id)

    # -- the connection's side ----------------------------------------------------------------------------------------

    def send(self, *command: object) -> None:
        """Queue any other command."""
        self._wire.send(*command)
        if not self.awake:
            self.awake = True
            self._owner.wake()

    def pause(self) -> None:
        """The transport is congested."""
        self.paused = self.starved = True
        self.writable = False

    def shut(self) -> None:
        """The connection is over: the domain's words are not passed on any more, and nobody is woken for it. While its
        consumers are closed one by one, what the first gives back may well lead to asking the others for theirs."""
        self.writable = self.starved = False
        self.over = self.awake = True

    def disown(self) -> None:
        """The transport is gone, too. Connection and outbox refer to each other no more: they go at once, and do not
        wait for a garbage collector that a broker seldom runs."""
        self._owner = _NOBODY


class _Nobody:
    """Owner of the outbox of a connection that is gone."""

    __slots__ = ()

    def wake(self) -> None:
        """Nobody writes any more."""

    def consumer_closed(self, consumer_id: int, code: ErrorCode, text: str) -> None:
        """Nobody is told."""

    def want_settled(self, consumer_id: int) -> None:
        """Nobody waits."""


_NOBODY = _Nobody()
