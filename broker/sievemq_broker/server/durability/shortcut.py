"""May the loop's thread write a batch itself? The way to a writer's thread and back takes as long as a quick sync.

The loop stands still meanwhile, so only where that is short and nobody misses it (docs/decisions/0023):

- it is one write to a file and its sync, nothing besides;
- one client or two wait for it, as where sends wait for their confirms one at a time;
- writes are quick these days;
- none has just stalled. For one that did others write on the thread, STALL_SHARE times as long as it took: stalls take
  up no more than that share of the loop's time, however long they are and however often they come;
- no other work had come while the last one was under way.
"""

from __future__ import annotations

from typing import Final

__all__ = ["CROWD_SECONDS", "QUICK_SECONDS", "STALL_SECONDS", "STALL_SHARE", "Shortcut"]

#: What writes may take as a rule. Where they take longer the thread hardly matters.
QUICK_SECONDS: Final = 0.002

#: What a turn of the loop may take. A write that took longer has stalled.
STALL_SECONDS: Final = 0.01

#: Of the loop's time, that stalls may take: one part in so many.
STALL_SHARE: Final = 20

#: For how long the thread writes after work was found waiting.
CROWD_SECONDS: Final = 0.02

#: How much of what is known of writes is known from the last one.
_WEIGHT: Final = 1 / 16

#: Links that may wait for a batch.
_LINKS: Final = 2


class Shortcut:
    """Knows how long writes have taken.

    Attributes:
        taken: how often it was.
    """

    __slots__ = ("_from", "_typical", "taken")

    def __init__(self) -> None:
        self._from = 0.0
        self._typical = STALL_SECONDS  # nothing is known yet
        self.taken = 0

    def is_open(self, links: int, now: float) -> bool:
        """True if the loop's thread may write.

        Args:
            links: that wait for it.
            now: seconds of any steady clock.
        """
        return self._typical <= QUICK_SECONDS and 0 < links <= _LINKS and now >= self._from

    def wrote(self, seconds: float, now: float) -> None:
        """A write took so long, on whichever thread.

        Args:
            seconds: it took.
            now: seconds of the same clock.
        """
        self._typical += (min(seconds, STALL_SECONDS) - self._typical) * _WEIGHT
        if seconds > STALL_SECONDS:
            self._from = max(self._from, now + seconds * STALL_SHARE)

    def failed(self) -> None:
        """A write did not succeed: nothing is known any more."""
        self._typical = STALL_SECONDS

    def crowded(self, now: float) -> None:
        """Work had come while the loop's thread wrote.

        Args:
            now: seconds of the same clock.
        """
        self._from = max(self._from, now + CROWD_SECONDS)
