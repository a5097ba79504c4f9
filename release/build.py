"""The files of a release: the sdist of a commit, and wheels that are made from it and from nothing else."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tarfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple


class BuildError(Exception):
    """A step failed; the text has its command and what it wrote."""


class Commit(NamedTuple):
    """What is released.

    Attributes:
        epoch: seconds since 1970 of the commit, for SOURCE_DATE_EPOCH: files of a release have this time.
    """

    name: str
    epoch: int


def run(command: Sequence[str], folder: Path | None = None, environment: Mapping[str, str] | None = None) -> str:
    """Run a command and return what it writes to standard output.

    Raises:
        BuildError: it fails.
    """
    done = subprocess.run(
        list(command),
        cwd=folder,
        env={**os.environ, **(environment or {})},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise BuildError(f"{' '.join(command)}: exit status {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def commit(root: Path) -> Commit:
    """The commit that is checked out."""
    name, epoch = run(["git", "log", "-1", "--format=%h %ct"], root).split()
    return Commit(name, int(epoch))


def has_changes(root: Path) -> bool:
    """Whether the tree differs from its commit."""
    return run(["git", "status", "--porcelain"], root) != ""


def export(root: Path, name: str, folder: Path) -> None:
    """Write the files of a commit into a new folder: what is not committed is not released."""
    folder.mkdir(parents=True)
    archive = folder.with_suffix(".tar")
    run(["git", "archive", "--format", "tar", "--output", str(archive), name], root)
    with tarfile.open(archive) as members:
        members.extractall(folder, filter="data")
    archive.unlink()


class Builder:
    """Makes the files of a release, by uv, in build environments of their own.

    Args:
        epoch: the time of all files.
        level: the C compiler's level for compiled wheels, see hatch_build.py.
    """

    def __init__(self, epoch: int, level: int = 3) -> None:
        self._environment = {"SOURCE_DATE_EPOCH": str(epoch)}
        self._compiling = {"SIEVEMQ_COMPILE": "1", "SIEVEMQ_COMPILE_LEVEL": str(level)}

    def sdist(self, source: Path, out: Path) -> Path:
        """The sdist of a folder."""
        self._build("--sdist", source, out, sys.executable, {})
        (made,) = out.glob("*.tar.gz")
        return made

    def wheel(self, source: Path, out: Path) -> Path:
        """The pure wheel of a folder or an sdist."""
        self._build("--wheel", source, out, sys.executable, {})
        (made,) = out.glob("*-none-any.whl")
        return made

    def compiled(self, sdist: Path, out: Path, pythons: Mapping[str, Path]) -> list[Path]:
        """A compiled wheel for each Python, two at a time."""

        def one(version: str) -> Path:
            self._build("--wheel", sdist, out / version, str(pythons[version]), self._compiling)
            (made,) = (out / version).glob("*.whl")
            moved = made.rename(out / made.name)
            (out / version).rmdir()
            return moved

        with ThreadPoolExecutor(max_workers=2) as pool:
            return list(pool.map(one, pythons))

    def _build(self, kind: str, source: Path, out: Path, python: str, environment: Mapping[str, str]) -> None:
        command = [uv(), "build", "--quiet", kind, "--python", python, "--no-python-downloads", "--out-dir", str(out)]
        run([*command, "--no-create-gitignore", str(source)], None, {**self._environment, **environment})


def uv() -> str:
    """The uv beside this Python."""
    return str(Path(sys.executable).with_name("uv"))


def digest(path: Path) -> str:
    """The SHA-256 of a file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def differences(first: Path, second: Path) -> list[str]:
    """The names of the files of two folders that are not the same bytes in both."""
    folders = [{path.name: digest(path) for path in folder.glob("*.*")} for folder in (first, second)]
    return sorted({name for name, _ in folders[0].items() ^ folders[1].items()})


def sums(folder: Path) -> str:
    """The SHA-256 of each file of a folder, as ``sha256sum --check`` reads them."""
    return "".join(f"{digest(path)}  {path.name}\n" for path in sorted(folder.iterdir()) if path.is_file())
