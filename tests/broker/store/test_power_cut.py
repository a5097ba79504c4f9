"""A power cut: whatever was not synced may be lost, in part or torn, and nothing that was confirmed may be.

SQLite runs here over a file layer that writes down every write, truncation and sync. At a random point of that record
the power goes: of each file there is what was synced, and of what was written since a random part, sector by sector.
The store is opened on such files as any broker would, and must be what it was after some batch: not before the last one
that was confirmed, and not behind the last one that was begun.
"""

from __future__ import annotations

import random
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import apsw
import pytest

from sievemq_broker.domain.journal import HELD_FLAG, PLACE_BITS, Batch
from sievemq_broker.store import SqliteStore
from sievemq_broker.store.database import DATABASE
from sievemq_broker.store.files import Witness, sync_directory

from .support import DictStore, message, parts_with, saved_in, write

SECTOR = 512


@dataclass
class Record:
    """What was done to files, in order, and when which batch was begun and confirmed."""

    events: list[tuple[str, str, int, bytes]] = field(default_factory=list)

    def note(self, file: str, what: str, at: int = 0, data: bytes = b"") -> None:
        self.events.append((file, what, at, data))

    def cut(self, at: int, chance: random.Random, folder: Path) -> tuple[int, int]:
        """Make the files of a power cut before event `at`; the batches confirmed and begun by then."""
        safe: dict[str, bytearray] = {}
        loose: dict[str, list[tuple[str, int, bytes]]] = {}
        #: Deleted, and the directory not synced since: it may be there again.
        doubtful: dict[str, tuple[bytearray, list[tuple[str, int, bytes]]]] = {}
        confirmed = begun = 0
        for file, what, offset, data in self.events[:at]:
            if what == "begun":
                begun = offset
            elif what == "confirmed":
                confirmed = offset
            elif what == "sync":
                content = safe.setdefault(file, bytearray())
                for each in loose.pop(file, ()):
                    _apply(content, *each)
            elif what == "deleted":
                doubtful[file] = (safe.pop(file, bytearray()), loose.pop(file, []))
            elif what == "directory":
                doubtful.clear()
            else:
                loose.setdefault(file, []).append((what, offset, data))
        for file, (content, writes) in doubtful.items():
            if file not in safe and file not in loose and chance.random() < 0.5:
                safe[file], loose[file] = content, writes
        for file, writes in loose.items():
            content = safe.setdefault(file, bytearray())
            share = chance.choice((0.0, 0.5, 0.9, 1.0))
            for what, offset, data in writes:
                if what == "truncate":
                    if chance.random() < share:
                        _apply(content, what, offset, data)
                    continue
                for start in range(0, len(data), SECTOR):
                    if chance.random() < share:
                        _apply(content, what, offset + start, data[start : start + SECTOR])
        for file, content in safe.items():
            (folder / file).write_bytes(content)
        return confirmed, begun


def _apply(content: bytearray, what: str, offset: int, data: bytes) -> None:
    if what == "truncate":
        del content[offset:]
        content.extend(bytes(offset - len(content)))
        return
    content.extend(bytes(max(0, offset + len(data) - len(content))))
    content[offset : offset + len(data)] = data


def recording(record: Record) -> Any:
    """An SQLite file layer that writes down what is done."""

    class File(apsw.VFSFile):  # type: ignore[misc]
        def __init__(self, name: Any, flags: list[int]) -> None:
            path = name.filename() if isinstance(name, apsw.URIFilename) else name
            self.name = Path(path).name
            super().__init__("", name, flags)

        def xWrite(self, data: bytes, offset: int) -> None:
            record.note(self.name, "write", offset, bytes(data))
            super().xWrite(data, offset)

        def xTruncate(self, size: int) -> None:
            record.note(self.name, "truncate", size)
            super().xTruncate(size)

        def xSync(self, flags: int) -> None:
            super().xSync(flags)
            record.note(self.name, "sync")

    class Layer(apsw.VFS):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__("recording", "", iVersion=2)

        def xOpen(self, name: Any, flags: list[int]) -> Any:
            return File(name, flags)

        def xDelete(self, name: str, sync: bool) -> None:
            super().xDelete(name, sync)
            record.note(Path(name).name, "deleted")
            if sync:
                record.note(".", "directory")

    return Layer()


