"""The selector language: making a selector, and matching messages with it.

Matching is timed with the generated function and compared with the reference interpreter and with the same condition
written by hand in Python, which minds neither NULL nor types: what is left to gain. Making is compared with what Python
itself takes for an expression of the same size. What hostile clients can send is compared with a turn of the loop.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from itertools import count

from benchmarks.micro.timing import Row, compare, time_us
from sievemq_core.message.values import PropertyValue
from sievemq_core.selector import CompiledSelector, SelectorError, cache, compile_selector, verify_selector
from sievemq_core.selector.dialect import JAKARTA
from sievemq_core.selector.parser import parse

HEADERS = ("ID:1", 1_763_700_000_000, 4, 2, 0, 0, "N14228", None, "flight", None, None, 1, b"")
FLIGHT: dict[str, PropertyValue] = {
    "carrier": "UA",
    "origin": "JFK",
    "dest": "SFO",
    "dep_delay": 75,
    "distance": 2586,
    "air_time": 345.0,
}
OTHER: dict[str, PropertyValue] = {"carrier": "AA", "origin": "EWR", "dest": "MIA", "distance": 1085}

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


# what differs in its constants only
SHAPES = (
    ("by correlation id", "JMSCorrelationID = 'x{}'"),
    ("equality and range", "symbol = 'S{}' AND price > 10"),
    ("IN, LIKE, BETWEEN", "origin IN ('JFK','L{}') AND (dest LIKE 'S%' OR distance BETWEEN 2000 AND 3000)"),
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

    for name, shape in SHAPES:
        rows += of_shape(name, shape, seconds)
    three = compiled("carrier = 'UA' AND dep_delay > 60 AND dest LIKE 'S%'").function
    rows.append(
        compare(
            "match, three terms",
            lambda: three(FLIGHT, HEADERS),
            "an empty Python call",
            lambda: nothing(FLIGHT, HEADERS),
            1,
            seconds,
        )
    )
    return rows + [compare(name, case, "a turn's limit", TURN, 1, seconds) for name, case in hostile()]


def nothing(_properties: object, _headers: object) -> bool:
    return True


def of_shape(name: str, shape: str, seconds: float) -> list[Row]:
    """A text that was never seen, of a shape that was, beside the first of its shape."""
    numbers = count()

    def next_text() -> str:
        return shape.format(next(numbers))

    first = time_us(lambda: compiled(shape.format(1), fresh=True), 1, seconds)
    for _ in range(2):  # the second teaches
        compiled(next_text())
        verify_selector(next_text(), JAKARTA)
    return [
        compare(f"compile, known shape, {name}", lambda: compiled(next_text()), "the first of it", first, 1, seconds),
        compare(
            f"verify, known shape, {name}",
            lambda: verify_selector(next_text(), JAKARTA),
            "the first compiled",
            first,
            1,
            seconds,
        ),
    ]


# -- hostile ------------------------------------------------------------------------------------------------------

#: Microseconds that a turn of the loop may take.
TURN = 10_000.0
#: Characters of a property that is nearly as large as may be.
LARGEST = 260_000

LETTERS = "abcdefghijklmnopqrstuvwxyz"

REFUSED = (
    ("64 KB of ORs", " OR ".join(["a"] * 13_000)),
    ("10,000 ORs of comparisons", "OR ".join(["a>1 "] * 10_000)),
    ("5,000 parentheses", "(" * 5_000 + "a = 1" + ")" * 5_000),
    ("LIKE with 513 wildcards", f"a LIKE '{'%a' * 513}'"),
    ("LIKE with 70 _, 26 letters", f"a LIKE '%{'_'.join((LETTERS * 6)[:136:2])}_{LETTERS[7]}%'"),
    ("LIKE with a long run", f"a LIKE '%{'ab' * 2_000}_c%'"),
    ("65,536 characters of quotes", "a = " + "'" * 65_531),
)

# name, pattern, text
PATTERNS = (
    ("'%a%a%b'", "%a%a%b", "a" * LARGEST),
    ("'%aa_b%'", "%aa_b%", "a" * LARGEST),
    ("500 %", "%a" * 500 + "b", "a" * LARGEST),
    ("70 _ in one piece", "%" + "_a" * 69 + "_b%", "a" * LARGEST),
    # as the text goes on, but for the last letter; with one more piece it is refused
    ("11 _, 26 letters", f"%{'_'.join(LETTERS[:20:2])}_{LETTERS[7]}%", LETTERS * (LARGEST // 26)),
)


def hostile() -> list[tuple[str, Callable[[], object]]]:
    """The worst that passes the limits, and what does not."""
    cases: list[tuple[str, Callable[[], object]]] = []
    for name, text in REFUSED:
        cases.append((f"refused, {name}", lambda t=text: refused(t)))  # type: ignore[misc]
    for name, text in LARGE:
        cases.append((f"compile, {name}", lambda t=text: compiled(t, fresh=True)))  # type: ignore[misc]
    for name, pattern, text in PATTERNS:
        function = compiled(f"a LIKE '{pattern}'").function
        cases.append((f"largest text LIKE {name}", lambda f=function, t={"a": text}: f(t, HEADERS)))  # type: ignore[misc]
    return cases


def refused(text: str) -> None:
    try:
        compile_selector(text)
    except SelectorError:
        return
    raise AssertionError(text[:80])


def compiled(text: str, fresh: bool = False) -> CompiledSelector:
    if fresh:
        cache.clear()
    selector = compile_selector(text)
    assert selector is not None
    return selector
