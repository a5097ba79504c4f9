"""Recent events, so that a listener whose stream broke off gets what it missed.

An event's id is `{run}.{look}.{number}`: which run of the broker, which look at it, the how manieth of those that this
listener gets at that look. A tick's id is `{run}.{look}`: everything up to there. So an id reveals nothing about events
that its listener may not see, not even how many there are.
"""

from __future__ import annotations

import secrets
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Literal, NamedTuple, TypeAlias

#: Events that are kept, the latest.
KEEP: Final = 500

#: Samples with changes whose number of events is kept longer than the events.
COUNTED: Final = 3_600

#: Longest id that is parsed.
_LONGEST: Final = 100

Event: TypeAlias = tuple[str, dict[str, Any]]
"""Its name and its content."""


class Mark(NamedTuple):
    """The position of a listener: this many events of a sample, or all of it with None."""

    look: int
    number: int | None


class Missed(NamedTuple):
    """Events that are not kept any more.

    Attributes:
        events: how many; None where that is not known, or not for the listener to know.
        reason: `forgotten`: too many, or too long ago; `restarted`: the broker was.
    """

    events: int | None
    reason: Literal["forgotten", "restarted"]


@dataclass(slots=True)
class _Look:
    number: int
    events: list[Event]
    total: int  # the events are fewer where there were too many


class History:
    """The latest events, by look.

    Attributes:
        look: number of the last one.
    """

    __slots__ = ("_begin", "_counts", "_held", "_looks", "_run", "_uncounted", "look")

    def __init__(self) -> None:
        self._run = secrets.token_hex(4)
        self.look = 0
        self.forget()

    def forget(self) -> None:
        """Stop recording, because there was no listener for long: later changes are unknown until one connects."""
        self._begin = self.look
        self._looks: deque[_Look] = deque()
        self._counts: deque[tuple[int, int]] = deque()
        self._held = 0
        self._uncounted = 0

    def add(self, events: list[Event]) -> None:
        """A look was taken, and this had happened since the one before."""
        self.look += 1
        if not events:
            return
        self._looks.append(_Look(self.look, events[:KEEP], len(events)))
        self._held += len(self._looks[-1].events)
        while self._held > KEEP:
            gone = self._looks.popleft()
            self._held -= len(gone.events)
            self._counts.append((gone.number, gone.total))
            if len(self._counts) > COUNTED:
                self._uncounted = self._counts.popleft()[0]

    def id_of(self, look: int, number: int | None = None) -> str:
        """The id of an event for listeners, or without a number of the tick of that look."""
        return f"{self._run}.{look}" if number is None else f"{self._run}.{look}.{number}"

    def since(
        self, event_id: str, receives: Callable[[Event], bool], receives_all: bool
    ) -> tuple[Missed | None, list[tuple[str, Event]]]:
        """The changes since an event.

        Args:
            event_id: its id, as the listener got it.
            receives: whether the listener gets an event.
            receives_all: it gets every one.

        Returns:
            What is not kept any more, None if nothing; and events with their ids, oldest first.
        """
        mark = self._mark(event_id)
        missed = None
        if mark is None:
            missed = Missed(None, "restarted")
            mark = Mark(self._begin, None)
        elif mark.look < self._begin:
            missed = Missed(None, "forgotten")
        else:
            gone = self._gone_since(mark)
            if gone is None or (gone and not receives_all):
                missed = Missed(None, "forgotten")
            elif gone:
                missed = Missed(gone, "forgotten")
        told: list[tuple[str, Event]] = []
        for look in self._looks:
            if look.number < mark.look:
                continue
            for number, event in enumerate(filter(receives, look.events), 1):
                if look.number > mark.look or (mark.number is not None and number > mark.number):
                    told.append((self.id_of(look.number, number), event))
        return missed, told

    def _gone_since(self, mark: Mark) -> int | None:
        """How many events after a mark are not here any more; None if unknown."""
        if mark.look < self._uncounted:
            return None
        looks = [(number, total, total) for number, total in self._counts]
        looks += [(look.number, look.total, look.total - len(look.events)) for look in self._looks]
        gone = 0
        for number, total, left_out in looks:
            if number > mark.look:
                gone += left_out
            elif number == mark.look and mark.number is not None:
                gone += min(left_out, max(0, total - mark.number))
        return gone

    def _mark(self, event_id: str) -> Mark | None:
        """None if the id is not of this run."""
        run, *numbers = event_id[:_LONGEST].split(".")
        if run != self._run or not 1 <= len(numbers) <= 2 or not all(n.isascii() and n.isdigit() for n in numbers):
            return None
        look = int(numbers[0])
        return Mark(look, int(numbers[1]) if len(numbers) == 2 else None) if look <= self.look else None
