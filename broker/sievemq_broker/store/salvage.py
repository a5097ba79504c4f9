"""Examines a data directory from outside: what is damaged, what can be read, and a new store of that.

Nothing here stops at the first fault, and nothing is deleted: a repair moves the files into a folder of their own, and
writes everything that the new store lacks into a file there."""

from __future__ import annotations

import base64
import json
import os
import sqlite3
from array import array
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sievemq_broker.domain.journal import DESTINATION, HELD_FLAG, SUBSCRIPTION, TAP, Key
from sievemq_broker.domain.store import DamagedError, SavedEntry, StoreError
from sievemq_broker.store.blob import Kept, State, pack_value, unpack_batch, unpack_value
from sievemq_broker.store.database import DATABASE, HEAD, PAGE_BYTES, SCHEMA, connect, create_tables, definition_id
from sievemq_broker.store.files import PRIVATE_DIRECTORY, Lock, Witness, open_private
from sievemq_core.errors import ProtocolError
from sievemq_core.message.envelope import BODY, BODY_KIND, DELIVERY_MODE, BodyKind, Envelope
from sievemq_core.message.headers import PERSISTENT

_FIELDS = ("id", "timestamp", "priority", "delivery_mode", "expiration", "delivery_time", "correlation_id", "reply_to",
           "type")  # fmt: skip

_KINDS = {int(kind): kind for kind in BodyKind}


@dataclass(frozen=True, slots=True)
class Report:
    """The result of an examination.

    Attributes:
        messages: that can be read.
        batches: rows they are in.
        definitions: that can be read.
        epoch: how many owners the store has had; None if that cannot be read.
        findings: what is damaged, one line each; empty if all is well.
        set_aside: where a repair has put what it left out.
    """

    messages: int = 0
    batches: int = 0
    definitions: int = 0
    epoch: int | None = None
    findings: list[str] = field(default_factory=list)
    set_aside: Path | None = None


