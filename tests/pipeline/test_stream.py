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
from sievemq_broker.session.table import HANDLERS
from sievemq_broker.session.verbs import AcknowledgeTap, FetchTap, LookTap
from sievemq_core.wire.commands import Command
from sievemq_spark import drain
from sievemq_spark.archive import Archived, archive, archive_stream, read_archive, read_queues
from sievemq_spark.failures import explain_failure
from sievemq_spark.schema import properties_of
from sievemq_testing.demo.flights import TOTAL, Flight, fingerprint, read_flights

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1_800)]

#: Seconds that a driver may take on a machine that is busy with other things.
LONG = 1_500


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


def writer(frame: Any, kind: str, checkpoint: Path, **options: Any) -> Any:
    return frame.writeStream.format(kind).options(checkpointLocation=str(checkpoint), **options)


def finish(frame: Any, kind: str, checkpoint: Path, **options: Any) -> Any:
    """Run until everything is there."""
    query = writer(frame, kind, checkpoint, **options).trigger(availableNow=True).start()
    query.awaitTermination()
    return query


def stop_after_first_batch(frame: Any, folder: Path) -> None:
    """Wherever the query is then."""
    path = {"path": str(folder / "rows")}
    query = writer(frame, "parquet", folder / "checkpoint", **path).trigger(processingTime="0 seconds").start()
    try:
        while not query.recentProgress:
            query.awaitTermination(1)
    finally:
        query.stop()


def to_parquet_and_back(spark: Any, broker: EmbeddedBroker, folder: Path, count: int, per_batch: int) -> None:
    flights = list(read_flights(count))
    send_flights(broker.url, "in", flights)
    frame = stream(spark, broker.url, maxMessagesPerTrigger=per_batch)
    stop_after_first_batch(frame, folder)
    finish(frame, "parquet", folder / "checkpoint", path=str(folder / "rows"))
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
@pytest.mark.timeout(3_600)
def test_all_flights_to_parquet_and_back(spark: Any, broker: EmbeddedBroker, tmp_path: Path) -> None:
    to_parquet_and_back(spark, broker, tmp_path, TOTAL, 60_000)


