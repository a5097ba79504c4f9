"""The loop's thread writes itself where that is quick and nobody misses it (server/shortcut.py); and what goes wrong
there ends as on the writer's thread."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from sievemq_broker.domain.journal import Batch
from sievemq_broker.server.durability import commits as module
from sievemq_broker.server.durability import shortcut
from sievemq_broker.store import DamagedError, FencedError, StoreError, StoreFullError

from . import committing
from .committing import Link, Obedient

QUICK = 0.0002
HERE, THERE = "loop", "writer"


class Timer:
    """Goes on when the test says so."""

    def __init__(self) -> None:
        self.time = 100.0

    def __call__(self) -> float:
        return self.time


class Store(Obedient):
    """Takes as long as the test says, by the test's clock; fails as the test says."""

    def __init__(self, timer: Timer) -> None:
        super().__init__()
        self._timer = timer
        self._loop = threading.get_ident()
        self.takes = QUICK
        self.light = True
        #: Of the next writes.
        self.errors: list[Exception] = []
        #: Where each try was made, and what of.
        self.tries: list[str] = []
        self.batches: list[Batch] = []
        self._inside = threading.Lock()

    def write(self, batch: Batch, now: int) -> None:
        assert self._inside.acquire(blocking=False), "two threads at once"
        try:
            self.tries.append(HERE if threading.get_ident() == self._loop else THERE)
            self.batches.append(batch)
            self._timer.time += self.takes
            if self.errors:
                raise self.errors.pop(0)
        finally:
            self._inside.release()


class Rig(committing.Rig[Store]):
    """Commits over such a store."""

    def __init__(self) -> None:
        self.timer = Timer()
        super().__init__(Store(self.timer), self.timer)

    async def send(self, data: bytes = b"x", *, links: int = 1, pause: float = 0.001) -> str:
        """One send that waits for its confirm, and where it was written."""
        self.record(f"{len(self.store.batches)}")
        for link in range(links):
            self.say(link, data)
        self.commits.end_turn()
        await self.idle()
        self.timer.time += pause
        return str(self.store.tries[-1])

    async def idle(self) -> None:
        """Everything has been written, and the loop has looked around."""
        await self.commits.synced()
        for _ in range(4):
            await asyncio.sleep(0)

    async def warm(self) -> None:
        """Until the loop's thread writes."""
        for _ in range(200):
            if await self.send(b"") == HERE:
                return
        raise AssertionError("the loop's thread never writes")


@pytest.fixture
async def rig() -> Any:
    rig = Rig()
    yield rig
    await rig.commits.close()
    assert rig.store.closed


async def test_after_some_quick_writes_the_loops_thread_writes_itself(rig: Rig) -> None:
    assert [await rig.send() for _ in range(3)] == [THERE] * 3
    await rig.warm()
    taken = rig.commits.shortcut.taken
    assert [await rig.send() for _ in range(50)] == [HERE] * 50
    assert rig.commits.shortcut.taken == taken + 50
    assert rig.commits.writes == len(rig.store.batches)
    assert [batch.id for batch in rig.store.batches] == list(range(1, len(rig.store.batches) + 1))


async def test_what_was_held_leaves_before_the_turn_ends_and_in_order(rig: Rig) -> None:
    await rig.warm()
    before = len(b"".join(rig.links[0].left))
    for data in (b"a", b"b", b"c"):
        rig.record(repr(data))
        rig.say(0, data)
        assert rig.links[0].held == 1
        rig.commits.end_turn()
        assert rig.links[0].left[-1] == data
        assert rig.links[0].held == 0
    assert b"".join(rig.links[0].left)[before:] == b"abc"


@pytest.mark.parametrize("why", ["not light", "many wait", "only lazily", "somebody asks", "refusing"])
async def test_the_thread_writes_where_the_loop_should_not(rig: Rig, why: str) -> None:
    await rig.warm()
    taken = rig.commits.shortcut.taken
    if why == "not light":
        rig.store.light = False
        assert await rig.send() == THERE
    elif why == "many wait":
        rig.links.append(Link())
        assert await rig.send(links=3) == THERE
        assert await rig.send(links=2) == HERE
        taken += 1
    elif why == "only lazily":
        rig.record("nobody waits")
        rig.commits.end_turn()
        await rig.idle()
        assert rig.store.tries[-1] == THERE
    elif why == "somebody asks":
        rig.record("asked")
        await rig.commits.synced()
        assert rig.store.tries[-1] == THERE
    else:
        rig.refuse("full")
        assert await rig.send() == THERE
    assert rig.commits.shortcut.taken == taken


