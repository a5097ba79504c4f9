"""Takes the waiting messages of queues as one batch: read, written, and only then removed."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from sievemq_spark.errors import DataLossError
from sievemq_spark.options import ReadOptions

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from sievemq_spark.links import Link
    from sievemq_spark.offsets import Place
    from sievemq_spark.tap_reader import Source


@contextmanager
def drain(
    spark: SparkSession,
    url: str,
    destinations: str | Sequence[str],
    *,
    tap: str,
    user: str | None = None,
    password: str | None = None,
    selector: str | None = None,
    dialect: str = "jakarta",
    columns: str = "",
    lease: int | None = None,
    fail_on_missing: bool = True,
) -> Iterator[DataFrame]:
    """The waiting messages of queues as a DataFrame; removed if the block ends without an error, else they stay.

        with drain(spark, url, "queue:orders", tap="nightly") as orders:
            orders.write.parquet(path)

    The DataFrame shows the same messages however often it is used inside the block. If the block raises, nothing is
    acknowledged: the next drain under the same name shows them again, or after the lease they are back on their queue,
    marked as redelivered.

    Args:
        spark: the session.
        url: the broker, or one URL for each of several shards, with commas between.
        destinations: queues.
        tap: name of the taps that take them; no other program may use it.
        user, password: credentials.
        selector, dialect: only messages for which it is true; the others stay.
        columns: properties with a column of their own.
        lease: ms that the block may take; the broker's ten minutes if not given.
        fail_on_missing: raise if a queue is not there; False shows nothing of it.

    Raises:
        DataLossError: the block took longer than the lease; the messages are on their queues again.
        JMSException: a broker cannot be reached.
        NoDestinationError: a queue is not there.
        PipelineError, InvalidSelectorException, InvalidURLException: an argument is wrong.
    """
    from sievemq_spark.shards import Shards
    from sievemq_spark.tap_reader import sources, taken  # needs PySpark, which may be missing

    names = destinations if isinstance(destinations, str) else ",".join(destinations)
    given = {"url": url, "destination": names, "tap": tap, "mode": "drain", "dialect": dialect, "columns": columns}
    given["failOnMissing"] = str(fail_on_missing).lower()
    more = {"user": user, "password": password, "selector": selector, "lease": lease}
    given |= {name: str(value) for name, value in more.items() if value is not None}
    options = ReadOptions.read({name.lower(): value for name, value in given.items()})
    shards = Shards(options)
    read = sources(options, shards)
    try:
        name = str(uuid.uuid4())  # of this drain, as the only reader of its taps
        held = [(source, *taken(options, source, shards.link(source.shard), name)) for source in read]
        ranges = {source.key: [place.tap, place.seq, upto] for source, place, upto in held}
        yield spark.read.format("sievemq").options(**given, tapRanges=json.dumps(ranges)).load()
        for source, place, upto in held:
            _acknowledge(shards.link(source.shard), source, place, upto)
    finally:
        for source in read:
            shards.link(source.shard).close()


def _acknowledge(link: Link, source: Source, place: Place, upto: int) -> None:
    state = link.ask(lambda connection: source.tap(connection, place.tap).acknowledge(upto))
    if state.lost > place.seq:
        raise DataLossError(
            f"{source} was not heard of for its lease and gave its messages {place.seq + 1} to {state.lost} back "
            "to the queue: they will be read again. Give drain() a longer lease"
        )
