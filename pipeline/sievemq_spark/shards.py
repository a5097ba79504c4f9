"""The shards that the option ``url`` leads to, each with one of its namespaces.

A shard is known by the name that its broker tells: hosts and ports may change, and of several hosts another one answers
after a takeover. Two URLs that lead to the same namespace of the same shard count once.

With ``unavailable=wait`` a shard that cannot be reached is away: the others are read on, and it is looked for again.
"""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass
from functools import partial
from itertools import chain
from math import inf
from typing import Final
from urllib.parse import quote

from sievemq import Connection, JMSException
from sievemq.taps import find_destinations
from sievemq.url import parse_url
from sievemq_spark.errors import PipelineError
from sievemq_spark.links import PATIENCE, Link, connect, is_lost
from sievemq_spark.options import ReadOptions, broker_name, place_name

#: Seconds after which a shard that is away is looked for again; or five times as long as the last look lasted, in which
#: the other shards waited.
RETRY_SECONDS = 1.0
_SHARE: Final = 5

#: Seconds after which destinations are looked for again that fit a pattern.
SEARCH_SECONDS = 5.0

log = logging.getLogger("sievemq.spark")


@dataclass(frozen=True, slots=True)
class Shard:
    """A namespace of a shard.

    Attributes:
        name: of the shard.
        namespace: '' for the default one.
        url: that leads to it.
    """

    name: str
    namespace: str
    url: str

    @property
    def key(self) -> str:
        """Begins the keys of its destinations in offsets. Neither part has a colon or a slash."""
        return f"{self.name}/{quote(self.namespace, safe='')}" if self.namespace else self.name

    @property
    def hosts(self) -> str:
        """Where it is, without credentials."""
        return broker_name(parse_url(self.url))

    def __str__(self) -> str:
        inside = f", namespace {self.namespace!r}" if self.namespace else ""
        return f"shard {self.name!r}{inside} ({self.hosts})"


def shard_of(connection: Connection, url: str) -> Shard:
    """The shard at the other end of a connection."""
    return Shard(connection.get_meta_data().shard, parse_url(url).namespace, url)


@dataclass(slots=True)
class _Entry:
    """One of the URLs.

    Attributes:
        shard: None until it was reached.
        incarnation: of the broker there, or of its store.
        again: when it is looked for again, on the monotonic clock; 0 while it is not away.
    """

    url: str
    shard: Shard | None = None
    incarnation: str = ""
    again: float = 0.0

    def come(self, shard: Shard, incarnation: str) -> None:
        """It was reached."""
        if self.again:
            log.warning("%s is there again", shard)
        self.shard, self.incarnation, self.again = shard, incarnation, 0.0

    def go(self, error: JMSException, pause: float) -> None:
        """It could not be reached, and is looked for again after some seconds."""
        if not self.again:
            name = self.shard or place_name(self.url)
            log.warning("%s is away; the query goes on without it until it is back: %s", name, error)
        self.again = time.monotonic() + pause


class Shards:
    """Those of a read, in the process that plans it.

    Args:
        options: of the read.
    """

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._entries = [_Entry(url) for url in options.urls]
        self._waits = options.unavailable == "wait"
        #: When destinations were looked for by pattern, and those that fit.
        self._fitting: dict[Shard, tuple[float, tuple[str, ...]]] = {}

    @property
    def are_all_there(self) -> bool:
        """None of the shards is away."""
        return not any(entry.again for entry in self._entries)

    def is_away(self, shard: Shard) -> bool:
        return any(entry.again for entry in self._entries if entry.shard == shard)

    def reached(self) -> list[Shard]:
        """The shards that are not away.

        Raises:
            JMSException: one cannot be reached, and is not waited for; the credentials are refused.
            PipelineError: two brokers have shards of the same name.
        """
        found: dict[str, _Entry] = {}
        for entry in self._entries:
            if entry.shard is None or entry.again:
                self._look(entry)
            if entry.shard is not None and not entry.again:
                first = found.setdefault(entry.shard.key, entry)
                if first.incarnation != entry.incarnation:
                    self._require_same(first, entry)
        return [entry.shard for entry in found.values() if entry.shard is not None and not entry.again]

    def require_one(self) -> list[Shard]:
        """As :meth:`reached`, but at least one.

        Raises:
            JMSException: all are away.
        """
        found = self.reached()
        if not found:
            options = self._options
            connect(options.urls[0], options.user, options.password, options.dialect).close()
            found = self.reached()
        return found

    def destinations(self, shard: Shard) -> list[str]:
        """The destinations that are read of a shard: those that the options name, then those that fit their patterns,
        as they were a few seconds ago.

        Raises:
            JMSException: the shard cannot be reached.
        """
        named = list(map(str, self._options.destinations))
        if not self._options.patterns:
            return named
        before, fitting = self._fitting.get(shard, (-inf, ()))
        if time.monotonic() >= before + SEARCH_SECONDS:
            link = self.link(shard)
            found = (link.ask(partial(find_destinations, pattern=each)) for each in self._options.patterns)
            fitting = tuple(sorted(set(chain.from_iterable(found)).difference(named)))
            self._fitting[shard] = time.monotonic(), fitting
        return [*named, *fitting]

    def link(self, shard: Shard) -> Link:
        """A link to a shard. It gives up at once where that is waited for: others are read meanwhile."""
        options = self._options
        patience = 0 if self._waits else PATIENCE
        return Link(shard.url, options.user, options.password, options.dialect, patience=patience)

    def lose(self, shard: Shard, error: JMSException) -> None:
        """A request to a shard has failed: it is away from now on.

        Raises:
            JMSException: the error, unless it says that the shard cannot be reached, and it is waited for.
        """
        self._require_away(error)
        for entry in self._entries:
            if entry.shard == shard:
                entry.go(error, RETRY_SECONDS)

    def _require_away(self, error: JMSException) -> None:
        if not (self._waits and is_lost(error)):
            raise error

    def _look(self, entry: _Entry) -> None:
        began = time.monotonic()
        if began < entry.again:
            return
        options = self._options
        try:
            with connect(entry.url, options.user, options.password, options.dialect, once=self._waits) as connection:
                entry.come(shard_of(connection, entry.url), connection._engine.terms.incarnation)
        except JMSException as error:
            self._require_away(error)
            entry.go(error, max(RETRY_SECONDS, _SHARE * (time.monotonic() - began)))

    def _require_same(self, *entries: _Entry) -> None:
        for entry in entries:  # one of them may have been started again since
            self._look(entry)
        first, second = entries
        here, there = first.shard, second.shard
        if here and there and here.key == there.key and first.incarnation != second.incarnation:
            raise PipelineError(
                f"the option 'url' names two brokers, {here.hosts} and {there.hosts}, which both call their messages "
                f"shard {here.name!r}: give one of them another name (--shard NAME)"
            )
