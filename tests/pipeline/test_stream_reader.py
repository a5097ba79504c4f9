"""The stream's reader and the writers called as Spark calls them, without a JVM: offsets, limits, gaps, faults."""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="needs the extra `spark`")

import pyarrow as pa
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from sievemq import (
    BytesMessage,
    ConnectionFactory,
    Float,
    InvalidSelectorException,
    JMSException,
    JMSSecurityException,
    Message,
    Queue,
    Short,
    TextMessage,
    Topic,
)
from sievemq.taps import delete_tap
from sievemq_broker import EmbeddedBroker
from sievemq_broker.store.salvage import copy, restore
from sievemq_broker.store.sqlite_rows import DatabaseRows, NewDirectory, NewFile, RunningRows
from sievemq_spark.errors import DataLossError, NoDestinationError, PipelineError
from sievemq_spark.offsets import lag
from sievemq_spark.options import WORTH, ReadOptions, WriteOptions
from sievemq_spark.reader import BrowseReader
from sievemq_spark.schema import COLUMNS
from sievemq_spark.shards import Shard
from sievemq_spark.source import SieveMQDataSource
from sievemq_spark.stream_reader import TapStreamReader
from sievemq_spark.stream_writer import MessageStreamWriter
from sievemq_spark.tap_reader import Source, TapReader, pieces
from sievemq_spark.writer import MessageWriter, Written

from .streams import JSON, Stream, batch_rows, forget_connections, schema_of, send, waiting

pytestmark = pytest.mark.spark

ALL = ReadAllAvailable()


@pytest.fixture
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker() as broker:
        yield broker
    forget_connections()


def tap_of(broker: EmbeddedBroker, address: str = "queue:q") -> Any:
    return broker.call(lambda domain: domain.namespace("").taps.find("t", address))


# -- reading ----------------------------------------------------------------------------------------------------------


def test_batches_follow_one_another(broker: EmbeddedBroker) -> None:
    send(broker, "old")
    stream = Stream(broker, maxMessagesPerTrigger=2)
    assert stream.reader.getDefaultReadLimit() == ReadMaxRows(2)
    send(broker, *"abc")
    assert [stream.batch(), stream.batch(), stream.batch()] == [["old", "a"], ["b", "c"], []]
    assert waiting(broker) == ["old", "a", "b", "c"]  # a copy
    send(broker, "d", "e", "f")
    assert stream.batch(ALL) == ["d", "e", "f"]


def test_nothing_new_is_the_same_offset_to_the_letter(broker: EmbeddedBroker) -> None:
    stream = Stream(broker, "queue:b,queue:a")
    assert stream.plan() == stream.begin
    assert str(stream.plan()) == str(stream.begin)
    assert stream.reader.partitions(stream.begin, stream.begin) == []


def test_a_message_comes_as_it_was(broker: EmbeddedBroker) -> None:
    """Kinds of bodies, types of properties, promoted columns; the same row as a browse gives."""
    properties = {
        "region": "ü",
        "n": 3,
        "h": Short(2),
        "f": Float(0.5),
        "d": 0.1,
        "z": True,
        "nothing": None,
        "big": 2**40,
    }
    text = TextMessage("hällo", properties=properties)
    text.set_jms_type("order")
    text.set_jms_correlation_id("c-1")
    text.set_jms_reply_to(Queue("answers"))
    data = BytesMessage(b"\x00\xff")
    data.set_jms_correlation_id_as_bytes(b"\xfe")
    odd = TextMessage("lone \ud800")
    send(broker, text, data, odd, Message(), TextMessage(None))
    stream = Stream(broker, columns="region STRING, n INT, d DOUBLE")
    rows = stream.read(stream.begin or {}, stream.plan())
    browsed = ReadOptions.read({"url": broker.url, "destination": "q", "columns": "region STRING, n INT, d DOUBLE"})
    source = SieveMQDataSource({"url": broker.url, "destination": "q", "columns": browsed.columns})
    reader = source.reader(stream.schema)
    expected = [row for part in reader.partitions() for batch in reader.read(part) for row in batch_rows(batch)]
    assert rows == expected
    assert (rows[0]["region"], rows[0]["n"], rows[0]["d"], rows[1]["region"]) == ("ü", 3, 0.1, None)


def test_topics_dead_letters_and_several_destinations(broker: EmbeddedBroker) -> None:
    stream = Stream(broker, "queue:q, topic:news, queue:DLQ.q", maxMessagesPerTrigger=4)
    assert list(stream.begin or ()) == ["main/queue:DLQ.q", "main/queue:q", "main/topic:news"]
    send(broker, *"abcdef")
    send(broker, "x", to=Topic("news"))
    send(broker, "dead", to=Queue("DLQ.q"))
    assert sorted(stream.batch()) == ["a", "b", "dead", "x"]  # a full queue does not keep the others waiting
    assert stream.batch() == ["c", "d", "e", "f"]  # and has what they leave


