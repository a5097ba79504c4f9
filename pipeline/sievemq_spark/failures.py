"""Errors of Spark in one line that a user can act on; its own stack traces are screens long."""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import unquote

from sievemq_spark.spark import SLOW_WORKER

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
#: The lines of a Java exception and of its causes, without the frames of its stack; Py4J puts a line of its own before.
_JAVA_ERROR: Final = re.compile(
    r"^(?::|Caused by:) (?:[\w$]+\.)*(?P<kind>[\w$]+)(?::[ \n](?P<text>.*?))?"
    r"(?=\n\tat |\n\t\.\.\. |\nCaused by: |\n*\Z)",
    re.MULTILINE | re.DOTALL,
)
_PACKAGES: Final = re.compile(r"\b(?:[a-z]\w*\.){2,}(?=[A-Z]\w*(?:Exception|Error)\b)")
_NO_FILE_SYSTEM: Final = re.compile(
    r"Class (?P<name>[\w.$]*FileSystem\w*) not found|No FileSystem for scheme \"(?P<scheme>\w+)\""
)
_UNRESOLVED: Final = re.compile(r"\[UNRESOLVED_COLUMN[^\]]*\][^`]*`(?P<name>[^`]+)`")


_TRACEBACK: Final = "Traceback (most recent call last):"
_RAISED: Final = re.compile(r"^(?P<kind>(?:\w+\.)*\w+(?:Error|Exception)): (?P<text>.+)$", re.MULTILINE)

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
    raised = list(_RAISED.finditer(text)) if _TRACEBACK in text else []  # of a function of foreachBatch
    if raised and "Py4JJavaError" not in raised[-1]["kind"]:
        return raised[-1]["text"].strip()
    return java_cause(text) or (text.strip().splitlines()[0] if text.strip() else type(error).__name__)


def java_cause(text: str) -> str:
    """The texts of a Java exception and its innermost cause; empty if there are none.

    Args:
        text: of a Py4JJavaError: a line of Py4J's, the exception, its stack, its causes.
    """
    said = []
    for found in _JAVA_ERROR.finditer(text):
        line = _PACKAGES.sub("", (found["text"] or "").strip().partition("\n")[0])
        said.append(f"{found['kind']}: {line}" if line else found["kind"])
    if not said:
        return ""
    missing = _NO_FILE_SYSTEM.search(said[-1])
    if missing:
        return (
            f"Spark has no file system for this path ({said[-1]}): add its jars by the setting spark.jars.packages, "
            "such as org.apache.hadoop:hadoop-aws for s3a"
        )
    first, last = said[0], said[-1]
    return first if last.partition(": ")[2] in first else f"{first} ({last})"
