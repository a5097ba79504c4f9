"""Rows and files that are not what they should be: each is named, with what it is, what it should be and what to do."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from sievemq_broker import EmbeddedBroker
from sievemq_spark.archive import archive, archive_outcomes, read_archive, require_messages
from sievemq_spark.compaction import compact
from sievemq_spark.errors import PipelineError
from sievemq_spark.failures import explain_failure
from sievemq_spark.replay import replay
from sievemq_spark.schema import COLUMNS, OUTCOME_COLUMNS, PROPERTY_TYPE, ddl

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1_200)]

HEADER = "namespace=(default)/destination=queue%3Aq/date=2024-10-04"


def changed(**columns: str | None) -> str:
    """The columns of messages with other types, or without some."""
    merged = {**COLUMNS, **columns}
    return ddl(columns={name: kind for name, kind in merged.items() if kind is not None})


@pytest.mark.parametrize(
    ("schema", "says"),
    [
        (
            changed(size=None),
            "these are no messages: the column size is missing. Add what is missing, such as CAST(NULL",
        ),
        (
            changed(shard=None, type=None),
            "the columns shard, type are missing. Add .* CAST(NULL AS STRING) AS shard",
        ),
        (
            changed(priority="string"),
            "priority is string and has to be int. Convert .* CAST(priority AS INT) AS priority",
        ),
        (
            changed(timestamp="timestamp"),
            "timestamp is timestamp and has to be bigint. Convert .* unix_millis(timestamp)",
        ),
        (
            changed(delivery_mode="bigint", body_text="binary"),
            "is bigint and has to be int; body_text is binary and has",
        ),
        (changed(type="array<string>"), "type is array<string> and has to be string"),
        (changed(properties=None), "the column properties is missing. Properties are map<string,struct<t:string,b:"),
        (changed(properties="string"), "properties is string and has to be map<string,struct<t:string,b:"),
        (
            changed(properties="map<string,string>"),
            "properties.value is string and has to be struct<t:string,b:boolean",
        ),
        (
            changed(properties=f"map<int,{PROPERTY_TYPE}>"),
            "properties.key is int and has to be string. Properties are map",
        ),
        (
            changed(properties="map<string,struct<t:string,b:boolean,l:string,d:double>>"),
            "the column properties.value.s is missing; properties.value.l is string and has to be bigint",
        ),
        (
            changed(properties="map<string,struct<b:boolean,t:string,l:bigint,d:double,s:string>>"),
            "properties is map<string,struct<b:boolean,t:string,.*>> and has to be map<string,struct<t:string,b:",
        ),
    ],
)
def test_rows_that_are_no_messages(spark: Any, schema: str, says: str) -> None:
    import re

    with pytest.raises(PipelineError) as caught:
        require_messages(spark.createDataFrame([], schema))
    parts = [re.escape(part) for part in says.split(".*")]
    assert re.search(".*".join(parts), str(caught.value)), str(caught.value)


def test_rows_that_are_messages_all_the_same(spark: Any, tmp_path: Path) -> None:
    """Letter case, narrower integers, NULLs of no type, columns besides; in the archive all are as they should be."""
    names = {"MESSAGE_ID": "string", "message_id": None, "timestamp": "int", "priority": "smallint", "mine": "date"}
    frame = spark.createDataFrame([], changed(**names)).drop("reply_to")
    row = spark.sql("SELECT 'ID:1' AS MESSAGE_ID, 5 AS timestamp, 'queue:q' AS destination")
    frame = frame.unionByName(row, allowMissingColumns=True)
    frame = frame.selectExpr("*", "NULL AS reply_to")
    require_messages(frame)
    path = str(tmp_path / "archive")
    assert archive(spark, frame, path).added == 1
    assert archive(spark, frame, path).added == 0
    (row,) = read_archive(spark, path).collect()
    assert (row.message_id, row.timestamp, row.priority, row.reply_to) == ("ID:1", 5, None, None)
    written = spark.read.parquet(path).schema
    assert {field.name: field.dataType.simpleString() for field in written} == COLUMNS | {"date": "date"}


def test_outcomes_of_another_type(spark: Any) -> None:
    frame = spark.createDataFrame([], ddl(columns={**OUTCOME_COLUMNS, "attempts": "double"}))
    with pytest.raises(PipelineError, match="these are no outcomes: attempts is double and has to be int"):
        archive_outcomes(spark, frame, "nowhere")


@pytest.fixture(scope="module")
def good(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An archive with one file."""
    path = tmp_path_factory.mktemp("misfits") / "archive"
    row = dict.fromkeys(COLUMNS) | {"destination": "queue:q", "message_id": "ID:1", "timestamp": 20_000 * 86_400_000}
    row |= {"body_kind": "TEXT", "size": 3, "properties": {"n": ("i", None, 5, None, None)}}
    archive(spark, spark.createDataFrame([tuple(row[name] for name in COLUMNS)], ddl()), str(path))
    return path