async def test_a_verb_that_takes_several_turns_is_not_cut_in_two(rig: Rig) -> None:
    await rig.warm()
    written = len(rig.store.batches)
    rig.journal.holds = 1
    rig.record("first")
    rig.say(0, b"1")
    rig.commits.end_turn()
    assert len(rig.store.batches) == written
    assert rig.links[0].held == 1
    rig.journal.holds = 0
    rig.record("second")
    rig.commits.end_turn()
    assert len(rig.store.batches[-1].definitions) == 2
    assert rig.links[0].left[-1] == b"1"


async def test_a_write_that_fails_here_is_tried_again_there_and_nothing_leaves_before(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "PAUSE_SECONDS", 0.0)
    await rig.warm()
    left = list(rig.links[0].left)
    rig.store.errors = [StoreError("I/O error"), StoreError("I/O error")]
    rig.record("it")
    rig.say(0, b"a")
    rig.commits.end_turn()
    assert rig.store.tries[-1] == HERE
    assert rig.links[0].left == left
    assert rig.stands == ["I/O error"]
    rig.record("meanwhile")
    rig.say(0, b"b")
    rig.commits.end_turn()
    await rig.idle()
    assert rig.store.calls == ["reopen", "reopen"]
    assert rig.store.tries[-4:] == [HERE, THERE, THERE, THERE]
    assert len({batch.id for batch in rig.store.batches[-4:-1]}) == 1
    assert rig.links[0].left[len(left) :] == [b"a", b"b"]
    assert rig.stands == ["I/O error", None]
    assert await rig.send() == THERE  # until some were quick again
    await rig.warm()


