"""The sink over several shards: each row to one of them, once, whatever fails in the middle."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="needs the extra `spark`")

import pyarrow as pa
from tests.client.relay import Relay

from sievemq import Connection, JMSException
from sievemq.staging import publish
from sievemq_broker import EmbeddedBroker
from sievemq_spark.errors import PipelineError
from sievemq_spark.options import WriteOptions
from sievemq_spark.stream_writer import MessageStreamWriter
from sievemq_spark.writer import MessageWriter

from .streams import forget_connections, schema_of, waiting

pytestmark = pytest.mark.spark

ROWS = {"body_text": "string", "shard": "string"}


@pytest.fixture
def pair() -> Iterator[tuple[EmbeddedBroker, EmbeddedBroker]]:
    with EmbeddedBroker(settings={"shard": "a"}) as a, EmbeddedBroker(settings={"shard": "b"}) as b:
        yield a, b
    forget_connections()


def writer(*urls: str, columns: dict[str, str] | None = None, **options: Any) -> MessageWriter:
    given = {"url": ", ".join(urls), "destination": "queue:q", **options}
    read = WriteOptions.read({name.lower(): str(value) for name, value in given.items()})
    return MessageWriter(read, schema_of(columns or ROWS))


def rows(*pairs: tuple[str, str | None], column: str = "shard") -> Iterator[pa.RecordBatch]:
    for text, where in pairs:
        yield pa.RecordBatch.from_pylist([{"body_text": text, column: where}])


FOUR = ("1", "a"), ("2", "b"), ("3", "b"), ("4", "a")


def test_each_row_goes_to_the_shard_that_it_names(pair: tuple[EmbeddedBroker, EmbeddedBroker]) -> None:
    a, b = pair
    for _ in range(2):  # the second time nothing is new
        driver = writer(a.url, b.url, writeId="monday")
        task = pickle.loads(pickle.dumps(driver))
        written = [task.write(rows(*FOUR)), task.write(rows(("5", "b")))]
        driver.commit(written)
        driver.commit(written)
        assert (waiting(a), waiting(b)) == (["1", "4"], ["2", "3", "5"])
    driver.abort([driver.write(rows(("lost", "a"), ("lost", "b")))])
    for broker in pair:
        assert broker.call(lambda domain: domain.namespace("").stages.bytes) == 0


def test_namespaces_tell_the_shard(pair: tuple[EmbeddedBroker, EmbeddedBroker]) -> None:
    """Where each URL has another one, no row needs a shard; and where two have the same, its shard decides."""
    a, b = pair
    columns = {"body_text": "string", "namespace": "string"}
    eu, us = a.namespace("eu"), b.namespace("us")
    driver = writer(eu.url, us.url, columns=columns)
    driver.commit([driver.write(rows(("1", "us"), ("2", "eu"), column="namespace"))])
    assert (waiting(eu), waiting(us)) == (["2"], ["1"])
    for namespace in ("asia", None):
        with pytest.raises(PipelineError, match=rf"row 1 of this partition fits none .*namespace '?{namespace}'?"):
            driver.write(rows(("3", namespace), column="namespace"))
    driver = writer(a.url, us.url, b.url, columns={**ROWS, "namespace": "string"})
    batch = pa.RecordBatch.from_pylist([{"body_text": "x", "shard": "b", "namespace": ""}])
    driver.commit([driver.write(iter([batch]))])
    assert waiting(b) == ["x"]


@pytest.mark.parametrize("shard", [None, "c"])
def test_a_row_that_names_no_shard_is_an_error(pair: tuple[EmbeddedBroker, EmbeddedBroker], shard: str | None) -> None:
    """A NULL is not sent to any."""
    a, b = pair
    driver = writer(a.url, b.url)
    with pytest.raises(PipelineError, match=r"row 2 of this partition .* option 'url', which lead to the shards a, b"):
        driver.write(rows(("1", "a"), ("2", shard)))
    with pytest.raises(PipelineError, match="a column 'shard' or 'namespace'"):
        writer(a.url, b.url, columns={"body_text": "string"})
    alone = writer(a.url)
    alone.commit([alone.write(rows(("1", shard)))])
    assert waiting(a) == ["1"]


def test_a_shard_that_is_away_when_the_write_is_complete(
    pair: tuple[EmbeddedBroker, EmbeddedBroker], port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is visible anywhere; written again, each row is there once."""
    monkeypatch.setattr("sievemq_spark.links.Link.__init__.__kwdefaults__", {"patience": 0})
    monkeypatch.setattr("sievemq_spark.writer.PATIENCE", 0)
    a, _ = pair
    urls = a.url, f"sievemq://127.0.0.1:{port}?reconnect=0"
    with EmbeddedBroker(settings={"shard": "b"}, port=port):
        driver = writer(*urls, writeId="monday")
        written = driver.write(rows(*FOUR))
    with pytest.raises(PipelineError, match=r"none of them was: .*no broker could be reached"):
        driver.commit([written])
    with pytest.raises(PipelineError, match=r"after 1 messages .*no broker could be reached"):
        driver.write(rows(*FOUR))
    driver.abort([written])
    assert waiting(a) == []
    with EmbeddedBroker(settings={"shard": "b"}, port=port) as b:
        again = writer(*urls, writeId="monday")
        again.commit([again.write(rows(*FOUR))])
        assert (waiting(a), waiting(b)) == (["1", "4"], ["2", "3"])