def only_file(path: Path) -> Path:
    (file,) = path.rglob("*.parquet")
    return file


def beside(good: Path, folder: Path, change: Callable[[Any], Any], place: str = HEADER) -> str:
    """A copy of the archive with a file of Arrow's beside Spark's: its table, changed."""
    import pyarrow.parquet as pq

    path = folder / "archive"
    shutil.copytree(good, path)
    (path / place).mkdir(parents=True, exist_ok=True)
    pq.write_table(change(pq.ParquetFile(only_file(good)).read()), path / place / "other.parquet")
    return str(path)


def cast(name: str, kind: str) -> Callable[[Any], Any]:
    def change(table: Any) -> Any:
        import pyarrow as pa

        place = table.schema.get_field_index(name)
        return table.set_column(place, name, pa.array([None], getattr(pa, kind)()))

    return change


def map_of_text(table: Any) -> Any:
    import pyarrow as pa

    column = pa.array([[("n", "5")]], pa.map_(pa.string(), pa.string()))
    return table.set_column(table.schema.get_field_index("properties"), "properties", column)


def map_without_text(table: Any) -> Any:
    import pyarrow as pa

    kind = pa.map_(pa.string(), pa.struct({"t": pa.string(), "b": pa.bool_(), "l": pa.float64(), "d": pa.float64()}))
    column = pa.array([[("n", {"t": "i", "l": 5.0})]], kind)
    return table.set_column(table.schema.get_field_index("properties"), "properties", column)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda table: table.drop_columns(["body_text", "size"]), "the columns body_text, size are missing"),
        (cast("priority", "string"), "priority is string and has to be int"),
        (cast("priority", "int64"), "priority is bigint and has to be int"),
        (cast("redelivered", "int32"), "redelivered is int and has to be boolean"),
        (map_of_text, "properties.value is string and has to be struct<t:string,b:boolean"),
        (map_without_text, "properties.value.s is missing; properties.value.l is double and has to be bigint"),
    ],
)
def test_files_of_another_program(
    spark: Any, good: Path, tmp_path: Path, change: Callable[[Any], Any], says: str
) -> None:
    """They are not read as NULLs, nothing is added beside them, and no compaction takes them for its own."""
    path = beside(good, tmp_path, change)
    jobs: list[Callable[[], object]] = [
        lambda: read_archive(spark, path),
        lambda: archive(spark, read_archive(spark, str(good)).drop("date"), path),
        lambda: compact(spark, path, files=2),
    ]
    for job in jobs:
        with pytest.raises(PipelineError) as caught:
            job()
        text = str(caught.value)
        assert f"{HEADER}/other.parquet is no file of this archive: " in text
        assert says in text
        assert "Another program wrote it: move it away; or read it with spark.read.parquet" in text
    assert len(list(Path(path).rglob("*.parquet"))) == 2


def test_files_that_lie_elsewhere(spark: Any, good: Path, tmp_path: Path) -> None:
    path = beside(good, tmp_path, lambda table: table, "")
    with pytest.raises(
        PipelineError, match=r"other\.parquet is no file of this archive: those lie in namespace=…/dest"
    ):
        read_archive(spark, path)


