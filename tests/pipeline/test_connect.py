"""The archive over Spark Connect: a server in the Java machine of the other tests, and a client without one."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("grpc", reason="needs pyspark[connect]")

from sievemq import ConnectionFactory, Queue
from sievemq_broker import EmbeddedBroker
from sievemq_spark.archive import archive, archive_stream, read_archive, read_queues, require_destination
from sievemq_spark.arrow_files import ArrowFiles, settings_of
from sievemq_spark.compaction import compact
from sievemq_spark.errors import MissingSparkError, NoArchiveError, NoDestinationError, PipelineError
from sievemq_spark.file_systems import check_place, on_files
from sievemq_spark.replacement import WORK
from sievemq_spark.replay import replay
from sievemq_spark.retention import expire
from sievemq_spark.spark import require_spark, spark_session

from .test_upkeep import contents, files, rows

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1_200)]


@pytest.fixture(scope="module")
def server(spark: Any) -> Iterator[str]:
    """The URL of a Spark Connect server."""
    service = getattr(getattr(spark._jvm.org.apache.spark.sql.connect.service, "SparkConnectService$"), "MODULE$")
    service.start(spark._jsc.sc())
    yield f"sc://127.0.0.1:{service.localPort()}"
    service.stop(spark._jvm.scala.Option.empty(), spark._jvm.scala.Option.empty())


@pytest.fixture(scope="module")
def connect(server: str) -> Iterator[Any]:
    from pyspark.sql.connect.session import SparkSession

    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("SPARK_CONNECT_MODE_ENABLED", "1")  # as spark_session has it where no other session runs
        session = SparkSession.builder.remote(server).create()
        yield session
        session.stop()


def uri(folder: Path) -> str:
    return f"file://{folder}"


def test_added_to_compacted_and_expired(connect: Any, tmp_path: Path) -> None:
    path = uri(tmp_path / "an [archive] {of,1} *? %41 #x")
    for first in range(0, 40, 10):
        assert archive(connect, rows(connect, range(first, first + 12)), path).added == (12 if first == 0 else 10)
    archive(connect, rows(connect, range(50, 53), day=20_001), path)
    expected = [*range(42), 50, 51, 52]
    assert contents(connect, path) == expected
    done = compact(connect, path)
    assert (done.folders, done.before, done.after, done.messages) == (1, 4, 1, 42)
    assert (contents(connect, path), files(path.removeprefix("file://"))) == (expected, 2)
    assert not [each for each in tmp_path.rglob("*") if WORK in each.name or each.name.endswith(".parquet.crc.crc")]
    crcs = {each.name[1:-4] for each in tmp_path.rglob(".*.parquet.crc")}
    assert crcs <= {each.name for each in tmp_path.rglob("*.parquet")}, "checksums of files that are gone"
    with pytest.raises(NoDestinationError, match="no messages of queue:othr; it has those of queue:a/b"):
        require_destination(connect, path, "queue:othr")
    assert expire(connect, path, date(2024, 10, 5)).files == 1
    assert contents(connect, path) == [50, 51, 52]
    with pytest.raises(NoArchiveError):
        compact(connect, uri(tmp_path / "none"))


def test_what_a_killed_job_has_decided_is_completed(connect: Any, tmp_path: Path) -> None:
    path = uri(tmp_path)
    archive(connect, rows(connect, range(3)), path)
    archive(connect, rows(connect, range(3, 6)), path)
    old = sorted(str(each.relative_to(tmp_path)) for each in tmp_path.rglob("*.parquet"))
    staged = f"{WORK}/job/day"
    read_archive(connect, path).drop("date").coalesce(1).write.parquet(f"{path}/{staged}")
    new = [each.name for each in (tmp_path / staged).glob("*.parquet")]
    move = {"folder": old[0].rpartition("/")[0], "staged": staged, "new": new, "old": old}
    (tmp_path / WORK / "job.json").write_text(json.dumps([move]))
    assert contents(connect, path) == list(range(6))
    assert files(str(tmp_path)) == 1
    assert list((tmp_path / WORK).iterdir()) == []


def test_a_damaged_file_is_named(connect: Any, tmp_path: Path) -> None:
    path = uri(tmp_path)
    archive(connect, rows(connect, range(3)), path)
    (file,) = tmp_path.rglob("*.parquet")
    file.write_bytes(b"nothing")
    with pytest.raises(PipelineError, match=rf"damaged or none: {path}/.*{file.name} \(.+\)\. Restore or remove it"):
        read_archive(connect, path)


def test_a_queue_is_archived_and_sent_again(connect: Any, tmp_path: Path) -> None:
    path = uri(tmp_path)
    with EmbeddedBroker() as broker, ConnectionFactory(broker.url).create_context() as context:
        producer = context.create_producer()
        for number in range(5):
            producer.set_property("n", number).send(Queue("orders"), f"m{number}")
        assert archive(connect, read_queues(connect, broker.url, "orders"), path).added == 5
        assert archive(connect, read_queues(connect, broker.url, "orders"), path).added == 0
        sent = replay(read_archive(connect, path), broker.url, destination="queue:again", selector="n > 2").sent
        assert (sent, sum(1 for _ in context.create_browser(Queue("again")))) == (2, 2)
        with pytest.raises(PipelineError, match="a tap is not archived over Spark Connect"):
            archive_stream(connect, broker.url, "queue:orders", path, tap="audit")


def test_the_command(connect: Any, server: str, tmp_path: Path) -> None:
    path = uri(tmp_path)
    for number in range(4):
        archive(connect, rows(connect, range(number, number + 1)), path)
    program = [sys.executable, "-c", "from sievemq.cli import main; main()", "pipeline", "compact", path]
    done = subprocess.run([*program, "--master", server], capture_output=True, text=True, timeout=600, check=False)
    assert (done.returncode, done.stdout) == (0, "4 files in 1 folder became 1\n"), done.stderr
    assert contents(connect, path) == [0, 1, 2, 3]


@pytest.mark.parametrize(
    "path",
    ["archive", "/data/archive", "hdfs://name/archive", "file:archive", "file://data/archive", "file:///", "s3a://"],
)
def test_file_systems_that_are_not_reached_are_refused(path: str) -> None:
    class Session:
        __module__ = "pyspark.sql.connect.session"

    session: Any = Session()
    for use in (lambda: on_files(session, path, lambda place: place.exists()), lambda: check_place(path, "sc://h")):
        with pytest.raises(PipelineError, match=r"cannot be reached over Spark Connect: give a URI such as s3a://"):
            use()


def test_a_folder_that_cannot_be_written(connect: Any, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(PipelineError, match="file/below cannot be written: "):
        archive(connect, rows(connect, range(1)), uri(tmp_path / "file" / "below"))


def test_settings_of_s3_are_those_of_the_server_without_its_keys(connect: Any) -> None:
    """Spark Connect shows no client a setting whose name is that of a secret."""
    settings = settings_of(connect, "s3a://bucket/a")
    assert settings == {"endpoint": "http://h:9000", "endpoint.region": "eu-west-1"}
    assert settings_of(connect, "file:///a") == {}
    for more, expected in (
        ({}, ("h:9000", "http")),
        ({"endpoint": "h:9000", "connection.ssl.enabled": "false"}, ("h:9000", "http")),
        ({"endpoint": "https://h:9000", "connection.ssl.enabled": "false"}, ("h:9000", "https")),
        ({"endpoint": ""}, ("", "https")),
    ):
        store = ArrowFiles("s3a://bucket/a/b/", {**settings, **more})._fs
        _, [options] = store.__reduce__()
        found = options["endpoint_override"], options["scheme"]
        assert (found, options["access_key"], store.region) == (expected, None, "eu-west-1")
        assert ArrowFiles("s3a://bucket/a/b/", settings).at("x") == "s3a://bucket/a/b/x"


def test_what_is_missing_for_it_is_named(monkeypatch: pytest.MonkeyPatch, port: int) -> None:
    with pytest.raises(PipelineError, match=rf"no Spark Connect server at 127\.0\.0\.1:{port}: "):
        spark_session(f"sc://127.0.0.1:{port}")
    for url, why in (("sc://h:abc/;token=x", ": Port .*'abc'"), ("sc://", ", with a host")):
        with pytest.raises(PipelineError, match=rf"^the master must be like sc://host:15002{why}$"):
            spark_session(url)
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    require_spark("sc://h")
    monkeypatch.setitem(sys.modules, "grpc", None)
    with pytest.raises(MissingSparkError, match=r"pip install 'pyspark\[connect\]'"):
        require_spark("sc://h")
