"""The broker knows a store by its port alone: it serves from one that is no database, and names none above it."""

from __future__ import annotations

import asyncio
import itertools
import re
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import sievemq_broker
from sievemq import ConnectionFactory, DeliveryMode
from sievemq_broker import EmbeddedBroker, embedded
from sievemq_broker.clock import Clock
from sievemq_broker.config import Settings
from sievemq_broker.domain import Broker
from sievemq_broker.domain.admission import UNLIMITED
from sievemq_broker.domain.journal import Write
from sievemq_broker.domain.restore import restore
from sievemq_broker.domain.saved import SavedBatch, SavedState
from sievemq_broker.domain.store import AbandonedError, Store, StoreError, StoreFullError
from sievemq_broker.server.durability import commits, durable
from sievemq_broker.server.shard import Shard
from sievemq_broker.store.blob import SavedEntry

from .support import DictStore, message


class MemoryStore(DictStore):
    """All that the port has, and nothing else."""

    incarnation = "inmemory"
    room = free = UNLIMITED
    full_below = total = reserve = time = 0

    def __init__(self) -> None:
        super().__init__()
        self.epoch = 0
        self.calls: list[str] = []
        self.fails: list[Exception] = []
        self.threads: set[str] = set()

    def open(self, data_dir: str, incarnation: str, is_wanted: Callable[[], bool]) -> Store:
        self.epoch += 1
        return self

    def write(self, write: Write, now: int) -> None:
        self.threads.add(threading.current_thread().name)
        if self.fails:
            raise self.fails.pop()
        super().write(write, now)

    def size(self) -> int:
        return len(self.messages)

    def tidy(self) -> int:
        return self.room

    def relieve(self) -> None:
        self.calls.append("relieve")

    def reopen(self) -> None:
        self.calls.append("reopen")

    def close(self) -> None:
        self.calls.append("close")

    def abandon(self) -> None:
        self.calls.append("abandon")


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> MemoryStore:
    made = MemoryStore()
    monkeypatch.setattr(durable, "open_store", made.open)
    monkeypatch.setattr(commits, "PAUSE_SECONDS", 0.01)
    return made


def test_a_broker_serves_from_a_store_that_is_no_database(store: MemoryStore, tmp_path: Path) -> None:
    for number in range(3):
        with EmbeddedBroker(data_dir=tmp_path) as broker, ConnectionFactory(broker.url).create_context() as context:
            queue = context.create_queue("q")
            context.create_producer().send(queue, f"m{number}").set_delivery_mode(DeliveryMode.NON_PERSISTENT).send(
                queue, "lost"
            )
            if number:
                assert context.create_consumer(queue).receive_body(str, 60_000) == f"m{number - 1}"
    assert store.epoch == 3
    assert store.calls == ["close"] * 3
    assert len(store.messages) == 1
    assert store.threads == {"sievemq-store"}


@pytest.mark.parametrize(("error", "calls"), [(StoreFullError("full"), ["relieve"]), (StoreError("no"), ["reopen"])])
def test_a_write_that_failed_is_made_again(
    store: MemoryStore, tmp_path: Path, error: StoreError, calls: list[str]
) -> None:
    with EmbeddedBroker(data_dir=tmp_path) as broker, ConnectionFactory(broker.url).create_context() as context:
        context.create_producer().send(context.create_queue("q"), "before")
        store.fails.append(error)
        context.create_producer().send(context.create_queue("q"), "after")
        assert len(store.messages) == 2
    assert store.calls == [*calls, "close"]


def test_a_store_that_cannot_be_restored_is_abandoned(store: MemoryStore, tmp_path: Path) -> None:
    store.defined["destination", ("default", "")] = (1,)
    with pytest.raises(StoreError, match="cannot be restored"):
        EmbeddedBroker(data_dir=tmp_path).start()
    assert store.calls == ["abandon"]


