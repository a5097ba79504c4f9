"""Two brokers and one directory on a file system without locks: a start finds what either of them has confirmed."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from sievemq_broker.domain.journal import Batch
from sievemq_broker.store import DamagedError, FencedError, SqliteStore, StoreError
from sievemq_broker.store.files import Witness
from sievemq_broker.store.salvage import check
from sievemq_broker.store.sqlite_rows import DirectoryRows

from .support import NOW, message, name_of, saved_in, write, write_of


@pytest.fixture(autouse=True)
def _no_lock() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sievemq_broker.store.files.fcntl.flock", lambda *_: None)
        yield


def opened(folder: Path) -> SqliteStore:
    return SqliteStore(folder, "name", reserve=0)


def add(store: SqliteStore, *names: str) -> None:
    batch = Batch(store.next_batch)
    for name in names:
        batch.accepted.append((1, message(name).packed))
    write(store, batch)


def names(store: SqliteStore) -> list[str]:
    return [name_of(entry.packed) for entry in saved_in(store)]


def left(folder: Path, where: Path) -> list[str]:
    """What a broker finds that starts after all others were killed."""
    shutil.copytree(folder, where)
    found = check(DirectoryRows(where))
    assert found.findings == []
    store = opened(where)
    try:
        return names(store)
    finally:
        store.close()


@pytest.mark.parametrize(
    ("owner", "verb"),
    [
        (SqliteStore, "_load_head"), (SqliteStore, "_take_over"), (SqliteStore, "_look_for_losses"),
        (Witness, "open"), (SqliteStore, "_shrink"), (SqliteStore, "_reload"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("after", [False, True])
def test_a_write_during_a_take_over_is_found_or_not_confirmed(
    tmp_path: Path, owner: type, verb: str, after: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before and after each step of the owner that takes over."""
    folder = tmp_path / "live"
    former = opened(folder)
    add(former, "first")
    confirmed = ["first"]
    attempts = 0
    real = getattr(owner, verb)

    def write() -> None:
        nonlocal attempts
        attempts += 1
        try:
            add(former, "second")
            confirmed.append("second")
        except StoreError:
            pass

    def meanwhile(*arguments: object) -> object:
        monkeypatch.undo()
        if not after:
            write()
        result = real(*arguments)
        if after:
            write()
        return result

    monkeypatch.setattr(owner, verb, meanwhile)
    try:
        present = opened(folder)
    except StoreError as error:
        assert "was written to by another process while it was opened" in str(error)  # noqa: PT017
        present = opened(folder)
    add(present, "last")
    assert attempts == 1
    with pytest.raises(FencedError):
        add(former, "third")
    found = left(folder, tmp_path / "left")
    assert found == [*confirmed, "last"]
    assert found == names(present)
    former.abandon()
    present.close()


def test_a_former_owner_that_ends_in_order_changes_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "live"
    former = opened(folder)
    add(former, "first")
    owner = opened(folder)
    former.close()
    add(owner, "last")
    assert left(folder, tmp_path / "left") == ["first", "last"]
    owner.close()


