"""Takes the waiting messages of queues as one batch: read, written, and only then removed."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from sievemq_spark.errors import DataLossError
from sievemq_spark.offsets import Place
from sievemq_spark.options import ReadOptions

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


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
        url: the broker, or several with commas between.
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
    from sievemq_spark.tap_reader import sources, taken  # needs PySpark, which may be missing

    names = destinations if isinstance(destinations, str) else ",".join(destinations)
    given = {"url": url, "destination": names, "tap": tap, "mode": "drain", "dialect": dialect, "columns": columns}
    given["failOnMissing"] = str(fail_on_missing).lower()
    more = {"user": user, "password": password, "selector": selector, "lease": lease}
    given |= {name: str(value) for name, value in more.items() if value is not None}
    options = ReadOptions.read({name.lower(): value for name, value in given.items()})
    links = [source.link(options, known=True) for source in sources(options)]
    try:
        name = str(uuid.uuid4())  # of this drain, as the only reader of its taps
        held = {key: place for source in sources(options) for key, place in taken(options, source, name).items()}
        ranges = {key: [place.tap, place.seq, upto] for key, (place, upto) in held.items()}
        yield spark.read.format("sievemq").options(**given, tapRanges=json.dumps(ranges)).load()
        _acknowledge(options, held)
    finally:
        for link in links:
            link.close()


def _acknowledge(options: ReadOptions, held: dict[str, tuple[Place, int]]) -> None:
    from sievemq.taps import Tap
    from sievemq_spark.tap_reader import sources

    for source in sources(options):
        place, upto = held[source.key]
        state = source.link(options, known=True).ask(
            lambda connection, source=source, place=place, upto=upto: Tap(  # type: ignore[misc]
                connection, source.name, source.destination, place.tap
            ).acknowledge(upto)
        )
        if state.lost > place.seq:
            raise DataLossError(
                f"{source} was not heard of for its lease and gave its messages {place.seq + 1} to {state.lost} back "
                "to the queue: they will be read again. Give drain() a longer lease"
            )
