"""Batches that are written later than batches with higher ids: each verb of several turns has a share of its own."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.broker.at_once import settle

from sievemq_broker.domain import Broker, Queue
from sievemq_broker.domain.consumer import Consumer
from sievemq_broker.domain.journal import HELD_FLAG, Batch, Journal, Share, Write
from sievemq_broker.domain.publishing import AT_ONCE, Sends
from sievemq_broker.domain.restore import restore
from sievemq_broker.domain.settlement import Outcome
from sievemq_broker.domain.store import Store
from sievemq_broker.domain.tap import CopyTap
from sievemq_broker.server.durability.durable import Directory, open_and_restore
from sievemq_broker.store import SqliteStore, StoreError
from sievemq_broker.store.database import DATABASE, TOGETHER, connect
from sievemq_broker.store.salvage import check, repair
from sievemq_broker.store.sqlite_rows import DirectoryRows

from .support import NOW, DictStore, message, name_of, saved_in, write
from .test_both import Folder, Shard
from .test_journal import Port


class Life:
    """A broker over a store, and a share of a long verb."""

    def __init__(self, store: DictStore | Store) -> None:
        self.store = store
        self.broker = Broker()
        restore(self.broker, store, NOW)
        assert self.broker.journal is not None
        self.journal: Journal = self.broker.journal
        self.space = self.broker.namespace("")
        self.share = Share()

    def send(self, *names: str, to: str = "queue:q", share: Share | None = None, at: int = 0) -> None:
        self.journal.turn_to(share)
        for name in names:
            self.space.send(to, message(name, at=at), NOW)
        self.journal.turn_to(None)

    def cut(self, now: int = NOW) -> None:
        self.store.write(self.journal.cut(), now)

    def consume(self, credit: int) -> Consumer:
        return self.space.open_consumer(Port(), 1, "queue:q", connection="c", credit=credit, now=NOW)  # type: ignore[arg-type]

    def killed(self, now: int = NOW) -> Queue:
        """The queue after a restart."""
        broker = Broker()
        restore(broker, self.store, now)
        return broker.namespace("").queue("queue:q")


@pytest.fixture(params=["model", "disk", "database"])
def life(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Life]:
    if request.param == "model":
        yield Life(DictStore())
        return
    place = Folder(tmp_path) if request.param == "disk" else Shard(request.getfixturevalue("database"))
    store = place.open()
    yield Life(store)
    store.abandon()


def order(queue: Queue) -> list[tuple[str, int]]:
    """Messages by their place in the queue, each with its deliveries."""
    return [(name_of(entry.envelope.packed), entry.count) for entry in queue.main.waits(-1, queue.depth)]


def names(queue: Queue) -> list[str]:
    return [name for name, _ in order(queue)]


def test_messages_of_a_share_that_completes_late_are_restored_where_they_were_accepted(life: Life) -> None:
    life.send("a")
    life.send("S1", "S2", share=life.share)
    life.send("b")
    life.cut()
    life.send("S3", share=life.share)
    life.send("c")
    life.cut(NOW + 1)
    assert names(life.killed()) == ["a", "b", "c"]
    life.send("S4", share=life.share)
    life.journal.complete(life.share)
    life.send("d")
    life.cut(NOW + 2)
    before = order(life.space.queue("queue:q"))
    assert [name for name, _ in before] == ["a", "S1", "S2", "b", "S3", "c", "S4", "d"]
    assert order(life.killed()) == before


def test_a_large_batch_is_restored_where_its_queue_has_it(life: Life) -> None:
    """The broker publishes it in slices, and others send to the queue and are written in between."""
    large, others = [f"S{number}" for number in range(AT_ONCE + 200)], 0
    life.space.begin(Sends([("queue:q", message(name)) for name in large]), NOW)
    while life.broker.work(NOW, 100):
        life.send(f"b{others}")
        others += 1
        life.cut()
        assert sum(name.startswith("S") for name in names(life.killed())) in (0, len(large))
    life.cut()
    live = names(life.space.queue("queue:q"))
    assert len(live) == len(large) + others
    assert live.index("S0") < live.index("b1") < live.index(large[-1]), "they stand between each other"
    assert names(life.killed()) == live


def test_a_scheduled_message_comes_between_messages_by_time_not_by_the_write_they_are_in(life: Life) -> None:
    life.send("S1", share=life.share)
    life.send("b")
    life.send("scheduled", at=NOW + 1)
    life.cut(NOW)
    life.send("c")
    life.journal.complete(life.share)
    life.cut(NOW + 2)
    assert names(life.killed(NOW + 10)) == ["S1", "b", "scheduled", "c"]


def test_outcomes_of_a_share_s_messages_are_written_with_them(life: Life) -> None:
    life.send("S1", "S2", "S3", share=life.share)
    consumer = life.consume(2)
    consumer.acknowledge(1, NOW)
    life.cut()
    assert names(life.killed()) == []  # and no trace of their outcomes
    life.journal.complete(life.share)
    life.cut()
    assert order(life.killed()) == [("S2", 1), ("S3", 0)]


def test_what_a_share_removes_is_there_until_it_is_complete(life: Life) -> None:
    life.send("a", "b", "c")
    consumer = life.consume(3)
    life.cut()
    life.journal.turn_to(life.share)
    consumer.acknowledge(2, NOW)
    life.space.send("queue:q", message("S1"), NOW)
    life.journal.turn_to(None)
    life.send("d")
    life.cut()
    assert sorted(names(life.killed())) == ["a", "b", "c", "d"]
    life.journal.complete(life.share)
    life.cut()
    assert names(life.killed()) == ["c", "S1", "d"]


def test_a_later_delivery_is_not_overwritten_by_a_return_in_a_share(life: Life) -> None:
    """The share returns the message, others deliver and remove it before the share is complete."""
    life.send("a", "b")
    first = life.consume(2)
    life.cut()
    life.journal.turn_to(life.share)
    settle(first, (1, 2), Outcome.KILLED, NOW)  # both may have been seen
    life.space.send("queue:q", message("S"), NOW)
    life.journal.turn_to(None)
    second = life.consume(2)
    second.acknowledge(1, NOW)
    life.cut()
    assert order(life.killed()) == [("b", 2)]
    life.journal.complete(life.share)
    life.cut()
    assert order(life.killed()) == [("b", 2), ("S", 0)]


def test_a_queue_that_a_share_has_created_keeps_messages_of_others(life: Life) -> None:
    life.send("S", share=life.share)
    life.send("a")
    life.cut()
    assert names(life.killed()) == ["a"]


def tap_of(life: Life, mode: str, **options: object) -> CopyTap:
    life.space.create("queue:q")
    tap = life.space.taps.open("m", "t", "queue:q", mode, None, {**options}, NOW, None)
    assert isinstance(tap, CopyTap)
    return tap


def tapped(life: Life) -> tuple[int, list[str], int]:
    """The sequence of a tap's first record after a restart, the records, and the last sequence that is lost."""
    broker = Broker()
    restore(broker, life.store, NOW)
    tap = broker.namespace("").taps.find("t", "queue:q")
    records = [name_of(item.packed) for item in tap.log.slice(0, tap.log.last, 100, 0)]
    return tap.log.first, records, tap.lost


