"""Checks types and names, as far as the text of a selector determines them; back-ends rely on the tree that it returns.

It refuses visible mistakes (D-06, SEL-04), names that no selector may use (D-08) and operators that a small dialect
lacks (D-16). A mistake that only a message can show is never an error."""

from __future__ import annotations

import re
from difflib import get_close_matches
from enum import Enum
from typing import NoReturn

from sievemq_core.limits import MAX_LIKE_SEARCHES, MAX_LIKE_WILDCARDS
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
    Not,
    Or,
    Unary,
    walk,
)
from sievemq_core.selector.dialect import Dialect
from sievemq_core.selector.lexer import quoting_hint
from sievemq_core.selector.like import PatternError, parse_pattern
from sievemq_core.selector.names import HEADERS, OTHER_HEADERS
from sievemq_core.selector.source import SelectorError

_NUMERIC = re.compile(r"\s*[+-]?[0-9]+(?:\.[0-9]*)?\s*")
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")


class Kind(Enum):
    """The kind of a node as far as the text determines it; the value is its name in an error message."""

    STRING = "a string"
    NUMBER = "a number"
    BOOLEAN = "a boolean"
    UNKNOWN = "a property"
    CONDITION = "a condition"


def check(node: Node, text: str, dialect: Dialect) -> None:
    """Refuse a tree that can be seen to be wrong.

    Raises:
        SelectorError: at the first mistake, from left to right.
    """
    _Checker(text, dialect).condition(node)


