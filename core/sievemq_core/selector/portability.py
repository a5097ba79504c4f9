"""Where another provider would refuse a selector or answer differently, why, and what to write that all agree on.

Known are ActiveMQ Classic, Artemis, RabbitMQ (the SQL filters of 4.2 for streams), IBM MQ and Qpid Broker-J. Each note
names the decision (D-…) that says what happens here. A rewrite means the same on all of them.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

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
    children,
    walk,
)
from sievemq_core.selector.dialect import Dialect
from sievemq_core.selector.lexer import Lexer, TokenKind
from sievemq_core.selector.names import HEADERS, FieldType, field_type
from sievemq_core.selector.printer import print_selector
from sievemq_core.selector.source import Span

__all__ = ["PROVIDERS", "PortabilityNote", "portability"]

_CLASSIC, _ARTEMIS, _RABBIT, _IBM, _QPID = PROVIDERS = (
    "ActiveMQ Classic",
    "Artemis",
    "RabbitMQ",
    "IBM MQ",
    "Qpid Broker-J",
)

#: What RabbitMQ's SQL filters may have at most.
RABBIT_CHARS, RABBIT_TOKENS = 4_096, 200

#: RabbitMQ filters see AMQP fields; a JMS name would be an application property there.
_AMQP = {
    "JMSPriority": "header.priority",
    "JMSMessageID": "properties.message-id",
    "JMSCorrelationID": "properties.correlation-id",
    "JMSTimestamp": "properties.creation-time",
    "JMSType": "properties.subject",
}

_DECIMAL = re.compile(r"(?:0|[1-9][0-9]*)(?:\.[0-9]*)?(?:[eE][+-]?[0-9]+)?|\.[0-9]+(?:[eE][+-]?[0-9]+)?")
_JAVACC = re.compile(r"[1-9][0-9]*[lL]|0[xX][0-9a-fA-F]+|0[0-7]*")  # what else ActiveMQ and its relatives read
_STRINGS = re.compile(r"'[^']*'")


@dataclass(frozen=True, slots=True)
class PortabilityNote:
    """One place where providers disagree.

    Attributes:
        providers: who differs, some of PROVIDERS.
        code: the decision that says what happens here, such as ``D-04``.
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
    """The notes for a checked selector, from left to right.

    Args:
        node: the checked tree.
        text: the selector, for the spelling of its parts.
        dialect: its dialect; what it has in common with a provider is no difference.
    """
    found = _Notes(text, dialect)
    found.visit(node, negated=False, optional=False)
    if len(text) > RABBIT_CHARS:
        found.note((_RABBIT,), "limits", f"a filter has at most {RABBIT_CHARS:,} characters", None, node)
    elif (tokens := _token_count(text, dialect)) > RABBIT_TOKENS:
        found.note((_RABBIT,), "limits", f"a filter has at most {RABBIT_TOKENS} tokens, this {tokens}", None, node)
    return tuple(sorted(found.notes, key=lambda note: note.span))


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
        """Add a note; with `once` only if it has not been said of another part."""
        if self._dialect.unlike_is_fatal:  # the dialects of IBM products
            providers = tuple(provider for provider in providers if provider != _IBM)
        key = providers, code, message
        if providers and not (once and key in self._told):
            self._told.add(key)
            self.notes.append(PortabilityNote(providers, code, message, rewrite, part.span))

    def visit(self, node: Node, *, negated: bool, optional: bool) -> None:
        """Look at a part and what is below it.

        Args:
            node: the part.
            negated: a NOT stands above: it matters whether the part is FALSE or UNKNOWN.
            optional: an OR or NOT stands above: the selector can be TRUE though the part is not.
        """
        rule: Callable[..., None] | None = getattr(self, f"_on_{type(node).__name__.lower()}", None)
        if rule is not None:
            rule(node, negated)
        inner = isinstance(node, Or | Not)
        if inner and not optional and any(isinstance(part, Compare) and _has_property(part) for part in walk(node)):
            self.note(
                (_IBM,),
                "D-15",
                "a comparison of unlike types, or arithmetic on NULL, in here makes the whole selector FALSE",
                None,
                node,
            )
        for part in children(node):
            self.visit(part, negated=negated or isinstance(node, Not), optional=optional or inner)

    # -- conditions ---------------------------------------------------------------------------------------------

    def _on_not(self, node: Not, _negated: bool) -> None:
        if isinstance(node.operand, Compare | Between | In | Like | IsNull) and not self._in_parentheses(node):
            self.note(
                (_CLASSIC, _ARTEMIS),
                "D-03",
                "NOT is read as belonging to the first name alone, not to the comparison",
                f"NOT ({print_selector(node.operand)})",
                node,
            )

    def _on_compare(self, node: Compare, _negated: bool) -> None:
        left, right = node.left, node.right
        both_names = isinstance(left, Identifier) and isinstance(right, Identifier)
        if node.op == "<>" and _has_property(node):
            self.note(
                (_CLASSIC, _ARTEMIS, _RABBIT, _QPID),
                "D-04",
                "TRUE if the types are unlike; here FALSE",
                _unequal(node),
                node,
            )
        if node.op in ("=", "<>") and both_names:
            outcome = "TRUE" if node.op == "=" else "FALSE"
            self.note(
                (_CLASSIC, _ARTEMIS),
                "D-05",
                f"{outcome} if both are missing; here UNKNOWN",
                f"({print_selector(left)} IS NOT NULL AND {print_selector(node)})",
                node,
            )
        if node.op not in ("=", "<>") and both_names and _is_property(left) and _is_property(right):
            self.note(
                (_CLASSIC, _ARTEMIS, _RABBIT, _QPID),
                "D-04",
                "two strings are put in order; here they have none and this is FALSE",
                f"({print_selector(left)} >= -1E308 AND {print_selector(node)})",
                node,
            )
        if _is_property(right) and not _is_text(left):
            mirrored = f"{print_selector(right)} {_MIRRORED[node.op]} {print_selector(left)}"
            rewrite: str | None = mirrored
            if not isinstance(left, Literal | Unary):
                equal = {"=": f"({print_selector(node)} OR {mirrored})", "<>": None}
                rewrite = equal.get(node.op, f"{print_selector(left)} {node.op} {print_selector(right)} + 0")
            self.note(
                (_CLASSIC, _ARTEMIS, _QPID),
                "D-01",
                "a byte or short on the right is comparable with nothing larger on the left",
                rewrite,
                node,
            )

    def _on_between(self, node: Between, negated: bool) -> None:
        operand, low, high = node.operand, node.low, node.high
        ops, joiner = (("<", ">"), Or) if node.negated else ((">=", "<="), And)
        parts = Compare(ops[0], operand, low), Compare(ops[1], operand, high)
        rewrite = f"({print_selector(joiner(parts))})"
        self.note((_RABBIT,), "limits", "there is no BETWEEN", rewrite, node)
        if (node.negated or negated) and any(isinstance(part, Identifier) for part in walk(node)):
            outcome = "NOT BETWEEN is TRUE" if node.negated else "BETWEEN is FALSE"
            self.note((_IBM,), "D-05", f"with a NULL {outcome}; here UNKNOWN", rewrite, node)

    def _on_in(self, node: In, _negated: bool) -> None:
        if node.negated and _has_property(node):
            rewrite = f"({print_selector(node.operand)} LIKE '%' AND {print_selector(node)})"
            self.note((_RABBIT,), "D-04", "TRUE if the property is no string; here FALSE", rewrite, node)

    def _on_like(self, node: Like, _negated: bool) -> None:
        if node.negated and _has_property(node):
            rewrite = f"({print_selector(node.operand)} LIKE '%' AND {print_selector(node)})"
            self.note(
                (_CLASSIC, _ARTEMIS, _QPID), "D-04", "TRUE if the property is no string; here FALSE", rewrite, node
            )
        if node.escape is not None:
            pattern, escape = str(node.pattern.value), str(node.escape.value)
            plain = _without_idle_escapes(pattern, escape)
            if plain != pattern:
                rewrite = print_selector(
                    Like(node.operand, Literal(plain), node.escape if escape in plain else None, node.negated)
                )
                self.note(
                    (_CLASSIC,),
                    "ESCAPE",
                    f"the {escape} in front of a character that is no wildcard stands for itself; here it is skipped",
                    rewrite,
                    node,
                )

    # -- values -------------------------------------------------------------------------------------------------

    def _on_arithmetic(self, node: Arithmetic, _negated: bool) -> None:
        if node.op != "/" or any(_is_floating(side) for side in (node.left, node.right)):
            return
        rewrite = None
        if isinstance(node.right, Literal) and not isinstance(node.right.value, str | bool):
            rewrite = print_selector(Arithmetic("/", node.left, Literal(float(node.right.value))))
        note = "two integers are divided as doubles, 7/2 is 3.5; here as in Java, 3 (the rewrite is 3.5 everywhere)"
        self.note((_CLASSIC, _ARTEMIS, _RABBIT, _QPID), "D-01", note, rewrite, node)

    def _on_identifier(self, node: Identifier, _negated: bool) -> None:
        if not node.name.isascii():
            self.note((_CLASSIC, _ARTEMIS, _RABBIT, _QPID), "D-09", "a name has ASCII letters only", None, node)
        if node.name in HEADERS:
            known = _AMQP.get(node.name)
            message = f"{node.name} is {known}" if known else f"there is no {node.name}"
            self.note((_RABBIT,), "D-08", f"{message} in a filter", None, node, once=True)

    def _on_literal(self, node: Literal, _negated: bool) -> None:
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

    def _in_parentheses(self, node: Not) -> bool:
        """True if what stands behind NOT is in parentheses as a whole."""
        between = self._text[node.span[0] + len("NOT") : node.operand.span[0]]
        if "(" not in between:
            return False
        depth = 0  # the parentheses in front may close early: NOT (a + 1) * 2 = 4
        for c in _STRINGS.sub("", self._text[node.operand.span[0] : node.operand.span[1]]):
            depth += (c == "(") - (c == ")")
            if depth < 0:
                return between.count("(") > -depth
        return True