def test_what_a_tap_drops_for_a_share_is_written_with_its_state(life: Life) -> None:
    """Otherwise dropped records would be there again, with the sequences of others."""
    tap = tap_of(life, "copy", retain_messages=2)
    life.send("a", "b")
    life.cut()
    life.send("S", share=life.share)
    life.send("c")
    assert (tap.log.first, tap.log.last) == (3, 4)
    life.cut()
    assert tapped(life) == (3, ["c"], 2)
    life.send("d")
    life.journal.complete(life.share)
    life.cut()
    assert tapped(life) == (4, ["c", "d"], 3)


def test_outcomes_of_a_share_are_recorded_when_it_is_complete(life: Life) -> None:
    tap_of(life, "outcomes")
    life.send("a", "b")
    consumer = life.consume(2)
    life.cut()
    life.journal.turn_to(life.share)
    consumer.acknowledge(1, NOW)
    life.journal.turn_to(None)
    life.broker.work(NOW, 100)
    life.cut()
    assert tapped(life)[1] == []
    life.journal.complete(life.share)
    life.broker.work(NOW, 100)
    life.cut()
    assert tapped(life)[1] == ["a"]
    assert order(life.killed()) == [("b", 1)]


def test_other_definitions_of_a_share_wait_for_its_end(life: Life) -> None:
    life.journal.turn_to(life.share)
    life.journal.define("published", ("default", None, "key"), (7,))
    life.journal.turn_to(None)
    life.send("a")
    life.cut()
    assert life.store.definitions("published") == {}
    life.journal.complete(life.share)
    assert life.journal.has_changes
    life.cut()
    assert life.store.definitions("published") == {("default", None, "key"): (7,)}


