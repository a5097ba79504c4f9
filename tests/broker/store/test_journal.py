"""What the domain tells its journal, and what it refuses while nothing can be kept."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.broker.at_once import close, recover, release, settle

from sievemq_broker.domain import Broker
from sievemq_broker.domain.consumer import Held
from sievemq_broker.domain.failure import NOBODY
from sievemq_broker.domain.journal import HELD_FLAG, Batch, Journal, state_of
from sievemq_broker.domain.ports import Stored
from sievemq_broker.domain.publishing import AT_ONCE, Sends
from sievemq_broker.domain.restore import restore
from sievemq_broker.domain.settlement import Outcome
from sievemq_broker.store import SqliteStore, StoreError
from sievemq_broker.store.batches import Batches
from sievemq_broker.store.blob import Outcomes
from sievemq_core.errors import ErrorCode, RequestError

from .support import NOW, journalled, message, name_of, saved_in


class Port:
    def __init__(self) -> None:
        self.writable = True
        self.needs: list[Stored] = []
        self.party = NOBODY

    def deliver(self, *_: object) -> None: ...
    def deliver_row(self, consumer_id: int, tag: int, row: list[bytes]) -> int:
        return len(row)


def cut(broker: Broker) -> Batch:
    """The only batch of the next write."""
    assert broker.journal is not None
    [batch] = broker.journal.cut().parts
    return batch


def test_only_persistent_messages_in_lasting_destinations_are_written() -> None:
    broker = journalled()
    space = broker.namespace("")
    temporary = str(space.temporaries.create("c", False, 1))
    for address in ("queue:q", temporary, "topic:nobody"):
        space.send(address, message("kept"), NOW)
        space.send(address, message("not kept", mode=1), NOW)
    batch = cut(broker)
    assert [name_of(packed) for _, packed in batch.accepted] == ["kept"]
    assert set(batch.definitions) == {
        ("namespace", ("default",)),
        ("destination", ("default", "queue:q")),
        ("destination", ("default", "topic:nobody")),
    }
    assert broker.journal is not None
    assert not broker.journal.cut()


def test_a_commit_is_in_one_batch() -> None:
    broker = journalled()
    space = broker.namespace("")
    space.send("queue:in", message("in"), NOW)
    consumer = space.open_consumer(Port(), 1, "queue:in", connection="c", credit=1, now=NOW)  # type: ignore[arg-type]
    first = cut(broker)
    space.commit(Sends([("queue:a", message("a")), ("queue:b", message("b"))]), NOW, "c")
    consumer.acknowledge(1, NOW)
    batch = cut(broker)
    assert [name_of(packed) for _, packed in batch.accepted] == ["a", "b"]
    assert batch.gone == [first.base]


def test_a_batch_that_is_published_by_a_task_is_one_write_and_others_are_written_meanwhile() -> None:
    broker = journalled()
    space, journal = broker.namespace(""), broker.journal
    assert journal is not None
    sends = [("queue:q", message(str(n))) for n in range(AT_ONCE + 1)]
    stage = space.stages.stage("c", "k", 0, Sends(sends), owner=None, lease=60_000, now=NOW)
    assert space.stages.publish("k", 0, [stage], owner=None, now=NOW) == AT_ONCE + 1
    others = 0
    while space.publishing is not None and not space.publishing.share.stored:
        broker.work(NOW, 100)
        space.send("queue:other", message(f"other{others}"), NOW)
        others += 1
        write = journal.cut()
        journal.written()
        names = [name_of(packed) for part in write.parts for _, packed in part.accepted]
        if len(names) == 1:
            assert names == [f"other{others - 1}"]
    assert others > AT_ONCE // 100
    assert [name for name in names if not name.startswith("other")] == [str(n) for n in range(AT_ONCE + 1)]
    assert {key: value for part in write.parts for key, value in part.definitions.items()}[
        "published", ("default", None, "k")
    ] == (0,)


def test_oversized_work_continues_in_another_batch_of_the_same_write(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    store = SqliteStore(tmp_path, reserve=0)
    store.batch_bytes = 1_000
    broker = Broker()
    restore(broker, store, NOW)
    space = broker.namespace("")
    names = [str(n) for n in range(100)]
    space.commit(Sends([("queue:q", message(name)) for name in names]), NOW)
    consumer = space.open_consumer(Port(), 1, "queue:q", connection="c", credit=30, now=NOW)  # type: ignore[arg-type]
    consumer.acknowledge(20, NOW)
    journal = broker.journal
    assert journal is not None
    write = journal.cut()
    assert len(write.parts) > 5
    assert [part.id for part in write.parts] == list(range(1, len(write.parts) + 1))
    assert max(part.size for part in write.parts) < 1_500
    assert not journal.cut()

    written = []

    def fails(rows: Batches, batch: Batch, outcomes: list[Outcomes], now: int) -> None:
        written.append(batch.id)
        if len(written) == 4:
            raise OSError("no")
        append(rows, batch, outcomes, now)

    append = Batches._append
    with monkeypatch.context() as broken:
        broken.setattr(Batches, "_append", fails)
        with pytest.raises(StoreError):
            store.write(write, NOW)
    assert saved_in(store) == []  # all or nothing
    assert (store.next_write, store.next_batch) == (write.number, 1)
    store.write(write, NOW)
    store.write(write, NOW)  # said again
    assert (store.next_write, store.next_batch) == (write.number + 1, write.next_batch)
    store.close()
    again = SqliteStore(tmp_path, reserve=0)
    assert [name_of(entry.packed) for entry in saved_in(again)] == names[20:]
    assert [entry.state for entry in saved_in(again)] == [HELD_FLAG] * 10 + [0] * 70
    again.close()


def test_a_tap_counts_as_well() -> None:
    broker = journalled()
    journal = Journal(batch_bytes=1_000)
    broker.keep_in(journal)
    space = broker.namespace("")
    space.taps.open("c", "t", "queue:q", "copy", None, {}, NOW, None)
    for number in range(20):
        space.send("queue:q", message(str(number), mode=1), NOW)
    write = journal.cut()
    assert len(write.parts) > 1
    assert sum(len(part.accepted) for part in write.parts) == 20


def test_an_attempt_of_a_message_that_another_consumer_has_is_recorded() -> None:
    broker = journalled()
    space = broker.namespace("")
    space.send("queue:q", message("m"), NOW)
    number = cut(broker).base
    lost = space.open_consumer(Port(), 1, "queue:q", connection="c", credit=1, now=NOW)  # type: ignore[arg-type]
    [entry] = lost.window
    assert entry is not None
    settle(lost, (1,), Outcome.KILLED, NOW)  # a delivery, no attempt
    space.open_consumer(Port(), 2, "queue:q", connection="c", credit=1, now=NOW)  # type: ignore[arg-type]
    cut(broker)
    space.queue("queue:q").fail_returned([Held(1, entry, 1, False)], NOW + 5)
    batch = cut(broker)
    assert (batch.states, batch.failures) == ({number: state_of(1, 1) | HELD_FLAG}, {number: NOW + 5})


def test_handing_out_is_recorded_before_the_delivery_and_undone_by_a_release() -> None:
    broker = journalled()
    space = broker.namespace("")
    space.send("queue:q", message("m"), NOW)
    number = cut(broker).base
    consumer = space.open_consumer(Port(), 1, "queue:q", connection="c", credit=1, now=NOW)  # type: ignore[arg-type]
    assert cut(broker).held == [number]
    release(consumer, [1], NOW)
    close(consumer, 1, NOW)
    assert cut(broker).states == {number: 0}
    consumer = space.open_consumer(Port(), 2, "queue:q", connection="c", credit=1, now=NOW)  # type: ignore[arg-type]
    recover(consumer, 1, NOW)
    consumer.grant(1, NOW)
    assert cut(broker).states == {number: state_of(1, 1) | HELD_FLAG}


def test_while_nothing_can_be_kept_what_would_have_to_be_is_refused() -> None:
    broker = journalled()
    space = broker.namespace("")
    temporary = str(space.temporaries.create("c", False, 1))
    for address in ("queue:q", "topic:durable", "topic:nobody"):
        space.send(address, message("before"), NOW)
    durable = {"client_id": "id", "subscription": "s", "durable": True}
    space.open_consumer(Port(), 1, "topic:durable", connection="c", now=NOW, **durable)  # type: ignore[arg-type]
    broker.refuse_persistent("the disk is full")
    for address in ("queue:q", "topic:durable", "queue:new"):
        with pytest.raises(
            RequestError, match=f"{address} takes no PERSISTENT messages now: the disk is full"
        ) as caught:
            space.send(address, message("m"), NOW)
        assert caught.value.code is ErrorCode.RESOURCE_ALLOCATION
        with pytest.raises(RequestError):
            space.commit(Sends([(temporary, message("first")), (address, message("m"))]), NOW)
        space.send(address, message("not kept", mode=1), NOW)
    for address in (temporary, "topic:nobody"):
        space.send(address, message("m"), NOW)
    assert space.queue(temporary).depth == 1
    broker.refuse_persistent(None)
    space.send("queue:q", message("after"), NOW)
    assert space.queue("queue:q").depth == 3


def test_a_state_recorded_over_another_one_changes_the_extent() -> None:
    """An answer that tells of it, such as the outcome of a disposition, waits for the disk like any other."""
    broker = journalled()
    journal = broker.journal
    assert journal is not None
    space = broker.namespace("")
    space.send("queue:q", message("kept"), NOW)
    consumer = space.open_consumer(Port(), 1, "queue:q", connection="c", credit=9, now=NOW)  # type: ignore[arg-type]
    extents = [journal.extent]
    for tag in (1, 2, 3):
        release(consumer, [tag], NOW)
        extents.append(journal.extent)
    assert len(journal.batch.states) == 1
    assert len(set(extents)) == len(extents)
