"""What is seen of counters by looking again and again: events that go on, and growth."""

from __future__ import annotations

from typing import Final

from sievemq_broker.domain.queue import Queue

#: Growth is measured over so long, twice.
WINDOW_MS: Final = 20_000


class Burst:
    """Events that go on: they began with the first one, and are over once none has come for a while.

    Args:
        counters: how many there are.

    Attributes:
        since: when they began; 0 while there are none.
    """

    __slots__ = ("_first", "_last", "_seen", "since")

    def __init__(self, counters: int) -> None:
        self._seen = self._first = (0,) * counters
        self._last = self.since = 0

    def see(self, counters: tuple[int, ...], now: int, quiet_seconds: int) -> tuple[int, ...]:
        """Note counters.

        Args:
            now: ms since 1970.
            quiet_seconds: without one, after which they are over.

        Returns:
            by how much each has risen since they began; zeros while there are none.
        """
        if counters != self._seen:
            if not self.since:
                self._first, self.since = self._seen, now
            self._seen, self._last = counters, now
        elif self.since and now - self._last >= quiet_seconds * 1000:
            self.since = 0
        if not self.since:
            return (0,) * len(counters)
        return tuple([after - before for after, before in zip(counters, self._first, strict=True)])

    def jump(self, by: int) -> None:
        """The clock was set by so many ms."""
        self._last += by
        self.since += by if self.since else 0


class Growth:
    """Whether a queue grows: what waits has risen in this window and in the one before.

    Attributes:
        since: when it began to grow; 0 if it does not.
        text: the rates of the last window.
    """

    __slots__ = ("_began", "_depth", "_given", "_rise", "_risen", "_taken", "since", "text")

    def __init__(self) -> None:
        #: When the window began, and what there was then.
        self._began = self._depth = self._taken = self._given = 0
        #: By how much it has risen in the window before, and by how much it grows in a minute.
        self._risen = self._rise = 0
        self.since = 0
        self.text = ""

    def see(self, queue: Queue, now: int) -> int:
        """Look at a queue.

        Args:
            now: ms since 1970.

        Returns:
            By how many messages it grows in a minute; 0 if it does not.
        """
        passed = now - self._began
        if self._began and passed < WINDOW_MS:
            return self._rise
        if self._began:
            rise = max(0, queue.depth - self._depth)
            self.since = (self.since or self._began) if rise else 0
            self._rise = min(rise, self._risen) * 60_000 // passed
            self._risen = rise
            taken, given = queue.enqueued - self._taken, queue.acknowledged - self._given
            self.text = f"{taken * 1000 / passed:,.1f}/s in, {given * 1000 / passed:,.1f}/s out"
        self._began = now
        self._depth, self._taken, self._given = queue.depth, queue.enqueued, queue.acknowledged
        return self._rise

    def jump(self, by: int) -> None:
        """The clock was set by so many ms."""
        self._began += by if self._began else 0
        self.since += by if self.since else 0
