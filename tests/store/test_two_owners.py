"""Two brokers and one directory, where a lock does not work: what either has confirmed is found by who is left.

The former owner's order is write, sync, look; who takes over moves its file, reads it, and begins with one of its own.
Whatever the one has done when the other acts, and wherever the other is killed.
"""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from sievemq_broker.domain.journal import Batch
from sievemq_broker.store import FencedError, SqliteStore, StoreError, tail
from sievemq_broker.store.block_file import BlockFile
from sievemq_broker.store.salvage import check
from sievemq_broker.store.tail import FORMER, TAIL, Tail

from .support import NOW, message, name_of, tail_file


class Killed(BaseException):
    """The process that took over is no more."""


@pytest.fixture(autouse=True)
def _no_lock() -> Iterator[None]:
    """It keeps nobody out, as on some file systems."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sievemq_broker.store.files.fcntl", None)
        yield


def opened(folder: Path) -> SqliteStore:
    return SqliteStore(folder, "name", reserve=0)


def add(store: SqliteStore, *names: str) -> None:
    batch = Batch(store.next_batch)
    for name in names:
        batch.accepted.append((1, message(name).packed))
    store.write(batch, NOW)


def names(store: SqliteStore) -> list[str]:
    return [name_of(entry.packed) for entry in store.entries()]


def left(folder: Path, where: Path) -> list[str]:
    """What a broker finds that starts after all others were killed."""
    shutil.copytree(folder, where)
    found = check(where)
    assert found.findings == []
    store = opened(where)
    try:
        return names(store)
    finally:
        store.close()


@contextmanager
def killed_at(what: str) -> Iterator[None]:
    """Who takes over in here is killed then."""

    def kill(*_: object) -> None:
        raise Killed

    with pytest.MonkeyPatch.context() as patch:
        if what == "moved":
            patch.setattr(tail, "sync_directory", kill)
        elif what == "read":
            patch.setattr(SqliteStore, "_look_for_losses", kill)
        elif what == "committed":
            patch.setattr(SqliteStore, "_begin_tail", kill)
        elif what == "directory made":
            patch.setattr(tail, "BlockFile", kill)
        else:
            assert what == "file made"
            patch.setattr(BlockFile, "_goes_around", kill)
        with pytest.raises(Killed):
            yield


#: How far who takes over comes; the last two are not killed.
STAGES = ("moved", "read", "committed", "directory made", "file made", "began", "wrote")


def take_over(folder: Path, stage: str) -> SqliteStore | None:
    """Begin to own a directory, up to there."""
    if stage not in ("began", "wrote"):
        with killed_at(stage):
            opened(folder)
        return None
    owner = opened(folder)
    if stage == "wrote":
        add(owner, "of the next")
    return owner


@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("moment", ["before the write", "before the look", "between two"])
def test_what_a_former_owner_confirms_is_found_whenever_another_takes_over(
    tmp_path: Path, stage: str, moment: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "live"
    former = opened(folder)
    add(former, "first")
    confirmed = ["first"]
    owners: list[SqliteStore | None] = []

    if moment == "between two":
        owners.append(take_over(folder, stage))
    else:
        write = BlockFile.write

        def interrupted(file: BlockFile, data: bytes, at: int) -> None:
            monkeypatch.undo()
            if moment == "before the look":
                write(file, data, at)
            owners.append(take_over(folder, stage))
            if moment == "before the write":
                write(file, data, at)

        monkeypatch.setattr(BlockFile, "write", interrupted)
    with pytest.raises(FencedError):
        add(former, "second")
    (owner,) = owners
    if owner is not None and stage == "wrote":
        confirmed.append("of the next")
    try:  # the broker would have ended; a transaction asks the database
        add(former, "third")
        confirmed.append("third")
    except FencedError:
        pass
    assert ("third" in confirmed) == (stage in ("moved", "read"))  # nobody had begun yet
    former.abandon()
    if owner is not None:
        add(owner, "last")
        confirmed.append("last")
    found = left(folder, tmp_path / "left")
    assert [name for name in found if name != "second"] == confirmed
    assert ("second" in found) <= (moment == "before the look" and stage not in ("moved", "read"))
    if owner is not None:
        assert names(owner) == found
        owner.close()


@pytest.mark.parametrize(
    ("owner", "verb"),
    [
        (SqliteStore, "_load_head"), (tail, "sync_directory"), (tail, "read_tail"), (SqliteStore, "_look_for_losses"),
        (SqliteStore, "_take_in_tail"), (SqliteStore, "_shrink"), (SqliteStore, "_check_owner"), (BlockFile, "write"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("after", [False, True])
def test_what_a_former_owner_writes_while_another_takes_over_is_found_or_not_confirmed(
    tmp_path: Path, owner: object, verb: str, after: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before and after each thing that the other one does."""
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
        except FencedError:
            pass

    def meanwhile(*arguments: object) -> object:
        monkeypatch.undo()
        if not after:
            write()
        result = real(*arguments)
        if isinstance(result, Iterator):
            result = list(result)
        if after:
            write()
        return result

    monkeypatch.setattr(owner, verb, meanwhile)
    present = opened(folder)
    assert attempts == 1
    assert ("second" in confirmed) == (verb == "_load_head")  # the first thing that it does
    add(present, "last")
    found = left(folder, tmp_path / "left")
    assert [name for name in found if name in confirmed or name == "last"] == [*confirmed, "last"]
    assert found == names(present)
    former.abandon()
    present.close()


