"""When a lost connection is tried again: at once, then after pauses that grow, each with some chance, for a bounded
time (D-32). The chance keeps a crowd of clients that lost the same broker from coming back in the same moment."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypeVar

from sievemq.exceptions import JMSException
from sievemq.url import LONGEST_PAUSE, LONGEST_PAUSE_OF_SEVERAL
from sievemq_core.errors import ErrorCode

H = TypeVar("H")

#: Milliseconds that `reconnect=forever` means: a hundred years.
FOREVER: Final = 100 * 365 * 24 * 60 * 60 * 1000

_PASSING: Final = frozenset(
    {"CONNECTION_FAILED", "CONNECTION_LOST", "TIMEOUT", *(code.name for code in ErrorCode if code.repairable)}
)


def is_passing(error: JMSException) -> bool:
    """True if a further attempt to connect may end otherwise: not after wrong credentials or a client id in use."""
    return error.get_error_code() in _PASSING


def for_how_long(patience: int) -> str:
    """For people: for how long a broker is tried again.

    Args:
        patience: milliseconds.
    """
    return "for ever (option reconnect)" if patience >= FOREVER else f"for up to {patience} ms (option reconnect)"


class Repair:
    """The plan for one connection, over all its losses.

    Args:
        patience: milliseconds for which a loss is tried to be repaired.
        first: milliseconds before the second attempt; each further one waits twice as long as the one before.
        longest: milliseconds that a pause grows to; None for the default.
        hosts: how many there are. If there are several, one of them takes over from another, and a refused attempt
            costs little: the default is shorter.
    """

    __slots__ = ("_attempts", "_ends", "_first", "_longest", "_patience")

    def __init__(self, patience: int, first: int, longest: int | None, hosts: int = 1) -> None:
        self._patience = patience
        self._first = first
        self._longest = longest or (LONGEST_PAUSE if hosts == 1 else LONGEST_PAUSE_OF_SEVERAL)
        self._attempts = 0
        self._ends = 0

    def begin(self, now: int, opened: int | None = None) -> None:
        """A connection was lost, or is needed for the first time.

        Args:
            now: milliseconds of any clock that never goes back.
            opened: when it had been opened; None if it is the first.
        """
        self._ends = now + self._patience
        # One that is lost again and again has pauses that keep growing: it is not to be opened as fast as it falls.
        if opened is None or now - opened > self._longest:
            self._attempts = 0

    def left(self, now: int) -> int:
        """Milliseconds that are left; 0 when the repair has failed."""
        return max(0, self._ends - now)

    def pause(self, now: int, chance: float) -> int:
        """Milliseconds to wait before the next attempt, which this counts; never more than are left.

        Args:
            chance: at random from 0 to 1; the pause is from half its length to the whole.
        """
        self._attempts += 1
        if self._attempts == 1:
            return 0
        grown = min(self._longest, self._first << min(self._attempts - 2, 30))
        return min(int(grown * (0.5 + chance / 2)), self.left(now))

    @staticmethod
    def order(hosts: Sequence[H], last: int) -> list[tuple[int, H]]:
        """The hosts in the order in which they are tried, each with its number.

        Args:
            last: number of the one that was connected last; 0 at first. It is the first to be tried.
        """
        return [((last + n) % len(hosts), hosts[(last + n) % len(hosts)]) for n in range(len(hosts))]
