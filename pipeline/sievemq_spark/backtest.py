"""Applies selectors to archived messages: counts, times, samples, differences, and why an answer was UNKNOWN."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from sievemq_core.selector import CompiledSelector
from sievemq_core.selector.checker import names_of
from sievemq_core.selector.names import HEADERS
from sievemq_spark.archive import require_messages
from sievemq_spark.errors import PipelineError
from sievemq_spark.selector_column import checked, selector_column
from sievemq_spark.selector_values import HEADER_COLUMNS, quote_text
from sievemq_spark.times import span_of, time_of, unit_for
from sievemq_spark.traffic import traffic

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


@dataclass(frozen=True, slots=True)
class SelectorResult:
    """One selector over the messages.

    Attributes:
        selector: its text.
        matched, rejected, unknown: messages for which it was TRUE, FALSE, UNKNOWN.
        times: matched messages by time (UTC): ``2013-01-01T05:10``, ``2013-01-01T05`` or ``2013-01-01``, as suits the
            span of the messages.
        causes: of the UNKNOWN ones, how many lacked which properties or headers together; the empty tuple stands
            for those that lacked none: a boolean or number of another type, a division by zero.
        sample: message ids that matched, the first ones by time.
    """

    selector: str
    matched: int
    rejected: int
    unknown: int
    times: dict[str, int] = field(default_factory=dict)
    causes: dict[tuple[str, ...], int] = field(default_factory=dict)
    sample: list[str | None] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Backtest:
    """Selectors over messages.

    Attributes:
        messages: how many there were.
        results: one per selector.
        only_first, only_second: with two selectors, messages that only one matched (A\\B and B\\A); else None.
        sample_first, sample_second: ids of some of them.
    """

    messages: int
    results: list[SelectorResult]
    only_first: int | None = None
    only_second: int | None = None
    sample_first: list[str | None] = field(default_factory=list)
    sample_second: list[str | None] = field(default_factory=list)


#: Selectors that are evaluated together. Of more expressions than about a hundred Spark makes no Java program and
#: interprets them, which takes more than twice as long.
AT_ONCE: Final = 50


def _compiled(selectors: Sequence[str], dialect: str) -> list[CompiledSelector]:
    if not selectors:
        raise PipelineError("at least one selector is needed")
    found = []
    for text in selectors:
        selector = checked(text, dialect)
        if selector is None:
            raise PipelineError("a selector is empty: it would match every message")
        found.append(selector)
    return found


def backtest(messages: DataFrame, selectors: Sequence[str], *, dialect: str = "jakarta", sample: int = 5) -> Backtest:
    """Find the messages that selectors would have matched, each message once (:func:`sievemq_spark.traffic.traffic`).

    Args:
        messages: rows as in schema.py, of an archive or of a queue.
        selectors: their texts.
        dialect: ``jakarta``, ``ibm-mq``, ``mqe`` or ``amqp``.
        sample: ids of matching messages to show.

    Raises:
        InvalidSelectorException: with a caret under the mistake.
        PipelineError: no selectors, or rows that are no messages.

    More than :data:`AT_ONCE` selectors are evaluated in groups, each of which reads the messages again.
    """
    compiled = _compiled(selectors, dialect)
    require_messages(messages)
    messages = traffic(messages)
    if len(compiled) <= AT_ONCE:
        return _backtest(messages, compiled, sample, len(compiled) == 2)
    groups = [compiled[first : first + AT_ONCE] for first in range(0, len(compiled), AT_ONCE)]
    parts = [_backtest(messages, group, sample, False) for group in groups]
    return Backtest(parts[0].messages, [line for part in parts for line in part.results])


def _backtest(messages: DataFrame, compiled: Sequence[CompiledSelector], sample: int, compare: bool) -> Backtest:
    from pyspark.sql import functions as f

    names = [f"_selector{number}" for number in range(len(compiled))]
    truths = [selector_column(selector).alias(name) for selector, name in zip(compiled, names, strict=True)]
    lacking = [_lacking(selector).alias(f"_lacking{number}") for number, selector in enumerate(compiled)]
    frame = messages.select("message_id", "timestamp", "seq", *truths, *lacking).cache()
    try:
        counts: list[Any] = [f.count(f.lit(1)).alias("_all")]
        for name in names:
            counts += [f.count_if(f.col(name)).alias(f"{name}t"), f.count_if(~f.col(name)).alias(f"{name}f")]
        if compare:
            first, second = (f.coalesce(f.col(name), f.lit(False)) for name in names)
            counts += [f.count_if(first & ~second).alias("_first"), f.count_if(second & ~first).alias("_second")]
        samples = list(names)
        if compare:
            a, b = names
            samples += [f"{a} AND NOT coalesce({b}, FALSE)", f"{b} AND NOT coalesce({a}, FALSE)"]
        when = f.col("timestamp")
        span, *found = frame.agg(span_of(when), *(_sample(condition, sample) for condition in samples)).collect()[0]
        ids = [[row["message_id"] for row in rows or ()] for rows in found]
        time = time_of(when, unit_for(span)).alias("_time")
        times = frame.groupBy(time).agg(*counts).orderBy("_time").collect()
        total = sum(row["_all"] for row in times)
        causes = _causes(frame, names)
        results = []
        for number, (selector, name) in enumerate(zip(compiled, names, strict=True)):
            matched, rejected = (sum(row[f"{name}{end}"] for row in times) for end in "tf")
            results.append(
                SelectorResult(
                    selector.text,
                    matched,
                    rejected,
                    total - matched - rejected,
                    {row["_time"]: row[f"{name}t"] for row in times if row[f"{name}t"]},
                    causes.get(number, {}),
                    ids[number],
                )
            )
        if not compare:
            return Backtest(total, results)
        return Backtest(
            total,
            results,
            sum(row["_first"] for row in times),
            sum(row["_second"] for row in times),
            *ids[-2:],
        )
    finally:
        frame.unpersist()


def _sample(condition: str, number: int) -> Column:
    """An aggregate: the first messages by time for which a condition is true, an array of structs of their ids."""
    from pyspark.sql import functions as f

    if not number:
        return f.array()
    order = f.when(f.expr(condition), f.struct("timestamp", "seq"))
    return f.min_by(f.struct("message_id"), order, number)


def _lacking(selector: CompiledSelector) -> Any:
    """The names of the selector that are NULL in a row, as an array."""
    from pyspark.sql import functions as f

    parts = []
    for name in sorted(names_of(selector.ast)):
        if name in HEADERS:
            null = f"{HEADER_COLUMNS[name]} IS NULL"
        else:
            item = f"properties[{quote_text(name)}]"
            null = f"({item}.t IS NULL OR ({item}.t = 's' AND {item}.s IS NULL))"
        parts.append(f"CASE WHEN {null} THEN {quote_text(name)} END")
    return f.expr(f"filter(array({', '.join(parts)}), _name -> _name IS NOT NULL)" if parts else "array('')")


def _causes(frame: DataFrame, names: list[str]) -> dict[int, dict[tuple[str, ...], int]]:
    from pyspark.sql import functions as f

    unknown = [
        f.when(f.col(name).isNull(), f.struct(f.lit(number).alias("n"), f.col(f"_lacking{number}").alias("lacking")))
        for number, name in enumerate(names)
    ]
    rows = (
        frame.select(f.explode(f.array_compact(f.array(*unknown))).alias("u"))
        .groupBy("u.n", "u.lacking")
        .agg(f.count(f.lit(1)).alias("rows"))
        .collect()
    )
    causes: dict[int, dict[tuple[str, ...], int]] = {}
    for row in sorted(rows, key=lambda row: -row["rows"]):
        causes.setdefault(row["n"], {})[tuple(row["lacking"])] = row["rows"]
    return causes


@dataclass(frozen=True, slots=True)
class Coverage:
    """How a set of selectors divides the messages.

    Attributes:
        messages: how many there were.
        none, one, many: messages that no selector, exactly one, several matched.
        matched: messages per selector.
        overlaps: (selector, selector) -> messages that both matched, where there are any.
        shadowed: (selector, by): every message that the first matched (at least one), the other matched as well.
    """

    messages: int
    none: int
    one: int
    many: int
    matched: dict[str, int]
    overlaps: dict[tuple[str, str], int]
    shadowed: list[tuple[str, str]]


def coverage(messages: DataFrame, selectors: Sequence[str], *, dialect: str = "jakarta") -> Coverage:
    """Find the messages that none, one or several of some selectors match, and selectors that shadow others.

    Args, Raises: as for :func:`backtest`.
    """
    from pyspark.sql import functions as f

    compiled = _compiled(selectors, dialect)
    require_messages(messages)
    texts = [selector.text for selector in compiled]
    marks = [f.when(selector_column(selector), f.lit(number)) for number, selector in enumerate(compiled)]
    groups = (
        traffic(messages)
        .select(f.array_compact(f.array(*marks)).alias("matching"))
        .groupBy("matching")
        .agg(f.count(f.lit(1)).alias("rows"))
        .collect()
    )
    sizes = {0: 0, 1: 0, 2: 0}
    matched = [0] * len(texts)
    both: dict[tuple[int, int], int] = {}
    for group in groups:
        matching, rows = group["matching"], group["rows"]
        sizes[min(len(matching), 2)] += rows
        for place, number in enumerate(matching):
            matched[number] += rows
            for other in matching[place + 1 :]:
                both[number, other] = both.get((number, other), 0) + rows
    shadowed = []
    for (one, other), rows in sorted(both.items()):
        shadowed += [(texts[a], texts[b]) for a, b in ((one, other), (other, one)) if rows == matched[a]]
    return Coverage(
        sum(sizes.values()),
        sizes[0],
        sizes[1],
        sizes[2],
        dict(zip(texts, matched, strict=True)),
        {(texts[one], texts[other]): rows for (one, other), rows in sorted(both.items())},
        shadowed,
    )