def test_an_owner_that_is_slow_to_begin_is_fenced_by_the_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has noted in the database that it is the owner, and so has another one since."""
    folder = tmp_path / "live"
    former = opened(folder)
    add(former, "a")
    quick: list[SqliteStore] = []
    shrink = SqliteStore._shrink

    def meanwhile(store: SqliteStore) -> None:
        monkeypatch.undo()
        quick.append(opened(folder))
        add(quick[0], "b")
        shrink(store)

    monkeypatch.setattr(SqliteStore, "_shrink", meanwhile)
    slow = opened(folder)
    with pytest.raises(FencedError, match=r"opened by another broker \(epoch 3, this one is 2\)"):
        add(slow, "lost")
    (owner,) = quick
    add(owner, "c")
    assert left(folder, tmp_path / "left") == ["a", "b", "c"]
    for each in (former, slow):
        each.abandon()
    owner.close()


def test_two_owners_do_not_take_over_at_the_same_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "live"
    former = opened(folder)
    add(former, "a")
    real = SqliteStore._look_for_losses
    refused: list[str] = []

    def meanwhile(store: SqliteStore, path: Path, witnessed: int | None) -> None:
        monkeypatch.undo()
        with pytest.raises(StoreError) as caught:
            opened(folder)
        refused.append(str(caught.value))
        real(store, path, witnessed)

    monkeypatch.setattr(SqliteStore, "_look_for_losses", meanwhile)
    owner = opened(folder)
    assert [text.endswith("store.db cannot be opened: another process uses it") for text in refused] == [True]
    add(owner, "b")
    with pytest.raises(FencedError):
        add(former, "lost")
    assert left(folder, tmp_path / "left") == ["a", "b"]
    former.abandon()
    owner.close()


class Failing:
    """A store whose next commit fails; something may happen before it has read how far the database is."""

    def __init__(self, store: SqliteStore, code: int, monkeypatch: pytest.MonkeyPatch) -> None:
        self.before_reload: Callable[[], None] = lambda: None
        execute = store._execute
        self._failed = False

        def failing(statement: str, values: tuple[object, ...] = ()) -> Any:
            if self._failed and statement != "ROLLBACK":
                monkeypatch.undo()
                self.before_reload()
            elif statement == "COMMIT":
                self._failed = True
                error = sqlite3.OperationalError("it failed")
                error.sqlite_errorcode = code
                raise error
            return execute(statement, values)

        monkeypatch.setattr(store, "_execute", failing)


@pytest.mark.parametrize("code", [sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR])
@pytest.mark.parametrize("reopens", [False, True])
@pytest.mark.parametrize("written", [0, 1, 3])
def test_a_failed_write_is_not_taken_for_kept_by_what_another_owner_has_written(
    tmp_path: Path, code: int, reopens: bool, written: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "live"
    former = opened(folder)
    add(former, "a")
    batch = Batch(former.next_batch)
    batch.accepted.append((1, message("lost").packed))
    failing = write_of(former, batch)
    others: list[SqliteStore] = []
    mine = [f"b{number}" for number in range(written)]

    def take_over() -> None:
        others.append(opened(folder))
        for name in mine:
            add(others[0], name)

    with monkeypatch.context() as patch:
        Failing(former, code, patch).before_reload = take_over
        with pytest.raises(StoreError):
            former.write(failing, NOW)
    if reopens:
        with pytest.raises(FencedError):
            former.reopen()
    for _ in range(2):
        with pytest.raises(FencedError, match=r"opened by another broker \(epoch 2, this one is 1\)"):
            former.write(failing, NOW)
    (owner,) = others
    add(owner, "last")
    assert names(owner) == ["a", *mine, "last"]
    former.abandon()
    owner.close()


def test_a_store_that_has_lost_writes_takes_no_more(tmp_path: Path) -> None:
    """The database was replaced by an older one, below a broker that runs."""
    folder = tmp_path / "live"
    store = opened(folder)
    add(store, "a")
    shutil.copytree(folder, tmp_path / "older")
    add(store, "b")
    for path in (tmp_path / "older").iterdir():
        if path.name.startswith("store.db"):
            shutil.copy(path, folder / path.name)
    for path in folder.glob("store.db-shm"):
        path.unlink()
    with pytest.raises(DamagedError, match="has lost its last"):
        store.reopen()
    with pytest.raises(DamagedError, match="has lost its last"):
        add(store, "c")
    store.abandon()


def test_check_changes_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "live"
    store = opened(folder)
    add(store, "a")
    before = (folder / "store.db-wal").read_bytes()
    assert check(DirectoryRows(folder)).batches == 1
    assert (folder / "store.db-wal").read_bytes() == before
    add(store, "b")
    assert names(store) == ["a", "b"]
    store.close()