def test_messages_of_open_shares_count_as_unwritten() -> None:
    journal, share = Journal(), Share()
    journal.measure_with(lambda: 4_000, fails=True)
    journal.turn_to(share)
    journal.keep(1, b"x" * 1_000)
    journal.turn_to(None)
    assert journal.has_room(2_000)
    assert not journal.has_room(3_500)
    assert not journal.cut()
    assert not journal.has_room(3_500)
    journal.complete(share)
    assert journal.cut()
    assert not journal.has_room(3_500)
    journal.written()
    assert journal.has_room(3_500)


def test_ids_of_batches_that_were_never_written_are_not_given_again(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path, reserve=0)
    life = Life(store)
    life.send("a")
    life.send("S", share=life.share)
    life.cut()
    begun = life.journal.batch.id
    store.close()
    again = SqliteStore(tmp_path, reserve=0)
    assert again.next_batch == begun + 1
    again.close()


def test_a_write_is_known_by_its_number_not_by_the_ids_of_its_batches(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path, reserve=0)
    early, late = Batch(5), Batch(3)
    early.add(1, message("early").packed)
    late.add(1, message("late").packed)
    write(store, early)
    second = Write(store.next_write, (late,), 6)
    store.write(second, NOW)
    store.write(second, NOW)
    assert [name_of(entry.packed) for entry in saved_in(store)] == ["late", "early"]
    with pytest.raises(StoreError, match=r"write 9 was given to .*, which ends with write 3"):
        store.write(Write(9, (Batch(6),), 7), NOW)
    store.close()


def test_a_repaired_store_has_batches_that_were_written_out_of_order(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path, reserve=0)
    life = Life(store)
    life.send("S1", share=life.share)
    life.send("a")
    life.cut()
    life.journal.complete(life.share)
    life.cut()
    write_number, batch_id = store.next_write, store.next_batch
    store.close()
    assert check(DirectoryRows(tmp_path)).findings == []
    (tmp_path / "witness").write_bytes(b"no number")
    assert repair(tmp_path, lambda: "name").set_aside is not None
    again = SqliteStore(tmp_path, reserve=0)
    assert (again.next_write, again.next_batch) == (write_number + 1, batch_id)  # opening it is a write
    assert names(Life(again).killed()) == ["S1", "a"]
    again.close()


def test_a_message_that_is_gone_stays_gone(tmp_path: Path) -> None:
    """Whatever else is said of it later, in any order of writes and batches."""
    store = SqliteStore(tmp_path, reserve=0)
    batch = Batch(1)
    numbers = [batch.add(1, message(name).packed) for name in ("a", "b", "c", "d")]
    write(store, batch)
    gone, again = Batch(3), Batch(2)
    gone.gone += numbers[:2]
    again.held += numbers[:3]
    again.states[numbers[1]] = 4
    write(store, gone)
    write(store, again)
    assert [(name_of(entry.packed), entry.state) for entry in saved_in(store)] == [("c", HELD_FLAG), ("d", 0)]
    store.close()


