"""New files take the place of old ones in an archive: all of them or none, also when the job is killed in the middle.

    _compaction/<id>/…        the new files; Spark reads nothing in folders that begin with _
    _compaction/<id>.json     which new files take the place of which old ones. From here on it counts

Then the old files go and the new ones move in, and last the description goes. Each opening of the archive carries out
what is described, so a job that was killed at any point leaves one of the two states.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final, TypedDict

from sievemq_spark.errors import PipelineError
from sievemq_spark.file_systems import on_files
from sievemq_spark.files import Files

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WORK: Final = "_compaction"


class Replacement(TypedDict):
    """The new files of one folder, and the old ones that they replace."""

    folder: str
    staged: str
    new: list[str]
    old: list[str]


def decide(spark: SparkSession, path: str, job: str, moves: list[Replacement]) -> None:
    """Describe a replacement: from here on it is certain, and :func:`finish` completes it."""
    name, text = f"{WORK}/{job}.json", json.dumps(moves)
    on_files(spark, path, lambda place: place.write(name, text))


def finish(spark: SparkSession, path: str) -> None:
    """Complete a replacement that was described, such as by a job that was killed. Has no effect otherwise.

    Raises:
        PipelineError: the new files are neither where they were written nor where they belong; nothing is changed.
    """
    on_files(spark, path, _finish)


def _finish(place: Files) -> None:
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
