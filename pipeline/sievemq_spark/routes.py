"""Which of several shards a row is written to."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import repeat

import pyarrow as pa

from sievemq import JMSException
from sievemq.url import parse_url
from sievemq_spark.errors import PipelineError
from sievemq_spark.links import is_lost


class Routes:
    """The URLs of a write, for one of its tasks.

    A row goes to the URL whose namespace is in its column ``namespace``: each namespace is in one shard. Where several
    URLs have it, or the row names none, it goes to the one that leads to the shard in its column ``shard``.

    Args:
        urls: of the option.
        shard_at: connects to the URL of this number, and returns the name of the shard there.
    """

    def __init__(self, urls: Sequence[str], shard_at: Callable[[int], str]) -> None:
        self._namespaces = [parse_url(url).namespace for url in urls]
        self._shard_at = shard_at
        self._known: dict[tuple[str | None, str | None], int] = {}

    def of(self, batch: pa.RecordBatch, first: int) -> Iterator[int]:
        """The number of the URL of each row.

        Args:
            first: number of the first row in its partition.

        Raises:
            PipelineError: no URL fits a row; names it.
            JMSException: a shard cannot be reached, which may be the row's.
        """
        if len(self._namespaces) == 1:
            yield from repeat(0, batch.num_rows)
            return
        namespaces, shards = (
            batch.column(name).to_pylist() if name in batch.schema.names else [None] * batch.num_rows
            for name in ("namespace", "shard")
        )
        for place, where in enumerate(zip(namespaces, shards, strict=True), start=first):
            found = self._known.get(where)
            if found is None:
                found = self._known[where] = self._find(*where, place)
            yield found

    def _find(self, namespace: str | None, shard: str | None, place: int) -> int:
        near = [number for number, name in enumerate(self._namespaces) if namespace is None or name == namespace]
        if len(near) == 1:
            return near[0]
        away: JMSException | None = None
        found = []
        for number in near:
            try:
                found.append(self._shard_at(number))
            except JMSException as error:
                if not is_lost(error):
                    raise
                away = error
                continue
            if found[-1] == shard:
                return number
        if away is not None and shard is not None:
            raise away
        there = f", which lead to the shards {', '.join(sorted(set(found)))}" if found else ""
        raise PipelineError(
            f"row {place} of this partition fits none of the URLs of the option 'url'{there}: its columns are "
            f"namespace {namespace!r} and shard {shard!r}"
        )
