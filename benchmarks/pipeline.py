"""``python -m benchmarks.pipeline``: the pipeline on Spark beside what Spark does with the same rows by itself.

Rows a second of reading a queue and a tap, beside a source of rows that are there already; of sending, beside Spark's
Parquet sink; the time that 500 selectors take as Columns of one select, and over a million messages, by the number
of partitions and of selectors in one select. Needs the extra ``spark`` and Java 17.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from benchmarks.machine import cpu_seconds, processes_of
from benchmarks.macro.processes import Broker
from sievemq import Byte, ConnectionFactory, DeliveryMode, Float, Long, Queue, Short, TextMessage
from sievemq.taps import TapPage
from sievemq_core.message.envelope import pack_properties
from sievemq_core.selector import compile_selector
from sievemq_spark import spark_session
from sievemq_spark.archive import read_queues
from sievemq_spark.backtest import AT_ONCE
from sievemq_spark.schema import COLUMNS, ddl
from sievemq_spark.selector_column import selector_column, where
from sievemq_spark.tap_rows import record_batches

#: Settings by which Spark makes no Java program of expressions: for many of them over few rows.
INTERPRETED = {"spark.sql.codegen.factoryMode": "NO_CODEGEN", "spark.sql.codegen.wholeStage": "false"}

#: Selectors that compare, and selectors that compute first.
PLAIN = ("n BETWEEN {0} AND {0}00", "region = 'EU' AND amount > {0}", "text3 LIKE '%{0}%' OR JMSPriority > 3")
COMPUTED = (
    "(n * {0} + 7) / 2 > amount - {0}",
    "NOT (region = 'EU' OR n - {0} BETWEEN 3 AND amount)",
    "-(n + amount) * {0} <> JMSPriority AND text3 IS NOT NULL",
)

RESULTS = Path(__file__).parent / "results"


#: Cases that are compared, as rates in the same round.
BESIDE = (
    ("browse a queue, partitions: 1", "Arrow generator, messages, partitions: 1"),
    ("browse a queue, partitions: 2", "Arrow generator, messages, partitions: 2"),
    ("read a tap as a batch", "Arrow generator, messages, partitions: 2"),
    ("send to a queue, exactly once", "write Parquet"),
)


def timed(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


class Meter:
    """Time of a piece of work, and what each kind of process used meanwhile.

    Args:
        broker: its process.
    """

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def measure(self, case: str, rows: int, work: Callable[[], object]) -> dict[str, Any]:
        before = self._used()
        seconds = timed(work)
        cpu = {"java": 0.0, "workers": 0.0, "broker": 0.0}
        for pid, (kind, used) in self._used().items():
            cpu[kind] += used - before.get(pid, (kind, 0.0))[1]
        return {"case": case, "rows": rows, "seconds": seconds, "cpu": cpu, "load": os.getloadavg()[0]}

    def _used(self) -> dict[int, tuple[str, float]]:
        """Kind and processor seconds so far of each process: Java, one of Spark's Python workers, or the broker. What a
        worker used that has ended is lost: Spark ends those that were idle for a minute."""
        broker = set(processes_of(self._broker.process.pid))
        found = {}
        for pid in processes_of(os.getpid())[1:]:
            kind = "broker" if pid in broker else "java" if _name_of(pid) == "java" else "workers"
            found[pid] = kind, cpu_seconds(pid)
        return found


def _name_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text(encoding="utf-8").strip()
    except OSError:  # it has ended
        return ""


def ratios(lines: list[dict[str, Any]]) -> Iterator[str]:
    """The rate of each case as a multiple of what it is beside, by round: in time, and in processor time."""
    for case, other in BESIDE:
        ours, beside = ([line for line in lines if line["case"] == name] for name in (case, other))
        for what, cost in (("time", _seconds), ("processor time", _cpu)):
            found = [cost(line) / cost(own) for own, line in zip(ours, beside, strict=True)]
            if found:
                each = ", ".join(f"{ratio:.2f}" for ratio in found)
                yield f"{case} : {other}, {what}: median {statistics.median(found):.2f} ({each})"


def _seconds(line: dict[str, Any]) -> float:
    return float(line["seconds"])


def _cpu(line: dict[str, Any]) -> float:
    return float(sum(line["cpu"].values()))


def properties_of(number: int, count: int) -> dict[str, Any]:
    """So many properties, of every type in turn; at least three."""
    found: dict[str, Any] = {"n": number, "region": ("EU", "US")[number % 2], "amount": number % 500 + 0.5}
    kinds = ("text", "long", "text", "double", "text", "int", "flag", "text", "short", "float", "byte")
    for place in range(count - len(found)):
        kind = kinds[place % len(kinds)]
        value = {"text": f"value {number % 37} of {place}", "long": Long(number * place), "double": number + 0.25,
                 "int": number * place % 2**31, "flag": number % 3 == 0, "short": Short(number % 1_000),
                 "float": Float(0.5), "byte": Byte(number % 100)}[kind]  # fmt: skip
        found[f"{kind}{place}"] = value
    return found


def fill(url: str, queue: str, rows: int, properties: int) -> None:
    with ConnectionFactory(url).create_context() as context:
        producer = context.create_producer().set_delivery_mode(DeliveryMode.NON_PERSISTENT)
        for number in range(rows):
            message = TextMessage("x" * 256, properties=properties_of(number, properties))
            producer.send(Queue(queue), message)


class Generator(DataSource):
    """Rows that are there already, as record batches: what Spark's way from a Python source to a noop sink costs.

    Options: ``rows``, ``partitions``, ``properties``; ``messages`` for rows of messages, otherwise four plain columns.
    """

    @classmethod
    def name(cls) -> str:
        return "generator"

    def schema(self) -> str:
        return ddl() if "messages" in self.options else "id BIGINT, region STRING, amount DOUBLE, body STRING"

    def reader(self, schema: StructType) -> DataSourceReader:
        return _Generated(self.options, schema)


class _Generated(DataSourceReader):
    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        self._options = dict(options)
        self._schema = schema

    def partitions(self) -> list[InputPartition]:
        return [InputPartition(number) for number in range(int(self._options["partitions"]))]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        schema, size = to_arrow_schema(self._schema), 1_000
        if "messages" in self._options:
            packed = [pack_properties(properties_of(n, int(self._options["properties"]))) for n in range(size)]
            times = (1_700_000_000_000, 4, 1, 0, 1_700_000_000_000)
            rows = [(f"ID:{n}", *times, None, None, None, *both, 1, b"x" * 256) for n, both in enumerate(packed)]
            page = TapPage(1, [0] * size, [0] * size, tuple(zip(*rows, strict=True)))
            (batch,) = record_batches(page, ("here:1", "", "queue:q"), {}, schema, size)
        else:
            columns = [range(size), ["EU", "US"] * (size // 2), [0.5] * size, ["x" * 256] * size]
            arrays = [pa.array(values, field.type) for values, field in zip(columns, schema, strict=True)]
            batch = pa.RecordBatch.from_arrays(arrays, schema=schema)
        for _ in range(0, int(self._options["rows"]) // int(self._options["partitions"]), size):
            yield batch


def sources(spark: Any, broker: Broker, rows: int, properties: int, folder: str, rounds: int) -> list[dict[str, Any]]:
    """Reading, each into nothing, and rows that are there already likewise."""
    url, meter = broker.url, Meter(broker)
    fill(url, "read", rows, properties)
    found: list[dict[str, Any]] = []

    def took(case: str, frame: Any) -> None:
        note(found, meter.measure(case, rows, lambda: frame.write.format("noop").mode("overwrite").save()))

    made = spark.read.format("generator").options(rows=rows, properties=properties)
    tap = {"url": url, "destination": "queue:read", "tap": "bench", "batchSize": "10000"}
    for _ in range(rounds):
        took("Arrow generator, 4 plain columns, 2 partitions", made.option("partitions", 2).load())
        messages = spark.read.format("generator").options(rows=rows, properties=properties, messages="yes")
        for partitions in (1, 2):
            case = f"Arrow generator, messages, partitions: {partitions}"
            took(case, messages.option("partitions", partitions).load())
        for partitions in (1, 2):
            options = {"url": url, "destination": "queue:read", "batchSize": "10000", "partitions": str(partitions)}
            took(f"browse a queue, partitions: {partitions}", spark.read.format("sievemq").options(**options).load())
        took("read a tap as a batch", spark.read.format("sievemq").options(**tap).load())
    taps = spark.readStream.format("sievemq").options(**{**tap, "tap": "stream"}).load()
    note(found, {"case": "stream over a tap", "rows": rows, "seconds": one_batch(taps, rows, f"{folder}/tap")})
    return found


def one_batch(frame: Any, rows: int, checkpoint: str) -> float:
    """Seconds of a stream's batch of so many rows into nothing, as Spark itself counts them."""
    query = frame.writeStream.format("noop").option("checkpointLocation", checkpoint).start()
    try:
        while True:
            for progress in query.recentProgress:
                if progress["numInputRows"] >= rows:
                    return float(progress["durationMs"]["triggerExecution"]) / 1_000
            if query.awaitTermination(1):
                raise RuntimeError(f"the stream has ended: {query.exception()}")
    finally:
        query.stop()


