"""The tree of a selector: plain nodes with spans, which nobody changes once they are made (frozen ones would take
three times as long to make). Walking, printing and checking live elsewhere.

    condition   And(conditions)  Or(conditions)  Not(condition)
                Compare(op, value, value)  Between(value, value, value)  In(name, strings)  Like(name, pattern)
                IsNull(name)  Identifier  Literal (TRUE or FALSE)
    value       Literal  Identifier  Unary(sign, value)  Arithmetic(op, value, value)

And and Or are n-ary and never nest in themselves, so a chain of a thousand terms is one level deep. The forms with
``negated`` (NOT IN, NOT LIKE, NOT BETWEEN, IS NOT NULL) are operations of their own: they differ from a NOT around the
positive form when types are unlike (D-04).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from sievemq_core.message.values import PropertyValue, letter_of
from sievemq_core.selector.source import Span

#: The operator of a comparison with its sides exchanged.
MIRRORED: Final = {"=": "=", "<>": "<>", "<": ">", "<=": ">=", ">": "<", ">=": "<="}


def type_key(value: PropertyValue) -> str:
    """Text that is equal only for equal values of one type: ``1``, ``1.0``, ``True`` and ``-0.0`` all differ."""
    return f"{letter_of(value)}{value!r}"


@dataclass(slots=True, eq=False)
class Literal:
    """A constant. Its JMS type is that of the Python value (message/values.py)."""

    value: str | bool | int | float
    span: Span = (0, 0)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Literal) and type_key(self.value) == type_key(other.value)

    def __hash__(self) -> int:
        return hash(type_key(self.value))


@dataclass(slots=True, unsafe_hash=True)
class Identifier:
    """A header field or a property; names are case-sensitive (D-09)."""

    name: str
    span: Span = field(default=(0, 0), compare=False)


@dataclass(slots=True, unsafe_hash=True)
class Unary:
    """``+ value`` or ``- value``."""

    op: str
    operand: Node
    span: Span = field(default=(0, 0), compare=False)


@dataclass(slots=True, unsafe_hash=True)
class Arithmetic:
    """``left op right`` with op one of ``+ - * /``."""

    op: str
    left: Node
    right: Node
    span: Span = field(default=(0, 0), compare=False)


@dataclass(slots=True, unsafe_hash=True)
class Compare:
    """``left op right`` with op one of ``= <> < <= > >=``."""

    op: str
    left: Node
    right: Node
    span: Span = field(default=(0, 0), compare=False)


@dataclass(slots=True, unsafe_hash=True)
class Between:
    """``operand [NOT] BETWEEN low AND high``."""

    operand: Node
    low: Node
    high: Node
    negated: bool = False
    span: Span = field(default=(0, 0), compare=False)


@dataclass(slots=True, unsafe_hash=True)
class In:
    """``name [NOT] IN ('a', 'b')``; the operand is an Identifier once checked (D-06).

    ``equals``: a long chain ``name = 1 OR name = 'a' OR …``, of constants of any kind: TRUE if one of the comparisons
    is. The items of a long list stand where it stands.
    """

    operand: Node
    items: tuple[Literal, ...]
    negated: bool = False
    equals: bool = False
    span: Span = field(default=(0, 0), compare=False)


@dataclass(slots=True, unsafe_hash=True)
class Like:
    """``name [NOT] LIKE 'pattern' [ESCAPE 'c']``; the operand is an Identifier once checked (D-06)."""

    operand: Node
    pattern: Literal
    escape: Literal | None = None
    negated: bool = False
    span: Span = field(default=(0, 0), compare=False)


@dataclass(slots=True, unsafe_hash=True)
class IsNull:
    """``name IS [NOT] NULL``; the operand is an Identifier once checked (D-06)."""

    operand: Node
    negated: bool = False
    span: Span = field(default=(0, 0), compare=False)


@dataclass(slots=True, unsafe_hash=True)
class Not:
    """``NOT condition``."""

    operand: Node
    span: Span = field(default=(0, 0), compare=False)


@dataclass(slots=True, unsafe_hash=True)
class And:
    """Two or more conditions, none of them an And."""

    operands: tuple[Node, ...]
    span: Span = field(default=(0, 0), compare=False)


@dataclass(slots=True, unsafe_hash=True)
class Or:
    """Two or more conditions, none of them an Or."""

    operands: tuple[Node, ...]
    span: Span = field(default=(0, 0), compare=False)


Node = Literal | Identifier | Unary | Arithmetic | Compare | Between | In | Like | IsNull | Not | And | Or


def children(node: Node) -> tuple[Node, ...]:
    """The nodes directly below, in the order of the text; literals of IN and LIKE included."""
    match node:
        case And() | Or():
            return node.operands
        case Compare() | Arithmetic():
            return node.left, node.right
        case Between():
            return node.operand, node.low, node.high
        case In():
            return node.operand, *node.items
        case Like():
            return (node.operand, node.pattern, *([node.escape] if node.escape is not None else []))
        case Unary() | Not() | IsNull():
            return (node.operand,)
        case Literal() | Identifier():
            return ()


def walk(node: Node) -> Iterator[Node]:
    """The node and everything below it, in the order of the text."""
    stack = [node]
    while stack:
        node = stack.pop()
        yield node
        stack.extend(reversed(children(node)))
