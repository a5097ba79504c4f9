"""The store of a broker, which writes nothing while it is held."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from sievemq_broker import EmbeddedBroker

DEADLINE = 60


class Disk:
    """Stands before a broker's store.

    Attributes:
        writing: a write has begun that waits.
    """

    def __init__(self, broker: EmbeddedBroker) -> None:
        store: Any = broker.server.shard.commits._store  # type: ignore[union-attr]
        self._write = store.write
        self.writing, self.may_write = threading.Event(), threading.Event()
        self.may_write.set()
        broker.call(lambda _: setattr(store, "write", self.write))

    def write(self, *arguments: Any) -> None:
        if not self.may_write.is_set():
            self.writing.set()
            assert self.may_write.wait(DEADLINE)
        self._write(*arguments)

    @contextmanager
    def held(self) -> Iterator[None]:
        self.may_write.clear()
        try:
            yield
        finally:
            self.may_write.set()
