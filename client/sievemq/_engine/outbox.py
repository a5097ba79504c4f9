"""What a client says on a connection: sends, acknowledgements and requests, in the order of their calls."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, Final, Protocol

from sievemq._engine.completion import Completion
from sievemq._engine.requests import Requests
from sievemq.exceptions import IllegalStateException, JMSException
from sievemq_core.wire.codec import CommandTuple, pack
from sievemq_core.wire.commands import Command
from sievemq_core.wire.connection import WireConnection

__all__ = ["Outbox", "Unsettled"]

#: Numbers in one ACKNOWLEDGE_SEVERAL: consumers and tags in turn. Far below the limit of an array.
_SEVERAL: Final = 2_000


class Unsettled(Protocol):
    """A consumer with something to acknowledge."""

    id: int

    def acknowledged(self) -> int | None:
        """Up to which tag; None if that was said already."""


class Outbox:
    """Of one connection. It is open; or held, while the connection is repaired; or ended, lost for good or closed.

    Attributes:
        wire: of the present transport.
        queue: packed commands, not yet in frames. A sender appends here without the lock (:meth:`put`).
        queued_bytes: about how many bytes of sends it holds; for deciding when to write, not exact with many senders.
        unsettled: consumers with something to acknowledge at the next write.
        requests: those that wait for an answer.
        hurried: something waits for the confirm of a NON_PERSISTENT message.
        repairing: held: the connection is lost and under repair; commands wait.
        failure: why the connection is lost for good; None as long as it is not.
        cause: of the last outage; of the last attempt, while it is repaired; of a loss after GOODBYE.
        closing, closed: GOODBYE was said; the connection was closed on purpose.
        on_exception: called with what has no other place to be reported (EXL-03).
    """

    __slots__ = (
        "_acknowledges_several",
        "cause",
        "closed",
        "closing",
        "failure",
        "goodbye",
        "hurried",
        "on_exception",
        "queue",
        "queued_bytes",
        "repairing",
        "requests",
        "unsettled",
        "wire",
    )

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
        """Neither lost for good nor closed."""
        return self.failure is None and not self.closed

    @property
    def ended(self) -> bool:
        """Nothing more may be said."""
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
        """Report what has no other place to be reported."""
        if self.on_exception is not None:
            self.on_exception(error)

    def listen(self, on_exception: Callable[[Exception], None] | None) -> None:
        """Call this with what has no other place to be reported; None: nothing."""
        self.on_exception = on_exception

    # -- saying something ---------------------------------------------------------------------------------------------

    def put(self, packed: bytes) -> None:
        """Queue a send. Needs no lock."""
        self.queue.append(packed)
        self.queued_bytes += len(packed)

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

    def request(self, number: int, *fields: object) -> Completion[Any]:
        """Queue a command that is answered by OK or ERROR. Acknowledgements that wait go out before it."""
        completion: Completion[Any]
        if self.ended:
            completion = Completion()
            completion.fail(self.failure or IllegalStateException("the connection is closed"))
            return completion
        self.pack_acknowledgements()
        completion, packed = self.requests.make(number, fields)
        if not self.repairing:  # else it is sent behind WELCOME
            self.queue.append(packed)
        return completion

    def pack_acknowledgements(self) -> None:
        """Queue what consumers have to acknowledge, unless the connection is being repaired."""
        if self.repairing or not self.unsettled:
            return
        unsettled = self.unsettled
        pairs: list[int] = []
        while unsettled:
            consumer = unsettled[0]
            done = consumer.acknowledged()
            unsettled.popleft()  # behind it: an interrupt must not leave one out that counts as being here
            if done is not None:
                pairs += (consumer.id, done)
        if self.failure is not None or self.closing:
            return
        append, count = self.queue.append, len(pairs)
        if count > 2 and self._acknowledges_several:
            for start in range(0, count, _SEVERAL):
                append(pack((Command.ACKNOWLEDGE_SEVERAL, pairs[start : start + _SEVERAL])))
        else:
            for at in range(0, count, 2):
                append(pack((Command.ACKNOWLEDGE, pairs[at], pairs[at + 1], 0)))

    # -- writing ------------------------------------------------------------------------------------------------------

    def data_to_send(self) -> bytes:
        """What is to be written now: everything said since the last call, acknowledgements included (D-25)."""
        if not self.closing and not self.repairing:  # after GOODBYE, and before WELCOME, nothing else may be said
            if self.hurried:
                self.hurried = False
                self.request(Command.PING)
            if self.unsettled:
                self.pack_acknowledgements()
            if self.queue:
                self._gather()
        return self.wire.data_to_send()

    def _gather(self) -> None:
        """Move the queue to the wire, which makes frames of it."""
        self.queued_bytes = 0
        take = self.queue.popleft
        self.wire.send_all([take() for _ in range(len(self.queue))])

    @property
    def has_output(self) -> bool:
        """Something waits for :meth:`data_to_send`. May be read without the lock."""
        return bool(self.wire.pending_bytes or (not self.repairing and (self.queue or self.unsettled or self.hurried)))

    @property
    def urgent(self) -> bool:
        """What waits is more than acknowledgements: answers to the broker, requests, sends."""
        return bool(self.wire.pending_bytes or ((self.queue or self.hurried) and not self.repairing))

    # -- loss, repair, end --------------------------------------------------------------------------------------------

    def welcome(self, features: dict[str, Any]) -> None:
        """WELCOME has come."""
        self._acknowledges_several = features.get("acknowledge_several") is True

    def lose(self, cause: JMSException | None) -> None:
        """The transport is lost, or about to be replaced: what it wanted to say is void.

        Args:
            cause: why; None where that is known.
        """
        if cause is not None:
            self.cause = cause
        self.wire = WireConnection("client")

    def blame(self, cause: JMSException) -> None:
        """An attempt to repair the connection has failed."""
        self.cause = cause

    def hold(self) -> None:
        """The connection is repaired from here on: what was said may have been carried out."""
        self.repairing = True
        self.requests.doubt()

    def say_first(self, kind: int, *fields: object, number: int | None = None) -> Completion[Any]:
        """Say a request before anything that waits in the queue, while the connection is restored.

        Args:
            kind: of the command.
            fields: behind its request number.
            number: of a request that waits already, and may have been said before; None for a new one.
        """
        requests = self.requests
        completion, packed = requests.make(kind, fields) if number is None else requests.repeat(number, kind, fields)
        self.wire.send_packed(packed)
        return completion

    def clear(self) -> None:
        """Drop what is queued."""
        self.queue.clear()
        self.queued_bytes = 0

    def resume(self) -> None:
        """The connection is repaired."""
        self.repairing = False

    def fail(self, error: JMSException) -> None:
        """The connection is lost for good. What waits for answers fails with :meth:`end_requests`."""
        self.failure = error
        self.repairing = False
        self.clear()
        self.unsettled.clear()

    def say_goodbye(self, handed: tuple[int, ...], done: Completion[Any]) -> None:
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
        """No answer will come any more, but to GOODBYE, which has what it wanted."""
        self.requests.end(error, self.goodbye)
