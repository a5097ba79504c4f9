"""What the Parquet files of an archive say about themselves, before any row is read: a file that is damaged, or that
another program has written otherwise, is named instead of read as NULLs."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from sievemq_spark.errors import PipelineError
from sievemq_spark.failures import DAMAGED
from sievemq_spark.files import Files
from sievemq_spark.misfits import require_columns
from sievemq_spark.schema import PARTITIONS

__all__ = ["require_files"]

_REMEDY: Final = (
    "Another program wrote it: move it away; or read it with spark.read.parquet, select the columns of "
    "docs/pipeline.md, and add them with sievemq_spark.archive.archive"
)

_good: set[tuple[str, int, str]] = set()
"""Path, bytes and what it has to hold of files that were found good: Spark gives each file a name of its own."""


def require_files(place: Files, found: Sequence[tuple[str, int]], columns: Mapping[str, str]) -> None:
    """Raise unless files hold rows with columns of their types. A process checks each file once.

    Args:
        place: the archive's folder.
        found: names below it and bytes, as :meth:`Files.parquet` gives them.
        columns: name -> Spark type, as in schema.py; those that the folders name are not in the files.

    Raises:
        PipelineError: names the file, and what is wrong with it.
    """
    from pyspark.sql.types import StructType

    kind = " ".join(columns)
    new = [(name, size) for name, size in found if (place.at(name), size, kind) not in _good]
    if not new:
        return
    inside = {name: kind for name, kind in columns.items() if name not in PARTITIONS}
    seen: set[str] = set()
    for name, size in new:
        _require_place(place, name)
        text = _footer(place, name, size)
        if text not in seen:
            subject = f"{place.at(name)} is no file of this archive"
            require_columns(StructType.fromJson(json.loads(text)), inside, subject, _REMEDY)
            seen.add(text)
        _good.add((place.at(name), size, kind))


def _require_place(place: Files, name: str) -> None:
    if tuple(part.partition("=")[0] for part in name.split("/")[:-1]) != PARTITIONS:
        folders = "/".join(f"{each}=…" for each in PARTITIONS)
        raise PipelineError(f"{place.at(name)} is no file of this archive: those lie in {folders}. {_REMEDY}")


def _footer(place: Files, name: str, size: int) -> str:
    """The file's columns: files that are alike say the same."""
    if not size:  # Spark passes over it without a word
        raise PipelineError(f"{DAMAGED}: {place.at(name)} is empty. Restore or remove it")
    from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped,import-not-found]

    try:
        return place.parquet_schema(name)
    except Py4JJavaError as error:
        cause: Any = error.java_exception
        said = str(cause.getMessage()).removeprefix(f"{place.at(name)} ").split("\n")[0]
        raise PipelineError(f"{DAMAGED}: {place.at(name)} ({said}). Restore or remove it") from None
