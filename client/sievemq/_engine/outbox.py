"""What a client writes to a connection, in the order of its calls: sends, acknowledgements, requests; when sends are
written that no call waits for; and the answers, which arrive later."""

from __future__ import annotations

import itertools
import math
from collections import deque
from collections.abc import Callable, Container, Iterator, Sequence
from typing import Any, Final, Generic, Protocol, TypeAlias, TypeVar

from sievemq._engine.answers import check_answer
from sievemq.exceptions import IllegalStateException, JMSException
from sievemq_core.errors import ErrorCode
from sievemq_core.wire.codec import CommandTuple, pack
from sievemq_core.wire.commands import Command
from sievemq_core.wire.connection import WireConnection

T = TypeVar("T")

#: Requests of which it matters whether they were carried out.
_DOUBTFUL: Final = frozenset({Command.COMMIT, Command.ACKNOWLEDGE_ALL, Command.STAGE})
_DURABLE: Final = 9  # the field of OPEN_CONSUMER
_DELETING: Final = frozenset({Command.DELETE_TEMPORARY, Command.UNSUBSCRIBE})
_ACKNOWLEDGE: Final = int(Command.ACKNOWLEDGE)  # up to Python 3.11 looking up a member is a call
#: Consumers in one ACKNOWLEDGE_SEVERAL. Far below the limit of an array.
_SEVERAL: Final = 1_000
#: Seconds that acknowledgements alone may wait for company before they are written.
ACKNOWLEDGE_DELAY: Final = 0.005


Undo: TypeAlias = "Callable[[Completion[Any]], object]"


class Completion(Generic[T]):
    """The answer to a request, or the fate of a send; settled exactly once, with a value or an error.

    Callbacks run in the order they were added, inside the engine call that settles the completion (so, in a front with
    threads, under its engine lock): they must only wake a thread or hand the result on. An exception from outside, such
    as KeyboardInterrupt, may break into them: settling once more calls those that have not returned. So a callback may
    be called twice.

    Args:
        undo: takes back what the request has made, given this completion; None if it makes nothing.

    Attributes:
        request: number of the request; 0 if there is none.
    """

    __slots__ = ("_callbacks", "_undo", "_value", "done", "error", "request")

    def __init__(self, undo: Undo | None = None) -> None:
        self.done = False
        self.request = 0
        self._undo = undo
        self.error: Exception | None = None
        self._value: T | None = None
        self._callbacks: list[Callable[[Completion[T]], None]] | None = None

    def add_callback(self, callback: Callable[[Completion[T]], None]) -> None:
        if self.done:
            callback(self)
        elif self._callbacks is None:
            self._callbacks = [callback]
        else:
            self._callbacks.append(callback)

    def succeed(self, value: T) -> None:
        """Settle with a value. Has no effect on a completion that is settled already."""
        if not self.done:
            self._value = value
            self.done = True
        if self._callbacks:
            self.notify()

    def fail(self, error: Exception) -> None:
        """Settle with an error. Has no effect on a completion that is settled already."""
        if not self.done:
            self.error = error
            self.done = True
        if self._callbacks:
            self.notify()

    def result(self) -> T:
        """The value of a settled completion.

        Raises:
            Exception: what :meth:`fail` was given.
        """
        assert self.done, "a completion was asked for its result before it had one"
        if self.error is not None:
            raise self.error
        return self._value  # type: ignore[return-value]

    @property
    def has_effect(self) -> bool:
        """What the request makes is to be undone if its caller no longer waits."""
        return self._undo is not None

    def undo(self) -> None:
        """Take back what the request has made. It has succeeded, unless :meth:`Outbox.undo_lasting` calls this."""
        if self._undo is not None:
            self._undo(self)

    def requested_by(self, number: int) -> None:
        self.request = number

    def notify(self) -> None:
        """Call the callbacks of a settled completion that have not returned yet."""
        callbacks = self._callbacks
        if not callbacks:
            return
        self._callbacks = None  # a callback may call this again
        try:
            while callbacks:
                callbacks[0](self)
                del callbacks[0]
        except BaseException as error:
            self._callbacks = callbacks[1:] if isinstance(error, Exception) else callbacks  # a defect would occur again
            raise


