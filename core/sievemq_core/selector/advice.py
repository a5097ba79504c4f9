"""Warnings: what is legal and hardly meant. They are few and certain; none of them refuses a selector."""

from __future__ import annotations

from sievemq_core.selector import plan
from sievemq_core.selector.analysis import Search
from sievemq_core.selector.ast import (
    And,
    Arithmetic,
    Between,
    Compare,
    Identifier,
    In,
    IsNull,
    Like,
    Literal,
    Node,
    Or,
    Unary,
    walk,
)
from sievemq_core.selector.dialect import Dialect
from sievemq_core.selector.facts import Facts
from sievemq_core.selector.names import HEADERS, MODES, FieldType, field_type
from sievemq_core.selector.plan import make_plan
from sievemq_core.selector.source import SelectorWarning, Span

_LOWER_HEADERS = {header.lower(): header for header in HEADERS}


#: Parts of ANDs and ORs that are analysed on their own.
MAX_PARTS = 32


def advise(node: Node, test: plan.Test, facts: Facts, dialect: Dialect) -> tuple[SelectorWarning, ...]:
    """The warnings for a checked selector, from left to right; a warning about the whole selector comes last."""
    found: list[SelectorWarning] = []
    seen: set[str] = set()
    for part in walk(node):
        match part:
            case Identifier(name=name) if name not in HEADERS and name.lower() in _LOWER_HEADERS and name not in seen:
                seen.add(name)
                header = _LOWER_HEADERS[name.lower()]
                found.append(_warning("header-case", f"{name} is a property; the header field is {header}", part.span))
            case Compare():
                found += _of_comparison(part, dialect) or _of_quotes(part)
            case Arithmetic(op="-", left=Identifier(name=left), right=Identifier(name=right)) if _is_fused(part):
                message = f"{left} minus {right}: a name has no '-' in it, and a minus has blanks"
                found.append(_warning("hyphen", message, part.span))
            case Between(operand=Identifier(name=name)) if field_type(name) in (FieldType.TEXT, FieldType.MODE):
                found.append(_unlike(name, part.span))
            case Between(low=low, high=high) if _is_reversed(_number(low), _number(high)):
                found.append(_warning("empty-range", "the lower bound of BETWEEN is above the upper", part.span))
            case (In() | Like()) as operation if isinstance(operation.operand, Identifier):
                name = operation.operand.name
                if field_type(name) is FieldType.NUMBER and not (isinstance(operation, In) and operation.equals):
                    found.append(_unlike(name, part.span))
                if isinstance(operation, In):
                    found += _of_list(operation)
                elif "*" in str(operation.pattern.value) and not {"%", "_"} & set(str(operation.pattern.value)):
                    message = "'*' is a plain character in LIKE; '%' matches any text"
                    found.append(_warning("plain-star", message, operation.pattern.span))
            case IsNull(operand=Identifier(name=name)) if field_type(name) in (FieldType.NUMBER, FieldType.MODE):
                found.append(_warning("never-null", f"{name} is never NULL", part.span))
            case _:
                pass
    search = Search()
    if facts.never or not search.can_be(test, True):
        found.append(_warning("never-matches", "no message can match this selector", node.span))
    elif facts.always or not search.can_be(test, False):
        found.append(_warning("always-matches", "every message matches this selector", node.span))
    else:
        found += _of_parts(node, dialect, search, {warning.span for warning in found})
    return tuple(found)


def _of_parts(node: Node, dialect: Dialect, search: Search, told: set[Span]) -> list[SelectorWarning]:
    """Branches of an OR that are never TRUE, and terms of an AND that always are: they can be left out. A part
    with advice gets no second one."""
    found: list[SelectorWarning] = []
    left = MAX_PARTS
    stack = [node]
    while stack:
        chain = stack.pop()
        if not isinstance(chain, And | Or):
            continue
        for part in chain.operands:
            left -= 1
            if left < 0:
                return found
            if part.span in told:
                continue
            test = make_plan(part, dialect)
            if isinstance(chain, Or) and not search.can_be(test, True):
                found.append(_warning("never-true", "this alternative is never TRUE", part.span))
            elif isinstance(chain, And) and not search.can_be(test, False):
                found.append(_warning("always-true", "this condition is always TRUE", part.span))
            else:
                stack.append(part)
    return sorted(found, key=lambda warning: warning.span)


def _of_comparison(node: Compare, dialect: Dialect) -> list[SelectorWarning]:
    for name, other in ((node.left, node.right), (node.right, node.left)):
        if not isinstance(name, Identifier) or not isinstance(other, Literal | Unary):
            continue
        value = other.value if isinstance(other, Literal) else 0
        kind = field_type(name.name, numeric_mode=dialect.numeric_mode)
        if kind is FieldType.MODE and (not isinstance(value, str) or value not in MODES.values()):
            modes = " or ".join(f"'{mode}'" for mode in MODES.values())
            return [_warning("delivery-mode", f"JMSDeliveryMode is {modes}, nothing else", node.span)]
        if (kind is FieldType.NUMBER and isinstance(value, str | bool)) or (
            kind is FieldType.TEXT and not isinstance(value, str)
        ):
            return [_unlike(name.name, node.span, value)]
        if dialect.numeric_mode and name.name == "JMSDeliveryMode" and value not in MODES:
            numbers = " or ".join(map(str, MODES))
            return [_warning("delivery-mode", f"JMSDeliveryMode is {numbers}, nothing else", node.span)]
    return []


def _of_quotes(node: Compare) -> list[SelectorWarning]:
    """A name where a text is meant: one in capitals that is compared with one that is not."""
    if node.op in ("=", "<>") and isinstance(node.left, Identifier) and isinstance(node.right, Identifier):
        for name, other in ((node.right.name, node.left.name), (node.left.name, node.right.name)):
            if len(name) > 1 and name.isupper() and not other.isupper() and name not in HEADERS:
                span = node.right.span if name == node.right.name else node.left.span
                return [_warning("unquoted-text", f"{name} is a property; write text in quotes: '{name}'", span)]
    return []


def _is_fused(node: Arithmetic) -> bool:
    """True without a blank beside the operator."""
    return node.right.span[0] - node.left.span[1] == 1


def _of_list(node: In) -> list[SelectorWarning]:
    seen: set[object] = set()
    for item in node.items:
        if not node.equals and item.value in seen:
            return [_warning("repeated-item", "the list names this string twice", item.span)]
        seen.add(item.value)
    return []


def _number(node: Node) -> int | float | None:
    sign = 1
    while isinstance(node, Unary):
        sign, node = (-sign if node.op == "-" else sign), node.operand
    if isinstance(node, Literal) and not isinstance(node.value, str | bool):
        return sign * node.value
    return None


def _is_reversed(low: int | float | None, high: int | float | None) -> bool:
    return low is not None and high is not None and low > high


def _unlike(name: str, span: Span, constant: object = None) -> SelectorWarning:
    is_number = field_type(name, numeric_mode=True) is FieldType.NUMBER
    kind = "a number" if is_number else "text"
    advice = ""
    if is_number and isinstance(constant, str) and constant.isdecimal():
        advice = f"; write {constant[:20]} without quotes"
    return _warning("unlike-types", f"{name} is {kind}, so this operation is always false{advice}", span)


def _warning(code: str, message: str, span: Span) -> SelectorWarning:
    return SelectorWarning(code, message, span)