def test_files_of_another_program_that_fit(spark: Any, good: Path, tmp_path: Path) -> None:
    """Narrower integers, other letter case, another order and columns besides."""

    def change(table: Any) -> Any:
        table = cast("timestamp", "int32")(table).append_column("mine", [[1]])
        names = list(reversed(table.column_names))
        return table.select(names).rename_columns([name.upper() if name == "message_id" else name for name in names])

    rows = read_archive(spark, beside(good, tmp_path, change)).orderBy("timestamp").collect()
    assert [(row.message_id, row.timestamp, row.properties["n"].l) for row in rows] == [
        ("ID:1", None, 5),
        ("ID:1", 20_000 * 86_400_000, 5),
    ]


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (lambda data: data[: len(data) // 2], "is not a Parquet file"),
        (lambda data: b"these are no rows at all", "is not a Parquet file"),
        (lambda data: b"PAR1", "is not a Parquet file"),
        (lambda data: b"", "is empty"),
    ],
)
def test_damaged_files(spark: Any, good: Path, tmp_path: Path, damage: Callable[[bytes], bytes], says: str) -> None:
    path = Path(beside(good, tmp_path, lambda table: table))
    assert read_archive(spark, str(path)).count() == 2
    file = path / HEADER / "other.parquet"
    file.write_bytes(damage(file.read_bytes()))
    for job in (lambda: read_archive(spark, str(path)), lambda: compact(spark, str(path), files=2)):
        with pytest.raises(PipelineError) as caught:
            job()
        text = str(caught.value)
        assert text.startswith("a Parquet file cannot be read, it is damaged or none: file:/")
        assert f"{HEADER}/other.parquet" in text
        assert says in text
        assert text.endswith(". Restore or remove it")


def test_a_file_whose_rows_are_damaged(spark: Any, good: Path, tmp_path: Path) -> None:
    """What its end says is in order: it shows when they are read."""
    path = Path(beside(good, tmp_path, lambda table: table))
    file = path / HEADER / "other.parquet"
    data = bytearray(file.read_bytes())
    data[4:400] = bytes(396)
    file.write_bytes(data)
    with pytest.raises(Exception) as caught:
        read_archive(spark, str(path)).collect()
    assert explain_failure(caught.value).startswith("a Parquet file cannot be read, it is damaged or none: file:/")
    assert f"{HEADER}/other.parquet" in explain_failure(caught.value)


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker() as broker:
        yield broker


@pytest.mark.parametrize(
    ("schema", "says"),
    [
        ("Priority INT", "'Priority' differs from 'priority' of a message in letter case alone.* name it 'priority'"),
        ("timestamp TIMESTAMP", "'timestamp' is timestamp; of a message it is bigint: convert it, or rename it"),
        (
            "properties MAP<STRING, STRING>",
            r"'properties' is map<string,string>; of a message it is map<string,struct<t",
        ),
        (
            "address STRUCT<city STRING>",
            r"'address' is struct<city:string>, which no property can be .* cast it or drop",
        ),
        ("total DECIMAL(10, 2)", r"'total' is decimal\(10,2\), which no property can be .* cast it or drop it"),
    ],
)
def test_tables_that_cannot_be_sent(spark: Any, broker: EmbeddedBroker, schema: str, says: str) -> None:
    with pytest.raises(Exception, match=says):
        frame = spark.createDataFrame([], schema)
        frame.write.format("sievemq").options(url=broker.url, destination="q").mode("append").save()


@pytest.mark.parametrize(
    ("column", "value", "says"),
    [
        (
            "body_kind",
            "'XML'",
            "there is no body kind 'XML' (column body_kind); there are NONE, TEXT, BYTES, MAP, STREAM",
        ),
        (
            "properties",
            "map('n', struct('i', NULL, 5000000000, NULL, NULL))",
            "the property 'n': 5000000000 does not fit",
        ),
        (
            "properties",
            "map('n', struct('i', NULL, NULL, NULL, '5'))",
            "the property 'n': its type t is 'i' and its value",
        ),
        (
            "properties",
            "map('n', struct('s', NULL, 5, NULL, NULL))",
            "the property 'n': its type t is 's' and its value",
        ),
        ("properties", "map('n', NULL)", "the property 'n': its struct is NULL: leave it out of the map"),
        ("properties", "map('a b', struct('z', true, NULL, NULL, NULL))", "'a b' cannot be a property"),
        ("destination", "'queue:'", "empty"),
    ],
)
def test_rows_that_cannot_be_sent_again(
    spark: Any, broker: EmbeddedBroker, good: Path, column: str, value: str, says: str
) -> None:
    """Whose property or column it is, and of which row."""
    frame = read_archive(spark, str(good)).selectExpr(
        *(name if name != column else f"CAST({value} AS {COLUMNS[column]}) AS {column}" for name in (*COLUMNS, "date"))
    )
    with pytest.raises(Exception) as caught:
        replay(frame, broker.url, dry_run=True)
    text = explain_failure(caught.value)
    assert text.startswith("row 1 of this partition (ID:1): "), text
    assert says in text
