"""Streams through Spark itself: a tap to Parquet and back, restarts, lost commit logs, killed drivers."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sievemq import ConnectionFactory, Message, Queue, TextMessage, Topic
from sievemq_broker import EmbeddedBroker
from sievemq_broker.session.commands import HANDLERS
from sievemq_core.wire.commands import Command
from sievemq_spark import drain
from sievemq_spark.archive import archive, archive_stream, read_archive, read_queues
from sievemq_spark.failures import explain_failure
from sievemq_testing.demo.flights import TOTAL, Flight, fingerprint, read_flights

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]


@pytest.fixture
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker() as broker:
        yield broker


def send_flights(url: str, queue: str, flights: list[Flight]) -> None:
    with ConnectionFactory(url).create_context() as context:
        producer = context.create_producer()
        for flight in flights:
            message = TextMessage(flight.body, properties=flight.properties)
            message.set_jms_type("flight")
            message.set_jms_correlation_id(flight.tail_number)
            producer.send(Queue(queue), message)


def take(url: str, queue: str) -> list[Message]:
    with ConnectionFactory(url).create_context() as context:
        consumer = context.create_consumer(Queue(queue))
        found = []
        while (message := consumer.receive_no_wait()) is not None:
            found.append(message)
        return found


def fingerprints(messages: list[Message]) -> Counter[int]:
    return Counter(
        fingerprint(m.get_jms_type(), m.get_jms_correlation_id(), m.properties, m.get_body(str) or "") for m in messages
    )


def stream(spark: Any, url: str, **options: Any) -> Any:
    given = {"url": url, "destination": "queue:in", "tap": "t", **options}
    return spark.readStream.format("sievemq").options(**given).load()


def run(frame: Any, kind: str, checkpoint: Path, available_now: bool = True, **options: Any) -> Any:
    writer = frame.writeStream.format(kind).options(checkpointLocation=str(checkpoint), **options)
    return (writer.trigger(availableNow=True) if available_now else writer.trigger(processingTime="0 seconds")).start()


def finish(query: Any) -> None:
    query.awaitTermination()
    assert query.exception() is None


def to_parquet_and_back(spark: Any, broker: EmbeddedBroker, folder: Path, count: int, per_batch: int) -> None:
    flights = list(read_flights(count))
    send_flights(broker.url, "in", flights)
    frame = stream(spark, broker.url, maxMessagesPerTrigger=per_batch)
    query = run(frame, "parquet", folder / "checkpoint", available_now=False, path=str(folder / "rows"))
    while not query.recentProgress:  # stopped wherever it is, behind its first batch
        assert query.exception() is None
        query.awaitTermination(1)
    query.stop()
    finish(run(frame, "parquet", folder / "checkpoint", path=str(folder / "rows")))
    assert broker.call(lambda domain: [len(tap.log) for tap in domain.namespace("").taps]) == [0]  # no tail is left
    rows = spark.read.parquet(str(folder / "rows"))
    assert rows.count() == rows.select("message_id").distinct().count() == len(flights)
    rows.write.format("sievemq").options(url=broker.url, destination="queue:back").mode("append").save()
    assert fingerprints(take(broker.url, "back")) == Counter(flight.fingerprint for flight in flights)


def test_flights_to_parquet_and_back_with_a_stop_in_the_middle(
    spark: Any, broker: EmbeddedBroker, tmp_path: Path
) -> None:
    """None lost, none twice, every NULL where it was."""
    to_parquet_and_back(spark, broker, tmp_path, 2_000, 600)


@pytest.mark.slow
@pytest.mark.timeout(1_200)
def test_all_flights_to_parquet_and_back(spark: Any, broker: EmbeddedBroker, tmp_path: Path) -> None:
    to_parquet_and_back(spark, broker, tmp_path, TOTAL, 60_000)


def test_a_lost_commit_log_and_lost_messages(
    spark: Any, broker: EmbeddedBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The driver dies between the sink's commit and its own note of it: Spark writes the batch again, under its number.

    Then messages are dropped before they are read: the query fails and says which, or goes on without them.
    """
    send(broker, *(str(n) for n in range(50)))
    frame = stream(spark, broker.url, maxMessagesPerTrigger=20, retainMessages=60)
    with monkeypatch.context() as dying:  # who dies there has not acknowledged the batch either
        dying.setitem(HANDLERS, Command.ACKNOWLEDGE_TAP, acknowledge_nothing)
        finish(run(frame, "sievemq", tmp_path, url=broker.url, destination="queue:out"))
    assert texts(broker, "out") == [str(n) for n in range(50)]
    last = max((tmp_path / "commits").glob("[0-9]*"), key=lambda file: int(file.name))
    last.unlink()
    (tmp_path / "commits" / f".{last.name}.crc").unlink()
    finish(run(frame, "sievemq", tmp_path, url=broker.url, destination="queue:out"))
    assert texts(broker, "out") == [str(n) for n in range(50)]
    send(broker, *(str(n) for n in range(50, 150)))
    query = run(frame, "sievemq", tmp_path, url=broker.url, destination="queue:out")
    with pytest.raises(Exception, match="has lost its messages 51 to 90") as failed:
        query.awaitTermination()
    assert "failOnDataLoss=false" in explain_failure(failed.value)
    careless = stream(spark, broker.url, retainMessages=60, failOnDataLoss="false")
    query = run(careless, "sievemq", tmp_path, url=broker.url, destination="queue:out")
    finish(query)
    assert texts(broker, "out") == [str(n) for n in (*range(50), *range(90, 150))]
    assert json.loads(query.lastProgress["sources"][0]["endOffset"])["queue:in"]["lost"] == 40


