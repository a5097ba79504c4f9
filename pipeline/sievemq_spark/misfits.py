"""Finds columns with wrong names or types, with what they should be and what to do. No Spark is needed
for anything here; types are compared by name, so that Spark's need not be imported."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from sievemq_spark.errors import PipelineError
from sievemq_spark.failures import DAMAGED
from sievemq_spark.files import Files
from sievemq_spark.schema import PARTITIONS, PROPERTY_TYPE

#: What Spark reads as a wider type without loss, from a DataFrame and from Parquet.
_WIDENED_FROM: Final = {"int": ("tinyint", "smallint"), "bigint": ("tinyint", "smallint", "int")}

_SPELLED: Final = {"map": f"map<string,{PROPERTY_TYPE}>", "struct": PROPERTY_TYPE}


def misspelled(name: str, columns: Mapping[str, str]) -> str | None:
    """The column that is named the same but for letter case, which Spark ignores; None if there is none."""
    return next((each for each in columns if each.lower() == name.lower() and each != name), None)


def misfits(
    schema: Any, columns: Mapping[str, str], *, ordered: bool = False
) -> tuple[list[str], dict[str, tuple[str, str]]]:
    """The differences between the columns of rows and the expected ones.

    Args:
        schema: Spark's, of the rows; it may have other columns as well.
        columns: name -> Spark type, as in schema.py.
        ordered: the fields within `properties` must be in order, with none between; Spark casts and joins structs
            by position. Parquet is read by name.

    Returns:
        the missing names, and the names of another type -> its type and the expected one. Within `properties`
        a name is a path: ``properties.value.l``.
    """
    found = dict(_paths_of_all(schema))
    lower = {name.lower(): kind for name, kind in found.items()}
    missing: list[str] = []
    differing: dict[str, tuple[str, str]] = {}
    for name, kind in _wanted(columns):
        is_now = lower.get(name.lower())
        if any(name.startswith(f"{each}.") for each in (*missing, *differing)):
            continue  # what it lies in has been named
        if is_now is None:
            missing.append(name)
        elif is_now not in (kind, "void", *_WIDENED_FROM.get(kind, ())):
            differing[name] = is_now, kind
    if ordered and not any(name.startswith("properties") for name in (*missing, *differing)):
        whole = {field.name.lower(): field.dataType.simpleString() for field in schema.fields}
        for name, kind in columns.items():
            if kind.startswith("map<") and whole[name] != kind:
                differing[name] = whole[name], kind
    return missing, differing


def require_columns(
    schema: Any, columns: Mapping[str, str], subject: str, remedy: str = "", *, ordered: bool = False
) -> None:
    """Raise unless rows have columns of their types. One that can be widened fits, and NULL of no type.

    Args:
        remedy: what to do; how to select and cast them, if not given.

    Raises:
        PipelineError: names every column that is missing, and what the others are and should be.
    """
    missing, differing = misfits(schema, columns, ordered=ordered)
    if not (missing or differing):
        return
    wrong = []
    if missing:
        which = "columns {} are" if len(missing) > 1 else "column {} is"
        wrong.append(f"the {which.format(', '.join(missing))} missing")
    wrong += [
        f"{name} is {is_now} and has to be {_SPELLED.get(kind, kind)}" for name, (is_now, kind) in differing.items()
    ]
    raise PipelineError(f"{subject}: {'; '.join(wrong)}. {remedy or _remedy(missing, differing, columns)}")


def _remedy(missing: list[str], differing: Mapping[str, tuple[str, str]], columns: Mapping[str, str]) -> str:
    advice = []
    if any(name.startswith("properties") for name in (*missing, *differing)):
        advice.append(f"properties are {columns.get('properties', PROPERTY_TYPE)}, see docs/pipeline.md")
    plain = next((name for name in missing if name in columns and name != "properties"), None)
    if plain is not None:
        advice.append(f"add what is missing, such as CAST(NULL AS {columns[plain].upper()}) AS {plain}")
    other = next((name for name in differing if name in columns and name != "properties"), None)
    if other is not None:
        is_now, kind = differing[other]
        dated = is_now.startswith("timestamp") and kind == "bigint"
        cast = f"unix_millis({other})" if dated else f"CAST({other} AS {kind.upper()})"
        advice.append(f"convert what differs, such as {cast} AS {other}")
    text = "; ".join(advice)
    return text[:1].upper() + text[1:]


def _wanted(columns: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    for name, kind in columns.items():
        if not kind.startswith("map<"):
            yield name, kind
            continue
        yield from ((name, "map"), (f"{name}.key", "string"), (f"{name}.value", "struct"))
        for part in PROPERTY_TYPE.removeprefix("struct<").removesuffix(">").split(","):
            field, _, field_kind = part.partition(":")
            yield f"{name}.value.{field}", field_kind


def _paths_of_all(schema: Any) -> Iterator[tuple[str, str]]:
    for field in schema.fields:
        yield from _paths(field.name, field.dataType)


def _paths(name: str, kind: Any) -> Iterator[tuple[str, str]]:
    what = kind.typeName()
    if what == "map":
        yield name, what
        yield from _paths(f"{name}.key", kind.keyType)
        yield from _paths(f"{name}.value", kind.valueType)
    elif what == "struct":
        yield name, what
        for field in kind.fields:
            yield from _paths(f"{name}.{field.name}", field.dataType)
    else:
        yield name, kind.simpleString()


_REMEDY: Final = (
    "Another program wrote it: move it away; or read it with spark.read.parquet, select the columns of "
    "docs/pipeline.md, and add them with sievemq_spark.archive.archive"
)

_good: set[tuple[str, int, str]] = set()
"""Path, bytes and what it has to hold of files that were found good: Spark gives each file a name of its own."""


def require_files(place: Files, found: Sequence[tuple[str, int]], columns: Mapping[str, str]) -> None:
    """Raise unless files hold rows with columns of their types. A process checks a file once.

    Args:
        found: names below it and bytes, as :meth:`Files.parquet` gives them.
        columns: name -> Spark type, as in schema.py; columns that the folders name are not in the files.

    Raises:
        PipelineError: names the file and its mistake.
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
    """The file's columns; equal for files of equal schemas."""
    if not size:  # Spark passes over it without a word
        raise PipelineError(f"{DAMAGED}: {place.at(name)} is empty. Restore or remove it")
    try:
        return place.parquet_schema(name)
    except OSError as error:
        raise PipelineError(f"{DAMAGED}: {place.at(name)} ({error}). Restore or remove it") from None
