"""What is in a data directory is for the broker's user alone, whatever the umask is."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from sievemq import ConnectionFactory, Queue
from sievemq_broker import EmbeddedBroker
from sievemq_broker.store import SqliteStore, StoreError
from sievemq_broker.store.salvage import repair

from .test_salvage import change, fill, run

pytestmark = pytest.mark.skipif(os.name != "posix", reason="modes of files are POSIX's")


@pytest.fixture(params=[0o000, 0o022, 0o077])
def umask(request: pytest.FixtureRequest) -> Iterator[None]:
    before = os.umask(request.param)
    yield
    os.umask(before)


def modes(directory: Path) -> dict[str, int]:
    """The mode of a directory and of all that is in it, but for those that only the owner can use."""
    found = {str(path): stat.S_IMODE(path.stat().st_mode) for path in (directory, *directory.rglob("*"))}
    return {path: mode for path, mode in found.items() if mode & 0o077}


@pytest.mark.usefixtures("umask")
def test_all_files_are_private_from_the_start(tmp_path: Path) -> None:
    directory = tmp_path / "parent" / "data"
    for _ in range(2):  # a new directory, and one that is there
        with EmbeddedBroker(data_dir=directory) as broker, ConnectionFactory(broker.url).create_context() as context:
            context.create_producer().send(Queue("q"), "x" * 100_000)
            names = {path.name for path in directory.iterdir()}
            assert names >= {"store.db", "store.db-wal", "store.db-shm", "lock", "witness"}
            assert modes(directory) == {}
    assert modes(directory) == {}


def test_files_of_an_earlier_version_become_private(tmp_path: Path) -> None:
    SqliteStore(tmp_path, reserve=4_096).close()
    for path in tmp_path.iterdir():
        path.chmod(0o644)
    tmp_path.chmod(0o755)
    store = SqliteStore(tmp_path, reserve=4_096)
    assert set(modes(tmp_path)) == {str(tmp_path)}, "the operator's own directory is left as it is"
    store.close()


@pytest.mark.usefixtures("umask")
def test_repair_leaves_private_files(tmp_path: Path) -> None:
    directory = tmp_path / "data"
    fill(directory)
    change(directory, "UPDATE batch SET data = zeroblob(8) WHERE id = 1")
    aside = repair(directory, lambda: "name").set_aside
    assert aside is not None
    assert modes(directory).keys() <= {str(aside / "left-out.jsonl")}  # in a directory that is private


@pytest.mark.parametrize("name", ["lock", "witness", "store.db"])
def test_a_planted_symbolic_link_is_not_followed(tmp_path: Path, name: str) -> None:
    (victim := tmp_path / "victim").write_text("precious")
    (data := tmp_path / "data").mkdir()
    (data / name).symlink_to(victim if name != "store.db" else tmp_path / "made")
    with pytest.raises(StoreError):
        SqliteStore(data, reserve=4_096)
    assert victim.read_text() == "precious"
    assert not (tmp_path / "made").exists()


def test_a_directory_of_another_user_names_both_users(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a directory of root that is mounted into a container; root itself may write everywhere."""

    def refuse(path: Path) -> int:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("sievemq_broker.store.files.open_private", refuse)
    with pytest.raises(StoreError, match=r"lock cannot be opened: Permission denied$"):
        SqliteStore(tmp_path)
    owner = tmp_path.stat().st_uid
    monkeypatch.setattr(os, "geteuid", lambda: 10_001)
    with pytest.raises(StoreError, match=rf"runs as uid 10001, and .* belongs to uid {owner}: chown -R 10001"):
        SqliteStore(tmp_path)


@pytest.mark.usefixtures("umask")
def test_exported_messages_are_private(tmp_path: Path) -> None:
    fill(tmp_path / "data")
    out = tmp_path / "messages.jsonl"
    assert run("export", tmp_path / "data", "--out", out).exit_code == 0
    assert stat.S_IMODE(out.stat().st_mode) == 0o600
    out.chmod(0o640)  # as its owner wants it
    assert run("export", tmp_path / "data", "--out", out).exit_code == 0
    assert stat.S_IMODE(out.stat().st_mode) == 0o640
    assert out.read_text("utf-8").count("\n") > 3
