"""Tables that all users share, and which entry is evicted first when one is full."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)


class Shares(Generic[Key]):
    """The keys of a table by user, the oldest first, each with a weight. The user with the largest share loses its
    oldest entry, so that one with many entries does not evict those of others.

    Attributes:
        total: weight of all keys.
    """

    __slots__ = ("_keys", "_sums", "total")

    def __init__(self) -> None:
        self._keys: dict[str | None, OrderedDict[Key, int]] = {}
        self._sums: dict[str | None, int] = {}
        self.total = 0

    def add(self, user: str | None, key: Key, weight: int = 1) -> None:
        """Add a key as its user's newest."""
        self.discard(user, key)
        self._keys.setdefault(user, OrderedDict())[key] = weight
        self._sums[user] = self._sums.get(user, 0) + weight
        self.total += weight

    def discard(self, user: str | None, key: Key) -> None:
        """Remove a key, if it is there."""
        keys = self._keys.get(user)
        weight = None if keys is None else keys.pop(key, None)
        if keys is None or weight is None:
            return
        self._sums[user] -= weight
        self.total -= weight
        if not keys:
            del self._keys[user], self._sums[user]

    def of(self, user: str | None) -> int:
        """The weight of a user's keys."""
        return self._sums.get(user, 0)

    def first_to_go(self) -> tuple[str | None, Key]:
        """The oldest key of the user with the largest share.

        Raises:
            ValueError: there is no key.
        """
        user = max(self._sums, key=self._sums.__getitem__)
        return user, next(iter(self._keys[user]))
