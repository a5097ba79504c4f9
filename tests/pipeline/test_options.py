"""Options of the data source, and errors in words; without Spark."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from sievemq.exceptions import InvalidSelectorException, InvalidURLException
from sievemq.url import parse_url
from sievemq_spark import spark as spark_module
from sievemq_spark.errors import MissingSparkError, PipelineError
from sievemq_spark.failures import explain_failure
from sievemq_spark.options import ReadOptions, WriteOptions, broker_name

URL = "sievemq://me:secret@localhost:7700,[::1]/tests"


def test_read() -> None:
    options = ReadOptions.read(
        {"url": URL, "destination": "queue:a, b", "selector": "x = 1", "columns": "x INT", "batchsize": "10"}
    )
    assert [str(queue) for queue in options.queues] == ["queue:a", "queue:b"]
    assert (options.promoted, options.batch_size) == ({"x": "int"}, 10)
    assert broker_name(parse_url(URL)) == "localhost:7700,[::1]:7672"
    assert "hush" not in repr(ReadOptions.read({"destination": "q", "password": "hush"}))


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({}, "'destination' is missing"),
        ({"destination": "topic:t"}, "is a topic: it cannot be browsed"),
        ({"destination": "topic:t", "mode": "drain", "tap": "t"}, "is a topic: it holds no messages to drain"),
        ({"destination": "queue:"}, "empty"),
        ({"destnation": "q"}, "did you mean 'destination'"),
        ({"destination": "q", "maxOffsetsPerTrigger": "5"}, "did you mean 'maxMessagesPerTrigger'"),
        ({"subscribe": "q"}, "did you mean 'destination'"),
        ({"destination": "q", "startingoffsets": "first"}, "'earliest', 'latest', or JSON by destination"),
        ({"destination": "q", "startingoffsets": "[1]"}, "'earliest', 'latest', or JSON by destination"),
        ({"destination": "q", "startingoffsets": '{"queue:q": 0}'}, "'earliest', 'latest', or JSON by destination"),
        ({"destination": "q", "startingoffsets": '{"queue:r": 1}'}, "names queue:r, which is not read"),
        ({"destination": "q", "maxmessagespertriger": "5"}, "did you mean 'maxMessagesPerTrigger'"),
        ({"destination": "q", "failondataloss": "maybe"}, "'failOnDataLoss' cannot be 'maybe'"),
        (
            {"destination": "q", "tap": "t", "startingtimestamp": "yesterday"},
            "'startingTimestamp' cannot be 'yesterday'",
        ),
        ({"destination": "q", "tap": "t", "startingtimestamp": "2026-11-21T05:00:00"}, "with its zone"),
        ({"destination": "q", "startingtimestamp": "5"}, "is not for mode 'browse': a selector does"),
        ({"destination": "q", "tap": "t", "mode": "drain", "startingtimestamp": "5"}, "not for mode 'drain'"),
        (
            {"destination": "q", "tap": "t", "startingtimestamp": "5", "startingoffsets": "latest"},
            "'startingTimestamp' and 'startingOffsets', not both",
        ),
        ({"destination": "q", "timecolumn": "Timestamp"}, "'timeColumn' names 'Timestamp', which is a column already"),
        ({"destination": "q", "timecolumn": "at", "columns": "AT INT"}, "'timeColumn' names 'at'"),
        ({"destination": "q", "tap": "t", "mode": "outcomes", "timecolumn": "time"}, "'timeColumn' names 'time'"),
        ({"destination": "q", "tap": "t", "unavailable": "skip"}, "'unavailable' cannot be 'skip'"),
        ({"destination": "q", "unavailable": "wait"}, "'unavailable' can be 'wait' for a stream"),
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


def test_times() -> None:
    given = {"destination": "q", "tap": "t"}
    for text in ("1790000000000", "2026-09-21T14:13:20Z", "2026-09-21T16:13:20.000+02:00"):
        assert ReadOptions.read({**given, "startingtimestamp": text}).starting_timestamp == 1_790_000_000_000
    assert list(ReadOptions.read({**given, "timecolumn": "at"}).schema.items())[-1] == ("at", "timestamp")


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
    assert WriteOptions.read({"checkpointlocation": "x", "queryname": "y"}).stage_lease is None  # Spark shows them
    for wrong in (
        {"writeid": "x" * 201},
        {"stagelease": "x"},
        {"rate": "-1"},
        {"rate": "inf"},
        {"dryrun": "maybe"},
        {"selector": "a"},
        {"destination": "queue:"},
        {"provider": "sievemq"},
    ):
        with pytest.raises(PipelineError):
            WriteOptions.read(wrong)


def test_java_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pyspark", reason="PySpark is not installed")
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    with pytest.raises(MissingSparkError, match="needs Java 17"):
        spark_module.require_spark()


def test_java_too_old(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pyspark", reason="PySpark is not installed")
    monkeypatch.setattr(spark_module, "_java_version", lambda: 11)
    monkeypatch.setattr("shutil.which", lambda name: name)
    with pytest.raises(MissingSparkError, match="is 11"):
        spark_module.require_spark()


@pytest.mark.parametrize(
    ("name", "version", "says"),
    [
        ("pyspark", "4.1.2", r"pyspark 4\.1\.2 is too old, it has to be 4\.3 or newer, older than 4\.4: pip install"),
        ("pyspark", "5.0.0.dev1", r"pyspark 5\.0\.0\.dev1 is too new"),
        ("pyarrow", "17.0.0", r"pyarrow 17\.0\.0 is too old, it has to be 18 or newer: pip install"),
        ("pandas", "2.1.4", r"pandas 2\.1\.4 is too old"),
        ("pandas", "3.0.0", r"pandas 3\.0\.0 is too new, it has to be 2\.2 or newer, older than 3: pip install"),
    ],
)
def test_wrong_versions(monkeypatch: pytest.MonkeyPatch, name: str, version: str, says: str) -> None:
    for needed in ("pyspark", "pyarrow", "pandas"):  # they are checked in turn
        pytest.importorskip(needed, reason=f"{needed} is not installed")
    monkeypatch.setattr(sys.modules[name], "__version__", version)
    with pytest.raises(MissingSparkError, match=says):
        spark_module.require_spark()


def test_another_spark_in_spark_home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Its Java half would run under this PySpark."""
    pyspark = pytest.importorskip("pyspark", reason="PySpark is not installed")
    (tmp_path / "jars").mkdir()
    (tmp_path / "jars" / "spark-core_2.12-3.5.1.jar").touch()
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    with pytest.raises(MissingSparkError, match=r"SPARK_HOME names Spark 3\.5\.1 at .* unset SPARK_HOME"):
        spark_module.require_spark()
    monkeypatch.setenv("SPARK_HOME", str(Path(pyspark.__file__).parent))
    spark_module._require_home(pyspark.__version__)


