"""The sends of a session that are not settled yet: the window that bounds them, who waits for their fate, and what has
to wait for room at the broker (hold.py)."""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Callable
from operator import itemgetter
from typing import TYPE_CHECKING, Final

from sievemq._engine.async_send import Callbacks, Fate, failing
from sievemq._engine.completion import Completion
from sievemq._engine.flow import Blocked
from sievemq._engine.hold import Hold
from sievemq.exceptions import ResourceAllocationException, TransactionRolledBackException, exception_for
from sievemq_core.counted import counted
from sievemq_core.message.headers import NON_PERSISTENT
from sievemq_core.wire.codec import pack
from sievemq_core.wire.commands import Command

if TYPE_CHECKING:
    from sievemq._engine.connection import ClientConnection

__all__ = ["Sends"]

_sequence: Final = itemgetter(0)
#: In the place of what was waited for.
_DONE: Final[Completion[None]] = Completion()
_DONE.succeed(None)


class Sends:
    """Those of one session.

    Args:
        connection: where they leave.
        session: id of the session.
        transacted: its sends are published by a commit.

    Attributes:
        waits: by delivery mode, whether a synchronous send waits for the broker's confirm (D-24).
        sequence, sent_bytes: how many were made, and their bytes in all.
        sent_at: time of the last one, in ms.
        sequence_limit, byte_limit: where either comes to its limit the window is full.
        confirmed, confirmed_bytes: how much of that is settled.
        unconfirmed: packed SENDs that are not settled, in order; said again if the connection is lost, or where the
            broker did not take them.
        waiting: those whose fate somebody waits for, in order.
        calls: the asynchronous ones whose fate is known, and whose callbacks are to be called, in order.
        ring: called when there are such; of the front, which calls them.
        window_waiters: who waits for the window.
        hold: there while the broker does not take them, and until they have been said again.
        blocked: for what they, or the session's commit, wait now; `last_blocked` for what they did last.
        torn: an exception from outside, such as KeyboardInterrupt, broke into :meth:`add`; or it is running.
        withdrawn: what whoever waits for a send is told that was withdrawn, by sequence.
    """

    __slots__ = (
        "_barriers",
        "_session",
        "_transacted",
        "blocked",
        "byte_limit",
        "calls",
        "confirmed",
        "confirmed_bytes",
        "connection",
        "hold",
        "last_blocked",
        "ring",
        "sent_at",
        "sent_bytes",
        "sequence",
        "sequence_limit",
        "torn",
        "unconfirmed",
        "waiting",
        "waits",
        "window_waiters",
        "withdrawn",
    )

    def __init__(self, connection: ClientConnection, session: int, transacted: bool) -> None:
        self.connection = connection
        self._session = session
        self._transacted = transacted
        policy = connection.options.send_confirm
        always = policy == "always"
        self.waits: tuple[bool, ...] = (False, always, always or (policy == "auto" and not transacted))
        # `sequence` and `sent_bytes` are written by the sender alone, the rest by whoever holds the lock.
        self.sequence = self.sent_bytes = self.sent_at = 0
        self.confirmed = self.confirmed_bytes = 0
        self.sequence_limit = connection.window_messages
        self.byte_limit = connection.window_bytes
        self.unconfirmed: deque[bytes] = deque()
        self.waiting: deque[Fate] = deque()
        self.calls: deque[Fate] = deque()
        self.ring: Callable[[], None] = _unheard
        self._barriers: deque[tuple[int, Completion[None]]] = deque()
        self.window_waiters: list[Completion[None]] = []
        self.hold: Hold | None = None
        self.blocked: Blocked | None = None
        self.last_blocked: Blocked | None = None
        self.withdrawn: dict[int, Exception] = {}
        self.torn = False

    # -- the window --------------------------------------------------------------------------------------------------

    @property
    def window_is_full(self) -> bool:
        """Too many messages or bytes are unconfirmed: a further send has to wait for :meth:`window_opens`."""
        return self.sequence >= self.sequence_limit or self.sent_bytes >= self.byte_limit

    def window_opens(self) -> Completion[None]:
        """Settled as soon as the window has room again, or the connection is lost."""
        completion: Completion[None] = Completion()
        if self.connection.failure is not None:
            completion.fail(self.connection.failure)
        elif not self.window_is_full:
            completion.succeed(None)
        else:
            self.window_waiters.append(completion)
            self.connection.hurry()
        return completion

    def open_window(self) -> None:
        """Nothing keeps senders any more but what is unconfirmed."""
        self.sequence_limit = self.confirmed + self.connection.window_messages
        self._wake_waiters()

    def _wake_waiters(self) -> None:
        if self.window_waiters and not self.window_is_full:
            waiters, self.window_waiters = self.window_waiters, []
            for waiter in waiters:
                waiter.succeed(None)

    # -- their fate --------------------------------------------------------------------------------------------------

    def add(
        self, packed: bytes, message: object, mode: int, callbacks: Callbacks | None, now: int
    ) -> Completion[None] | None:
        """Count a send and queue it. Belongs to the session's thread of control, and needs no lock.

        Args:
            packed: the SEND, with the sequence behind the last one.
            message: for the callbacks.
            mode: its delivery mode.
            callbacks: of an asynchronous send.
            now: its time, in ms.

        Returns:
            What a synchronous send waits for; None if it need not wait (D-24).
        """
        completion: Completion[None] | None = Completion() if callbacks is None and self.waits[mode] else None
        settled = callbacks or completion
        self.torn = True
        self.sequence = sequence = self.sequence + 1
        self.sent_bytes += len(packed)
        self.unconfirmed.append(packed)
        self.sent_at = now
        connection = self.connection
        if settled is None:
            connection.put(packed)
        else:
            self.waiting.append((sequence, settled, message))
            connection.put(packed)
            if mode == NON_PERSISTENT:
                connection.hurry()
            if connection.failure is not None:  # lost since the caller looked
                self.fail(connection.failure)
        self.torn = False
        return completion

    def mend(self) -> None:
        """Count again what was sent, where :attr:`torn`. The connection has to be lost with that."""
        self.torn = False
        self.sequence = self.confirmed + len(self.unconfirmed)
        self.sent_bytes = self.confirmed_bytes + sum(map(len, self.unconfirmed))
        while self.waiting and self.waiting[-1][0] > self.sequence:
            self.waiting.pop()

    @property
    def linger(self) -> bool:
        """Some for which nobody waits may not be taken yet; what a transaction has sent ends with it (TXN-05)."""
        return len(self.unconfirmed) > len(self.waiting) and not self._transacted

    def settled(self) -> Completion[None]:
        """Settled once every send made so far is confirmed or has failed (CPL-09, CPL-10)."""
        completion: Completion[None] = Completion()
        if self.confirmed >= self.sequence or self.connection.failure is not None:
            completion.succeed(None)
        else:
            self._barriers.append((self.sequence, completion))
            self.connection.hurry()
        return completion

    def confirm(self, sequence: int) -> None:
        """CONFIRM: every send up to this one is settled."""
        if sequence < self.confirmed:
            return
        settled = self.unconfirmed.popleft
        count = min(sequence - self.confirmed, len(self.unconfirmed))
        done = sum(map(len, [settled() for _ in range(count)]))
        self.confirmed = sequence
        self.confirmed_bytes += done
        self.sequence_limit = sequence + self.connection.window_messages
        self.byte_limit = self.confirmed_bytes + self.connection.window_bytes
        if self.hold is not None:
            self.hold.advance(count)
        self._settle(sequence)
        while self._barriers and self._barriers[0][0] <= sequence:
            self._barriers.popleft()[1].succeed(None)
        self._wake_waiters()

    def _settle(self, last: int, error: Exception | None = None) -> bool:
        """Those up to this one have succeeded, or failed; False if nothing waits for one of them."""
        waiting, known = self.waiting, False
        while True:
            try:
                if waiting[0][0] > last:
                    break
                fate = waiting.popleft()
            except IndexError:  # that is all; :meth:`add` may call this beside the thread that holds the lock
                break
            known = True
            self._tell(fate, error)
        if self.calls:
            self.ring()
        return known

    def _tell(self, fate: Fate, error: Exception | None) -> None:
        _, settled, _ = fate
        if isinstance(settled, tuple):
            self.calls.append(fate if error is None else failing(fate, settled, error))
        elif error is None:
            settled.succeed(None)
        else:
            settled.fail(error)

    def failed(self, sequence: int, code: int, text: str) -> None:
        """SEND_FAILED: one send was refused; all before it are settled."""
        self.confirm(sequence - 1)
        withdrawn = self.withdrawn.pop(sequence, None)
        error = withdrawn or exception_for(code, text)
        known = self._settle(sequence, error)
        self.confirm(sequence)
        # D-24: where nobody waits for it; in a transaction the commit tells.
        if not known and not self._transacted and withdrawn is None:
            self.connection.report(error)

    def fail(self, error: Exception) -> None:
        """The connection is lost: everything that somebody waits for fails, in order (D-32)."""
        self._settle(self.sequence, error)
        while self._barriers:
            self._barriers.popleft()[1].succeed(None)
        waiters, self.window_waiters = self.window_waiters, []
        for waiter in waiters:
            waiter.fail(error)

    def freeze(self) -> None:
        """The connection is lost, and may be repaired: all that is not confirmed will be said again, but for what was
        sent in a transaction, which is rolled back (TXN-05)."""
        self.blocked = None
        if self.hold is not None:
            self.hold = None
            self.open_window()
        if self._transacted:
            self.drop()

    def drop(self) -> None:
        """What was sent in the transaction is gone. Whoever waits for the fate of a single send learns it."""
        last = self.confirmed + len(self.unconfirmed)
        text = "the connection was lost, and the transaction of this send was rolled back"
        self._settle(last, TransactionRolledBackException(text, "TRANSACTION_ROLLED_BACK"))
        self.confirm(last)

    def give_up(self) -> None:
        """The session is closed, and the broker has not taken all that was sent: who waits learns it."""
        lost = len(self.unconfirmed)
        if not lost:
            return
        why = f": {self.last_blocked.reason}" if self.last_blocked is not None else ""
        error = ResourceAllocationException(
            f"lost: {counted(lost, 'message')} that the broker had not taken before the session was closed{why}",
            "SEND_TIMEOUT",
        )
        waited = len(self.waiting) + len(self.withdrawn)
        self.fail(error)
        if lost > waited:
            self.connection.report(error)

    # -- waiting for room --------------------------------------------------------------------------------------------

    def wait_for_room(self, blocked: Blocked, sequence: int) -> None:
        """FLOW: from this send on nothing is taken; or with 0 the session's commit waits."""
        self.blocked = self.last_blocked = blocked
        if sequence:
            if self.hold is None:
                self.hold = Hold(self)
            else:
                self.hold.wait()

    def go_on(self, sequence: int) -> None:
        """FLOW: there is room again, from this send on."""
        self.blocked = None
        if sequence and self.hold is not None:
            self.hold.go_on(sequence)

    def withdraw(self, sequence: int, error: Exception) -> None:
        """Take a send back that waits for room. Whoever waits for it gets `error`, unless the broker has taken it; that
        it says before it answers.

        Args:
            sequence: of the send.
            error: that tells why.
        """
        if self._place(sequence) is None:
            return  # its fate is known
        index = sequence - self.confirmed - 1
        # Where it is to be said again: its number stays.
        instead = pack((Command.WITHDRAW, 0, self._session, sequence))
        self.confirmed_bytes += len(self.unconfirmed[index]) - len(instead)
        self.unconfirmed[index] = instead
        self.withdrawn[sequence] = error

        def heard(answer: Completion[object]) -> None:
            if answer.error is None:
                if sequence <= self.confirmed:
                    self.withdrawn.pop(sequence, None)
                elif (place := self._place(sequence)) is not None:
                    fate, self.waiting[place] = self.waiting[place], (sequence, _DONE, None)
                    self._tell(fate, error)
                    if self.calls:
                        self.ring()

        self.connection.request(Command.WITHDRAW, self._session, sequence).add_callback(heard)

    def _place(self, sequence: int) -> int | None:
        """Index of a send in what waits; None if its fate is known."""
        place = bisect_left(self.waiting, sequence, key=_sequence)
        return place if place < len(self.waiting) and self.waiting[place][0] == sequence else None

    def withdraw_commit(self) -> None:
        """If the commit that is under way waits for room, it becomes a rollback, which is its answer."""
        self.connection.request(Command.WITHDRAW, self._session, 0)


def _unheard() -> None:
    """There is no front."""