def test_bytes_bound_a_batch(broker: EmbeddedBroker) -> None:
    stream = Stream(broker, maxBytesPerTrigger=2_600)
    send(broker, *("x" * 1_000 for _ in range(5)))
    assert [len(stream.batch()) for _ in range(4)] == [2, 2, 1, 0]


def test_a_selector_and_latest(broker: EmbeddedBroker) -> None:
    send(broker, TextMessage("old", properties={"n": 5}))
    stream = Stream(broker, selector="n > 1", startingOffsets="latest")
    send(broker, *(TextMessage(str(n), properties={"n": n}) for n in range(4)))
    assert stream.batch() == ["2", "3"]


def test_a_range_is_read_in_parts(broker: EmbeddedBroker) -> None:
    source = Source(Shard("main", "", broker.url), "queue:q", "t")
    parts = pieces(source, source.key, "x", 10, 10 + 3 * WORTH, 3)
    assert [part.upto - part.after for part in parts] == [WORTH] * 3  # type: ignore[attr-defined]
    assert [part.after for part in parts] == [10, *(part.upto for part in parts[:-1])]  # type: ignore[attr-defined]
    assert len(pieces(source, source.key, "x", 0, WORTH, 8)) == 1
    assert len(pieces(source, source.key, "x", 0, WORTH + 1, 8)) == 2
    assert pieces(source, source.key, "x", 5, 5, 8) == []


def test_available_now_ends_where_it_began(broker: EmbeddedBroker) -> None:
    stream = Stream(broker, maxMessagesPerTrigger=3)
    send(broker, *"abcd")
    stream.reader.prepareForTriggerAvailableNow()
    send(broker, "later")
    assert [stream.batch(), stream.batch(), stream.batch()] == [["a", "b", "c"], ["d"], []]
    stream.start()
    assert stream.batch() == ["later"]


def test_the_lag_is_reported(broker: EmbeddedBroker) -> None:
    stream = Stream(broker)
    send(broker, *"abc")
    assert stream.reader.reportLatestOffset() == {"main/queue:q": {"tap": tap_of(broker).id, "seq": 3}}


# -- done -------------------------------------------------------------------------------------------------------------


def test_both_ways_of_acknowledging(broker: EmbeddedBroker) -> None:
    """commit lags by a batch and never comes for the last one; latestOffset fills the gap."""
    stream = Stream(broker)
    send(broker, *"ab")
    stream.batch()
    assert tap_of(broker).acknowledged == 0  # planned and read, not done
    stream.plan()
    assert tap_of(broker).acknowledged == 2
    send(broker, "c")
    end = stream.plan()
    stream.reader.commit(end)
    assert tap_of(broker).acknowledged == 3
    stream.reader.commit(stream.begin or {})  # late and older: no harm
    assert tap_of(broker).acknowledged == 3


def test_a_batch_that_is_not_done_is_read_again_after_a_restart(broker: EmbeddedBroker) -> None:
    """As Spark does after a crash between the sink's commit and its own: the same range, no offset is requested."""
    stream = Stream(broker)
    send(broker, *"ab")
    assert stream.batch() == ["a", "b"]
    begin = stream.begin or {}
    send(broker, *"cd")
    end = stream.plan()
    once = stream.read(begin, end)
    send(broker, "e")
    stream.start()
    again = stream.read(begin, end)
    assert [row["body_text"] for row in again] == ["c", "d"]
    assert once == again
    stream.begin = end
    assert stream.batch() == ["e"]


def test_drained_messages_go_when_they_are_done(broker: EmbeddedBroker) -> None:
    send(broker, *"abcd")
    stream = Stream(broker, mode="drain", maxMessagesPerTrigger=3)
    assert stream.batch() == ["a", "b", "c"]
    assert waiting(broker) == ["d"]
    stream.start()
    assert stream.batch() == ["d"]
    stream.plan()
    queue = broker.call(lambda domain: domain.namespace("").queue("queue:q"))
    assert (queue.acknowledged, queue.in_flight, queue.depth) == (4, 0, 0)


# -- faults -----------------------------------------------------------------------------------------------------------


def test_messages_that_were_lost_are_an_error_or_are_gone_on_without(broker: EmbeddedBroker) -> None:
    stream = Stream(broker, retainMessages=3)
    send(broker, *"abcdefgh")
    with pytest.raises(DataLossError, match=r"has lost its messages 1 to 5 .* failOnDataLoss=false"):
        stream.plan()
    careless = Stream(broker, retainMessages=3, failOnDataLoss="false")
    careless.begin = stream.begin
    end = careless.plan()
    assert [row["body_text"] for row in careless.read(careless.begin or {}, end)] == ["f", "g", "h"]
    assert end["main/queue:q"]["lost"] == 5  # the checkpoint says what is missing
    careless.begin = end
    assert careless.plan() == end


