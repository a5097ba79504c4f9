"""Source and sink that know one process of a cluster: they reach the owner of each namespace, the next one as well."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

pytest.importorskip("pyspark", reason="needs the extra `spark`")

import pyarrow as pa
from tests.broker.store.sharing import DEADLINE, SharingBroker, cluster

from sievemq import Connection, ConnectionFactory, JMSException, Queue
from sievemq.staging import publish
from sievemq_spark.errors import PipelineError
from sievemq_spark.options import ReadOptions, WriteOptions
from sievemq_spark.reader import BrowseReader
from sievemq_spark.schema import COLUMNS
from sievemq_spark.writer import MessageWriter

from .streams import Stream, batch_rows, forget_connections, schema_of

pytestmark = pytest.mark.spark

Brokers = tuple[SharingBroker, SharingBroker, SharingBroker]


@pytest.fixture
def brokers() -> Iterator[Brokers]:
    with cluster() as brokers:
        yield brokers
        forget_connections()


def send(url: str, *texts: str) -> None:
    with ConnectionFactory(url).create_context() as context:
        for text in texts:
            context.create_producer().send(Queue("q"), text)


def waiting(url: str) -> list[str | None]:
    with ConnectionFactory(url).create_context() as context:
        return [message.get_body(str) for message in context.create_browser(Queue("q"))]


def take_over(owner: SharingBroker, spare: SharingBroker) -> None:
    owner.stop()
    spare.wait_until_serving(DEADLINE)


def test_the_source_reaches_the_owner_of_each_namespace(brokers: Brokers) -> None:
    first, owner, spare = brokers
    send(f"{first.url}/mine", "here")
    send(f"{owner.url}/space", "1")
    urls = f"{first.url}/mine, {first.url}/space"
    reader = BrowseReader(ReadOptions.read({"url": urls, "destination": "q"}), schema_of(COLUMNS))
    rows = [row for part in reader.partitions() for batch in reader.read(part) for row in batch_rows(batch)]
    assert [(row["shard"], row["namespace"], row["body_text"]) for row in rows] == [
        ("a", "mine", "here"), ("b", "space", "1"),
    ]  # fmt: skip
    stream = Stream(urls)
    assert sorted(stream.begin or ()) == ["a/mine/queue:q", "b/space/queue:q"]
    assert sorted(stream.batch()) == ["1", "here"]
    begin, end = stream.begin or {}, stream.plan()
    take_over(owner, spare)
    send(f"{first.url}/space", "2")
    assert stream.read(begin, end) == []
    assert [stream.batch(), stream.batch()] == [["2"], []]


def writer(*urls: str) -> MessageWriter:
    options = WriteOptions.read({"url": ", ".join(urls), "destination": "queue:q", "writeid": "monday"})
    return MessageWriter(options, schema_of({"body_text": "string", "namespace": "string"}))


def rows() -> Iterator[pa.RecordBatch]:
    yield pa.RecordBatch.from_pylist([{"body_text": text, "namespace": text} for text in ("mine", "space")])


def test_the_sink_reaches_the_owner_of_each_namespace(brokers: Brokers) -> None:
    """A write that is repeated once another broker owns the shard sends nothing twice."""
    first, owner, spare = brokers
    urls = f"{first.url}/mine", f"{first.url}/space"
    for change in (lambda: take_over(owner, spare), forget_connections):
        driver = writer(*urls)
        driver.commit([driver.write(rows())])
        assert [waiting(url) for url in urls] == [["mine"], ["space"]]
        change()


def test_an_error_tells_namespaces_of_one_broker_apart(brokers: Brokers, monkeypatch: pytest.MonkeyPatch) -> None:
    first, _, _ = brokers

    def fails(connection: Connection, **how: object) -> int | None:
        if connection.get_meta_data().shard == "b":
            raise JMSException("no", "RESOURCE_ALLOCATION")
        return publish(connection, **how)  # type: ignore[arg-type]

    monkeypatch.setattr("sievemq_spark.writer.publish", fails)
    driver = writer(f"{first.url}/mine", f"{first.url}/space")
    with pytest.raises(PipelineError, match=rf"only those for 127\.0\.0\.1:{first.port}/mine were"):
        driver.commit([driver.write(rows())])