@pytest.mark.parametrize("seed", range(12))
def test_whatever_the_order_a_restart_shows_what_is_complete(tmp_path: Path, seed: int) -> None:
    """Three shares at a time send and acknowledge beside others; after each write a restarted broker has, in order,
    the messages of what was complete then."""
    chance = random.Random(seed)
    disk = SqliteStore(tmp_path, reserve=0)
    disk.batch_bytes = chance.choice((300, 10_000))
    life = Life(disk)
    life.journal.ahead_bytes = chance.choice((1, 500, 100_000))
    consumer = life.consume(0)
    shares = [Share() for _ in range(3)]
    #: The share that has added a message, and that has removed it; None for no share.
    added: dict[str, Share | None] = {}
    removed: dict[str, Share | None] = {}
    delivered: set[str] = set()
    complete: set[Share | None] = {None}
    for step in range(60):
        share = chance.choice([None, *shares])
        life.journal.turn_to(share)
        for _ in range(chance.randrange(3)):
            name = f"{step}.{len(added)}"
            added[name] = share
            life.space.send("queue:q", message(name), NOW)
        if chance.random() < 0.5:
            consumer.grant(chance.randrange(1, 4), NOW)
        delivered |= {name_of(entry.envelope.packed) for entry in consumer.window if entry is not None}
        if consumer.window and chance.random() < 0.6:
            [oldest, *_] = consumer.window
            assert oldest is not None
            removed[name_of(oldest.envelope.packed)] = share
            consumer.acknowledge(consumer.base + 1, NOW)
        life.journal.turn_to(None)
        if share is not None and chance.random() < 0.3:
            life.journal.complete(share)
            complete.add(share)
            shares[shares.index(share)] = Share()
        if chance.random() < 0.5:
            life.cut()
            there = [n for n, by in added.items() if by in complete and not (n in removed and removed[n] in complete)]
            expected = [(n, 1) for n in there if n in delivered] + [(n, 0) for n in there if n not in delivered]
            assert order(life.killed()) == expected
    disk.close()


def test_a_large_share_is_written_ahead_and_is_there_with_its_last_write(life: Life) -> None:
    life.journal.ahead_bytes = 400
    written = []
    for step in range(12):
        life.send(f"{step}.a", f"{step}.b", share=life.share)
        life.send(f"other {step}")
        write = life.journal.cut()
        written.append(sum(len(batch.accepted) for batch in write.ahead))
        life.store.write(write, NOW)
        assert names(life.killed()) == [f"other {number}" for number in range(step + 1)]
    assert sum(written) >= 18
    assert max(written) <= 6  # a write has a bounded part of it, and so has the last one
    life.journal.complete(life.share)
    last = life.journal.cut()
    assert sum(len(batch.accepted) for batch in last.parts) + sum(written) == 24
    assert last.bytes < 1_000
    life.store.write(last, NOW)
    expected = [name for step in range(12) for name in (f"{step}.a", f"{step}.b", f"other {step}")]
    assert names(life.killed()) == expected


def test_outcomes_of_messages_that_were_written_ahead_are_restored(life: Life) -> None:
    life.journal.ahead_bytes = 1
    life.send("a", "b", "c", "d", share=life.share)
    life.cut()
    consumer = life.consume(2)
    consumer.acknowledge(1, NOW)
    life.cut()
    assert names(life.killed()) == []
    life.journal.complete(life.share)
    life.cut()
    assert order(life.killed()) == [("b", 1), ("c", 0), ("d", 0)]
    consumer.acknowledge(2, NOW)
    life.cut()
    assert order(life.killed()) == [("c", 0), ("d", 0)]


def test_messages_written_ahead_that_are_all_gone_leave_no_row(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path, reserve=0)
    life = Life(store)
    life.journal.ahead_bytes = 1
    life.send("a", share=life.share)
    life.cut()
    life.consume(1).acknowledge(1, NOW)
    life.journal.complete(life.share)
    life.cut()
    assert names(life.killed()) == []
    assert rows(store) == (0, 0)
    store.close()


def test_a_restart_deletes_what_was_written_ahead_of_a_share_that_never_ended(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path, reserve=0)
    life = Life(store)
    life.journal.ahead_bytes = 1
    life.send("a", "b", share=life.share)
    life.cut()
    assert rows(store) == (1, 1)
    store.abandon()
    store = SqliteStore(tmp_path, reserve=0)
    life = Life(store)
    assert names(life.killed()) == []
    life.send("c")
    life.cut()
    store.tidy()
    assert names(life.killed()) == ["c"]
    assert rows(store) == (1, 0)
    store.close()


