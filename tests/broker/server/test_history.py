"""Rows of what has happened: bounded, numbered, stored behind the broker's back, and there again after a restart."""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from sievemq_broker import EmbeddedBroker
from sievemq_broker.domain.store import HistoryLine, HistoryPart, StoreError, StoreFullError
from sievemq_broker.server.watch.history import History
from sievemq_broker.store.history import FileHistory

DEADLINE = 60.0


class Fake:
    """A storage in memory that can refuse."""

    def __init__(self) -> None:
        self.kinds: dict[str, list[HistoryLine]] = {}
        self.error: Exception | None = None
        self.tried: list[asyncio.Event] = []
        self.loop = asyncio.get_running_loop()
        self.closed = False
        self.succeeded = asyncio.Event()

    def read(self) -> Mapping[str, Sequence[HistoryLine]]:
        if self.error is not None:
            raise self.error
        return {kind: list(lines) for kind, lines in self.kinds.items()}

    def write(self, parts: Sequence[HistoryPart]) -> None:
        for event in self.tried:
            self.loop.call_soon_threadsafe(event.set)
        if self.error is not None:
            raise self.error
        for kind, lines, oldest, _ in parts:
            kept = [line for line in self.kinds.get(kind, []) if line.id >= oldest]
            self.kinds[kind] = [*kept, *lines]
        self.loop.call_soon_threadsafe(self.succeeded.set)

    def close(self) -> None:
        self.closed = True

    async def after_a_try(self, do: Callable[[], object]) -> None:
        """Return when a write was tried that began after this call."""
        event = asyncio.Event()
        self.tried.append(event)
        do()
        await asyncio.wait_for(event.wait(), DEADLINE)
        self.tried.remove(event)

    def names(self, kind: str) -> list[str]:
        return [line.text.decode().partition('"n":')[2].rstrip("}") for line in self.kinds.get(kind, [])]


async def loaded(history: History) -> None:
    event = asyncio.Event()
    history.when_loaded(event.set)
    await asyncio.wait_for(event.wait(), DEADLINE)


@asynccontextmanager
async def opened(store: Any) -> AsyncIterator[History]:
    history = History()
    history.open(store)
    await loaded(history)
    yield history
    await history.close()


def shown(rows: Any) -> list[Any]:
    return [row["n"] for row in rows]


async def test_the_latest_rows_are_kept_in_order() -> None:
    history = History()
    rows = history.rows("audit", 3)
    ids = [rows.add({"n": number}) for number in range(5)]
    assert ids == sorted(set(ids))
    assert shown(rows) == [2, 3, 4]
    assert len(rows) == 3
    assert rows.last == ids[4]
    assert shown(rows.since(ids[3])) == [4]
    assert shown(rows.latest(2)) == [4, 3]
    assert shown(rows.latest(2, before=ids[3])) == [2]
    assert shown(rows.latest(2, keep=lambda row: row["n"] % 2 == 0)) == [4, 2]
    assert history.rows("audit", 9) is rows


async def test_rows_of_all_kinds_have_different_ids() -> None:
    history = History()
    ids = [history.rows(kind, 5).add({}) for kind in ("audit", "events") * 50]
    assert len(set(ids)) == 100


async def test_long_texts_of_a_row_are_cut() -> None:
    rows = History().rows("audit", 3)
    rows.add({"n": 1, "text": "x" * 5_000, "other": "\ud800"})
    (row,) = rows
    assert len(row["text"]) < 300
    assert row["other"] == "\ud800"
    rows.add({"details": {"pattern": "x" * 5_000, "names": ["y" * 5_000, 1]}})
    *_, row = rows
    assert len(str(row)) < 600


