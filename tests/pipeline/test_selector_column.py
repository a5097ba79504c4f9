"""Three ways to evaluate a selector agree: the interpreter, the generated function and the Spark Column.

A frame holds all messages and evaluates some selectors in one job, so that a job's fixed cost hardly counts. Of more
selectors each rule of Spark's optimizer takes longer; and each partition's task unpacks all of them.
"""

from __future__ import annotations

import itertools
import json
import operator
import random
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyarrow", reason="needs the extra `spark`")

import pyarrow as pa

from sievemq.exceptions import InvalidSelectorException
from sievemq_core.message.envelope import ENVELOPE_FIELDS, pack_properties
from sievemq_core.message.values import Byte, Float, Long, Short
from sievemq_core.selector import CompiledSelector, compile_selector
from sievemq_spark.errors import PipelineError
from sievemq_spark.selector_column import selector_column, where, where_sql
from sievemq_spark.selector_sql import selector_sql

from .rows import batch_of

pytestmark = pytest.mark.spark  # which is when Arrow is there

SUITES = Path(__file__).parents[1] / "behaviour" / "conformance" / "selectors"
TRUTH = {"TRUE": True, "FALSE": False, "UNKNOWN": None}
WRAPPERS = {"b": Byte, "h": Short, "i": int, "l": Long, "f": Float, "d": float}
POSITIONS = {"JMSMessageID": 0, "JMSTimestamp": 1, "JMSPriority": 2, "JMSDeliveryMode": 3, "JMSCorrelationID": 6,
             "JMSType": 8}  # fmt: skip
Message = tuple[dict[str, Any], tuple[Any, ...]]


def value_of(data: Any) -> Any:
    if not isinstance(data, dict):
        return data
    if "bytes" in data:
        return bytes.fromhex(data["bytes"])
    return WRAPPERS[data["t"]](float(data["v"]) if data["t"] in "fd" else data["v"])


def message_of(properties: dict[str, Any], headers: dict[str, Any]) -> Message:
    fields: list[Any] = [None] * ENVELOPE_FIELDS
    fields[:6] = "ID:1", 1_700_000_000_000, 4, 2, 0, 0
    for name, value in headers.items():
        fields[POSITIONS[name]] = value
    fields[9], fields[10] = pack_properties(properties)
    fields[11] = 0
    return properties, tuple(fields)


def conformance() -> Iterable[tuple[CompiledSelector, Message, bool | None]]:
    for path in sorted(SUITES.glob("*.json")):
        suite = json.loads(path.read_text(encoding="utf-8"))
        for group in suite["groups"]:
            for case in group["cases"]:
                merged = {**group, **case}
                if "expect" not in merged:
                    continue
                selector = compile_selector(merged["selector"], suite["dialect"])
                assert selector is not None
                properties = {name: value_of(value) for name, value in merged.get("properties", {}).items()}
                headers = {
                    name: {"NON_PERSISTENT": 1, "PERSISTENT": 2}[value]
                    if name == "JMSDeliveryMode"
                    else value_of(value)
                    for name, value in merged.get("headers", {}).items()
                }
                yield selector, message_of(properties, headers), TRUTH[merged["expect"]]


def ask(spark: Any, messages: list[Message], selectors: list[CompiledSelector], per_job: int = 40) -> list[list[Any]]:
    """The truth value for every message (outer) and selector (inner)."""
    from pyspark.sql import functions

    batch = batch_of([fields for _, fields in messages], first=0)
    frame = spark.createDataFrame(pa.Table.from_batches([batch])).repartition(1).cache()
    answers: list[list[Any]] = [[] for _ in messages]
    for start in range(0, len(selectors), per_job):
        chunk = [selector_column(selector) for selector in selectors[start : start + per_job]]
        for seq, values in frame.select("seq", functions.array(*chunk)).collect():
            answers[seq].extend(values)
    frame.unpersist()
    return answers


def check(messages: list[Message], selectors: list[CompiledSelector], answers: list[list[Any]]) -> int:
    """Compare with the interpreter and the function; how many pairs."""
    wrong = []
    for (properties, fields), got in zip(messages, answers, strict=True):
        for selector, answer in zip(selectors, got, strict=True):
            truth = selector.evaluate(properties, fields)
            assert selector.function(properties, fields) is (truth is True)
            if answer is not truth:
                wrong.append((str(selector.dialect), selector.text, properties, truth, answer))
    assert wrong == []
    return len(messages) * len(selectors)


