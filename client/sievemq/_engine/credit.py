"""How many messages the broker may send to a consumer: the prefetch window, and what is granted of it (D-23).

A consumer may hold `window` messages that the application has not taken, on their way or in its buffer. Credit is
granted in halves: once half a window has been taken, the broker may send that many again while the application works
on the other half.

An adaptive window starts small, so that an idle consumer parks little. It is bounded in bytes too, so that huge
messages do not fill the memory: after so many the broker withholds the rest of the credit until the next grant or WANT.

It doubles when the application has to wait although it took half a window since it last waited: then what it waits for
is the way to the broker, and not the producers. It halves when the broker recalls messages: another consumer waits for
them.
"""

from __future__ import annotations

from collections.abc import Callable
from sys import maxsize
from typing import Final

from sievemq_core.limits import MAX_CREDIT

#: Messages at first: a few round trips' worth for a handler that takes 100 µs.
FIRST_WINDOW: Final = 32
#: Messages at most: on two busy cores the broker may not run for tens of milliseconds, thousands of messages at full
#: speed. What a window costs is bounded in bytes, below.
MAX_WINDOW: Final = MAX_CREDIT
#: Bytes that an adaptive window may hold. It is widened by the average size of messages, and the broker counts them.
WINDOW_BYTES: Final = 4 * 1024 * 1024


class Credit:
    """The window of one consumer, and the credit that the broker has.

    The count of messages taken is an argument: the receiving thread counts them, without a lock.

    Args:
        prefetch: messages, fixed; None for an adaptive window.
        received_bytes: returns how many bytes have come from the broker.
        average_bytes: returns the size of a message of late.

    Attributes:
        adaptive: the window is.
        bytes: that may be held; 0 for no limit.
        size: messages that may be held.
        half: messages after which credit is granted again.
        granted: messages that the broker may have sent, since the last :meth:`reset`.
        released: messages of these that went back before they were taken.
        received: as the argument.
        used_up_at: when that returns so many, the broker may withhold credit.
        mark: when so many are taken, :meth:`refill` is due.
    """

    __slots__ = (
        "_average", "adaptive", "bytes", "granted", "half", "mark", "received", "released", "size", "used_up_at",
    )  # fmt: skip

    def __init__(
        self, prefetch: int | None, received_bytes: Callable[[], int], average_bytes: Callable[[], int]
    ) -> None:
        self.adaptive = prefetch is None
        self.bytes = WINDOW_BYTES if self.adaptive else 0
        self.received, self._average = received_bytes, average_bytes
        self.used_up_at = self.bytes or maxsize
        self.granted = self.released = self.mark = 0
        self.set(FIRST_WINDOW if prefetch is None else min(prefetch, MAX_CREDIT))

    # -- the window ---------------------------------------------------------------------------------------------------

    def set(self, size: int) -> None:
        self.size = size
        self.half = max(1, size // 2)

    def widen(self) -> None:
        """The consumer waited for the way to the broker."""
        if self.adaptive:
            bound = max(2, min(MAX_WINDOW, WINDOW_BYTES // max(1, self._average())))
            self.set(min(self.size * 2, bound))

    def narrow(self) -> None:
        """Another consumer waits for messages that this one holds."""
        if self.adaptive:
            self.set(max(2, self.size // 2))

    # -- what is granted ----------------------------------------------------------------------------------------------

    def open(self, taken: int, messages: int) -> None:
        """The consumer is opened with so much credit."""
        self.count_bytes()
        self.granted = taken + self.released + messages
        self.mark = taken + self.half if messages else 0

    def refill(self, taken: int, ran_dry: bool) -> int:
        """Grant what the window allows.

        Args:
            taken: messages taken.
            ran_dry: the consumer waited for the way to the broker: the window is widened.

        Returns:
            Messages to grant; if it is not positive, none.
        """
        if ran_dry:
            self.widen()
        room = self.size + taken + self.released - self.granted
        self.mark = taken + self.half
        if room > 0:
            self.granted += room
            if self.bytes:  # as count_bytes(), without a call
                self.used_up_at = self.received() + self.bytes
        return room

    def lend(self) -> None:
        """A WANT without credit counts as a credit of one."""
        self.granted += 1

    def release(self, messages: int) -> None:
        """Messages went back that another consumer waits for."""
        self.released += messages
        if messages:
            self.narrow()

    def count_bytes(self) -> None:
        """Credit is granted, or a WANT sent: so many bytes may arrive from now on."""
        if self.bytes:
            self.used_up_at = self.received() + self.bytes

    def reset(self) -> None:
        """The broker took back all messages, and all credit."""
        self.granted = self.released = self.mark = 0
