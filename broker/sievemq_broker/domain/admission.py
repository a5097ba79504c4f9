"""Limits, the room that is left below them, and blocked senders.

At a limit with the rule "block" a message is accepted once there is room for it. Blocked senders queue for each place,
first come, first served; each round admits one message per sender.

Summing up a namespace on each send would slow down every send to every queue in it. So a sum also says how much more
may arrive (:class:`Gate`). Arrivals are subtracted from that, and a new sum is computed when it is used up. Departures
are not counted, so it is never more than the real room.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from typing import Final, Protocol

from sievemq_core.errors import ErrorCode, RequestError

#: Memory of a message beside its packed bytes: an entry, an envelope, its places in a view. Measured: 160 to 380.
MESSAGE_BYTES: Final = 256

UNLIMITED: Final = 2**62

#: The most full places that one pass tries; more take turns, so that a turn of the loop stays short.
LOOK_AT = 64

#: The most senders that one pass tries.
GO_ON = 500


class Limited(Protocol):
    """A place with a limit, such as a queue."""

    @property
    def has_room(self) -> bool:
        """True if blocked senders may go on."""

    @property
    def limit_text(self) -> str:
        """The limit and its place, as text for people."""


class Overfull:
    """A limit that a namespace or the broker has reached, or a full disk.

    Attributes:
        limit_text: names the limit, for people.
        refuses: sends are refused; otherwise their senders wait.
        limit: its name as in the details of errors.
        has_room: the limit is no longer reached.
    """

    __slots__ = ("has_room", "limit", "limit_text", "refuses")

    def __init__(self, limit_text: str, refuses: bool, limit: str) -> None:
        self.limit_text = limit_text
        self.refuses = refuses
        self.limit = limit
        self.has_room = False

    def end(self) -> None:
        self.has_room = True


class Gate:
    """The room that is left before the sum must be computed again.

    Args:
        look: computes the sum, for an arrival of so many messages and bytes. If there is room it calls :meth:`allow`
            with the rest; otherwise it returns the limit that they must wait for.

    Attributes:
        messages, bytes: the room that is left; bytes with :data:`MESSAGE_BYTES` for each message.
    """

    __slots__ = ("_look", "bytes", "messages")

    def __init__(self, look: Callable[[int, int], Overfull | None]) -> None:
        self._look = look
        self.messages = 0
        self.bytes = 0

    def allow(self, messages: int, size: int) -> None:
        """Set the room that is left until the next sum."""
        self.messages = messages
        self.bytes = size

    def enter(self, messages: int, size: int) -> Overfull | None:
        """Count messages that are about to arrive.

        Args:
            messages: how many; a topic's count once for each subscription.

        Returns:
            None; or the limit that is reached: then nothing was counted.

        Raises:
            RequestError: RESOURCE_ALLOCATION, there could never be room.
        """
        if messages > self.messages or size > self.bytes:
            return self._look(messages, size)
        self.messages -= messages
        self.bytes -= size
        return None

    def count(self, messages: int, size: int) -> None:
        """Count messages that arrive whether or not there is room, or only move."""
        self.messages -= messages
        self.bytes -= size


class NoRoomError(RequestError):
    """A message cannot be accepted now. A sender that can wait tries again when there is room.

    Args:
        text: for a sender that cannot wait.
    """

    def __init__(self, place: Limited, text: str, details: dict[str, object]) -> None:
        super().__init__(text, ErrorCode.RESOURCE_ALLOCATION, details)
        self.place = place


class Waiter(Protocol):
    """A blocked sender."""

    @property
    def load(self) -> tuple[int, int]:
        """Its messages, and their memory as :class:`Gate` counts it."""

    @property
    def kept(self) -> int:
        """Bytes of its message that are kept only for the wait (:meth:`Rooms.keep`)."""

    def room(self, place: Limited, now: int) -> bool:
        """`place` probably has room again: try once more.

        Returns:
            False if the room does not suffice. The sender waits on, and is the next to be tried.
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
        """Add a sender behind those that wait for the same place."""
        self.waiting.setdefault(place, {})[waiter] = None

    def leave(self, place: Limited, waiter: Waiter) -> None:
        waiters = self.waiting.get(place)
        if waiters is not None:
            waiters.pop(waiter, None)
            if not waiters:
                del self.waiting[place]

    def keep(self, size: int) -> None:
        """Count a message of so many bytes that waits outside its queue."""
        self.bytes += size

    def give_back(self, size: int) -> None:
        """A message no longer waits outside its queue."""
        self.bytes -= size

    def waiters_at(self, place: Limited) -> int:
        """The number of senders that wait for this place."""
        return len(self.waiting.get(place, ()))

    def load_of_first(self, place: Limited) -> tuple[int, int]:
        """The :attr:`Waiter.load` of the next blocked sender; zeros if there is none."""
        for waiter in self.waiting.get(place, ()):
            return waiter.load
        return 0, 0

    def kept_at(self, place: Limited) -> int:
        """Bytes of the messages that wait for this place, see :attr:`Waiter.kept`."""
        return sum([waiter.kept for waiter in self.waiting.get(place, ())])

    def look(self, now: int) -> None:
        """Let blocked senders whose places have room try again, a few in each turn."""
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
