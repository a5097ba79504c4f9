"""What has happened: which events are kept, and that a storm does not push everything else out."""

from __future__ import annotations

import asyncio
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from sievemq_broker import EmbeddedBroker
from sievemq_broker.domain.store import HistoryLine
from sievemq_broker.server.watch.happenings import AT_ONCE, Happenings
from sievemq_broker.server.watch.history import History

DEAD = "dead_lettered"


class World:
    """Happenings in memory, and a clock."""

    def __init__(self) -> None:
        self.now = 60_000_000
        self.history = History()
        self.happenings = Happenings(self.history, lambda: self.now)
        self.history.open(None)

    @property
    def rows(self) -> list[dict[str, Any]]:
        """All rows without their ids, oldest first."""
        return [{name: row[name] for name in row if name != "id"} for row in self.happenings.before(None)][::-1]

    def die(self, address: str, messages: int) -> tuple[str, dict[str, Any]]:
        return DEAD, {"namespace": "n", "address": address, "messages": messages}


@pytest.mark.parametrize(
    ("name", "address"),
    [
        ("connection.opened", None),
        ("consumer.closed", "queue:q"),
        ("subscription.created", "topic:t"),
        ("tap.deleted", "queue:q"),
        ("action", "queue:q"),
        ("destination.created", "temporary-queue:1"),
    ],
)
def test_what_is_too_frequent_is_not_kept(name: str, address: str | None) -> None:
    world = World()
    world.happenings.keep([(name, {"namespace": "n", "address": address})])
    assert world.rows == []


def test_a_storm_keeps_some_rows_and_says_how_many_more_there_were() -> None:
    world = World()
    created = [("destination.created", {"namespace": "n", "address": f"queue:{n}"}) for n in range(AT_ONCE + 5)]
    world.happenings.keep(created)
    world.happenings.note("disk.full", reason="no room", since=None)
    assert len(world.rows) == AT_ONCE + 1
    assert world.rows[-1] == {"event": "disk.full", "time": world.now, "reason": "no room"}
    world.now += 60_000
    world.happenings.keep([])
    assert world.rows[AT_ONCE + 1 :] == [{"event": "destination.created", "time": world.now, "more": 5}]
    world.happenings.keep(created[:1])
    assert world.rows[-1]["address"] == "queue:0"


def test_dead_letters_of_a_minute_are_two_rows() -> None:
    world = World()
    for messages in (3, 4, 5):
        world.happenings.keep([world.die("queue:q", messages)])
    assert [row["messages"] for row in world.rows] == [3]
    world.happenings.end()
    assert [row.get("messages") for row in world.rows] == [3, 9, None]
    world.now += 60_000
    world.happenings.keep([world.die(f"queue:{n}", 1) for n in range(AT_ONCE + 2)])
    world.happenings.keep([world.die(f"queue:{AT_ONCE}", 1)])
    world.happenings.end()
    assert world.rows[-2] == {"event": DEAD, "time": world.now, "more": 3}


class Slow:
    """A storage that is read once the test says so."""

    def __init__(self, lines: list[HistoryLine]) -> None:
        self.lines, self.may_read = lines, Event()

    def read(self) -> dict[str, list[HistoryLine]]:
        assert self.may_read.wait(60)
        return {"event": self.lines}

    def write(self, parts: object) -> None:
        """Kept nowhere."""

    def close(self) -> None:
        """Nothing is open."""


@pytest.mark.parametrize("last", ["broker.stopped", "disk.full"])
async def test_what_happens_before_older_rows_are_read_says_nothing_of_the_last_end(last: str) -> None:
    history = History()
    happenings = Happenings(history, lambda: 1)
    store = Slow([HistoryLine(5, b'{"id":5,"event":"%s"}' % last.encode())])
    history.open(store)
    happenings.begin("1.0")
    happenings.keep([("destination.created", {"namespace": "n", "address": "queue:q"})])
    loaded = asyncio.Event()
    history.when_loaded(loaded.set)
    store.may_read.set()
    await loaded.wait()
    assert [row["was_killed"] for row in happenings.before(None) if row["event"] == "broker.started"] == [
        last != "broker.stopped"
    ]
    await history.close()


def loaded(broker: EmbeddedBroker) -> list[dict[str, Any]]:
    """Its rows, once those of the earlier process are there."""
    there = Event()
    broker.call(lambda _: broker.server.history.when_loaded(there.set))
    assert there.wait(60)
    return broker.call(lambda _: list(broker.server.happenings.before(None))[::-1])


def test_starts_and_ends_are_kept_over_a_restart(tmp_path: Path) -> None:
    for _ in range(2):
        with EmbeddedBroker(data_dir=tmp_path) as broker:
            rows = loaded(broker)
    assert [row["event"] for row in rows] == ["broker.started", "broker.stopped", "broker.started"]
    assert [row.get("was_killed") for row in rows] == [False, None, False]


def test_a_start_says_that_the_process_before_was_killed() -> None:
    world = World()
    for _ in range(2):
        world.happenings.begin("1.0")
    assert [row["was_killed"] for row in world.rows] == [False, True]


def test_a_clock_that_is_set_is_kept() -> None:
    with EmbeddedBroker() as broker:
        broker.call(lambda _: broker.server._clock_jumped(5_000))
        assert [(row["event"], row.get("seconds")) for row in loaded(broker)][-1] == ("clock.jumped", 5.0)
