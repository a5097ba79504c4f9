"""The sends of a session: their outcome, the window that bounds them, the limits that block them, their timeouts."""

from __future__ import annotations

import logging
import sys
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Callable, Iterable
from itertools import repeat
from operator import itemgetter
from typing import Any, Final, NamedTuple, TypeAlias

from sievemq._engine.outbox import Completion, Outbox
from sievemq._engine.terms import Terms
from sievemq.exceptions import (
    JMSException,
    ResourceAllocationException,
    TransactionRolledBackException,
    exception_for,
)
from sievemq.messages import Message
from sievemq_core.counted import counted
from sievemq_core.message.headers import NON_PERSISTENT
from sievemq_core.wire.codec import pack, unpack_value
from sievemq_core.wire.commands import Command

_log = logging.getLogger("sievemq")

#: Sends that are resent at first when there is room again.
_FIRST: Final = 8
#: Milliseconds between two log lines about sends that wait.
_LOG_AGAIN: Final = 10_000

_sequence: Final = itemgetter(0)
_take_first: Final[Callable[[deque[Any]], Any]] = deque.popleft

# -- asynchronous sends: a CompletionListener waits for their fate (section 12) ----------------------------------------
#
# There is one for each message, and ten thousand may be on their way, which the garbage collector visits in each run:
# so it is a tuple of existing objects.

Callbacks: TypeAlias = tuple[Callable[..., Any], Callable[..., Any]]
"""Of a CompletionListener: for success and failure."""

Asynchronous: TypeAlias = tuple[int, Callbacks, Any]
"""Its sequence, callbacks and message."""

Call: TypeAlias = tuple[Asynchronous, Exception | None]
"""One that is settled: None if it has succeeded."""


def of_another(message: object, callbacks: Callbacks) -> Callbacks:
    on_completion, on_exception = callbacks
    return lambda _: on_completion(message), lambda _, error: on_exception(message, error)


def call(settled: Call) -> Any:
    """Call a callback of an asynchronous send that is settled. Returns its result."""
    (_, (on_completion, on_exception), message), error = settled
    if isinstance(message, Message):
        message._completed()  # CPL-15
    return on_completion(message) if error is None else on_exception(message, error)


class Blocked(NamedTuple):
    """Sends to a destination wait for room.

    Attributes:
        destination: its address, such as ``queue:orders``; None where it is the broker itself that is at its limit, or
            a commit waits that sends to several.
        reason: which limit of what is reached, for people.
    """

    destination: str | None
    reason: str


class Hold:
    """The sends of a session from which on the broker has not taken them.

    FLOW names the first send of a session that waits. The broker keeps that one and passes over what was sent behind
    it; the session's window is shut. When there is room, FLOW names the send from which to continue. The room may be
    small: so a few are resent at first, and with each that is taken one more may be on its way, until all are sent
    and the window opens. A thread that sends meanwhile may send one out of turn, or twice: the broker passes it over
    (docs/protocol.md, section 6).

    Attributes:
        waiting: until the broker names the sequence to continue from.
    """

    __slots__ = ("_allowance", "_said", "_since", "waiting")

    def __init__(self) -> None:
        self._said = 0
        self._since = 0
        self._allowance = _FIRST
        self.waiting = True

    def wait(self, confirmed: int) -> None:
        """There is no room for the next send: about as many fit as were accepted since the last time."""
        self.waiting = True
        self._allowance = max(_FIRST, confirmed - self._since)

    def go_on(self, sequence: int) -> None:
        self.waiting = False
        self._said = self._since = sequence - 1

    def allow(self, taken: int) -> None:
        if not self.waiting:
            self._allowance += taken

    def next(self, confirmed: int, last: int) -> tuple[int, int]:
        """The sends that may be repeated now: behind the first of these sequences, up to the second."""
        start = max(self._said, confirmed)
        self._said = max(start, min(last, confirmed + self._allowance))
        return start, self._said


