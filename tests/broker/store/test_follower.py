"""A broker that has followed restores what one would that has not, in every field."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from sievemq_broker.domain import Broker, DomainSettings
from sievemq_broker.domain.admission import MESSAGE_BYTES
from sievemq_broker.domain.handover import carry
from sievemq_broker.domain.journal import Batch, Key
from sievemq_broker.domain.restore import restore
from sievemq_broker.domain.saved import SavedBatch, SavedState
from sievemq_broker.domain.store import AwayError, DamagedError
from sievemq_broker.store import follower as following
from sievemq_broker.store.batches import Batches
from sievemq_broker.store.blob import State
from sievemq_broker.store.follower import FOLLOW_AFTER, Follower, Seal
from sievemq_core.errors import RequestError

from .following import FollowedTables, Reading, Tables, TableStore, anatomy, difference, rewrites_all, seal_of
from .support import message, write
from .test_crash_consistency import POLICIES, QUEUES, VERBS, Program

#: Verbs of this model alone, and how often each is said.
MORE = {"group": 2, "tap": 1, "publish": 1, "next_life": 1, "lose_writes": 1}


class Fault:
    """Something that a takeover could forget, planted."""

    def __init__(self, name: str = "") -> None:
        self.name = name

    def reading(self, store: TableStore, follower: Follower, before: TableStore) -> Reading:
        return Forgetful(self.name, store, follower, before)


class Forgetful(Reading):
    """Forgets one kind of difference between what was followed and what is there."""

    def __init__(self, fault: str, store: TableStore, follower: Follower, before: TableStore) -> None:
        self._fault, self._before = fault, before
        self._built = dict(follower._built)
        super().__init__(store, follower)
        if fault == "new batches":
            self.tables.data = {own: row for own, row in self.tables.data.items() if own in self._built}
        elif fault == "batches that are gone":
            built = {own: before.tables.data[own] for own in self._built if own in before.tables.data}
            self.tables.data = built | self.tables.data
        elif fault == "states":
            self.tables.changed = {own: row for own, row in self.tables.changed.items() if own not in self._built}
        elif fault == "seals":
            self.tables.batches = self._any_seal  # type: ignore[method-assign]

    def _any_seal(self) -> Iterator[tuple[int, bytes | SavedBatch, bytes | None]]:
        for own, row, state in Tables.batches(self.tables):
            yield own, self._built[own][1] if own in self._built else row, state

    def definitions(self, kind: str) -> Mapping[Key, tuple[Any, ...]]:
        return self._before.definitions(kind) if self._fault == "definitions" else super().definitions(kind)


FAULTS = ("new batches", "batches that are gone", "states", "seals", "definitions")


class Followed(Program):
    """A program whose store is followed, now and then by a new follower."""

    def __init__(self, chance: random.Random, fault: str = "") -> None:
        self.chance = chance
        self.fault = fault
        self.clock = 0.0
        self.checks = self.warm = 0
        self.store: TableStore
        super().__init__(None, store=TableStore(chance.choice((1, 300, 2**30))))
        self._follow()

    def _follow(self) -> None:
        self.follower = Follower(TablesOf(self))
        self.before = self.store.copy()

    # -- verbs ------------------------------------------------------------------------------------------------------

    def group(self, where: int, how: int, priority: int) -> None:
        at = self.now + 60 if how == 1 else 0
        envelope = message(self.name(), priority=priority, at=at, JMSXGroupID=f"g{how}")
        self.space.send(QUEUES[where % 3], envelope, self.now, "c")

    def tap(self, where: int, how: int, _: int) -> None:
        mode = ("copy", "outcomes", "drain", "copy")[how]
        self.space.taps.open("maker", f"t{how}", QUEUES[where % 3], mode, None, {}, self.now)

    def publish(self, batch: int, _: int, __: int) -> None:
        self.space.stages.remember("owner", f"key{batch}", self.number)

    def next_life(self, *_: int) -> None:
        """An orderly end, which hands over what only memory has."""
        self.space.send(QUEUES[0], message(self.name(), mode=1), self.now, "c")
        carry(self.broker, {"c"}.__contains__)
        self.cut()
        self._begin_again()

    def lose_writes(self, back: int, _: int, really: int) -> None:
        """A replica is promoted that lacks the last ones; their ids are given again."""
        if really < 3 and len(self.moments) > back:
            moment = self.moments[-1 - back][0]
            assert isinstance(moment, TableStore)
            self.store = moment.copy()
            self._begin_again()

    def _begin_again(self) -> None:
        self.consumers.clear()
        self.lost.clear()
        self.broker = self.begin()

    def cut(self, *_: int) -> None:
        super().cut()
        for _ in range(self.chance.choice((0, 1, 1, 3))):
            self.clock += self.chance.choice((0.1, FOLLOW_AFTER))
            self.follower.step(self.clock)
        if self.chance.random() < 0.1:
            self.check()
            self._follow()

    # -- afterwards -------------------------------------------------------------------------------------------------

    def check(self) -> None:
        self.checks += 1
        self.warm += self.follower.messages
        now = self.now + self.chance.choice((0, 0, 70, 500))
        cold = restored(Reading(self.store), now)
        assert difference(anatomy(restored(self.store, now)), anatomy(cold)) is None, "of rows and what was written"
        reading = Fault(self.fault).reading(self.store, self.follower, self.before)
        assert difference(anatomy(restored(reading, now)), anatomy(cold)) is None


class TablesOf(Tables):
    """The tables of a program's store, which may be another one after a while."""

    def __init__(self, program: Followed) -> None:
        self._program = program

    def __getattribute__(self, name: str) -> Any:
        if name in ("data", "changed", "writes"):
            return getattr(object.__getattribute__(self, "_program").store.tables, name)
        return object.__getattribute__(self, name)


