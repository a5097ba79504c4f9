"""The sends of one link, and what waits behind one that has no room.

Each link by which the client sends has a session of the broker's to itself. So a send that waits for room holds up its
link alone: the broker passes over the sends behind it, which are kept here and repeated, and later frames for the link
wait in their order. Other links and sessions of the connection go on, since their consumers may make room."""

from __future__ import annotations

from collections import deque
from typing import Final

from sievemq_broker.protocols.amqp.frames import Frame
from sievemq_broker.protocols.amqp.performatives import TransactionalState, Transfer
from sievemq_broker.session.verbs import PlainCommand

#: What a frame or send that waits takes beside its bytes: the objects of a small transfer.
_EACH: Final = 500


class IncomingSends:
    """The sends of one link.

    Args:
        number: of the broker's session; 0 for a link to a coordinator, whose sends are no messages.

    Attributes:
        number: as above.
        blocked: a send of it waits for room, or its transaction is being committed.
        bytes: of what waits here.
    """

    __slots__ = ("_frames", "_more", "_sends", "_sequence", "_transacted", "blocked", "bytes", "number")

    def __init__(self, number: int) -> None:
        self.number = number
        self.blocked = False
        self.bytes = 0
        self._sequence = 0
        #: Sends that the broker has passed over: size and command. Then frames that have arrived since.
        self._sends: deque[tuple[int, PlainCommand]] = deque()
        self._frames: deque[Frame] = deque()
        #: Whether a delivery is unfinished at the end of these frames; None if they have none.
        self._more: bool | None = None
        #: How many of these frames name a transaction, by its name.
        self._transacted: dict[bytes, int] = {}

    def count(self) -> int:
        self._sequence += 1
        return self._sequence

    def block(self, blocked: bool) -> None:
        self.blocked = blocked

    def pass_over(self, sends: list[tuple[int, PlainCommand]]) -> None:
        """The broker has passed over these, which come before all that waits here."""
        self._sends.extendleft(reversed(sends))
        self.bytes += sum([size + _EACH for size, _ in sends])

    def take_sends(self, most: int) -> list[tuple[int, PlainCommand]]:
        sends = [self._sends.popleft() for _ in range(min(most, len(self._sends)))]
        self.bytes -= sum([size + _EACH for size, _ in sends])
        return sends

    def hold(self, frame: Frame) -> None:
        self._frames.append(frame)
        self.bytes += frame.size + _EACH
        if isinstance(frame.body, Transfer):
            self._more = frame.body.more and not frame.body.aborted
            self._count_transacted(frame.body, 1)

    def _count_transacted(self, transfer: Transfer, change: int) -> None:
        name = transaction_of(transfer)
        if name is not None:
            count = self._transacted.pop(name, 0) + change
            if count:
                self._transacted[name] = count

    def holds(self, transaction: bytes) -> bool:
        """True if a frame that waits here is part of a transaction of that name."""
        return transaction in self._transacted

    def continues(self, begun: bool) -> bool:
        """True if the next transfer to arrive continues a delivery; `begun`: one has begun before all that waits."""
        return begun if self._more is None else self._more

    @property
    def next_frame(self) -> Frame | None:
        return self._frames[0] if self._frames else None

    def take_frame(self) -> Frame:
        frame = self._frames.popleft()
        self.bytes -= frame.size + _EACH
        if isinstance(frame.body, Transfer):
            self._count_transacted(frame.body, -1)
        if not self._frames:
            self._more = None
        return frame

    def take_frames(self) -> list[Frame]:
        return [self.take_frame() for _ in range(len(self._frames))]


def transaction_of(transfer: Transfer) -> bytes | None:
    """The name of the transaction that a transfer is part of."""
    state = transfer.state
    return state.txn_id if isinstance(state, TransactionalState) else None
