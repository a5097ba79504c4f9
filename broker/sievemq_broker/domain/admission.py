"""What decides whether a message may come in: limits, what is left below them, and the senders that wait for room.

At a limit whose rule says "block" a message is not taken before there is room for it. Senders that wait for a place are
asked in the order in which they came, one message each; a sender that comes meanwhile stands behind them.

A namespace's sum on each send would cost every send of every queue in it. So whatever adds up how much there is says
how much more may come (:class:`Gate`). That is counted down here, and added up anew when it is used up. What goes
meanwhile is not counted, so what is left is never more than there is room.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from typing import Final, Protocol

from sievemq_core.errors import ErrorCode, RequestError

__all__ = [
    "GO_ON",
    "MESSAGE_BYTES",
    "UNLIMITED",
    "Gate",
    "Limited",
    "NoRoomError",
    "Overfull",
    "Rooms",
    "Waiter",
]

#: What a message takes beside its packed bytes: an entry, an envelope, its places in a view. Measured: 160 to 380.
MESSAGE_BYTES: Final = 256

UNLIMITED: Final = 2**62

#: Full places that one look asks. More of them take turns, so that a turn stays short.
LOOK_AT = 64

#: Senders that are considered in one pass.
GO_ON = 500


class Limited(Protocol):
    """A place with a limit, such as a queue."""

    @property
    def has_room(self) -> bool:
        """True if its senders may go on."""

    @property
    def limit_text(self) -> str:
        """Which limit of which place this is, for people."""


class Overfull:
    """A namespace, or the broker, that is at its limit, or a disk that is full, as long as it is.

    Attributes:
        limit_text: which limit, for people.
        refuses: sends are refused; otherwise their senders wait.
        has_room: it is not at its limit any more.
    """

    __slots__ = ("has_room", "limit_text", "refuses")

    def __init__(self, limit_text: str, refuses: bool) -> None:
        self.limit_text = limit_text
        self.refuses = refuses
        self.has_room = False

    def end(self) -> None:
        """It is not at its limit any more."""
        self.has_room = True


class Gate:
    """What may still come in before the sum must be computed again.

    Args:
        look: adds up what is there, as so many messages and bytes want to come in; if there is room sets both anew for
            what is left behind them, else answers what they are to wait for.

    Attributes:
        messages, bytes: that may come; bytes with :data:`MESSAGE_BYTES` for each message.
    """

    __slots__ = ("_look", "bytes", "messages")

    def __init__(self, look: Callable[[int, int], Overfull | None]) -> None:
        self._look = look
        self.messages = 0
        self.bytes = 0

    def allow(self, messages: int, size: int) -> None:
        """So much may come in from now on before it is added up anew."""
        self.messages = messages
        self.bytes = size

    def enter(self, messages: int, size: int) -> Overfull | None:
        """Count what is about to come in.

        Args:
            messages: how many, a topic's for each that gets them.
            size: of all of them, with :data:`MESSAGE_BYTES` for each.

        Returns:
            None; or what is at its limit: then nothing was counted.

        Raises:
            RequestError: RESOURCE_ALLOCATION, it could never come in.
        """
        if messages > self.messages or size > self.bytes:
            return self._look(messages, size)
        self.messages -= messages
        self.bytes -= size
        return None

    def count(self, messages: int, size: int) -> None:
        """Count what comes in whether there is room or not, or only moves."""
        self.messages -= messages
        self.bytes -= size


class NoRoomError(RequestError):
    """A message may not come in now; a sender that can wait says it again when there is room.

    Args:
        place: that has no room.
        text: for who cannot wait.
        details: for programs.
    """

    def __init__(self, place: Limited, text: str, details: dict[str, object]) -> None:
        super().__init__(text, ErrorCode.RESOURCE_ALLOCATION, details)
        self.place = place


class Waiter(Protocol):
    """A sender that waits."""

    @property
    def load(self) -> tuple[int, int]:
        """Messages that it has, and the memory they take as :class:`Gate` counts it."""

    @property
    def kept(self) -> int:
        """Bytes of its message that only the wait keeps (:meth:`Rooms.keep`)."""

    def room(self, place: Limited, now: int) -> bool:
        """`place` has room again, as far as is known: try once more.

        Returns:
            False if it has none for this one, who then waits on and is the next to be asked.
        """


class Rooms:
    """Blocked senders by place.

    Attributes:
        waiting: by place, in the order in which they came.
        bytes: of the messages that wait outside their queues, one for each sender.
    """

    __slots__ = ("bytes", "waiting")

    def __init__(self) -> None:
        self.waiting: dict[Limited, dict[Waiter, None]] = {}
        self.bytes = 0

    def wait(self, place: Limited, waiter: Waiter) -> None:
        """Queue `waiter` for room in `place`, behind the senders that wait already."""
        self.waiting.setdefault(place, {})[waiter] = None

    def leave(self, place: Limited, waiter: Waiter) -> None:
        """`waiter` does not wait any longer."""
        waiters = self.waiting.get(place)
        if waiters is not None:
            waiters.pop(waiter, None)
            if not waiters:
                del self.waiting[place]

    def keep(self, size: int) -> None:
        """A message of so many bytes waits outside its queue."""
        self.bytes += size

    def give_back(self, size: int) -> None:
        """It waits no longer."""
        self.bytes -= size

    def waiters_at(self, place: Limited) -> int:
        """How many senders wait for this place."""
        return len(self.waiting.get(place, ()))

    def load_of_first(self, place: Limited) -> tuple[int, int]:
        """The :attr:`Waiter.load` of the next blocked sender; nothing if none waits there."""
        for waiter in self.waiting.get(place, ()):
            return waiter.load
        return 0, 0

    def kept_at(self, place: Limited) -> int:
        """Bytes of the messages that wait for this place, see :attr:`Waiter.kept`."""
        return sum([waiter.kept for waiter in self.waiting.get(place, ())])

    def look(self, now: int) -> None:
        """Ask those whose place has room, a few at a time: to take what they have is work."""
        waiting = self.waiting
        many = len(waiting) > LOOK_AT
        asked = 0
        for place in tuple(islice(waiting, LOOK_AT)):
            if place.has_room:
                for waiter in tuple(waiting.get(place, ())):
                    asked += 1
                    if asked > GO_ON:
                        return
                    if not waiter.room(place, now):
                        break
            if many and place in waiting:
                waiting[place] = waiting.pop(place)  # behind the others
