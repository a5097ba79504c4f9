"""An archive's folder, wherever Spark can write: the Hadoop file system of its path."""

from __future__ import annotations

import json
import os
import re
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypedDict

from sievemq_spark.errors import PipelineError
from sievemq_spark.failures import explain_failure

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

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


class Files:
    """Paths below one folder, written with ``/``.

    Args:
        spark: the running session, whose Hadoop settings count.
        root: the folder, as Spark takes it: a local path, ``hdfs://…``, ``s3a://…``.

    Raises:
        PipelineError: Spark has no such file system, or cannot reach it.
    """

    def __init__(self, spark: SparkSession, root: str) -> None:
        jvm: Any = spark._jvm
        jsc: Any = spark._jsc
        session: Any = spark._jsparkSession
        self._jvm = jvm
        self._path = jvm.org.apache.hadoop.fs.Path
        self._settings = jsc.hadoopConfiguration()
        try:
            self._fs = self._path(root).getFileSystem(self._settings)
            self._fs.exists(self._path(root))
        except Exception as error:
            raise PipelineError(f"{root} cannot be reached: {explain_failure(error)}") from error
        parquet = jvm.org.apache.spark.sql.execution.datasources.parquet
        self._converter = parquet.ParquetToSparkSchemaConverter(session.sessionState().conf())
        self.root = str(self._fs.makeQualified(self._path(root)).toString())

    def at(self, name: str) -> str:
        """The whole path of something in the folder, for Spark."""
        return f"{self.root}/{name}" if name else self.root

    def exists(self, name: str = "") -> bool:
        """True if there is a file or folder of that name; the folder itself for an empty one."""
        return bool(self._fs.exists(self._path(self.at(name))))

    def require_writable(self) -> None:
        """Make the folder if it is not there, write a file in it and remove that again.

        Raises:
            PipelineError: that is not possible; names the reason.
        """
        probe = self._path(self.at(f"_probe-{uuid.uuid4()}"))
        try:
            self._fs.create(probe, False).close()
            self._fs.delete(probe, False)
        except Exception as error:
            raise PipelineError(f"{self.root} cannot be written: {explain_failure(error)}") from error

    def parquet(self) -> Iterator[tuple[str, int]]:
        """Name and bytes of each Parquet file that Spark would read: none in a folder that begins with _ or a point."""
        if not self.exists():
            return
        found = self._fs.listFiles(self._path(self.root), True)
        while found.hasNext():
            status = found.next()
            name = str(status.getPath().toString()).removeprefix(self.root).lstrip("/")
            if name.endswith(".parquet") and not any(part[0] in "_." for part in name.split("/")):
                yield name, int(status.getLen())

    def parquet_schema(self, name: str) -> str:
        """The columns that a Parquet file has, from its footer, as Spark's JSON.

        Spark's own note there is ignored: programs that change the columns of a file keep it unchanged.

        Raises:
            Py4JJavaError: it cannot be read; its cause has the reason.
        """
        hadoop = self._jvm.org.apache.parquet.hadoop
        source = hadoop.util.HadoopInputFile.fromPath(self._path(self.at(name)), self._settings)
        reader = hadoop.ParquetFileReader.open(source)
        try:
            return str(self._converter.convert(reader.getFooter().getFileMetaData().getSchema()).json())
        finally:
            reader.close()

    def names(self, folder: str) -> list[str]:
        """The names in a folder, without those of its subfolders; empty if the folder does not exist."""
        if not self.exists(folder):
            return []
        return sorted(str(each.getPath().getName()) for each in self._fs.listStatus(self._path(self.at(folder))))

    def delete(self, name: str) -> None:
        """Delete a file or a folder with all it holds; nothing happens if it is not there."""
        self._fs.delete(self._path(self.at(name)), True)

    def rename(self, name: str, to: str) -> None:
        """Move a file.

        Raises:
            OSError: the file system refuses.
        """
        if not self._fs.rename(self._path(self.at(name)), self._path(self.at(to))):
            raise OSError(f"{self.at(name)} cannot be renamed to {self.at(to)}")

    def read(self, name: str) -> str:
        stream = self._fs.open(self._path(self.at(name)))
        try:
            return str(self._jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
        finally:
            stream.close()

    def write(self, name: str, text: str) -> None:
        """Write a small text file: whole, or not at all."""
        part = f"{name}.part"
        stream = self._fs.create(self._path(self.at(part)), True)
        try:
            stream.write(bytearray(text, "utf-8"))
        finally:
            stream.close()
        self.rename(part, name)


WORK: Final = "_compaction"
"""New files take the place of old ones in an archive: all of them or none, also when the job is killed in the middle.

    _compaction/<id>/…        the new files; Spark reads nothing in folders that begin with _
    _compaction/<id>.json     which new files take the place of which old ones. From here on it counts

Then the old files go and the new ones move in, and last the description goes. Each opening of the archive carries out
what is described, so a job that was killed at any point leaves one of the two states.
"""


class Replacement(TypedDict):
    """The new files of one folder, and the old ones that they replace."""

    folder: str
    staged: str
    new: list[str]
    old: list[str]


def decide(place: Files, job: str, moves: list[Replacement]) -> None:
    """Describe a replacement: from here on it is certain, and :func:`finish` completes it."""
    place.write(f"{WORK}/{job}.json", json.dumps(moves))


def finish(spark: SparkSession, path: str) -> None:
    """Complete a replacement that was described, such as by a job that was killed. Has no effect otherwise.

    Raises:
        PipelineError: the new files are neither where they were written nor where they belong; nothing is changed.
    """
    place = Files(spark, path)
    for description in place.names(WORK):
        if not description.endswith(".json"):
            continue
        moves: list[Replacement] = json.loads(place.read(f"{WORK}/{description}"))
        for move in moves:
            for name in move["new"]:  # before the first old file is removed: it would be the last copy
                if not (place.exists(f"{move['staged']}/{name}") or place.exists(f"{move['folder']}/{name}")):
                    raise PipelineError(
                        f"{place.at(WORK)}/{description} says that {move['staged']}/{name} takes the place of "
                        f"{len(move['old'])} files, but it is not there; delete the description to keep those files"
                    )
        for move in moves:
            for name in move["old"]:
                place.delete(name)
            for name in move["new"]:
                # else it has been moved before. An object store copies, then deletes: both may be there
                if not place.exists(f"{move['folder']}/{name}"):
                    place.rename(f"{move['staged']}/{name}", f"{move['folder']}/{name}")
        place.delete(f"{WORK}/{description}")
        place.delete(f"{WORK}/{description.removesuffix('.json')}")
