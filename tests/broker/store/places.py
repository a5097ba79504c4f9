"""``sievemq broker``, which stops itself (SIGSTOP) at a place of its work that a file names.

    python -m tests.broker.store.places FILE broker --store …

The file has the name of a place while the broker is to stop there; the broker removes it, and stops.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any

from psycopg.pq import TransactionStatus

from sievemq.cli import main
from sievemq_broker.domain.store import SavedEntry
from sievemq_broker.store import postgres, postgres_connection

#: Before a write is sent; between the calls of one that takes several; when what commits it was sent, and no answer was
#: read; when it is stored, and no client was told; amid the restore.
PLACES = ("before", "between", "sent", "stored", "restore")

#: Messages that are restored before the stop.
FEW = 3


class Places:
    """Stops the process."""

    def __init__(self, file: Path) -> None:
        self._file = file
        #: True while a write is under way; and its statement.
        self.writing = False
        self.statement = ""

    def reached(self, place: str) -> None:
        try:
            wanted = self._file.read_text(encoding="utf-8")
        except OSError:
            return
        # A write of one call has no place between its calls: it stops when it is stored.
        if wanted == place or (wanted == "between" and place == "stored"):
            self._file.unlink()
            os.kill(os.getpid(), signal.SIGSTOP)


def install(places: Places) -> None:
    """Have the broker of this process stop at places."""
    write, entries = postgres.PostgresStore.write, postgres.PostgresStore.entries
    execute, wait = postgres_connection.Connection.execute, postgres_connection.Connection.wait

    def writes(self: Any, *arguments: Any) -> None:
        places.reached("before")
        places.writing = True
        try:
            write(self, *arguments)
        finally:
            places.writing = False
        places.reached("stored")

    def restores(self: Any) -> Iterator[SavedEntry]:
        for number, entry in enumerate(entries(self)):
            if number == FEW:
                places.reached("restore")
            yield entry
        places.reached("restore")  # where there are less

    def executes(self: Any, statement: Any, *arguments: Any, **more: Any) -> Any:
        places.statement = str(statement)
        if places.writing and self.info.transaction_status == TransactionStatus.INTRANS:
            places.reached("between")
        return execute(self, statement, *arguments, **more)

    def waits(self: Any, gen: Generator[Any, Any, Any], *arguments: Any, **more: Any) -> Any:
        amid = self.info.transaction_status == TransactionStatus.INTRANS
        if places.writing and not places.statement.startswith("BEGIN") and amid == (places.statement == "COMMIT"):
            gen = _stopping(gen, lambda: places.reached("sent"))
        return wait(self, gen, *arguments, **more)

    postgres.PostgresStore.write = writes  # type: ignore[method-assign]
    postgres.PostgresStore.entries = restores  # type: ignore[method-assign]
    postgres_connection.Connection.execute = executes  # type: ignore[method-assign]
    postgres_connection.Connection.wait = waits  # type: ignore[method-assign]


def _stopping(gen: Generator[Any, Any, Any], stop: Callable[[], None]) -> Generator[Any, Any, Any]:
    """The same generator, stopped once it waits for an answer: what it had to send is with the system."""
    try:
        wants = next(gen)
        stop()
        while True:
            ready = yield wants
            wants = gen.send(ready)
    except StopIteration as done:
        return done.value


if __name__ == "__main__":
    install(Places(Path(sys.argv.pop(1))))
    main()