def restored(saved: Any, now: int) -> tuple[Broker, int]:
    broker = Broker(DomainSettings(policies=POLICIES))
    return broker, restore(broker, saved, now)


def play(seed: int, fault: str = "") -> Followed:
    chance = random.Random(seed)
    weights = VERBS | MORE | ({"lose_writes": 12} if fault == "seals" else {})
    verbs = [verb for verb, times in weights.items() for _ in range(times)]
    run = Followed(chance, fault)
    for _ in range(chance.randint(30, 90)):
        try:
            getattr(run, chance.choice(verbs))(chance.randint(0, 3), chance.randint(0, 3), chance.randint(0, 9))
        except RequestError:
            pass  # refused: nothing has changed
    run.cut()
    run.check()
    return run


@pytest.fixture(autouse=True)
def _rewritten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(*rewrites_all())


def test_i_11_a_takeover_restores_the_same_however_much_was_followed() -> None:
    runs = [play(seed) for seed in range(25)]
    assert sum(run.warm for run in runs) > 50


@pytest.mark.slow
def test_i_11_a_takeover_restores_the_same_in_hundreds_of_histories() -> None:
    for seed in range(1_000, 1_400):
        play(seed)


@pytest.mark.parametrize("fault", FAULTS)
def test_a_difference_that_a_takeover_forgets_is_found(fault: str) -> None:
    def is_found(seed: int) -> bool:
        try:
            play(seed, fault)
        except (AssertionError, DamagedError):
            return True
        return False

    assert any(is_found(seed) for seed in range(60))


# -- what is followed -------------------------------------------------------------------------------------------------


def filled(*sizes: int, first: int = 1) -> Tables:
    """Tables with batches of so many messages."""
    store = TableStore()
    for number, size in enumerate(sizes, first):
        batch = Batch(number)
        batch.accepted += [(1, message(f"m{number}.{place}").packed) for place in range(size)]
        write(store, batch)
    return store.tables


def follow(tables: Tables, limit: int = 0, steps: int = 5) -> Follower:
    follower = Follower(tables, limit)
    for step in range(steps):
        follower.step(step * FOLLOW_AFTER)
    return follower


def test_messages_that_live_briefly_are_never_read(monkeypatch: pytest.MonkeyPatch) -> None:
    tables = filled(1)
    follower = follow(tables)
    read: list[int] = []
    rows = tables.rows

    def reads(ids: Any) -> Iterator[tuple[int, Seal, bytes]]:
        read.extend(ids)
        return rows(ids)

    monkeypatch.setattr(tables, "rows", reads)
    tables.data.update(filled(1, 1, first=2).data)
    tables.writes += 1
    follower.step(10.0)
    assert read == []
    del tables.data[2]
    tables.writes += 1
    follower.step(10.5)
    assert (read, follower.caught_up) == ([], True)
    follower.step(11.0)
    assert (read, follower.messages) == ([3], 2)


def test_a_follower_has_caught_up_although_its_owner_writes_on() -> None:
    """Each step finds a batch that is old enough by then. It would ask for the shard never, and look without a rest."""
    tables = filled(1)
    follower = Follower(tables)
    for step in range(20):
        assert not follower.step(step * FOLLOW_AFTER / 5)
        assert follower.caught_up
        tables.data.update(filled(1, first=step + 2).data)
        tables.writes += 1
    assert follower.batches == 15


