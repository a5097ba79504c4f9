"""The jobs on real flights: archive, read back, backtest against SQLite, coverage, profile, replay."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from sievemq import ConnectionFactory, DeliveryMode, Queue, TextMessage, Topic
from sievemq.exceptions import InvalidSelectorException
from sievemq_broker import EmbeddedBroker
from sievemq_spark.archive import archive, read_archive, read_queues
from sievemq_spark.backtest import backtest, coverage
from sievemq_spark.errors import PipelineError
from sievemq_spark.failures import explain_failure
from sievemq_spark.profile import profile
from sievemq_spark.replay import Replayed, replay
from sievemq_spark.schema import properties_of
from sievemq_testing.demo.flights import COLUMNS, SELECTORS, TOTAL, Flight, read_flights
from sievemq_testing.demo.referee import Referee

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("compiled_to_java"), pytest.mark.timeout(1_200)]

LIMIT = 4_000

#: Every operator of the language that SQLite has as well.
TWENTY = (
    *SELECTORS,
    "carrier = 'UA'",
    "carrier <> 'UA'",
    "carrier NOT IN ('UA', 'AA', 'DL')",
    "origin = 'JFK' OR origin = 'EWR'",
    "dest LIKE '_F%'",
    "dest NOT LIKE '%A'",
    "dep_delay BETWEEN -5 AND 5",
    "dep_delay NOT BETWEEN -5 AND 5",
    "arr_delay > dep_delay",
    "arr_delay - dep_delay < -10",
    "NOT (dep_delay > 0 AND arr_delay > 0)",
    "air_time IS NOT NULL AND distance * 2 > 3000",
    "month = 1 AND day <= 7 OR month = 12 AND NOT day < 25",
    "sched_dep_time / 100 < 6",
)


def publish(url: str, flights: list[Flight]) -> None:
    with ConnectionFactory(url).create_context() as context:
        producer = context.create_producer().set_delivery_mode(DeliveryMode.NON_PERSISTENT)
        for flight in flights:
            message = TextMessage(flight.body, properties=flight.properties)
            message.set_jms_type("flight")
            message.set_jms_correlation_id(flight.tail_number)
            producer.send(Queue("flights"), message)


class Station(NamedTuple):
    broker: EmbeddedBroker
    flights: list[Flight]
    archive: str


@pytest.fixture(scope="module")
def station(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Station]:
    """A broker with flights in a queue, and their archive."""
    flights = list(read_flights(LIMIT))
    path = str(tmp_path_factory.mktemp("archive") / "flights")
    with EmbeddedBroker() as broker:
        publish(broker.url, flights)
        done = archive(spark, read_queues(spark, broker.url, "flights"), path)
        assert (done.seen, done.added) == (LIMIT, LIMIT)
        yield Station(broker, flights, path)


def flight_of(row: Any) -> Flight:
    assert row.type == "flight"
    return Flight(row.correlation_id, properties_of(row.properties), row.body_text)  # type: ignore[arg-type]


def test_read_back_equal_to_the_last_null(spark: Any, station: Station) -> None:
    rows = read_archive(spark, station.archive).orderBy("seq").collect()
    assert [flight_of(row) for row in rows] == station.flights
    assert any("dep_delay" not in flight.properties for flight in station.flights)  # cancelled ones are among them
    assert {(row.namespace, row.destination, row.body_kind) for row in rows} == {("", "queue:flights", "TEXT")}


def test_archiving_again_adds_what_is_new(spark: Any, station: Station, tmp_path: Path) -> None:
    with EmbeddedBroker() as broker:
        publish(broker.url, station.flights[:10])
        path = str(tmp_path / "a")
        first = archive(spark, read_queues(spark, broker.url, "flights", selector="row <= 5"), path)
        second = archive(spark, read_queues(spark, broker.url, ["flights"]), path)
        third = archive(spark, read_queues(spark, broker.url, ["flights"]), path)
    assert [(done.seen, done.added) for done in (first, second, third)] == [(5, 5), (10, 5), (10, 0)]
    rows = read_archive(spark, path).orderBy("seq", "message_id").collect()
    assert sorted(row.properties["row"]["l"] for row in rows) == list(range(1, 11))
    assert next(Path(path).glob("namespace=*/destination=*/date=*/*.parquet")).is_file()


def test_messages_read_twice_and_messages_without_an_id(spark: Any, station: Station, tmp_path: Path) -> None:
    from pyspark.sql import functions

    rows = read_archive(spark, station.archive).drop("date").limit(6).cache()
    nameless = rows.withColumn("message_id", functions.lit(None).cast("string"))
    done = archive(spark, rows.unionByName(rows).unionByName(nameless), str(tmp_path / "a"))
    assert (done.seen, done.added) == (18, 12)
    again = archive(spark, rows.unionByName(nameless), str(tmp_path / "a"))
    assert (again.seen, again.added) == (12, 6)
    assert read_archive(spark, str(tmp_path / "a")).count() == 18


def test_backtest_equals_sqlite(spark: Any, station: Station) -> None:
    referee = Referee(station.flights)
    result = backtest(read_archive(spark, station.archive), SELECTORS, sample=2)
    assert result.messages == LIMIT
    for line in result.results:
        assert line.matched == referee.verdict(line.selector).messages, line.selector
        assert line.rejected == referee.verdict(f"NOT ({line.selector})").messages
        assert sum(line.times.values()) == line.matched
        assert sum(line.causes.values()) == line.unknown == LIMIT - line.matched - line.rejected
        assert len(line.sample) == 2
    by_text = {line.selector: line for line in result.results}
    assert by_text["NOT (arr_delay <= 0)"].causes == {("arr_delay",): by_text["NOT (arr_delay <= 0)"].unknown}
    referee.close()


def test_backtest_of_two_selectors(spark: Any, station: Station) -> None:
    referee = Referee(station.flights)
    a, b = "carrier = 'UA'", "dep_delay > 0"
    result = backtest(read_archive(spark, station.archive), [a, b], sample=3)
    assert result.only_first == referee.verdict(a, left_by=[b]).messages
    assert result.only_second == referee.verdict(b, left_by=[a]).messages
    assert len(result.sample_first) == len(result.sample_second) == 3
    referee.close()


def test_many_selectors_are_asked_in_groups(spark: Any, station: Station, monkeypatch: pytest.MonkeyPatch) -> None:
    """The last group may have two: they are not compared, as they are not the only ones."""
    frame = read_archive(spark, station.archive).filter("seq <= 200")
    selectors = ["carrier = 'UA'", "dep_delay > 0", "carrier = 'AA'", "distance > 1000"]
    monkeypatch.setattr("sievemq_spark.backtest.AT_ONCE", 2)
    result = backtest(frame, selectors, sample=0)
    assert [line.selector for line in result.results] == selectors
    assert (result.messages, result.only_first) == (200, None)
    alone = backtest(frame, [selectors[3]], sample=0)
    assert alone.results == result.results[3:]


def test_coverage(spark: Any, station: Station) -> None:
    referee = Referee(station.flights)
    texts = ["carrier = 'UA'", "carrier IN ('UA', 'AA')", "dep_delay > 60", "carrier = 'nobody'"]
    result = coverage(read_archive(spark, station.archive), texts)
    assert result.matched == {text: referee.verdict(text).messages for text in texts}
    assert result.none == referee.verdict(None, left_by=texts).messages
    assert result.none + result.one + result.many == result.messages == LIMIT
    assert result.shadowed == [(texts[0], texts[1])]
    assert result.overlaps[texts[0], texts[2]] == referee.verdict(f"{texts[0]} AND {texts[2]}").messages
    referee.close()


def test_profile(spark: Any, station: Station) -> None:
    result = profile(read_archive(spark, station.archive))
    assert (result.messages, result.kinds, sum(result.times.values())) == (LIMIT, {"TEXT": LIMIT}, LIMIT)
    found = {each.name: each for each in result.properties}
    assert set(found) == set(COLUMNS)
    assert found["carrier"].types == {"String": LIMIT}
    assert found["dep_delay"].missing == sum("dep_delay" not in flight.properties for flight in station.flights)
    assert found["air_time"].types.keys() == {"double"}
    carriers = Counter(flight.properties["carrier"] for flight in station.flights)
    assert abs(found["carrier"].distinct - len(carriers)) <= 1
    assert found["carrier"].selects == pytest.approx(sum(rows**2 for rows in carriers.values()) / LIMIT**2)
    assert result.hints[0] == "row"  # no two are alike
    assert "carrier" not in result.hints


def test_replay(spark: Any, station: Station) -> None:
    """Exactly those of one carrier, in order; nothing in a dry run."""
    url = station.broker.namespace("staging").url
    frame = read_archive(spark, station.archive)
    wanted = [flight for flight in station.flights if flight.properties["carrier"] == "UA"]
    assert replay(frame, url, destination="queue:again", selector="carrier = 'UA'", dry_run=True).selected == len(
        wanted
    )
    for name, piecewise in (("ua", 50_000.0), ("all at once", 0.0)):
        destination = "queue:again" if piecewise else "queue:once more"
        for sent, before in ((len(wanted), 0), (0, len(wanted))):  # under one name it is done once
            done = replay(frame, url, destination=destination, selector="carrier = 'UA'", rate=piecewise, name=name)
            assert done == Replayed(len(wanted), sent, before)
    with ConnectionFactory(url).create_context() as context:
        consumer = context.create_consumer(Queue("again"))
        found = []
        while (message := consumer.receive_no_wait()) is not None:
            properties = {name: value for name, value in message.properties.items() if not name.startswith("JMSX")}
            found.append(Flight(message.get_jms_correlation_id(), properties, message.get_body(str) or ""))  # type: ignore[arg-type]
    assert found == wanted


def test_groups_keep_their_order_side_by_side(spark: Any, station: Station) -> None:
    """Three partitions, sent at once; the rows of a carrier, which is their group here, stay in their order."""
    from pyspark.sql import functions

    url = station.broker.namespace("groups").url
    frame = read_archive(spark, station.archive).filter("seq <= 300")
    grouped = frame.withColumn("group_id", functions.col("properties")["carrier"]["s"])
    assert replay(grouped.orderBy(functions.desc("seq")), url, destination="queue:again", partitions=3).selected == 300
    rows: dict[str, list[int]] = {}
    with ConnectionFactory(url).create_context() as context:
        for message in context.create_browser(Queue("again")):
            properties = message.properties
            rows.setdefault(str(properties["carrier"]), []).append(int(str(properties["row"])))
    assert len(rows) > 3
    assert all(numbers == sorted(numbers) for numbers in rows.values())
    assert sorted(number for numbers in rows.values() for number in numbers) == list(range(1, 301))


def test_replay_to_where_it_came_from_side_by_side(spark: Any, station: Station) -> None:
    url = station.broker.namespace("original").url
    with ConnectionFactory(url).create_context() as context:
        subscriber = context.create_consumer(Topic("flights"))
        frame = read_archive(spark, station.archive).limit(40)
        assert replay(frame, url, partitions=3).selected == 40
        assert replay(frame, url, destination="topic:flights").selected == 40
        count = 0
        while subscriber.receive_no_wait() is not None:
            count += 1
        assert count == 40
        assert sum(1 for _ in context.create_browser(Queue("flights"))) == 40


def test_errors(spark: Any, station: Station, tmp_path: Path) -> None:
    frame = read_archive(spark, station.archive)
    with pytest.raises(InvalidSelectorException):
        backtest(frame, ["a ANDD b"])
    with pytest.raises(InvalidSelectorException):
        read_queues(spark, station.broker.url, "flights", selector="a ANDD b")
    with pytest.raises(PipelineError, match="at least one selector"):
        backtest(frame, [])
    with pytest.raises(PipelineError, match="a selector is empty"):
        coverage(frame, ["a", " "])
    with pytest.raises(PipelineError, match="the columns shard, properties are missing"):
        profile(frame.drop("shard", "properties"))
    with pytest.raises(PipelineError, match="there is no archive"):
        read_archive(spark, str(tmp_path / "none"))
    with pytest.raises(PipelineError, match="partitions are 1 or more"):
        replay(frame, station.broker.url, partitions=0)


def test_a_damaged_file_is_named(spark: Any, tmp_path: Path) -> None:
    folder = tmp_path / "namespace=x" / "destination=q" / "date=2026-01-01"
    folder.mkdir(parents=True)
    (folder / "broken.parquet").write_bytes(b"this is no Parquet file at all")
    with pytest.raises(Exception) as caught:
        profile(read_archive(spark, str(tmp_path)))
    text = explain_failure(caught.value)
    assert text.startswith("a Parquet file cannot be read")
    assert "broken.parquet" in text


def test_an_unknown_column_is_named(spark: Any, station: Station) -> None:
    with pytest.raises(Exception) as caught:
        read_archive(spark, station.archive).filter("regin = 1").count()
    assert explain_failure(caught.value) == "there is no column 'regin' in these rows"


@pytest.mark.slow
@pytest.mark.timeout(1_200)
def test_all_flights(spark: Any, tmp_path: Path) -> None:
    """336,776 rows through a broker and an archive, equal to the last NULL; every selector's count is SQLite's."""
    flights = list(read_flights())
    path = str(tmp_path / "flights")
    with EmbeddedBroker() as broker:
        publish(broker.url, flights)
        start = time.perf_counter()
        done = archive(spark, read_queues(spark, broker.url, "flights", batch_size=10_000), path)
        print(f"archived {TOTAL / (time.perf_counter() - start):,.0f} messages/s")
    assert (done.seen, done.added) == (TOTAL, TOTAL)
    frame = read_archive(spark, path)
    step = 20_000  # a slice at a time: all rows as Python objects are more than the driver needs to hold
    for first in range(0, TOTAL, step):
        rows = frame.filter(f"seq > {first} AND seq <= {first + step}").orderBy("seq").collect()
        assert [flight_of(row) for row in rows] == flights[first : first + step]
    referee = Referee(flights)
    start = time.perf_counter()
    assert len(TWENTY) == 20
    result = backtest(frame, TWENTY)
    print(f"backtest of {len(TWENTY)} selectors: {TOTAL / (time.perf_counter() - start):,.0f} messages/s")
    for line in result.results:
        found = line.matched, line.rejected
        expected = (referee.verdict(line.selector).messages, referee.verdict(f"NOT ({line.selector})").messages)
        assert found == expected, line.selector
        assert line.unknown == sum(line.causes.values()) == TOTAL - sum(found)
    referee.close()


def test_the_command_line(station: Station, tmp_path: Path) -> None:
    """Each command as its own process, as users run it."""
    import subprocess
    import sys

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [str(Path(sys.executable).with_name("sievemq")), "pipeline", *arguments]
        return subprocess.run(command, capture_output=True, text=True, timeout=900, check=False)

    done = run("profile", str(tmp_path / "nowhere"), "--master", "local[1]")
    assert done.returncode == 3
    assert done.stderr.splitlines()[-1] == f"sievemq: there is no archive at {tmp_path / 'nowhere'}"
    assert "log4j" not in done.stderr  # and nothing else of Java's log
    report = tmp_path / "report.html"
    shown = run("backtest", station.archive, "carrier = 'UA'", "--json", "--html", str(report), "--master", "local[1]")
    assert shown.returncode == 0, shown.stderr[-2000:]
    assert "Stage" not in shown.stderr
    assert "carrier = &#39;UA&#39;" in report.read_text(encoding="utf-8")
    data = json.loads(shown.stdout)
    assert data["messages"] == LIMIT
    assert data["results"][0]["matched"] == sum(f.properties["carrier"] == "UA" for f in station.flights)


def test_a_replay_that_was_done_says_so(
    spark: Any, station: Station, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """One sentence on what happened now, and nothing else that contradicts it."""
    from typer.testing import CliRunner

    from sievemq_spark import cli

    monkeypatch.setattr(type(spark), "stop", lambda self: None)
    url = station.broker.namespace("said").url
    arguments = ["replay", station.archive, "--to", "queue:again", "-s", "row <= 3", "--name", "rp1", "--url", url]
    shown = [
        CliRunner().invoke(cli.pipeline, [*arguments, "--master", "local[2]", *more]).stdout
        for more in ((), (), ("--json",), ("--dry-run",))
    ]
    assert shown == [
        "3 messages sent\n",
        "0 messages sent; an earlier run named 'rp1' sent 3\n",
        '{"selected": 3, "sent": 0, "sent_before": 3}\n',
        "3 messages would be sent\n",
    ]
    assert "nothing was sent" not in capfd.readouterr().err
    with ConnectionFactory(url).create_context() as context:
        assert len(list(context.create_browser(Queue("again")))) == 3


def test_the_keeping_commands(spark: Any, station: Station, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """deadletters, compact and expire, with exit codes; run in this process, whose Spark goes on."""
    import shutil

    from typer.testing import CliRunner

    from sievemq_spark import cli

    monkeypatch.setattr(type(spark), "stop", lambda self: None)

    def run(*arguments: str, answer: str = "") -> Any:
        return CliRunner().invoke(cli.pipeline, [*arguments, "--master", "local[2]"], input=answer)

    path = str(tmp_path / "archive")
    shutil.copytree(station.archive, path)
    shown = run("deadletters", path, "--json")
    assert (shown.exit_code, json.loads(shown.stdout)["messages"]) == (0, 0), shown.output
    shown = run("compact", path)
    assert (shown.exit_code, shown.stdout) == (0, "0 files in 0 folders became 0\n"), shown.output
    assert run("expire", path).exit_code == 2
    assert run("expire", path, "--before", "yesterday").exit_code == 2
    assert run("compact", str(tmp_path / "none")).exit_code == 3
    shown = run("expire", path, "--before", "2100-01-01", answer="n\n")
    assert shown.exit_code == 1
    assert list(Path(path).rglob("*.parquet"))
    shown = run("expire", path, "--keep-days", "0", "--dry-run")
    assert "would be removed" in shown.stdout
    shown = run("expire", path, "--before", "2100-01-01", "--yes", "--json")
    assert (shown.exit_code, len(json.loads(shown.stdout)["days"])) == (0, 1), shown.output
    assert not list(Path(path).rglob("*.parquet"))
