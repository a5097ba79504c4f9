"""Many small files of an archive become few. Never lost, never doubled, also when the job is killed in the middle.

The new files take the place of the old ones as replacement.py says. What is not described there may be the work of a
job that runs: only the next compaction drops it.
"""

from __future__ import annotations

import uuid
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from sievemq_spark.archive import outcomes_of, require_archive
from sievemq_spark.errors import PipelineError
from sievemq_spark.file_systems import on_files
from sievemq_spark.files import Files, literal
from sievemq_spark.misfits import require_files
from sievemq_spark.replacement import WORK, Replacement, decide, finish
from sievemq_spark.schema import COLUMNS, OUTCOME_COLUMNS, PARTITIONS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TARGET_BYTES: Final = 128 * 1024 * 1024
"""Size that a file is filled up to: what Spark reads as one split."""


@dataclass(frozen=True, slots=True)
class Compacted:
    """The result of :func:`compact`.

    Attributes:
        folders: that had enough files.
        before, after: files in them.
        messages: rows that were rewritten, outcomes included.
    """

    folders: int
    before: int
    after: int
    messages: int

    def __add__(self, other: Compacted) -> Compacted:
        return Compacted(
            self.folders + other.folders,
            self.before + other.before,
            self.after + other.after,
            self.messages + other.messages,
        )


def compact(spark: SparkSession, path: str, *, files: int = 4) -> Compacted:
    """Write the days of an archive that have many files as few files, sorted by time.

    No other program may read from or add to the archive meanwhile.

    Args:
        spark: the session.
        path: the archive.
        files: days with fewer files are left unchanged; at least 2.

    Raises:
        NoArchiveError: there is none.
        PipelineError: `files` is less than 2, or a file that would be rewritten is damaged or holds something else.
    """
    if files < 2:
        raise PipelineError("files are 2 or more: one file cannot become fewer")
    require_archive(spark, path)
    done = _compact(spark, path, files, COLUMNS)
    return done + _compact(spark, outcomes_of(path), files, OUTCOME_COLUMNS)


def _compact(spark: SparkSession, path: str, files: int, columns: Mapping[str, str]) -> Compacted:
    finish(spark, path)
    drop = partial(on_files, spark, path, lambda place: place.delete(WORK))
    drop()  # what a job left that was killed before it had decided anything
    root, listed = on_files(spark, path, lambda place: place.listed())
    folders: dict[str, list[tuple[str, int]]] = defaultdict(list)
    for name, size in listed:
        folders[name.rpartition("/")[0]].append((name, size))
    crowded = {folder: found for folder, found in folders.items() if len(found) >= files}
    inside = [each for found in crowded.values() for each in found]
    on_files(spark, path, lambda place: require_files(place, inside, columns))
    job = uuid.uuid4().hex
    moves: list[Replacement] = []
    messages = 0
    for folder, found in sorted(crowded.items()):
        staged, old = f"{WORK}/{job}/{folder}", [name for name, _ in found]
        size = sum(size for _, size in found)
        messages += _rewrite(spark, [f"{root}/{name}" for name in old], size, f"{root}/{staged}", columns)
        written = on_files(spark, path, partial(_names, folder=staged))
        new = [name for name in written if name.endswith(".parquet")]
        moves.append({"folder": folder, "staged": staged, "new": new, "old": old})
    if moves:
        decide(spark, path, job, moves)
        finish(spark, path)
        drop()
    return Compacted(
        len(moves), sum(len(move["old"]) for move in moves), sum(len(move["new"]) for move in moves), messages
    )


def _names(place: Files, folder: str) -> list[str]:
    return place.names(folder)


def _rewrite(spark: SparkSession, paths: list[str], size: int, staged: str, columns: Mapping[str, str]) -> int:
    fields = ", ".join(f"`{name}` {kind}" for name, kind in columns.items() if name not in PARTITIONS)
    frame = spark.read.schema(fields).parquet(*map(literal, paths))
    pieces = max(1, -(-size // TARGET_BYTES))
    spread = frame.repartitionByRange(pieces, "timestamp", "seq") if pieces > 1 else frame.coalesce(1)
    spread.sortWithinPartitions("timestamp", "seq").write.option("compression", "zstd").parquet(staged)
    before, after = frame.count(), spark.read.schema(fields).parquet(literal(staged)).count()
    if before != after:
        raise PipelineError(f"{before} messages became {after} while they were rewritten; nothing was changed")
    return after
