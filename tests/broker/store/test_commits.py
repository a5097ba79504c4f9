"""Group commit: nothing leaves before what it tells of is on disk, in order, one write for many; a full disk."""

from __future__ import annotations

import asyncio
import queue
from pathlib import Path
from time import perf_counter
from types import SimpleNamespace
from typing import Any

import pytest

from sievemq import ConnectionFactory, JMSContext, JMSRuntimeException
from sievemq_broker import EmbeddedBroker
from sievemq_broker.domain.journal import Share, Write
from sievemq_broker.server.durability import commits as module
from sievemq_broker.server.server import Server
from sievemq_broker.store import DamagedError, StoreError, StoreFullError

from . import committing
from .committing import Obedient


class Store(Obedient):
    """Writes when the test says so, and fails as the test says."""

    def __init__(self) -> None:
        super().__init__()
        self.answers: queue.SimpleQueue[Exception | None] = queue.SimpleQueue()
        self.began: asyncio.Queue[Write] = asyncio.Queue()
        self.loop = asyncio.get_running_loop()

    def write(self, write: Write, now: int) -> None:
        self.loop.call_soon_threadsafe(self.began.put_nowait, write)
        error = self.answers.get()
        if error is not None:
            raise error


class Rig(committing.Rig[Store]):
    """Commits over such a store."""

    def __init__(self) -> None:
        super().__init__(Store())


@pytest.fixture
async def rig() -> Any:
    rig = Rig()
    yield rig
    for _ in range(10):
        rig.store.answers.put(None)
    await rig.commits.close()
    assert rig.store.closed


async def test_without_changes_everything_leaves_at_once(rig: Rig) -> None:
    rig.say(0, b"a")
    rig.commits.end_turn()
    assert rig.left == [[b"a"], []]


async def test_a_turn_gives_way_to_a_write_under_way(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []
    monkeypatch.setattr(module, "time", SimpleNamespace(sleep=pauses.append, perf_counter=perf_counter))
    rig.commits.give_way()
    assert pauses == []
    rig.record()
    rig.say(0, b"a")
    rig.commits.end_turn()
    await rig.store.began.get()
    rig.commits.give_way()
    assert pauses == [0]
    rig.store.answers.put(None)
    await rig.links[0].something.wait()
    rig.commits.give_way()
    assert pauses == [0]


async def test_output_leaves_after_the_write_and_later_output_behind_it(rig: Rig) -> None:
    rig.record()
    rig.say(0, b"a")
    rig.commits.end_turn()
    await rig.store.began.get()
    rig.say(0, b"b")  # a turn without changes, while the write is under way
    rig.say(1, b"c")
    rig.commits.end_turn()
    assert rig.left == [[], []]
    assert rig.links[0].held == 2
    rig.store.answers.put(None)
    await rig.links[0].something.wait()
    assert rig.left == [[b"ab"], [b"c"]]
    assert rig.links[0].held == 0
    rig.say(0, b"d")
    assert rig.left == [[b"ab", b"d"], [b"c"]]


class Noting(committing.Link):
    """Adds its name to a list when its output leaves, and a pause in a later turn of the loop."""

    def __init__(self, name: str, order: list[str]) -> None:
        super().__init__()
        self.name, self.order = name, order

    def release(self, data: bytes) -> None:
        super().release(data)
        self.order.append(self.name)
        asyncio.get_running_loop().call_soon(self.order.append, "-")


async def test_output_of_many_links_leaves_over_several_turns_in_the_order_of_each(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "RELEASED_AT_ONCE", 1)
    order: list[str] = []
    rig.links = [Noting(name, order) for name in "abcd"]
    rig.record()
    for link in range(4):
        rig.say(link, b"1")
    rig.commits.end_turn()
    await rig.store.began.get()
    rig.store.answers.put(None)
    await rig.links[0].something.wait()
    assert "c" not in order
    rig.say(3, b"2", free=True)
    await rig.links[3].something.wait()
    assert order[:5] == ["a", "b", "-", "c", "-"]
    assert rig.left == [[b"1"], [b"1"], [b"1"], [b"12"]]


async def test_links_whose_output_never_ends_do_not_starve_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "RELEASED_AT_ONCE", 1)
    order: list[str] = []
    held = module._Held(asyncio.get_running_loop(), lambda: True)
    links = [Noting(name, order) for name in "abc"]
    stored = [SimpleNamespace(stored=False) for _ in range(4)]
    for link in links:
        held.add(link, b"1", [stored[0]])
    for number in range(1, 4):
        for link in links[:2]:
            held.add(link, b"2", [stored[number]])
        stored[number - 1].stored = True
        held.release()
        await asyncio.sleep(0)
    assert [name for name in order if name != "-"][:3] == ["a", "b", "c"]