class Sends:
    """The unsettled sends of one session, and the window that limits them.

    Args:
        outbox: where they leave.
        terms: how many may be on their way, and which are waited for.
        session: id of the session.
        transacted: its sends are published by a commit.

    Attributes:
        waits: by delivery mode, whether a synchronous send waits for the broker's confirm (D-24).
        sequence, sent_bytes: how many were made, and their bytes in all.
        sequence_limit, byte_limit: where either comes to its limit the window is full.
        confirmed, confirmed_bytes: how much of that is settled.
        unconfirmed: packed SENDs that are not settled, in order; sent again if the connection is lost, or where the
            broker did not take them.
        waiting: sequence and completion of those with a waiting caller, in order.
        asynchronous: those with a CompletionListener, in order.
        calls: the asynchronous ones that are settled, and whose callbacks are to be called, in order.
        notify: called when there are such; of the front, which calls them.
        window_waiters: callers that wait for the window.
        hold: there while the broker does not take them, and until they have been sent again.
        blocked: for what they, or the session's commit, wait now; `last_blocked` for what they did last.
        withdrawn: the error for the caller of a withdrawn send, by sequence.
    """

    __slots__ = (
        "_barriers", "_given_up", "_outbox", "_overdue", "_sent", "_session", "_terms", "_transacted", "asynchronous",
        "blocked", "byte_limit", "calls", "confirmed", "confirmed_bytes", "hold", "last_blocked", "notify",
        "sent_bytes", "sequence", "sequence_limit", "unconfirmed", "waiting", "waits", "window_waiters", "withdrawn",
    )  # fmt: skip

    def __init__(self, outbox: Outbox, terms: Terms, session: int, transacted: bool) -> None:
        self._outbox = outbox
        self._terms = terms
        self._session = session
        self._transacted = transacted
        policy = terms.options.send_confirm
        always = policy == "always"
        self.waits: tuple[bool, ...] = (False, always, always or (policy == "auto" and not transacted))
        # `sequence` and `sent_bytes` are written by the sending thread alone, the rest under the lock.
        self.sequence = self.sent_bytes = 0
        self.confirmed = self.confirmed_bytes = 0
        self.sequence_limit = terms.window_messages
        self.byte_limit = terms.window_bytes
        self.unconfirmed: deque[bytes] = deque()
        self.waiting: deque[tuple[int, Completion[None]]] = deque()
        self.asynchronous: deque[Asynchronous] = deque()
        self.calls: deque[Call] = deque()
        self.notify: Callable[[], None] = _ignore
        self._barriers: deque[tuple[int, Completion[None]]] = deque()
        self.window_waiters: list[Completion[None]] = []
        self.hold: Hold | None = None
        self.blocked: Blocked | None = None
        self.last_blocked: Blocked | None = None
        self.withdrawn: dict[int, Exception] = {}
        self._given_up = False
        self._sent = 0  # sequence of the last that may have reached the broker, as of the last loss
        self._overdue: list[Completion[Any]] = []  # commits that were withdrawn, and that their callers wait for

    # -- the window --------------------------------------------------------------------------------------------------

    @property
    def window_is_full(self) -> bool:
        """Too many messages or bytes are unconfirmed: a further send has to wait for :meth:`window_opens`."""
        return self.sequence >= self.sequence_limit or self.sent_bytes >= self.byte_limit

    def window_opens(self) -> Completion[None]:
        """Settled as soon as the window has room again, or the connection is lost."""
        completion: Completion[None] = Completion()
        if self._outbox.failure is not None:
            completion.fail(self._outbox.failure)
        elif not self.window_is_full:
            completion.succeed(None)
        else:
            self.window_waiters.append(completion)
            self._outbox.hurry()
        return completion

    def open_window(self) -> None:
        self.sequence_limit = self.confirmed + self._terms.window_messages
        self._wake_waiters()

    def _wake_waiters(self) -> None:
        if self.window_waiters and not self.window_is_full:
            for waiter in self.window_waiters:
                waiter.succeed(None)
            self.window_waiters.clear()

    # -- their fate --------------------------------------------------------------------------------------------------

    def add(self, packed: bytes, message: object, mode: int, callbacks: Callbacks | None) -> Completion[None] | None:
        """Count a send and queue it. Belongs to the session's thread of control, and needs no lock.

        Args:
            packed: the SEND, with the sequence behind the last one.

        Returns:
            What a synchronous send waits for; None if it need not wait (D-24).
        """
        completion: Completion[None] | None = None
        sequence, size = self.sequence + 1, len(packed)
        outbox = self._outbox
        # What waits comes first: it must be there when the CONFIRM arrives.
        if callbacks is not None:
            self.asynchronous.append((sequence, callbacks, message))
        elif self.waits[mode]:
            completion = Completion()
            self.waiting.append((sequence, completion))
        self.unconfirmed.append(packed)
        outbox.put(packed, size)
        if callbacks is not None or completion is not None:
            if mode == NON_PERSISTENT:
                outbox.hurry()
            if outbox.failure is not None:  # lost since the caller's check; another thread may be failing it
                if completion is not None:
                    completion.fail(outbox.failure)
                else:
                    self._call_back(sequence, outbox.failure)
        self.sent_bytes += size
        self.sequence = sequence  # last: from here on it is sent, whatever breaks into the caller
        return completion

    @property
    def torn(self) -> bool:
        """An exception from outside, such as KeyboardInterrupt, has broken into :meth:`add`."""
        last = self.sequence
        for waiting in (self.waiting, self.asynchronous):
            try:
                if waiting[-1][0] > last:
                    return True
            except IndexError:
                pass
        try:
            return self.confirmed > last or _sequence_of(self.unconfirmed[-1]) > last
        except IndexError:
            return self.confirmed > last

    def mend(self) -> None:
        """Count the last send wholly or not at all, if it is :attr:`torn`. The connection is lost with that."""
        for waiting in (self.waiting, self.asynchronous):
            while waiting and waiting[-1][0] > self.sequence:
                waiting.pop()  # the call raises: nothing waits
        last = _sequence_of(self.unconfirmed[-1]) if self.unconfirmed else self.confirmed
        self.sequence = max(self.sequence, last)

    def recount(self) -> None:
        """An exception from outside may have broken into :meth:`confirm`: do the rest of it. The connection has to be
        lost with that."""
        unconfirmed = self.unconfirmed
        while unconfirmed and _sequence_of(unconfirmed[0]) <= self.confirmed:
            unconfirmed.popleft()
        self.confirmed_bytes = self.sent_bytes - sum(map(len, unconfirmed))
        self.confirm(self.confirmed)

    @property
    def unheard(self) -> int:
        """Unconfirmed sends whose fate no call and no callback would learn. Those of a transaction end with it
        (TXN-05)."""
        if self._transacted or self._given_up:
            return 0
        return max(0, len(self.unconfirmed) - len(self.waiting) - len(self.asynchronous) - len(self.withdrawn))

    @property
    def awaits_broker(self) -> bool:
        return bool(self.waiting or self.window_waiters)

    @property
    def calls_back(self) -> bool:
        return bool(self.asynchronous)

    def call_back(self, notify: Callable[[], None]) -> None:
        """Set a callback for when there is something in :attr:`calls`."""
        self.notify = notify

    def settled(self) -> Completion[None]:
        """Settled once every send made so far is confirmed or has failed (CPL-09, CPL-10)."""
        completion: Completion[None] = Completion()
        if self.confirmed >= self.sequence or self._outbox.failure is not None:
            completion.succeed(None)
        else:
            self._barriers.append((self.sequence, completion))
            self._outbox.hurry()
        return completion

    def confirm(self, sequence: int) -> None:
        """CONFIRM: every send up to this one is settled."""
        if sequence < self.confirmed:
            return
        count = min(sequence - self.confirmed, len(self.unconfirmed))
        self.confirmed = sequence  # first: those still there are settled then (recount)
        if self.withdrawn:
            self.withdrawn = {number: error for number, error in self.withdrawn.items() if number > sequence}
        self.confirmed_bytes += sum(map(len, map(_take_first, repeat(self.unconfirmed, count))))
        self.sequence_limit = sequence + self._terms.window_messages
        self.byte_limit = self.confirmed_bytes + self._terms.window_bytes
        if self.hold is not None:
            self.hold.allow(count)
            self._resend(self.hold)
        self._settle(sequence)
        barriers = self._barriers
        while barriers and barriers[0][0] <= sequence:
            barriers[0][1].succeed(None)
            barriers.popleft()
        if self.window_waiters:
            self._wake_waiters()

    def _settle(self, last: int, error: Exception | None = None) -> bool:
        """Those up to this one have succeeded, or failed; False if nothing waits for one of them."""
        waiting, known = self.waiting, False
        while waiting and waiting[0][0] <= last:
            known = True
            _, completion = waiting[0]
            if error is None:
                completion.succeed(None)
            else:
                completion.fail(error)
            waiting.popleft()  # last: a second notice is harmless
        return self._call_back(last, error) or known

    def _call_back(self, last: int, error: Exception | None) -> bool:
        """The asynchronous ones up to this one have succeeded, or failed; False if there is none."""
        asynchronous, calls = self.asynchronous, self.calls
        count = bisect_right(asynchronous, last, key=_sequence) if asynchronous else 0
        if count:
            try:
                # In one call, which no interrupt divides: a callback is neither lost nor called twice.
                calls.extend(zip(map(_take_first, repeat(asynchronous, count)), repeat(error)))
            except IndexError:  # another thread has failed the last ones
                pass
        if calls:
            self.notify()
        return count > 0

    def failed(self, sequence: int, code: int, text: str) -> None:
        """SEND_FAILED: one send was refused; all before it are settled."""
        self.confirm(sequence - 1)
        withdrawn = self.withdrawn.pop(sequence, None)
        error = withdrawn or exception_for(code, text)
        known = self._settle(sequence, error)
        self.confirm(sequence)
        # D-24: no caller waits for it; in a transaction commit raises.
        if not known and not self._transacted and withdrawn is None:
            self._outbox.report(error)

    def fail(self, error: Exception) -> None:
        """The connection is lost: every waiting call fails, in order (D-32)."""
        self._settle(sys.maxsize, error)
        for _, barrier in self._barriers:
            barrier.succeed(None)
        self._barriers.clear()
        for waiter in self.window_waiters:
            waiter.fail(error)
        self.window_waiters.clear()

    def freeze(self) -> None:
        """The connection is lost, and may be repaired: unconfirmed sends will be repeated, except those of a
        transaction, which is rolled back (TXN-05)."""
        self.blocked = None
        if self.hold is not None:
            self.hold = None
            self.open_window()
        self._sent = self.sequence
        for sequence, error in tuple(self.withdrawn.items()):  # no caller waits for a repair longer than it may
            self._settle_withdrawn(sequence, _in_doubt(error))
        overdue, self._overdue = self._overdue, []
        for commit in overdue:
            commit.fail(_commit_in_doubt())
        if self._transacted:
            self.drop()

    def drop(self) -> None:
        """The transaction was rolled back. A caller that waits for one of its sends is informed."""
        last = self.confirmed + len(self.unconfirmed)
        text = "the connection was lost, and the transaction of this send was rolled back"
        self._settle(last, TransactionRolledBackException(text, "TRANSACTION_ROLLED_BACK"))
        self.confirm(last)

    def give_up(self, error: Exception | None = None, cause: Exception | None = None) -> None:
        """The session ends, or its connection: no confirm will come. Waiting calls raise; the number of the other sends
        goes to the log and to the exception listener, once (D-43).

        Args:
            error: for waiting calls. None if the broker has answered, and so has not taken what it did not confirm.
            cause: why, if that is more than `error` says.
        """
        lost, unheard = len(self.unconfirmed), self.unheard
        if error is None and (self._given_up or not lost):
            return
        self._given_up = True
        report: JMSException
        if error is None:
            why = f": {self.last_blocked.reason}" if self.last_blocked is not None else ""
            error = report = ResourceAllocationException(
                f"lost: {counted(unheard or lost, 'message')} that the broker had not taken before the session was "
                f"closed{why}",
                "SEND_TIMEOUT",
            )
        else:
            report = JMSException(
                f"given up: {counted(unheard, 'message')} that the application sent without waiting, and that the "
                f"broker has not confirmed; they may be lost: {cause or error}",
                "CONNECTION_LOST",
                cause or error,
            )
        self.fail(error)
        if unheard:
            _log.warning("%s", report)
            self._outbox.report(report)

    def disown(self) -> None:
        """In a child made by fork: what was sent is the parent's."""
        self._given_up = True
        self.notify = _ignore
        self.asynchronous.clear()
        self.calls.clear()

    # -- waiting for room --------------------------------------------------------------------------------------------

    def wait_for_room(self, blocked: Blocked, sequence: int) -> None:
        """FLOW: from this send on nothing is taken; or with 0 the session's commit waits."""
        self.blocked = self.last_blocked = blocked
        if sequence:
            if self.hold is None:
                self.hold = Hold()
                self.sequence_limit = 0
            else:
                self.hold.wait(self.confirmed)

    def go_on(self, sequence: int) -> None:
        """FLOW: there is room again, from this send on."""
        self.blocked = None
        if sequence and self.hold is not None:
            self.hold.go_on(sequence)
            self._resend(self.hold)

    def _resend(self, hold: Hold) -> None:
        """Repeat more of the sends that the broker did not accept; open the window when all are sent."""
        self.sequence_limit = 0
        if hold.waiting:
            return
        unconfirmed, confirmed = self.unconfirmed, self.confirmed
        # A sender that passed the window before it was shut adds to `unconfirmed` first, then to the outbox.
        while True:
            last = confirmed + len(unconfirmed)
            said, until = hold.next(confirmed, last)
            if said >= last:
                break
            if until <= said:
                return
            self._outbox.put_again([unconfirmed[index] for index in range(said - confirmed, until - confirmed)])
        self.hold = None
        self.open_window()

    def withdraw(self, sequence: int, error: Exception) -> None:
        """Take a send back that waits for room, or for a repair. Its caller gets `error`, unless the broker has taken
        it: it confirms the send before it answers then. There is no answer to wait for while the connection is lost.
        """
        if _place(self.waiting, sequence) is _place(self.asynchronous, sequence) is None:
            return  # it is settled
        index = sequence - self.confirmed - 1
        # Where it must be repeated: its number stays.
        instead = pack((Command.WITHDRAW, 0, self._session, sequence))
        self.confirmed_bytes += len(self.unconfirmed[index]) - len(instead)
        self.unconfirmed[index] = instead
        self.withdrawn[sequence] = error

        if self._outbox.repairing:
            self._settle_withdrawn(sequence, _in_doubt(error) if sequence <= self._sent else error)
            return

        def settle(answer: Completion[object]) -> None:
            if answer.error is None:
                self._settle_withdrawn(sequence, error)

        self._outbox.request(Command.WITHDRAW, self._session, sequence).add_callback(settle)

    def _settle_withdrawn(self, sequence: int, error: Exception) -> None:
        """A send was withdrawn: its caller learns it, unless the broker had taken it."""
        if sequence <= self.confirmed:
            self.withdrawn.pop(sequence, None)
        elif (place := _place(self.waiting, sequence)) is not None:
            self.waiting[place][1].fail(error)
            del self.waiting[place]
        elif (place := _place(self.asynchronous, sequence)) is not None:
            self.calls.append((self.asynchronous[place], error))
            del self.asynchronous[place]
            self.notify()

    def overdue(self, completion: Completion[Any] | None, timeout: int, sequence: int) -> None:
        """Something has waited for too long: arguments as of :meth:`Deadlines.expect`."""
        if completion is None or sequence:
            text = f"{self._why}; this message waited {timeout} ms (send_timeout) and was withdrawn: it was not sent"
            self.withdraw(sequence, ResourceAllocationException(text, "SEND_TIMEOUT"))
        elif completion in self.window_waiters:
            self.window_waiters.remove(completion)
            completion.fail(self.left_behind(timeout))
        elif self._outbox.repairing:
            completion.fail(_commit_in_doubt())
        else:
            self._overdue.append(completion)
            self._withdraw_commit()

    def left_behind(self, timeout: int) -> ResourceAllocationException:
        """The error of a message for which there was no room behind others for so many ms."""
        text = f"{self._why}; this message waited {timeout} ms (send_timeout) behind others: it was not sent"
        return ResourceAllocationException(text, "SEND_TIMEOUT")

    @property
    def _why(self) -> str:
        if self._outbox.repairing:
            return f"the connection is lost ({self._outbox.cause})"
        if self.last_blocked is not None:
            return self.last_blocked.reason
        return "the broker has not confirmed what was sent"

    def _withdraw_commit(self) -> None:
        """If the commit that is under way waits for room, it becomes a rollback, which is its answer."""
        self._outbox.request(Command.WITHDRAW, self._session, 0)


