"""The tables of namespaces and patterns that several brokers of one process share, with faults by broker."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from sievemq_broker.domain.store import AwayError, FencedError
from sievemq_broker.store.lease import Owner, ShardSight

T = TypeVar("T")


class Tables:
    """What the database has.

    Attributes:
        rows: namespaces, and the shard of each.
        stored: namespaces from before the cluster, and the shard that has each in its store.
        patterns: and the shard of each, in order.
        owners: of the shards: token, and what it shows of itself.
    """

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.rows: dict[str, str] = {}
        self.stored: dict[str, str] = {}
        self.patterns: dict[str, str] = {}
        self.owners: dict[str, tuple[str, Owner | None]] = {}

    def owner(self, shard: str) -> tuple[str, Owner | None]:
        """The token of a shard's owner, and what it shows of itself; None if there is none now."""
        return self.owners[shard]

    def shards(self) -> list[str]:
        return sorted(self.owners)

    def own(self, shard: str, token: str, url: str = "", http_url: str = "", ports: str = "") -> None:
        """A broker owns a shard from now on; without a URL, none does."""
        owner = Owner(f"broker of {shard}", url, "", "", http_url, ports) if url else None
        with self.lock:
            self.owners[shard] = token, owner


class DictPlaces:
    """See :class:`~sievemq_broker.store.places.Places`: how one broker reaches the tables.

    Attributes:
        before: called before each call, with its name; may raise, or wait.
        after: called after it, when its effect is there.
        calls: their names.
    """

    def __init__(self, tables: Tables) -> None:
        self.tables = tables
        self.before: Callable[[str], None] = lambda call: None
        self.after: Callable[[str], None] = lambda call: None
        self.calls: list[str] = []
        self.closed = False

    def away(self, *calls: str) -> None:
        """Have these calls fail, or all; with nothing done."""

        def fail(call: str) -> None:
            if not calls or call in calls:
                raise AwayError("the tables are away")

        self.before = fail

    def back(self) -> None:
        self.before = self.after = lambda call: None

    def names(self, shard: str) -> list[str]:
        self._begin("names")
        with self.tables.lock:
            return self._end("names", [name for name, of in self.tables.rows.items() if of == shard])

    def all_names(self) -> dict[str, str]:
        self._begin("all_names")
        with self.tables.lock:
            return self._end("all_names", dict(self.tables.rows))

    def count(self) -> int:
        self._begin("count")
        with self.tables.lock:
            return self._end("count", len(self.tables.rows))

    def find(self, names: Sequence[str]) -> dict[str, str]:
        self._begin("find")
        with self.tables.lock:
            return self._end("find", {name: self.tables.rows[name] for name in names if name in self.tables.rows})

    def stored(self, names: Sequence[str], shards: Sequence[str]) -> dict[str, str]:
        self._begin("stored")
        found = {name: shard for name in names if (shard := self.tables.stored.get(name)) in shards}
        return self._end("stored", {name: shard for name, shard in found.items() if shard is not None})

    def claim(self, wanted: Mapping[str, str]) -> dict[str, str]:
        self._begin("claim")
        with self.tables.lock:
            found = {name: self.tables.rows.setdefault(name, shard) for name, shard in wanted.items()}
        return self._end("claim", found)

    def move(self, name: str, shard: str, token: str, to: str) -> str:
        self._begin("move")
        with self.tables.lock:
            if self.tables.owner(shard)[0] != token:
                raise FencedError(f"another broker owns the shard {shard}")
            if self.tables.rows[name] == shard:
                self.tables.rows[name] = to
            found = self.tables.rows[name]
        return self._end("move", found)

    def set_pattern(self, pattern: str, shard: str | None) -> None:
        self._begin("set_pattern")
        with self.tables.lock:
            if shard is None:
                self.tables.patterns.pop(pattern, None)
            else:
                self.tables.patterns[pattern] = shard
        self._end("set_pattern", None)

    def patterns(self) -> list[tuple[str, str]]:
        self._begin("patterns")
        with self.tables.lock:
            return self._end("patterns", list(self.tables.patterns.items()))

    def shards(self) -> list[ShardSight]:
        self._begin("shards")
        with self.tables.lock:
            found = [ShardSight(name, self.tables.owner(name)[1], 1, 0) for name in self.tables.shards()]
        return self._end("shards", found)

    def close(self) -> None:
        self.closed = True

    def _begin(self, call: str) -> None:
        self.calls.append(call)
        self.before(call)

    def _end(self, call: str, answer: T) -> T:
        self.after(call)
        return answer
