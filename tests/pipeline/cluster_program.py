"""Run by test_cluster.py: reads a queue, archives, asks and replays on the master that is named."""

from __future__ import annotations

import json
import sys

from sievemq_spark import spark_session, where
from sievemq_spark.archive import archive, read_archive, read_queues
from sievemq_spark.backtest import backtest
from sievemq_spark.replay import replay


def main(master: str, url: str, path: str) -> None:
    spark = spark_session(master, settings={"spark.executor.memory": "512m"})
    spark.sparkContext.setLogLevel("OFF")
    queues = read_queues(spark, url, "one,two")  # a partition each
    done = archive(spark, queues, path)
    frame = read_archive(spark, path)
    result = backtest(frame, ["n > 10", "missing = 1"])
    sent = replay(frame, url, destination="queue:again", selector="n <= 10", partitions=2).sent
    workers = frame.filter(where("n > 10")).rdd.mapPartitions(lambda rows: [sum(1 for _ in rows)]).collect()
    print(json.dumps([done.seen, done.added, [line.matched for line in result.results], sent, sum(workers)]))
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
