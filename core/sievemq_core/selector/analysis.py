"""Can a selector be TRUE at all, and can it be anything else? Each answer is certain, or there is none.

The analysis searches a plan for values of its names that satisfy it (or do not). Conditions joined by AND narrow the
sets of values of their names (possible.py). Of an OR one branch must be possible within the demands of the rest. So
NULL, unlike types and contradictions are handled in one place: ``a IS NULL AND a = 1`` leaves no value for a."""

from __future__ import annotations

from collections.abc import Iterator
from math import inf, nextafter

from sievemq_core.selector import plan
from sievemq_core.selector.names import MODES, FieldType
from sievemq_core.selector.possible import Interval, Possible, Texts

#: Tests examined before a search gives up with "perhaps": at some 4 µs each a selector is analysed in 2 to 3 ms.
STEPS = 600

#: Below this, every number type compares whole numbers exactly.
_EXACT = 2.0**24

_NULL = Possible(booleans=frozenset(), numbers=None, texts=None)
_SOME = Possible(null=False)
_ANY_NUMBER = Possible(null=False, booleans=frozenset(), texts=None)

#: How two values can lie: numbers less, equal or greater; the same or different where there is no order (strings,
#: booleans, NaN); unlike, for which no comparison is TRUE (D-04). NULL is none of these.
_WAYS = frozenset("<=>sdu")
#: Of these the ones for which a comparison is TRUE.
_OUTCOMES = {
    "=": frozenset("=s"),
    "<>": frozenset("<>d"),
    "<": frozenset("<"),
    "<=": frozenset("<="),
    ">": frozenset(">"),
    ">=": frozenset(">="),
}
_MIRROR = {"<": ">", ">": "<"}

_Known = dict[object, "Possible | frozenset[str]"]


def can_be(test: plan.Test, truth: bool) -> bool:
    """False if no message makes a plan hold (`truth`), or none makes it fail; True otherwise, and if unknown."""
    return Search().can_be(test, truth)


class Search:
    """Answers questions about one selector and its parts, as long as its steps last."""

    __slots__ = ("_steps",)

    def __init__(self) -> None:
        self._steps = 0

    def can_be(self, test: plan.Test, truth: bool) -> bool:
        return self._possible([(test, truth)], {})

    def _possible(self, wanted: list[tuple[plan.Test, bool]], known: _Known) -> bool:
        """Can all of `wanted` be, within what is known of the names?"""
        known = dict(known)
        choices: list[list[tuple[plan.Test, bool]]] = []
        stack = wanted
        while stack:
            test, truth = stack.pop()
            self._steps += 1
            if self._steps > STEPS:
                return True
            if isinstance(test, plan.All | plan.Any):
                parts = [(part, truth) for part in test.tests]
                if isinstance(test, plan.All) is truth:
                    stack.extend(parts)
                else:
                    choices.append(parts)
            elif isinstance(test, plan.Always):
                if test.value is not truth:
                    return False
            elif not self._narrow(test, truth, known):
                return False
        return all(any(self._possible([branch], known) for branch in branches) for branches in choices)

    @staticmethod
    def _narrow(test: plan.Test, truth: bool, known: _Known) -> bool:
        """Add what a test demands; False if nothing is left."""
        for key, demand in _demands(test, truth):
            before = known.get(key)
            if before is None:
                before = _of_type(key) if isinstance(demand, Possible) else _WAYS
            if isinstance(demand, Possible) and isinstance(before, Possible):
                after = known[key] = before & demand
                if after.empty:
                    return False
            elif isinstance(demand, frozenset) and isinstance(before, frozenset):
                known[key] = before & demand
                if not before & demand:
                    return False
        return True


def _of_type(key: object) -> Possible:
    """The possible values of a field, without regard to the selector."""
    if isinstance(key, plan.Compute):
        return Possible(booleans=frozenset(), texts=None)
    if isinstance(key, plan.Field):
        match key.type:
            case FieldType.NUMBER:
                return Possible(
                    False,
                    frozenset(),
                    Interval(
                        0 if key.name == "JMSPriority" else -inf, 9 if key.name == "JMSPriority" else inf, nan=False
                    ),
                    None,
                )
            case FieldType.MODE:
                return Possible(False, frozenset(), None, Texts(only=frozenset(MODES.values())))
            case FieldType.TEXT:
                return Possible(booleans=frozenset(), numbers=None)
            case FieldType.PROPERTY:
                pass
    return Possible()


