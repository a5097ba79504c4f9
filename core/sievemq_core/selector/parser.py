"""Tokens to tree, by precedence climbing with one table of binding powers.

    loosest   OR
              AND
              NOT condition                                  applies to the comparison behind it (D-03)
              = <> < <= > >=  [NOT] BETWEEN/IN/LIKE  IS      not associative: a = b = c is refused
              + -                                            left to right
              * /                                            left to right
    tightest  + - in front of a value

The parser knows shapes, not types: ``(a AND b) + 1`` is a tree that the checker refuses with a better message. It
enforces the limits on nodes and depth (limits.py), so that no later pass meets a tree it cannot walk.
"""

from __future__ import annotations

import re
from typing import NoReturn, TypeVar

from sievemq_core.limits import MAX_SELECTOR_CHARS, MAX_SELECTOR_CONSTANTS, MAX_SELECTOR_DEPTH, MAX_SELECTOR_NODES
from sievemq_core.message.values import INT_MAX, INT_MIN, LONG_MAX, LONG_MIN, Long
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
)
from sievemq_core.selector.dialect import Dialect
from sievemq_core.selector.hints import FUNCTIONS, missing_operand, unexpected_after
from sievemq_core.selector.lexer import Lexer, Token, TokenKind
from sievemq_core.selector.source import SelectorError, Span

_NAME, _WORD, _SYMBOL = TokenKind.NAME, TokenKind.WORD, TokenKind.SYMBOL
_STRING, _NUMBER = TokenKind.STRING, TokenKind.NUMBER

_OR, _AND, _NOT, _PREDICATE, _SUM, _PRODUCT, _SIGN = 10, 20, 30, 40, 50, 60, 70

#: How strongly an operator binds its left operand.
_POWER = {
    "OR": _OR, "AND": _AND,
    "=": _PREDICATE, "<>": _PREDICATE, "<": _PREDICATE, "<=": _PREDICATE, ">": _PREDICATE, ">=": _PREDICATE,
    "BETWEEN": _PREDICATE, "IN": _PREDICATE, "LIKE": _PREDICATE, "IS": _PREDICATE, "NOT": _PREDICATE,
    "+": _SUM, "-": _SUM, "*": _PRODUCT, "/": _PRODUCT,
}  # fmt: skip

#: Header fields whose comparisons mean more than equality where an id of zeros matches any.
_IDS = frozenset({"JMSMessageID", "JMSCorrelationID"})

#: Characters of a selector that is too long, in the error about it.
_SHOWN = 1_000

_PREDICATE_WORDS = ("BETWEEN", "IN", "LIKE")

_N = TypeVar("_N", bound=Node)


def parse(text: str, dialect: Dialect, names: set[str] | None = None) -> Node:
    """The tree of a selector.

    Args:
        text: the selector; not blank.
        names: to which every header field and property is added that the selector names.

    Raises:
        SelectorError: syntax, or a limit of limits.py.
    """
    if len(text) > MAX_SELECTOR_CHARS:
        raise SelectorError(
            f"the selector has {len(text):,} characters; at most {MAX_SELECTOR_CHARS:,} are allowed",
            text[: _SHOWN + 1],  # the answer to an oversized request is not oversized itself
            _SHOWN,
        )
    return _Parser(text, dialect, names if names is not None else set()).whole()


