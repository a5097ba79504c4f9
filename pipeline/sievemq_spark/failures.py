"""What went wrong in Spark, in one line that a user can act on; its own stack traces are screens long."""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import unquote

from sievemq_spark.runs import SLOW_WORKER

__all__ = ["DAMAGED", "explain_failure"]

#: How the SDK's and the pipeline's own errors begin in the traceback of a Python worker.
_OURS: Final = re.compile(
    r"^(?:pyspark\S*: )?sievemq[\w.]*\.\w+(?:Exception|Error): "
    r"(?P<text>.*?)(?=^\S*Traceback|^\s*SQLSTATE|^\tat |\Z)",
    re.MULTILINE | re.DOTALL,
)
_PARQUET: Final = re.compile(r"(?P<path>(?:file|hdfs|s3a?)?:?/[^\s\"']*?\.parquet)\b", re.IGNORECASE)
_BROKEN: Final = ("is not a Parquet file", "FAILED_READ_FILE", "CANNOT_READ_FILE_FOOTER", "Could not read footer",
                  "ParquetDecodingException")  # fmt: skip
_OTHER_TYPE: Final = re.compile(
    r"column: \[(?P<name>[^]]+)\], physicalType: (?P<found>\w+), logicalType: (?P<wanted>\w+)"
)
_UNRESOLVED: Final = re.compile(r"\[UNRESOLVED_COLUMN[^\]]*\][^`]*`(?P<name>[^`]+)`")


DAMAGED: Final = "a Parquet file cannot be read, it is damaged or none"


def _decoded(path: str) -> str:
    """Spark shows some paths as URLs, in which the % of a folder's name is %25."""
    return unquote(path) if "%25" in path else path


def explain_failure(error: BaseException) -> str:
    """The cause of an error in words, the first line of Spark's own text where it is none that is known."""
    text = str(error)
    ours = list(_OURS.finditer(text))
    if ours:
        return ours[-1]["text"].strip()
    if any(mark in text for mark in _BROKEN):
        path = _PARQUET.search(text)
        where = f": {_decoded(path['path'])}" if path else ""
        other = _OTHER_TYPE.search(text)
        if other:
            return (
                f"the column {other['name']} of a Parquet file is {other['found']} and was to be read as "
                f"{other['wanted']}{where}. Read that file by itself and cast the column"
            )
        return f"{DAMAGED}{where}. Restore or remove it"
    if SLOW_WORKER in text:
        return (
            "Spark waits ten seconds for a Python process to start, and this machine is too busy for that. "
            "Nothing was done; start it again"
        )
    unresolved = _UNRESOLVED.search(text)
    if unresolved:
        return f"there is no column {unresolved['name']!r} in these rows"
    return text.strip().splitlines()[0] if text.strip() else type(error).__name__
