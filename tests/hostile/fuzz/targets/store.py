"""A data directory in which bytes were changed, cut off or added: it opens, or says so by one of the store's errors."""

from __future__ import annotations

import io
import shutil
import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from tests.broker.store.support import NOW, message

from sievemq_broker.domain.broker import Broker
from sievemq_broker.domain.failure import NOBODY
from sievemq_broker.domain.ports import Stored
from sievemq_broker.domain.restore import restore
from sievemq_broker.domain.store import StoreError
from sievemq_broker.store import SqliteStore
from sievemq_broker.store.salvage import check, export, repair
from sievemq_broker.store.sqlite_rows import DirectoryRows

RESERVE = 4_096


class Port:
    """Takes everything."""

    def __init__(self) -> None:
        self.writable = True
        self.needs: list[Stored] = []
        self.party = NOBODY

    def deliver(self, *_: object) -> None: ...
    def deliver_row(self, consumer_id: int, tag: int, row: list[bytes]) -> int:
        return len(row)

    def recall(self, *_: object) -> None: ...
    def closed(self, *_: object) -> None: ...
    def settled(self, *_: object) -> None: ...


@cache
def _folder() -> Path:
    return Path(tempfile.mkdtemp(prefix="sievemq-fuzz-"))


@cache
def _files() -> dict[str, bytes]:
    """A small store, as it was left by a broker that was killed: with a log beside the database."""
    folder = _folder() / "made"
    store = SqliteStore(folder, "name", reserve=RESERVE)
    try:
        broker = Broker()
        restore(broker, store, NOW)
        space = broker.namespace("n")
        for number in range(6):
            space.send("queue:q", message(f"m{number}", priority=number, text="x" * number), NOW)
            space.send("topic:t", message(f"t{number}"), NOW)
            if number == 2:
                space.declare("topic:t")
                consumer = space.open_consumer(
                    Port(), 1, "topic:t", None, connection="c", client_id="id", subscription="s", durable=True,
                    shared=False, credit=2, now=NOW,
                )  # fmt: skip
            assert broker.journal is not None
            store.write(broker.journal.cut(), NOW)
        consumer.acknowledge(1, NOW)
        store.write(broker.journal.cut(), NOW)
        return {
            str(path.relative_to(folder)): path.read_bytes().rstrip(
                b"\0"
            )  # files are made longer ahead of their writes
            for path in sorted(folder.rglob("*"))
            if path.name == "witness" or path.parent.name == "tail" or path.suffix in (".db", ".db-wal")
        }
    finally:
        store.close()


def close() -> None:
    """Remove the folders."""
    shutil.rmtree(_folder())
    _folder.cache_clear()


def seeds() -> Iterator[bytes]:
    for number in range(len(_files())):
        yield bytes([number, 0, 0, 0, 0])
        yield bytes([number, 0, 0, 60, 4]) + b"\0\0\0\1"
        yield bytes([number, 0, 16, 100, 2]) + b"\xff\xff"
        yield bytes([number | 128, 0, 0, 30, 0])


def run(data: bytes) -> None:
    """Changes: a byte for the file (128 more: cut off there), three for the place, one for the length, the bytes."""
    files = {name: bytearray(content) for name, content in _files().items()}
    names = list(files)
    at = 0
    while at + 5 <= len(data):
        which, place, size = data[at], int.from_bytes(data[at + 1 : at + 4], "big"), data[at + 4]
        content = files[names[(which & 127) % len(names)]]
        place %= len(content) + 1
        if which & 128:
            del content[place:]
        else:
            new = data[at + 5 : at + 5 + size]
            content[place : place + len(new)] = new
        at += 5 + size
    directory = _folder() / "data"
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir()
    for name, content in files.items():
        (directory / name).parent.mkdir(exist_ok=True)
        (directory / name).write_bytes(content)
    _looked_at(directory)
    opened = _opened(directory)
    if not opened:
        try:
            report = repair(directory, lambda: "name")
        except StoreError:
            return
        if report.findings:
            assert _opened(directory), "repaired, and does not open"


def _looked_at(directory: Path) -> None:
    for act in (check, lambda where: export(where, io.StringIO().write)):
        try:
            act(DirectoryRows(directory))
        except StoreError:
            pass


def _opened(directory: Path) -> bool:
    try:
        store = SqliteStore(directory, "name", reserve=RESERVE)
    except StoreError:
        return False
    try:
        broker = Broker()
        restore(broker, store, NOW)
    except StoreError:
        return False
    finally:
        store.close()
    return True