async def test_the_end_releases_the_output_of_all_links(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "RELEASED_AT_ONCE", 1)
    rig = Rig()
    rig.links = [committing.Link() for _ in range(9)]
    rig.record()
    for link in range(9):
        rig.say(link, b"1")
    rig.store.answers.put(None)
    await rig.commits.close()
    assert rig.left == [[b"1"]] * 9


async def test_a_link_whose_output_needs_nothing_does_not_wait_for_others(rig: Rig) -> None:
    rig.record()
    rig.say(0, b"a")
    rig.say(1, b"x", free=True)
    rig.commits.end_turn()
    await rig.store.began.get()
    rig.record()
    rig.say(1, b"y", free=True)
    rig.say(0, b"b", free=True)  # behind what waits
    rig.commits.end_turn()
    assert rig.left == [[], [b"x", b"y"]]
    rig.store.answers.put(None)
    await rig.links[0].something.wait()
    assert rig.left == [[b"ab"], [b"x", b"y"]]
    rig.store.answers.put(None)


async def test_a_large_share_is_written_ahead_though_no_client_waits(rig: Rig) -> None:
    share, journal = Share(), rig.journal
    journal.ahead_bytes = 1_000
    journal.together(share, lambda: journal.keep(1, b"m" * 100))
    rig.commits.end_turn()
    assert rig.store.began.empty()
    assert not journal.has_ahead
    journal.together(share, lambda: journal.keep(1, b"m" * 1_000))
    rig.commits.end_turn()
    write = await rig.store.began.get()
    assert (write.parts, [len(batch.accepted) for batch in write.ahead]) == ((), [1, 1])
    rig.store.answers.put(None)
    journal.complete(share)
    rig.say(0, b"a", share)
    rig.commits.end_turn()
    write = await rig.store.began.get()
    assert ([batch.ahead for batch in write.parts], write.ahead, write.bytes) == ([1, 1], (), 0)
    assert rig.left[0] == []
    rig.store.answers.put(None)
    await rig.links[0].something.wait()
    assert rig.left[0] == [b"a"]


async def test_a_verb_of_several_turns_is_one_write_and_holds_back_only_who_learns_of_it(rig: Rig) -> None:
    share, journal = Share(), rig.journal
    journal.together(share, lambda: rig.record("first"))
    rig.say(0, b"a", share)
    rig.record("between")
    rig.say(1, b"x")
    rig.commits.end_turn()
    assert [key for _, key in (await rig.store.began.get()).parts[0].definitions] == [("between",)]
    rig.store.answers.put(None)
    await rig.links[1].something.wait()
    assert rig.left == [[], [b"x"]]
    journal.together(share, lambda: rig.record("second"))
    completed: list[int] = []
    share.when_complete(lambda: (rig.record("progress"), completed.append(1))[0])
    journal.complete(share)
    rig.commits.end_turn()
    write = await rig.store.began.get()
    assert [key for part in write.parts for _, key in part.definitions] == [("first",), ("second",), ("progress",)]
    assert rig.left[0] == []
    rig.store.answers.put(None)
    await rig.links[0].something.wait()
    assert (rig.left[0], share.stored, completed) == ([b"a"], True, [1])


