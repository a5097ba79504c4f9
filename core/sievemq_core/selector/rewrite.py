"""Parts of a selector in other words that mean the same wherever they run (portability.py)."""

from __future__ import annotations

from collections.abc import Iterable

from sievemq_core.selector.ast import Compare, Identifier, Literal, Node, Unary, walk
from sievemq_core.selector.lexer import printed_name
from sievemq_core.selector.names import FieldType, field_type
from sievemq_core.selector.printer import print_selector


def unequal(node: Compare) -> str | None:
    """A form of ``<>`` that is FALSE on unlike types and UNKNOWN on NULL; None unless a name meets a constant."""
    for name, constant in ((node.left, node.right), (node.right, node.left)):
        if not isinstance(name, Identifier):
            continue
        written = printed_name(name.name)
        match constant:
            case Literal(value=bool() as truth):
                return f"{written} = {'FALSE' if truth else 'TRUE'}"
            case Literal(value=str()):
                return f"({written} LIKE '%' AND {written} <> {print_selector(constant)})"
            case Literal() | Unary():
                number = print_selector(constant)
                return f"({written} < {number} OR {written} > {number})"
    return None


def equal(node: Compare) -> str | None:
    """A form of ``=`` that is UNKNOWN on NULL; None unless a name meets a string or number."""
    for name, constant in ((node.left, node.right), (node.right, node.left)):
        if not isinstance(name, Identifier):
            continue
        written = printed_name(name.name)
        match constant:
            case Literal(value=str()):
                return f"({written} LIKE '%' AND {written} = {print_selector(constant)})"
            case Literal(value=bool()):
                return None
            case Literal() | Unary():
                number = print_selector(constant)
                return f"({written} >= {number} AND {written} <= {number})"
    return None


def where_present(sides: Iterable[Node], node: Node) -> str:
    """The condition for messages only that have every name of `sides`: FALSE for others, which it was not TRUE for."""
    names = dict.fromkeys(
        printed_name(part.name)
        for side in sides
        for part in walk(side)
        if isinstance(part, Identifier) and field_type(part.name) in (FieldType.PROPERTY, FieldType.TEXT)
    )
    return f"({' AND '.join([f'{name} IS NOT NULL' for name in names])} AND {print_selector(node)})"


def without_idle_escapes(pattern: str, escape: str) -> str:
    """A LIKE pattern without escape characters in front of what needs none."""
    kept: list[str] = []
    at = 0
    while at < len(pattern):
        if pattern[at] == escape and at + 1 < len(pattern):
            at += 1
            if pattern[at] in ("%", "_", escape):
                kept.append(escape)
        kept.append(pattern[at])
        at += 1
    return "".join(kept)
