"""Carrying a streaming query to its end, on a busy machine too."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

__all__ = ["SLOW_WORKER", "run_to_end"]

SLOW_WORKER: Final = "Python worker failed to connect back"
"""What Spark says if the process in which a Python source is planned has not started within ten seconds. No setting
makes that longer, and nothing has been read or written by then."""

_TRIES: Final = 10


def run_to_end(start: Callable[[], StreamingQuery]) -> StreamingQuery:
    """Start a query that ends by itself, and wait for its end. Started again if Spark gave up on a slow worker.

    Args:
        start: of a writer with the trigger ``availableNow`` and a checkpoint.

    Raises:
        StreamingQueryException: it failed.
    """
    for tries_left in range(_TRIES - 1, -1, -1):
        query = start()
        try:
            query.awaitTermination()
            break
        except Exception as error:
            if SLOW_WORKER not in str(error) or not tries_left:
                raise
    return query