def sinks(spark: Any, broker: Broker, rows: int, folder: str, rounds: int) -> list[dict[str, Any]]:
    """Sending the same rows, and writing them as Parquet."""
    url, meter = broker.url, Meter(broker)
    frame = read_queues(spark, url, "read", batch_size=10_000).repartition(2).cache()
    assert frame.count() == rows
    found: list[dict[str, Any]] = []

    def took(case: str, work: Callable[[], object]) -> None:
        note(found, meter.measure(case, rows, work))

    for _ in range(rounds):
        writer = frame.write.format("sievemq").options(url=url, destination="queue:written").mode("append")
        took("send to a queue, exactly once", writer.save)
        took("write Parquet", lambda: frame.write.mode("overwrite").parquet(f"{folder}/parquet"))
    frame.unpersist()
    return found


def backtests(spark: Any, selectors: int, rows: int, partitions: list[int], sizes: list[int]) -> list[dict[str, Any]]:
    """Many selectors over many messages: by partitions, in groups as `backtest` makes them; then, with the last number
    of partitions, by the size of a group."""
    from pyspark.sql import functions as f

    typed = "named_struct('t', '{}', 'b', CAST(NULL AS BOOLEAN), 'l', {}, 'd', {}, 's', {})"
    text, number, real = (
        typed.format("s", "CAST(NULL AS BIGINT)", "CAST(NULL AS DOUBLE)", "CASE id % 3 WHEN 0 THEN 'EU' ELSE 'US' END"),
        typed.format("i", "id", "CAST(NULL AS DOUBLE)", "CAST(NULL AS STRING)"),
        typed.format("d", "CAST(NULL AS BIGINT)", "id % 500 + 0.5D", "CAST(NULL AS STRING)"),
    )
    columns = [f"CAST(NULL AS {kind}) AS {name}" for name, kind in COLUMNS.items() if name not in ("properties", "seq")]
    kinds = ("n BETWEEN {0}0 AND {0}00", "region = 'EU' AND amount > {0}")
    texts = [kinds[k % 2].format(k) for k in range(selectors)]
    counts = [f.count_if(selector_column(compiled)) for line in texts if (compiled := compile_selector(line))]
    found: list[dict[str, Any]] = []
    for number_of, size in [*((each, AT_ONCE) for each in partitions), *((partitions[-1], each) for each in sizes)]:
        groups = [counts[first : first + size] for first in range(0, len(counts), size)]
        made = spark.range(0, rows, 1, number_of).selectExpr(
            *columns, "id AS seq", f"map('region', {text}, 'n', {number}, 'amount', {real}) AS properties"
        )
        made = made.persist()
        made.count()
        seconds = timed(lambda made=made, groups=groups: [made.agg(*group).collect() for group in groups])  # type: ignore[misc]
        made.unpersist()
        case = f"{selectors} selectors, {size} at a time, partitions: {number_of}"
        note(found, {"case": case, "rows": rows, "seconds": seconds})
    return found


