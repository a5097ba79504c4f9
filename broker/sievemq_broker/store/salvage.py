"""Examines a store from outside: what is damaged, what can be read, and a new store of that.

Nothing here stops at the first fault, and nothing is deleted: a repair moves the files into a folder of their own, and
writes everything that the new store lacks into a file there."""

from __future__ import annotations

import base64
import json
from array import array
from collections.abc import Callable, Collection, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sievemq_broker.domain.journal import (
    CONNECTION,
    DESTINATION,
    HELD_FLAG,
    STAGE,
    SUBSCRIPTION,
    TAP,
    TEMPORARY,
    Key,
)
from sievemq_broker.domain.store import DamagedError
from sievemq_broker.store.blob import Kept, SavedEntry, State, pack_value, unpack_batch, unpack_value
from sievemq_broker.store.database import DATABASE, definition_id
from sievemq_broker.store.files import PRIVATE_DIRECTORY
from sievemq_broker.store.history import KIND
from sievemq_broker.store.rows import Kinds, NewStore, Rows
from sievemq_broker.store.sqlite_rows import DirectoryRows, NewDatabase, write_witness
from sievemq_core.errors import ProtocolError
from sievemq_core.message.envelope import Envelope
from sievemq_core.message.record import record_of


@dataclass(frozen=True, slots=True)
class Report:
    """The result of an examination.

    Attributes:
        messages: that can be read.
        batches: rows they are in.
        definitions: that can be read.
        epoch: how many owners the store has had; None if that cannot be read.
        incarnation: the broker's name; empty if that cannot be read.
        findings: what is damaged, one line each; empty if all is well.
        set_aside: where a repair has put what it left out.
    """

    messages: int = 0
    batches: int = 0
    definitions: int = 0
    epoch: int | None = None
    incarnation: str = ""
    findings: list[str] = field(default_factory=list)
    set_aside: Path | None = None


class _Reader:
    """Reads as much of a store as possible, and reports the rest."""

    def __init__(self, rows: Rows) -> None:
        self._rows = rows
        self.messages = self.count = self.defined = 0
        self.findings: list[str] = []
        #: Parts that could not be read: what it is, why, and its bytes.
        self.damaged: list[tuple[str, str, bytes]] = []
        self.head = rows.head(self.found)

    def report(self, *, homeless: int = 0, set_aside: Path | None = None) -> Report:
        """The findings so far, without the number of messages."""
        return Report(
            self.messages - homeless,
            self.count,
            self.defined,
            self.head.epoch,
            self.head.incarnation,
            self.findings,
            set_aside,
        )

    def found(self, what: str, data: object = b"") -> None:
        self.findings.append(what)
        if data:
            self.damaged.append((what, type(data).__name__, data if isinstance(data, bytes) else repr(data).encode()))

    def definitions(self, without: Collection[str] = ()) -> Iterator[tuple[str, bytes, bytes, Key, Any]]:
        """Rows that can be read, without some kinds: kind, packed key, data, key, value."""
        for kind, key, data in self._rows.definitions(self.found):
            try:
                name, value = unpack_value(f"the definition of {kind} {key!r}", definition_id(kind, key), data)
            except (DamagedError, TypeError, ValueError, AttributeError) as error:
                self.found(f"the definition of {kind!r} {key!r}: {error}", data)
                continue
            if kind not in without:
                self.defined += 1
                yield kind, key, data, name, value

    def history(self) -> Kinds:
        """What has happened; nothing of it if that is damaged."""
        try:
            found = self._rows.history()
        except DamagedError as error:
            self.found(str(error))
            return {}
        wrong = [kind for kind in found if KIND.fullmatch(kind) is None]  # it may lead out of the new directory
        for kind in wrong:
            self.found(f"what has happened: {kind!r:.300} is no kind of it")
        return {} if wrong else found

    def batches(self) -> Iterator[tuple[bytes, Kept, State, bytes | None]]:
        """Batches that can be read: the row, its content, its state, and the row of that, made up where it cannot be
        read."""
        for batch_id, row, packed in self._rows.batches(self.found):
            try:
                kept = unpack_batch(batch_id, row)
            except DamagedError as error:
                self.found(f"{error}", row)
                continue
            state = kept.state()
            try:
                if isinstance(packed, Exception):
                    raise DamagedError(f"the state of batch {batch_id}: {packed}")
                if packed is not None:
                    state = State.unpack(batch_id, packed)
            except DamagedError as error:
                # Which of its messages are gone is unknown: rather redeliver all, marked, than lose any.
                what = f"{error}; its {len(kept.owners)} messages may have been consumed"
                self.found(what, packed if isinstance(packed, bytes) else b"")
                count = kept.last_place + 1
                state = State(len(kept.owners), len(kept.owners), kept.size, array("H", [HELD_FLAG]) * count)
                packed = state.pack(batch_id)
            self.count += 1
            assert not isinstance(packed, Exception)
            yield row, kept, state, packed

    def entries(self, kept: Kept, state: State) -> list[SavedEntry]:
        """The messages of a batch that are not gone."""
        try:
            entries = list(kept.entries(state))
        except DamagedError as error:
            self.found(str(error))
            return []
        self.messages += len(entries)
        return entries