async def test_rows_are_there_again_after_a_restart(tmp_path: Path) -> None:
    async with opened(FileHistory(tmp_path, 0)) as history:
        first = history.rows("audit", 5).add({"n": 1})
    async with opened(FileHistory(tmp_path, 0)) as history:
        rows = history.rows("audit", 5)
        assert shown(rows) == [1]
        assert rows.add({"n": 2}) > first
    async with opened(FileHistory(tmp_path, 0)) as history:
        assert shown(history.rows("audit", 5)) == [1, 2]


async def test_rows_before_loading_follow_those_of_the_earlier_process() -> None:
    store = Fake()
    async with opened(store) as history:
        history.rows("audit", 5).add({"n": 1})
    history = History()
    rows = history.rows("audit", 5)
    rows.add({"n": 2})
    history.open(store)
    rows.add({"n": 3})
    await loaded(history)
    assert shown(rows) == [1, 2, 3]
    await history.close()
    assert store.names("audit") == ["1", "2", "3"]
    assert store.closed


async def test_ids_ascend_although_the_clock_was_set_back(tmp_path: Path) -> None:
    ahead = 9_000_000_000_000_000
    store = Fake()
    store.kinds["audit"] = [HistoryLine(ahead, b'{"id":%d,"n":1}' % ahead)]
    async with opened(store) as history:
        assert history.rows("audit", 5).add({"n": 2}) == ahead + 1
    assert store.names("audit") == ["1", "2"]


async def test_what_is_not_kept_any_more_is_forgotten_by_the_storage() -> None:
    store = Fake()
    async with opened(store) as history:
        rows = history.rows("audit", 2)
        for number in range(5):
            await store.after_a_try(lambda number=number: rows.add({"n": number}))
    assert store.names("audit") == ["3", "4"]


async def test_rows_wait_in_memory_while_the_disk_is_full(caplog: pytest.LogCaptureFixture) -> None:
    store = Fake()
    async with opened(store) as history:
        rows = history.rows("audit", 5)
        store.error = StoreFullError("full")
        await store.after_a_try(lambda: rows.add({"n": 1}))
        assert shown(rows) == [1]
        assert store.names("audit") == []
        store.error = None
        rows.add({"n": 2})
    assert store.names("audit") == ["1", "2"]
    assert "history." not in caplog.text, "the log has the full disk already"


@pytest.mark.parametrize("error", [StoreError("it is broken"), ValueError("it is wrong")])
async def test_an_error_is_logged_and_ends_nothing(error: Exception, caplog: pytest.LogCaptureFixture) -> None:
    store = Fake()
    store.error = error
    with caplog.at_level(logging.WARNING):
        async with opened(store) as history:
            rows = history.rows("audit", 5)
            await store.after_a_try(lambda: rows.add({"n": 1}))
            assert shown(rows) == [1]
    assert "history." in caplog.text


async def test_rows_that_could_not_be_stored_are_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sievemq_broker.server.watch.history.RETRY_SECONDS", 0.001)
    store = Fake()
    async with opened(store) as history:
        store.error = StoreFullError("full")
        await store.after_a_try(lambda: history.rows("audit", 5).add({"n": 1}))
        store.error = None
        await asyncio.wait_for(store.succeeded.wait(), DEADLINE)
    assert store.names("audit") == ["1"]


async def test_rows_that_come_meanwhile_try_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    store = Fake()
    tries: list[int] = []
    write = store.write

    def counted(parts: Sequence[HistoryPart]) -> None:
        tries.append(len(parts[0].lines))
        write(parts)

    monkeypatch.setattr(store, "write", counted)
    async with opened(store) as history:
        rows = history.rows("audit", 50)
        store.error = StoreFullError("full")
        rows.add({"n": 0})
        await asyncio.wait_for(history._rests.wait(), DEADLINE)
        for number in range(1, 20):
            rows.add({"n": number})
            await asyncio.wait_for(history._rests.wait(), DEADLINE)
        assert tries == [1], "the next try comes after RETRY_SECONDS"
        store.error = None
    assert tries == [1, 20]
    assert store.names("audit") == list(map(str, range(20)))


