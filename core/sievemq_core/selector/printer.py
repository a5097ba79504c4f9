"""Tree to text: the plain printing of a tree, and the canonical text that groups equal selectors.

Both are selectors again: parsing what was printed gives an equal tree, or for the canonical text a tree with the same
canonical text and the same meaning.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import isinf

from sievemq_core.message.values import INT_MAX, INT_MIN, Float, Long
from sievemq_core.selector.ast import (
    MIRRORED,
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
    Not,
    Or,
    Unary,
)
from sievemq_core.selector.lexer import printed_name
from sievemq_core.selector.source import Span

_OR, _AND, _NOT, _PREDICATE, _SUM, _PRODUCT, _SIGN, _ATOM = range(8)


def print_selector(node: Node) -> str:
    """The tree as text: one blank between tokens, words in upper case, only the parentheses that are needed."""
    return _Printer(canonical=False, holes={}).text(node)[0]


def canonical(node: Node, holes: Mapping[Span, str] | None = None) -> str:
    """Text that is equal only for selectors of equal meaning (within one dialect).

    Args:
        holes: what to print for the constants that stand there, as they are parameters of a shape (shape.py); for a
            list what stands for its first one.

    Beyond spelling it evens out what cannot change the meaning: order and repetition of the terms of AND and OR and of
    the strings of IN, and on which side of a comparison a value stands.
    """
    return _Printer(canonical=True, holes=holes or {}).text(node)[0]


def print_literal(value: str | bool | int | float) -> str:
    """A constant as the language writes it, so that its type survives."""
    kind = type(value)
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    if isinstance(value, bool):
        return "TRUE" if value else "FALSE"
    if kind is Long and INT_MIN <= value <= INT_MAX:
        return f"{int(value)}L"
    if isinstance(value, float):
        if value != value or isinf(value):  # only folding makes these; they are printed for people, not for the parser
            return "NaN" if value != value else "Infinity" if value > 0 else "-Infinity"
        text = float.__repr__(value).replace("e+", "E").replace("e", "E")
        return text + "f" if kind is Float else text
    return str(int(value))


class _Printer:
    __slots__ = ("_canonical", "_holes", "_terms")

    def __init__(self, canonical: bool, holes: Mapping[Span, str]) -> None:
        self._canonical = canonical
        self._holes = holes
        self._terms: dict[str, set[tuple[str, int]]] = {}  # text of a chain -> its terms, so that chains can merge

    def text(self, node: Node) -> tuple[str, int]:  # noqa: C901
        """The text and how tightly it binds."""
        match node:
            case Identifier():
                return printed_name(node.name), _ATOM
            case Compare():
                return self._comparison(node), _PREDICATE
            case And():
                return self._chain(node.operands, " AND ", _AND)
            case Or():
                return self._chain(node.operands, " OR ", _OR)
            case Literal() if node.span in self._holes:
                return self._holes[node.span], _ATOM
            case Literal():
                # -2147483648 and -9223372036854775808 are literals; the sign binds like any sign
                text = print_literal(node.value)
                return text, _SIGN if text.startswith("-") else _ATOM
            case Unary():
                inner = self._wrapped(node.operand, _SIGN)
                if _would_fuse(node):
                    return f"{node.op}({inner})", _SIGN
                return f"{node.op}{' ' if inner[0] in '+-' else ''}{inner}", _SIGN
            case Arithmetic():
                own = _SUM if node.op in "+-" else _PRODUCT
                return f"{self._wrapped(node.left, own)} {node.op} {self._wrapped(node.right, own + 1)}", own
            case Between():
                operand, low, high = (self._wrapped(part, _SUM) for part in (node.operand, node.low, node.high))
                return f"{operand} {_not(node)}BETWEEN {low} AND {high}", _PREDICATE
            case In(equals=True):
                name = self._wrapped(node.operand, _SUM)
                terms = [f"{name} = {print_literal(item.value)}" for item in node.items]
                if self._canonical:
                    unique = set(terms)
                    if len(unique) == 1:
                        return terms[0], _PREDICATE
                    terms = sorted(unique)
                    text = " OR ".join(terms)
                    self._terms[text] = {(term, _PREDICATE) for term in terms}
                    return text, _OR
                return " OR ".join(terms), _OR
            case In():
                items = [print_literal(item.value) for item in node.items]
                if node.items[0].span in self._holes:
                    items = [self._holes[node.items[0].span]]
                elif self._canonical:
                    items = sorted(set(items))
                return f"{self._wrapped(node.operand, _SUM)} {_not(node)}IN ({', '.join(items)})", _PREDICATE
            case Like():
                escape = f" ESCAPE {print_literal(node.escape.value)}" if node.escape is not None else ""
                pattern = print_literal(node.pattern.value)
                return f"{self._wrapped(node.operand, _SUM)} {_not(node)}LIKE {pattern}{escape}", _PREDICATE
            case IsNull():
                return f"{self._wrapped(node.operand, _SUM)} IS {_not(node)}NULL", _PREDICATE
            case Not():
                return f"NOT {self._wrapped(node.operand, _NOT)}", _NOT

    def _wrapped(self, node: Node, power: int) -> str:
        text, binds = self.text(node)
        return text if binds >= power else f"({text})"

    def _chain(self, operands: tuple[Node, ...], joiner: str, power: int) -> tuple[str, int]:
        if not self._canonical:
            return joiner.join(self._wrapped(operand, power + 1) for operand in operands), power
        terms: set[tuple[str, int]] = set()
        for operand in operands:
            text, binds = self.text(operand)
            if binds == power:  # an OR of equal ANDs has become an AND inside an AND
                terms |= self._terms[text]
            else:
                terms.add((text, binds))
        if len(terms) == 1:
            return terms.pop()
        text = joiner.join(sorted(term if binds > power else f"({term})" for term, binds in terms))
        self._terms[text] = terms
        return text, power

    def _comparison(self, node: Compare) -> str:
        left, right, op = self._wrapped(node.left, _SUM), self._wrapped(node.right, _SUM), node.op
        if self._canonical:
            # '<' rather than '>' would turn "a > 5" into "5 < a"; so: constants to the right, else by text
            constant_left, constant_right = _is_constant(node.left), _is_constant(node.right)
            swap = constant_left and not constant_right
            if constant_left == constant_right:
                swap = right < left
            if swap:
                left, right = right, left
                op = MIRRORED[op]
        return f"{left} {op} {right}"


def _is_constant(node: Node) -> bool:
    return isinstance(node.operand if isinstance(node, Unary) else node, Literal)


def _not(node: Between | In | Like | IsNull) -> str:
    return "NOT " if node.negated else ""


def _would_fuse(node: Unary) -> bool:
    """True where ``-`` and the literal behind it would be read as one literal of another type."""
    operand = node.operand
    return node.op == "-" and isinstance(operand, Literal) and type(operand.value) in (int, Long) and (
        int(operand.value) == INT_MAX + 1
    )  # fmt: skip
