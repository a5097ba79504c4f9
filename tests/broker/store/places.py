"""``sievemq broker``, which stops itself (SIGSTOP) at a place of its work that a file names.

    python -m tests.broker.store.places FILE broker --store …

The file has the name of a place while the broker is to stop there; the broker removes it, and stops. STORE_VERSION in
the environment is the version of the tables that the broker knows.
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
from sievemq_broker.domain.saved import SavedBatch, SavedState
from sievemq_broker.store import postgres, postgres_connection, postgres_rows

#: Before a write is sent; between its calls, while it holds the lock of the shard; when what commits it was sent, and
#: no answer was read; when it is stored, and no client was told; amid the restore.
PLACES = ("before", "between", "sent", "stored", "restore")

#: Batches that are read before the stop.
FEW = 3


class Places:
    """Stops the process."""

    def __init__(self, file: Path) -> None:
        self._file = file
        #: True while a write is under way; and its statement.
        self.writing = False
        self.statement = ""

    def wants(self, place: str) -> bool:
        try:
            return self._file.read_text(encoding="utf-8") == place
        except OSError:
            return False

    def reached(self, place: str) -> None:
        if self.wants(place):
            self._file.unlink()
            os.kill(os.getpid(), signal.SIGSTOP)


def install(places: Places) -> None:
    """Have the broker of this process stop at places."""
    write, batches = postgres.PostgresStore.write, postgres.PostgresStore.batches
    execute, wait = postgres_connection.Connection.execute, postgres_connection.Connection.wait
    call_bytes = postgres_rows._CALL_BYTES

    def writes(self: Any, *arguments: Any) -> None:
        places.reached("before")
        # So that a write takes several calls however small it is.
        postgres_rows._CALL_BYTES = 0 if places.wants("between") else call_bytes  # type: ignore[misc]
        places.writing = True
        try:
            write(self, *arguments)
        finally:
            places.writing = False
        places.reached("stored")

    def restores(self: Any) -> Iterator[tuple[SavedBatch, SavedState | None]]:
        for number, batch in enumerate(batches(self)):
            if number == FEW:
                places.reached("restore")
            yield batch
        places.reached("restore")  # where there are less

    def executes(self: Any, statement: Any, *arguments: Any, **more: Any) -> Any:
        before, places.statement = places.statement, str(statement)
        if places.writing and before == postgres._WRITE and _is_amid(self):
            places.reached("between")
        return execute(self, statement, *arguments, **more)

    def waits(self: Any, gen: Generator[Any, Any, Any], *arguments: Any, **more: Any) -> Any:
        amid = _is_amid(self)
        if places.writing and not places.statement.startswith("BEGIN") and amid == (places.statement == "COMMIT"):
            gen = _stopping(gen, lambda: places.reached("sent"))
        return wait(self, gen, *arguments, **more)

    postgres.PostgresStore.write = writes  # type: ignore[method-assign]
    postgres.PostgresStore.batches = restores  # type: ignore[method-assign]
    postgres_connection.Connection.execute = executes  # type: ignore[method-assign]
    postgres_connection.Connection.wait = waits  # type: ignore[method-assign]


def _is_amid(connection: Any) -> bool:
    return bool(connection.info.transaction_status == TransactionStatus.INTRANS)


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
    postgres_connection.FORMAT = int(os.environ.get("STORE_VERSION", postgres_connection.FORMAT))  # type: ignore[misc]
    main()
