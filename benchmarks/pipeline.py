"""``python -m benchmarks.pipeline``: the pipeline on Spark beside what Spark does with the same rows by itself.

Rows a second of reading a queue and a tap, beside Spark's ``rate`` source; of sending, beside its Parquet sink; and how
long 500 selectors over a million messages take, by the number of partitions and by how many are asked at a time. Needs
the extra ``spark`` and Java 17.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sievemq import BytesMessage, ConnectionFactory, DeliveryMode, Queue
from sievemq_broker import EmbeddedBroker
from sievemq_core.selector import compile_selector
from sievemq_spark import spark_session
from sievemq_spark.archive import read_queues
from sievemq_spark.backtest import AT_ONCE
from sievemq_spark.schema import COLUMNS
from sievemq_spark.selector_column import selector_column

RESULTS = Path(__file__).parent / "results"


def timed(work: Callable[[], object]) -> float:
    """Seconds that something takes."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def fill(url: str, queue: str, rows: int) -> None:
    """Messages of 256 bytes with three properties."""
    with ConnectionFactory(url).create_context() as context:
        producer = context.create_producer().set_delivery_mode(DeliveryMode.NON_PERSISTENT)
        body = b"x" * 256
        for number in range(rows):
            message = BytesMessage(body)
            message.set_int_property("n", number)
            message.set_string_property("region", ("EU", "US")[number % 2])
            message.set_double_property("amount", number % 500 + 0.5)
            producer.send(Queue(queue), message)


def sources(spark: Any, url: str, rows: int, folder: str) -> list[dict[str, Any]]:
    """Reading, each into nothing, and Spark's own source likewise."""
    fill(url, "read", rows)
    found = []

    def took(case: str, work: Callable[[], object]) -> None:
        found.append({"case": case, "rows": rows, "seconds": timed(work)})

    queue = read_queues(spark, url, "read", batch_size=10_000)
    took("browse a queue", lambda: queue.write.format("noop").mode("overwrite").save())

    tap = {"url": url, "destination": "queue:read", "tap": "bench", "batchSize": "10000"}
    taps = spark.readStream.format("sievemq").options(**tap).load()
    found.append({"case": "stream over a tap", "rows": rows, "seconds": one_batch(taps, rows, f"{folder}/tap")})
    # the built-in source that makes a batch of so many rows; the one called rate makes them at the pace of a clock
    rate = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", rows).option("numPartitions", 2).load()
    made = rate.selectExpr("*", "repeat('x', 256) AS body", "cast(value % 500 AS double) AS amount")
    seconds = one_batch(made, rows, f"{folder}/rate")
    found.append({"case": "stream over Spark's rate source", "rows": rows, "seconds": seconds})
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


def sinks(spark: Any, url: str, rows: int, folder: str) -> list[dict[str, Any]]:
    """Sending the same rows, and writing them as Parquet."""
    frame = read_queues(spark, url, "read", batch_size=10_000).cache()
    assert frame.count() == rows
    found = []

    def took(case: str, work: Callable[[], object]) -> None:
        found.append({"case": case, "rows": rows, "seconds": timed(work)})

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
    found = []
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
        found.append({"case": case, "rows": rows, "seconds": seconds})
        show(found[-1])  # what takes minutes is seen as it comes
    return found


def show(line: dict[str, Any]) -> None:
    """One row of the table."""
    rate = line["rows"] / line["seconds"]
    sys.stdout.write(f"| {line['case']} | {line['rows']:,} | {line['seconds']:.2f} s | {rate:,.0f} rows/s |\n")
    sys.stdout.flush()


def numbers(text: str) -> list[int]:
    """``1,2,4`` as numbers."""
    return [int(part) for part in text.split(",") if part]


def main() -> None:
    """Run it, print a table, keep the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=200_000, help="messages read and written")
    parser.add_argument("--messages", type=int, default=1_000_000, help="messages of the backtest")
    parser.add_argument("--selectors", type=int, default=500)
    parser.add_argument("--partitions", type=numbers, default=[1, 4, 2], help="of the backtest, in turn")
    parser.add_argument("--groups", type=numbers, default=[10, 100, 500], help="selectors asked at a time, in turn")
    parser.add_argument("--only-backtest", action="store_true", help="no broker, no source and no sink")
    parser.add_argument("--master", default="local[2]")
    chosen = parser.parse_args()
    spark = spark_session(
        chosen.master, settings={"spark.driver.memory": "4g", "spark.ui.showConsoleProgress": "false"}
    )
    spark.sparkContext.setLogLevel("OFF")
    lines: list[dict[str, Any]] = []
    if not chosen.only_backtest:
        with EmbeddedBroker() as broker, tempfile.TemporaryDirectory() as folder:
            fill(broker.url, "warm", 1_000)
            read_queues(spark, broker.url, "warm").count()  # workers start, code is compiled
            lines += sources(spark, broker.url, chosen.rows, folder)
            lines += sinks(spark, broker.url, chosen.rows, folder)
        for line in lines:
            show(line)
    backtests(spark, chosen.selectors, min(chosen.messages, 10_000), [2], [])  # code is compiled
    lines += backtests(spark, chosen.selectors, chosen.messages, chosen.partitions, chosen.groups)
    spark.stop()
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "pipeline.json").write_text(json.dumps(lines, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
