"""Explains why a message matches or not: the truth value of each part, the values behind it, and the deciding parts.

The deciding parts are the smallest set of conditions that fix the verdict (match or no match), whatever the truth
values of the others: for an AND that is not TRUE one part that is FALSE or UNKNOWN, for an AND that is TRUE all parts;
among several sets of the same size the leftmost. To change the verdict, one of these parts has to change."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Self

from sievemq_core.message.values import PLAIN_NAMES, PropertyValue, letter_of
from sievemq_core.selector.arithmetic import comparable
from sievemq_core.selector.ast import And, Between, Compare, Identifier, In, Like, Node, Not, Or, children, walk
from sievemq_core.selector.dialect import Dialect
from sievemq_core.selector.evaluate import Truth, conjunction, disjunction, negation, value_of, weigh
from sievemq_core.selector.names import HEADERS, Headers, read
from sievemq_core.selector.printer import print_literal, print_selector
from sievemq_core.selector.source import Span

TRUTHS = {True: "TRUE", False: "FALSE", None: "UNKNOWN"}


@dataclass(frozen=True, slots=True)
class Step:
    """One condition within the selector.

    Attributes:
        depth: 0 for the whole selector, one more for each level below.
        text: the condition.
        span: where it stands in the selector.
        truth: True, False, or None for UNKNOWN.
        reason: the values in it and what they did; for AND, OR and NOT what their parts did.
        decides: it is one of the conditions that make the message match, or keep it from matching.
    """

    depth: int
    text: str
    span: Span
    truth: Truth
    reason: str
    decides: bool = False


@dataclass(frozen=True, slots=True)
class Explanation:
    """The steps from the whole selector down to its comparisons, in the order of the text. ``str()`` is a table, in
    which ``<- decides`` marks what decided."""

    truth: Truth
    steps: tuple[Step, ...]

    @classmethod
    def of_nothing(cls) -> Self:
        """For the absence of a condition, which every message meets."""
        return cls(True, (Step(0, "", (0, 0), True, "no condition", decides=True),))

    def __str__(self) -> str:
        texts = ["  " * step.depth + step.text for step in self.steps]
        width = min(60, max(map(len, texts)))
        lines = [
            f"{TRUTHS[step.truth]:<8}{text:<{width}}  {step.reason}{'  <- decides' if step.decides else ''}".rstrip()
            for step, text in zip(self.steps, texts, strict=True)
        ]
        return "\n".join(lines)

    def as_dict(self) -> dict[str, Any]:
        """The tree as plain data, for JSON: ``condition``, ``truth`` (TRUE, FALSE or UNKNOWN), ``reason``, ``decides``,
        ``position`` and ``length`` of the condition in the selector, and ``parts`` with the same of what is below."""
        path: list[dict[str, Any]] = []
        for step in self.steps:
            start, end = step.span
            tree = {
                "condition": step.text,
                "truth": TRUTHS[step.truth],
                "reason": step.reason,
                "decides": step.decides,
                "position": start,
                "length": end - start,
                "parts": [],
            }
            del path[step.depth :]
            if path:
                path[-1]["parts"].append(tree)
            path.append(tree)
        return path[0]


def explain(node: Node, dialect: Dialect, properties: Mapping[str, PropertyValue], headers: Headers) -> Explanation:
    """Evaluate every condition of a checked tree on its own."""
    steps: list[Step] = []
    fatal: list[int] = []  # conditions that give up for the whole selector (D-15, D-16)

    def visit(part: Node, depth: int) -> _Weighed:
        place = len(steps)
        if not isinstance(part, And | Or | Not):
            truth, gave_up = weigh(part, dialect, properties, headers)
            reason = _reason(part, dialect, properties, headers)
            steps.append(Step(depth, print_selector(part), part.span, truth, reason))
            if gave_up:
                fatal.append(place)
            alone = [place]
            return _Weighed(truth, alone, alone)
        steps.append(Step(depth, print_selector(part), part.span, None, ""))
        given_up = len(fatal)
        below = [visit(child, depth + 1) for child in children(part)]
        weighed = _weighed(part, below)
        truth = weighed.truth if len(fatal) == given_up else False
        reason = _joined(part, truth, [each.truth for each in below])
        steps[place] = replace(steps[place], truth=truth, reason=reason)
        return weighed

    whole = visit(node, 0)
    for place in fatal[:1] or whole.for_true:
        steps[place] = replace(steps[place], decides=True)
    return Explanation(steps[0].truth, tuple(steps))


class _Weighed(NamedTuple):
    """The steps that decided a condition.

    Attributes:
        truth: its value, by its parts alone.
        for_true: the steps that decide whether it is TRUE.
        for_false: the steps that decide whether it is FALSE.
    """

    truth: Truth
    for_true: list[int]
    for_false: list[int]


def _weighed(node: And | Or | Not, parts: list[_Weighed]) -> _Weighed:
    """AND is TRUE if all parts are, and not because of one that is not; it is FALSE because of one that is, and not if
    none is. OR is its mirror image."""
    match node:
        case And():
            truth = conjunction([part.truth for part in parts])
            return _Weighed(truth, _needing_all(parts, True), _needing_one(parts, False))
        case Or():
            truth = disjunction([part.truth for part in parts])
            return _Weighed(truth, _needing_one(parts, True), _needing_all(parts, False))
        case _:
            return _Weighed(negation(parts[0].truth), parts[0].for_false, parts[0].for_true)


def _needing_all(parts: list[_Weighed], wanted: bool) -> list[int]:
    against = [_deciders(part, wanted) for part in parts if part.truth is not wanted]
    return min(against, key=len) if against else [place for part in parts for place in _deciders(part, wanted)]


def _needing_one(parts: list[_Weighed], wanted: bool) -> list[int]:
    enough = [_deciders(part, wanted) for part in parts if part.truth is wanted]
    return min(enough, key=len) if enough else [place for part in parts for place in _deciders(part, wanted)]


def _deciders(part: _Weighed, wanted: bool) -> list[int]:
    return part.for_true if wanted else part.for_false


def _joined(node: And | Or | Not, truth: Truth, parts: list[Truth]) -> str:
    """The truth values of the parts of an AND, OR or NOT."""
    match node:
        case And():
            expected, decisive, other = conjunction(parts), False, True
        case Or():
            expected, decisive, other = disjunction(parts), True, False
        case _:
            expected = negation(parts[0])
            if truth is expected:
                return f"NOT {TRUTHS[parts[0]]}"
    if truth is not expected:  # D-15, D-16: one part gives up for all
        return "unlike types, or arithmetic on NULL, within"
    if truth is decisive:
        count = parts.count(truth)
        return f"{'a part is' if count == 1 else f'{count} parts are'} {TRUTHS[truth]}"
    if truth is None:
        return f"a part is UNKNOWN and none is {TRUTHS[decisive]}"
    return f"every part is {TRUTHS[other]}"


def _reason(node: Node, dialect: Dialect, properties: Mapping[str, PropertyValue], headers: Headers) -> str:
    """The values of the names in a comparison, then what is special about them."""
    names = dict.fromkeys(part.name for part in walk(node) if isinstance(part, Identifier))
    unlike = not isinstance(node, Identifier) and _is_unlike(node, dialect, properties, headers)
    found = [_described(name, dialect, properties, headers, typed=unlike) for name in names]
    if isinstance(node, Identifier):
        if not isinstance(read(node.name, properties, headers), bool | None):
            found.append("no boolean")  # D-07
    elif unlike:
        scope = "the whole selector" if dialect.unlike_is_fatal else "the operation"
        found.append(f"unlike types, so {scope} is FALSE")
    return ", ".join(found)


def _described(
    name: str, dialect: Dialect, properties: Mapping[str, PropertyValue], headers: Headers, typed: bool
) -> str:
    value = read(name, properties, headers, numeric_mode=dialect.numeric_mode)
    if value is None:
        return f"{name} is {'null' if name in properties or name in HEADERS else 'absent'}"
    if isinstance(value, str):
        text = print_literal(value if len(value) <= 60 else value[:59] + "…")
        return f"{name} is {text}, a string" if typed else f"{name} is {text}"
    return f"{name} is {print_literal(value)} ({PLAIN_NAMES[letter_of(value)]})"


def _is_unlike(node: Node, dialect: Dialect, properties: Mapping[str, PropertyValue], headers: Headers) -> bool:
    """True if the operation itself meets values that it cannot compare (D-04)."""

    def value(part: Node) -> PropertyValue:
        return value_of(part, dialect, properties, headers)

    match node:
        case Compare():
            return not comparable(node.op, value(node.left), value(node.right))
        case Between():
            return any(not comparable("<", value(part), 0) for part in children(node))
        case In() | Like():
            found = value(node.operand)
            return found is not None and not isinstance(found, str)
    return False
