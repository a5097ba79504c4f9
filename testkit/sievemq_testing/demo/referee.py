"""The referee: SQLite's WHERE clause on the same rows determines what each selector has to match.

SQLite knows nothing of SieveMQ and has the same three-valued logic, so an agreement of counts and checksums means
something. Where the two languages could differ, the table is made so that they must not: every column has one type
(comparison of unlike types never arises), LIKE is set to be case-sensitive, and integers divide like Java's in both
(truncated towards zero; a division by zero is NULL, D-02).
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from typing import NamedTuple

from sievemq_testing.demo.flights import COLUMNS, Flight

_SQL_TYPES = {int: "INTEGER", float: "REAL", str: "TEXT"}


class Verdict(NamedTuple):
    """The expected matches of a selector: their number, and the sum of their fingerprints."""

    messages: int
    checksum: int


class Referee:
    """The flights in SQLite's memory."""

    def __init__(self, flights: Iterable[Flight]) -> None:
        self._connection = sqlite3.connect(":memory:")
        try:
            self._connection.execute("PRAGMA case_sensitive_like = ON")
            columns = ", ".join(f"{name} {_SQL_TYPES[kind]}" for name, kind in COLUMNS.items())
            self._connection.execute(f"CREATE TABLE flights ({columns}, fingerprint INTEGER)")
            places = ", ".join("?" * (len(COLUMNS) + 1))
            self._connection.executemany(
                f"INSERT INTO flights VALUES ({places})",  # noqa: S608 - places are question marks
                ((*[flight.properties.get(name) for name in COLUMNS], flight.fingerprint) for flight in flights),
            )
        except BaseException:
            self._connection.close()
            raise

    def verdict(self, selector: str | None, left_by: Iterable[str] = ()) -> Verdict:
        """Compute the messages that a consumer with this selector must receive.

        Args:
            selector: the condition; None for every message.
            left_by: selectors of the consumers that took theirs from the queue before.
        """
        # A message is left unless the earlier condition is TRUE: false and unknown both leave it.
        conditions = [f"({selector or 'TRUE'}) IS TRUE", *[f"({earlier}) IS NOT TRUE" for earlier in left_by]]
        query = f"SELECT count(*), coalesce(sum(fingerprint), 0) FROM flights WHERE {' AND '.join(conditions)}"  # noqa: S608
        count, checksum = self._connection.execute(query).fetchone()
        return Verdict(count, checksum)

    def close(self) -> None:
        self._connection.close()
