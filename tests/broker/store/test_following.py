"""A broker builds the messages of the owner while it follows, in a thread; and nothing depends on that."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

import pytest

from sievemq import ConnectionFactory
from sievemq_broker.domain.store import AwayError
from sievemq_broker.server.durability import following
from sievemq_broker.server.durability.following import Following
from sievemq_broker.store.follower import Follower

from .following import Tables
from .sharing import DEADLINE, LONG, SharingBroker, World, get, hosts
from .test_follower import filled


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("STEP_SECONDS", "AWAY_SECONDS"):
        monkeypatch.setattr(following, name, 0.001)


def test_a_follower_restores_what_it_has_built(monkeypatch: pytest.MonkeyPatch) -> None:
    world, built, step = World(), threading.Event(), Follower.step

    def steps(self: Follower, now: float) -> bool:
        more = step(self, now)
        if self.caught_up and self.messages:
            built.set()
        return more

    monkeypatch.setattr(Follower, "step", steps)
    with SharingBroker(world, LONG) as owner:
        with ConnectionFactory(owner.url).create_context() as context:
            producer, queue = context.create_producer(), context.create_queue("q")
            for number in range(5):
                producer.send(queue, f"m{number}")
        with SharingBroker(world, LONG, http=True) as follower:
            assert built.wait(DEADLINE)
            assert follower.server.candidates is not None
            assert follower.server.candidates.followed["main"].is_warm
            figures = get(follower, "/metrics")[1]
            assert 'sievemq_follower_messages{shard="main"} 5.0' in figures
            assert "sievemq_follower_bytes{" in figures
            with ConnectionFactory(owner.url).create_context() as context:
                assert context.create_consumer(context.create_queue("q")).receive_body(str, 30_000) == "m0"
                context.create_producer().send(context.create_queue("q"), "m5")
            owner.stop()
            follower.wait_until_serving(DEADLINE)
            opened = follower.server.shard.opened
            assert opened is not None
            assert (opened.messages, opened.built) in ((5, 5), (5, 4))  # it may have seen that one is gone
            assert not follower.server.candidates.followed
            with ConnectionFactory(hosts(follower)).create_context() as context:
                consumer = context.create_consumer(context.create_queue("q"))
                assert [consumer.receive_body(str, 30_000) for _ in range(5)] == ["m1", "m2", "m3", "m4", "m5"]


class Stubborn(Tables):
    """Tables that do something before each look."""

    def __init__(self, before: Callable[[], None]) -> None:
        super().__init__()
        self.data, self.writes = filled(3).data, 1
        self._before = before
        self.closed = threading.Event()

    def last_write(self) -> int:
        self._before()
        return super().last_write()

    def close(self) -> None:
        self.closed.set()


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> Callable[[], list[str]]:
    caplog.set_level("DEBUG", "sievemq_broker.store")
    return lambda: [record.getMessage().split()[0] for record in caplog.records]


async def test_a_store_that_is_away_is_followed_again(lines: Callable[[], list[str]]) -> None:
    calls = 0
    built = threading.Event()

    def away_twice() -> None:
        nonlocal calls
        calls += 1
        if calls < 3:
            raise AwayError("away")
        if calls > 5:
            built.set()

    found = Following(Follower(Stubborn(away_twice)))
    found.start()
    assert await asyncio.to_thread(built.wait, DEADLINE)
    follower = await found.end()
    assert follower is not None
    assert follower.messages == 3
    assert lines()[:3] == ["store.follower_away", "store.follower_away", "store.followed"]


async def test_what_cannot_be_followed_is_read_at_the_takeover(lines: Callable[[], list[str]]) -> None:
    def fails() -> None:
        raise ValueError("damaged")

    tables = Stubborn(fails)
    found = Following(Follower(tables))
    found.start()
    assert await asyncio.to_thread(tables.closed.wait, DEADLINE)
    assert await found.end() is None
    assert lines() == ["store.not_followed"]


async def test_nothing_stays_built_that_no_takeover_will_use() -> None:
    calls = 0

    def fails_later() -> None:
        nonlocal calls
        calls += 1
        if calls > 3:
            built.append(found.follower.messages)
            raise ValueError("damaged")

    built: list[int] = []
    tables = Stubborn(fails_later)
    found = Following(Follower(tables))
    found.start()
    assert await asyncio.to_thread(tables.closed.wait, DEADLINE)
    assert await found.end() is None
    assert (built, found.follower.messages, found.follower.bytes, found.follower.batches) == ([3], 0, 0, 0)
    assert not found.follower.caught_up, "a broker that cannot read the messages asks nobody for them"


async def test_a_takeover_does_not_wait_for_a_store_that_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(following, "END_SECONDS", 0.01)
    goes_on, began = threading.Event(), threading.Event()

    def hangs() -> None:
        began.set()
        goes_on.wait(DEADLINE)

    found = Following(Follower(Stubborn(hangs)))
    found.start()
    assert await asyncio.to_thread(began.wait, DEADLINE)
    assert await found.end() is None
    goes_on.set()