def _demands(test: plan.Test, truth: bool) -> Iterator[tuple[object, Possible | frozenset[str]]]:  # noqa: C901
    """Conditions for a test to hold, or not to hold: sets of values by field or computed value, orders by pair."""
    match test:
        case plan.Missing(value=value, holds=holds):
            yield value, (_NULL if holds is truth else _SOME)
        case plan.Truth(field=subject, holds=holds):
            if truth:
                yield subject, Possible(False, frozenset({holds}), None, None)
            else:
                yield subject, Possible(booleans=frozenset({not holds}))
        case plan.OneOf(field=subject, values=values, negated=negated, holds=holds):
            inside, outside = Texts(only=values), Texts(without=values)
            yield subject, _text(*((outside, inside) if negated else (inside, outside)), holds, truth)
        case plan.EqualsOne(field=subject, texts=texts, holds=holds):
            if holds and truth:
                yield subject, Possible(False, frozenset(), Interval(nan=False), Texts(only=texts))
            elif truth:
                yield subject, _SOME
        case plan.Matches(field=subject, pattern=pattern, negated=negated, holds=holds):
            inside = Texts(like=(pattern,)) if pattern.exact is None else Texts(only=frozenset({pattern.exact}))
            outside = Texts(unlike=(pattern,)) if pattern.exact is None else Texts(without=frozenset({pattern.exact}))
            yield subject, _text(*((outside, inside) if negated else (inside, outside)), holds, truth)
        case plan.IsNumber(value=value) if truth:
            yield value, _ANY_NUMBER
        case plan.Relation(left=left, right=plan.Constant(value=constant)) if not test.strict:
            if constant is not None:
                yield left, _against(test.op, constant, test.holds, truth)
        case plan.Relation(op=op, left=left, right=right, holds=holds):
            if truth:
                for side in (left, right):
                    if not isinstance(side, plan.Constant):
                        yield side, _SOME
                outcomes = _OUTCOMES[op] if holds else _WAYS - _OUTCOMES[op]
                if test.strict:  # equal numbers of two types are not equal there
                    return
                if left == right:
                    outcomes &= frozenset("=sd")
                if repr(left) > repr(right):
                    left, right, outcomes = right, left, frozenset(_MIRROR.get(way, way) for way in outcomes)
                yield (left, right), outcomes
        case _:
            pass


def _text(true: Texts, false: Texts, holds: bool, truth: bool) -> Possible:
    """IN and LIKE: TRUE for some strings, FALSE for the others and for what is no string (D-04), UNKNOWN for NULL."""
    if holds:
        is_so, is_not = Possible(False, frozenset(), None, true), Possible(texts=false)
    else:
        is_so, is_not = Possible(null=False, texts=false), Possible(True, frozenset(), None, true)
    return is_so if truth else is_not


def _against(op: str, constant: str | bool | int | float, holds: bool, truth: bool) -> Possible:
    """A comparison with a constant: TRUE for values of its kind, FALSE for the others, UNKNOWN for NULL."""
    if isinstance(constant, bool):
        same, other = frozenset({constant}), frozenset({not constant})
        true = Possible(False, same if op == "=" else other, None, None)
        false = Possible(null=False, booleans=other if op == "=" else same)
    elif isinstance(constant, str):
        only, without = Texts(only=frozenset({constant})), Texts(without=frozenset({constant}))
        true = Possible(False, frozenset(), None, only if op == "=" else without)
        false = Possible(null=False, texts=without if op == "=" else only)
    else:
        inside, outside = _interval(op, constant)
        true = Possible(False, frozenset(), inside, None)
        false = Possible(null=False, numbers=outside)
    if truth:
        return true if holds else false
    # not TRUE is FALSE or NULL; not FALSE is TRUE or NULL
    complement = false if holds else true
    return Possible(True, complement.booleans, complement.numbers, complement.texts)


def _interval(op: str, constant: int | float) -> tuple[Interval, Interval]:
    """The numbers for which a comparison is TRUE, and those for which it is FALSE: NaN is unequal to everything and in
    no order. Where rounding matters, all numbers."""
    bound = float(constant)
    if not -_EXACT < bound < _EXACT:
        return Interval(), Interval()
    only, but = Interval(bound, bound, nan=False), Interval(without=frozenset({bound}))
    above, below = nextafter(bound, inf), nextafter(bound, -inf)
    return {
        "=": (only, but),
        "<>": (but, only),
        "<": (Interval(high=below, nan=False), Interval(low=bound)),
        "<=": (Interval(high=bound, nan=False), Interval(low=above)),
        ">": (Interval(low=above, nan=False), Interval(high=bound)),
        ">=": (Interval(low=bound, nan=False), Interval(high=below)),
    }[op]