def test_the_environment_of_executors_is_not_here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pytest.importorskip("pyspark", reason="PySpark is not installed")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYSPARK_PYTHON", "./env/bin/python")
    with pytest.raises(MissingSparkError, match=r"PYSPARK_PYTHON is '\./env/bin/python', and .* has no such program"):
        spark_module.require_spark()


def test_a_cluster_plans_with_the_installed_pyspark(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Where that interpreter has it: the archive of Spark is slow, and Spark waits ten seconds."""
    plans = spark_module._plans_with_installed
    for python, master, expected in (
        (sys.executable, "spark://h:7077", True),
        ("./env/bin/python", "spark://h:7077", False),
        ("./env/bin/python", "local[2]", True),
        (sys.executable, "yarn", False),
    ):
        monkeypatch.setenv("PYSPARK_PYTHON", python)
        assert plans(master) is expected


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
        (
            "[FAILED_READ_FILE.NO_HINT] Encountered error while reading file file:///a/d=q%253Aa/b.parquet. SQLSTATE",
            "a Parquet file cannot be read, it is damaged or none: file:///a/d=q%3Aa/b.parquet. Restore",
        ),
        (
            (
                "[FAILED_READ_FILE.PARQUET_COLUMN_DATA_TYPE_MISMATCH] Encountered error while reading file "
                "file:///a/b.parquet. Data type mismatches.\nCaused by: SchemaColumnConvertNotSupportedException: "
                "column: [priority], physicalType: BINARY, logicalType: int"
            ),
            "the column priority of a Parquet file is BINARY and was to be read as int: file:///a/b.parquet. Read that",
        ),
        ("[UNRESOLVED_COLUMN.WITH_SUGGESTION] A column with name `regin` cannot", "there is no column 'regin'"),
        ("[STREAM_FAILED] Query terminated: Python worker failed to connect back. SQLSTATE", "Spark waits ten seconds"),
        (
            (
                "[STREAM_FAILED] Query terminated: Return Message: Traceback (most recent call last):\n"
                '  File "x.py", line 5, in call\n    raise\npyspark.errors.exceptions.captured.ArithmeticException: '
                "[CAST_OVERFLOW] The value 2L cannot be cast. SQLSTATE: 22003\n\n\tat py4j.Gateway(Gateway.java:1)\n"
            ),
            "[CAST_OVERFLOW] The value 2L cannot be cast",
        ),
        ("anything else\nmore", "anything else"),
        ("", "RuntimeError"),
    ],
)
def test_failures_in_words(text: str, says: str) -> None:
    assert explain_failure(RuntimeError(text)).startswith(says)


@pytest.mark.spark
def test_finding_the_data_source_imports_neither_arrow_nor_the_client() -> None:
    """Spark does so in several processes for each read, and waits ten seconds for one."""
    program = (
        "import sys, pyspark.sql.datasource, pyspark_sievemq as found;"
        "found.DefaultSource({'destination': 'queue:q'}).schema();"
        "print(*{'numpy', 'pyarrow', 'msgspec', 'sievemq.blocking', 'sievemq._engine'} & sys.modules.keys())"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []
