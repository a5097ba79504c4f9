"""The selector language: making a selector, and matching messages with it.

Matching is timed with the generated function and compared with the reference interpreter and with the same condition
written by hand in Python, which minds neither NULL nor types: what is left to gain. Making is compared with what Python
itself takes for an expression of the same size.
"""

from __future__ import annotations

import ast

from benchmarks.micro.timing import Row, compare, time_us
from sievemq_core.selector import CompiledSelector, cache, compile_selector
from sievemq_core.selector.dialect import JAKARTA
from sievemq_core.selector.parser import parse

__all__ = ["run"]

HEADERS = ("ID:1", 1_763_700_000_000, 4, 2, 0, 0, "N14228", None, "flight", None, None, 1, b"")
FLIGHT = {"carrier": "UA", "origin": "JFK", "dest": "SFO", "dep_delay": 75, "distance": 2586, "air_time": 345.0}
OTHER = {"carrier": "AA", "origin": "EWR", "dest": "MIA", "distance": 1085}

# name, selector, the same in Python for messages that have every property
CASES = (
    ("one equality", "carrier = 'UA'", "p['carrier'] == 'UA'"),
    ("equality and range", "carrier = 'UA' AND dep_delay > 60", "p['carrier'] == 'UA' and p['dep_delay'] > 60"),
    (
        "IN, LIKE, BETWEEN",
        "origin IN ('JFK','LGA') AND (dest LIKE 'S%' OR distance BETWEEN 2000 AND 3000)",
        "p['origin'] in ('JFK', 'LGA') and (p['dest'].startswith('S') or 2000 <= p['distance'] <= 3000)",
    ),
    ("arithmetic", "air_time / distance > 0.1", "p['air_time'] / p['distance'] > 0.1"),
    ("header", "JMSCorrelationID = 'N14228'", "h[6] == 'N14228'"),
)


# the largest that are allowed
LARGE = (
    ("127 ORs", " OR ".join(f"a{n} = {n}" for n in range(127))),
    ("95 BETWEENs", " OR ".join(f"a{n} BETWEEN 1 AND {n}" for n in range(95))),
    ("IN of 2,048", "a IN ({})".format(",".join(f"'{n}'" for n in range(2_048)))),
)


def run(seconds: float) -> list[Row]:
    """Every case, about `seconds` per stretch."""
    rows: list[Row] = []
    for name, text, python in CASES:
        selector = compiled(text)
        function = selector.function
        by_hand = eval(f"lambda p, h: {python}")  # text from the table above
        assert function(FLIGHT, HEADERS)
        assert by_hand(FLIGHT, HEADERS)
        us = time_us(lambda f=function: f(FLIGHT, HEADERS), 1, seconds)  # type: ignore[misc]
        slow = time_us(lambda s=selector: s.evaluate(FLIGHT, HEADERS), 1, seconds)  # type: ignore[misc]
        hand = time_us(lambda f=by_hand: f(FLIGHT, HEADERS), 1, seconds)  # type: ignore[misc]
        rows.append(Row(f"match, {name}", round(us, 4), "interpreter", round(slow, 4)))
        rows.append(Row(f"match, {name}", round(us, 4), "by hand", round(hand, 4)))
    selector = compiled(CASES[1][1])
    missed, interpreted = lambda: selector.function(OTHER, HEADERS), lambda: selector.evaluate(OTHER, HEADERS)
    rows.append(compare("no match, equality and range", missed, "interpreter", interpreted, 1, seconds))

    text, python = CASES[2][1], CASES[2][2]
    rows.append(
        compare("parse", lambda: parse(text, JAKARTA), "Python's ast.parse", lambda: ast.parse(python), 1, seconds)
    )
    rows.append(
        compare(
            "compile, every pass",
            lambda: compiled(text, fresh=True),
            "Python's compile",
            lambda: compile(python, "case", "eval"),
            1,
            seconds,
        )
    )
    rows.append(
        compare("compile, seen before", lambda: compiled(text), "Python's compile", rows[-1].baseline_us, 1, seconds)
    )

    for name, large in LARGE:
        rows.append(
            compare(
                f"compile, {name}",
                lambda t=large: compiled(t, fresh=True),  # type: ignore[misc]
                "10 ms, a turn's limit",
                10_000.0,
                1,
                seconds,
            )
        )
    hostile, harmless = compiled("a LIKE '%a%a%a%a%a%b'").function, compiled("a LIKE '%b'").function
    many = {"a": "a" * 10_000}
    rows.append(
        compare(
            "LIKE '%a%a%a%a%a%b' on 10,000 'a'",
            lambda: hostile(many, HEADERS),
            "LIKE '%b'",
            lambda: harmless(many, HEADERS),
            1,
            seconds,
        )
    )
    return rows


def compiled(text: str, fresh: bool = False) -> CompiledSelector:
    if fresh:
        cache.clear()
    selector = compile_selector(text)
    assert selector is not None
    return selector