def check(rows: Rows) -> Report:
    """Read everything and report what is damaged. Closes the rows."""
    with closing(rows):
        return _check(rows)


def _check(rows: Rows) -> Report:
    reader = _Reader(rows)
    owners = {value[0] for kind, *_, value in reader.definitions() if kind in (DESTINATION, SUBSCRIPTION, TAP)}
    homeless = 0
    for _, kept, state, _ in reader.batches():
        for entry in reader.entries(kept, state):
            homeless += entry.owner not in owners
            try:
                Envelope.from_packed(entry.packed)
            except ProtocolError as error:
                reader.found(f"message {entry.number}: {error}", entry.packed)
    reader.history()
    return reader.report(homeless=homeless)  # of queues that were deleted while a consumer held them


def export(rows: Rows, write: Callable[[str], object]) -> Report:
    """Write every message that can be read, one JSON object a line. Closes the rows.

    Args:
        write: called with each line.
    """
    with closing(rows):
        reader = _Reader(rows)
        places: dict[int, dict[str, object]] = {}
        for kind, _, _, key, value in reader.definitions():
            if kind == DESTINATION:
                places[value[0]] = {"namespace": key[0], "destination": key[1]}
            elif kind == SUBSCRIPTION:
                names = {"client_id": key[1], "subscription": key[2]}
                places[value[0]] = {"namespace": key[0], "destination": value[1], **names}
            elif kind == TAP:
                places[value[0]] = {"namespace": key[0], "destination": key[1], "tap": key[2]}
        for _, kept, state, _ in reader.batches():
            for entry in reader.entries(kept, state):
                try:
                    line = _line(entry, places.get(entry.owner, {"namespace": None, "destination": None}))
                except ProtocolError as error:
                    reader.found(f"message {entry.number}: {error}", entry.packed)
                    continue
                write(json.dumps(line, ensure_ascii=False) + "\n")
        return reader.report()


def copy(rows: Rows, new: NewStore) -> Report:
    """Copy a store as it is, its broker's name and the numbers of its messages included. Closes both.

    Returns:
        What was copied. Nothing was if there are findings.

    Raises:
        StoreError, OSError: the new store cannot be written.
    """
    with closing(rows), closing(new):
        reader = _Reader(rows)
        for kind, key, data, *_ in reader.definitions():
            new.define(kind, key, data)
        for row, kept, state, packed in reader.batches():
            reader.entries(kept, state)
            new.add(kept.id, row, packed)
        new.keep(reader.history())
        rows.close()  # a running broker's log can be used again, while the new store is put on its disk
        if not reader.findings:
            new.finish(reader.head)
        return reader.report()