def _in_doubt(error: Exception) -> Exception:
    """The error of a withdrawn send that the broker may have had before the connection was lost."""
    text = f"{str(error).removesuffix(': it was not sent')}; but the broker may have taken it before the loss"
    return JMSException(text, "TIMEOUT")


def _commit_in_doubt() -> Exception:
    return JMSException(
        "the connection is lost, and the commit has waited for the option send_timeout: the next call of the session "
        "waits for its outcome, and raises if it was rolled back",
        "TIMEOUT",
    )


def _sequence_of(packed: bytes) -> int:
    """The sequence of a send that is not settled: a SEND, or the WITHDRAW in its place."""
    number, _, second, third = unpack_value(packed)[:4]
    return int(second if number == Command.SEND else third)


def _place(waiting: deque[Any], sequence: int) -> int | None:
    """Index of a send among these; None if it is not among them."""
    place = bisect_left(waiting, sequence, key=_sequence)
    return place if place < len(waiting) and waiting[place][0] == sequence else None


def _ignore() -> None:
    """No front is attached."""


class Flow:
    """The blocked sends of one connection.

    Args:
        sends: gives those of all sessions, which may have to wait.
        clock: returns milliseconds.

    Attributes:
        on_blocked, on_unblocked: called with what sends wait for, and when they do not any more; as `on_exception` of
            the connection.
        broker_blocked: which limit keeps the broker from taking any sends; None if it takes them.
    """

    __slots__ = ("_clock", "_logged_at", "_sends", "_told", "broker_blocked", "on_blocked", "on_unblocked")

    def __init__(self, sends: Callable[[], Iterable[Sends]], clock: Callable[[], int]) -> None:
        self._sends = sends
        self._clock = clock
        self.on_blocked: Callable[[Blocked], None] | None = None
        self.on_unblocked: Callable[[Blocked], None] | None = None
        self.broker_blocked: str | None = None
        self._told: dict[str | None, Blocked] = {}
        self._logged_at = 0

    @property
    def blocked(self) -> tuple[Blocked, ...]:
        """What sends wait for now, each destination once."""
        return tuple(self._told.values())

    def listen(
        self, on_blocked: Callable[[Blocked], None] | None, on_unblocked: Callable[[Blocked], None] | None
    ) -> None:
        self.on_blocked, self.on_unblocked = on_blocked, on_unblocked

    def block(self, limit: str | None) -> None:
        """The broker accepts no sends because this limit is reached; None: it accepts them again."""
        self.broker_blocked = limit

    def changed(self) -> None:
        """Report what sends wait for, unless that was reported already."""
        found: dict[str | None, Blocked] = {}
        if self.broker_blocked is not None:
            found[None] = Blocked(None, self.broker_blocked)
        for sends in self._sends():
            if (blocked := sends.blocked) is not None:
                found.setdefault(blocked.destination, blocked)
        told, self._told = self._told, found
        for destination, blocked in told.items():
            if destination not in found and self.on_unblocked is not None:
                self.on_unblocked(blocked)
        for destination, blocked in found.items():
            if destination not in told:
                now = self._clock()
                if abs(now - self._logged_at) >= _LOG_AGAIN:  # it may change many times a second
                    self._logged_at = now
                    _log.warning("sends wait: %s", blocked.reason)
                if self.on_blocked is not None:
                    self.on_blocked(blocked)