class EndlessStore(MemoryStore):
    """One that is read for as long as it is wanted.

    Attributes:
        read: reading its messages has begun.
        goes_on: it may continue.
    """

    def __init__(self) -> None:
        super().__init__()
        self.read, self.goes_on = threading.Event(), threading.Event()
        self.defined["namespace", ("default",)] = ()
        self.defined["destination", ("default", "queue:q")] = (1,)

    def batches(self) -> Iterator[tuple[SavedBatch, SavedState | None]]:
        packed = message("m").packed
        for number in itertools.count(1):
            self.read.set()
            assert self.goes_on.wait(30)
            yield SavedBatch(number, 0, [1], [0], [packed]), None


@pytest.fixture
def endless(monkeypatch: pytest.MonkeyPatch) -> EndlessStore:
    made = EndlessStore()
    monkeypatch.setattr(durable, "open_store", made.open)
    return made


async def test_restoring_ends_when_it_is_given_up(endless: EndlessStore, tmp_path: Path) -> None:
    shard = Shard(Settings(data_dir=str(tmp_path)), Clock())
    opening = asyncio.create_task(shard.open())
    assert await asyncio.get_running_loop().run_in_executor(None, endless.read.wait, 30)
    shard.give_up()
    endless.goes_on.set()
    with pytest.raises(AbandonedError):
        await opening
    assert endless.calls == ["abandon"]
    assert await shard.close(), "nothing was accepted that is not on disk"


@pytest.mark.parametrize("read", [0, 500, 2_500])
def test_messages_that_were_read_are_not_restored_when_it_is_given_up(read: int) -> None:
    """Nor are those of which some are on their queues."""
    store, asked = MemoryStore(), 0
    store.defined["namespace", ("default",)] = ()
    store.defined["destination", ("default", "queue:q")] = (1,)
    packed = message("m").packed
    store.messages = {number: SavedEntry(number, 1, packed, 0, 0, 0) for number in range(1, read + 1)}

    def is_wanted() -> bool:
        nonlocal asked
        asked += 1
        return asked <= wanted

    wanted = 1_000
    assert restore(Broker(), store, 0, is_wanted) == read
    assert asked >= 1 + read / 1_000
    for wanted in range(asked):
        asked = 0
        with pytest.raises(AbandonedError):
            restore(Broker(), store, 0, is_wanted)
        assert asked == wanted + 1


def test_an_embedded_broker_that_does_not_start_in_time_releases_its_store(
    monkeypatch: pytest.MonkeyPatch, endless: EndlessStore, tmp_path: Path
) -> None:
    monkeypatch.setattr(embedded, "_START_SECONDS", 0.01)
    endless.goes_on.set()
    broker = EmbeddedBroker(data_dir=tmp_path)
    before = set(threading.enumerate())
    with pytest.raises(TimeoutError):
        broker.start()
    assert endless.calls in ([], ["abandon"])  # it may not have come so far
    assert {thread.name for thread in threading.enumerate() if thread not in before} <= {"asyncio_0"}


async def test_a_shard_is_restored_while_the_loop_goes_on(
    monkeypatch: pytest.MonkeyPatch, store: MemoryStore, tmp_path: Path
) -> None:
    goes_on = threading.Event()

    def batches() -> Iterator[tuple[SavedBatch, SavedState | None]]:
        assert goes_on.wait(30), "the loop stands still"
        yield from DictStore.batches(store)

    monkeypatch.setattr(store, "batches", batches)
    shard = Shard(Settings(data_dir=str(tmp_path)), Clock())
    asyncio.get_running_loop().call_later(0.01, goes_on.set)
    await shard.open()
    assert (shard.incarnation, shard.opened is not None) == (store.incarnation, True)
    assert await shard.close()


def test_no_module_above_the_store_names_a_database() -> None:
    package = Path(sievemq_broker.__file__).parent
    named = [
        path.relative_to(package).as_posix()
        for path in sorted(package.rglob("*.py"))
        if "sqlite" in path.read_text(encoding="utf-8").lower() and package / "store" not in path.parents
    ]
    assert named == []


def test_one_part_of_the_store_alone_needs_the_client_of_postgresql() -> None:
    package = Path(sievemq_broker.__file__).parent
    importing = [
        path for path in package.rglob("*.py") if re.search(r"(?m)^\s*(import|from) psycopg", path.read_text())
    ]
    assert importing
    assert [path for path in importing if path.parent.name != "store" or not path.name.startswith("postgres")] == []
