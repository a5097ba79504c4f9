"""A driver of its own: streams one queue into another until everything is there. Killed and started again by tests.

    python relay.py URL FOLDER [FAIL_ONCE]

FAIL_ONCE names a file that is not there yet: the first task that finds it missing makes it and raises in the middle
of its rows.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sievemq_spark import spark_session


def main(url: str, folder: str, fail_once: str = "") -> None:
    spark = spark_session("local[2,3]", settings={"spark.sql.shuffle.partitions": 2, "spark.driver.memory": "1g"})
    spark.sparkContext.setLogLevel("OFF")
    source = spark.readStream.format("sievemq").options(url=url, destination="queue:in", tap="relay")
    frame = source.option("maxMessagesPerTrigger", 40).load()

    def stumble(batches: Iterator[Any]) -> Iterator[Any]:
        for batch in batches:
            yield batch.slice(0, 10)
            if fail_once and not Path(fail_once).exists():
                Path(fail_once).touch()
                raise RuntimeError("the executor fails in the middle of its rows")
            yield batch.slice(10)

    frame = frame.mapInArrow(stumble, frame.schema)
    query = (
        frame.writeStream.format("sievemq")
        .options(url=url, destination="queue:out", checkpointLocation=folder)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