def archived_and_replayed(spark: Any, broker: EmbeddedBroker, path: str, count: int) -> None:
    """All through a tap into the archive; those of one carrier from there to a queue, by a program that is killed when
    some have arrived, and started again."""
    assert archive_stream(spark, broker.url, "queue:in", path, tap="audit", fail_on_missing=False).seen == 0
    flights = list(read_flights(count))
    send_flights(broker.url, "in", flights)
    assert archive_stream(spark, broker.url, "queue:in", path, tap="audit") == Archived(count, count)
    step = 20_000  # a slice at a time: all rows as Python objects are more than the driver needs to hold
    for first in range(0, count, step):
        rows = read_archive(spark, path).filter(f"seq > {first} AND seq <= {first + step}").orderBy("seq").collect()
        read: list[Any] = [(row.correlation_id, properties_of(row.properties), row.body_text) for row in rows]
        assert read == flights[first : first + step]
    chosen = [flight for flight in flights if flight.properties["carrier"] == "UA"]
    command = [sys.executable, "-c", "from sievemq.cli import main; main()", "pipeline", "replay", path]
    command += ["--to", "queue:ua", "-s", "carrier = 'UA'", "--name", "ua"]
    command += ["--transaction-size", str(len(chosen) // 10), "--url", broker.url, "--master", "local[2]"]
    published, (carry_out, calls) = threading.Event(), (HANDLERS[Command.PUBLISH], Counter[str]())

    def publish_some(connection: Any, command: tuple[Any, ...], now: int) -> None:
        calls["PUBLISH"] += 1
        if calls["PUBLISH"] < 4:
            carry_out(connection, command, now)
        else:
            published.set()  # and says nothing: there it is killed

    HANDLERS[Command.PUBLISH] = publish_some
    try:
        program = begin(command)
        while not published.wait(1):
            assert program.poll() is None, program.communicate()[1][-3_000:]
        os.killpg(program.pid, signal.SIGKILL)
        program.communicate()
    finally:
        HANDLERS[Command.PUBLISH] = carry_out
    assert broker.call(lambda domain: domain.namespace("").queue("queue:ua").depth) == len(chosen) // 10 * 3
    for before in (len(chosen) // 10 * 3, len(chosen)):  # the rest; and nothing
        done = subprocess.run(command, capture_output=True, text=True, timeout=LONG, check=False)
        said = f"{len(chosen) - before:,} messages sent; an earlier run named 'ua' sent {before:,}\n"
        assert (done.returncode, done.stdout) == (0, said), done.stderr[-3_000:]
    assert fingerprints(take(broker.url, "ua")) == Counter(flight.fingerprint for flight in chosen)


@pytest.mark.slow
@pytest.mark.timeout(3_600)
@pytest.mark.parametrize("count", [4_000, TOTAL])
def test_flights_archived_through_the_stream_and_replayed(
    spark: Any, broker: EmbeddedBroker, tmp_path: Path, count: int
) -> None:
    archived_and_replayed(spark, broker, str(tmp_path / "archive"), count)


def test_a_lost_commit_log_and_lost_messages(
    spark: Any, broker: EmbeddedBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The driver dies between the sink's commit and its own note of it: Spark writes the batch again, under its number.

    Then messages are dropped before they are read: the query fails and says which, or continues without them.
    """
    send(broker, *(str(n) for n in range(50)))
    frame = stream(spark, broker.url, maxMessagesPerTrigger=20, retainMessages=60)
    with monkeypatch.context() as dying:  # who dies there has not acknowledged the batch either
        dying.setitem(HANDLERS, Command.ACKNOWLEDGE_TAP, acknowledge_nothing)
        finish(frame, "sievemq", tmp_path, url=broker.url, destination="queue:out")
    assert texts(broker, "out") == [str(n) for n in range(50)]
    last = max((tmp_path / "commits").glob("[0-9]*"), key=lambda file: int(file.name))
    last.unlink()
    (tmp_path / "commits" / f".{last.name}.crc").unlink()
    finish(frame, "sievemq", tmp_path, url=broker.url, destination="queue:out")
    assert texts(broker, "out") == [str(n) for n in range(50)]
    send(broker, *(str(n) for n in range(50, 150)))
    with pytest.raises(Exception, match="has lost its messages 51 to 90") as failed:
        finish(frame, "sievemq", tmp_path, url=broker.url, destination="queue:out")
    assert "failOnDataLoss=false" in explain_failure(failed.value)
    careless = stream(spark, broker.url, retainMessages=60, failOnDataLoss="false")
    query = finish(careless, "sievemq", tmp_path, url=broker.url, destination="queue:out")
    assert texts(broker, "out") == [str(n) for n in (*range(50), *range(90, 150))]
    assert json.loads(query.lastProgress["sources"][0]["endOffset"])["main/queue:in"]["lost"] == 40


def acknowledge_nothing(connection: Any, command: AcknowledgeTap, now: int) -> None:
    look = LookTap(
        request=command.request, tap=command.tap, destination=command.destination, after=2**62, messages=1, bytes=0
    )
    HANDLERS[Command.LOOK_TAP](connection, look, now)


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
    with pytest.raises(Exception, match="does not support continuous"):
        writer(stream(spark, broker.url), "noop", tmp_path / "continuous").trigger(continuous="1 second").start()
    with pytest.raises(Exception, match="no broker could be reached"):
        finish(stream(spark, "sievemq://127.0.0.1:1"), "noop", tmp_path)


@pytest.mark.slow
@pytest.mark.timeout(3_600)
def test_an_executor_that_fails_and_a_driver_that_is_killed(broker: EmbeddedBroker, tmp_path: Path) -> None:
    """A task raises in the middle of its rows and is run again; then the driver is killed, at the worst moment: the
    broker has published a batch, and the driver misses it. Restarted it sends what is missing, and nothing twice."""
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
        driver = start("--fail-once", tmp_path / "stumbled", tmp_path / "checkpoint", broker.url)
        while not published.wait(1):
            assert driver.poll() is None, driver.communicate()[1][-3_000:]
        assert (tmp_path / "stumbled").exists()
        os.killpg(driver.pid, signal.SIGKILL)
        driver.communicate()
    finally:
        HANDLERS[Command.PUBLISH] = carry_out
    assert texts(broker, "out") == [str(n) for n in range(80)]
    driver = start(tmp_path / "checkpoint", broker.url)
    _, errors = driver.communicate(timeout=LONG)
    assert driver.returncode == 0, errors[-3_000:]
    assert texts(broker, "out") == [str(n) for n in range(200)]


def start(*arguments: object) -> subprocess.Popen[str]:
    program = Path(__file__).with_name("relay.py")
    return begin([sys.executable, str(program), *map(str, arguments)])


def begin(command: list[str]) -> subprocess.Popen[str]:
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True)


@pytest.mark.slow
@pytest.mark.timeout(3_600)
def test_two_brokers_two_workers_and_an_executor_that_is_killed(broker: EmbeddedBroker, tmp_path: Path) -> None:
    """On a cluster of two worker processes: the JVM of an executor dies in the middle of a batch, with a task's half
    sent. Each message of both brokers arrives once, in its broker's order."""
    with EmbeddedBroker(settings={"shard": "second"}) as second:
        send(broker, *(f"a{n}" for n in range(100)))
        send(second, *(f"b{n}" for n in range(100)))
        killed = tmp_path / "killed"
        driver = start(
            *("--master", "local-cluster[2,1,1024]", "--kill-once", killed),
            *(tmp_path / "checkpoint", broker.url, second.url),
        )
        _, errors = driver.communicate(timeout=LONG)
        assert driver.returncode == 0, errors[-3_000:]
        assert killed.exists()
        found = texts(broker, "out")
        assert [text for text in found if text and text[0] == "a"] == [f"a{n}" for n in range(100)]
        assert [text for text in found if text and text[0] == "b"] == [f"b{n}" for n in range(100)]
        assert len(found) == 200
        held = [
            each.call(lambda domain: [len(tap.log) for tap in domain.namespace("").taps]) for each in (broker, second)
        ]
        assert held == [[0], [0]]  # both are done with


def test_a_broker_that_was_started_again_and_one_that_forgot(spark: Any, tmp_path: Path) -> None:
    """Under another address, too: with its data a query goes on where it was; without it fails, or begins anew."""
    data, checkpoint = {"data_dir": str(tmp_path / "data")}, tmp_path / "checkpoint"
    rows = str(tmp_path / "rows")

    def read(broker: EmbeddedBroker, **options: Any) -> list[str]:
        finish(stream(spark, broker.url, **options), "parquet", checkpoint, path=rows)
        return sorted(row.body_text for row in spark.read.parquet(rows).collect())

    with EmbeddedBroker(settings=data) as broker:
        send(broker, "a", "b")
        assert read(broker) == ["a", "b"]
        send(broker, "c")
    with EmbeddedBroker(settings=data) as broker:
        send(broker, "d")
        assert read(broker) == ["a", "b", "c", "d"]
    with EmbeddedBroker() as broker:
        send(broker, "e")
        with pytest.raises(Exception, match="restarted") as failed:
            read(broker)
        assert "failOnDataLoss=false" in explain_failure(failed.value)
        assert read(broker, failOnDataLoss="false") == ["a", "b", "c", "d", "e"]


def test_two_shards_by_pattern_into_two_shards_in_order_of_time(spark: Any, tmp_path: Path) -> None:
    """Windows over a TIMESTAMP, one shard away at the start; then back, each row to the shard that it names."""
    from pyspark.sql import functions as f

    with EmbeddedBroker(settings={"shard": "a"}) as a, EmbeddedBroker(settings={"shard": "b"}) as b:
        for broker in (a, b):
            send(broker, "1", "2")
        url = f"{a.url}, {b.url}"
        options = {"destination": "", "destinationPattern": "queue:i*", "timeColumn": "at", "unavailable": "wait"}
        frame = stream(spark, f"{url}, sievemq://127.0.0.1:1?reconnect=0", **options)
        finish(frame, "parquet", tmp_path / "checkpoint", path=str(tmp_path / "rows"))
        rows = spark.read.parquet(str(tmp_path / "rows"))
        windows = rows.groupBy("shard", f.window("at", "1 day")).count().collect()
        assert sum(row["count"] for row in windows) == 4
        assert {row.at.timestamp() * 1_000 == row.timestamp for row in rows.collect()} == {True}
        writer = rows.drop("at").write.format("sievemq").options(url=url, destination="queue:out")
        writer.mode("append").save()
        assert sorted(map(str, texts(a, "out"))) == sorted(map(str, texts(b, "out"))) == ["1", "2"]


def test_connections_that_are_lost_in_the_middle_of_a_batch(spark: Any, broker: EmbeddedBroker, tmp_path: Path) -> None:
    """Each time something is fetched for the first time: it is fetched again over a new one, none twice."""
    send(broker, *(str(n) for n in range(60)))
    fetch, seen = HANDLERS[Command.FETCH_TAP], set[tuple[int, int]]()

    def fetch_or_drop(peer: Any, command: FetchTap, now: int) -> None:
        if (begin := (command.after, command.upto)) in seen:
            fetch(peer, command, now)
        else:
            seen.add(begin)
            broker.server.links.of(peer).abort()

    HANDLERS[Command.FETCH_TAP] = fetch_or_drop
    try:
        frame = stream(spark, broker.url, maxMessagesPerTrigger=20)
        finish(frame, "sievemq", tmp_path, url=broker.url, destination="queue:out")
    finally:
        HANDLERS[Command.FETCH_TAP] = fetch
    assert len(seen) == 3
    assert texts(broker, "out") == [str(n) for n in range(60)]


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
            done = archive_stream(
                spark, broker.url, "queue:orders,topic:prices", path, tap="audit", fail_on_missing=False
            )
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