def test_messages_that_are_lost_while_they_are_read(broker: EmbeddedBroker) -> None:
    stream = Stream(broker, retainMessages=3)
    send(broker, *"abc")
    end = stream.plan()
    send(broker, *"de")
    with pytest.raises(DataLossError, match="has lost its messages 1 to 2"):
        stream.read(stream.begin or {}, end)
    stream.options = replace(stream.options, fail_on_data_loss=False)
    stream.start()
    assert [row["body_text"] for row in stream.read(stream.begin or {}, end)] == ["c"]


def test_a_broker_that_has_forgotten_everything(port: int) -> None:
    with EmbeddedBroker(port=port) as broker:
        send(broker, *"ab")
        stream = Stream(broker)
        stream.batch()
        begin, end = stream.begin or {}, stream.plan()
    with EmbeddedBroker(port=port) as anew:
        send(anew, "new")
        with pytest.raises(DataLossError, match=r"restarted\s+without its data"):
            stream.plan()
        # a batch that was planned before, and is to be read again
        planned = {"main/queue:q": {**end["main/queue:q"], "seq": 5}}
        with pytest.raises(DataLossError, match=r"cannot be read again|is gone"):
            stream.read(begin, planned)
        careless = Stream(anew, failOnDataLoss="false")
        careless.begin = begin
        assert careless.read(begin, planned) == []
        assert careless.batch() == ["new"]
        assert careless.batch() == []


def test_a_broker_that_was_started_again_with_its_data(tmp_path: Path, port: int) -> None:
    """In the middle of a batch, too: the same tap, the same sequences, none lost and none twice."""
    settings = {"data_dir": str(tmp_path)}
    with EmbeddedBroker(settings=settings, port=port) as broker:
        send(broker, *"ab")
        stream = Stream(broker)
        assert stream.batch() == ["a", "b"]
        send(broker, *"cd")
        begin, end = stream.begin or {}, stream.plan()
    with EmbeddedBroker(settings=settings, port=port) as broker:
        assert [row["body_text"] for row in stream.read(begin, end)] == ["c", "d"]
        stream.begin = end
        send(broker, "e")
        assert stream.batch() == ["e"]
        assert waiting(broker) == list("abcde")


def test_a_broker_that_was_restored_from_a_backup(tmp_path: Path, port: int) -> None:
    """The query was further: it is told so, though the tap of the same name has come as far by then."""
    data, backup, new = (tmp_path / name for name in ("data", "backup", "new"))
    with EmbeddedBroker(data_dir=data, port=port) as broker:
        stream = Stream(broker)
        send(broker, "a")
        assert stream.batch() == ["a"]
        copy(RunningRows(data), NewFile(backup))
        send(broker, "b", "c")
        assert stream.batch() == ["b", "c"]
    restore(DatabaseRows(backup), NewDirectory(new), "another")
    with EmbeddedBroker(data_dir=new, port=port) as broker:
        send(broker, *"vwxyz")
        with pytest.raises(DataLossError, match="or from a backup"):
            stream.plan()
        careless = Stream(broker, failOnDataLoss="false", begin=stream.begin)
        assert careless.batch() == list("avwxyz")
        assert careless.batch() == []


def test_a_deleted_tap_in_the_middle_of_a_batch(broker: EmbeddedBroker) -> None:
    send(broker, *"ab")
    stream = Stream(broker)
    end = stream.plan()
    parts = stream.reader.partitions(stream.begin, end)
    broker.call(lambda domain: domain.namespace("").taps.drop(tap_of_domain(domain), 0))
    with pytest.raises(DataLossError, match="is gone"):
        list(stream.reader.read(parts[0]))
    stream.reader.commit(end)  # says nothing; the next latestOffset does


def tap_of_domain(domain: Any) -> Any:
    return domain.namespace("").taps.find("t", "queue:q")


def test_a_lost_connection_is_reopened(broker: EmbeddedBroker) -> None:
    stream = Stream(broker)
    send(broker, *"ab")
    assert stream.batch() == ["a", "b"]
    broker.drop_connections()
    send(broker, "c")
    end = stream.plan()
    broker.drop_connections()
    assert [row["body_text"] for row in stream.read(stream.begin or {}, end)] == ["c"]


def test_a_drain_that_lost_its_lease_says_that_messages_come_twice(broker: EmbeddedBroker) -> None:
    send(broker, *"ab")
    stream = Stream(broker, mode="drain", lease=60_000)
    assert stream.batch() == ["a", "b"]
    broker.clock.advance(seconds=61)
    with pytest.raises(DataLossError, match=r"gave its messages 1 to 2 back .* Raise the option lease"):
        stream.plan()
    stream.start()  # told once; they are there again, marked
    rows = stream.read(stream.begin or {}, stream.plan())
    assert [(row["body_text"], row["delivery_count"], row["redelivered"]) for row in rows] == [
        ("a", 2, True), ("b", 2, True),
    ]  # fmt: skip


