"""Makes a broker durable: opens the store that its settings name, and restores the broker from it."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from sievemq_broker.config import Settings
from sievemq_broker.domain.broker import Broker
from sievemq_broker.domain.restore import RestoreError, restore
from sievemq_broker.domain.store import HistoryStore, Store, StoreError
from sievemq_broker.store import open_store
from sievemq_broker.store.follower import Follower
from sievemq_broker.store.history import FileHistory
from sievemq_broker.store.lease import Leases
from sievemq_broker.store.places import Places


class Source(Protocol):
    """Where the messages of a shard are stored."""

    @property
    def where(self) -> str:
        """For people; without a password."""

    def leases(self) -> Leases:
        """The row of its owner; only if it is shared."""

    def follower(self, limit: int) -> Follower:
        """Builds messages before the store is this process's; only if it is shared.

        Args:
            limit: bytes that they may take; 0 for no limit.
        """

    def places(self) -> Places:
        """Which shard has a namespace; only if it is shared."""

    def open(
        self, token: str, incarnation: str, is_wanted: Callable[[], bool], follower: Follower | None = None
    ) -> Store:
        """Open the store.

        Args:
            token: of the lease; "" if there is none.
            incarnation: the broker's name, if the store is new.
            is_wanted: False once the caller has given up. Opening ends soon then.
            follower: whose messages need not be read.

        Raises:
            AbandonedError: the caller has given up.
            StoreError: the store cannot be used.
        """

    def history(self) -> HistoryStore | None:
        """Where its history is stored, once the store is open; None if that is in memory."""


class Directory:
    """A data directory. A lock on its files keeps other processes out.

    Args:
        path: of the directory; it is made if it does not exist.
    """

    def __init__(self, path: str) -> None:
        self.where = path

    def leases(self) -> Leases:
        raise NotImplementedError

    def follower(self, limit: int) -> Follower:
        raise NotImplementedError

    def places(self) -> Places:
        raise NotImplementedError

    def open(
        self, token: str, incarnation: str, is_wanted: Callable[[], bool], follower: Follower | None = None
    ) -> Store:
        return open_store(self.where, incarnation, is_wanted)

    def history(self) -> HistoryStore:
        return FileHistory(self.where)


class Shared:
    """A shard in a database that several brokers use, one at a time.

    Args:
        settings: their `store` is the database.
        shard: its name.
    """

    def __init__(self, settings: Settings, shard: str) -> None:
        assert settings.store is not None
        self._url = settings.store
        self._shard = shard
        self._lease = settings.lease_seconds
        self._in_cluster = bool(settings.shards)
        self.where = settings.shown_store or ""

    def leases(self) -> Leases:
        from sievemq_broker.store.postgres_leases import PostgresLeases  # of the extra `postgres`

        return PostgresLeases(self._url, self._shard, timeout=self._lease / 2, in_cluster=self._in_cluster)

    def follower(self, limit: int) -> Follower:
        from sievemq_broker.store import postgres_history  # noqa: F401  a takeover imports nothing
        from sievemq_broker.store.postgres_follower import PostgresListing

        return Follower(PostgresListing(self._url, self._shard, timeout=self._lease / 2), limit)

    def places(self) -> Places:
        from sievemq_broker.store.postgres_placement import PostgresPlaces

        return PostgresPlaces(self._url, timeout=self._lease / 2)

    def open(
        self, token: str, incarnation: str, is_wanted: Callable[[], bool], follower: Follower | None = None
    ) -> Store:
        from sievemq_broker.store.postgres import PostgresStore

        return PostgresStore(self._url, self._shard, token, incarnation, timeout=self._lease, follower=follower)

    def history(self) -> HistoryStore:
        from sievemq_broker.store.postgres_history import PostgresHistory

        return PostgresHistory(self._url, self._shard, timeout=self._lease)


def shared_sources(settings: Settings) -> dict[str, Source]:
    """The shards of which a broker with these settings takes one, by name, in the order in which it looks at them."""
    return {} if settings.store is None else {name: Shared(settings, name) for name in settings.candidates}


@dataclass(frozen=True, slots=True)
class Opened:
    """An open store, and what was restored from it.

    Attributes:
        store: open.
        where: it is, for people.
        messages: that were restored.
        seconds: that took.
        built: messages that were built before.
    """

    store: Store
    where: str
    messages: int
    seconds: float
    built: int = 0


def open_and_restore(
    source: Source,
    token: str,
    broker: Broker,
    incarnation: str,
    now: int,
    is_wanted: Callable[[], bool],
    follower: Follower | None = None,
    prepare: Callable[[Store], object] = lambda store: None,
) -> Opened:
    """Open a store and fill an empty broker from it. In any thread: nothing else may use the broker meanwhile.

    Args:
        source: names the store.
        token: of the lease; "" if there is none.
        broker: without namespaces; it has a journal afterwards.
        incarnation: the broker's name, if the store is new.
        now: ms epoch.
        is_wanted: False once the caller has given up.
        follower: of the store until now, if there was one.
        prepare: called with the open store before the broker is filled.

    Raises:
        AbandonedError: the caller has given up; the store is closed, and the broker cannot be used.
        StoreError: the store cannot be used, or does not fit the settings.
    """
    begin = time.perf_counter()
    built = 0 if follower is None else follower.messages
    store = source.open(token, incarnation, is_wanted, follower)
    collecting = gc.isenabled()
    gc.disable()  # a million messages are some millions of objects, none of them garbage
    try:
        prepare(store)
        messages = restore(broker, store, now, is_wanted)
        store.tidy()
    except BaseException as error:
        store.abandon()
        if isinstance(error, RestoreError):
            raise StoreError(f"the store in {source.where}: {error}") from error
        raise
    finally:
        if collecting:
            if gc.get_freeze_count():  # of a process whose collections are short (watch/collector.py): they stay so
                gc.freeze()
            gc.enable()
    return Opened(store, source.where, messages, time.perf_counter() - begin, built)
