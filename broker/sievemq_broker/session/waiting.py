"""A session that waits for room: its next send, or its COMMIT, is kept here until there is room.

The broker skips what the session sends behind a message that waits. Its client keeps these messages, and repeats them
when the broker asks for them (FLOW). So a limit is never exceeded, and the broker keeps one waiting message per
session.

Only this session waits. Other sessions of its connection go on, since their consumers may make room."""

from __future__ import annotations

from collections.abc import Callable

from sievemq_broker.domain.admission import MESSAGE_BYTES, Limited, Rooms
from sievemq_broker.domain.work import Job
from sievemq_broker.session.transaction import Transaction
from sievemq_core.message.envelope import Envelope


class BlockedSender:
    """The send or COMMIT of a session that waits for room.

    Args:
        rooms: where senders wait.
        since: when it began to wait, ms since 1970.
        retry: tries again, with the time; it calls :meth:`wait_in` or ends the wait.
        envelope: the message that waits; None where that is a COMMIT.
    """

    __slots__ = ("_fan_out", "_places", "_retry", "_rooms", "_transaction", "envelope", "request", "since")

    def __init__(
        self,
        rooms: Rooms,
        full: list[Limited],
        since: int,
        retry: Callable[[int], None],
        *,
        envelope: Envelope | None = None,
        transaction: Transaction | None = None,
        request: int = 0,
    ) -> None:
        self._rooms = rooms
        self._places: dict[Limited, None] = {}
        self._retry = retry
        self._fan_out: Job[None] | None = None
        self._transaction = transaction
        self.envelope = envelope
        self.request = request
        self.since = since
        self.wait_in(full)
        if envelope is not None:
            rooms.keep(self.kept)

    def clock_jumped(self, by: int) -> None:
        """The machine's clock was set by so many ms: it has waited as long as before."""
        self.since += by

    @property
    def places(self) -> tuple[Limited, ...]:
        return tuple(self._places)

    @property
    def text(self) -> str:
        """The limit it waits at, for people."""
        return next(iter(self._places)).limit_text

    @property
    def load(self) -> tuple[int, int]:
        """See :class:`~sievemq_broker.domain.admission.Waiter`."""
        if self.envelope is not None:
            return 1, len(self.envelope.packed) + MESSAGE_BYTES
        assert self._transaction is not None
        staged = self._transaction.staged
        return len(staged), staged.bytes + MESSAGE_BYTES * len(staged)

    @property
    def kept(self) -> int:
        """See :class:`~sievemq_broker.domain.admission.Waiter`."""
        return 0 if self.envelope is None else len(self.envelope.packed)

    def room(self, place: Limited, now: int) -> bool:
        """One of the places has room again: see :class:`~sievemq_broker.domain.admission.Waiter`. It needs room in all
        of them, and is not tried before."""
        if len(self._places) > 1 and place in self._places:
            del self._places[place]
            self._rooms.leave(place, self)
            return True
        self._retry(now)
        return place not in self._places

    def wait_in(self, full: list[Limited]) -> None:
        """Wait in exactly these places. It keeps its turn in those where it waits already."""
        rooms = self._rooms
        for place in tuple(self._places):
            if place not in full:
                del self._places[place]
                rooms.leave(place, self)
        for place in full:
            if place not in self._places:
                self._places[place] = None
                rooms.wait(place, self)

    @property
    def delivery(self) -> Job[None] | None:
        return self._fan_out

    def deliver(self, fan_out: Job[None], delivered: Callable[[int], None]) -> None:
        """The message was accepted, and is being delivered in slices: the session waits until that is done.

        Args:
            delivered: called then, with the time.
        """
        self._fan_out = fan_out
        self._retry = delivered
        self.wait_in([fan_out])

    def go_on(self, now: int) -> None:
        """Wait no longer: every subscription has the message, or the COMMIT is withdrawn."""
        self._retry(now)

    def finish(self) -> None:
        self.wait_in([])
        if self.envelope is not None:
            self._rooms.give_back(self.kept)
