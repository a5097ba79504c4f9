"""A clue: a necessary condition on one name, under which an index files a selector."""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from math import inf
from typing import Any, NamedTuple, TypeAlias

from sievemq_broker.matching.condition import Condition, mode_keys
from sievemq_core.selector.facts import Facts

#: Characters of a LIKE prefix that are indexed: a message costs one look-up per length in use.
PREFIX_CHARS = 16

#: The most places for one selector whose branches have nothing in common.
MAX_BRANCHES = 64


class Kind(IntEnum):
    """How the value is looked up; the number is what is added to the fullness of its bucket when clues are compared:
    the more messages meet such a condition as a rule, the higher."""

    KEYS = 0
    """The value is one of some: a hash look-up."""
    PREFIXES = 2
    """The text begins with one of some."""
    RANGE = 4
    """The number lies between two bounds."""
    BOUND = 64
    """The number lies above or below one bound."""
    ABSENT = 128
    """NULL."""
    PRESENT = 256
    """Not NULL."""


class Clue(NamedTuple):
    """One necessary condition.

    Attributes:
        name: the header field or property.
        kind: how it is looked up.
        data: KEYS: a frozenset of keys; PREFIXES: a tuple of texts, none of which begins with another; RANGE and BOUND:
            (low, high), both included; otherwise None.
    """

    name: str
    kind: Kind
    data: Any = None


Score: TypeAlias = Callable[[Clue], float]
"""The number of messages that would meet it in vain if a selector is filed there; lower is better."""


def the_clue(condition: Condition) -> tuple[Clue, ...]:
    name, keys = condition.facts.equalities[0]
    return (Clue(name, Kind.KEYS, keys),)


def choose(condition: Condition, score: Score) -> tuple[Clue, ...]:
    """The clues under which to file a selector: a message that it matches meets at least one of them. Empty if there
    are none, that is, the selector must be evaluated for every message.

    Args:
        condition: the selector; not one that can never match.
        score: compares clues, as the index stands now.
    """
    best = min(_clues(condition.facts), key=score, default=None)
    cost = inf if best is None else score(best)
    chosen: tuple[Clue, ...] = () if best is None else (best,)
    if cost < Kind.BOUND:
        return chosen
    for branches in condition.alternatives:
        if not branches or len(branches) > MAX_BRANCHES:
            continue
        found = [min(_clues(branch), key=score, default=None) for branch in branches]
        clues = tuple(dict.fromkeys(clue for clue in found if clue is not None))
        if None not in found and (total := sum(map(score, clues))) < cost:
            chosen, cost = clues, total
    return chosen


def _clues(facts: Facts) -> list[Clue]:
    """All clues in the facts of a selector."""
    found = [Clue(name, Kind.KEYS, mode_keys(name, keys)) for name, keys in facts.equalities]
    known = {clue.name for clue in found}
    for name, texts in facts.prefixes:
        if name not in known:
            found.append(Clue(name, Kind.PREFIXES, _shortest(texts)))
    for name, bounds in facts.ranges:
        if name not in known:
            one_sided = bounds.low == -inf or bounds.high == inf
            found.append(Clue(name, Kind.BOUND if one_sided else Kind.RANGE, (bounds.low, bounds.high)))
    known = {clue.name for clue in found}
    found += [Clue(name, Kind.ABSENT) for name in sorted(facts.absent - known)]
    found += [Clue(name, Kind.PRESENT) for name in sorted(facts.present - known)]
    return found


def _shortest(texts: frozenset[str]) -> tuple[str, ...]:
    """The texts cut to what is indexed, without those that another begins: a value meets one of them at most."""
    kept: list[str] = []
    for text in sorted({text[:PREFIX_CHARS] for text in texts}):
        if not kept or not text.startswith(kept[-1]):
            kept.append(text)
    return tuple(kept)