@pytest.mark.timeout(1_200)
def test_language_tests(spark: Any) -> None:
    """Every selector of the language tests over every message of them, all dialects; and each case by itself."""
    messages: dict[str, Message] = {}
    selectors: dict[str, CompiledSelector] = {}  # by what Spark is given: the language tests write much in several ways
    expected = []
    for selector, message, truth in conformance():
        sql = selector_sql(selector)
        selectors.setdefault(sql, selector)
        messages.setdefault(repr(message), message)
        expected.append((sql, repr(message), truth))
    answers = ask(spark, list(messages.values()), list(selectors.values()))
    column = {key: place for place, key in enumerate(selectors)}
    row = {key: place for place, key in enumerate(messages)}
    assert len(expected) > 1_000
    assert [case for case in expected if answers[row[case[1]]][column[case[0]]] is not case[2]] == []
    assert check(list(messages.values()), list(selectors.values()), answers) > 50_000


NAMES = ("a", "b", "c", "d", "JMSPriority", "JMSTimestamp", "JMSType", "JMSCorrelationID", "JMSDeliveryMode")
NUMBERS = ("0", "1", "-1", "2", "7", "2147483647", "2147483648L", "9223372036854775807", "1L", "0.5", "-0.0", "1.5f",
           "16777217", "1e300", "3.0e38f", "0x7fffffff", "100")  # fmt: skip
TEXTS = ("'x'", "'EU'", "''", "'O''Neil'", "'ID:000'", "'PERSISTENT'", "'a\\_b'", "'ü'")
VALUES: tuple[Any, ...] = (
    0, 1, -1, 2, 7, 2**31 - 1, -(2**31), 2**31, 2**63 - 1, -(2**63), Byte(-128), Byte(7), Short(-32768), Long(0),
    Long(7), 2**53 + 1, 0.0, -0.0, 0.5, 1.5, 1e300, -1e300, float("nan"), float("inf"), float("-inf"), Float(1.5),
    Float(0.1), Float(3e38), Float(float("nan")), 16777217, True, False, "x", "EU", "", "O'Neil", "a_b", "ü", None,
)  # fmt: skip


class Grammar:
    """Random selectors, valid in their dialect."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def number(self, depth: int) -> str:
        choice = self.random.random()
        if depth and choice < 0.4:
            return f"({self.number(depth - 1)} {self.random.choice('+-*/')} {self.number(depth - 1)})"
        if depth and choice < 0.5:
            return f"(- {self.number(depth - 1)})"
        return self.random.choice(NUMBERS) if choice < 0.65 else self.random.choice(NAMES[:6])

    def condition(self, depth: int) -> str:
        pick = self.random.choice
        if depth and self.random.random() < 0.5:
            if self.random.random() < 0.3:
                return f"NOT ({self.condition(depth - 1)})"
            return f"({self.condition(depth - 1)} {pick(('AND', 'OR'))} {self.condition(depth - 1)})"
        negated = pick(("", "NOT "))
        match self.random.randrange(8):
            case 0 | 1:
                return f"{self.number(2)} {pick(('=', '<>', '<', '<=', '>', '>='))} {self.number(2)}"
            case 2:
                return f"{pick(NAMES)} {pick(('=', '<>'))} {pick(TEXTS)}"
            case 3:
                return f"{pick(NAMES)} {negated}IN ({pick(TEXTS)}, {pick(TEXTS)})"
            case 4:
                pattern = pick(("'%'", "'E_'", "'a!_b' ESCAPE '!'", "'%x%'", "''", "'_'"))
                return f"{pick(NAMES)} {negated}LIKE {pattern}"
            case 5:
                return f"{self.number(1)} {negated}BETWEEN {self.number(1)} AND {self.number(1)}"
            case 6:
                return f"{pick(NAMES)} IS {negated}NULL"
            case _:
                return pick((*NAMES[:4], "TRUE", "FALSE", "a = TRUE", "b <> FALSE", "c = d"))

    def minimal(self) -> str:
        """A selector of the dialect mqe."""
        parts = []
        for _ in range(self.random.randint(1, 3)):
            name = self.random.choice(NAMES)
            literal = self.random.choice((*NUMBERS, *TEXTS, "TRUE", "d", "JMSPriority"))
            parts.append(self.random.choice((f"{name} IS NULL", f"{name} = {literal}", f"{name} = {literal}")))
        return " AND ".join(parts)

    def message(self) -> Message:
        pick = self.random.choice
        properties = {name: pick(VALUES) for name in "abcd" if self.random.random() < 0.85}
        return message_of(
            properties,
            {
                "JMSPriority": pick((0, 4, 9)),
                "JMSTimestamp": pick((0, 1_700_000_000_000)),
                "JMSDeliveryMode": pick((1, 2)),
                "JMSType": pick((None, "x", "EU")),
                "JMSCorrelationID": pick((None, "x", b"x", "ID:000")),
            },
        )


def random_pairs(spark: Any, seed: int, selectors: int, messages: int, per_job: int) -> int:
    grammar = Grammar(seed)
    found = []
    for number in range(selectors):
        dialect = ("jakarta", "jakarta", "ibm-mq", "mqe")[number % 4]
        text = grammar.minimal() if dialect == "mqe" else grammar.condition(2)
        selector = compile_selector(text, dialect)
        assert selector is not None
        found.append(selector)
    frames = [grammar.message() for _ in range(messages)]
    return check(frames, found, ask(spark, frames, found, per_job))


@pytest.mark.timeout(1_200)
def test_random_pairs(spark: Any) -> None:
    assert random_pairs(spark, 1, selectors=80, messages=60, per_job=40) >= 2_000


@pytest.mark.timeout(1_200)
@pytest.mark.usefixtures("compiled_to_java")
def test_random_pairs_compiled_to_java(spark: Any) -> None:
    """The same through Spark's code generation, as filters in production run; jobs small enough that it compiles."""
    assert random_pairs(spark, 2, selectors=20, messages=100, per_job=5) == 2_000