def test_what_is_gone_takes_no_memory() -> None:
    tables = filled(3, 4, 5)
    follower = follow(tables)
    assert (follower.batches, follower.messages) == (3, 12)
    assert follower.bytes == 12 * (MESSAGE_BYTES + len(message("m1.1").packed))
    del tables.data[2]
    tables.writes += 1
    follower.step(10.0)
    assert (follower.batches, follower.messages) == (2, 8)
    tables.data.clear()
    tables.writes += 1
    follower.step(11.0)
    assert (follower.batches, follower.messages, follower.bytes) == (0, 0, 0)


def test_a_batch_that_is_rewritten_is_built_again() -> None:
    tables = filled(4)
    follower = follow(tables)
    state = State.new(4)
    state.states[0] = state.states[1] = 0xFFFF
    (kept,) = (following.unpack_batch(own, row) for own, row in tables.data.items())
    tables.data[1] = state.without_removed(kept)
    tables.writes += 1
    follower.step(10.0)
    assert follower.messages == 0
    follower.step(11.0)
    assert follower.messages == 2
    assert follower.take(1, seal_of(tables.data[1])) is not None


def test_batches_with_lower_ids_that_are_written_later_are_built(monkeypatch: pytest.MonkeyPatch) -> None:
    tables = filled(1, 1, 1)
    late = tables.data.pop(1)
    follower = follow(tables)
    tables.data[1] = late
    tables.writes += 1
    follower.step(10.0)
    follower.step(11.0)
    assert follower.batches == 3


def test_many_batches_are_listed_by_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(following, "PAGE", 2)
    tables = filled(*[1] * 7)
    follower = Follower(tables)
    while follower.step(0.0):
        assert not follower.caught_up
    assert (follower.batches, follower.caught_up) == (7, True)
    for own in (1, 4, 7):
        del tables.data[own]
    tables.writes += 1
    for _ in range(6):
        follower.step(1.0)
    assert follower.batches == 4


def test_nothing_is_listed_twice_while_nothing_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    tables = filled(1, 2)
    follower = follow(tables)
    after: list[int] = []
    monkeypatch.setattr(tables, "listed", lambda last, count: after.append(last) or [])
    follower.step(10.0)
    assert after == [2]


def test_above_its_limit_a_follower_builds_no_more(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(following, "_READ_BYTES", 1)
    size = len(message("m1.0").packed) + MESSAGE_BYTES
    tables = filled(*[2] * 9)
    follower = follow(tables, limit=6 * size, steps=20)
    assert (follower.messages, follower.is_full, follower.caught_up) == (6, True, True)
    assert len([record for record in caplog.records if "store.follower_full" in record.getMessage()]) == 1
    for own in (1, 2):
        del tables.data[own]
    tables.writes += 1
    for step in range(20, 40):
        follower.step(step)
    assert (follower.messages, follower.is_full) == (6, True)


def test_a_batch_with_another_seal_is_not_given_away() -> None:
    tables = filled(1, 1)
    follower = follow(tables)
    seal = seal_of(tables.data[1])
    assert follower.take(1, seal._replace(checksum=b"1234")) is None
    assert follower.take(2, seal_of(tables.data[2])) is not None
    assert follower.take(2, seal_of(tables.data[2])) is None
    assert follower.take(9, seal) is None


def test_a_call_that_fails_is_made_again() -> None:
    tables = filled(1, 1)
    rows, follower = tables.rows, Follower(tables)

    def away(ids: Any) -> Iterator[tuple[int, Seal, bytes]]:
        raise AwayError("away")

    tables.rows = away  # type: ignore[method-assign]
    with pytest.raises(AwayError):
        follower.step(0.0)
    tables.rows = rows  # type: ignore[method-assign]
    assert not follower.step(1.0)
    assert (follower.batches, follower.caught_up) == (2, True)


def test_what_is_no_message_is_left_to_the_takeover() -> None:
    """Copies that a tap keeps of outcomes are none."""
    store = TableStore()
    batch = Batch(1)
    batch.accepted += [(1, message("a").packed), (2, b"\x01"), (1, message("b").packed)]
    write(store, batch)
    follower = follow(store.tables)
    built: list[tuple[SavedBatch, SavedState | None]] = list(Batches(FollowedTables(store.tables, follower)).saved([]))
    assert [(run.owner, [packed for _, packed in run.kept(None)]) for run in built[0][0].runs] == [
        (1, [message("a").packed, message("b").packed]), (2, [b"\x01"]),
    ]  # fmt: skip


def test_the_state_of_another_batch_is_damage() -> None:
    store = TableStore()
    batch = Batch(1)
    batch.accepted += [(1, message("a").packed), (1, message("b").packed)]
    write(store, batch)
    follower = follow(store.tables)
    store.tables.changed[1] = State.new(1).pack(1)
    with pytest.raises(DamagedError, match="1 messages, not 2"):
        list(Batches(FollowedTables(store.tables, follower)).saved([]))
