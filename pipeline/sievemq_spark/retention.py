"""Old days leave an archive."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from datetime import date
from typing import TYPE_CHECKING

from sievemq_spark.archive import OUTCOMES, outcomes_of, require_archive, require_destination
from sievemq_spark.file_systems import on_files
from sievemq_spark.replacement import finish
from sievemq_spark.times import UNDATED

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True, slots=True)
class Expired:
    """The files that :func:`expire` removed, or would remove.

    Attributes:
        days: folders, ``namespace=…/destination=…/date=…``; those of the outcomes begin with ``_outcomes/``.
        files, size: Parquet files and their bytes.
    """

    days: list[str]
    files: int
    size: int


def expire(
    spark: SparkSession, path: str, before: date, *, destination: str | None = None, dry_run: bool = False
) -> Expired:
    """Remove the days before a date. Days without a date stay: messages whose
    producer disables timestamps, or sets one outside of the years 1000 to 9999.

    Args:
        spark: the session.
        path: the archive.
        before: the first day that stays.
        destination: only this one's, ``queue:orders``.
        dry_run: report what would be removed, remove nothing.

    Raises:
        NoArchiveError: there is none.
        NoDestinationError: it never had the destination. A destination without remaining days is no error.
    """
    from urllib.parse import unquote

    require_archive(spark, path)
    if destination is not None:
        require_destination(spark, path, destination, emptied=True)
    found: list[tuple[str, int]] = []
    for root, prefix in ((path, ""), (outcomes_of(path), f"{OUTCOMES}/")):
        finish(spark, root)
        _, listed = on_files(spark, root, lambda place: place.listed())
        found += [(prefix + name, size) for name, size in listed]
    folders: dict[str, list[int]] = defaultdict(list)
    for name, size in found:
        folder = name.rpartition("/")[0]
        values = dict(part.partition("=")[::2] for part in folder.split("/"))
        try:
            day = date.fromisoformat(values.get("date", ""))
        except ValueError:
            continue
        if UNDATED < day < before and destination in (None, unquote(values.get("destination", ""))):
            folders[folder].append(size)
    if not dry_run:
        days = list(folders)
        on_files(spark, path, lambda place: place.delete_all(days))
    return Expired(sorted(folders), sum(map(len, folders.values())), sum(map(sum, folders.values())))