def when_settled(completions: Sequence[Completion[Any]], then: Callable[[], None]) -> None:
    """Call something once all these completions have succeeded or failed; immediately if they have."""
    left = sum(not completion.done for completion in completions)
    if not left:
        then()

    def settled(_: Completion[Any]) -> None:
        nonlocal left
        left -= 1
        if not left:
            then()

    for completion in completions:
        if not completion.done:
            completion.add_callback(settled)


class Requests:
    """The requests of one connection.

    Attributes:
        pending: by number: the waiter for the answer, and the command.
        doubtful: those pending when a connection was lost of which it matters whether they were carried out.
        last: number of the last request.
        abandoned: those whose callers no longer wait, and whose effect is undone when they are answered.
    """

    __slots__ = ("_repeated", "_sent", "_wants", "abandoned", "doubtful", "last", "pending")

    def __init__(self) -> None:
        self.pending: dict[int, tuple[Completion[Any], CommandTuple]] = {}
        self.doubtful: list[int] = []
        self.last = 0
        self.abandoned: list[Completion[Any]] = []
        self._repeated: set[int] = set()  # sent once more; the first may have arrived
        self._wants: set[int] = set()  # numbers of those for a message
        self._sent = 0  # the last one that was sent before the connection was lost

    def make(self, completion: Completion[Any], kind: int, fields: tuple[object, ...]) -> bytes:
        """Create a request; the command, packed.

        Args:
            fields: behind its request number.
        """
        self.last = number = self.last + 1
        command = (kind, number, *fields)
        packed: bytes = pack(command)  # may fail: then there is no request
        completion.requested_by(number)
        self.pending[number] = completion, command
        if kind == Command.WANT:
            self._wants.add(number)
        return packed

    def expect(self, completion: Completion[Any], kind: int, *fields: object) -> int:
        """The answer to a command that is sent at once settles this; its number."""
        self.last = number = self.last + 1
        self.pending[number] = completion, (kind, number, *fields)
        return number

    def repeat(self, number: int, kind: int, fields: tuple[object, ...]) -> tuple[Completion[Any], bytes]:
        """Repeat a pending request that may have been sent before.

        Args:
            fields: behind its request number.

        Returns:
            What its answer settles, and the command, packed.
        """
        completion, _ = self.pending[number]
        command = (kind, number, *fields)
        self.pending[number] = completion, command
        self._repeated.add(number)
        return completion, pack(command)

    def succeed(self, number: int, result: object) -> None:
        """OK has arrived.

        Raises:
            ProtocolError: this is no answer to the request, which still waits for one.
        """
        entry = self.pending.get(number)
        if entry is not None:
            completion, said = entry
            check_answer(said[0], result)
            completion.succeed(result)
            self._forget(number)

    def fail(self, number: int, code: int, error: Exception) -> None:
        """ERROR has arrived."""
        entry = self.pending.get(number)
        if entry is None:
            return
        completion, said = entry
        if number in self._repeated and said[0] in _DELETING and code == ErrorCode.INVALID_DESTINATION:
            completion.succeed(None)  # it was carried out before the connection was lost
        else:
            completion.fail(error)
        self._forget(number)

    def _forget(self, number: int) -> None:
        """The answer was passed on. Not earlier: :meth:`finish` repeats what an interrupt left undone."""
        self.pending.pop(number, None)
        self._repeated.discard(number)
        self._wants.discard(number)

    def finish(self) -> None:
        """An interrupt may have broken into a call here: pass on each answer that has arrived."""
        for number, (completion, _) in tuple(self.pending.items()):
            if completion.done:
                completion.notify()
                self._forget(number)

    def doubt(self) -> None:
        """The connection is lost: requests that were sent may have been carried out."""
        self.doubtful += [number for number, (_, command) in self.pending.items() if command[0] in _DOUBTFUL]
        self._sent = self.last

    def take_doubtful(self) -> Iterator[tuple[int, tuple[Completion[Any], CommandTuple]]]:
        """Those of :attr:`doubtful` that still wait, each with its number; settle each before the next is taken."""
        for number in self.doubtful:
            entry = self.pending.get(number)
            if entry is not None:
                yield number, entry
                self._forget(number)
        self.doubtful = []

    def end_wants(self, consumers: Container[int]) -> None:
        """These consumers are closed: their calls that wait for a message return, whenever the broker answers."""
        for number in tuple(self._wants):
            completion, command = self.pending[number]
            if command[2] in consumers:
                completion.fail(IllegalStateException("the consumer is closed"))
                self._forget(number)

    def drop_abandoned(self) -> None:
        """The connection is lost: drop abandoned requests that were not sent, and those whose effect ends with it."""
        for number, (completion, command) in tuple(self.pending.items()):
            if completion in self.abandoned and (number > self._sent or _ends_with_connection(command)):
                completion.fail(JMSException("its caller no longer waits for it", "TIMEOUT"))
                self._forget(number)

    def end(self, error: Exception, goodbye: int = 0) -> None:
        """No answer will arrive any more: all requests fail, in the order in which they were made.

        Args:
            goodbye: number of the one that has what it wanted: an end.
        """
        for number, (completion, _) in tuple(self.pending.items()):
            if number == goodbye:
                completion.succeed(None)
            else:
                completion.fail(error)
            self._forget(number)


