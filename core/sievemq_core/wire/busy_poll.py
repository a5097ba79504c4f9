"""Whether whoever waits for the peer looks again and again for a moment before it sleeps (decision 0022).

To wake a sleeping processor can take longer than all that a broker does for a message. So where an answer is likely to
come at once, its end of the connection looks whether it is there, and lets others have the processor between two looks.
What decides is here; who looks, and what time it is, is the rims' affair.

The last wait must have been short, so that the next one probably is. And looking must gain something: on a machine that
has more to do it may take from the peer the very processor that its answer needs. No rule knows that beforehand. So now
and then some waits are slept that would have been looked for, or the other way round, and what was faster is done. It
has to be so twice: a disk that has stalled once must not decide for the next thousand. What was decided lately is tried
again soon, since a connection's first waits are like no others.
"""

from __future__ import annotations

from typing import Final

__all__ = ["BUSY_POLL_US", "MAX_BUSY_POLL_US", "BusyPoll"]

#: Microseconds; a round trip through a broker that need not be woken takes less, on a slow machine, too, and where the
#: answer waits for a quick disk.
BUSY_POLL_US: Final = 600
MAX_BUSY_POLL_US: Final = 10_000

#: Waits of a round, and rounds between two in which the other way is tried, once nothing has changed for so long: every
#: 33rd wait is an experiment.
ROUND: Final = 32
ROUNDS: Final = 32

#: Looking must make waits shorter by a tenth, since it keeps a processor busy; or by as much as a tenth of 200 µs is: a
#: wait may have a sync in it, which gets no shorter.
_GAIN: Final = 0.1
_ENOUGH: Final = 20e-6 * ROUND

#: Seconds by which a wait may be longer than one looks and say anything about the next: what waking takes is in it.
_WAKING: Final = 200e-6
#: Longer waits count as if they were so many seconds longer than one looks: whoever gave the processor to others and
#: was kept from it must notice, and one long pause must not outweigh a whole round.
_FAR: Final = 800e-6


class BusyPoll:
    """How somebody waits, by how the last waits went.

    Args:
        microseconds: for how long one looks at most; 0 for never.

    Attributes:
        seconds: the same.
        worth: the next wait is to be looked for.
    """

    __slots__ = (
        "_between",
        "_doubted",
        "_far",
        "_left",
        "_looks",
        "_short",
        "_sum",
        "_trying",
        "_usual",
        "_waits",
        "seconds",
        "worth",
    )

    def __init__(self, microseconds: int) -> None:
        self.begin(microseconds)

    def begin(self, microseconds: int) -> None:
        """Wait for another peer: what is known of the last one says nothing of it.

        Args:
            microseconds: for how long one looks at most; 0 for never.
        """
        self.seconds = microseconds / 1e6
        self.worth = False
        self._short = self.seconds + _WAKING if microseconds else 0.0
        self._far = self.seconds + _FAR
        self._looks = microseconds > 0
        self._trying = self._doubted = False
        self._left = self._between = 1
        self._waits = 0
        self._sum = self._usual = 0.0

    def waited(self, seconds: float) -> None:
        """A wait took so long, looked for or slept."""
        self._sum += min(seconds, self._far)
        self._waits += 1
        if self._waits == ROUND:
            self._end_round()
        self.worth = self._looks and seconds < self._short

    def _end_round(self) -> None:
        took, self._sum, self._waits = self._sum, 0.0, 0
        if not self._trying:
            self._usual = took
            self._left -= 1
            if not self._left:
                self._looks, self._trying = not self._looks, True
            return
        looked, slept = (took, self._usual) if self._looks else (self._usual, took)
        better = (looked < slept - min(slept * _GAIN, _ENOUGH)) == self._looks
        if better and self._doubted:
            self._between = 1
        else:
            self._looks = not self._looks  # as before
        self._doubted = better and not self._doubted
        if not better:
            self._between = min(2 * self._between, ROUNDS)
        self._left = 1 if self._doubted else self._between
        self._trying = False