class RecordedWitness(Witness):
    """Its writes are not synced, so they may be lost; each is one sector."""

    __slots__ = ("record",)

    def write(self, sequence: int) -> None:
        super().write(sequence)
        self.record.note("witness", "write", 0, self.path.read_bytes())

    def open(self, sequence: int) -> None:
        super().open(sequence)
        self.record.note("witness", "sync")
        self.record.note(".", "directory")


def opened(record: Record, folder: Path) -> SqliteStore:
    """A store whose writes are written down."""

    def witness(path: Path) -> RecordedWitness:
        made = RecordedWitness(path)
        made.record = record
        return made

    def directory(path: Path) -> None:
        sync_directory(path)
        record.note(".", "directory")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sievemq_broker.store.sqlite.sync_directory", directory)
        patch.setattr("sievemq_broker.store.sqlite.Witness", witness)
        return SqliteStore(folder, "name", reserve=0, opener=lambda path: apsw.Connection(str(path), vfs="recording"))


def live(record: Record, folder: Path, chance: random.Random, *, in_order: bool = True) -> list[DictStore]:
    """A store of some dozens of batches, small and large ones, with checkpoints and a second owner that takes over from
    one that has ended in order or not, and ends itself in order or not; what it was after each batch."""
    layer = recording(record)
    moments = [DictStore()]
    numbers: list[int] = []
    for life in range(2):
        store = opened(record, folder)
        store._execute(f"PRAGMA wal_autocheckpoint = {chance.choice((4, 20, 1000))}")
        next_batch = store.next_batch
        late: list[Batch] = []
        for step in range(25):
            batch = Batch(next_batch)
            next_batch += 1
            sizes = chance.choice(((0, 100), (0, 100, 3_000, 20_000)))
            for place in range(chance.randrange(6)):
                body = b"x" * chance.choice(sizes)
                batch.accepted.append((1, message(f"m{life}.{step}.{place}", body=body).packed))
            parts = parts_with(batch, late, chance)
            if not parts:
                continue
            numbers += [part.base | place for part in parts for place in range(len(part.accepted))]
            for number in chance.sample(numbers, min(len(numbers), chance.randrange(4))):
                if chance.random() < 0.6:
                    batch.gone.append(number)
                    numbers.remove(number)
                elif number >> PLACE_BITS != batch.id:
                    batch.states[number] = chance.choice((1, 2, HELD_FLAG))
            batch.definitions["kind", (chance.randrange(3),)] = (life, step)
            after = moments[-1].copy()
            write(after, *parts)
            moments.append(after)
            record.note("", "begun", len(moments) - 1)
            write(store, *parts)
            record.note("", "confirmed", len(moments) - 1)
        if in_order if life else chance.random() < 0.5:
            store.close()
        else:
            store.abandon()
    del layer
    return moments


@pytest.mark.parametrize("cuts", [60, pytest.param(1_000, marks=[pytest.mark.slow, pytest.mark.timeout(600)])])
def test_confirmed_messages_survive_a_power_cut(tmp_path: Path, cuts: int) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    record = Record()
    (tmp_path / "live").mkdir()
    moments = live(record, tmp_path / "live", chance)
    first = next(at for at, event in enumerate(record.events) if event[1] == "confirmed")
    partial = 0
    for number in range(cuts):
        folder = tmp_path / f"cut{number}"
        folder.mkdir()
        at = chance.randrange(first + 1, len(record.events) + 1)
        confirmed, begun = record.cut(at, chance, folder)
        store = SqliteStore(folder, reserve=0)
        found = (saved_in(store), dict(store.definitions("kind")))
        store.close()
        explained = [
            moment
            for moment in range(confirmed, begun + 1)
            if (saved_in(moments[moment]), dict(moments[moment].definitions("kind"))) == found
        ]
        assert explained, f"cut before event {at} of {len(record.events)}: {confirmed} batches were confirmed"
        partial += begun > confirmed
        shutil.rmtree(folder)
    assert partial, "no cut fell into a write"


def test_the_recording_matches_the_files(tmp_path: Path) -> None:
    """With nothing lost the files of the record are those on disk."""
    record = Record()
    folder = tmp_path / "live"
    folder.mkdir()
    live(record, folder, random.Random(1), in_order=False)
    made = tmp_path / "made"
    made.mkdir()
    for file in (DATABASE, "witness"):
        record.note(file, "sync")
    record.note(".", "directory")
    record.cut(len(record.events), random.Random(1), made)
    for file in (DATABASE, "witness"):
        assert (made / file).read_bytes() == (folder / file).read_bytes()