def _ends_with_connection(command: CommandTuple) -> bool:
    """True of a request whose effect ends with the connection."""
    return command[0] == Command.OPEN_SESSION or (command[0] == Command.OPEN_CONSUMER and not command[_DURABLE])


def _is_lasting(command: CommandTuple) -> bool:
    """True of a request that makes a tap or a durable subscription: its number suffices to undo it."""
    return command[0] == Command.OPEN_TAP or (command[0] == Command.OPEN_CONSUMER and bool(command[_DURABLE]))


class Unsettled(Protocol):
    """A consumer with something to acknowledge."""

    id: int

    def acknowledged(self) -> int | None:
        """The tag up to which it must be acknowledged; None if that was sent already."""


class Outbox:
    """Of one connection. It is open; or held, while the connection is repaired; or ended, when it is closed or lost.

    Attributes:
        wire: of the present transport.
        queue: packed commands, not yet in frames. A sender appends here without the lock (:meth:`put`).
        queued_bytes: about how many bytes of sends it holds; for deciding when to write, not exact with many senders.
        unsettled: consumers with something to acknowledge at the next write.
        requests: those that wait for an answer.
        hurried: something waits for the confirm of a NON_PERSISTENT message.
        repairing: held: the connection is lost and under repair; commands wait.
        failure: why the connection is lost beyond repair; None while it is not.
        cause: of the last outage; of the last attempt, while it is repaired; of a loss after GOODBYE.
        closing, closed: GOODBYE was sent; the connection was closed on purpose.
        on_exception: called with errors that no call can raise (EXL-03).
    """

    __slots__ = (
        "_acknowledges_several", "cause", "closed", "closing", "failure", "goodbye", "hurried", "on_exception", "queue",
        "queued_bytes", "repairing", "requests", "unsettled", "wire",
    )  # fmt: skip

    def __init__(self) -> None:
        self.wire = WireConnection("client")
        self.queue: deque[bytes] = deque()
        self.queued_bytes = 0
        self.unsettled: deque[Unsettled] = deque()
        self.requests = Requests()
        self.hurried = False
        self.repairing = self.closing = self.closed = False
        self.failure: JMSException | None = None
        self.cause: JMSException | None = None
        self.goodbye = 0  # number of the request, once it is sent
        self.on_exception: Callable[[Exception], None] | None = None
        self._acknowledges_several = False

    # -- state --------------------------------------------------------------------------------------------------------

    @property
    def usable(self) -> bool:
        """True until the connection is closed or lost beyond repair."""
        return self.failure is None and not self.closed

    @property
    def ended(self) -> bool:
        """Nothing more may be sent."""
        return self.failure is not None or self.closing or self.closed

    def check_open(self) -> None:
        """Raise unless the connection can be used.

        Raises:
            IllegalStateException: it is closed (CLO-16).
            JMSException: it is lost.
        """
        if self.closed or self.closing:
            raise IllegalStateException("the connection is closed")
        if self.failure is not None:
            # A new exception each time: a traceback belongs to one raise.
            raise JMSException(str(self.failure), self.failure.get_error_code(), self.failure.get_linked_exception())

    def report(self, error: Exception) -> None:
        """Report an error that no call can raise."""
        if self.on_exception is not None:
            self.on_exception(error)

    def listen(self, on_exception: Callable[[Exception], None] | None) -> None:
        """Set the callable for errors that no call can raise; None for none."""
        self.on_exception = on_exception

    # -- saying something ---------------------------------------------------------------------------------------------

    def put(self, packed: bytes, size: int) -> None:
        """Queue a send of this size. Needs no lock."""
        self.queue.append(packed)
        self.queued_bytes += size

    def put_again(self, packed: list[bytes]) -> None:
        """Queue sends that the broker did not take."""
        self.queue.extend(packed)

    def hurry(self) -> None:
        """Something waits for the confirm of a NON_PERSISTENT message. Needs no lock."""
        self.hurried = True

    def append(self, command: CommandTuple) -> None:
        """Queue a command that is not answered."""
        if self.failure is None and not self.closing and not self.repairing:
            self.queue.append(pack(command))

    def request(
        self,
        number: int,
        *fields: object,
        answer: Completion[Any] | None = None,
        undo: Undo | None = None,
    ) -> Completion[Any]:
        """Queue a command that is answered by OK or ERROR. Acknowledgements that wait go out before it.

        Args:
            fields: behind its request number.
            answer: what its answer settles; None for a new one.
            undo: takes back what it makes, see :class:`Completion` and :meth:`abandon`.
        """
        completion: Completion[Any] = Completion(undo) if answer is None else answer
        if self.ended:
            completion.fail(self.failure or IllegalStateException("the connection is closed"))
            return completion
        self.pack_acknowledgements()
        packed = self.requests.make(completion, number, fields)
        if not self.repairing:  # else it is sent behind WELCOME
            self.queue.append(packed)
        return completion

    def abandon(self, completion: Completion[Any]) -> None:
        """The caller of a request no longer waits: it was cancelled or interrupted, or its time is over, which is not
        the broker's answer. What the request makes is undone when it is answered (D-42). If the connection is lost
        before, and what the request makes outlives it, the request is repeated for that."""
        requests = self.requests
        if not completion.has_effect or completion in requests.abandoned:
            return
        requests.abandoned.append(completion)
        completion.add_callback(self._undo)
        if self.repairing:
            requests.drop_abandoned()

    def abandon_since(self, number: int) -> None:
        """An exception from outside broke into a call: its requests have no caller.

        Args:
            number: of the last request before the call.
        """
        for at, (completion, _) in tuple(self.requests.pending.items()):
            if at > number:
                self.abandon(completion)

    def _undo(self, completion: Completion[Any]) -> None:
        abandoned = self.requests.abandoned
        if completion in abandoned:
            if completion.error is None and not self.ended:
                completion.undo()
            abandoned.remove(completion)  # last: if an interrupt breaks into it, it is undone again

    def undo_lasting(self) -> None:
        """The connection is about to be closed: undo what abandoned requests may have made and outlives it. The answers
        need not be awaited, since the broker carries out commands in order."""
        requests = self.requests
        for completion in tuple(requests.abandoned):
            entry = requests.pending.get(completion.request)
            if entry is not None and _is_lasting(entry[1]):
                completion.undo()

    def undone(self) -> Completion[None]:
        """Settled once every abandoned request is answered, and undone: commands from then on find nothing of it."""
        completion: Completion[None] = Completion()
        when_settled(tuple(self.requests.abandoned), lambda: completion.succeed(None))
        return completion

    def pack_acknowledgements(self) -> None:
        """Queue what consumers have to acknowledge, unless the connection is being repaired."""
        if self.repairing or not self.unsettled:
            return
        unsettled = self.unsettled
        pairs: list[tuple[int, int]] = []
        while unsettled:
            consumer = unsettled[0]
            done = consumer.acknowledged()
            unsettled.popleft()  # behind it: an interrupt must not leave one out that counts as being here
            if done is not None:
                pairs.append((consumer.id, done))
        if self.failure is not None or self.closing:
            return
        append = self.queue.append
        if len(pairs) > 1 and self._acknowledges_several:
            for start in range(0, len(pairs), _SEVERAL):
                flat = [*itertools.chain.from_iterable(pairs[start : start + _SEVERAL])]
                append(pack((Command.ACKNOWLEDGE_SEVERAL, flat)))
        else:
            for number, tag in pairs:
                append(pack((_ACKNOWLEDGE, number, tag, 0)))

    # -- writing ------------------------------------------------------------------------------------------------------

    def data_to_send(self) -> bytes:
        """What is to be written now: everything queued since the last call, acknowledgements included (D-25)."""
        if not self.closing and not self.repairing:  # after GOODBYE, and before WELCOME, nothing else may be sent
            if self.hurried:
                self.hurried = False
                self.request(Command.PING)
            if self.unsettled:
                self.pack_acknowledgements()
            if self.queue:
                self._gather()
        return self.wire.data_to_send()

    def _gather(self) -> None:
        self.queued_bytes = 0
        # As many as there are now, one by one in C: senders append meanwhile, without the lock.
        self.wire.send_all([*itertools.starmap(self.queue.popleft, itertools.repeat((), len(self.queue)))])

    @property
    def has_output(self) -> bool:
        """Something waits for :meth:`data_to_send`. May be read without the lock."""
        return bool(self.wire.pending_bytes or (not self.repairing and (self.queue or self.unsettled or self.hurried)))

    @property
    def urgent(self) -> bool:
        """The output holds more than acknowledgements: answers to the broker, requests or sends."""
        return bool(self.wire.pending_bytes or ((self.queue or self.hurried) and not self.repairing))

    # -- loss, repair, end --------------------------------------------------------------------------------------------

    def welcome(self, features: dict[str, Any]) -> None:
        self._acknowledges_several = features.get("acknowledge_several") is True

    def lose(self, cause: JMSException | None) -> None:
        """The transport is lost, or about to be replaced: what was queued for it is void.

        Args:
            cause: why; None where that is known.
        """
        if cause is not None:
            self.cause = cause
        self.wire = WireConnection("client")

    def continue_with(self, wire: WireConnection) -> None:
        """There is another transport, on which the client was welcomed."""
        self.wire = wire

    def blame(self, cause: JMSException) -> None:
        """An attempt to repair the connection has failed."""
        self.cause = cause

    def hold(self) -> None:
        """The connection is repaired from here on: what was sent may have been carried out."""
        self.repairing = True
        self.requests.doubt()
        self.requests.drop_abandoned()

    def send_first(self, kind: int, *fields: object, number: int | None = None) -> Completion[Any]:
        """Send a request before anything that waits in the queue, while the connection is restored.

        Args:
            fields: behind its request number.
            number: of a request that waits already, and may have been sent before; None for a new one.
        """
        requests = self.requests
        completion: Completion[Any] = Completion()
        if number is None:
            packed = requests.make(completion, kind, fields)
        else:
            completion, packed = requests.repeat(number, kind, fields)
        self.wire.send_packed(packed)
        return completion

    def clear(self) -> None:
        self.queue.clear()
        self.queued_bytes = 0

    def resume(self) -> None:
        self.repairing = False

    def fail(self, error: JMSException) -> None:
        """The connection is lost beyond repair. Pending requests fail with :meth:`end_requests`."""
        self.failure = error
        self.repairing = False
        self.clear()
        self.unsettled.clear()

    def send_goodbye(self, handed: tuple[int, ...], done: Completion[Any]) -> None:
        """Write everything that waits, then GOODBYE (D-26)."""
        self.goodbye = number = self.requests.expect(done, Command.GOODBYE, handed)
        self.wire.send(Command.GOODBYE, number, handed)
        self.closing = True

    def flush(self) -> None:
        """Move everything that waits to the wire."""
        self.pack_acknowledgements()
        self._gather()

    def close(self) -> None:
        """The connection is closed on purpose."""
        self.closed = True
        self.clear()

    def end_requests(self, error: Exception) -> None:
        """No answer will arrive any more. GOODBYE succeeds, since the connection has ended."""
        self.requests.end(error, self.goodbye)


