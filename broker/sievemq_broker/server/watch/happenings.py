"""Events that are kept for later: starts, pauses, changes of queues, dead letters, limits, findings.

The hub finds most of them by comparing two states (http/api/hub.py). They survive a restart where messages do. A storm
does not displace other events: of one kind a few rows a minute are kept, and the number of the rest. Events of
connections, consumers and temporary destinations are not kept."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, TypeAlias

from sievemq_broker.server.watch.history import History

#: Rows that are kept.
KEEP: Final = 5_000

#: Rows of one kind in a minute.
AT_ONCE: Final = 20

STARTED: Final = "broker.started"
STOPPED: Final = "broker.stopped"
MARK: Final = "mark"

#: What changes how the figures of a chart are to be read.
MARKED: Final = frozenset(
    {STARTED, MARK, "clock.jumped", "destination.paused", "destination.resumed", "setting.changed"}
)

_MINUTE: Final = 60_000
_NOT_KEPT: Final = ("connection.", "consumer.", "subscription.", "tap.", "action")

Happened: TypeAlias = tuple[str, Mapping[str, Any]]
"""The name of an event, and what it says."""


class Happenings:
    """The events that are kept.

    Args:
        history: keeps them.
        clock: the broker's time, ms since 1970.
    """

    __slots__ = ("_clock", "_counts", "_dead", "_first", "_history", "_minute", "_rows")

    def __init__(self, history: History, clock: Callable[[], int]) -> None:
        self._history = history
        self._rows = history.rows("event", KEEP)
        self._clock = clock
        self._minute = 0
        #: Id of the first row of this process.
        self._first: int | None = None
        #: In this minute: events by name; and of destinations with a row of dead letters, how many came after it.
        self._counts: Counter[str] = Counter()
        self._dead: dict[tuple[str, str], int] = {}

    def begin(self, version: str) -> None:
        """The broker serves clients. Whether it ended in order before is known once older rows are there."""

        def note() -> None:
            last = next(iter(self._rows.latest(1, self._first)), None)
            was_killed = last is not None and last["event"] != STOPPED
            self._rows.add({"event": STARTED, "time": began, "version": version, "was_killed": was_killed})

        began = self._clock()
        self._history.when_loaded(note)

    def end(self) -> None:
        """The broker ends in order."""
        self._end_minute(self._clock())
        self._add(STOPPED, {}, self._clock())

    def mark(self, text: str, user: str | None, namespace: str | None) -> dict[str, Any]:
        """Keep what the broker cannot know, such as a deployment; returns the row."""
        self._add(MARK, {"text": text, "user": user, "namespace": namespace}, self._clock())
        return self._rows.latest(1)[0]

    def note(self, name: str, /, **about: Any) -> None:
        """Keep what has happened elsewhere than where the hub looks."""
        self.keep([(name, about)])

    def keep(self, events: Iterable[Happened]) -> None:
        """Keep those of a look that are kept."""
        now = self._clock()
        if now // _MINUTE != self._minute:
            self._end_minute(now)
        for name, about in events:
            if name.startswith(_NOT_KEPT) or str(about.get("address", "")).startswith("temporary-"):
                continue
            if name == "dead_lettered":
                key = about["namespace"], about["address"]
                if key in self._dead:
                    self._dead[key] += about["messages"]
                    continue
                if self._counts[name] < AT_ONCE:
                    self._dead[key] = 0
            self._counts[name] += 1
            if self._counts[name] <= AT_ONCE:
                self._add(name, about, now)

    def before(self, below: int | None) -> Iterator[dict[str, Any]]:
        """Rows with a smaller id, newest first; all of them with None."""
        return self._rows.before(below)

    def _end_minute(self, now: int) -> None:
        """Keep what the minute has no row of, and begin another one."""
        for (namespace, address), messages in self._dead.items():
            if messages:
                self._add("dead_lettered", {"namespace": namespace, "address": address, "messages": messages}, now)
        for name, number in self._counts.items():
            if number > AT_ONCE:
                self._add(name, {"more": number - AT_ONCE}, now)
        self._counts.clear()
        self._dead.clear()
        self._minute = now // _MINUTE

    def _add(self, name: str, about: Mapping[str, Any], now: int) -> None:
        known = {field: value for field, value in about.items() if value is not None}
        added = self._rows.add({"time": now, **known, "event": name})
        self._first = self._first or added