def columns(spark: Any, selectors: int, rows: int) -> list[dict[str, Any]]:
    """So many selectors as Columns of one select: made, planned, and asked of a few messages."""
    made = spark.read.format("generator").options(rows=rows, partitions=1, properties=5, messages="yes").load().cache()
    made.count()
    found: list[dict[str, Any]] = []

    def took(case: str, work: Callable[[], object]) -> None:
        note(found, {"case": f"{selectors} Columns that {case}", "rows": rows, "seconds": timed(work)})

    for does, kinds in (("compare", PLAIN), ("compute", COMPUTED)):
        chosen = [where(kinds[k % len(kinds)].format(k)).alias(f"c{k}") for k in range(selectors)]
        took(f"{does}, planned", lambda chosen=chosen: made.select(*chosen)._jdf.queryExecution().executedPlan())  # type: ignore[misc]
        took(f"{does}, planned and collected", lambda chosen=chosen: made.select(*chosen).collect())  # type: ignore[misc]
        for name, value in INTERPRETED.items():
            spark.conf.set(name, value)
        took(f"{does}, planned and collected, interpreted", lambda chosen=chosen: made.select(*chosen).collect())  # type: ignore[misc]
        for name in INTERPRETED:
            spark.conf.unset(name)
    made.unpersist()
    return found


