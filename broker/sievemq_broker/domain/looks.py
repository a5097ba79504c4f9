"""How long a consumer has held messages, from looks at it now and then: deliveries are not timed."""

from __future__ import annotations

from typing import Final

#: Looks that are kept of a consumer.
_MOST: Final = 16


class Looks:
    """What was seen of a consumer that holds messages.

    A message was delivered before the first look that has seen its tag. So the times are too late, by up to the time
    between two looks, and by more for a consumer that settles few of very many messages.

    Attributes:
        idle_since: since when it has settled nothing; ms epoch.
    """

    __slots__ = ("_seen", "_settled", "idle_since")

    def __init__(self) -> None:
        #: Tags of the last delivery, and the times, both ascending.
        self._seen: list[tuple[int, int]] = []
        self._settled = -1
        self.idle_since = 0

    def note(self, base: int, tag: int, settled: int, now: int) -> None:
        """Look once more.

        Args:
            base: everything up to this tag is settled.
            tag: of the last delivery.
            settled: grows with each message that is settled.
            now: ms epoch.
        """
        if settled != self._settled:
            self._settled, self.idle_since = settled, now
        seen = self._seen
        while seen and seen[0][0] <= base:
            del seen[0]
        if not seen or seen[-1][0] < tag:
            seen.append((tag, now))
            if len(seen) > _MOST:
                del seen[1:-1:2]

    def held_since(self, base: int) -> int:
        """Since when the first message behind the tag `base` is held; ms epoch, 0 if no look has seen it."""
        for tag, time in self._seen:
            if tag > base:
                return time
        return 0

    def shift(self, by: int) -> None:
        """The machine's clock was set by so many ms."""
        self._seen = [(tag, time + by) for tag, time in self._seen]
        self.idle_since += by