async def test_who_waits_for_a_verb_that_has_changed_nothing_waits_until_it_is_complete(rig: Rig) -> None:
    share = Share()
    rig.journal.together(share, lambda: None)
    rig.say(0, b"a", share)
    rig.commits.end_turn()
    rig.journal.complete(share)
    rig.commits.end_turn()
    await rig.links[0].something.wait()
    assert rig.left == [[b"a"], []]


async def test_turns_during_a_write_share_the_next_one(rig: Rig) -> None:
    rig.record("first")
    rig.say(0, b"1")
    rig.commits.end_turn()
    first = await rig.store.began.get()
    for turn in (b"2", b"3", b"4"):
        rig.record(turn.decode())
        rig.say(0, turn)
        rig.say(1, turn)
        rig.commits.end_turn()
    rig.store.answers.put(None)
    second = await rig.store.began.get()
    assert [list(write.parts[0].definitions) for write in (first, second)] == [
        [("kind", ("first",))],
        [("kind", ("2",)), ("kind", ("3",)), ("kind", ("4",))],
    ]
    await rig.links[0].something.wait()
    assert rig.left == [[b"1"], []]
    rig.store.answers.put(None)
    await rig.links[1].something.wait()
    assert rig.left == [[b"1", b"234"], [b"234"]]
    assert (rig.commits.writes, second.number) == (2, first.number + 1)


async def test_a_commit_of_several_turns_is_one_write(rig: Rig) -> None:
    rig.journal.holds = 1
    for name in ("first", "second"):
        rig.record(name)
        rig.say(0, b"x")
        rig.commits.end_turn()
    synced = rig.commits.synced()
    assert rig.store.began.empty()
    rig.journal.holds = 0
    rig.commits.end_turn()
    write = await rig.store.began.get()
    assert {key for _, key in write.parts[0].definitions} == {("first",), ("second",)}
    rig.store.answers.put(None)
    await synced
    assert rig.left == [[b"xx"], []]


async def test_changes_without_a_waiting_client_are_written(rig: Rig) -> None:
    rig.record()
    rig.commits.end_turn()
    assert rig.store.began.empty()
    assert (await rig.store.began.get()).parts[0].definitions


async def test_synced_waits_for_everything_so_far(rig: Rig) -> None:
    assert rig.commits.synced().done()
    rig.record("a")
    first = rig.commits.synced()
    await rig.store.began.get()
    second = rig.commits.synced()
    rig.record("b")
    third = rig.commits.synced()
    rig.store.answers.put(None)
    await first
    await second
    await rig.store.began.get()
    assert not third.done()
    rig.store.answers.put(None)
    await third


async def test_a_write_that_fails_is_tried_again_and_nothing_leaves_before_it_succeeds(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "PAUSE_SECONDS", 0.0)
    rig.record()
    rig.say(0, b"a")
    rig.commits.end_turn()
    first = await rig.store.began.get()
    rig.store.answers.put(StoreError("I/O error"))
    assert await rig.store.began.get() is first
    assert rig.left == [[], []]
    assert rig.store.calls == ["reopen"]
    rig.store.answers.put(StoreError("I/O error again"))
    assert await rig.store.began.get() is first
    assert rig.stands == ["I/O error"]  # told once
    rig.store.answers.put(None)
    await rig.links[0].something.wait()
    assert rig.left == [[b"a"], []]
    assert rig.stands == ["I/O error", None]


@pytest.mark.parametrize("error", [StoreError("I/O error"), DamagedError("damaged"), RuntimeError("a fault")])
async def test_a_store_that_cannot_be_used_ends_the_broker_in_silence(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "RETRY_SECONDS", 0.0)
    rig = Rig()
    rig.record()
    rig.say(0, b"a")
    rig.commits.end_turn()
    await rig.store.began.get()
    owed = rig.commits.synced()
    rig.store.answers.put(error)
    with pytest.raises(asyncio.CancelledError):
        await owed
    assert rig.failures == [error]
    rig.say(1, b"b")
    rig.commits.end_turn()
    await rig.commits.close()
    assert rig.left == [[], []]