async def test_rows_that_could_not_be_read_are_not_forgotten_by_the_storage() -> None:
    store = Fake()
    store.kinds["audit"] = [HistoryLine(1, b'{"id":1,"n":1}')]
    store.error = StoreError("no answer")
    async with opened(store) as history:
        store.error = None
        await store.after_a_try(lambda: history.rows("audit", 3).add({"n": 2}))
    assert store.names("audit") == ["1", "2"]


async def test_rows_that_could_not_be_read_come_later(monkeypatch: pytest.MonkeyPatch) -> None:
    """The database was away at a takeover."""
    monkeypatch.setattr("sievemq_broker.server.watch.history.RETRY_SECONDS", 0.001)
    store, again = Fake(), asyncio.Event()
    store.kinds["audit"] = [HistoryLine(1, b'{"id":1,"n":1}')]
    store.error = StoreError("away")
    async with opened(store) as history:
        rows = history.rows("audit", 3)
        rows.add({"n": 2})
        assert shown(rows) == [2]
        read = history._loaded

        def loaded_again(*arguments: Any) -> None:
            read(*arguments)
            if arguments[1] is None:
                again.set()

        monkeypatch.setattr(history, "_loaded", loaded_again)
        store.error = None
        await asyncio.wait_for(again.wait(), DEADLINE)
        assert shown(rows) == [1, 2]
    assert store.names("audit") == ["1", "2"]


async def test_a_row_that_one_reader_cannot_use_does_not_stop_the_others(caplog: pytest.LogCaptureFixture) -> None:
    store = Fake()
    store.kinds["audit"] = [HistoryLine(1, b'{"id":1}')]
    history = History()
    rows, called = history.rows("audit", 3), asyncio.Event()
    history.when_loaded(lambda: next(iter(rows))["n"])
    history.when_loaded(called.set)
    history.open(store)
    await asyncio.wait_for(called.wait(), DEADLINE)
    history.when_loaded(lambda: next(iter(rows))["n"])
    await store.after_a_try(lambda: rows.add({"n": 2}))
    await history.close()
    assert "history.failed" in caplog.text


async def test_a_history_that_was_never_opened_is_closed() -> None:
    history = History()
    called: list[int] = []
    history.when_loaded(lambda: called.append(1))
    await history.close()
    assert called == []
    history.open(None)
    assert called == [1]


def part(kind: str, *numbers: int, limit: int = 3) -> HistoryPart:
    return HistoryPart(kind, [HistoryLine(n, b'{"id":%d,"n":%d}' % (n, n)) for n in numbers], 0, limit)


def ids(store: FileHistory, kind: str = "audit") -> list[int]:
    return [line.id for line in store.read()[kind]]