class _Parser:
    __slots__ = (
        "_dialect", "_heights", "_items", "_lexer", "_names", "_nesting", "_next", "_nodes", "_pending", "_token",
    )  # fmt: skip

    def __init__(self, text: str, dialect: Dialect, names: set[str]) -> None:
        self._lexer = Lexer(text, dialect)
        self._dialect = dialect
        self._next = self._lexer.next
        self._token = self._next()
        self._names = names
        self._nodes = 0
        self._items = 0  # strings in lists
        self._nesting = 0  # parentheses that are open
        self._pending = 0  # operators that wait for their right side, NOT and signs included
        self._heights: dict[int, int] = {}  # id(node) -> height, only for nodes higher than 1

    # -- the grammar --------------------------------------------------------------------------------------------

    def whole(self) -> Node:
        node = self._expression(0)
        if self._token.kind is not TokenKind.END:
            self._unexpected_after(node)
        return node

    def _expression(self, power: int) -> Node:
        """Parse an expression that binds at least as strongly as `power`."""
        left = self._operand(power)
        while True:
            token = self._token
            kind = token.kind
            binds = _POWER.get(token.text, 0) if kind is _SYMBOL or kind is _WORD else 0
            if binds < power or binds == 0:
                return left
            if binds in (_OR, _AND):
                left = self._chain(left, token.text, binds)
            elif binds == _PREDICATE:
                left = self._predicate(left)
                self._not_chained()
            else:
                self._token = self._next()
                right = self._right_side(binds + 1)
                span = (left.span[0], right.span[1])
                left = self._made(Arithmetic(token.text, left, right, span), left, right)

    def _not_chained(self) -> None:
        """A condition is complete: no operator may follow that compares it."""
        follows = self._token
        chained = follows.kind is not _NAME and _POWER.get(follows.text) == _PREDICATE
        if chained and follows.text != "NOT":
            self._fail(
                "comparisons cannot be chained",
                follows.span,
                hint="join two conditions with AND: a < b AND b < c",
            )

    def _operand(self, power: int) -> Node:  # noqa: C901
        token = self._token
        kind, text = token.kind, token.text
        if kind is _NAME:
            if power <= _OR and (chain := self._equalities(token)) is not None:
                return chain
            if power <= _NOT:  # where a condition is wanted
                if (rest := self._lexer.condition(token.end)) is not None:
                    return self._condition(token, rest)
                if (rest := self._lexer.list_begins(token.end)) is not None:
                    plain = self._lexer.strings(rest.end())
                    if plain is not None:
                        self._nodes += 1
                        self._names.add(text)
                        values, self._token = plain
                        items = [Literal(value, span) for value, span in values]
                        node = self._listed(Identifier(text, (token.start, token.end)), rest[1] is not None, items)
                        self._not_chained()
                        return node
            follows = self._token = self._next()
            if follows.text == "(" and follows.kind is _SYMBOL:
                self._called(token)
            self._names.add(text)
            self._nodes += 1  # an operator follows, or the end: the limit is checked there
            return Identifier(text, (token.start, token.end))
        if kind is _STRING or kind is _NUMBER:
            return self._literal()
        if kind is _SYMBOL:
            if text == "(":
                chain = self._equalities(token) if power <= _OR else None
                return self._parenthesis(token) if chain is None else chain
            if text in ("+", "-"):
                return self._signed()
        elif kind is _WORD:
            if text in ("TRUE", "FALSE"):
                self._token = self._next()
                return self._made(Literal(text == "TRUE", token.span))
            if text == "NOT":
                if power > _NOT:
                    self._fail("NOT precedes a condition, not a value", token.span, expected="a value")
                self._token = self._next()
                operand = self._right_side(_NOT)
                return self._made(Not(operand, (token.start, operand.span[1])), operand)
        return self._missing_operand(power)

    def _parenthesis(self, opener: Token) -> Node:
        self._token = self._next()
        self._nesting += 1
        if self._nesting > MAX_SELECTOR_DEPTH:
            self._too_deep(opener.span)
        inner = self._expression(0)
        self._nesting -= 1
        if not self._is_symbol(")"):
            if self._token.kind is TokenKind.END:
                self._fail("this parenthesis is never closed", opener.span, expected="')'")
            self._unexpected_after(inner, "')'")
        self._token = self._next()
        return inner

    def _right_side(self, power: int) -> Node:
        """An expression behind an operator. The limits on this and on parentheses bound the parser's own recursion."""
        self._pending += 1
        if self._pending > MAX_SELECTOR_DEPTH:
            self._too_deep(self._token.span)
        node = self._expression(power)
        self._pending -= 1
        return node

    def _chain(self, first: Node, word: str, power: int) -> Node:
        """``a AND b AND …`` as one n-ary node (or OR); chains in parentheses melt into it."""
        kind = And if word == "AND" else Or
        operands = list(first.operands) if isinstance(first, kind) else [first]
        end = first.span[1]
        while self._is_word(word):
            self._token = self._next()
            chain = self._equalities(self._token) if power == _OR else None
            operand = self._right_side(power + 1) if chain is None else chain
            end = operand.span[1]
            if self._nodes > MAX_SELECTOR_NODES:  # before the last of thousands
                self._too_many(operand.span)
            if isinstance(operand, kind):
                operands.extend(operand.operands)
            else:
                operands.append(operand)
        return self._made(kind(tuple(operands), (first.span[0], end)), *operands)

    def _equalities(self, first: Token) -> Node | None:
        """A long chain of equalities of one name as one condition; None if there is none, or the dialect sees more in
        them (D-13, D-15, D-16)."""
        name: Token | None = first
        if first.kind is _SYMBOL and first.text == "(":
            name = self._lexer.chained_name(first.start)
        elif first.kind is not _NAME:
            return None
        if name is None:
            return None
        dialect, text = self._dialect, name.text
        if (
            dialect.operators_minimal
            or text == "JMSDeliveryMode"
            or (dialect.zero_id_matches_any and text in _IDS)
            or (taken := self._lexer.equalities(first.start, text)) is None
        ):
            return None
        values, span = taken
        self._token = self._next()
        self._names.add(text)
        self._nodes += 1
        items = [Literal(value, span) for value in values]
        node = self._listed_in(In(Identifier(text, name.span), tuple(items), False, True, span))
        self._not_chained()
        return node

    def _signed(self) -> Node:
        sign = self._token
        self._token = self._next()
        token = self._token
        if sign.text == "-" and token.kind is TokenKind.NUMBER and type(token.value) is int:
            # Java: the lowest value can be written although its absolute value cannot (§3.8.1.1, SEL-09)
            if token.value == LONG_MAX + 1:
                self._token = self._next()
                return self._made(Literal(LONG_MIN, (sign.start, token.end)))
            if token.value == INT_MAX + 1 and token.text[-1] not in "lL":
                self._token = self._next()
                return self._made(Literal(INT_MIN, (sign.start, token.end)))
            if token.value == INT_MAX + 1:
                self._token = self._next()
                return self._made(Literal(Long(INT_MIN), (sign.start, token.end)))
        operand = self._right_side(_SIGN)
        return self._made(Unary(sign.text, operand, (sign.start, operand.span[1])), operand)

    def _predicate(self, left: Node) -> Node:
        token = self._token
        self._token = self._next()
        if token.kind is _SYMBOL:
            right = self._right_side(_SUM)
            return self._made(Compare(token.text, left, right, (left.span[0], right.span[1])), left, right)
        if token.text == "IS":
            return self._is_null(left)
        negated = token.text == "NOT"
        if negated:
            token = self._token
            if token.kind is not TokenKind.WORD or token.text not in _PREDICATE_WORDS:
                self._fail(
                    f"{self._described()} cannot follow NOT here",
                    token.span,
                    expected="BETWEEN, IN or LIKE",
                    hint="write IS NOT NULL"
                    if self._is_word("NULL")
                    else "write NOT before a comparison, and AND between two: NOT a = 1 AND NOT b = 2",
                )
            self._token = self._next()
        if token.text == "BETWEEN":
            return self._between(left, negated)
        if token.text == "IN":
            return self._in(left, negated)
        return self._like(left, negated)

    def _between(self, operand: Node, negated: bool) -> Node:
        low = self._right_side(_SUM)
        if not self._is_word("AND"):
            self._fail(
                f"BETWEEN needs two bounds, but {self._described()} follows the first",
                self._token.span,
                expected="AND",
                hint="as in a BETWEEN 1 AND 5",
            )
        self._token = self._next()
        high = self._right_side(_SUM)
        node = Between(operand, low, high, negated, (operand.span[0], high.span[1]))
        return self._made(node, operand, low, high)

    def _in(self, operand: Node, negated: bool) -> Node:
        opener = self._token
        if not self._is_symbol("("):
            what = f"{self._described()} cannot follow IN"
            self._fail(what, opener.span, expected="'('", hint="as in a IN ('x', 'y')")
        plain = self._lexer.strings(opener.end)
        if plain is not None:
            values, self._token = plain
            items = [Literal(value, span) for value, span in values]
            return self._listed(operand, negated, items)
        self._token = self._next()
        items = []
        while True:
            token = self._token
            if token.kind is not TokenKind.STRING:
                what = f"{self._described()} cannot be in a list"
                if self._is_symbol(")"):
                    what = "the list of IN is empty" if not items else "a list item is missing"
                hint = "a list has strings with commas in between: IN ('a', 'b')"
                if token.kind is TokenKind.NUMBER:
                    hint = "IN lists strings; for numbers write a = 1 OR a = 2"
                elif token.kind is TokenKind.NAME:
                    hint = f"write text in quotes: '{_short(token.text)}'"
                elif token.kind is TokenKind.WORD and token.text == "NULL":
                    hint = "a missing value is found with IS NULL"
                self._fail(what, token.span, expected="a string", hint=hint)
            items.append(Literal(str(token.value), token.span))
            self._token = self._next()
            if self._is_symbol(")"):
                return self._listed(operand, negated, items)
            if self._token.kind is TokenKind.END:
                self._fail("this list is never closed", opener.span, expected="')'")
            if not self._is_symbol(","):
                self._fail(
                    f"{self._described()} cannot follow a list item",
                    self._token.span,
                    expected="',' or ')'",
                    hint="strings are listed with commas, and a quote inside of one is written twice",
                )
            self._token = self._next()

    def _listed(self, operand: Node, negated: bool, items: list[Literal]) -> Node:
        end = self._token.end
        self._token = self._next()
        return self._listed_in(In(operand, tuple(items), negated, False, (operand.span[0], end)))

    def _listed_in(self, node: In) -> Node:
        """A list, counted."""
        self._items += len(node.items)
        if self._items > MAX_SELECTOR_CONSTANTS:
            self._fail(
                f"the selector is too large: more than {MAX_SELECTOR_CONSTANTS:,} constants in lists",
                node.items[-1].span,
            )
        return self._made(node, node.operand)

    def _like(self, operand: Node, negated: bool) -> Node:
        if self._token.kind is not TokenKind.STRING:
            self._fail(
                f"{self._described()} cannot be the pattern of LIKE",
                self._token.span,
                expected="a string",
                hint="in quotes, where '%' matches any text and '_' one character: LIKE 'order-%'",
            )
        pattern = self._literal()
        escape: Literal | None = None
        # ESCAPE is not reserved in every dialect (D-15, D-16)
        follows = self._token
        if follows.kind in (_NAME, _WORD) and follows.value is None and follows.text.upper() == "ESCAPE":
            self._token = self._next()
            token = self._token
            if token.kind is not TokenKind.STRING or len(str(token.value)) != 1:
                self._fail(
                    f"{self._described()} cannot be the escape character",
                    token.span,
                    expected="a string of exactly one character",
                    hint="as in a LIKE '100!%' ESCAPE '!'; a backslash is one character here",
                )
            escape = self._literal()
        end = (escape or pattern).span[1]
        node = Like(operand, pattern, escape, negated, (operand.span[0], end))
        return self._made(node, operand, pattern, *([escape] if escape is not None else []))

    def _is_null(self, operand: Node) -> Node:
        negated = self._is_word("NOT")
        if negated:
            self._token = self._next()
        token = self._token
        if not self._is_word("NULL"):
            hint = None
            if token.kind is TokenKind.WORD and token.text in ("TRUE", "FALSE"):
                hint = f"write {'<>' if negated else '='} {token.text}"
            elif token.kind in (TokenKind.STRING, TokenKind.NUMBER, TokenKind.NAME):
                quote = "'" if token.kind is TokenKind.NAME else ""
                hint = f"write {'<>' if negated else '='} {quote}{_short(token.text)}{quote}"
            self._fail(
                f"{self._described()} cannot follow IS",
                token.span,
                expected="NULL" if negated else "NULL or NOT NULL",
                hint=hint,
            )
        self._token = self._next()
        return self._made(IsNull(operand, negated, (operand.span[0], token.end)), operand)

    def _condition(self, name: Token, rest: re.Match[str]) -> Node:
        """A condition that the lexer took whole."""
        start, end = name.start, rest.end()
        self._token = self._next()
        self._names.add(name.text)
        subject = Identifier(name.text, (start, name.end))
        node: Node
        if rest[1]:
            text = rest[2]
            constant = Literal(int(rest[3]), rest.span(3)) if text is None else Literal(text[1:-1], rest.span(2))
            self._nodes += 3
            node = Compare(rest[1], subject, constant, (start, end))
        elif rest[5]:
            self._nodes += 3
            pattern = Literal(rest[5][1:-1], rest.span(5))
            node = Like(subject, pattern, None, rest[4] is not None, (start, end))
        elif rest[6]:
            self._nodes += 4
            low, high = Literal(int(rest[6]), rest.span(6)), Literal(int(rest[7]), rest.span(7))
            node = Between(subject, low, high, rest[4] is not None, (start, end))
        else:
            self._nodes += 2
            node = IsNull(subject, rest[8] is not None, (start, end))
        if self._nodes > MAX_SELECTOR_NODES:
            self._too_many(node.span)
        self._heights[id(node)] = 2
        return node

    def _called(self, name: Token) -> NoReturn:
        self._fail(
            f"there are no functions; '{_short(name.text)}' is followed by '('",
            (name.start, self._token.end),
            hint=FUNCTIONS.get(name.text.upper(), "compare header fields and properties as they are"),
        )

    def _literal(self) -> Literal:
        token = self._token
        value = token.value
        assert value is not None
        if type(value) is int and value > LONG_MAX:
            raise self._lexer.out_of_range(token.text, token.span)
        self._token = self._next()
        self._nodes += 1
        return Literal(value, (token.start, token.end))

    # -- limits -------------------------------------------------------------------------------------------------

    def _made(self, node: _N, *below: Node) -> _N:
        """Count the node and refuse it if the tree gets too large or too high."""
        self._nodes += 1
        if self._nodes > MAX_SELECTOR_NODES:
            self._too_many(node.span)
        if below:
            height = 1
            for child in below:
                height = max(height, self._heights.get(id(child), 1))
            height += 1
            if height > MAX_SELECTOR_DEPTH:
                self._too_deep(node.span)
            self._heights[id(node)] = height
        return node

    def _too_many(self, span: Span) -> NoReturn:
        self._fail(
            f"the selector is too large: more than {MAX_SELECTOR_NODES:,} operators, names and constants",
            span,
            hint="a long list of alternatives is shorter with IN",
        )

    def _too_deep(self, span: Span) -> NoReturn:
        self._fail(f"the selector is nested deeper than {MAX_SELECTOR_DEPTH} levels", span)

    # -- tokens and errors --------------------------------------------------------------------------------------

    def _is_symbol(self, text: str) -> bool:
        return self._token.kind is _SYMBOL and self._token.text == text

    def _is_word(self, text: str) -> bool:
        return self._token.kind is _WORD and self._token.text == text

    def _fail(self, message: str, span: Span, *, expected: str | None = None, hint: str | None = None) -> NoReturn:
        raise self._error(message, span, expected=expected, hint=hint)

    def _error(
        self, message: str, span: Span, *, expected: str | None = None, hint: str | None = None
    ) -> SelectorError:
        return self._lexer.fail(message, span, expected=expected, hint=hint)

    def _described(self) -> str:
        """The current token for an error message."""
        token = self._token
        if token.kind is TokenKind.END:
            return "the end of the selector"
        if token.kind is TokenKind.WORD:
            return f"the reserved word {token.text}"
        if token.kind is TokenKind.NAME:
            return f"the name '{_short(token.text)}'"
        if token.kind is TokenKind.STRING:
            return f"the string {_short(token.text)}"
        if token.kind is TokenKind.NUMBER:
            return f"the number {_short(token.text)}"
        return f"'{token.text}'"

    def _missing_operand(self, power: int) -> NoReturn:
        hint = missing_operand(self._token, self._lexer.text)
        expected = "a value" if power > _NOT else "a condition"
        self._fail(f"{self._described()} cannot stand here", self._token.span, expected=expected, hint=hint)

    def _unexpected_after(self, node: Node, expected: str = "the end of the selector") -> NoReturn:
        """Raise the error for text behind a complete expression."""
        self._fail(
            f"{self._described()} cannot follow here",
            self._token.span,
            expected=f"an operator such as = or AND, or {expected}",
            hint=unexpected_after(self._token, node, self._lexer.text),
        )


def _short(text: str) -> str:
    return text if len(text) <= 40 else text[:39] + "…"
