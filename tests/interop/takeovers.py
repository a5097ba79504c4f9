"""Clients that others wrote, whose broker changes: two brokers share a database, and the one that serves fails.

A client sends to a queue and receives from it. Every message whose send was confirmed has to arrive. One may come twice
without a mark only if its sender sent it twice, because the first confirm was lost: at most one in each fault.

    the client's environment   BROKERS: host:port of both, in one word
    what it writes             `sent N` when the send of N is confirmed; `got N`, or `again N` with the mark of a
                               redelivery; after a line of input `all N`, with the number of messages, and it goes on
                               to receive until it is killed
"""

from __future__ import annotations

import os
import subprocess
import threading
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from tests.broker.store.kill import folder_for
from tests.broker.store.takeover import Pair
from tests.interop.fetch import MissingError
from tests.interop.results import Result
from tests.postgres import Database, Server

#: Messages that are confirmed before each fault, and after the last one; seconds for each wait.
_BETWEEN, _LONGEST = 50, 60.0


class _Client:
    """A program of a client, and what it has written."""

    def __init__(self, command: Sequence[str | Path], pair: Pair) -> None:
        brokers = ",".join(f"127.0.0.1:{broker.port}" for broker in pair.brokers)
        self._process = subprocess.Popen(
            [str(word) for word in command], env={**os.environ, "BROKERS": brokers}, text=True, stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip
        self._changed = threading.Condition()
        self.sent: set[str] = set()
        self.got: Counter[str] = Counter()
        self.again: Counter[str] = Counter()
        self.all: int | None = None
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            word, _, number = line.strip().partition(" ")
            with self._changed:
                match word:
                    case "sent":
                        self.sent.add(number)
                    case "got":
                        self.got[number] += 1
                    case "again":
                        self.again[number] += 1
                    case "all":
                        self.all = int(number)
                self._changed.notify_all()

    def await_sent(self, more: int) -> None:
        with self._changed:
            wanted = len(self.sent) + more
            assert self._changed.wait_for(lambda: len(self.sent) >= wanted, _LONGEST), f"stuck at {len(self.sent)}"

    def finish(self) -> None:
        """Have it send no more, and wait until all has arrived."""
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        with self._changed:
            self._changed.wait_for(lambda: self.all is not None and self.sent <= self.seen, _LONGEST)

    @property
    def seen(self) -> set[str]:
        return set(self.got) | set(self.again)

    def end(self) -> str:
        self._process.kill()
        _, errors = self._process.communicate()
        return errors


def takeovers(command: Sequence[str | Path]) -> list[Result]:
    """The results: a line for each kind of fault."""
    try:
        server = Server()
    except RuntimeError as error:
        raise MissingError(str(error)) from error
    try:
        server.start()
        database = Database(server)
        return [_outcome(command, database, kind) for kind in ("kill", "pause", "stop")]
    finally:
        server.close()


def _outcome(command: Sequence[str | Path], database: Database, kind: str) -> Result:
    name = f"nothing confirmed is lost over two faults: {kind}"
    try:
        with folder_for("takeovers") as folder:
            _play(command, database, kind, folder)
    except Exception as error:
        return Result(name, passed=False, detail=f"{type(error).__name__}: {error}")
    return Result(name, passed=True)


def _play(command: Sequence[str | Path], database: Database, kind: str, folder: Path) -> None:
    pair = Pair(1, database, folder, (kind,), database.shard())
    client = None
    try:
        pair.start()
        client = _Client(command, pair)
        faults = 2
        for _ in range(faults):
            client.await_sent(_BETWEEN)
            pair.disturb()
        client.await_sent(_BETWEEN)
        client.finish()
    finally:
        errors = "" if client is None else client.end()
        pair.end()
    lost = client.sent - client.seen
    twice = sum(count - 1 for count in client.got.values())
    assert not pair.accounts.faults, pair.accounts.faults
    assert not lost, f"{len(lost)} of {len(client.sent)} are lost: {sorted(lost)[:5]}; {errors[-300:]}"
    assert twice <= faults, f"{twice} came twice without a mark"