def note(found: list[dict[str, Any]], line: dict[str, Any]) -> None:
    """Keep a figure, and print it: some take minutes."""
    found.append(line)
    rows, seconds = line["rows"], line["seconds"]
    used = ", ".join(f"{kind} {spent * 1e6 / rows:.1f}" for kind, spent in line.get("cpu", {}).items())
    print(f"| {line['case']} | {rows:,} | {seconds:.2f} s | {rows / seconds:,.0f} rows/s | {used} |", flush=True)


def numbers(text: str) -> list[int]:
    return [int(part) for part in text.split(",") if part]


def main() -> None:
    """Run it, print a table, keep the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=200_000, help="messages read and written")
    parser.add_argument("--properties", type=int, default=20, help="of each of them")
    parser.add_argument("--rounds", type=int, default=2, help="of reading and writing; Java is slow in the first")
    parser.add_argument("--messages", type=int, default=1_000_000, help="messages of the backtest")
    parser.add_argument("--selectors", type=int, default=500)
    parser.add_argument("--partitions", type=numbers, default=[1, 4, 2], help="of the backtest, in turn")
    parser.add_argument("--groups", type=numbers, default=[10, 100, 500], help="selectors in one select, in turn")
    parser.add_argument("--only-rows", action="store_true", help="reading and writing alone")
    parser.add_argument("--only-backtest", action="store_true", help="no broker, no source and no sink")
    parser.add_argument("--only-columns", action="store_true", help="selectors as Columns of one select alone")
    parser.add_argument("--no-backtest", action="store_true", help="all but the second table")
    parser.add_argument("--master", default="local[2]")
    parser.add_argument("--broker", default=sys.executable, help="the Python whose broker is used, of another build")
    chosen = parser.parse_args()
    spark = spark_session(
        chosen.master, settings={"spark.driver.memory": "4g", "spark.ui.showConsoleProgress": "false"}
    )
    spark.sparkContext.setLogLevel("OFF")
    lines: list[dict[str, Any]] = []
    print("| | rows | seconds | rate | processor time of a row, µs |\n|---|---|---|---|---|")
    if chosen.only_columns:
        spark.dataSource.register(Generator)
        lines += columns(spark, chosen.selectors, 400)
    elif not chosen.only_backtest:
        with Broker(python=chosen.broker) as broker, tempfile.TemporaryDirectory() as folder:
            spark.dataSource.register(Generator)
            fill(broker.url, "warm", 1_000, chosen.properties)
            read_queues(spark, broker.url, "warm").count()  # workers start, code is compiled
            lines += sources(spark, broker, chosen.rows, chosen.properties, folder, chosen.rounds)
            lines += sinks(spark, broker, chosen.rows, folder, chosen.rounds)
            if not chosen.only_rows:
                lines += columns(spark, chosen.selectors, 400)
        print("\n".join(ratios(lines)), flush=True)
    if not (chosen.no_backtest or chosen.only_rows or chosen.only_columns):
        backtests(spark, chosen.selectors, min(chosen.messages, 10_000), [2], [])  # code is compiled
        lines += backtests(spark, chosen.selectors, chosen.messages, chosen.partitions, chosen.groups)
    spark.stop()
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "pipeline.json").write_text(json.dumps(lines, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
