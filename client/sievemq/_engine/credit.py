"""How many messages a consumer may hold: the prefetch window and when to widen or narrow it (D-23).

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


class PrefetchWindow:
    """The window of one consumer.

    Args:
        prefetch: messages, fixed; None for an adaptive window.
        received_bytes: returns how many bytes have come from the broker.

    Attributes:
        bytes: that may be held; 0 for no limit.
        received: as above.
        used_up_at: when that returns so many, the broker may withhold credit.
        size: messages that may be held.
        half: messages after which credit is granted again.
    """

    __slots__ = ("adaptive", "bytes", "half", "received", "size", "used_up_at")

    def __init__(self, prefetch: int | None, received_bytes: Callable[[], int]) -> None:
        self.adaptive = prefetch is None
        self.bytes = WINDOW_BYTES if self.adaptive else 0
        self.received, self.used_up_at = received_bytes, self.bytes or maxsize
        self.set(FIRST_WINDOW if prefetch is None else min(prefetch, MAX_CREDIT))

    def set(self, size: int) -> None:
        self.size = size
        self.half = max(1, size // 2)

    def begin(self) -> None:
        """Credit is granted, or a WANT sent: so many bytes may arrive from now on."""
        if self.bytes:
            self.used_up_at = self.received() + self.bytes

    def widen(self, average_bytes: int) -> None:
        """The consumer waited for the way to the broker; `average_bytes` is the size of a message of late."""
        if self.adaptive:
            bound = max(2, min(MAX_WINDOW, WINDOW_BYTES // max(1, average_bytes)))
            self.set(min(self.size * 2, bound))

    def narrow(self) -> None:
        """Another consumer waits for messages that this one holds."""
        if self.adaptive:
            self.set(max(2, self.size // 2))
