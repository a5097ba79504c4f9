"""Promoted columns: properties that get a column of their own beside the map, named in DDL (``region STRING``)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from sievemq_spark.errors import PipelineError

#: Spark type -> letter of the JMS type it holds (message/values.py).
TYPES: Final[dict[str, str]] = {
    "boolean": "z", "tinyint": "b", "smallint": "h", "int": "i", "bigint": "l", "float": "f", "double": "d",
    "string": "s",
}  # fmt: skip

_SYNONYMS: Final = {"bool": "boolean", "byte": "tinyint", "short": "smallint", "integer": "int", "long": "bigint",
                    "real": "float"}  # fmt: skip

_ENTRY: Final = re.compile(
    r"\s*(?:`(?P<quoted>(?:[^`]|``)+)`|(?P<plain>[^\s,`:]+))(?:\s*:\s*|\s+)(?P<type>\w+)\s*(?:,|$)"
)


def parse_columns(columns: str | Mapping[str, str] | None, taken: frozenset[str] = frozenset()) -> dict[str, str]:
    """Property name -> Spark type, in order.

    Args:
        columns: ``region STRING, price DOUBLE``; names with blanks or commas need backticks. Or a mapping.
        taken: names that columns already have, in lower case.

    Raises:
        PipelineError: it cannot be read, names a type that no property has, or a name twice or one that is taken
            (Spark ignores letter case in names).
    """
    if not columns:
        return {}
    pairs = list(columns.items()) if isinstance(columns, Mapping) else _read(columns)
    result: dict[str, str] = {}
    seen = set(taken)
    for name, text in pairs:
        kind = text.lower()
        kind = _SYNONYMS.get(kind, kind)
        if kind not in TYPES:
            raise PipelineError(f"the column {name!r} has the type {text!r}; a property can be {', '.join(TYPES)}")
        if name.lower() in seen:
            what = "is a column of every message" if name.lower() in taken else "is there twice"
            raise PipelineError(
                f"the column {name!r} {what} (Spark ignores letter case in names); "
                f"properties['{name}'] reads the property"
            )
        seen.add(name.lower())
        result[name] = kind
    return result


def _read(text: str) -> list[tuple[str, str]]:
    pairs, at = [], 0
    while at < len(text):
        match = _ENTRY.match(text, at)
        if match is None:
            raise PipelineError(f"columns cannot be read from {text[at : at + 40]!r} on; write: name TYPE, name TYPE")
        quoted = match["quoted"]
        pairs.append((quoted.replace("``", "`") if quoted else match["plain"], match["type"]))
        at = match.end()
    return pairs