def test_destinations_that_alternate_under_one_checkpoint(broker: EmbeddedBroker) -> None:
    """A run that does not read a destination keeps its place: a later one goes on there."""
    begin: JSON | None = None
    for destination, read in (
        ("queue:a", ["a1"]), ("queue:b", ["b1", "b2"]), ("queue:b,queue:a", ["a2", "a3", "b3"]),
        ("queue:b", ["b4"]), ("queue:a", ["a4", "a5"]),
    ):  # fmt: skip
        number = int(max((text[1] for text in read), default="0"))
        for queue in "ab":
            sent = len(waiting(broker, queue))
            send(broker, *[f"{queue}{place}" for place in range(sent + 1, number + 1)], to=Queue(queue))
        stream = Stream(broker, destination, begin=begin)
        assert sorted(stream.batch()) == read
        assert stream.batch() == []
        begin = stream.begin
    assert begin == stream.begin
    assert {key: place["seq"] for key, place in (begin or {}).items()} == {"main/queue:a": 5, "main/queue:b": 4}


def test_a_destination_whose_tap_was_read_before_joins_a_query(broker: EmbeddedBroker) -> None:
    """Its first offset says where that began, so that a repeated batch is the same one."""
    send(broker, *"abc", to=Queue("b"))
    alone = Stream(broker, "queue:b")
    assert [alone.batch(), alone.batch()] == [["a", "b", "c"], []]
    stream = Stream(broker, "queue:a")
    send(broker, *"de", to=Queue("b"))
    both = Stream(broker, "queue:a,queue:b", begin=stream.begin)
    assert both.plan()["main/queue:b"]["after"] == 3
    assert both.batch() == ["d", "e"]
    send(broker, "f", to=Queue("b"))
    assert both.batch() == ["f"]
    assert "after" not in both.begin["main/queue:b"]
    assert both.batch() == []


@pytest.mark.parametrize("most", [1, 2, 33, 200])
def test_shares_are_in_proportion_to_what_waits(broker: EmbeddedBroker, most: int) -> None:
    """So that the times of all destinations advance together, and a watermark drops nothing."""
    stream = Stream(broker, "queue:busy,queue:calm,queue:still", maxMessagesPerTrigger=most)
    for queue, count in (("busy", 100), ("calm", 10)):
        send(broker, *[queue] * count, to=Queue(queue))
    left = {"busy": 100, "calm": 10}
    while any(left.values()):
        read = stream.batch()
        assert len(read) == min(most, sum(left.values()))
        for queue in left:
            left[queue] -= read.count(queue)
        if most == 33:
            assert abs(left["busy"] - 10 * left["calm"]) <= 20
        if most > 1 and left["calm"]:
            assert read.count("calm")  # at least one of each
    assert stream.batch() == []


def test_a_drain_takes_the_same_of_each_queue(broker: EmbeddedBroker) -> None:
    """What waits in a queue is no part of its tap yet."""
    for queue in "ab":
        send(broker, *[queue] * 9, to=Queue(queue))
    stream = Stream(broker, "queue:a,queue:b", mode="drain", maxMessagesPerTrigger=6)
    assert [sorted(stream.batch()) for _ in range(4)] == [[*"aaabbb"]] * 3 + [[]]


def test_a_start_that_fails_leaves_no_tap(broker: EmbeddedBroker) -> None:
    """A tap without a reader would collect messages up to its limits."""
    send(broker, "x")
    send(broker, "y", to=Queue("b"))

    def taps() -> list[str]:
        found: list[str] = broker.call(lambda domain: [tap.destination.label for tap in domain.namespace("").taps])
        return sorted(found)

    with pytest.raises(PipelineError, match="cannot begin at 3"):
        Stream(broker, "queue:b,queue:q", startingOffsets='{"queue:q": 3}')
    assert taps() == []
    with pytest.raises(NoDestinationError):
        Stream(broker, "queue:q,queue:nowhere", failOnMissing="true")
    assert taps() == []
    options = ReadOptions.read({"url": broker.url, "destination": "b", "tap": "t", "startingoffsets": '{"queue:b": 9}'})
    with pytest.raises(PipelineError, match="cannot begin at 9"):
        TapReader(options, schema_of(COLUMNS)).partitions()
    assert taps() == []
    stream = Stream(broker, "queue:b")
    with pytest.raises(PipelineError, match="cannot begin at 3"):
        Stream(broker, "queue:b,queue:q", startingOffsets='{"queue:q": 3}')
    assert taps() == ["queue:b"]  # it was there before
    with ConnectionFactory(broker.url).create_connection() as connection:
        delete_tap(connection, "t", Queue("b"))
    with pytest.raises(DataLossError, match=r"is gone: .* another broker has the shard's name"):
        stream.plan()
    assert taps() == []


