"""Why did this message (not) match: the truth value of every part, and the values that made it so."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

from sievemq_core.message.values import PropertyValue, letter_of
from sievemq_core.selector.arithmetic import comparable
from sievemq_core.selector.ast import And, Between, Compare, Identifier, In, Like, Node, Not, Or, children, walk
from sievemq_core.selector.dialect import Dialect
from sievemq_core.selector.evaluate import Truth, conjunction, disjunction, evaluate, negation, value_of
from sievemq_core.selector.names import HEADERS, Headers, read
from sievemq_core.selector.printer import print_literal, print_selector
from sievemq_core.selector.source import Span

__all__ = ["Explanation", "Step", "explain"]

_WORDS = {True: "TRUE", False: "FALSE", None: "UNKNOWN"}
_KINDS = {
    "z": "boolean", "b": "byte", "h": "short", "i": "int", "l": "long", "f": "float", "d": "double", "s": "string",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Step:
    """One condition within the selector.

    Attributes:
        depth: 0 for the whole selector, one more for each level below.
        text: the condition.
        span: where it stands in the selector.
        truth: True, False, or None for UNKNOWN.
        reason: the values in it and what they did; for AND, OR and NOT what their parts did.
    """

    depth: int
    text: str
    span: Span
    truth: Truth
    reason: str


@dataclass(frozen=True, slots=True)
class Explanation:
    """The steps from the whole selector down to its comparisons, in the order of the text. ``str()`` is a table."""

    truth: Truth
    steps: tuple[Step, ...]

    @classmethod
    def of_nothing(cls) -> Self:
        """For the absence of a condition, which every message meets."""
        return cls(True, (Step(0, "", (0, 0), True, "no condition"),))

    def __str__(self) -> str:
        texts = ["  " * step.depth + step.text for step in self.steps]
        width = min(60, max(map(len, texts)))
        lines = [
            f"{_WORDS[step.truth]:<8}{text:<{width}}  {step.reason}".rstrip()
            for step, text in zip(self.steps, texts, strict=True)
        ]
        return "\n".join(lines)

    def as_dict(self) -> dict[str, Any]:
        """The tree as plain data, for JSON: ``condition``, ``truth`` (TRUE, FALSE or UNKNOWN), ``reason``, ``position``
        and ``length`` of the condition in the selector, and ``parts`` with the same of what is below."""
        path: list[dict[str, Any]] = []
        for step in self.steps:
            start, end = step.span
            tree = {
                "condition": step.text,
                "truth": _WORDS[step.truth],
                "reason": step.reason,
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
    """Evaluate every condition of a checked tree on its own.

    Args:
        node: the checked tree.
        dialect: whose semantics apply.
        properties: the message's properties.
        headers: its headers by position.
    """
    steps: list[Step] = []

    def visit(part: Node, depth: int) -> None:
        truth = evaluate(part, dialect, properties, headers)
        place = len(steps)
        if not isinstance(part, And | Or | Not):
            reason = _reason(part, dialect, properties, headers)
            steps.append(Step(depth, print_selector(part), part.span, truth, reason))
            return
        steps.append(Step(depth, print_selector(part), part.span, truth, ""))
        for below in children(part):
            visit(below, depth + 1)
        parts = [step.truth for step in steps[place + 1 :] if step.depth == depth + 1]
        steps[place] = replace(steps[place], reason=_joined(part, truth, parts))

    visit(node, 0)
    return Explanation(steps[0].truth, tuple(steps))


def _joined(node: And | Or | Not, truth: Truth, parts: list[Truth]) -> str:
    """What the parts of an AND, OR or NOT did."""
    match node:
        case And():
            expected, decisive, other = conjunction(parts), False, True
        case Or():
            expected, decisive, other = disjunction(parts), True, False
        case _:
            expected = negation(parts[0])
            if truth is expected:
                return f"NOT {_WORDS[parts[0]]}"
    if truth is not expected:  # D-15, D-16: one part gives up for all
        return "unlike types, or arithmetic on NULL, within"
    if truth is decisive:
        count = parts.count(truth)
        return f"{'a part is' if count == 1 else f'{count} parts are'} {_WORDS[truth]}"
    if truth is None:
        return f"a part is UNKNOWN and none is {_WORDS[decisive]}"
    return f"every part is {_WORDS[other]}"


def _reason(node: Node, dialect: Dialect, properties: Mapping[str, PropertyValue], headers: Headers) -> str:
    """The values of the names in a comparison, then what is special about them."""
    names = dict.fromkeys(part.name for part in walk(node) if isinstance(part, Identifier))
    found = [_described(name, properties, headers) for name in names]
    if isinstance(node, Identifier):
        if not isinstance(read(node.name, properties, headers), bool | None):
            found.append("no boolean")  # D-07
    elif _is_unlike(node, dialect, properties, headers):
        scope = "the whole selector" if dialect.unlike_is_fatal else "the operation"
        found.append(f"unlike types, so {scope} is FALSE")
    return ", ".join(found)


def _described(name: str, properties: Mapping[str, PropertyValue], headers: Headers) -> str:
    value = read(name, properties, headers)
    if value is None:
        return f"{name} is {'null' if name in properties or name in HEADERS else 'absent'}"
    if isinstance(value, str):
        return f"{name} is {print_literal(value if len(value) <= 60 else value[:59] + '…')}"
    return f"{name} is {print_literal(value)} ({_KINDS[letter_of(value)]})"


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
