"""What has happened lately, to whom and how often."""

from __future__ import annotations

from typing import Final, Generic, TypeVar

KeyT = TypeVar("KeyT")

#: Keys that are kept.
MOST: Final = 200

#: Ms without another one, after which a count begins anew.
FORGET_MS: Final = 3_600_000

_MINUTE_MS: Final = 60_000


class Happened:
    """The times at which something has happened.

    Attributes:
        count: how often.
        first, last: ms since 1970.
        connection: the id of the latest connection, empty if there was none.
    """

    __slots__ = ("_before", "_minute", "_so_far", "connection", "count", "first", "last")

    def __init__(self, first: int) -> None:
        self.count = 0
        self.first = self.last = first
        self.connection = ""
        #: When the minute of the latest one began; how many there were in it, and in the minute before.
        self._minute = first
        self._so_far = self._before = 0

    @property
    def rate(self) -> int:
        """How often in a minute: in that of the latest one, or in the minute before if that was more."""
        return max(self._so_far, self._before)

    def note(self, now: int, connection: str, count: int) -> None:
        passed = now - self._minute
        if passed >= _MINUTE_MS:
            self._before = self._so_far if passed < 2 * _MINUTE_MS else 0
            self._minute, self._so_far = now, 0
        self._so_far += count
        self.count += count
        self.last = now
        self.connection = connection

    def clock_jumped(self, by: int) -> None:
        self.first += by
        self.last += by
        self._minute += by


class Recent(Generic[KeyT]):
    """Counts by key, anew after an hour without; of too many keys the one that has not happened for the longest time is
    dropped.

    Args:
        most: keys that are kept.
    """

    __slots__ = ("_happened", "_most")

    def __init__(self, most: int = MOST) -> None:
        self._most = most
        self._happened: dict[KeyT, Happened] = {}

    def note(self, key: KeyT, now: int, connection: str = "", count: int = 1) -> None:
        """It has happened once more.

        Args:
            now: ms since 1970.
            count: how many times.
        """
        happened = self._happened.pop(key, None)
        if happened is None or now - happened.last > FORGET_MS:
            happened = Happened(now)
        happened.note(now, connection, count)
        self._happened[key] = happened  # behind the others
        if len(self._happened) > self._most:
            del self._happened[next(iter(self._happened))]

    def since(self, time: int) -> list[tuple[KeyT, Happened]]:
        """Those that have happened at a time (ms) or later, the latest first."""
        found: list[tuple[KeyT, Happened]] = []
        for key, happened in reversed(self._happened.items()):
            if happened.last < time:
                break
            found.append((key, happened))
        return found

    def clock_jumped(self, by: int) -> None:
        """The machine's clock was set by so many ms."""
        for happened in self._happened.values():
            happened.clock_jumped(by)

    def latest(self) -> list[tuple[KeyT, Happened]]:
        """All of them, the latest first."""
        return list(self._happened.items())[::-1]