class _Reader:
    """Reads as much of a directory as possible, and reports the rest.

    Raises:
        StoreError: there is no store, or a broker uses it.
    """

    def __init__(self, directory: Path) -> None:
        self.path = directory / DATABASE
        if not self.path.exists() and not (directory / "witness").exists():
            raise StoreError(f"{directory} contains no store")
        self.lock = Lock(directory / "lock")
        self.witness = Witness(directory / "witness")
        self.sequence = self.next_batch = 0
        self.name = ""
        self.messages = self.rows = self.defined = 0
        self.epoch: int | None = None
        self.findings: list[str] = []
        #: Parts that could not be read: what it is, why, and its bytes.
        self.damaged: list[tuple[str, str, bytes]] = []
        try:
            self.database = connect(self.path, read_only=True)
            self._structure()
            self._head()
            self._look_for_losses()
        except BaseException:
            self.lock.release()
            raise

    def report(self, *, homeless: int = 0, set_aside: Path | None = None) -> Report:
        """The findings so far, without the number of messages."""
        return Report(self.messages - homeless, self.rows, self.defined, self.epoch, self.findings, set_aside)

    def close(self) -> None:
        self.database.close()
        self.lock.release()

    def found(self, what: str, data: object = b"") -> None:
        self.findings.append(what)
        if data:
            self.damaged.append((what, type(data).__name__, data if isinstance(data, bytes) else repr(data).encode()))

    def _try(self, statement: str, values: tuple[object, ...] = ()) -> list[Any]:
        try:
            return list(self.database.execute(statement, values).fetchall())
        except (sqlite3.Error, UnicodeDecodeError) as error:
            self.found(f"{self.path.name}: {error}")
            return []

    def _structure(self) -> None:
        rows = self._try("PRAGMA quick_check(50)")
        self.findings += [f"{self.path.name}: {row[0]}" for row in rows if row[0] != "ok"]
        schema = [row[0] for row in self._try("SELECT sql FROM sqlite_master ORDER BY rowid")]
        if rows and schema != list(SCHEMA):
            self.found(f"{self.path.name}: its tables are not those that SieveMQ creates")

    def _head(self) -> None:
        rows = self._try("SELECT data FROM definition WHERE kind = '' AND key = x''")
        try:
            data = rows[0][0] if rows else b""
            head = unpack_value("the head of the store", HEAD, data)
            self.epoch, self.sequence, self.next_batch, self.name = head[:4]
        except (DamagedError, TypeError, ValueError) as error:
            self.found(str(error), rows[0][0] if rows else b"")

    def _look_for_losses(self) -> None:
        try:
            known = self.witness.read()
        except DamagedError as error:
            self.found(str(error))
            return
        if known is None and self.sequence > 1:
            self.found("witness: missing")
        elif known is not None and known > self.sequence > 0:
            lost = known - self.sequence
            self.found(f"{self.path.name}-wal: the last {lost} of {known} writes that were made are lost")

    def definitions(self) -> Iterator[tuple[str, bytes, bytes, Key, Any]]:
        """Rows that can be read: kind, packed key, data, key, value."""
        for kind, key, data in self._try("SELECT kind, key, data FROM definition"):
            if kind == "" and key == b"":
                continue
            try:
                name, value = unpack_value(f"the definition of {kind} {key!r}", definition_id(kind, key), data)
            except (DamagedError, TypeError, ValueError, AttributeError) as error:
                self.found(f"the definition of {kind!r} {key!r}: {error}", data)
                continue
            self.defined += 1
            yield kind, key, data, name, value

    def ids(self) -> Iterator[int]:
        """Ids of batches, from both ends up to where the tree cannot be read."""
        yielded: set[int] = set()
        for order in ("ASC", "DESC"):
            try:
                for (batch_id,) in self.database.execute(f"SELECT id FROM batch ORDER BY id {order}"):  # noqa: S608
                    if batch_id in yielded:
                        break
                    yielded.add(batch_id)
                    yield batch_id
                else:
                    return
            except sqlite3.Error as error:
                self.found(f"{self.path.name}: the batches cannot all be found: {error}")

    def batches(self) -> Iterator[tuple[bytes, Kept, State, bool]]:
        """Batches that can be read: the row, its content, its state, and whether that had to be guessed."""
        for batch_id in self.ids():
            rows = self._try("SELECT data FROM batch WHERE id = ?", (batch_id,))
            if not rows:
                continue
            try:
                kept = unpack_batch(batch_id, rows[0][0])
            except DamagedError as error:
                self.found(f"{error}", rows[0][0])
                continue
            guessed, state, data = False, kept.state(), b""
            try:
                states = self.database.execute("SELECT data FROM state WHERE id = ?", (batch_id,)).fetchall()
                if states:
                    data = states[0][0]
                    state = State.unpack(batch_id, data)
            except (sqlite3.Error, DamagedError) as error:
                # Which of its messages are gone is unknown: rather redeliver all, marked, than lose any.
                what = str(error) if isinstance(error, DamagedError) else f"the state of batch {batch_id}: {error}"
                self.found(f"{what}; its {len(kept.owners)} messages may have been consumed", data)
                count = kept.last_place + 1
                state = State(len(kept.owners), len(kept.owners), kept.size, array("H", [HELD_FLAG]) * count)
                guessed = True
            self.rows += 1
            yield rows[0][0], kept, state, guessed

    def entries(self, kept: Kept, state: State) -> list[SavedEntry]:
        """The messages of a batch that are not gone."""
        try:
            entries = list(kept.entries(state))
        except DamagedError as error:
            self.found(str(error))
            return []
        self.messages += len(entries)
        return entries


def check(directory: Path) -> Report:
    """Read everything and report what is damaged.

    Raises:
        StoreError: there is no store, or a broker uses it.
    """
    reader = _Reader(directory)
    try:
        owners = {value[0] for kind, *_, value in reader.definitions() if kind in (DESTINATION, SUBSCRIPTION, TAP)}
        homeless = 0
        for _, kept, state, _ in reader.batches():
            for entry in reader.entries(kept, state):
                homeless += entry.owner not in owners
                try:
                    Envelope.from_packed(entry.packed)
                except ProtocolError as error:
                    reader.found(f"message {entry.number}: {error}", entry.packed)
        return reader.report(homeless=homeless)  # of queues that were deleted while a consumer held them
    finally:
        reader.close()


