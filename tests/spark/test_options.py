"""Options of the data source, and errors in words; without Spark."""

from __future__ import annotations

import pytest

from sievemq.exceptions import InvalidSelectorException, InvalidURLException
from sievemq_spark import spark as spark_module
from sievemq_spark.errors import MissingSparkError, PipelineError
from sievemq_spark.failures import explain_failure
from sievemq_spark.options import ReadOptions, WriteOptions

URL = "sievemq://me:secret@localhost:7700,[::1]/tests"


def test_read() -> None:
    options = ReadOptions.read(
        {"url": URL, "destination": "queue:a, b", "selector": "x = 1", "columns": "x INT", "batchsize": "10"}
    )
    assert [str(queue) for queue in options.queues] == ["queue:a", "queue:b"]
    assert (options.broker, options.promoted, options.batch_size) == ("localhost:7700,[::1]:7672", {"x": "int"}, 10)
    assert "secret" not in options.broker
    assert "hush" not in repr(ReadOptions.read({"destination": "q", "password": "hush"}))


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({}, "'destination' is missing"),
        ({"destination": "topic:t"}, "is a topic: it cannot be browsed"),
        ({"destination": "topic:t", "mode": "drain", "tap": "t"}, "is a topic: it keeps nothing that could be drained"),
        ({"destination": "queue:"}, "empty"),
        ({"destnation": "q"}, "did you mean 'destination'"),
        ({"destination": "q", "startingoffsets": "first"}, "'earliest' or 'latest', not 'first'"),
        ({"destination": "q", "maxmessagespertriger": "5"}, "did you mean 'maxMessagesPerTrigger'"),
        ({"destination": "q", "failondataloss": "maybe"}, "'failOnDataLoss' cannot be 'maybe'"),
        ({"destination": "q", "lease": "soon"}, "'lease' cannot be 'soon'"),
        ({"destination": "q", "tapranges": "[]"}, "made by sievemq_spark.drain"),
        ({"destination": "q", "mode": "peek"}, "no mode 'peek'"),
        ({"destination": "q", "dialect": "sql"}, "no selector dialect"),
        ({"destination": "q", "limit": "-1"}, "'limit' cannot be '-1'"),
        ({"destination": "q", "batchsize": "0"}, "'batchSize' cannot be '0'"),
        ({"destination": "q", "columns": "type STRING"}, "column of every message"),
        ({"path": "q"}, "not as a path"),
    ],
)
def test_wrong_read_options(options: dict[str, str], says: str) -> None:
    with pytest.raises(PipelineError, match=says):
        ReadOptions.read(options)


def test_taps() -> None:
    options = ReadOptions.read({"destination": "queue:a, topic:b", "tap": "t", "retainmessages": "7"})
    assert (options.mode, options.tap_name, options.retain_messages, options.lease) == ("tap", "t", 7, None)
    assert [str(each) for each in options.destinations] == ["queue:a", "topic:b"]
    assert ReadOptions.read({"destination": "queue:a"}).mode == "browse"
    with pytest.raises(PipelineError, match="the option 'tap' is missing"):
        ReadOptions.read({"destination": "q", "mode": "tap"})


def test_several_brokers_and_several_hosts_of_one() -> None:
    one = "sievemq://a:1,b:2/x"
    assert ReadOptions.read({"destination": "q", "url": one}).urls == (one,)
    both = ReadOptions.read({"destination": "q", "url": f"{one}, sievemqs://c"})
    assert both.urls == (one, "sievemqs://c")


def test_wrong_selector_and_url() -> None:
    with pytest.raises(InvalidSelectorException) as caught:
        ReadOptions.read({"destination": "q", "selector": "a ANDD b"})
    assert "^^^^" in str(caught.value)
    with pytest.raises(InvalidURLException):
        ReadOptions.read({"destination": "q", "url": "http://localhost"})


def test_write() -> None:
    options = WriteOptions.read({"destination": "topic:t", "rate": "2.5", "dryrun": "TRUE", "transactionsize": "9"})
    assert (options.rate, options.dry_run, options.transaction_size) == (2.5, True, 9)
    assert WriteOptions.read({"checkpointlocation": "x", "queryname": "y"}).stage_lease == 600_000  # Spark shows them
    for wrong in (
        {"writeid": "x" * 201},
        {"stagelease": "x"},
        {"rate": "-1"},
        {"rate": "inf"},
        {"dryrun": "maybe"},
        {"selector": "a"},
        {"destination": "queue:"},
    ):
        with pytest.raises(PipelineError):
            WriteOptions.read(wrong)


def test_java_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pyspark", reason="PySpark is not installed")
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    with pytest.raises(MissingSparkError, match="needs Java 17"):
        spark_module.require_spark()


def test_java_too_old(monkeypatch: pytest.MonkeyPatch, tmp_path: object) -> None:
    pytest.importorskip("pyspark", reason="PySpark is not installed")
    monkeypatch.setattr(spark_module, "_java_version", lambda: 11)
    monkeypatch.setattr("shutil.which", lambda name: name)
    with pytest.raises(MissingSparkError, match="is 11"):
        spark_module.require_spark()


def test_pyspark_too_old(monkeypatch: pytest.MonkeyPatch) -> None:
    pyspark = pytest.importorskip("pyspark", reason="PySpark is not installed")
    monkeypatch.setattr(pyspark, "__version__", "4.1.2")
    with pytest.raises(MissingSparkError, match=r"PySpark 4\.1\.2 is too old"):
        spark_module.require_spark()


def test_pyspark_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    with pytest.raises(MissingSparkError, match=r"pip install 'sievemq\[spark\]'"):
        spark_module.require_spark()


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (
            (
                "[PYTHON_DATA_SOURCE_ERROR] Failed: Traceback (most recent call last):\n  File x\n"
                "sievemq.exceptions.InvalidSelectorException: the name 'B' cannot follow\n  a B\n    ^\n SQLSTATE: 38"
            ),
            "the name 'B' cannot follow\n  a B\n    ^",
        ),
        ("file:/a/b.parquet is not a Parquet file. Expected magic number", "a Parquet file cannot be read"),
        ("[UNRESOLVED_COLUMN.WITH_SUGGESTION] A column with name `regin` cannot", "there is no column 'regin'"),
        ("[STREAM_FAILED] Query terminated: Python worker failed to connect back. SQLSTATE", "Spark waits ten seconds"),
        ("anything else\nmore", "anything else"),
        ("", "RuntimeError"),
    ],
)
def test_failures_in_words(text: str, says: str) -> None:
    assert explain_failure(RuntimeError(text)).startswith(says)
