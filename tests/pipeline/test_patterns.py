"""Destinations by pattern: those that fit, of each shard, and those that are made while a query runs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="needs the extra `spark`")

from sievemq import Queue, Topic
from sievemq_broker import EmbeddedBroker
from sievemq_spark import shards
from sievemq_spark.errors import DataLossError, PipelineError
from sievemq_spark.options import ReadOptions
from sievemq_spark.reader import BrowseReader
from sievemq_spark.schema import COLUMNS

from .streams import Stream, batch_rows, forget_connections, schema_of, send

pytestmark = pytest.mark.spark


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Each batch looks for new destinations."""
    monkeypatch.setattr(shards, "SEARCH_SECONDS", 0.0)
    yield
    forget_connections()


def by_pattern(url: EmbeddedBroker | str, pattern: str, destination: str = "", **options: Any) -> Stream:
    return Stream(url, destination, destinationpattern=pattern, failonmissing="true", **options)


def test_queues_that_are_made_later_join() -> None:
    """With what waits there; and a run after a crash reads the same."""
    with EmbeddedBroker() as broker:
        send(broker, "1", to=Queue("shop.eu"))
        send(broker, "other", to=Queue("other"))
        stream = by_pattern(broker, "queue:shop.*")
        assert list(stream.begin or ()) == ["main/queue:shop.eu"]
        assert stream.batch() == ["1"]
        send(broker, "2", "3", to=Queue("shop.us"))
        begin, end = stream.begin or {}, stream.plan()
        assert [row["body_text"] for row in stream.read(begin, end)] == ["2", "3"]
        stream.start()
        assert [row["body_text"] for row in stream.read(begin, end)] == ["2", "3"]
        stream.begin = end
        send(broker, "4", to=Queue("shop.us"))
        send(broker, "5", to=Queue("shop.eu"))
        assert sorted(stream.batch()) == ["4", "5"]
        assert stream.batch() == []


def test_a_pattern_beside_names_and_of_topics() -> None:
    with EmbeddedBroker() as broker:
        send(broker, "q", to=Queue("a"))
        stream = by_pattern(broker, "topic:prices.?, queue:a*", "queue:a")
        assert list(stream.begin or ()) == ["main/queue:a"]  # once
        send(broker, "first", to=Topic("prices.x"))  # makes it
        assert stream.batch() == ["q"]
        send(broker, "x", to=Topic("prices.x"))
        assert stream.batch() == ["x"]


def test_a_pattern_that_fits_nothing_yet() -> None:
    with EmbeddedBroker() as broker:
        stream = by_pattern(broker, "queue:shop.*", startingoffsets="latest")
        assert (stream.begin, stream.batch()) == ({}, [])
        send(broker, "before it was seen", to=Queue("shop.x"))
        assert stream.batch() == []
        send(broker, "1", to=Queue("shop.x"))
        assert stream.batch() == ["1"]


def test_each_shard_has_queues_of_its_own() -> None:
    with EmbeddedBroker(settings={"shard": "a"}) as a, EmbeddedBroker(settings={"shard": "b"}) as b:
        send(a, "1", to=Queue("shop.x"))
        send(b, "2", to=Queue("shop.y"))
        stream = by_pattern(f"{a.url}, {b.url}", "queue:shop.*")
        assert list(stream.begin or ()) == ["a/queue:shop.x", "b/queue:shop.y"]
        assert stream.batch() == ["1", "2"]


def test_a_run_to_the_end_reads_the_queues_there_were() -> None:
    with EmbeddedBroker() as broker:
        send(broker, "1", to=Queue("shop.a"))
        stream = by_pattern(broker, "queue:shop.*")
        stream.reader.prepareForTriggerAvailableNow()
        send(broker, "2", to=Queue("shop.b"))
        assert [stream.batch(), stream.batch()] == [["1"], []]
        stream.start()
        assert stream.batch() == ["2"]


def test_a_queue_that_is_deleted_is_read_no_more() -> None:
    """Made again, it is another one: what it had is lost."""
    with EmbeddedBroker() as broker:
        send(broker, "1", to=Queue("shop.a"))
        stream = by_pattern(broker, "queue:shop.*")
        assert stream.batch() == ["1"]
        broker.call(lambda domain: domain.namespace("").delete("queue:shop.a"))
        assert stream.batch() == []
        send(broker, "2", to=Queue("shop.a"))
        with pytest.raises(DataLossError, match=r"the tap .* is gone|the tap .* and not"):
            stream.plan()
        careless = by_pattern(broker, "queue:shop.*", failondataloss="false")
        careless.begin = stream.begin
        assert careless.batch() == ["2"]


def test_a_browse_by_pattern() -> None:
    with EmbeddedBroker() as broker:
        send(broker, "1", to=Queue("shop.a"))
        send(broker, "2", to=Queue("shop.b"))
        send(broker, "3", to=Queue("other"))
        given = {"url": broker.url, "destinationpattern": "queue:shop.*", "destination": "other"}
        reader = BrowseReader(ReadOptions.read(given), schema_of(COLUMNS))
        rows = [row for part in reader.partitions() for batch in reader.read(part) for row in batch_rows(batch)]
        assert [(row["destination"], row["body_text"]) for row in rows] == [
            ("queue:other", "3"), ("queue:shop.a", "1"), ("queue:shop.b", "2"),
        ]  # fmt: skip


def test_where_the_destinations_of_a_pattern_begin() -> None:
    given = {"destinationpattern": "queue:shop.*", "tap": "t"}
    options = ReadOptions.read({**given, "startingoffsets": '{"queue:shop.a": "latest"}'})
    assert [options.start_of(name) for name in ("queue:shop.a", "queue:shop.b")] == ["latest", "earliest"]
    with pytest.raises(PipelineError, match="names queue:other, which is not read"):
        ReadOptions.read({**given, "startingoffsets": '{"queue:other": "latest"}'})


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"destinationpattern": " , "}, "'destinationPattern' has no pattern"),
        ({"destinationpattern": "topic:a*"}, "'destinationPattern' names topics, 'topic:a.'; mode 'browse'"),
        ({"destinationpattern": "topic:a*", "tap": "t", "mode": "drain"}, "mode 'drain' reads queues alone"),
        ({"subscribePattern": "a*"}, "did you mean 'destinationPattern'"),
        ({"tap": "t"}, "'destination' is missing, such as 'queue:orders', or 'destinationPattern'"),
    ],
)
def test_wrong_patterns(options: dict[str, str], says: str) -> None:
    with pytest.raises(PipelineError, match=says):
        ReadOptions.read(options)
