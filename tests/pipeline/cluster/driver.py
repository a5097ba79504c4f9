"""A driver, which run.py kills and starts again: it relays a queue to another one, and archives it.

python driver.py stream MASTER URL LAKE FINISH   until there is a file FINISH, then everything there is
python driver.py audit MASTER LAKE ROWS          writes what the archive has into the file ROWS
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sievemq_spark import spark_session
from sievemq_spark.archive import archive_stream, read_archive


def stamped(batches: Iterator[Any]) -> Iterator[Any]:
    """Runs in tasks: adds where that is, and where its code comes from."""
    import os

    import pyarrow as pa

    import sievemq_spark

    for batch in batches:
        more = (os.environ["SPARK_LOCAL_IP"], sievemq_spark.__file__)
        columns = [pa.array([value] * len(batch), pa.string()) for value in more]
        yield pa.RecordBatch.from_arrays([*batch.columns, *columns], [*batch.schema.names, "machine", "code"])


def stream(master: str, url: str, lake: str, finish: str) -> None:
    from pyspark.sql.types import StringType, StructField, StructType

    spark = spark_session(master, "relay")
    spark.sparkContext.setLogLevel("ERROR")
    source = spark.readStream.format("sievemq").options(url=url, destination="queue:in", tap="relay")
    frame = source.option("maxMessagesPerTrigger", 500).load()
    more = [StructField(name, StringType()) for name in ("machine", "code")]
    rows = frame.mapInArrow(stamped, StructType([*frame.schema.fields, *more]))
    relay = rows.writeStream.format("sievemq").options(url=url, destination="queue:out")
    relay = relay.option("checkpointLocation", f"{lake}/checkpoints/relay")

    def archive() -> None:
        done = archive_stream(spark, url, "queue:in", f"{lake}/archive", tap="audit")
        print(json.dumps({"archived": done.added}), flush=True)

    query = relay.trigger(processingTime="1 second").start()
    while not Path(finish).exists():
        archive()
        if not query.isActive:
            query.awaitTermination()  # raises why
    query.stop()
    relay.trigger(availableNow=True).start().awaitTermination()
    archive()
    spark.stop()


def audit(master: str, lake: str, rows: str) -> None:
    spark = spark_session(master, "audit")
    spark.sparkContext.setLogLevel("ERROR")
    found = read_archive(spark, f"{lake}/archive").selectExpr("properties['n'].l", "body_text", "message_id").collect()
    Path(rows).write_text(json.dumps([list(row) for row in found]))
    spark.stop()


if __name__ == "__main__":
    {"stream": stream, "audit": audit}[sys.argv[1]](*sys.argv[2:])
