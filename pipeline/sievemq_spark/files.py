"""The files below an archive's folder, and what the pipeline does with them. hadoop_files.py and arrow_files.py reach
them, file_systems.py chooses."""

from __future__ import annotations

import os
import re
import uuid
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from sievemq_spark.errors import PipelineError
from sievemq_spark.failures import explain_failure

_SCHEME: Final = re.compile(r"[A-Za-z][\w+.-]+:")


def check_writable(path: str) -> None:
    """Raise if a local folder can neither be created nor written to. Needs no Spark, checks no other file system.

    Raises:
        PipelineError: says why.
    """
    local = path.removeprefix("file://").removeprefix("file:")
    if _SCHEME.match(local) or (local == path and "HADOOP_CONF_DIR" in os.environ):  # which may name another one
        return
    there = Path(local).absolute()
    while not os.path.lexists(there):
        there = there.parent
    if not there.is_dir():
        raise PipelineError(f"{path} cannot be written: {there} is no folder")
    if not os.access(there, os.W_OK | os.X_OK):
        raise PipelineError(f"{path} cannot be written: no permission to write in {there}")


def literal(path: str) -> str:
    """A path for ``spark.read``, which takes the characters of patterns in it as they are."""
    return _PATTERN.sub(r"\\\g<0>", path)


_PATTERN: Final = re.compile(r"[\[\]{}*?\\]")


class Files(ABC):
    """Paths below one folder, written with ``/``.

    Attributes:
        root: the folder, as Spark takes it.
    """

    root: str

    def at(self, name: str) -> str:
        """The whole path of something in the folder, for Spark."""
        return f"{self.root}/{name}" if name else self.root

    @abstractmethod
    def exists(self, name: str = "") -> bool:
        """True if there is a file or folder of that name; the folder itself for an empty one."""

    @abstractmethod
    def create(self, name: str, data: bytes) -> None:
        """Write a file, and make the folders that it is in."""

    @abstractmethod
    def read(self, name: str) -> str:
        """The text of a file."""

    @abstractmethod
    def names(self, folder: str) -> list[str]:
        """The names in a folder, without those of its subfolders; empty if the folder does not exist."""

    @abstractmethod
    def delete(self, name: str) -> None:
        """Delete a file or a folder with all it holds; nothing happens if it is not there."""

    @abstractmethod
    def rename(self, name: str, to: str) -> None:
        """Move a file.

        Raises:
            OSError: the file system refuses.
        """

    @abstractmethod
    def parquet_schema(self, name: str) -> str:
        """The columns that a Parquet file has, from its footer, as Spark's JSON.

        Spark's own note there is ignored: programs that change the columns of a file keep it unchanged.

        Raises:
            OSError: it cannot be read; the text is the reason.
        """

    @abstractmethod
    def _all(self) -> Iterator[tuple[str, int]]:
        """Name and bytes of each file, also in subfolders; none if the folder does not exist."""

    def parquet(self) -> Iterator[tuple[str, int]]:
        """Name and bytes of each Parquet file that Spark would read: none in a folder that begins with _ or a point."""
        for name, size in self._all():
            if name.endswith(".parquet") and not any(part[0] in "_." for part in name.split("/")):
                yield name, size

    def require_writable(self) -> None:
        """Make the folder if it is not there, write a file in it and remove that again.

        Raises:
            PipelineError: that is not possible; names the reason.
        """
        probe = f"_probe-{uuid.uuid4()}"
        try:
            self.create(probe, b"")
            self.delete(probe)
        except Exception as error:
            raise PipelineError(f"{self.root} cannot be written: {explain_failure(error)}") from error

    def write(self, name: str, text: str) -> None:
        """Write a small text file: whole, or not at all."""
        part = f"{name}.part"
        self.create(part, text.encode())
        self.rename(part, name)

    def delete_all(self, names: Sequence[str]) -> None:
        """Delete several files or folders."""
        for name in names:
            self.delete(name)

    def listed(self) -> tuple[str, list[tuple[str, int]]]:
        """:attr:`root`, and what :meth:`parquet` yields."""
        return self.root, list(self.parquet())

    def has_parquet(self) -> bool:
        """True if :meth:`parquet` yields anything."""
        return next(self.parquet(), None) is not None
