"""Whether a wait for the peer polls for a moment before it blocks (decision 0022).

Waking a sleeping processor can take longer than all that a broker does for a message. What decides is here; polling and
the time belong to the rims.
"""

from __future__ import annotations

from typing import Final

__all__ = ["BUSY_POLL_US", "MAX_BUSY_POLL_US", "BusyPoll"]

#: Microseconds that both ends poll by default.
BUSY_POLL_US: Final = 600
MAX_BUSY_POLL_US: Final = 10_000

#: Seconds by which a wait may be longer than the polling, so that the next one polls: waking is part of it.
_WAKING: Final = 200e-6


class BusyPoll:
    """Polling of one end of a connection, by how long the last wait took.

    Args:
        microseconds: to poll at most; 0 for never.

    Attributes:
        seconds: the same.
        worth: the next wait polls.
    """

    __slots__ = ("_short", "seconds", "worth")

    def __init__(self, microseconds: int) -> None:
        self.begin(microseconds)

    def begin(self, microseconds: int) -> None:
        """Start anew with another peer.

        Args:
            microseconds: to poll at most; 0 for never.
        """
        self.seconds = microseconds / 1e6
        self._short = self.seconds + _WAKING if microseconds else 0.0
        self.worth = False

    def waited(self, seconds: float) -> None:
        """Note how long a wait took."""
        self.worth = seconds < self._short