def acknowledge_nothing(connection: Any, command: tuple[Any, ...], now: int) -> None:
    _, request, name, destination, *_ = command
    HANDLERS[Command.LOOK_TAP](connection, (Command.LOOK_TAP, request, name, destination, 2**62, 1, 0), now)


def test_drain_takes_what_was_written(spark: Any, broker: EmbeddedBroker) -> None:
    send(broker, *"abc")

    class BrokenError(Exception):
        pass

    with pytest.raises(BrokenError), drain(spark, broker.url, "queue:in", tap="nightly") as frame:
        assert frame.count() == 3
        raise BrokenError
    with drain(spark, broker.url, "queue:in", tap="nightly") as frame:
        send(broker, "later")
        assert frame.count() == 3
        assert sorted(row.body_text for row in frame.collect()) == ["a", "b", "c"]
    assert texts(broker, "in") == ["later"]
    assert broker.call(lambda domain: domain.namespace("").queue("queue:in").in_flight) == 0


def test_mistakes_in_a_stream(spark: Any, broker: EmbeddedBroker, tmp_path: Path) -> None:
    with pytest.raises(Exception, match=r"\^\^\^\^"):
        stream(spark, broker.url, selector="a ANDD b")
    with pytest.raises(Exception, match="did you mean 'tap'"):
        stream(spark, broker.url, tpa="x")
    with pytest.raises(Exception, match="no broker could be reached"):
        finish(run(stream(spark, "sievemq://127.0.0.1:1"), "noop", tmp_path))


@pytest.mark.slow
def test_an_executor_that_fails_and_a_driver_that_is_killed(broker: EmbeddedBroker, tmp_path: Path) -> None:
    """A task raises in the middle of its rows and is run again; then the driver is killed, at the worst moment: the
    broker has published a batch, and nobody was told. Started again it sends what is missing, and nothing twice."""
    send(broker, *(str(n) for n in range(200)))
    published = threading.Event()
    carry_out, batches = HANDLERS[Command.PUBLISH], Counter[str]()

    def publish_and_say_nothing(connection: Any, command: tuple[Any, ...], now: int) -> None:
        batches[command[2]] += 1
        if batches[command[2]] != 2:
            carry_out(connection, command, now)
            return
        connection.namespace.stages.publish(command[2], command[3], command[4], owner=None, now=now)
        published.set()

    HANDLERS[Command.PUBLISH] = publish_and_say_nothing
    try:
        driver = start(broker, tmp_path / "checkpoint", tmp_path / "stumbled")
        while not published.wait(1):
            assert driver.poll() is None, driver.communicate()[1][-3_000:]
        assert (tmp_path / "stumbled").exists()
        os.killpg(driver.pid, signal.SIGKILL)
        driver.communicate()
    finally:
        HANDLERS[Command.PUBLISH] = carry_out
    assert texts(broker, "out") == [str(n) for n in range(80)]
    driver = start(broker, tmp_path / "checkpoint")
    _, errors = driver.communicate(timeout=300)
    assert driver.returncode == 0, errors[-3_000:]
    assert texts(broker, "out") == [str(n) for n in range(200)]


def start(broker: EmbeddedBroker, *arguments: object) -> subprocess.Popen[str]:
    program = Path(__file__).with_name("relay.py")
    command = [sys.executable, str(program), broker.url, *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True)


def send(broker: EmbeddedBroker, *texts: str) -> None:
    with ConnectionFactory(broker.url).create_context() as context:
        producer = context.create_producer()
        for text in texts:
            producer.send(Queue("in"), TextMessage(text))


def texts(broker: EmbeddedBroker, queue: str) -> list[str | None]:
    with ConnectionFactory(broker.url).create_context() as context:
        return [message.get_body(str) for message in context.create_browser(Queue(queue))]


def test_an_archive_of_all_that_went_through(spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Consumed or not, each once: over several runs, after a run whose end was not noted, and beside browsing."""
    path = str(tmp_path / "archive")
    with EmbeddedBroker() as broker, ConnectionFactory(broker.url).create_context() as context:

        def run() -> tuple[int, int]:
            done = archive_stream(spark, broker.url, "queue:orders,topic:prices", path, tap="audit")
            return done.seen, done.added

        def traffic(first: int) -> None:
            producer, consumer = context.create_producer(), context.create_consumer(Queue("orders"))
            for number in range(first, first + 4):
                producer.set_property("n", number).send(Queue("orders"), "x")
                if number % 2:
                    assert consumer.receive(60_000) is not None
            consumer.close()  # what it has not been asked for goes back
            producer.set_property("n", -first).send(Topic("prices"), "y")

        assert run() == (0, 0)  # makes the taps
        traffic(1)
        assert run() == (5, 5)
        traffic(5)
        assert run() == (5, 5)
        traffic(9)

        def dying(*arguments: Any) -> Any:
            archive(*arguments)
            raise RuntimeError("the driver dies before it is noted")

        with monkeypatch.context() as patched, pytest.raises(Exception, match="the driver dies"):
            patched.setattr("sievemq_spark.archive.archive", dying)
            run()
        assert run() == (5, 0)  # the same batch again, and none of it twice
        rows = read_archive(spark, path).collect()
        assert sorted(row.properties["n"]["l"] for row in rows) == [-9, -5, -1, *range(1, 13)]
        waiting = archive(spark, read_queues(spark, broker.url, "orders"), path)
        assert (waiting.seen, waiting.added) == (6, 0)
