"""Hints for the parser's errors: the text to write instead."""

from __future__ import annotations

from difflib import get_close_matches

from sievemq_core.selector.ast import Arithmetic, Compare, Identifier, Like, Literal, Node
from sievemq_core.selector.lexer import WHITE_SPACE, Token, TokenKind

#: Words of other languages where an operator should stand -> what to write.
_OPERATORS = {
    "EQ": "=", "EQUALS": "=", "NE": "<>", "NEQ": "<>", "LT": "<", "LE": "<=", "LTE": "<=", "GT": ">", "GE": ">=",
    "GTE": ">=", "CONTAINS": "LIKE '%…%'", "STARTSWITH": "LIKE '…%'", "ENDSWITH": "LIKE '%…'", "MATCHES": "LIKE",
    "ILIKE": "LIKE; it respects case", "REGEXP": "LIKE", "RLIKE": "LIKE", "GLOB": "LIKE", "SIMILAR": "LIKE",
    "ISNULL": "IS NULL", "NOTNULL": "IS NOT NULL", "DIV": "/", "XOR": "AND, OR and NOT",
    "ESCAPE": "it behind a LIKE pattern", "STARTS": "LIKE '…%'", "BEGINS": "LIKE '…%'", "ENDS": "LIKE '%…'",
    "HAS": "LIKE '%…%'", "INCLUDES": "LIKE '%…%'", "IGNORECASE": "= or LIKE; they respect case",
    "COLLATE": "= or LIKE; they respect case",
}  # fmt: skip

#: Functions of other languages -> what to do without.
FUNCTIONS = {
    "UPPER": "comparisons respect case; send a normalised property",
    "LOWER": "comparisons respect case; send a normalised property",
    "MOD": "there is no remainder operator",
    "NVL": "test with IS NULL",
    "COALESCE": "test with IS NULL",
    "ISNULL": "write name IS NULL",
    "CONTAINS": "write name LIKE '%…%'",
    "STARTSWITH": "write name LIKE '…%'",
    "ENDSWITH": "write name LIKE '%…'",
    "XPATH": "XPath is not supported: selectors never see the body",
    "EXISTS": "write name IS NOT NULL",
    "REGEX": "write name LIKE '…'",
}

#: Clauses of a statement that a selector is not.
_CLAUSES = frozenset({"LIMIT", "ORDER", "GROUP", "HAVING", "OFFSET", "FROM", "WHERE", "SELECT", "UNION", "FETCH"})
#: What begins in other languages what has no counterpart here -> what to do.
_BEGINNINGS = {
    "EXISTS": "write name IS NOT NULL",
    "DATE": "there are no dates; send a number, such as milliseconds since 1970",
    "TIMESTAMP": "there are no dates; send a number, such as milliseconds since 1970",
    "CASE": "there is no CASE; write (a = 1 AND b) OR (a <> 1 AND c)",
    "XPATH": "XPath is not supported: selectors see header fields and properties, never the body",
}
#: Operators of two characters, by those that stand apart; the same twice is one too many.
_APART = {("<", ">"): "<>", ("<", "="): "<=", (">", "="): ">=", ("=", "<"): "<=", ("=", ">"): ">=", ("=", "="): "="}
_JOINED = "two conditions are joined with AND or OR"


def missing_operand(token: Token, text: str) -> str | None:
    """The hint for a missing name, constant or parenthesis."""
    before = text[: token.start].rstrip(WHITE_SPACE)
    if token.kind is TokenKind.WORD:
        if token.text == "NULL":
            return "a missing value is found with IS NULL or IS NOT NULL"
        if token.text in ("AND", "OR") and before:
            return f"a condition is missing in front of {token.text}; a reserved word cannot be a name"
        return "a reserved word cannot be a name, in any letter case"
    if token.kind is TokenKind.END:
        return f"the selector ends too early: something is missing behind {_last_word(before)}"
    if token.text == ")":
        return "the parentheses are empty or close too early"
    if token.text == "*" and not before:
        return "a selector for every message is an empty one"
    if before[-3:].upper() == "NOT":
        return "NOT is a reserved word and cannot be a name"
    operator = _APART.get((before[-1:], token.text))
    if operator is not None:
        return f"write '{operator}'" + ("" if operator == "=" else ", without a blank")
    if token.text in ("=", "<>", "<", "<=", ">", ">="):
        return f"something is missing in front of '{token.text}'"
    return None


def unexpected_after(token: Token, node: Node, text: str) -> str | None:
    """The hint for text behind a complete expression."""
    first = _first_name(node)
    if first in ("SELECT", "WHERE"):
        return "a selector is the condition alone, without SELECT or WHERE"
    if token.kind is TokenKind.SYMBOL:
        return _after_symbol(token, node, text)
    if token.kind is TokenKind.NAME:
        word = token.text.upper()
        if word in _OPERATORS:
            return f"write {_OPERATORS[word]}"
        if word in _CLAUSES:
            return f"a selector is the condition alone, without {word}"
    last = _last(node)
    if isinstance(last, Identifier) and last.name.upper() in _BEGINNINGS:
        return _BEGINNINGS[last.name.upper()]
    if _is_text(node) and text[token.start - 1] == "'":
        return "a quote inside a string is written twice: 'it''s'"
    if token.kind is TokenKind.WORD:
        return "ESCAPE belongs behind a LIKE pattern" if token.text == "ESCAPE" else "a reserved word cannot be a name"
    if token.kind is TokenKind.NAME:
        close = get_close_matches(token.text.upper(), ("AND", "OR", "LIKE", "BETWEEN", "IS", "IN"), 1, 0.6)
        if close:
            return f"did you mean {close[0]}?"
        if isinstance(node, Identifier):
            return "a name has no blanks in it, and two of them want an operator in between"
    if isinstance(node, Identifier):
        return "an operator such as = is missing in between"
    return _JOINED


def _after_symbol(token: Token, node: Node, text: str) -> str | None:
    if token.text == ")":
        return "there is no '(' for it"
    if token.text != ",":
        return None
    if text[token.start - 1].isdigit() and text[token.end : token.end + 1].isdigit():
        return "digits are written without commas: 1000, and a decimal point is a point"
    if _is_text(node) or isinstance(node, Identifier):
        return "for one of several texts write name IN ('a', 'b')"
    return f"{_JOINED}; write a list in parentheses after IN"


def _last(node: Node) -> Node:
    """The name or constant with which the expression ends, as far as it is a comparison or arithmetic."""
    while isinstance(node, Compare | Arithmetic):
        node = node.right
    return node


def _is_text(node: Node) -> bool:
    last = _last(node)
    return isinstance(last, Like) or (isinstance(last, Literal) and isinstance(last.value, str))


def _first_name(node: Node) -> str:
    """The name with which the expression begins, in upper case; empty if it begins otherwise."""
    while isinstance(node, Arithmetic):
        node = node.left
    return node.name.upper() if isinstance(node, Identifier) else ""


def _last_word(text: str) -> str:
    last = text.split()[-1] if text.split() else "nothing"
    return f"'{last if len(last) <= 40 else '…' + last[-39:]}'"