def test_two_urls_that_lead_to_one_shard(
    pair: tuple[EmbeddedBroker, EmbeddedBroker], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A task goes by the second one while the first is away: both tasks' rows are published."""
    monkeypatch.setattr("sievemq_spark.writer.PATIENCE", 0)
    a, b = pair
    with Relay(a.port) as relay:
        driver = writer(f"sievemq://127.0.0.1:{relay.port}?reconnect=0", a.url, b.url)
        written = [driver.write(rows(("1", "a"), ("2", "b")))]
        relay.refuse()
        written.append(driver.write(rows(("3", "a"))))
        relay.accept()
        for _ in range(2):
            driver.commit(written)
        assert (waiting(a), waiting(b)) == (["1", "3"], ["2"])


def test_a_shard_whose_answer_is_lost(
    pair: tuple[EmbeddedBroker, EmbeddedBroker], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The request is repeated, and answered that the batch was published before: by this write, if it has no name."""
    a, b = pair

    def twice(connection: Connection, key: str, batch: int, names: Iterable[str]) -> int | None:
        first = publish(connection, key, batch, names)
        return publish(connection, key, batch, names) if connection.get_meta_data().shard == "b" else first

    monkeypatch.setattr("sievemq_spark.writer.publish", twice)
    assert writer(a.url, b.url).send(Frame(rows(*FOUR))) == 4  # type: ignore[arg-type]
    driver = writer(b.url)
    driver.commit([driver.write(rows(("5", "b")))])
    assert (waiting(a), waiting(b), caplog.messages) == (["1", "4"], ["2", "3", "5"], [])
    dry = writer(a.url, b.url, dryRun="true")
    assert dry.send(Frame(rows(*FOUR))) == 0  # type: ignore[arg-type]


class Frame:
    """A frame of one partition, as far as a write needs one."""

    def __init__(self, batches: Iterator[pa.RecordBatch]) -> None:
        self._batches = batches

    def mapInArrow(self, task: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]], schema: str) -> Frame:
        return Frame(task(self._batches))

    def collect(self) -> list[dict[str, Any]]:
        return [row for batch in self._batches for row in batch.to_pylist()]


def test_a_shard_that_forgot_its_part_when_the_other_was_published(
    pair: tuple[EmbeddedBroker, EmbeddedBroker], port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The batch of a stream is written again, as Spark does after a restart: each row is there once."""
    a, _ = pair
    urls = f"{a.url}, sievemq://127.0.0.1:{port}"
    options = WriteOptions.read({"url": urls, "destination": "queue:q"})
    sink = MessageStreamWriter(options, schema_of(ROWS))
    monkeypatch.setattr("sievemq_spark.stream_writer.TaskContext.get", Context)
    with EmbeddedBroker(settings={"shard": "b"}, port=port):
        written = sink.write(rows(*FOUR))
    with EmbeddedBroker(settings={"shard": "b"}, port=port) as b:
        with pytest.raises(PipelineError, match=rf"only those for 127\.0\.0\.1:{a.port} were"):
            sink.commit([written], 7)
        sink.abort([written], 7)
        assert (waiting(a), waiting(b)) == (["1", "4"], [])
        for _ in range(2):
            sink.commit([sink.write(rows(*FOUR))], 7)
        assert (waiting(a), waiting(b)) == (["1", "4"], ["2", "3"])


class Context:
    """What Spark tells a task."""

    def getLocalProperty(self, name: str) -> str | None:
        return {"sql.streaming.queryId": "5f2c", "streaming.sql.batchId": "7"}.get(name)

    def partitionId(self) -> int:
        return 0


def test_piece_by_piece_to_several_shards(pair: tuple[EmbeddedBroker, EmbeddedBroker]) -> None:
    """Each shard has pieces of its own; killed in the middle, the rest is sent once."""
    a, b = pair
    all_rows = [(str(number), "ab"[number % 3 > 0]) for number in range(12)]

    def failing() -> Iterator[pa.RecordBatch]:
        yield from rows(*all_rows[:8])
        raise RuntimeError("the executor died")

    with pytest.raises(RuntimeError, match="died"):
        writer(a.url, b.url, writeId="slowly", transactionSize=2).write(failing())
    assert (waiting(a), waiting(b)) == (["0", "3"], ["1", "2", "4", "5"])
    again = writer(a.url, b.url, writeId="slowly", transactionSize=2)
    again.commit([again.write(rows(*all_rows))])
    assert waiting(a) == [text for text, shard in all_rows if shard == "a"]
    assert waiting(b) == [text for text, shard in all_rows if shard == "b"]


def test_a_dry_run_checks_the_shards_too(pair: tuple[EmbeddedBroker, EmbeddedBroker]) -> None:
    a, b = pair
    driver = writer(a.url, b.url, dryRun="true")
    driver.commit([driver.write(rows(*FOUR))])
    with pytest.raises(PipelineError, match="row 1"):
        driver.write(rows(("1", "c")))
    assert waiting(a) == waiting(b) == []


def test_a_shard_that_is_away_and_may_be_the_rows(
    pair: tuple[EmbeddedBroker, EmbeddedBroker], port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sievemq_spark.writer.PATIENCE", 0)
    a, b = pair
    driver = writer(f"sievemq://127.0.0.1:{port}?reconnect=0", a.url, b.url)
    driver.write(rows(("1", "a"), ("2", "b")))
    with pytest.raises((PipelineError, JMSException), match="no broker could be reached"):
        driver.write(rows(("1", "c")))