def test_mistakes_are_told_at_once(broker: EmbeddedBroker) -> None:
    with pytest.raises(JMSException, match="no broker could be reached"):
        Stream("sievemq://127.0.0.1:1?reconnect=0")
    with pytest.raises(InvalidSelectorException, match=r"\^\^\^\^"):
        Stream(broker, selector="a ANDD b")
    with pytest.raises(PipelineError, match="did you mean 'tap'"):
        Stream(broker, tpa="x")
    Stream(broker)
    with pytest.raises(JMSException, match="exists with mode 'copy' and no selector"):
        Stream(broker, selector="a = 1")
    with EmbeddedBroker(users={"me": "secret"}) as locked, pytest.raises(JMSSecurityException):
        Stream(locked, user="me", password="wrong")
    with pytest.raises(PipelineError, match="a stream reads through taps"):
        SieveMQDataSource({"destination": "q"}).streamReader(schema_of(COLUMNS))
    with pytest.raises(PipelineError, match=r"sievemq_spark\.drain"):
        TapReader(ReadOptions.read({"destination": "q", "tap": "t", "mode": "drain"}), schema_of(COLUMNS))


# -- writing ----------------------------------------------------------------------------------------------------------


ROWS = {"body_text": "string", "n": "int"}


def rows(*texts: str) -> Iterator[pa.RecordBatch]:
    yield pa.RecordBatch.from_pylist([{"body_text": text, "n": number} for number, text in enumerate(texts)])


def failing(*texts: str) -> Iterator[pa.RecordBatch]:
    yield from rows(*texts)
    raise RuntimeError("the executor died")


def writer(broker: EmbeddedBroker, **options: Any) -> MessageWriter:
    given = {"url": broker.url, "destination": "queue:q", **options}
    options = {name.lower(): str(value) for name, value in given.items()}
    return MessageWriter(WriteOptions.read(options), schema_of(ROWS))


def test_a_write_is_visible_when_all_of_it_is_there(broker: EmbeddedBroker) -> None:
    driver = writer(broker)
    task = pickle.loads(pickle.dumps(driver))
    written = [task.write(rows("a", "b")), task.write(rows("c"))]
    assert waiting(broker) == []
    driver.commit(written)
    assert waiting(broker) == ["a", "b", "c"]
    driver.commit(written)  # the outcome of the first one is unknown
    assert waiting(broker) == ["a", "b", "c"]


def test_a_task_that_runs_again_sends_nothing_twice(broker: EmbeddedBroker) -> None:
    driver = writer(broker)
    with pytest.raises(RuntimeError, match="the executor died"):
        driver.write(failing("a", "b"))
    driver.write(rows("a", "b"))  # done, but Spark did not learn of it
    driver.commit([driver.write(rows("a", "b"))])
    assert waiting(broker) == ["a", "b"]
    assert broker.call(lambda domain: domain.namespace("").stages.bytes) == 0


def test_a_job_that_fails_leaves_nothing(broker: EmbeddedBroker) -> None:
    driver = writer(broker)
    driver.abort([driver.write(rows("a")), None])
    assert waiting(broker) == []
    assert broker.call(lambda domain: domain.namespace("").stages.bytes) == 0


def test_what_was_staged_and_forgotten_is_a_clear_error(broker: EmbeddedBroker) -> None:
    driver = writer(broker, stageLease=1_000)
    written = driver.write(rows("a"))
    broker.clock.advance(seconds=2)
    with pytest.raises(PipelineError, match=r"none of them was: .* Its lease has ended"):
        driver.commit([written])
    assert waiting(broker) == []


