"""Blocks that are on disk when the write returns: around the page cache or through it, the file is the same."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from sievemq_broker.store import block_file
from sievemq_broker.store.block_file import BLOCK, BlockFile, blocks

BEGIN = b"what it is"

AROUND = getattr(os, "O_DIRECT", 0)

Prepare = Callable[[pytest.MonkeyPatch], None]


def allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    """As the file system has it: the one of the tests may not allow it either."""


def unknown_to_the_system(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(block_file, "_AROUND", 0)


def refused_when_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    ordinary = os.open

    def refuse(path: str, flags: int, mode: int = 0o777) -> int:
        if flags & AROUND:
            raise OSError(errno.EINVAL, "invalid argument")
        return ordinary(path, flags, mode)

    monkeypatch.setattr(os, "open", refuse)


def refused_when_written(monkeypatch: pytest.MonkeyPatch) -> None:
    around: set[int] = set()
    ordinary, write = os.open, os.pwrite

    def notice(path: str, flags: int, mode: int = 0o777) -> int:
        descriptor = ordinary(path, flags & ~AROUND, mode)
        (around.add if flags & AROUND else around.discard)(descriptor)
        return descriptor

    def refuse(descriptor: int, data: bytes, at: int) -> int:
        if descriptor in around:
            raise OSError(errno.EINVAL, "invalid argument")
        return write(descriptor, data, at)

    monkeypatch.setattr(os, "open", notice)
    monkeypatch.setattr(os, "pwrite", refuse)


def not_seen_by_others(monkeypatch: pytest.MonkeyPatch) -> None:
    read = os.pread
    monkeypatch.setattr(os, "pread", lambda descriptor, size, at: bytes(len(read(descriptor, size, at))))


WAYS: list[Prepare] = [allowed, unknown_to_the_system, refused_when_opened, refused_when_written, not_seen_by_others]


@pytest.mark.parametrize("prepare", WAYS)
def test_what_was_written_is_there_for_everybody_at_once(
    tmp_path: Path, prepare: Prepare, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file"
    with monkeypatch.context() as patch:
        prepare(patch)
        file = BlockFile(path, 8 * BLOCK, 3 * BLOCK, BEGIN)
    if prepare is not allowed:
        assert not file.is_direct
    expected = bytearray(8 * BLOCK)
    expected[: len(BEGIN)] = BEGIN
    reader = os.open(path, os.O_RDONLY)
    try:
        for round_ in range(3):  # over what was there before, and what was read before
            for place, size in ((1, 1), (2, BLOCK - 1), (3, BLOCK), (4, BLOCK + 1), (2, 10), (5, 3 * BLOCK)):
                data = os.urandom(size)
                file.write(data, place * BLOCK)
                expected[place * BLOCK : place * BLOCK + blocks(size)] = data.ljust(blocks(size), b"\0")
                assert os.pread(reader, 9 * BLOCK, 0) == expected, (round_, place, size)
    finally:
        os.close(reader)
        file.close()
    assert path.read_bytes() == expected


@pytest.mark.parametrize("prepare", [allowed, unknown_to_the_system])
def test_a_write_that_is_cut_short_goes_on(tmp_path: Path, prepare: Prepare, monkeypatch: pytest.MonkeyPatch) -> None:
    prepare(monkeypatch)
    file = BlockFile(tmp_path / "file", 4 * BLOCK, 2 * BLOCK, BEGIN)
    write = os.pwrite
    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", lambda descriptor, data, at: write(descriptor, data[:BLOCK], at))
        data = os.urandom(BLOCK + 5)
        file.write(data, BLOCK)
    file.close()
    assert (tmp_path / "file").read_bytes()[BLOCK:].rstrip(b"\0") == data.rstrip(b"\0")


def test_where_writes_go_through_the_page_cache_each_is_synced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And what fails then, fails."""
    unknown_to_the_system(monkeypatch)
    synced: list[int] = []
    monkeypatch.setattr(block_file, "_sync", synced.append)
    file = BlockFile(tmp_path / "file", 4 * BLOCK, BLOCK, BEGIN)
    before = len(synced)
    file.write(b"a", BLOCK)
    file.write(b"b", BLOCK)
    assert len(synced) == before + 2

    def fail(descriptor: int) -> None:
        raise OSError(errno.EIO, "input/output error")

    monkeypatch.setattr(block_file, "_sync", fail)
    with pytest.raises(OSError, match="input/output error"):
        file.write(b"c", BLOCK)
    file.close()


@pytest.mark.parametrize("prepare", [allowed, unknown_to_the_system])
def test_a_write_that_fails_says_so(tmp_path: Path, prepare: Prepare, monkeypatch: pytest.MonkeyPatch) -> None:
    prepare(monkeypatch)
    file = BlockFile(tmp_path / "file", 4 * BLOCK, BLOCK, BEGIN)

    def fail(descriptor: int, data: bytes, at: int) -> int:
        raise OSError(errno.EIO, "input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", fail)
        with pytest.raises(OSError, match="input/output error"):
            file.write(b"a", BLOCK)
    file.close()


def test_around_the_page_cache_a_write_is_one_call_that_waits_for_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without O_DSYNC it would be on its way, and no more."""
    flags: list[int] = []
    ordinary = os.open

    def notice(path: str, how: int, mode: int = 0o777) -> int:
        descriptor = ordinary(path, how, mode)
        flags.append(how)
        return descriptor

    with monkeypatch.context() as patch:
        patch.setattr(os, "open", notice)
        file = BlockFile(tmp_path / "file", 4 * BLOCK, BLOCK, BEGIN)
    file.close()
    if not file.is_direct:
        pytest.skip("the file system of the tests does not do this")
    assert flags[-1] & os.O_DSYNC
    assert flags[-1] & os.O_DIRECT


@pytest.mark.parametrize("prepare", WAYS)
def test_no_descriptor_is_left_behind(tmp_path: Path, prepare: Prepare, monkeypatch: pytest.MonkeyPatch) -> None:
    if not Path("/proc/self/fd").exists():
        pytest.skip("nothing here says which are open")
    with monkeypatch.context() as patch:
        prepare(patch)
        file = BlockFile(tmp_path / "file", 4 * BLOCK, BLOCK, BEGIN)
        with pytest.raises(FileExistsError):
            BlockFile(tmp_path / "file", 4 * BLOCK, BLOCK, BEGIN)
        file.close()
    targets: list[Path] = []
    for link in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # somebody else's, closed meanwhile
            targets.append(link.readlink())
    assert targets
    assert tmp_path / "file" not in targets
