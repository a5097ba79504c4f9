"""The parts of a result, tables and charts: one description for the terminal and for HTML."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import singledispatch
from typing import TypeAlias

from sievemq_core.counted import counted
from sievemq_spark.backtest import Backtest, Coverage
from sievemq_spark.deadletters import DeadLetters
from sievemq_spark.outcomes import SHARES, Fate, Outcomes
from sievemq_spark.profile import Profile
from sievemq_spark.times import duration, every, unit_shown


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of text; all columns but the first are figures."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]


@dataclass(frozen=True, slots=True)
class Chart:
    """Figures to be drawn.

    Attributes:
        title: stands above it.
        labels: below the bars or points, in order.
        series: name -> one figure per label.
        bars: bars beside one another; otherwise lines.
    """

    title: str
    labels: Sequence[str]
    series: Mapping[str, Sequence[float]]
    bars: bool = True


Part: TypeAlias = Table | Chart


@singledispatch
def parts_of(result: object) -> list[Part]:
    """A result's tables and charts, in the order in which they are to be read.

    Raises:
        TypeError: there is no way to show such a result.
    """
    raise TypeError(f"a {type(result).__name__} cannot be shown")


@parts_of.register
def _(result: Backtest) -> list[Part]:
    numbers = [str(number) for number in range(1, len(result.results) + 1)]
    selectors = []
    for number, line in zip(numbers, result.results, strict=True):
        causes = "; ".join(f"{', '.join(names) or 'other types'}: {rows:,}" for names, rows in line.causes.items())
        counts = (f"{line.matched:,}", f"{line.rejected:,}", f"{line.unknown:,}")
        selectors.append((line.selector, number, *counts, causes))
    title = counted(result.messages, "message", form=",")
    parts: list[Part] = [
        Table(title, ("selector", "number", "TRUE", "FALSE", "UNKNOWN", "UNKNOWN because of"), selectors),
    ]
    samples = [(number, _ids(line.sample)) for number, line in zip(numbers, result.results, strict=True) if line.sample]
    if samples:
        parts.append(Table("some that match, the first ones by time", ("number", "message ids"), samples))
    found = sorted({time for line in result.results for time in line.times})
    if found:
        unit, times = unit_shown(found[0]), every(found)
        curves = {
            number: [line.times.get(time, 0) for time in times]
            for number, line in zip(numbers, result.results, strict=True)
        }
        parts.append(Chart(f"matches by {unit} (UTC), by the selector's number", times, curves, bars=False))
        rows = [(time, *(f"{line.times.get(time, 0):,}" for line in result.results)) for time in found]
        parts.append(Table(f"matches by {unit} (UTC)", (unit, *numbers), rows))
    if result.only_first is not None:
        differs = [
            ("the first only", f"{result.only_first:,}", _ids(result.sample_first)),
            ("the second only", f"{result.only_second:,}", _ids(result.sample_second)),
        ]
        parts.append(Table("the difference", ("matched by", "messages", "such as"), differs))
    return parts


def _over_time(what: str, series: Mapping[str, Mapping[str, int]], bars: bool = True) -> Chart:
    times = every(time for counts in series.values() for time in counts)
    drawn = {name: [counts.get(time, 0) for time in times] for name, counts in series.items()}
    return Chart(f"{what} by {unit_shown(times[0])} (UTC)", times, drawn, bars)


def _ids(sample: Sequence[str | None]) -> str:
    return ", ".join("(without an id)" if each is None else each for each in sample)


@parts_of.register
def _(result: Coverage) -> list[Part]:
    sizes = (("none", result.none), ("one", result.one), ("several", result.many))
    shadows: dict[str, list[str]] = {}
    for one, by in result.shadowed:
        shadows.setdefault(one, []).append(by)
    return [
        Table(
            counted(result.messages, "message", form=","),
            ("matched by", "messages"),
            [(name, f"{n:,}") for name, n in sizes],
        ),
        Chart("messages matched by", [name for name, _ in sizes], {"messages": [n for _, n in sizes]}),
        Table(
            "selectors",
            ("selector", "messages", "shadowed by"),
            [(text, f"{rows:,}", "; ".join(shadows.get(text, ()))) for text, rows in result.matched.items()],
        ),
        Table(
            "overlaps",
            ("pair", "messages"),
            [(f"{one}  |  {other}", f"{rows:,}") for (one, other), rows in result.overlaps.items()],
        ),
    ]


@parts_of.register
def _(result: Profile) -> list[Part]:
    title = (
        f"{counted(result.messages, 'message', form=',')}, "
        f"{result.size_mean:,.0f} bytes on average, {result.size_max:,} at most"
    )
    rows = [
        (
            each.name,
            ", ".join(f"{name} {rows:,}" for name, rows in each.types.items()),
            f"{each.missing:,}",
            f"{each.distinct:,}",
            f"{each.selects:.2%}",
        )
        for each in result.properties
    ]
    columns = ("property", "types", "missing", "about so many values", "an equality selects")
    parts: list[Part] = [Table(title, columns, rows)]
    if result.hints:
        parts.append(Table("select by these: few messages are left", ("property",), [(name,) for name in result.hints]))
    parts.append(Table("bodies", ("kind", "messages"), [(kind, f"{n:,}") for kind, n in result.kinds.items()]))
    if result.times:
        parts.append(_over_time("messages", {"messages": result.times}, bars=False))
    return parts


@parts_of.register
def _(result: Outcomes) -> list[Part]:
    columns = ("outcome", "messages", "share", "attempts each")
    rows = [(_fate(fate), f"{fate.messages:,}", f"{fate.share:.1%}", f"{fate.attempts:,.1f}") for fate in result.fates]
    rows.append(("not known", f"{result.open:,}", "", ""))
    parts: list[Part] = [
        Table(f"{counted(result.messages, 'message', form=',')}, and what became of them", columns, rows)
    ]
    took = [(_fate(fate), *(duration(fate.took[share]) for share in SHARES)) for fate in result.fates if fate.took]
    if took:
        within = ("of the messages within", *(f"{share} %" for share in SHARES))
        parts.append(Table("from the send to the outcome", within, took))
    if any(result.times.values()):
        parts.append(_over_time("outcomes", result.times))
    if result.selectors:
        taken = [(text or "without a selector", f"{rows:,}") for text, rows in result.selectors.items()]
        parts.append(Table("acknowledged by consumers with", ("selector", "messages"), taken))
    places = [(f"{where}: {outcome}", f"{rows:,}") for (where, outcome), rows in result.destinations.items()]
    parts.append(Table("by destination", ("destination and outcome", "messages"), places))
    return parts


def _fate(fate: Fate) -> str:
    return fate.outcome + (f" ({fate.reason})" if fate.reason else "")


@parts_of.register
def _(result: DeadLetters) -> list[Part]:
    reasons = [(f"{reason} ({origin})", f"{rows:,}") for (reason, origin), rows in result.reasons.items()]
    parts: list[Part] = [
        Table(counted(result.messages, "dead letter", form=","), ("reason (origin)", "messages"), reasons)
    ]
    if result.attempts:
        tried = [(str(attempts), f"{rows:,}") for attempts, rows in result.attempts.items()]
        parts.append(Table("attempts", ("attempts", "messages"), tried))
    if result.time_to_fail:
        took = [(f"{share} %", duration(ms)) for share, ms in result.time_to_fail.items()]
        parts.append(Table("from the send to the first failure", ("of the messages within", "time"), took))
    if result.values:
        rows = [
            (
                f"{each.property} {'is absent' if each.value is None else f'= {each.value}'}",
                each.type or "",
                f"{each.dead:,}",
                f"{each.dead_share:.1%}",
                f"{each.normal:,}" if result.normal else "",
                f"{each.normal_share:.1%}" if result.normal else "",
                f"{each.lift:,.1f}" if each.lift is not None else ("only dead letters" if result.normal else ""),
            )
            for each in result.values
        ]
        columns = (
            "property",
            "type",
            "dead letters",
            "share",
            f"of {result.normal:,} others",
            "share",
            "times as often",
        )
        parts.append(Table("what they have in common", columns, rows))
    if result.times:
        parts.append(_over_time("last failures", {"messages": result.times}))
    return parts