def test_a_large_partition_is_staged_in_parts(broker: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sievemq_spark.writer.STAGE_MESSAGES", 2)
    driver = writer(broker)
    written = driver.write(rows(*"abcde"))
    assert isinstance(written, Written)
    assert len(written.stages) == 3
    driver.commit([written])
    assert waiting(broker) == list("abcde")
    monkeypatch.setattr("sievemq_spark.writer.STAGE_MESSAGES", 100)
    monkeypatch.setattr("sievemq_spark.writer.STAGE_BYTES", 10)
    written = driver.write(rows("x" * 10, "y" * 10, "z" * 10))
    assert isinstance(written, Written)
    assert len(written.stages) == 3


def test_a_named_write_is_done_once_whoever_does_it(broker: EmbeddedBroker, caplog: pytest.LogCaptureFixture) -> None:
    """A job that was killed behind its commit, and is run again."""
    for logged in (
        [],
        ["nothing was sent: writeId 'replay of monday' was written to queue:q before, whatever its rows were"],
    ):
        driver = writer(broker, writeId="replay of monday")
        driver.commit([driver.write(rows("a", "b"))])
        assert [record.getMessage() for record in caplog.records if record.name == "sievemq.spark"] == logged
    assert waiting(broker) == ["a", "b"]


def test_one_write_id_for_two_destinations_is_two_writes(broker: EmbeddedBroker) -> None:
    for queue in ("one", "two", "two"):
        driver = writer(broker, destination=queue, writeId="batch-17")
        driver.commit([driver.write(rows("a", "b"))])
        again = writer(broker, destination=f"queue:{queue}", writeId="batch-17")
        again.commit([again.write(rows("a", "b"))])
    assert waiting(broker, "one") == waiting(broker, "two") == ["a", "b"]
    task = pickle.loads(pickle.dumps(writer(broker, destination="q" * 500, writeId="x" * 200, transactionSize=1)))
    assert task.write(rows("a")).sent == 1


def test_a_write_that_finds_no_room_says_how_large_it_is() -> None:
    with EmbeddedBroker(settings={"destinations": {"q": {"max_messages": 2}}}) as small:
        driver = writer(small)
        with pytest.raises(PipelineError, match=r"All 3 become visible together; the option transactionSize"):
            driver.commit([driver.write(rows("a", "b", "c"))])
        assert waiting(small) == []


def test_group_and_delivery_time_are_sent(broker: EmbeddedBroker) -> None:
    later = broker.clock.now().timestamp() * 1_000 + 60_000
    columns = {"body_text": "string", "group_id": "string", "group_seq": "bigint", "delivery_time": "bigint"}
    given = ReadOptions.read({"url": broker.url, "destination": "q"})
    sink = MessageWriter(WriteOptions.read({"url": broker.url, "destination": "q"}), schema_of(columns))
    row = {"body_text": "a", "group_id": "g", "group_seq": 2, "delivery_time": 0}
    late = {**row, "body_text": "b", "group_id": None, "group_seq": None, "delivery_time": int(later)}
    past = {**row, "body_text": "c", "delivery_time": 1}
    sink.commit([sink.write(iter([pa.RecordBatch.from_pylist([row, late, past])]))])
    with ConnectionFactory(broker.url).create_context() as context:
        found = {each.get_body(str): each for each in context.create_browser(Queue("q"))}
        assert sorted(found) == ["a", "c"]
        assert found["a"].get_string_property("JMSXGroupID") == "g"
        assert found["a"].get_int_property("JMSXGroupSeq") == 2
        broker.clock.advance(seconds=61)
        found = {each.get_body(str): each for each in context.create_browser(Queue("q"))}
        assert not found["b"].property_exists("JMSXGroupID")
        assert abs(found["b"].get_jms_delivery_time() - later) < 5_000
    reader = BrowseReader(given, schema_of(COLUMNS))
    read = [each for part in reader.partitions() for batch in reader.read(part) for each in batch_rows(batch)]
    assert {each["body_text"]: (each["group_id"], each["group_seq"]) for each in read} == {
        "a": ("g", 2), "b": (None, None), "c": ("g", 2),
    }  # fmt: skip


def test_piece_by_piece_and_killed_in_the_middle(broker: EmbeddedBroker) -> None:
    """With a transactionSize messages are visible before the job is done; run again it sends only the rest."""
    driver = writer(broker, writeId="slowly", transactionSize=2)
    with pytest.raises(RuntimeError, match="died"):
        driver.write(failing(*"abcde"))
    assert waiting(broker) == ["a", "b", "c", "d"]
    again = writer(broker, writeId="slowly", transactionSize=2)
    again.commit([again.write(rows(*"abcdefg"))])
    assert waiting(broker) == list("abcdefg")


def test_a_rate_is_kept(broker: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten a second: the first at once, each other a tenth of a second after the one before it. About once a second what
    was sent becomes visible. The clock here is the task's own."""
    now, seen = [100.0], list[tuple[float, int]]()

    class Clock:
        @staticmethod
        def monotonic() -> float:
            return now[0]

        @staticmethod
        def sleep(seconds: float) -> None:
            now[0] += seconds
            seen.append((round(now[0] - 100, 6), len(waiting(broker))))

    monkeypatch.setattr("sievemq_spark.writer.time", Clock)
    driver = writer(broker, rate=10)
    driver.commit([driver.write(rows(*"abcdefghijklmnopqrstuvwxy"))])
    assert seen == [(round(number / 10, 6), number // 10 * 10) for number in range(1, 25)]
    assert waiting(broker) == list("abcdefghijklmnopqrstuvwxy")


def test_a_dry_run_sends_nothing(broker: EmbeddedBroker) -> None:
    driver = writer(broker, dryRun="true")
    written = driver.write(rows("a", "b"))
    driver.commit([written])
    assert written == Written(2, driver._key)
    assert waiting(broker) == []


class Context:
    """What Spark tells a task."""

    def __init__(self, batch: int, partition: int = 0) -> None:
        self._properties = {"sql.streaming.queryId": "5f2c", "streaming.sql.batchId": str(batch)}
        self._partition = partition

    def getLocalProperty(self, name: str) -> str | None:
        return self._properties.get(name)

    def partitionId(self) -> int:
        return self._partition


def test_a_batch_of_a_stream_is_published_once(broker: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    options = WriteOptions.read({"url": broker.url, "destination": "queue:q"})
    sink = MessageStreamWriter(options, schema_of(ROWS))

    def write(batch: int, *texts: str) -> list[Any]:
        monkeypatch.setattr("sievemq_spark.stream_writer.TaskContext.get", lambda: Context(batch))
        return [sink.write(rows(*texts))]

    sink.commit(write(0, "a"), 0)
    sink.commit(write(1, "b"), 1)
    sink.commit(write(1, "b"), 1)  # restarted between the sink's commit and Spark's
    sink.commit([], 2)
    sink.abort(write(3, "lost"), 3)
    sink.commit(write(3, "c"), 3)
    assert waiting(broker) == ["a", "b", "c"]
    monkeypatch.setattr("sievemq_spark.stream_writer.TaskContext.get", lambda: None)
    with pytest.raises(PipelineError, match="which batch of which query"):
        sink.write(rows("x"))


# -- names ---------------------------------------------------------------------------------------------------------


def test_two_queries_on_one_tap_are_refused_at_the_start(
    broker: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sievemq_spark.tap_reader.PATIENCE", 0.0)
    first = Stream(broker)
    send(broker, "a")
    second = TapStreamReader(first.options, first.schema)
    with pytest.raises(PipelineError, match="each query needs its own tap"):
        second.initialOffset()
    with pytest.raises(PipelineError, match="each query needs its own tap"):
        second.prepareForTriggerAvailableNow()
    assert first.batch() == ["a"]
    Stream(broker, tap="another")
    first.start()  # its process has ended, and its connections with it
    assert first.batch() == []


@pytest.mark.parametrize("destination", ["queue:nope", "queue:shop.*", "topic:nope", "queue:q,queue:nope"])
def test_a_stream_of_a_destination_that_is_not_there(broker: EmbeddedBroker, destination: str) -> None:
    send(broker, "a")
    name = destination.rpartition(",")[2]
    with pytest.raises(NoDestinationError, match=rf"there is no {name.replace('*', '.*')} .* failOnMissing=false"):
        Stream(broker, destination, failonmissing=True)
    stream = TapStreamReader(ReadOptions.read({"url": broker.url, "destination": destination, "tap": "u"}), None)  # type: ignore[arg-type]
    stream.prepareForTriggerAvailableNow()
    with pytest.raises(NoDestinationError):
        stream.initialOffset()
    assert broker.call(lambda inner: inner.namespace("").find(name)) is None


def test_a_stream_of_a_queue_and_its_dead_letters(broker: EmbeddedBroker) -> None:
    """The dead-letter queue is made with the first dead letter; its tap is there before."""
    send(broker, "a")
    assert Stream(broker, "queue:q,queue:DLQ.q", failonmissing=True).batch() == ["a"]


@pytest.mark.parametrize(
    ("destination", "missing"),
    [
        ("queue:nope", "queue:nope"),
        ("queue:q*", r"queue:q\*"),
        ("queue:q,queue:nope", "queue:nope"),
        ("queue:DLQ.nope", "queue:DLQ.nope"),
        ("queue:DLQ.q", None),
    ],
)
def test_a_browse_of_a_queue_that_is_not_there(broker: EmbeddedBroker, destination: str, missing: str | None) -> None:
    send(broker, "a")
    given = {"url": broker.url, "destination": destination}
    if missing is not None:
        with pytest.raises(NoDestinationError, match=f"there is no {missing} in .*--allow-missing"):
            BrowseReader(ReadOptions.read(given), schema_of(COLUMNS)).partitions()
        given["failonmissing"] = "false"
    assert BrowseReader(ReadOptions.read(given), schema_of(COLUMNS)).partitions()


def test_a_broker_with_tls_says_how_its_url_begins(certificates: Path) -> None:
    files = {"tls_cert": str(certificates / "server.pem"), "tls_key": str(certificates / "server.key")}
    with EmbeddedBroker(settings=files) as broker:
        given = {"url": f"sievemq://127.0.0.1:{broker.port}?reconnect=0", "destination": "queue:q"}
        with pytest.raises(JMSException, match="begins with sievemqs://"):
            BrowseReader(ReadOptions.read(given), schema_of(COLUMNS)).partitions()
        stream = TapStreamReader(ReadOptions.read({**given, "tap": "t"}), schema_of(COLUMNS))
        with pytest.raises(JMSException, match="begins with sievemqs://"):
            stream.initialOffset()


# -- where a query begins, and how far it is behind -----------------------------------------------------------------


def test_starting_offsets_by_destination(broker: EmbeddedBroker) -> None:
    send(broker, "a", "b", "c")
    send(broker, "d", to=Queue("r"))
    starts = '{"queue:r": "latest"}'
    both = Stream(broker, "queue:q,queue:r", startingoffsets=starts)
    assert both.batch() == ["a", "b", "c"]
    send(broker, "e", to=Queue("r"))
    assert both.batch() == ["e"]


def test_a_query_begins_at_a_sequence(broker: EmbeddedBroker) -> None:
    send(broker, "a", "b", "c")
    first = Stream(broker)
    assert first.batch() == ["a", "b", "c"]  # read, and not yet acknowledged
    assert Stream(broker, startingoffsets='{"queue:q": 2}').batch() == ["b", "c"]
    assert Stream(broker, startingoffsets='{"queue:q": 4}').batch() == []
    with pytest.raises(PipelineError, match="has come to 3; startingOffsets cannot begin at 5"):
        Stream(broker, startingoffsets='{"queue:q": 5}')
    first.start()
    first.plan()  # acknowledges
    with pytest.raises(DataLossError, match="begins at 4; what startingOffsets names, 2, is gone"):
        Stream(broker, startingoffsets='{"queue:q": 2}')
    assert Stream(broker, startingoffsets='{"queue:q": 2}', failondataloss=False).batch() == []


def test_a_query_begins_at_a_time(broker: EmbeddedBroker) -> None:
    """With the first message of that time or later, also where two have the same millisecond; then with all."""
    broker.clock.freeze()
    first = broker.clock.now()
    send(broker, "a", "b")
    broker.clock.advance(milliseconds=1)
    send(broker, "c")
    broker.clock.advance(milliseconds=1)
    send(broker, "d")
    with ConnectionFactory(broker.url).create_context() as context:
        context.create_producer().set_disable_message_timestamp(True).send(Queue("q"), "no time")
    begin = round(first.timestamp() * 1_000)
    for number, (moment, read) in enumerate(
        {
            begin - 5: ["a", "b", "c", "d", "no time"],
            begin: ["a", "b", "c", "d", "no time"],
            begin + 1: ["c", "d", "no time"],
            begin + 2: ["d", "no time"],
            begin + 3: [],
        }.items()
    ):
        stream = Stream(broker, tap=f"t{number}", startingtimestamp=moment)
        assert stream.batch() == read
    send(broker, "later, whatever its time")
    assert stream.batch() == ["later, whatever its time"]
    text = (first + timedelta(milliseconds=2)).isoformat()
    assert Stream(broker, tap="iso", startingtimestamp=text).batch() == ["d", "no time", "later, whatever its time"]
    send(broker, *["x"] * 5_000, to=Queue("deep"))  # more than a page
    broker.clock.advance(milliseconds=1)
    send(broker, "y", to=Queue("deep"))
    both = Stream(broker, "queue:deep", startingtimestamp=begin + 3)
    assert both.batch() == ["y"]
    joined = Stream(broker, "queue:deep,queue:q", begin=both.begin, startingtimestamp=begin + 2)
    assert joined.batch() == ["d", "no time", "later, whatever its time"]


def test_outcomes_begin_at_the_time_when_they_happened(broker: EmbeddedBroker) -> None:
    Stream(broker, mode="outcomes")
    send(broker, "a", "b")

    def consume_one() -> None:
        with ConnectionFactory(broker.url).create_context() as context:
            assert context.create_consumer(Queue("q")).receive(60_000)

    consume_one()
    broker.clock.advance(seconds=60)
    later = round(broker.clock.now().timestamp() * 1_000) - 1_000
    consume_one()
    stream = Stream(broker, mode="outcomes", startingtimestamp=later, timeColumn="at")
    rows = stream.read(stream.begin or {}, stream.plan())
    assert [row["outcome"] for row in rows] == ["acknowledged"]
    assert rows[0]["time"] >= later
    assert rows[0]["at"].timestamp() * 1_000 == pytest.approx(rows[0]["time"])


def test_a_run_that_continues_looks_for_no_beginning(broker: EmbeddedBroker) -> None:
    """What startingOffsets names may be gone by then."""
    send(broker, "a", "b")
    first = Stream(broker)
    stream = Stream(broker, startingoffsets='{"queue:q": 2}')
    assert first.begin
    stream.reader.prepareForTriggerAvailableNow()
    assert [stream.batch(), stream.batch()] == [["b"], []]
    stream.start()
    stream.reader.prepareForTriggerAvailableNow()
    assert stream.batch() == []


def test_a_column_for_windows(broker: EmbeddedBroker) -> None:
    """A TIMESTAMP; NULL where a message has no time, or one that is a mistake."""
    broker.clock.freeze()
    send(broker, "a")
    with ConnectionFactory(broker.url).create_context() as context:
        context.create_producer().set_disable_message_timestamp(True).send(Queue("q"), "no time")
    stream = Stream(broker, timecolumn="at", columns="n INT")
    rows = stream.read(stream.begin or {}, stream.plan())
    assert [row["at"] and row["at"].timestamp() for row in rows] == [rows[0]["timestamp"] / 1_000, None]
    assert list(rows[0])[-2:] == ["n", "at"]
    browsed = SieveMQDataSource({"url": broker.url, "destination": "q", "columns": "n INT", "timecolumn": "at"})
    reader = browsed.reader(stream.schema)
    assert [row for part in reader.partitions() for batch in reader.read(part) for row in batch_rows(batch)] == rows


def test_the_lag_of_a_query(broker: EmbeddedBroker) -> None:
    send(broker, "a", "b", "c")
    stream = Stream(broker, maxmessagespertrigger=1)
    assert stream.batch() == ["a"]
    progress = {
        "sources": [{"endOffset": json.dumps(stream.begin), "latestOffset": stream.reader.reportLatestOffset()}]
    }
    assert lag(progress) == {"main/queue:q": 2}
    assert lag(None) == lag({"sources": [{"endOffset": "7", "latestOffset": "9"}]}) == {}