def restore(rows: Rows, new: NewStore, name: str) -> Report:
    """Make a store of a backup, or of another store of an earlier time. Closes both.

    Others remember what came after that time, so the new store must not be mistaken for the one of which it was: it has
    another name, and its taps have other ids. What it knew of connections is dropped, and what belonged to them. Every
    message is marked as redelivered: a consumer may have had it since.

    Args:
        name: of the broker from now on, which no other has.

    Returns:
        What was restored. Nothing was if there are findings.

    Raises:
        StoreError, OSError: the new store cannot be written.
    """
    with closing(rows), closing(new):
        reader = _Reader(rows)
        taps = 0
        for kind, key, data, known, value in reader.definitions(without=(CONNECTION, TEMPORARY, STAGE)):
            if kind == TAP:
                taps += 1
                number, _, *rest = value
                data = pack_value(definition_id(kind, key), (known, (number, f"{name}.{taps}", *rest)))
            new.define(kind, key, data)
        for row, kept, state, _ in reader.batches():
            reader.entries(kept, state)
            state.mark_delivered()
            new.add(kept.id, row, state.pack(kept.id))
        new.keep(reader.history())
        if not reader.findings:
            new.finish(reader.head._replace(incarnation=name))
        return reader.report()


def _line(entry: SavedEntry, place: dict[str, object]) -> dict[str, object]:
    envelope = Envelope.from_packed(entry.packed, compact=False)
    held = bool(entry.state & HELD_FLAG)
    record = record_of(envelope.fields, None, lambda: envelope.properties)
    return {**record, **place, "deliveries": (entry.state & ~HELD_FLAG) + held}


def repair(directory: Path, name: Callable[[], str]) -> Report:
    """Make a new store of what can be read. The files as they were, and what was left out of the new one, are kept in a
    folder ``damaged-1``, ``damaged-2``, … of the directory. Nothing is done to a store that is not damaged.

    Raises:
        StoreError: there is no store, or a broker uses it.
        OSError: the new one cannot be written.
    """
    rows = DirectoryRows(directory)
    try:
        report = _check(rows)
        return _replace(directory, rows, name) if report.findings else report
    finally:
        rows.close()


def _replace(directory: Path, rows: DirectoryRows, name: Callable[[], str]) -> Report:
    reader = _Reader(rows)
    path = directory / "repaired.db"
    for old in directory.glob("repaired.db*"):
        old.unlink()
    new = NewDatabase(path)
    try:
        owners, homeless = set(), []
        for kind, key, data, _, value in reader.definitions():
            if kind in (DESTINATION, SUBSCRIPTION, TAP):
                owners.add(value[0])
            if kind == TAP:
                continue  # its readers count on a sequence without holes: they must find another one, recreated
            new.define(kind, key, data)
        last = 0
        for row, kept, state, packed in reader.batches():
            homeless += [entry for entry in reader.entries(kept, state) if entry.owner not in owners]
            last = max(last, kept.id)
            new.add(kept.id, row, packed)
        head = reader.head
        new.finish(head._replace(next_batch=max(head.next_batch, last + 1), incarnation=head.incarnation or name()))
    finally:
        new.close()
    aside = _aside(directory)
    with (aside / "left-out.jsonl").open("w", encoding="utf-8") as file:
        for what, kind, data in reader.damaged:
            file.write(json.dumps({"what": what, kind: base64.b64encode(data).decode()}) + "\n")
        for entry in homeless:  # the broker drops them when it starts
            what = f"message {entry.number} of a queue whose definition is not there"
            with suppress(ProtocolError):
                file.write(json.dumps({"what": what, **_line(entry, {"owner": entry.owner})}) + "\n")
        for finding in reader.findings:
            file.write(json.dumps({"finding": finding}) + "\n")
    rows.release_files()
    log = (f"{DATABASE}-wal", f"{DATABASE}-wal.damaged", f"{DATABASE}-shm")
    for name_of_file in (DATABASE, *log, "witness"):
        if (directory / name_of_file).exists():
            (directory / name_of_file).rename(aside / name_of_file)
    write_witness(directory, reader.head.writes)
    path.rename(directory / DATABASE)
    return reader.report(homeless=len(homeless), set_aside=aside)


def _aside(directory: Path) -> Path:
    number = 1
    while (directory / f"damaged-{number}").exists():
        number += 1
    (directory / f"damaged-{number}").mkdir(PRIVATE_DIRECTORY)
    return directory / f"damaged-{number}"