# -- when sends are written --------------------------------------------------------------------------------------------

#: Each send is written by itself as long as the time between two such writes is so many times that of a write ...
_ALONE: Final = 4
#: ... and behind the first send after a rest, so many more are too.
_AHEAD: Final = 3
#: Seconds that sends are gathered for in a flood: if _MANY or more come in that time. It is not only this end to which
#: a write costs something: with a quarter of it, broker and consumers need a tenth more time for each message.
#: Without a flood, sends that are not written alone are gathered for the time of _ALONE writes.
SEND_DELAY: Final = 0.001
_MANY: Final = 64
#: A flood that has lasted goes on after a pause of nearly so many SEND_DELAYs: its sender may have lost its processor.
_LASTING: Final = 32.0
#: Seconds that a write is expected to take before one was measured.
_FIRST: Final = 10e-6


class Pace:
    """How writes follow each other on a connection, on a clock in seconds that never goes back.

    A write costs hardly more with many messages than with one. So what counts is the time that would have been left if
    each message had been written by itself: while there is some, a send is written at once, else it is gathered, in a
    flood for longer.

    Attributes:
        due: from when on a send is written as soon as it is queued. Never, while a write is under way.
        written: when the last write was done.
    """

    __slots__ = ("_begun", "_cost", "_flood", "_left", "_sends", "_since", "due", "written")

    def __init__(self) -> None:
        self.due = self.written = self._begun = self._since = -math.inf
        #: Seconds of a write. It falls faster than it rises, since a thread may lose its processor in a write.
        self._cost = _FIRST
        self._left = 0.0  # seconds that writes may still take
        self._flood = 0.0  # sends beyond _MANY in each SEND_DELAY
        self._sends = 0

    def begin(self, now: float, sends: int) -> None:
        """A write begins.

        Args:
            now: seconds.
            sends: how many it contains.
        """
        self._begun, self.due = now, math.inf
        self._sends += sends

    def end(self, now: float) -> None:
        """All that was to be written is written."""
        took, cost = now - self._begun, self._cost
        cost += (took - cost) / 4 if took < cost else min(took - cost, cost / 16)
        self._cost = cost
        alone, passed = _ALONE * cost, self._begun - self._since
        left = self._left + passed - self._sends * alone
        flood = self._flood + self._sends - passed * (_MANY / SEND_DELAY)
        self._flood = flood = min(max(flood, 0.0), _LASTING * _MANY)
        if left > 0.0:
            self._left = left if left < _AHEAD * alone else _AHEAD * alone
            self.due = now
        else:
            self._left = left if left > -alone else -alone
            self.due = now + (SEND_DELAY if flood > _MANY else min(alone, SEND_DELAY))
        self._sends = 0
        self._since = self.written = now

    def waited(self, now: float) -> None:
        """A sender has waited for the broker to take what it sent. It was no rest: it would have sent more."""
        self._left, self._since = min(self._left, 0.0), now
