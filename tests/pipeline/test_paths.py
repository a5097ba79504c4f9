"""Folders that cannot be written or reached: said before work is done, with the cause."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from sievemq import ConnectionFactory
from sievemq_broker import EmbeddedBroker
from sievemq_spark import cli
from sievemq_spark.archive import archive, archive_stream, read_queues
from sievemq_spark.cli.running import _stderr_of_java
from sievemq_spark.errors import MissingSparkError, PipelineError
from sievemq_spark.failures import explain_failure
from sievemq_spark.files import check_writable

#: What Py4J makes of a Java exception: a line of its own, the exception, its stack, its cause.
UNREACHABLE = """An error occurred while calling o233.getFileSystem.
: java.net.ConnectException: Call From here/127.0.0.1 to 127.0.0.1:23990 failed on connection exception: \
java.net.ConnectException: Connection refused; For more details see:  http://wiki.apache.org/hadoop/ConnectionRefused
\tat java.base/jdk.internal.reflect.DirectConstructorHandleAccessor.newInstance(Unknown Source)
\tat org.apache.hadoop.ipc.Client.call(Client.java:1529)
Caused by: java.net.ConnectException: Connection refused
\tat java.base/sun.nio.ch.Net.pollConnect(Native Method)
\t... 40 more
"""
UNWRITABLE = """An error occurred while calling o275.parquet.
: org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 3.0 failed 1 times
\tat org.apache.spark.scheduler.DAGScheduler.failJobAndIndependentStages(DAGScheduler.scala:2935)
Caused by: java.io.IOException: Mkdirs failed to create file:/proc/x
\tat org.apache.hadoop.fs.ChecksumFileSystem.create(ChecksumFileSystem.java:515)

"""


def test_causes_of_java_are_shown() -> None:
    shown = explain_failure(Exception(UNREACHABLE))
    assert shown.startswith("ConnectException: Call From here/127.0.0.1 to 127.0.0.1:23990 failed on")
    assert "Connection refused" in shown
    assert "\n" not in shown
    assert explain_failure(Exception(UNWRITABLE)) == (
        "SparkException: Job aborted due to stage failure: Task 0 in stage 3.0 failed 1 times "
        "(IOException: Mkdirs failed to create file:/proc/x)"
    )
    assert explain_failure(Exception("An error occurred while calling o1.x.\n: a.b.FooException\n\tat x")) == (
        "FooException"
    )


def test_a_local_folder_is_checked_without_spark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    check_writable(str(tmp_path / "new" / "deeper"))
    check_writable("s3a://bucket/x")
    for prefix in ("", "file:", "file://"):
        with pytest.raises(PipelineError, match=r"file/below cannot be written: .*file is no folder"):
            check_writable(f"{prefix}{tmp_path}/file/below")
    monkeypatch.setattr("os.access", lambda path, mode: False)
    with pytest.raises(PipelineError, match="no permission to write in"):
        check_writable(str(tmp_path / "new"))


def test_commands_check_where_they_write_before_spark_starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def never(master: str) -> None:
        raise AssertionError("Spark was started")

    monkeypatch.setattr("sievemq_spark.cli.running.require_spark", never)
    (tmp_path / "file").write_text("")
    below = str(tmp_path / "file" / "below")
    shown = CliRunner().invoke(cli.pipeline, ["archive", "queue:x", "--to", below])
    assert (shown.exit_code, shown.stderr) == (
        2,
        f"sievemq: {below} cannot be written: {tmp_path / 'file'} is no folder\n",
    )
    shown = CliRunner().invoke(cli.pipeline, ["profile", str(tmp_path), "--html", str(tmp_path / "none" / "r.html")])
    assert shown.exit_code == 2
    assert f"there is no folder {tmp_path / 'none'}" in shown.stderr


@pytest.mark.parametrize("fails", [False, True])
def test_what_java_prints_after_its_start_is_not_the_commands(capfd: pytest.CaptureFixture[str], fails: bool) -> None:
    """Such as the traceback of a Python worker, which would follow the command's own error."""
    program = "import sys; print('at the start', file=sys.stderr, flush=True); input(); print('later', file=sys.stderr)"
    with contextlib.suppress(RuntimeError), _stderr_of_java():
        java = subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, text=True)
        if fails:
            java.communicate("\n", timeout=60)
            raise RuntimeError
    if not fails:
        java.communicate("\n", timeout=60)
    print("ours", file=sys.stderr)
    assert capfd.readouterr().err.split("\n")[:-1] == [*(["at the start", "later"] if fails else []), "ours"]