class TestFiles:
    def test_two_files_hold_at_most_twice_as_many_rows_as_are_kept(self, tmp_path: Path) -> None:
        store = FileHistory(tmp_path, 0)
        for number in range(1, 20):
            store.write([part("audit", number)])
        assert ids(FileHistory(tmp_path, 0)) == [16, 17, 18, 19]
        store.write([part("audit", *range(20, 40))])
        assert ids(FileHistory(tmp_path, 0)) == [35, 36, 37, 38, 39]

    def test_a_row_is_stored_once(self, tmp_path: Path) -> None:
        store = FileHistory(tmp_path, 0)
        store.write([part("audit", 1, 2)])
        store.write([part("audit", 2, 3)])
        assert ids(store) == [1, 2, 3]

    @pytest.mark.parametrize("torn", [b'{"id":3,"n', b"\x00\x00", b'{"id":3}}', b"\xff\n\n[]\n{}"])
    def test_a_line_that_is_not_whole_is_left_out(self, tmp_path: Path, torn: bytes) -> None:
        FileHistory(tmp_path, 0).write([part("audit", 1, 2)])
        file = tmp_path / "history" / "audit"
        file.write_bytes(file.read_bytes() + torn)
        store = FileHistory(tmp_path, 0)
        assert ids(store)[:2] == [1, 2]
        store.write([part("audit", 4)])
        assert ids(FileHistory(tmp_path, 0))[-1] == 4

    def test_files_that_are_none_of_it_are_left_alone(self, tmp_path: Path) -> None:
        (tmp_path / "history").mkdir()
        (tmp_path / "history" / "README.txt").write_text("notes")
        assert FileHistory(tmp_path, 0).read() == {}

    def test_nothing_is_written_where_the_room_is_left_to_messages(self, tmp_path: Path) -> None:
        store = FileHistory(tmp_path, 1 << 62)
        with pytest.raises(StoreFullError):
            store.write([part("audit", 1)])
        assert list(tmp_path.iterdir()) == []

    def test_what_a_disk_does_not_take_whole_is_taken_back(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        store = FileHistory(tmp_path, 0)
        store.write([part("audit", 1)])
        write, calls, me = os.write, [], threading.get_ident()

        def little(descriptor: int, data: bytes) -> int:
            if threading.get_ident() != me:  # brokers of other tests write their histories meanwhile
                return write(descriptor, data)
            calls.append(data)
            if len(calls) == 2:
                raise OSError(28, "No space left on device")
            return int(write(descriptor, bytes(data)[:5]))

        with monkeypatch.context() as patched:
            patched.setattr("sievemq_broker.store.history.os.write", little)
            with pytest.raises(StoreError, match="No space left"):
                store.write([part("audit", 2)])
        store.write([part("audit", 2)])
        assert ids(FileHistory(tmp_path, 0)) == [1, 2]

    def test_a_file_that_was_removed_is_made_again(self, tmp_path: Path) -> None:
        store = FileHistory(tmp_path, 0)
        store.write([part("audit", 1, 2, 3)])
        (tmp_path / "history" / "audit").unlink()
        store.write([part("audit", 4)])
        assert ids(FileHistory(tmp_path, 0)) == [4]

    def test_a_file_that_cannot_be_written_does_not_stop_the_others(self, tmp_path: Path) -> None:
        store = FileHistory(tmp_path, 0)
        (tmp_path / "history" / "audit").mkdir(parents=True)
        for number in (1, 2):
            with pytest.raises(StoreError, match="audit cannot be written"):
                store.write([part("audit", *range(1, number + 1)), part("events", *range(1, number + 1))])
        (tmp_path / "history" / "audit").rmdir()
        assert ids(FileHistory(tmp_path, 0), "events") == [1, 2]

    def test_the_end_of_a_file_that_is_too_large_is_read(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        FileHistory(tmp_path, 0).write([part("audit", 1, 2, 3)])
        monkeypatch.setattr("sievemq_broker.store.history._MOST_BYTES", 40)
        assert ids(FileHistory(tmp_path, 0)) == [2, 3]

    def test_a_folder_that_cannot_be_read_is_an_error_of_the_store(self, tmp_path: Path) -> None:
        (tmp_path / "history" / "audit").mkdir(parents=True)
        with pytest.raises(StoreError, match="cannot be read"):
            FileHistory(tmp_path, 0).read()


def test_a_broker_goes_on_with_the_history_of_the_last_one(tmp_path: Path) -> None:
    def add(broker: EmbeddedBroker, number: int) -> list[int]:
        def act(server: Any) -> list[int]:
            rows = server.history.rows("audit", 10)
            rows.add({"n": number})
            return shown(rows)

        return broker._submit(act).result()

    for count in (1, 2, 3):
        with EmbeddedBroker(data_dir=tmp_path / "data") as broker:
            add(broker, count)
    kept = FileHistory(tmp_path / "data").read()["audit"]
    assert [line.text.partition(b'"n":')[2] for line in kept] == [b"1}", b"2}", b"3}"]
