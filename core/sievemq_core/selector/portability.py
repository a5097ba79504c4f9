"""Portability: where another provider would refuse a selector or answer differently, why, and a portable form.

Known are ActiveMQ Classic, Artemis, RabbitMQ (the SQL filters of 4.2 for streams), IBM MQ and Qpid Broker-J. Each note
names the decision (D-…) for SieveMQ. A rewrite means the same on all of them.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from sievemq_core.message.values import INT_MIN, LONG_MIN, Long
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
    children,
    walk,
)
from sievemq_core.selector.dialect import Dialect
from sievemq_core.selector.lexer import Lexer, TokenKind, is_property_name, printed_name
from sievemq_core.selector.names import HEADERS, FieldType, field_type
from sievemq_core.selector.printer import print_selector
from sievemq_core.selector.rewrite import equal, unequal, where_present, without_idle_escapes
from sievemq_core.selector.source import Span

_CLASSIC, _ARTEMIS, _RABBIT, _IBM, _QPID = PROVIDERS = (
    "ActiveMQ Classic",
    "Artemis",
    "RabbitMQ",
    "IBM MQ",
    "Qpid Broker-J",
)

#: Whose parsers and expressions have one origin. ActiveMQ Classic has been tried (tests/behaviour/providers).
_RELATED = (_CLASSIC, _ARTEMIS, _QPID)

#: What RabbitMQ's SQL filters may have at most.
RABBIT_CHARS, RABBIT_TOKENS = 4_096, 200

#: RabbitMQ filters see AMQP fields; a JMS name would be an application property there.
_AMQP_NAMES = {
    "JMSPriority": "header.priority",
    "JMSMessageID": "properties.message-id",
    "JMSCorrelationID": "properties.correlation-id",
    "JMSTimestamp": "properties.creation-time",
    "JMSType": "properties.subject",
}

_DECIMAL = re.compile(r"(?:0|[1-9][0-9]*)(?:\.[0-9]*)?(?:[eE][+-]?[0-9]+)?|\.[0-9]+(?:[eE][+-]?[0-9]+)?")
#: What else ActiveMQ and its relatives read.
_JAVACC = re.compile(
    r"[1-9][0-9]*[lL]|0[xX][0-9a-fA-F]+|0[0-7]*|[0-9]+(?:\.[0-9]*(?:[eE][+-]?[0-9]+)?|[eE][+-]?[0-9]+)"
)
#: Words that are reserved there in addition.
_XML_WORDS = frozenset({"XPATH", "XQUERY"})
_STRINGS = re.compile(r"'[^']*'")


@dataclass(frozen=True, slots=True)
class PortabilityNote:
    """One place where providers disagree.

    Attributes:
        providers: those that differ, some of PROVIDERS.
        code: the decision for SieveMQ, such as ``D-04``.
        message: the difference in one sentence.
        rewrite: what to write in place of the part, or None if nothing that all understand means the same.
        span: the part of the selector.
    """

    providers: tuple[str, ...]
    code: str
    message: str
    rewrite: str | None
    span: Span

    def __str__(self) -> str:
        advice = f"; write {self.rewrite}" if self.rewrite else ""
        return f"{', '.join(self.providers)}: {self.message} ({self.code}){advice}"

    def as_dict(self) -> dict[str, object]:
        """The note as plain data, for JSON."""
        return {
            "providers": list(self.providers),
            "code": self.code,
            "message": self.message,
            "rewrite": self.rewrite,
            "position": self.span[0],
            "length": self.span[1] - self.span[0],
        }


def portability(node: Node, text: str, dialect: Dialect) -> tuple[PortabilityNote, ...]:
    """The notes for a checked selector, from left to right."""
    found = _Notes(text, dialect)
    found.visit(node, _Place(odd=False, optional=False, alternative=False))
    if len(text) > RABBIT_CHARS:
        found.note((_RABBIT,), "limits", f"a filter has at most {RABBIT_CHARS:,} characters", None, node)
    elif (tokens := _token_count(text, dialect)) > RABBIT_TOKENS:
        found.note((_RABBIT,), "limits", f"a filter has at most {RABBIT_TOKENS} tokens, this {tokens}", None, node)
    return tuple(sorted(found.notes, key=lambda note: note.span))


_FATAL_WITHIN = "a comparison of unlike types, or arithmetic on NULL, in here makes the whole selector FALSE"


class _Place(NamedTuple):
    """The place of a part. Whether a selector is TRUE depends on whether its parts are: under an odd number of NOTs on
    whether they are FALSE.

    Attributes:
        odd: an odd number of NOTs stands above.
        optional: an OR or NOT stands above: the selector can be TRUE though the part is not.
        alternative: what acts as an OR stands above: the selector can be TRUE though the part fails.
    """

    odd: bool
    optional: bool
    alternative: bool


class _Notes:
    __slots__ = ("_dialect", "_text", "_told", "notes")

    def __init__(self, text: str, dialect: Dialect) -> None:
        self.notes: list[PortabilityNote] = []
        self._text = text
        self._dialect = dialect
        self._told: set[tuple[tuple[str, ...], str, str]] = set()

    def note(
        self, providers: tuple[str, ...], code: str, message: str, rewrite: str | None, part: Node, once: bool = False
    ) -> None:
        """Add a note; with `once` only if no other part has it."""
        if self._dialect.unlike_is_fatal:  # the dialects of IBM products
            providers = tuple(provider for provider in providers if provider != _IBM)
        key = providers, code, message
        if providers and not (once and key in self._told):
            self._told.add(key)
            self.notes.append(PortabilityNote(providers, code, message, rewrite, self._whole(part.span)))

    def visit(self, node: Node, place: _Place) -> None:
        """Examine a part and what is below it."""
        rule: Callable[..., None] | None = getattr(self, f"_on_{type(node).__name__.lower()}", None)
        if rule is not None:
            rule(node, place)
        inner = isinstance(node, Or | Not)
        if (
            inner
            and not place.optional
            and any(isinstance(part, Compare) and _has_property(part) for part in walk(node))
        ):
            self.note((_IBM,), "D-15", _FATAL_WITHIN, None, node)
        odd = place.odd is not isinstance(node, Not)
        # x NOT BETWEEN low AND high is x < low OR x > high
        either = isinstance(node, Or) or (isinstance(node, Between) and node.negated)
        joined = isinstance(node, And | Or | Between)
        beneath = _Place(odd, place.optional or inner, place.alternative or (joined and either is not odd))
        for part in (node.operand,) if isinstance(node, In) else children(node):  # nothing is special about its items
            if odd and isinstance(node, And | Or | Not) and isinstance(part, Identifier):
                self._on_flag(part, node)
            self.visit(part, beneath)

    # -- conditions ---------------------------------------------------------------------------------------------

    def _on_not(self, node: Not, _place: _Place) -> None:
        if isinstance(node.operand, Compare | Between | In | Like | IsNull) and not self._in_parentheses(node):
            self.note(
                (_CLASSIC, _ARTEMIS),
                "D-03",
                "NOT is read as belonging to the first name alone, not to the comparison",
                f"NOT ({print_selector(node.operand)})",
                node,
            )
        if any(isinstance(part, And | Or | Between) and _may_be_missing(part) for part in walk(node.operand)):
            self.note(
                (_QPID,), "D-05", "UNKNOWN OR FALSE is FALSE in here, and UNKNOWN AND FALSE is UNKNOWN", None, node
            )

    def _on_flag(self, node: Identifier, above: Node) -> None:
        """A boolean property as a condition, with a NOT somewhere above."""
        alone = isinstance(above, Not)
        rewrite = f"{node.name} = FALSE" if alone else None
        message = "FALSE if it is not a boolean, so that NOT makes it TRUE; here UNKNOWN"
        self.note(_RELATED, "D-07", message, rewrite, above if alone else node)

    def _on_compare(self, node: Compare, place: _Place) -> None:
        left, right = node.left, node.right
        if node.op == "<>" and (_has_property(node) or _kind(left) is not _kind(right)):
            self.note(
                (_CLASSIC, _ARTEMIS, _RABBIT, _QPID),
                "D-04",
                "TRUE if the types are unlike; here FALSE",
                unequal(node),
                node,
            )
        if node.op in ("=", "<>"):
            self._on_equality(node, place)
        elif _may_be_text(left) and _may_be_text(right):
            self.note(
                (_CLASSIC, _ARTEMIS, _RABBIT, _QPID),
                "D-04",
                "two strings are put in order, or two booleans; here they have none and this is FALSE",
                f"({print_selector(left)} >= -1E308 AND {print_selector(node)})",
                node,
            )
        for one, other in ((left, right), (right, left)):
            if _joins(one) and (_may_be_text(other) or _joins(other)):
                self.note(_RELATED, "D-14", "'+' joins a string with anything; here it is NULL", None, one)
        if _is_property(_bare(right)) and _kind(left) is not str and _kind(left) is not bool:
            mirrored = f"{print_selector(right)} {MIRRORED[node.op]} {print_selector(left)}"
            constant = isinstance(left, Literal) or (isinstance(left, Unary) and isinstance(left.operand, Literal))
            rewrite = None
            if constant:
                rewrite = mirrored
            elif not place.odd and node.op not in ("=", "<>"):  # those are for strings, too
                rewrite = f"{print_selector(left)} {node.op} {print_selector(Arithmetic('*', right, Literal(1)))}"
            self._narrow(node, rewrite)

    def _narrow(self, node: Compare | Between, rewrite: str | None) -> None:
        message = "a byte, short or float on the right is comparable with nothing wider on the left"
        self.note(_RELATED, "D-01", message, rewrite, node)

    def _on_equality(self, node: Compare, place: _Place) -> None:
        """``=`` and ``<>`` where a value may be missing."""
        left, right = _may_be_missing(node.left), _may_be_missing(node.right)
        sides = [side for side, missing in ((node.left, left), (node.right, right)) if missing]
        # Classic and Artemis check whether the left one is missing
        who = _RELATED if right else (_QPID,)
        both = left and right
        if node.op == "=":
            if both and not place.odd:
                message = "TRUE if both are missing; here UNKNOWN"
                self.note(_RELATED, "D-05", message, where_present([node.left], node), node)
            elif sides and place.odd:
                message = "FALSE if a value is missing, so that NOT makes it TRUE; here UNKNOWN"
                self.note(who, "D-05", message, equal(node), node)
        elif both and place.odd:
            message = "FALSE if both are missing, so that NOT makes it TRUE; here UNKNOWN"
            self.note(_RELATED, "D-05", message, None, node)
        elif sides and not place.odd:
            rewrite = unequal(node) or where_present(sides, node)
            self.note(who, "D-05", "TRUE if a value is missing; here UNKNOWN", rewrite, node)

    def _on_between(self, node: Between, place: _Place) -> None:
        operand, low, high = node.operand, node.low, node.high
        ops, joiner = (("<", ">"), Or) if node.negated else ((">=", "<="), And)
        parts = Compare(ops[0], operand, low), Compare(ops[1], operand, high)
        rewrite = f"({print_selector(joiner(parts))})"
        self.note((_RABBIT,), "limits", "there is no BETWEEN", rewrite, node)
        if node.negated is not place.odd and any(isinstance(part, Identifier) for part in walk(node)):
            outcome = "NOT BETWEEN is TRUE" if node.negated else "BETWEEN is FALSE"
            self.note((_IBM,), "D-05", f"with a NULL {outcome}; here UNKNOWN", rewrite, node)
        if _may_be_text(operand) and (_may_be_text(low) or _may_be_text(high)):
            self.note(
                _RELATED,
                "D-04",
                "strings are put in order, or booleans; here they have none and this is FALSE",
                f"({print_selector(operand)} >= -1E308 AND {print_selector(node)})",
                node,
            )
        if any(_is_property(_bare(bound)) for bound in (low, high)):
            self._narrow(node, None)
        if any(map(_joins, (operand, low, high))):
            self.note(_RELATED, "D-14", "'+' joins a string with anything; here it is NULL", None, node)

    def _on_in(self, node: In, place: _Place) -> None:
        if node.equals:  # one comparison of each kind represents all
            if not place.optional and _has_property(node):
                self.note((_IBM,), "D-15", _FATAL_WITHIN, None, node)
            beneath = _Place(place.odd, True, place.alternative or not place.odd)
            for item in {type(item.value): item for item in node.items}.values():
                self._on_compare(Compare("=", node.operand, item, node.span), beneath)
            return
        rewrite = f"({print_selector(node.operand)} LIKE '%' AND {print_selector(node)})"
        if node.negated and _has_property(node):
            self.note((_RABBIT,), "D-04", "TRUE if the property is no string; here FALSE", rewrite, node)
        if place.odd and _kind(node.operand) is not str:
            message = "UNKNOWN if it is no string, also behind NOT; here FALSE"
            self.note(_RELATED, "D-04", message, rewrite, node)

    def _on_like(self, node: Like, _place: _Place) -> None:
        if node.negated and _kind(node.operand) is not str:
            rewrite = f"({print_selector(node.operand)} LIKE '%' AND {print_selector(node)})"
            self.note(_RELATED, "D-04", "TRUE if the property is no string; here FALSE", rewrite, node)
        if node.escape is not None:
            self._on_escape(node, str(node.pattern.value), str(node.escape.value))

    def _on_escape(self, node: Like, pattern: str, escape: str) -> None:
        plain = without_idle_escapes(pattern, escape)
        if plain != pattern:
            rewrite = print_selector(
                Like(node.operand, Literal(plain), node.escape if escape in plain else None, node.negated)
            )
            self.note(
                (_CLASSIC, _ARTEMIS),
                "ESCAPE",
                f"the {escape} before a character that is not a wildcard is a plain character; here it is skipped",
                rewrite,
                node,
            )
        if escape > "\uffff":
            self.note(_RELATED, "ESCAPE", f"refused: {escape} is two characters in Java", None, node)
        elif escape + escape in plain and not "\x10" <= escape <= "\xff":
            self.note(_RELATED, "ESCAPE", f"a doubled {escape} is not a plain character", None, node)

    # -- values -------------------------------------------------------------------------------------------------

    def _on_arithmetic(self, node: Arithmetic, place: _Place) -> None:
        sides = (node.left, node.right)
        if place.alternative and _may_fail(node):
            message = "fails on a value that is not a number, and the message is not selected; here the result is NULL"
            self.note(_RELATED, "D-14", message, None, node, once=True)
        for side in sides:
            self._on_operand(side)
        if any(map(_is_floating, sides)):
            return
        if node.op == "/":
            rewrite = None
            if isinstance(node.right, Literal) and not isinstance(node.right.value, str | bool):
                rewrite = print_selector(Arithmetic("/", node.left, Literal(float(node.right.value))))
            note = "two integers are divided as doubles, 7/2 is 3.5; here as in Java, 3 (the rewrite is 3.5 everywhere)"
            self.note((_CLASSIC, _ARTEMIS, _RABBIT, _QPID), "D-01", note, rewrite, node)
        elif _has_property(node):
            self.note(_RELATED, "D-01", "floats are computed as doubles", None, node, once=True)

    def _on_operand(self, node: Node) -> None:
        value = node.value if isinstance(node, Literal) else None
        if type(value) is Long:
            self.note(_RELATED, "D-01", "an int in spite of its L, so that sums and products may wrap", None, node)
        elif value == INT_MIN and isinstance(value, int):
            self.note(_RELATED, "D-01", "a long, because it is read without its sign; here an int", None, node)

    def _on_unary(self, node: Unary, _place: _Place) -> None:
        self._on_operand(node.operand)
        if node.op == "+":
            return
        if isinstance(node.operand, Literal):
            if node.operand.value == 0.0 and isinstance(node.operand.value, float):
                self.note(_RELATED, "D-01", "-0.0 is below 0 and not equal to it", "0.0", node)
        elif not isinstance(node.operand, Arithmetic):
            self.note(_RELATED, "D-01", "fails on a byte or short, and -0.0 is not equal to 0", None, node)

    def _on_identifier(self, node: Identifier, _place: _Place) -> None:
        if not is_property_name(node.name):
            self.note(
                (_CLASSIC, _RABBIT, _IBM),
                "D-11",
                f"there are no names in double quotes, such as {printed_name(node.name)}",
                None,
                node,
                once=True,
            )
        elif not node.name.isascii():
            self.note((_CLASSIC, _ARTEMIS, _RABBIT, _QPID), "D-09", "a name has ASCII letters only", None, node)
        if node.name.upper() in _XML_WORDS:
            self.note((_CLASSIC, _ARTEMIS), "D-09", f"{node.name} is a reserved word", None, node)
        if node.name in HEADERS:
            known = _AMQP_NAMES.get(node.name)
            message = f"{node.name} is {known}" if known else f"there is no {node.name}"
            self.note((_RABBIT,), "D-08", f"{message} in a filter", None, node, once=True)

    def _on_literal(self, node: Literal, _place: _Place) -> None:
        value = node.value
        if isinstance(value, str | bool):
            return
        spelling = self._text[node.span[0] : node.span[1]].lstrip("+-").strip(" \t\f\r\n")
        if _DECIMAL.fullmatch(spelling):
            return
        plain = repr(float(value)).replace("e+", "E").replace("e", "E") if isinstance(value, float) else str(int(value))
        if re.fullmatch("0[0-7]+", spelling):
            self.note((_RABBIT,), "D-10", f"{spelling[:40]} is decimal there, octal here", plain, node)
        elif _JAVACC.fullmatch(spelling):
            self.note((_RABBIT,), "D-10", f"{spelling[:40]} is no number: there is only decimal", plain, node)
        else:
            self.note(
                PROVIDERS, "D-10", f"{spelling[:40]} is Java's syntax for a number, which is not read", plain, node
            )
        if value == LONG_MIN and isinstance(value, int):  # in decimal it may be written
            self.note(_RELATED, "D-10", f"{spelling[:40]} is beyond a long without its sign", plain, node)

    def _whole(self, span: Span) -> Span:
        """The span with the parentheses around its first or last part, such as those of ``NOT (a)``."""
        start, end = span
        depth = least = 0
        for c in _STRINGS.sub("", self._text[start:end]):
            depth += (c == "(") - (c == ")")
            least = min(least, depth)
        for _ in range(-least):
            start = self._text.rindex("(", 0, start)
        for _ in range(depth - least):
            end = self._text.index(")", end) + 1
        return start, end

    def _in_parentheses(self, node: Not) -> bool:
        """True if the operand of NOT is in parentheses as a whole."""
        between = self._text[node.span[0] + len("NOT") : node.operand.span[0]]
        if "(" not in between:
            return False
        depth = 0  # the parentheses in front may close early: NOT (a + 1) * 2 = 4
        for c in _STRINGS.sub("", self._text[node.operand.span[0] : node.operand.span[1]]):
            depth += (c == "(") - (c == ")")
            if depth < 0:
                return between.count("(") > -depth
        return True


def _token_count(text: str, dialect: Dialect) -> int:
    """Tokens of a valid selector; a sign in front of a number is one."""
    lexer, count = Lexer(text, dialect), 0
    while lexer.next().kind is not TokenKind.END:
        count += 1
    return count


def _is_floating(node: Node) -> bool:
    """True if it certainly is a double: a constant, or computed with one."""
    bare = _bare(node)
    if isinstance(bare, Arithmetic):
        return _is_floating(bare.left) or _is_floating(bare.right)
    return isinstance(bare, Literal) and isinstance(bare.value, float)


def _bare(node: Node) -> Node:
    """Without signs in front."""
    while isinstance(node, Unary):
        node = node.operand
    return node


def _kind(node: Node) -> type | None:
    """str, bool, or int for any number, if the text determines what a value is; None for a property."""
    match node:
        case Literal(value=value):
            return str if isinstance(value, str) else bool if isinstance(value, bool) else int
        case Identifier(name=name):
            known = field_type(name)
            return None if known is FieldType.PROPERTY else int if known is FieldType.NUMBER else str
        case _:
            return int


def _may_fail(node: Node) -> bool:
    return any(map(_may_be_text, walk(node)))


def _may_be_text(node: Node) -> bool:
    return isinstance(node, Identifier) and field_type(node.name) is not FieldType.NUMBER


def _may_be_missing(node: Node) -> bool:
    """True if a name in it may be NULL."""
    return any(
        isinstance(part, Identifier) and field_type(part.name) in (FieldType.PROPERTY, FieldType.TEXT)
        for part in walk(node)
    )


def _joins(node: Node) -> bool:
    """True if a string could come out of ``+``."""
    return isinstance(node, Arithmetic) and node.op == "+" and (_may_be_text(node.left) or _joins(node.left))


def _is_property(node: Node) -> bool:
    return isinstance(node, Identifier) and field_type(node.name) is FieldType.PROPERTY


def _has_property(node: Node) -> bool:
    """True if a property, whose type only a message shows, is named in it."""
    return any(_is_property(part) for part in walk(node))
