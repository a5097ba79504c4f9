"""The rows of a store as they are in its tables, for tools: read while no broker changes them, or written all at once.

The rows of both kinds of store are the same bytes, checksums included, so a copy is one of rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple, Protocol, TypeAlias

from sievemq_broker.domain.store import HistoryLine

Found: TypeAlias = Callable[[str, object], None]
"""Called with each damage, and the bytes that cannot be read, if there are any."""

Kinds: TypeAlias = Mapping[str, Sequence[HistoryLine]]
"""What has happened, by kind, oldest first."""


class Head(NamedTuple):
    """What a store knows of itself.

    Attributes:
        epoch: how many owners it has had; None if that cannot be read.
        writes: the number of its last write.
        next_batch: above the ids of all batches.
        incarnation: the broker's name; empty if that cannot be read.
    """

    epoch: int | None = None
    writes: int = 0
    next_batch: int = 0
    incarnation: str = ""


class Rows(Protocol):
    """An open store whose rows stay as they are until :meth:`close`. What is damaged is reported and passed over."""

    def head(self, found: Found) -> Head:
        """Examine the tables and read the head."""

    def definitions(self, found: Found) -> Iterator[tuple[str, bytes, bytes]]:
        """Kind, packed key and data of each definition."""

    def batches(self, found: Found) -> Iterator[tuple[int, bytes, bytes | Exception | None]]:
        """Id and data of each batch, and the data of its state: None if there is none, or why it cannot be read."""

    def history(self) -> Kinds:
        """What has happened. Raises :exc:`~sievemq_broker.domain.store.StoreError` if it cannot be read."""

    def close(self) -> None: ...


class NewStore(Protocol):
    """A store that is made: all of it is there after :meth:`finish`, or nothing.

    Each method raises :exc:`~sievemq_broker.domain.store.StoreError` or an OSError if it cannot be written.
    """

    def define(self, kind: str, key: bytes, data: bytes) -> None: ...

    def add(self, batch_id: int, data: bytes, state: bytes | None) -> None: ...

    def keep(self, history: Kinds) -> None:
        """Have what has happened before; at most once."""

    def finish(self, head: Head) -> None: ...

    def close(self) -> None: ...