def test_results_that_do_not_fit_a_long_wrap_around(spark: Any) -> None:
    edges = (0, 1, -1, 2, -2, 3, 2**31, 2**32 + 1, 2**62, -(2**62) - 1, 2**63 - 1, -(2**63), -(2**63) + 1)
    operations = {"+": operator.add, "-": operator.sub, "*": operator.mul}
    selectors = [compile_selector(f"a {sign} b = r{place}") for place, sign in enumerate(operations)]
    messages = []
    for a, b in itertools.product(edges, edges):
        results = [(each(a, b) + 2**63) % 2**64 - 2**63 for each in operations.values()]
        named = {f"r{place}": Long(result) for place, result in enumerate(results)}
        messages.append(message_of({"a": Long(a), "b": Long(b), **named}, {}))
    answers = ask(spark, messages, [each for each in selectors if each is not None])
    assert [message[0] for message, row in zip(messages, answers, strict=True) if row != [True] * 3] == []


@pytest.mark.slow
@pytest.mark.timeout(3_600)
def test_ten_thousand_random_pairs(spark: Any) -> None:
    seed = random.randrange(10**6)
    print(f"seed {seed}")  # shown where it fails
    assert random_pairs(spark, seed, selectors=400, messages=50, per_job=25) >= 10_000


@pytest.mark.usefixtures("compiled_to_java")
def test_where_in_a_filter(spark: Any) -> None:
    """Also without ANSI mode, and on columns of one type where there is no map."""
    frame = spark.createDataFrame([("EU", 7), ("EU", 3), ("US", 9), (None, 8)], "region STRING, qty INT")
    condition = where("region = 'EU' AND qty > 5", columns="region STRING, qty INT")
    assert frame.filter(condition).count() == 1
    assert frame.filter(~condition).count() == 2  # the last one is UNKNOWN
    spark.conf.set("spark.sql.ansi.enabled", "false")
    try:
        assert frame.filter(where("qty / 0 = 1 OR region = 'US'", columns="region STRING, qty INT")).count() == 1
    finally:
        spark.conf.unset("spark.sql.ansi.enabled")


@pytest.mark.parametrize("depth", [20, pytest.param(90, marks=pytest.mark.slow)])
def test_a_deep_selector(spark: Any, depth: int) -> None:
    """90 is about the deepest that a selector may be."""
    selector = compile_selector(f"a{' + 1' * depth} = {depth + 7}")
    assert selector is not None
    messages = [message_of({"a": 7}, {}), message_of({"a": Float(7)}, {}), message_of({"a": "7"}, {})]
    answers = ask(spark, messages, [selector])
    assert answers == [[True], [True], [None]]
    check(messages, [selector], answers)


def test_conditions_need_no_parentheses() -> None:
    """Spark's parser reads to the end of a pair before it knows what it is: most of the time of hundreds of Columns."""
    grammar = Grammar(7)
    texts = [(grammar.condition(3), dialect) for dialect in ("jakarta", "ibm-mq") for _ in range(200)]
    texts += [(grammar.minimal(), "mqe") for _ in range(100)]
    for text, dialect in texts:
        selector = compile_selector(text, dialect)
        assert selector is not None
        sql = re.sub(r"'[^']*'", "''", selector_sql(selector))
        assert re.search(r"(?<![\w`])(?<!IN )\(", sql) is None, (text, sql)


def test_mistakes_show_where() -> None:
    with pytest.raises(InvalidSelectorException) as caught:
        where_sql("region = 'EU' ANDD qty > 5")
    assert "^" in str(caught.value)
    with pytest.raises(PipelineError, match="is there twice"):
        where_sql("a = 1", columns="a INT, A INT")
    assert where_sql("  ") == "TRUE"