class _Checker:
    __slots__ = ("_dialect", "_searches", "_text", "_wildcards")

    def __init__(self, text: str, dialect: Dialect) -> None:
        self._text = text
        self._dialect = dialect
        self._wildcards = 0
        self._searches = 0

    # -- conditions ---------------------------------------------------------------------------------------------

    def condition(self, node: Node) -> None:
        """`node` is in a place for a condition."""
        if self._dialect.operators_minimal:
            self._only_minimal(node)
        if isinstance(node, Compare):  # the most by far
            self._compare(node)
            return
        match node:
            case And() | Or():
                for operand in node.operands:
                    self.condition(operand)
            case Not():
                self.condition(node.operand)
            case Between():
                for part in (node.operand, node.low, node.high):
                    self._number(part, "BETWEEN")
            case In():
                self._subject(node.operand, "IN")
            case Like():
                self._subject(node.operand, "LIKE")
                self._pattern(node)
            case IsNull():
                self._subject(node.operand, "IS NOT NULL" if node.negated else "IS NULL")
            case Identifier():
                self._name(node)  # a boolean property; what else it may be, only a message shows (D-07)
            case Literal() if isinstance(node.value, bool):
                pass
            case Literal():
                kind = "string" if isinstance(node.value, str) else "number"
                self._fail(
                    f"the {kind} {self._source(node)} is no condition",
                    node,
                    hint=f"each condition names what it compares: a = {self._source(node)}",
                )
            case Unary() | Arithmetic():
                self._fail("a computed number is no condition", node, hint="compare it with something")

    def _compare(self, node: Compare) -> None:
        left, right = self._value(node.left), self._value(node.right)
        if left is Kind.UNKNOWN and (right is Kind.NUMBER or (right is Kind.STRING and node.op in ("=", "<>"))):
            return  # the most by far
        for side, kind in ((node.left, left), (node.right, right)):
            if kind is Kind.CONDITION:
                self._fail(
                    "a condition cannot be compared with anything",
                    side,
                    hint="write the condition itself, or NOT in front of it, and join with AND or OR",
                )
        if node.op not in ("=", "<>"):
            for side, kind in ((node.left, left), (node.right, right)):
                if kind in (Kind.STRING, Kind.BOOLEAN):  # §3.8.1.3: strings and booleans have = and <> only
                    self._fail(
                        f"{kind.value} has no order, so '{node.op}' cannot compare it",
                        side,
                        hint=self._unordered(node, side),
                    )
        if left is not right and Kind.UNKNOWN not in (left, right):
            self._fail(
                f"{left.value} is never comparable with {right.value}",
                node,
                hint=self._hyphen(node.left) or self._hyphen(node.right) or "only values of one kind can be compared",
            )

    def _subject(self, node: Node, operation: str) -> None:
        """IN, LIKE and IS NULL are about one header field or property (§3.8.1.3)."""
        if not isinstance(node, Identifier):
            self._fail(
                f"{operation} is about a header field or property, not {_described(node)}",
                node,
                expected="a name",
                hint=self._hyphen(node),
            )
        self._name(node)

    def _pattern(self, node: Like) -> None:
        assert isinstance(node.pattern.value, str)
        escape = node.escape.value if node.escape is not None else None
        assert escape is None or isinstance(escape, str)
        try:
            pattern = parse_pattern(node.pattern.value, escape)
            self._wildcards += pattern.wildcards
            if self._wildcards > MAX_LIKE_WILDCARDS:
                self._fail(
                    f"the selector is too large: more than {MAX_LIKE_WILDCARDS} wildcards",
                    node.pattern,
                    hint="a consumer that needs more can receive all messages and filter them itself",
                )
            self._searches += pattern.searches
            if self._searches > MAX_LIKE_SEARCHES:
                self._fail(
                    f"the selector is too large: LIKE would search the text of a message more than {MAX_LIKE_SEARCHES} "
                    "times",
                    node.pattern,
                    hint="text between two '%' costs a search, with '_' in it several, and 'a%' or '%a' none",
                )
        except PatternError:
            self._fail(
                "the pattern ends with its escape character, which escapes nothing",
                node.pattern,
                hint="write the escape character twice to mean itself",
            )

    # -- values -------------------------------------------------------------------------------------------------

    def _value(self, node: Node) -> Kind:
        """Describes `node`, which is in a place for a value."""
        if isinstance(node, Literal):
            if isinstance(node.value, str):
                return Kind.STRING
            return Kind.BOOLEAN if isinstance(node.value, bool) else Kind.NUMBER
        if isinstance(node, Identifier):
            self._name(node)
            return Kind.UNKNOWN
        match node:
            case Unary():
                if self._dialect.operators_minimal and not isinstance(node.operand, Literal):
                    self._fail("this dialect has no arithmetic", node)
                self._number(node.operand, f"'{node.op}'")
                return Kind.NUMBER
            case Arithmetic():
                if self._dialect.operators_minimal:
                    self._fail("this dialect has no arithmetic", node)
                self._number(node.left, f"'{node.op}'")
                self._number(node.right, f"'{node.op}'")
                return Kind.NUMBER
            case _:
                return Kind.CONDITION

    def _number(self, node: Node, operation: str) -> None:
        kind = self._value(node)
        if kind not in (Kind.NUMBER, Kind.UNKNOWN):
            hint = None
            if kind is Kind.STRING and _is_numeric(node):
                hint = "a number stands without quotes"
            elif kind is Kind.STRING and operation in ("'-'", "'+'"):
                hint = "strings cannot be joined, and a name has no '-' in it"
            elif kind is Kind.STRING:
                hint = "strings have no order; they can be compared with = and <>, IN and LIKE"
            self._fail(f"{operation} works on numbers, not on {kind.value}", node, expected="a number", hint=hint)

    def _name(self, node: Identifier) -> None:
        """D-08: of the header fields six may be named; JMSX… and JMS_… are properties."""
        name = node.name
        if not name.startswith("JMS") or name in HEADERS or name.startswith(("JMSX", "JMS_")):
            return
        allowed = ", ".join(sorted(HEADERS))
        if name in OTHER_HEADERS:
            self._fail(f"the header field {name} cannot be used in a selector", node, hint=f"usable are {allowed}")
        close = get_close_matches(name[:60], HEADERS, n=1, cutoff=0.75) or [
            header for header in HEADERS if header.lower() == name.lower()
        ]
        self._fail(
            f"there is no header field {name[:60]}",
            node,
            hint=f"did you mean {close[0]}?"
            if close
            else f"names with JMS in front are reserved; usable are {allowed}",
        )

    # -- the small dialect --------------------------------------------------------------------------------------

    def _only_minimal(self, node: Node) -> None:
        match node:
            case And() | Compare(op="=") | IsNull(negated=False):
                return
            case Identifier() | Literal():
                self._fail(
                    f"in the dialect {self._dialect} a name or constant is no condition", node, hint="write name = TRUE"
                )
            case Compare():
                what = f"'{node.op}'"
            case Or():
                what = "OR"
            case Not():
                what = "NOT"
            case Between() | In() | Like() | IsNull():
                what = "IS NOT NULL" if isinstance(node, IsNull) else type(node).__name__.upper()
            case _:
                what = "arithmetic"
        self._fail(f"the dialect {self._dialect} has no {what}", node, hint="it has AND, = and IS NULL")

    def _hyphen(self, node: Node) -> str | None:
        """The hint for a difference where no number can stand: ``trace-id`` is two names with a minus in between."""
        if not (isinstance(node, Arithmetic) and node.op == "-" and isinstance(node.right, Identifier | Literal)):
            return None
        first = node.left
        while isinstance(first, Arithmetic) and first.op == "-":
            first = first.left
        if not isinstance(first, Identifier):
            return None
        said = f"a name has no '-' in it, so this is {first.name[:60]} minus something"
        return f"{said}; {quoting_hint(self._text, first.span[0], self._dialect)}"

    def _unordered(self, node: Compare, side: Node) -> str:
        """The hint for an ordering comparison of a string or boolean."""
        other = node.right if side is node.left else node.left
        if _is_numeric(side):
            return "a number stands without quotes"
        if isinstance(other, Identifier) and other.name == "JMSTimestamp":
            return "JMSTimestamp is a number, the milliseconds since 1970"
        if isinstance(side, Literal) and isinstance(side.value, str) and _DATE.match(side.value):
            return "there are no dates; send a number, such as milliseconds since 1970"
        return self._hyphen(other) or "strings and booleans can be compared with = and <> only"

    def _source(self, node: Node) -> str:
        text = self._text[node.span[0] : node.span[1]]
        return text if len(text) <= 40 else text[:39] + "…"

    def _fail(self, message: str, node: Node, *, expected: str | None = None, hint: str | None = None) -> NoReturn:
        start, end = node.span
        raise SelectorError(message, self._text, start, end - start, expected=expected, hint=hint)


def _described(node: Node) -> str:
    match node:
        case Literal():
            if isinstance(node.value, bool):
                return "TRUE or FALSE"
            return "a string" if isinstance(node.value, str) else "a number"
        case Unary() | Arithmetic():
            return "a computed number"
        case _:
            return "a condition"


def _is_numeric(node: Node) -> bool:
    """True for a string that looks like a number."""
    return isinstance(node, Literal) and isinstance(node.value, str) and _NUMERIC.fullmatch(node.value) is not None


def names_of(node: Node) -> frozenset[str]:
    """Every header field and property that the tree names."""
    return frozenset(part.name for part in walk(node) if isinstance(part, Identifier))