def left_ahead(directory: Path) -> None:
    """A broker is killed that has written much of a share ahead."""
    store = SqliteStore(directory, reserve=0)
    life = Life(store)
    for number in range(TOGETHER + 1):
        life.send(f"m{number}", share=life.share)
    life.journal.ahead_bytes = life.share.unwritten
    life.cut()
    assert rows(store) == (TOGETHER + 1, TOGETHER + 1)
    store.abandon()


def test_a_broker_that_starts_deletes_what_was_written_ahead_before_it_writes_anything(tmp_path: Path) -> None:
    """A full disk may let it write nothing else."""
    left_ahead(tmp_path)
    opened = open_and_restore(Directory(str(tmp_path)), "", Broker(), "name", NOW, lambda: True)
    assert isinstance(opened.store, SqliteStore)
    assert (opened.messages, rows(opened.store)) == (0, (0, 0))
    opened.store.close()


def test_deleting_what_was_written_ahead_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    left_ahead(tmp_path)
    store = SqliteStore(tmp_path, reserve=0)
    life = Life(store)
    execute = store._execute

    def failing(statement: str, values: tuple[object, ...] = ()) -> Any:
        if statement == "COMMIT":
            raise OSError("disk I/O error")
        return execute(statement, values)

    with monkeypatch.context() as patch:
        patch.setattr(store, "_execute", failing)
        store.tidy()
    assert rows(store) == (TOGETHER + 1, TOGETHER + 1)
    life.send("c")
    life.cut()
    store.tidy()
    assert (rows(store), names(life.killed())) == ((1, 0), ["c"])
    store.close()


def test_what_this_owner_writes_ahead_is_kept_while_its_share_is_at_work(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path, reserve=0)
    life = Life(store)
    life.journal.ahead_bytes = 1
    life.send("a", share=life.share)
    life.cut()
    assert names(life.killed()) == []
    store.reopen()
    assert names(life.killed()) == []
    store.tidy()
    life.journal.complete(life.share)
    life.cut()
    assert names(life.killed()) == ["a"]
    store.close()


def test_a_repair_brings_no_message_back_that_was_written_ahead(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path, reserve=0)
    life = Life(store)
    life.journal.ahead_bytes = 1
    life.send("a", share=life.share)
    life.send("other")
    life.cut()
    store.abandon()
    assert (check(DirectoryRows(tmp_path)).findings, check(DirectoryRows(tmp_path)).messages) == ([], 1)
    (tmp_path / "witness").unlink()  # a damage that a repair mends
    assert repair(tmp_path, lambda: "new").messages == 1
    store = SqliteStore(tmp_path, reserve=0)
    assert names(Life(store).killed()) == ["other"]
    store.close()


def statements_of(store: SqliteStore, write: Write) -> int:
    """How many statements a write takes."""
    seen: list[str] = []
    store._db.set_trace_callback(seen.append)
    store.write(write, NOW)
    store._db.set_trace_callback(None)
    return len(seen)


def test_many_rows_are_written_by_few_statements(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path, reserve=0)
    life = Life(store)
    many = 2 * TOGETHER
    for number in range(many):
        life.send(f"m{number}", share=life.share)
    life.journal.ahead_bytes = life.share.unwritten
    few = statements_of(store, life.journal.cut())
    assert rows(store) == (many, many)
    life.journal.complete(life.share)
    assert statements_of(store, life.journal.cut()) <= few < 15
    consumer = life.consume(many)
    assert statements_of(store, life.journal.cut()) < 15
    assert order(life.killed()) == [(f"m{number}", 1) for number in range(many)]
    consumer.acknowledge(many, NOW)
    assert statements_of(store, life.journal.cut()) < 15
    assert rows(store) == (0, 0)
    store.close()


def rows(store: SqliteStore) -> tuple[int, int]:
    """How many batches there are on disk, and how many states."""
    database = connect(store.directory / DATABASE, read_only=True)
    counts = [database.execute(f"SELECT count(*) FROM {table}").fetchone()[0] for table in ("batch", "state")]
    database.close()
    return counts[0], counts[1]