async def test_a_disk_that_is_full_here_gives_up_the_reserve_and_refuses(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LOOK_SECONDS", 0.0)
    await rig.warm()
    rig.store.errors = [StoreFullError("full")]
    rig.record("it")
    rig.say(0, b"a")
    rig.commits.end_turn()
    assert rig.store.tries[-1] == HERE
    assert await rig.refusals.get() == "full"
    await rig.idle()
    assert rig.store.calls == ["relieve"]
    assert rig.store.tries[-1] == THERE
    assert rig.links[0].left[-1] == b"a"
    rig.store.room = True
    assert await rig.refusals.get() is None
    await rig.warm()


async def test_a_store_that_is_low_refuses(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LOOK_SECONDS", 0.0)
    await rig.warm()
    rig.store.low = True
    assert await rig.send(b"a") == HERE
    assert await rig.refusals.get() == "the disk of the data directory is full"
    assert rig.links[0].left[-1] == b"a"
    rig.store.low, rig.store.room = False, True
    assert await rig.refusals.get() is None


@pytest.mark.parametrize("error", [FencedError("another broker"), DamagedError("damaged"), RuntimeError("a fault")])
async def test_a_store_that_cannot_be_used_ends_the_broker_in_silence(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig = Rig()
    await rig.warm()
    monkeypatch.setattr(module, "RETRY_SECONDS", 0.0)
    left = list(rig.links[0].left)
    rig.store.errors = [error]
    rig.record("it")
    rig.say(0, b"a")
    rig.commits.end_turn()
    assert rig.failures == [error]
    rig.say(1, b"b")
    rig.commits.end_turn()
    await rig.commits.close()
    assert rig.links[0].left == left
    assert rig.links[1].left == []
    assert rig.store.closed


async def test_a_stall_is_paid_for_by_writes_on_the_thread(rig: Rig) -> None:
    await rig.warm()
    rig.store.takes = 0.5
    assert await rig.send() == HERE
    rig.store.takes = QUICK
    began = rig.timer.time
    elsewhere = 0
    while await rig.send(pause=0.05) == THERE:
        elsewhere += 1
    assert rig.timer.time - began >= 0.5 * shortcut.STALL_SHARE
    assert elsewhere > 100
    assert await rig.send() == HERE


async def test_a_stall_on_the_thread_is_none_the_loop_should_risk(rig: Rig) -> None:
    await rig.warm()
    rig.store.takes = 0.02
    rig.record("asked")
    await rig.commits.synced()
    assert rig.store.tries[-1] == THERE
    rig.store.takes = QUICK
    assert await rig.send() == THERE


async def test_a_disk_that_becomes_slow_is_left_to_the_thread_until_it_is_quick_again(rig: Rig) -> None:
    await rig.warm()
    rig.store.takes = 0.006  # none of them is a stall
    where = [await rig.send() for _ in range(60)]
    here = where.index(THERE)
    assert 0 < here < 20
    assert where[here:] == [THERE] * (60 - here)
    rig.store.takes = QUICK
    await rig.warm()


async def test_stalls_take_up_a_small_share_of_the_loops_time_however_often_they_come(rig: Rig) -> None:
    await rig.warm()
    began = rig.timer.time
    stalled = 0.0
    for number in range(2_000):
        rig.store.takes = 0.011 + number % 7 / 20 if number % 50 == 0 else QUICK
        if await rig.send(pause=0.005) == HERE and rig.store.takes > QUICK:
            stalled += rig.store.takes
    assert 0 < stalled <= (rig.timer.time - began) / shortcut.STALL_SHARE + 0.4


async def test_a_write_that_is_no_sync_alone_says_nothing_of_syncs(rig: Rig) -> None:
    await rig.warm()
    rig.store.light, rig.store.takes = False, 0.5
    assert await rig.send() == THERE
    rig.store.light, rig.store.takes = True, QUICK
    assert await rig.send() == HERE


async def test_what_was_written_here_is_noted_when_it_has_been_said(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    await rig.warm()
    said: list[list[bytes]] = []
    monkeypatch.setattr(rig.store, "note", lambda: said.append(rig.links[0].left[-1:]))
    for number in range(5):
        assert await rig.send(b"%d" % number) == HERE
    assert said == [[b"0"], [b"1"], [b"2"], [b"3"], [b"4"]]
    rig.store.light = False
    assert await rig.send(b"noted by the store") == THERE
    assert len(said) == 5


async def test_a_write_that_cannot_be_noted_is_kept_all_the_same(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    await rig.warm()

    def fail() -> None:
        raise OSError("input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(rig.store, "note", fail)
        assert await rig.send(b"a") == HERE
    assert rig.links[0].left[-1] == b"a"
    assert "input/output error" in caplog.text
    noted = rig.store.noted
    assert await rig.send(b"b") == HERE
    assert rig.store.noted == noted + 1
    assert rig.failures == []


async def test_where_work_had_come_meanwhile_the_thread_writes_for_a_while(rig: Rig) -> None:
    await rig.warm()
    rig.record("it")
    rig.say(0, b"a")
    rig.commits.end_turn()
    rig.commits.fed(rig.links[1])  # in the turn that follows at once
    for _ in range(4):
        await asyncio.sleep(0)
    rig.commits._fed.clear()
    assert await rig.send(pause=shortcut.CROWD_SECONDS) == THERE
    assert await rig.send() == HERE


async def test_what_comes_while_the_thread_writes_is_not_written_before_that_has_left(rig: Rig) -> None:
    """The next batch is begun before the last one's bytes leave: here it would leave first."""
    await rig.warm()
    left = list(rig.links[0].left)
    rig.store.light = False
    rig.record("first")
    rig.say(0, b"1")
    rig.commits.end_turn()
    rig.store.light = True
    rig.record("second")
    rig.say(0, b"2")
    rig.commits.end_turn()
    await rig.idle()
    assert rig.links[0].left[len(left) :] == [b"1", b"2"]


async def test_close_writes_what_there_is_and_a_failure_here_is_waited_for(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "PAUSE_SECONDS", 0.0)
    await rig.warm()
    rig.store.errors = [StoreError("I/O error")]
    rig.record("it")
    rig.say(0, b"a")
    rig.commits.end_turn()
    assert rig.store.tries[-1] == HERE
    rig.record("last")
    await rig.commits.close()
    assert rig.links[0].left[-1] == b"a"
    assert rig.store.closed
    assert {key for batch in rig.store.batches[-2:] for _, key in batch.definitions} == {("it",), ("last",)}


async def test_close_right_after_a_write_here(rig: Rig) -> None:
    await rig.warm()
    rig.record("it")
    rig.say(0, b"a")
    rig.commits.end_turn()
    await rig.commits.close()
    assert rig.links[0].left[-1] == b"a"


async def test_how_long_it_took_is_counted(rig: Rig) -> None:
    await rig.warm()
    before = rig.commits.latency.count, rig.commits.latency.sum
    rig.store.takes = 0.004
    assert await rig.send() == HERE
    assert rig.commits.latency.count == before[0] + 1
    assert rig.commits.latency.sum - before[1] == pytest.approx(0.004)
