"""What has happened lately, to whom and how often."""

from __future__ import annotations

from typing import Final, Generic, TypeVar

KeyT = TypeVar("KeyT")

#: Keys that are kept.
MOST: Final = 200


class Happened:
    """The times at which something has happened.

    Attributes:
        count: how often.
        first, last: ms since 1970.
        connection: the id of the latest connection, empty if there was none.
    """

    __slots__ = ("connection", "count", "first", "last")

    def __init__(self, first: int) -> None:
        self.count = 0
        self.first = self.last = first
        self.connection = ""

    def note(self, now: int, connection: str, count: int) -> None:
        self.count += count
        self.last = now
        self.connection = connection


class Recent(Generic[KeyT]):
    """Counts by key; of too many keys the one that has not happened for the longest time is dropped.

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
        happened = self._happened.pop(key, None) or Happened(now)
        happened.note(now, connection, count)
        self._happened[key] = happened  # behind the others
        if len(self._happened) > self._most:
            del self._happened[next(iter(self._happened))]

    def latest(self) -> list[tuple[KeyT, Happened]]:
        """All of them, the latest first."""
        return list(self._happened.items())[::-1]