def test_archive_of_a_queue_that_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a scheduler sees is exit code 3, before Spark starts."""
    started = []

    def start(master: str) -> None:
        started.append(1)
        raise MissingSparkError("started")

    monkeypatch.setattr("sievemq_spark.cli.running.require_spark", start)
    with EmbeddedBroker() as broker:
        command = ["archive", "queue:typo", "--to", str(tmp_path / "a"), "--url", broker.url]
        shown = CliRunner().invoke(cli.pipeline, command)
        assert (shown.exit_code, started) == (3, [])
        assert shown.stderr.startswith("sievemq: there is no queue:typo in shard 'main' (127.0.0.1:")
        assert CliRunner().invoke(cli.pipeline, [*command, "--allow-missing"]).exit_code == 2
        assert started == [1]


@pytest.mark.spark
@pytest.mark.timeout(1_200)
def test_names_that_are_not_there_end_commands(spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(type(spark), "stop", lambda self: None)

    def run(*arguments: str) -> Any:
        return CliRunner().invoke(cli.pipeline, [*arguments, "--master", "local[2]"])

    path = str(tmp_path / "a")
    with EmbeddedBroker() as broker:
        with ConnectionFactory(broker.url).create_context() as context:
            context.create_producer().send(context.create_queue("orders"), "x")
        shown = run("archive", "queue:orders", "topic:typo", "--to", path, "--tap", "t", "--url", broker.url)
        assert shown.exit_code == 3, shown.output
        assert "there is no topic:typo in namespace" in shown.stderr
        shown = run(
            "archive", "queue:orders", "topic:typo", "--to", path, "--tap", "t", "--url", broker.url, "--allow-missing"
        )
        assert (shown.exit_code, shown.stdout) == (0, f"1 message seen, 1 added to {path}\n"), shown.output
        for command in (
            ("backtest", path, "a = 1"),
            ("coverage", path, "a = 1"),
            ("profile", path),
            ("deadletters", path),
            ("outcomes", path),
            ("replay", path, "--to", "queue:again", "--dry-run", "--url", broker.url),
            ("expire", path, "--keep-days", "0", "--yes"),
        ):
            shown = run(*command, "-d", "queue:typo")
            assert (shown.exit_code, shown.stdout) == (3, ""), command
            assert f"the archive at {path} has no messages of queue:typo; it has those of queue:orders" in shown.stderr


@pytest.mark.spark
@pytest.mark.timeout(1_200)
def test_file_systems_are_checked_before_a_queue_is_read(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(type(spark), "stop", lambda self: None)
    shown = CliRunner().invoke(cli.pipeline, ["backtest", "s3a://bucket/x", "a = 1", "--master", "local[2]"])
    assert shown.exit_code == 2
    assert "S3AFileSystem not found" in shown.stderr
    assert "hadoop-aws" in shown.stderr
    (tmp_path / "file").write_text("")
    url = "sievemq://127.0.0.1:1"  # no broker: it would be an error if the queue were read
    frame = read_queues(spark, url, "queue:orders")
    for job in (
        lambda path: archive(spark, frame, path),
        lambda path: archive_stream(spark, url, "queue:orders", path, tap="t"),
    ):
        with pytest.raises(PipelineError, match=r"below cannot be written: .*(not a directory|Mkdirs failed)"):
            job(str(tmp_path / "file" / "below"))


@pytest.mark.spark
@pytest.mark.timeout(1_200)
def test_damage_inside_a_file_is_a_usage_error_that_names_it(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The footer is whole, so it shows while rows are read."""
    monkeypatch.setattr(type(spark), "stop", lambda self: None)
    with EmbeddedBroker() as broker:
        with ConnectionFactory(broker.url).create_context() as context:
            for number in range(200):
                context.create_producer().set_property("n", number).send(context.create_queue("orders"), f"m{number}")
        archive(spark, read_queues(spark, broker.url, "orders"), str(tmp_path))
    (path,) = tmp_path.rglob("*.parquet")
    data = bytearray(path.read_bytes())
    data[4 : len(data) // 2] = bytes(len(data) // 2 - 4)
    path.write_bytes(data)
    for crc in tmp_path.rglob("*.crc"):
        crc.unlink()
    shown = CliRunner().invoke(cli.pipeline, ["profile", str(tmp_path), "--master", "local[2]"])
    assert shown.exit_code == 2, shown.output
    assert path.name in shown.stderr