@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("records", [0, 1])
def test_a_former_owner_that_ends_in_order_leaves_the_others_file_alone(
    tmp_path: Path, stage: str, records: int
) -> None:
    folder = tmp_path / "live"
    former = opened(folder)
    add(former, "first")
    if not records:
        former._flush()
    owner = take_over(folder, stage)
    former.close()
    confirmed = ["first"] + ["of the next"] * (stage == "wrote")
    if owner is not None:
        add(owner, "last")
        confirmed.append("last")
        assert owner._tail.has_room()  # it went there
    assert left(folder, tmp_path / "left") == confirmed
    if owner is not None:
        owner.close()


def test_one_that_took_over_and_is_slow_to_begin_does_not_begin_beside_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has said in the database that it is the owner, and another one has said so since."""
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
    with pytest.raises(FencedError, match=r"opened by another broker \(epoch 3, this one is 2\)"):
        opened(folder)
    (owner,) = quick
    add(owner, "c")
    assert left(folder, tmp_path / "left") == ["a", "b", "c"]
    owner.close()


@pytest.mark.parametrize("verb", ["take_over", "begin"])
def test_nobody_takes_over_while_another_does(tmp_path: Path, verb: str, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "live"
    former = opened(folder)
    add(former, "a")
    refused: list[str] = []
    real: Callable[..., None] = getattr(Tail, verb)

    def meanwhile(own: Tail, *arguments: int) -> None:
        monkeypatch.undo()
        with pytest.raises(StoreError) as caught:
            opened(folder)
        refused.append(str(caught.value))
        real(own, *arguments)

    monkeypatch.setattr(Tail, verb, meanwhile)
    owner = opened(folder)
    assert [text.endswith("store.db cannot be opened: another process uses it") for text in refused] == [True]
    add(owner, "b")
    with pytest.raises(FencedError):
        add(former, "lost")
    assert left(folder, tmp_path / "left") == ["a", "b"]
    former.abandon()
    owner.close()


def test_a_look_that_does_not_find_the_file_looks_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """That the file may not be looked for is no reason to believe that it was moved."""
    folder = tmp_path / "live"
    store = opened(folder)
    with monkeypatch.context() as patch:
        patch.setattr(os, "access", lambda *_: False)
        add(store, "a")
        add(store, "b")
        assert len(store._tail.records) == 2

        def fail(path: str) -> None:
            raise OSError(errno.EIO, "input/output error", path)

        patch.setattr(os, "stat", fail)
        with pytest.raises(StoreError, match=r"tail cannot be written: .*input/output error"):
            add(store, "c")
    store.reopen()
    add(store, "c")
    assert left(folder, tmp_path / "left") == ["a", "b", "c"]
    store.close()


def test_what_was_read_and_not_removed_yet_is_not_read_again(tmp_path: Path) -> None:
    """Its owner is long dead, and so may be who read it: that one's own file counts, whoever looks."""
    folder = tmp_path / "live"
    store = opened(folder)
    add(store, "a")
    old = tmp_path / "old"
    shutil.copytree(folder / TAIL, old)
    store.abandon()
    store = opened(folder)
    add(store, "b")
    shutil.copytree(old, folder / FORMER)
    assert left(folder, tmp_path / "left") == ["a", "b"]
    shutil.copytree(folder / TAIL, folder / FORMER, dirs_exist_ok=True)
    shutil.rmtree(folder / TAIL)
    assert left(folder, tmp_path / "moved") == ["a", "b"]
    store.abandon()


def test_a_directory_that_was_copied_over_another_is_what_was_copied(tmp_path: Path) -> None:
    """The file of the one that was there before stays beside the copied one."""
    folder = tmp_path / "live"
    store = opened(folder)
    add(store, "a")
    shutil.copytree(folder, tmp_path / "backup")
    store.close()
    store = opened(folder)
    for number in range(5):
        add(store, f"later{number}")
    name = tail_file(folder).name
    store.abandon()
    shutil.copytree(tmp_path / "backup", folder, dirs_exist_ok=True)
    for suffix in ("-wal", "-shm"):
        if not (tmp_path / "backup" / f"store.db{suffix}").exists():
            (folder / f"store.db{suffix}").unlink(missing_ok=True)
    assert len(list((folder / TAIL).iterdir())) == 2
    assert (folder / TAIL / name).exists()
    assert left(folder, tmp_path / "left") == ["a"]
    twice = tail_file(tmp_path / "backup")
    shutil.copyfile(twice, twice.with_name("copy"))
    assert left(tmp_path / "backup", tmp_path / "twice") == ["a"]


def test_a_look_from_outside_moves_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "live"
    store = opened(folder)
    add(store, "a")
    before = tail_file(folder).read_bytes()
    assert check(folder).batches == 1
    assert tail_file(folder).read_bytes() == before
    add(store, "b")
    assert names(store) == ["a", "b"]
    store.close()
