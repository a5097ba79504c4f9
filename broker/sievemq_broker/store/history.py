"""Rows of a history in a data directory: lines of JSON, two files a kind.

    DIR/history/KIND       the latest rows; appended to, and not synced
    DIR/history/KIND.old   those before; replaced once KIND has as many as are kept

A process that is killed loses nothing that was written; a power cut may lose the last lines. A line that is not whole
is left out.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from sievemq_broker.domain.store import HistoryLine, HistoryPart, StoreError, StoreFullError
from sievemq_broker.store.files import PRIVATE_DIRECTORY, open_private

#: Below the data directory.
HISTORY: Final = "history"

#: Free bytes on the disk below which nothing is written: messages and their acknowledgements need the rest. The reserve
#: for a full disk has 16 MiB.
LEAST_FREE_BYTES: Final = 32 * 1024 * 1024

#: Bytes of a file that are read, from its end: more than the rows of any kind take.
_MOST_BYTES: Final = 64 * 1024 * 1024

_OLD: Final = ".old"
#: What a kind may be: it is the name of a file.
KIND: Final = re.compile(r"[a-z]+")
_LINE: Final = re.compile(rb'\{"id":(\d{1,18}),.*\}')


class FileHistory:
    """See :class:`~sievemq_broker.domain.store.HistoryStore`.

    Args:
        directory: the data directory.
        least_free: bytes on its disk that are left to messages.
    """

    def __init__(self, directory: Path | str, least_free: int = LEAST_FREE_BYTES) -> None:
        self._folder = Path(directory) / HISTORY
        self._least_free = least_free
        self._counts: dict[str, int] = {}
        #: Of each kind: the id of its last row in a file.
        self._last: dict[str, int] = {}

    def read(self) -> Mapping[str, Sequence[HistoryLine]]:
        found: dict[str, list[HistoryLine]] = {}
        try:
            kinds = {path.stem for path in self._folder.iterdir()} if self._folder.exists() else set()
            for kind in sorted(kinds):
                if KIND.fullmatch(kind):
                    latest = _read(self._folder / kind)
                    self._counts[kind] = len(latest)
                    found[kind] = [*_read(self._folder / (kind + _OLD)), *latest]
                    self._last[kind] = max((line.id for line in found[kind]), default=0)
        except OSError as error:
            raise self._failed(error, "be read") from error
        return found

    def write(self, parts: Sequence[HistoryPart]) -> None:
        failed: OSError | None = None
        try:
            if shutil.disk_usage(self._folder.parent).free < self._least_free:
                raise StoreFullError(f"{self._folder}: the disk has little room, which is left to messages")
            self._folder.mkdir(PRIVATE_DIRECTORY, exist_ok=True)
        except OSError as error:
            raise self._failed(error, "be written") from error
        for part in parts:
            try:
                self._append(part)
            except OSError as error:  # of this kind's file; the others are written
                failed = error
        if failed is not None:
            raise self._failed(failed, "be written") from failed

    def _append(self, part: HistoryPart) -> None:
        path = self._folder / part.kind
        lines = [line for line in part.lines if line.id > self._last.get(part.kind, 0)]
        for start in range(0, len(lines), part.limit):
            some = lines[start : start + part.limit]
            if self._counts.get(part.kind, 0) >= part.limit:
                with contextlib.suppress(FileNotFoundError):  # an operator has removed it
                    path.replace(path.with_name(part.kind + _OLD))
                self._counts[part.kind] = 0
            _write(path, b"".join(line.text + b"\n" for line in some))
            self._counts[part.kind] = self._counts.get(part.kind, 0) + len(some)
            self._last[part.kind] = some[-1].id

    def close(self) -> None:
        pass

    def _failed(self, error: OSError, doing: str) -> StoreError:
        return StoreError(f"{error.filename or self._folder} cannot {doing}: {error.strerror or error}")


def _read(path: Path) -> list[HistoryLine]:
    try:
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - _MOST_BYTES))
            data = file.read(_MOST_BYTES)
    except FileNotFoundError:
        return []
    found = (_LINE.fullmatch(line) for line in data.split(b"\n"))
    return [HistoryLine(int(match[1]), match[0]) for match in found if match]


def _last_byte(descriptor: int) -> bytes:
    os.lseek(descriptor, -1, os.SEEK_END)
    return os.read(descriptor, 1)


def _write(path: Path, data: bytes) -> None:
    """Append to a file. What the disk does not take whole is taken back."""
    descriptor = open_private(path)
    try:
        end = os.lseek(descriptor, 0, os.SEEK_END)
        # After a power cut the file may end within a line.
        if end and _last_byte(descriptor) != b"\n":
            data = b"\n" + data
        try:
            with memoryview(data) as rest:
                done = 0
                while done < len(rest):
                    done += os.write(descriptor, rest[done:])
        except OSError:
            os.ftruncate(descriptor, end)
            raise
    finally:
        os.close(descriptor)