class _Wait(NamedTuple):
    """Args: of whom; for what, None of an asynchronous send; when its time is over and how long it was, in ms; of a
    send, its sequence, else 0; when it began, in ms since 1970."""

    sends: Sends
    completion: Completion[Any] | None
    until: int
    timeout: int
    sequence: int
    began: int

    @property
    def over(self) -> bool:
        done = self.completion is not None and self.completion.done
        return done or 0 < self.sequence <= self.sends.confirmed


class Deadlines:
    """Of one connection.

    Args:
        clock: the client's time, in ms since 1970.

    Attributes:
        next: the time at which :meth:`due` should be called at the latest; None for never.
    """

    __slots__ = ("_clock", "_waits", "next")

    def __init__(self, clock: Callable[[], int]) -> None:
        self._clock = clock
        self._waits: deque[_Wait] = deque()
        self.next: int | None = None

    def expect(
        self, sends: Sends, completion: Completion[Any] | None, now: int, timeout: int, sequence: int = 0
    ) -> None:
        """Set a timeout for a send or commit.

        Args:
            completion: settled with its fate; None of an asynchronous send.
            now: ms of the clock of :meth:`due`.
            timeout: how long it may take, in ms.
            sequence: of the send; 0 for a commit, and for a window to open.
        """
        waits = self._waits
        while waits and waits[0].over:
            waits.popleft()
        if completion is None or not completion.done:
            waits.append(_Wait(sends, completion, now + timeout, timeout, sequence, self._clock()))
            if self.next is None or now + timeout < self.next:
                self.next = now + timeout

    def jump(self, moved_at: int, milliseconds: int) -> None:
        """Leave their time to calls that began after a step of the clock that a WELCOME tells of (see TimeLimit)."""
        self._waits = deque(
            wait._replace(until=wait.until + milliseconds) if moved_at <= wait.began else wait for wait in self._waits
        )
        self.next = min((wait.until for wait in self._waits), default=None)

    def due(self, now: int) -> int | None:
        """End calls whose timeout has passed. Returns the next deadline, :attr:`next`."""
        if self.next is None or now < self.next:
            return self.next
        waits = [wait for wait in self._waits if not wait.over]
        self._waits = deque(wait for wait in waits if wait.until > now)
        self.next = min((wait.until for wait in self._waits), default=None)
        for wait in waits:
            if wait.until <= now:
                wait.sends.overdue(wait.completion, wait.timeout, wait.sequence)
        return self.next
