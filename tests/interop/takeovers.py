"""Clients that others wrote, whose broker changes: two brokers share a database, and the one that serves fails; or
three shards are on four brokers, and the owner of the client's namespace fails.

A client sends to a queue and receives from it. Every message whose send was confirmed has to arrive. One may come twice
without a mark only if its sender sent it twice, because the first confirm was lost: at most one in each fault.

Of several shards a client knows a broker alone that has another one: it finds the owner of its namespace by redirects.

    the client's environment   BROKERS: host:port of those that it knows, in one word
                               NAMESPACE: its own, for the host name of the protocol; LOGIN: its user, whose name may
                               name the namespace instead. Either may be empty
    what it writes             `sent N` when the send of N is confirmed; `got N`, or `again N` with the mark of a
                               redelivery; after a line of input `all N`, with the number of messages, and it goes on
                               to receive until it is killed
"""

from __future__ import annotations

import os
import subprocess
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from tests.broker.store.cluster import NAMESPACES, SHARDS, Cluster
from tests.broker.store.kill import folder_for
from tests.broker.store.takeover import Pair, Process, serving
from tests.interop.fetch import MissingError
from tests.interop.results import Result
from tests.postgres import Database, binaries

#: Messages that are confirmed before each fault, and after the last one; seconds for each wait.
_BETWEEN, _LONGEST = 50, 60.0
#: Faults that a client goes through.
_FAULTS = 2
#: That clients use.
_QUEUE = "orders"
#: The namespace of clients of several shards, and the shard that has it.
_NAMESPACE, _SHARD = NAMESPACES[0], SHARDS[0]
#: Faults of the owner of several shards, and how the client names the namespace: the variables NAMESPACE, LOGIN.
_REDIRECTED = (("kill", _NAMESPACE, ""), ("pause", _NAMESPACE, ""), ("stop", "", f"ann@{_NAMESPACE}"))


class _Client:
    """A program of a client, and what it has written."""

    def __init__(
        self, command: Sequence[str | Path], brokers: Sequence[Process], namespace: str = "", login: str = ""
    ) -> None:
        hosts = ",".join(f"127.0.0.1:{broker.port}" for broker in brokers)
        environment = {**os.environ, "BROKERS": hosts, "NAMESPACE": namespace, "LOGIN": login}
        self._process = subprocess.Popen(
            [str(word) for word in command], env=environment, text=True, stdin=subprocess.PIPE,
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
    """The results of a client that knows two brokers: a line for each kind of fault."""
    _check_installed()
    with serving(pooled=False) as (database, _):
        return [_outcome(kind, partial(_play_pair, command, database, kind)) for kind in ("kill", "pause", "stop")]


def redirects(command: Sequence[str | Path]) -> list[Result]:
    """The results of a client of several shards, which knows a broker of another one: a line for each kind of fault."""
    _check_installed()
    return [_outcome(given[0], partial(_play_cluster, command, *given)) for given in _REDIRECTED]


def _check_installed() -> None:
    if binaries() is None:
        raise MissingError("PostgreSQL is not installed")


def _outcome(kind: str, play: Callable[[Path], None]) -> Result:
    name = f"nothing confirmed is lost over two faults: {kind}"
    try:
        with folder_for("takeovers") as folder:
            play(folder)
    except Exception as error:
        return Result(name, passed=False, detail=f"{type(error).__name__}: {error}")
    return Result(name, passed=True)


def _play_pair(command: Sequence[str | Path], database: Database, kind: str, folder: Path) -> None:
    pair = Pair(1, database, folder, (kind,), database.shard())
    try:
        pair.start()
        _disturb(pair, command, pair.brokers)
    finally:
        pair.end()


def _play_cluster(command: Sequence[str | Path], kind: str, namespace: str, login: str, folder: Path) -> None:
    with serving(pooled=False, connections=120) as (database, _):
        cluster = Cluster(1, database, folder, (kind,))
        cluster.targets = (_SHARD,)
        try:
            cluster.start()
            _disturb(cluster, command, [cluster.owner_of(SHARDS[-1])], namespace, login)
            with cluster.owner().get(f"/api/v1/namespaces/{_NAMESPACE}/destinations/queue:{_QUEUE}"):
                pass  # it was this namespace that the client has used, and no other one
        finally:
            cluster.end()


def _disturb(
    pair: Pair, command: Sequence[str | Path], known: Sequence[Process], namespace: str = "", login: str = ""
) -> None:
    """Have a client go through faults, and check what has arrived.

    Args:
        pair: the brokers.
        command: of the client.
        known: those brokers that the client knows.
        namespace, login: of the client; see the top of this file.
    """
    client = _Client(command, known, namespace, login)
    try:
        for _ in range(_FAULTS):
            client.await_sent(_BETWEEN)
            pair.disturb()
        client.await_sent(_BETWEEN)
        client.finish()
    finally:
        errors = client.end()
    lost = client.sent - client.seen
    twice = sum(count - 1 for count in client.got.values())
    assert not pair.accounts.faults, pair.accounts.faults
    assert not lost, f"{len(lost)} of {len(client.sent)} are lost: {sorted(lost)[:5]}; {errors[-300:]}"
    assert twice <= _FAULTS, f"{twice} came twice without a mark"