async def test_a_full_disk_gives_up_the_reserve_and_refuses_until_there_is_room(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LOOK_SECONDS", 0.0)
    monkeypatch.setattr(module, "PAUSE_SECONDS", 0.0)
    rig.record()
    rig.say(0, b"a")
    rig.commits.end_turn()
    first = await rig.store.began.get()
    rig.store.answers.put(StoreFullError("full"))
    assert await rig.store.began.get() is first
    assert rig.store.calls == ["relieve"]
    assert rig.commits.stuck is None
    rig.store.answers.put(StoreFullError("full"))
    assert await rig.refusals.get() == "full"
    assert await rig.store.began.get() is first
    assert rig.commits.stuck == "full"
    assert rig.stands == ["full"]
    rig.store.room = 1_249
    rig.store.answers.put(None)
    await rig.links[0].something.wait()
    assert rig.left == [[b"a"], []]
    assert rig.stands == ["full", None]
    assert rig.commits.stuck is None
    assert rig.commits.full == "full"
    rig.store.room = 1_250
    assert await rig.refusals.get() is None
    assert rig.commits.full is None


async def test_the_end_does_not_wait_for_a_disk_that_stays_full(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PAUSE_SECONDS", 0.0)
    monkeypatch.setattr(module, "STUCK_CLOSE_SECONDS", 0.05)

    class Full(Obedient):
        def write(self, write: Write, now: int) -> None:
            raise StoreFullError("full")

    rig = committing.Rig(Full())
    rig.record()
    rig.say(0, b"a")
    rig.commits.end_turn()
    await rig.refusals.get()
    assert not await rig.commits.close()
    assert rig.left == [[], []]


async def test_the_end_does_not_wait_for_a_disk_that_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CLOSE_SECONDS", 0.1)
    monkeypatch.setattr(module, "STUCK_CLOSE_SECONDS", 0.05)
    rig = Rig()
    rig.record()
    rig.commits.end_turn()
    await rig.store.began.get()
    assert not await rig.commits.close()
    assert not rig.store.closed  # its thread has it
    rig.store.answers.put(None)


async def test_a_store_with_little_room_refuses_before_it_is_full(rig: Rig) -> None:
    rig.store.room = 999
    rig.record()
    rig.say(0, b"a")
    rig.commits.end_turn()
    rig.store.answers.put(None)
    assert await rig.refusals.get() == "the disk of the data directory is full"
    await rig.links[0].something.wait()


def test_a_full_disk_refuses_producers_serves_consumers_and_loses_no_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LOOK_SECONDS", 0.02)
    free = [2**40]
    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=free[-1]))
    broker = EmbeddedBroker(data_dir=tmp_path)
    taken: list[str] = []
    with broker, ConnectionFactory(broker.url).create_context(JMSContext.AUTO_ACKNOWLEDGE) as context:
        queue = context.create_queue("q")
        producer = context.create_producer()
        free.append(0)
        confirmed: list[str] = []
        with pytest.raises(JMSRuntimeException, match=r"takes no PERSISTENT messages now: .* is full"):
            for number in range(2_000):
                producer.send(queue, f"{number} " + "x" * 2_000)
                confirmed.append(str(number))
        assert confirmed
        context.create_producer().set_delivery_mode(1).send(context.create_queue("other"), "not kept, so not refused")
        consumer = context.create_consumer(queue)
        taken += [consumer.receive(60_000).get_text().split()[0] for _ in range(len(confirmed) - 1)]
        consumer.close()
        free.append(2**40)
        while broker.call(lambda b: b.journal is not None and b.journal.refusing) is not None:
            pass
        producer.send(queue, "again")
    with broker, ConnectionFactory(broker.url).create_context() as context:
        rest = [message.get_text().split()[0] for message in context.create_browser(context.create_queue("q"))]
    assert taken + rest == [*confirmed, "again"]


def test_settings_report_durability(tmp_path: Path) -> None:
    broker = EmbeddedBroker(data_dir=tmp_path)
    with broker:
        server: Server = broker.server
        assert server.shard.services.settings.durable
    with EmbeddedBroker() as plain:
        assert not plain.server.shard.services.settings.durable
