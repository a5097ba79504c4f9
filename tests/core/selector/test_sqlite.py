"""SQLite's WHERE as an independent referee on the common part of the languages.

Left out, because SQLite differs there: mixed types (it orders them), booleans (it has none), integers beyond 32 bits
(it widens instead of wrapping) and with them arithmetic other than small sums, long against double (it compares
exactly), and the case of LIKE (switched on by a pragma).
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sievemq_core.selector import compile_selector

NUMBERS = ["i", "j", "d"]
TEXTS = ["s", "t"]

number = st.one_of(st.sampled_from(NUMBERS), st.integers(0, 9).map(str), st.sampled_from(["2.5", "0.5", "7.0", "1E1"]))
term = st.one_of(
    number,
    number,
    st.tuples(number, st.sampled_from(["+", "-", "*"]), number).map(" ".join).map("({})".format),
    st.sampled_from(NUMBERS).map("- {}".format),
    st.tuples(st.sampled_from(["i", "j"]), st.sampled_from(["1", "2", "3"])).map(" / ".join),
)
text = st.sampled_from(["'a'", "'ab'", "''", "'b%'", "'it''s'"])
column = st.sampled_from(TEXTS)
pattern = st.text("ab%_!", max_size=4).filter(lambda p: _escapes(p)).map("'{}' ESCAPE '!'".format)
NOT = st.sampled_from(["", "NOT "])
OPERATORS = st.sampled_from(["=", "<>", "<", "<=", ">", ">="])


def _escapes(pattern: str) -> bool:
    """True if every escape character has something to escape."""
    return "!" not in re.sub("!.", "", pattern)


leaf = st.one_of(
    st.tuples(term, OPERATORS, term).map(" ".join),
    st.tuples(term, OPERATORS, term).map(" ".join),
    st.builds("{} {}BETWEEN {} AND {}".format, term, NOT, term, term),
    st.builds("{} {} {}".format, column, st.sampled_from(["=", "<>"]), st.one_of(text, column)),
    st.builds("{} {}IN ({})".format, column, NOT, st.lists(text, min_size=1, max_size=3).map(", ".join)),
    st.builds("{} {}LIKE {}".format, column, NOT, pattern),
    st.builds(
        lambda name, values: "({})".format(" OR ".join(f"{name} = {value}" for value in values)),
        st.sampled_from(NUMBERS),
        st.lists(st.sampled_from(["-9", "-1", "0", "1", "3", "7", "2.5", "0.5", "-3.25"]), min_size=17, max_size=20),
    ),
    st.builds("{} IS {}NULL".format, st.sampled_from(NUMBERS + TEXTS), NOT),
)
where = st.recursive(
    leaf,
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from(["AND", "OR"]), inner).map(" ".join),
        inner.map("({})".format),
        inner.map("NOT ({})".format),
    ),
    max_leaves=6,
)
rows = st.fixed_dictionaries(
    {
        "i": st.none() | st.integers(-9, 9),
        "j": st.none() | st.integers(-9, 9),
        "d": st.none() | st.sampled_from([0.5, 2.5, -3.25, 7.0]),
        "s": st.none() | st.sampled_from(["", "a", "ab", "b%", "it's", "A"]),
        "t": st.none() | st.sampled_from(["", "a", "ab", "_", "!"]),
    }
)


@pytest.fixture(scope="module")
def connection() -> Iterator[sqlite3.Connection]:
    database = sqlite3.connect(":memory:")
    database.execute("PRAGMA case_sensitive_like = ON")
    yield database
    database.close()


@settings(max_examples=400)
@given(condition=where, batch=st.lists(rows, min_size=1, max_size=5))
def test_sqlite_finds_the_same_truth_value(
    connection: sqlite3.Connection, condition: str, batch: list[dict[str, Any]]
) -> None:
    selector = compile_selector(condition)
    assert selector is not None
    for row in batch:
        given_columns = ", ".join(f":{name} AS {name}" for name in row)
        (answer,) = connection.execute(f"SELECT {condition} FROM (SELECT {given_columns})", row).fetchone()
        expected = None if answer is None else bool(answer)
        present = {name: value for name, value in row.items() if value is not None}
        assert selector.evaluate(present, ()) is expected, row
        assert selector.function(row, ()) is (expected is True), row
