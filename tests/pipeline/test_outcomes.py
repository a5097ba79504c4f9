"""What became of messages: from the broker through a stream into the archive, and a report of it."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import Any

import pytest

from sievemq import ConnectionFactory, JMSContext, Queue, Topic
from sievemq_broker import EmbeddedBroker
from sievemq_spark.archive import Archived, archive_outcomes, archive_stream, read_archive, read_outcomes
from sievemq_spark.compaction import compact
from sievemq_spark.errors import NoArchiveError, PipelineError
from sievemq_spark.outcomes import outcomes
from sievemq_spark.retention import expire
from sievemq_spark.schema import OUTCOME_COLUMNS, ddl

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1_200)]

#: Name of a message -> what became of it, why, how often it was tried, by which selector.
FATES = {
    "chosen": ("acknowledged", None, 1, "name = 'chosen'"),
    "taken": ("acknowledged", None, 1, "name <> 'stays'"),
    "bad": ("dead-lettered", "attempts", 6, None),
    "old": ("expired", None, 0, None),
}


def traffic(broker: EmbeddedBroker) -> None:
    """Five messages of a queue, of which one stays, and one of a topic with two subscriptions."""
    with ConnectionFactory(broker.url).create_context(JMSContext.CLIENT_ACKNOWLEDGE) as context:
        context.set_client_id("me")
        producer = context.create_producer()
        subscriptions = [
            context.create_durable_consumer(Topic("prices"), "kept"),
            context.create_consumer(Topic("prices")),
        ]
        producer.set_property("name", "price").send(Topic("prices"), "x")
        for each in subscriptions:
            message = each.receive(60_000)
            assert message is not None
            message.acknowledge()
        for name in ("chosen", "taken", "bad", "stays"):
            producer.set_property("name", name).send(Queue("orders"), "x")
        producer.set_time_to_live(1_000).set_property("name", "old").send(Queue("orders"), "x")
        broker.clock.advance(seconds=3)
        for name in ("chosen", "bad", "taken"):
            text = f"name = '{name}'" if name != "taken" else "name <> 'stays'"
            consumer = context.create_consumer(Queue("orders"), text)
            while (message := consumer.receive_no_wait()) is not None:
                if name == "bad":
                    context.recover()
                else:
                    message.acknowledge()
            consumer.close()


def test_what_became_of_messages(spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = str(tmp_path / "archive")
    with EmbeddedBroker() as broker:

        def run() -> Archived:
            given = spark, broker.url, "queue:orders,topic:prices", path
            return archive_stream(*given, tap="audit", outcomes=True, fail_on_missing=False)

        assert run() == Archived(0, 0, 0)
        with pytest.raises(NoArchiveError):
            read_outcomes(spark, path)
        traffic(broker)

        def dying(*arguments: Any, **more: Any) -> Any:
            archive_outcomes(*arguments, **more)
            raise RuntimeError("the driver dies before it is noted")

        with monkeypatch.context() as patched, pytest.raises(Exception, match="the driver dies"):
            patched.setattr("sievemq_spark.archive.archive_outcomes", dying)
            run()
        assert run() == Archived(6, 6, 0)  # the same outcomes again, and none of them twice

    messages, fates = read_archive(spark, path), read_outcomes(spark, path)
    names = {row.message_id: row.properties["name"]["s"] for row in messages.collect()}
    rows = fates.collect()
    found = {
        names[row.message_id]: (row.outcome, row.reason, row.attempts, row.selector)
        for row in rows
        if row.destination == "queue:orders"
    }
    assert found == FATES
    assert sorted((row.subscription or "", row.outcome) for row in rows if row.destination == "topic:prices") == [
        ("", "acknowledged"),
        ("kept", "acknowledged"),
    ]
    took = {names[row.message_id]: row.time - row.timestamp for row in rows}
    assert took["old"] >= 1_000
    assert took["chosen"] >= 3_000

    result = outcomes(messages, fates)
    assert (result.messages, result.open) == (6, 1)
    assert [(fate.outcome, fate.reason, fate.messages) for fate in result.fates] == [
        ("acknowledged", None, 4),
        ("dead-lettered", "attempts", 1),
        ("expired", None, 1),
    ]
    assert sum(fate.share for fate in result.fates) == pytest.approx(1)
    assert result.fates[0].took[100] == max(took["chosen"], took["taken"])
    assert result.fates[1].attempts == 6
    assert result.selectors == {None: 2, "name = 'chosen'": 1, "name <> 'stays'": 1}
    assert result.destinations["topic:prices", "acknowledged"] == 2
    assert {name: sum(hours.values()) for name, hours in result.times.items()} == {
        "acknowledged": 4,
        "dead-lettered": 1,
        "expired": 1,
    }

    # They are kept beside the messages, become few files with them, and leave with them.
    assert messages.columns == read_archive(spark, path).columns
    again = spark.createDataFrame([row[:-1] for row in rows], ddl(columns=OUTCOME_COLUMNS))
    for number in (1, 2):
        later = again.withColumn("time", again.time + number)
        assert archive_outcomes(spark, later, path).added == len(rows)
    compact(spark, path, files=3)
    assert len(list((Path(path) / "_outcomes").rglob("*.parquet"))) == 2  # a queue and a topic
    assert read_outcomes(spark, path).count() == 3 * len(rows)
    gone = expire(spark, path, date(9999, 1, 1))
    assert sum(folder.startswith("_outcomes/") for folder in gone.days) == 2
    assert list(Path(path).rglob("*.parquet")) == []


def test_mistakes(spark: Any) -> None:
    with pytest.raises(PipelineError, match="these are no outcomes: the columns shard, namespace"):
        archive_outcomes(spark, spark.range(1), "nowhere")
    reader = spark.read.format("sievemq").option("destination", "queue:q").option("tap", "t").option("mode", "outcomes")
    assert reader.load().columns == list(OUTCOME_COLUMNS)
    with pytest.raises(Exception, match="outcomes have no properties: leave the option 'columns' out"):
        reader.option("columns", "n INT").load()
