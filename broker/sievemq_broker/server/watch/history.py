"""What has happened: the latest rows of several kinds, such as actions and events, kept over a restart.

    rows(kind).add(row) ─► memory ─► a thread of its own ─► files of the data directory, or a table in PostgreSQL

Nothing waits for it: rows are written when the storage takes them, behind the messages, and stay in memory until then.
What an earlier process has written is read while clients are served already.

A row's `id` is the time at which it was added, in microseconds, made unique. So ids ascend over restarts, and rows of
several kinds can be merged by them.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Final

from sievemq_broker import logs
from sievemq_broker.domain.store import HistoryLine, HistoryPart, HistoryStore, StoreError, StoreFullError
from sievemq_broker.server.durability.worker import Worker

#: Seconds that the end waits for the last rows to be written.
CLOSE_SECONDS: Final = 1.0

#: Seconds after which rows that could not be read, or stored, are tried again.
RETRY_SECONDS: Final = 10.0

#: Bytes of a row above which its texts are cut.
_LONG: Final = 2_000
_CUT: Final = 200

log = logs.get("history")


class Rows:
    """The latest rows of one kind, oldest first.

    Args:
        kind: its name, of small letters.
        limit: rows that are kept.
        next_id: gives the id of a new row.
        added: called after each one.
    """

    __slots__ = ("_added", "_lines", "_next_id", "_stored", "kind", "limit")

    def __init__(self, kind: str, limit: int, next_id: Callable[[], int], added: Callable[[], None]) -> None:
        self.kind = kind
        self.limit = limit
        self._next_id = next_id
        self._added = added
        self._lines: deque[HistoryLine] = deque(maxlen=limit)
        #: Id of the last row that is stored.
        self._stored = 0

    def __len__(self) -> int:
        return len(self._lines)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return self.since(0)

    @property
    def last(self) -> int:
        """Id of the newest row; 0 if there is none."""
        return self._lines[-1].id if self._lines else 0

    def add(self, row: Mapping[str, Any]) -> int:
        """Keep a row, in place of the oldest one if there are too many.

        Args:
            row: values of JSON, without an `id`. Texts of a row above 2,000 bytes are cut.

        Returns:
            its id.
        """
        number = self._next_id()
        text = json.dumps({"id": number, **row}, separators=(",", ":"))
        if len(text) > _LONG:
            cut = {name: _shortened(value) for name, value in row.items()}
            text = json.dumps({"id": number, **cut}, separators=(",", ":"))
        self._lines.append(HistoryLine(number, text.encode()))
        self._added()
        return number

    def since(self, after: int) -> Iterator[dict[str, Any]]:
        """Rows with a greater id, oldest first."""
        return _decoded(self._newer(after))

    def before(self, below: int | None = None) -> Iterator[dict[str, Any]]:
        """Rows, newest first, each decoded in some microseconds when it is reached.

        Args:
            below: with a smaller id than this.
        """
        lines = tuple(self._lines)
        return _decoded(line for line in reversed(lines) if below is None or line.id < below)

    def latest(
        self, count: int, before: int | None = None, keep: Callable[[dict[str, Any]], bool] = lambda row: True
    ) -> list[dict[str, Any]]:
        """Some rows, newest first.

        Args:
            count: the most.
            before: with a smaller id than this; None for the newest.
            keep: which ones.
        """
        return list(islice(filter(keep, self.before(before)), count))

    def unwritten(self) -> HistoryPart | None:
        """The rows that are not stored; None if there are none."""
        if self.last <= self._stored:
            return None
        # Those before may be stored although they are not here: reading them has failed.
        oldest = self._lines[0].id if len(self._lines) == self.limit else 0
        return HistoryPart(self.kind, self._newer(self._stored), oldest, self.limit)

    def written(self, part: HistoryPart) -> None:
        """These rows are stored now."""
        self._stored = part.lines[-1].id

    def _newer(self, after: int) -> list[HistoryLine]:
        newer: list[HistoryLine] = []
        for line in reversed(self._lines):
            if line.id <= after:
                break
            newer.append(line)
        newer.reverse()
        return newer

    def found(self, lines: Sequence[HistoryLine]) -> None:
        """These rows are stored already."""
        known = {line.id for line in self._lines}
        merged = sorted([*self._lines, *(line for line in lines if line.id not in known)])
        self._lines.clear()
        self._lines.extend(merged)
        self._stored = max([self._stored, *(line.id for line in lines[-1:])])


class History:
    """The rows of all kinds."""

    def __init__(self) -> None:
        self._kinds: dict[str, Rows] = {}
        self._found: dict[str, Sequence[HistoryLine]] = {}
        self._last = 0
        self._store: HistoryStore | None = None
        self._worker: Worker | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._is_loaded = self._is_closed = False
        #: The next try, after one that has failed.
        self._retry: asyncio.TimerHandle | None = None
        #: Set while the storage is neither read nor written.
        self._rests = asyncio.Event()
        self._rests.set()
        self._trouble = ""
        self._when_loaded: list[Callable[[], None]] = []

    def rows(self, kind: str, limit: int) -> Rows:
        """The rows of a kind.

        Args:
            kind: its name, of small letters.
            limit: rows that are kept, if no caller has named it before.
        """
        found = self._kinds.get(kind)
        if found is None:
            found = self._kinds[kind] = Rows(kind, limit, self._next_id, self._write)
            found.found(self._found.pop(kind, ()))
        return found

    def when_loaded(self, call: Callable[[], None]) -> None:
        """Call this once the rows of an earlier process are there; now, if they are. An error is logged: a row of
        another version, or a damaged one, need not be what the caller expects."""
        if self._is_loaded:
            _tried(call, None)
        else:
            self._when_loaded.append(call)

    def open(self, store: HistoryStore | None) -> None:
        """Store rows from now on, and read those that are there.

        Args:
            store: None if there is none: rows end with the process.
        """
        if store is None:
            self._loaded({}, None)
            return
        self._loop = asyncio.get_running_loop()
        self._store, self._worker = store, Worker(self._loop, "sievemq-history")
        self._read()

    async def close(self) -> None:
        """Write the last rows, for :data:`CLOSE_SECONDS` at most. Later ones are kept in memory only."""
        store, worker = self._store, self._worker
        if store is None or worker is None:
            return
        self._try_again()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._rests.wait(), CLOSE_SECONDS)
        self._is_closed = True
        worker.put(store.close)
        await asyncio.wait([worker.end()], timeout=CLOSE_SECONDS)

    def _next_id(self) -> int:
        self._last = max(self._last + 1, time.time_ns() // 1_000)
        return self._last

    def _read(self) -> None:
        store, worker, loop = self._store, self._worker, self._loop
        if store is None or worker is None or loop is None or self._is_closed:
            return
        if self._rests.is_set():
            self._rests.clear()
            worker.put(lambda: self._report(self._loaded, *_tried(store.read, {})))
        else:
            loop.call_later(RETRY_SECONDS, self._read)

    def _write(self) -> None:
        store, worker = self._store, self._worker
        if store is None or worker is None or self._is_closed or self._retry is not None or not self._rests.is_set():
            return
        rows = [written for kind in self._kinds.values() if (written := kind.unwritten()) is not None]
        if rows:
            self._rests.clear()
            worker.put(lambda: self._report(self._stored, rows, _tried(lambda: store.write(rows), None)[1]))

    def _try_again(self) -> None:
        if self._retry is not None:
            self._retry.cancel()
            self._retry = None
        self._write()

    def _report(self, call: Callable[..., None], *arguments: object) -> None:
        """Call a method on the loop."""
        assert self._loop is not None
        self._loop.call_soon_threadsafe(call, *arguments)

    def _loaded(self, found: Mapping[str, Sequence[HistoryLine]], error: Exception | None) -> None:
        self._tell(error, "history.unread")
        self._found.update(found)
        for kind in self._kinds.values():
            kind.found(self._found.pop(kind.kind, ()))
        self._last = max([self._last, *(line.id for lines in found.values() for line in lines)])
        self._is_loaded = True
        self._rests.set()
        if error is not None:  # such as a database that is away: readers begin without the rows, which come later
            assert self._loop is not None
            self._loop.call_later(RETRY_SECONDS, self._read)
        for call in self._when_loaded:
            _tried(call, None)
        self._when_loaded.clear()
        self._write()

    def _stored(self, rows: Sequence[HistoryPart], error: Exception | None) -> None:
        self._rests.set()
        self._tell(error, "history.unwritten")
        if error is not None:
            assert self._loop is not None
            self._retry = self._loop.call_later(RETRY_SECONDS, self._try_again)
            return
        for written in rows:
            self._kinds[written.kind].written(written)
        self._write()  # those that came meanwhile

    def _tell(self, error: Exception | None, event: str) -> None:
        """Log what is wrong with the storage, once."""
        text = "" if error is None or isinstance(error, StoreFullError) else str(error)
        if text and text != self._trouble:
            log.warning(event, reason=text, note="rows are kept in memory until they can be stored")
        self._trouble = text


def _tried(call: Callable[[], Any], otherwise: Any) -> tuple[Any, Exception | None]:
    """The result of a call, or another one and the error. No error of the history ends the broker."""
    try:
        return call(), None
    except StoreError as error:
        return otherwise, error
    except Exception as error:
        log.fault("history.failed", error)
        return otherwise, error


def _shortened(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _shortened(each) for name, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_shortened(each) for each in value]
    return f"{value[:_CUT]}…" if isinstance(value, str) and len(value) > _CUT else value


def _decoded(lines: Iterable[HistoryLine]) -> Iterator[dict[str, Any]]:
    for line in lines:
        try:
            yield json.loads(line.text)
        except ValueError:  # of a damaged file
            continue