_MIRRORED = {"=": "=", "<>": "<>", "<": ">", "<=": ">=", ">": "<", ">=": "<="}


def _unequal(node: Compare) -> str | None:
    """A form of ``<>`` that is FALSE on unlike types wherever it runs."""
    for name, constant in ((node.left, node.right), (node.right, node.left)):
        if not isinstance(name, Identifier):
            continue
        match constant:
            case Literal(value=bool() as truth):
                return f"{name.name} = {'FALSE' if truth else 'TRUE'}"
            case Literal(value=str()):
                return f"({name.name} LIKE '%' AND {name.name} <> {print_selector(constant)})"
            case Literal() | Unary():
                number = print_selector(constant)
                return f"({name.name} < {number} OR {name.name} > {number})"
    return None


def _without_idle_escapes(pattern: str, escape: str) -> str:
    """The pattern without escape characters in front of what needs none."""
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


def _token_count(text: str, dialect: Dialect) -> int:
    """Tokens of a valid selector; a sign in front of a number is one."""
    lexer, count = Lexer(text, dialect), 0
    while lexer.next().kind is not TokenKind.END:
        count += 1
    return count


def _is_floating(node: Node) -> bool:
    while isinstance(node, Unary):
        node = node.operand
    return isinstance(node, Literal) and isinstance(node.value, float)


def _is_text(node: Node) -> bool:
    return isinstance(node, Literal) and isinstance(node.value, str | bool)


def _is_property(node: Node) -> bool:
    return isinstance(node, Identifier) and field_type(node.name) is FieldType.PROPERTY


def _has_property(node: Node) -> bool:
    """True if a property, whose type only a message shows, is named in it."""
    return any(_is_property(part) for part in walk(node))