def export(directory: Path, write: Callable[[str], object]) -> Report:
    """Write every message that can be read, one JSON object a line.

    Args:
        write: called with each line.

    Raises:
        StoreError: there is no store, or a broker uses it.
    """
    reader = _Reader(directory)
    try:
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
    finally:
        reader.close()


def _line(entry: SavedEntry, place: dict[str, object]) -> dict[str, object]:
    envelope = Envelope.from_packed(entry.packed)
    fields = envelope.fields
    line: dict[str, object] = {**place, **dict(zip(_FIELDS, fields[: len(_FIELDS)], strict=False))}
    line["delivery_mode"] = "PERSISTENT" if fields[DELIVERY_MODE] == PERSISTENT else "NON_PERSISTENT"
    if isinstance(line["correlation_id"], bytes):
        line["correlation_id"] = {"base64": base64.b64encode(line["correlation_id"]).decode()}
    line["properties"] = dict(envelope.properties)
    held = bool(entry.state & HELD_FLAG)
    line["deliveries"] = (entry.state & ~HELD_FLAG) + held
    kind = _KINDS.get(fields[BODY_KIND])
    line["body_kind"] = "UNKNOWN" if kind is None else kind.name
    body = fields[BODY]
    if body is not None:
        text = body.decode("utf-8", "replace") if kind is BodyKind.TEXT else None
        line["body"] = text if text is not None else {"base64": base64.b64encode(body).decode()}
    return line


def repair(directory: Path, name: Callable[[], str]) -> Report:
    """Make a new store of what can be read. The files as they were, and what was left out of the new one, are kept in a
    folder ``damaged-1``, ``damaged-2``, … of the directory. Nothing is done to a store that is not damaged.

    Raises:
        StoreError: there is no store, or a broker uses it.
        OSError: the new one cannot be written.
    """
    report = check(directory)
    if not report.findings:
        return report
    reader = _Reader(directory)
    new = directory / "repaired.db"
    try:
        for old in directory.glob("repaired.db*"):
            old.unlink()
        os.close(open_private(new))
        target = connect(new)
        target.execute(f"PRAGMA page_size = {PAGE_BYTES}")
        target.execute("BEGIN")
        create_tables(target)
        owners, homeless = set(), []
        for kind, key, data, _, value in reader.definitions():
            if kind in (DESTINATION, SUBSCRIPTION, TAP):
                owners.add(value[0])
            if kind == TAP:
                continue  # its readers count on a sequence without holes: they must find another one, recreated
            target.execute("INSERT INTO definition VALUES (?, ?, ?)", (kind, key, data))
        last = 0
        for row, kept, state, guessed in reader.batches():
            homeless += [entry for entry in reader.entries(kept, state) if entry.owner not in owners]
            last = max(last, kept.id)
            target.execute("INSERT INTO batch VALUES (?, ?)", (kept.id, row))
            if guessed or state.states != kept.state().states or state.failures:
                target.execute("INSERT INTO state VALUES (?, ?)", (kept.id, state.pack(kept.id)))
        sequence = max(reader.sequence, reader.witness.read() or 0) if _readable(reader.witness) else reader.sequence
        head = (reader.epoch or 0, sequence, max(reader.next_batch, last + 1), reader.name or name())
        target.execute("INSERT INTO definition VALUES ('', x'', ?)", (pack_value(HEAD, head),))
        target.execute("COMMIT")
        target.close()
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
        reader.database.close()
        log = (f"{DATABASE}-wal", f"{DATABASE}-wal.damaged", f"{DATABASE}-shm")
        for name_of_file in (DATABASE, *log, "witness"):
            if (directory / name_of_file).exists():
                (directory / name_of_file).rename(aside / name_of_file)
        witness = Witness(directory / "witness")
        witness.open(sequence)
        witness.close()
        new.rename(directory / DATABASE)
    finally:
        reader.close()
    return reader.report(homeless=len(homeless), set_aside=aside)


def _readable(witness: Witness) -> bool:
    try:
        witness.read()
    except DamagedError:
        return False
    return True


def _aside(directory: Path) -> Path:
    number = 1
    while (directory / f"damaged-{number}").exists():
        number += 1
    (directory / f"damaged-{number}").mkdir(PRIVATE_DIRECTORY)
    return directory / f"damaged-{number}"
