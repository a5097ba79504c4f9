"""A driver of its own: streams a queue of one or more brokers into another of the first one until everything is there.
Killed and started again by tests.

    python relay.py [--master MASTER] [--fail-once FILE] [--kill-once FILE] FOLDER URL…

The files are not there yet: the first task that finds one missing makes it, and in the middle of its rows raises, or
kills the whole executor that it runs in.
"""

from __future__ import annotations

import argparse
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sievemq_spark import spark_session


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder")
    parser.add_argument("urls", nargs="+")
    parser.add_argument("--master", default="local[2,3]")
    parser.add_argument("--fail-once", default="")
    parser.add_argument("--kill-once", default="")
    chosen = parser.parse_args()
    settings = {"spark.sql.shuffle.partitions": 2, "spark.driver.memory": "1g", "spark.executor.memory": "512m"}
    spark = spark_session(chosen.master, settings=settings)
    spark.sparkContext.setLogLevel("OFF")
    source = spark.readStream.format("sievemq").options(url=", ".join(chosen.urls), destination="queue:in", tap="relay")
    frame = source.option("maxMessagesPerTrigger", 40).load()
    fail_once, kill_once = chosen.fail_once, chosen.kill_once

    def stumble(batches: Iterator[Any]) -> Iterator[Any]:
        for batch in batches:
            yield batch.slice(0, 10)
            if fail_once and not Path(fail_once).exists():
                Path(fail_once).touch()
                raise RuntimeError("the executor fails in the middle of its rows")
            if kill_once and not Path(kill_once).exists():
                Path(kill_once).touch()
                fork_server = Path(f"/proc/{os.getppid()}/stat").read_text().rpartition(")")[2]
                os.kill(int(fork_server.split()[1]), signal.SIGKILL)  # whose parent is the executor's JVM
                signal.pause()
            yield batch.slice(10)

    frame = frame.mapInArrow(stumble, frame.schema)
    writer = frame.writeStream.format("sievemq").options(url=chosen.urls[0], destination="queue:out")
    writer.option("checkpointLocation", chosen.folder).trigger(availableNow=True).start().awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main()
