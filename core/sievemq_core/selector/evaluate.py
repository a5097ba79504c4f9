"""The reference interpreter: three-valued logic straight from the tree, slow and obvious.

True, False and None (UNKNOWN) are the truth values; None is also NULL among the values. Nothing short-circuits, so
that a comparison which makes the whole selector false (D-15, D-16) does so wherever it stands.
"""

from __future__ import annotations

from collections.abc import Mapping

from sievemq_core.message.values import PropertyValue, letter_of
from sievemq_core.selector.arithmetic import NUMBERS, OPERATIONS, compare_numbers, negate, promote
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
from sievemq_core.selector.like import parse_pattern
from sievemq_core.selector.names import HEADERS, Headers, read

Truth = bool | None
"""True, False, or None for UNKNOWN."""


class _WholeSelectorIsFalse(Exception):  # noqa: N818  # not an error: the rule of a dialect
    pass


def evaluate(node: Node, dialect: Dialect, properties: Mapping[str, PropertyValue], headers: Headers) -> Truth:
    """The truth value of a checked tree for one message.

    Args:
        headers: the message's headers by position (names.py).
    """
    try:
        return _Interpreter(dialect, properties, headers).condition(node)
    except _WholeSelectorIsFalse:
        return False


def weigh(
    node: Node, dialect: Dialect, properties: Mapping[str, PropertyValue], headers: Headers
) -> tuple[Truth, bool]:
    """The truth value of a condition alone, and whether it makes the whole selector FALSE in any position (D-15, D-16).

    Args: as for :func:`evaluate`.
    """
    try:
        return _Interpreter(dialect, properties, headers).condition(node), False
    except _WholeSelectorIsFalse:
        return False, True


def value_of(node: Node, dialect: Dialect, properties: Mapping[str, PropertyValue], headers: Headers) -> PropertyValue:
    """The value of a name, constant or arithmetic for one message; None is NULL, also where a dialect would give up.

    Args: as for :func:`evaluate`.
    """
    try:
        return _Interpreter(dialect, properties, headers).value(node)
    except _WholeSelectorIsFalse:
        return None


class _Interpreter:
    def __init__(self, dialect: Dialect, properties: Mapping[str, PropertyValue], headers: Headers) -> None:
        self.dialect = dialect
        self.properties = properties
        self.headers = headers

    # -- conditions ---------------------------------------------------------------------------------------------

    def condition(self, node: Node) -> Truth:
        match node:
            case And():
                return conjunction([self.condition(operand) for operand in node.operands])
            case Or():
                return disjunction([self.condition(operand) for operand in node.operands])
            case Not():
                return negation(self.condition(node.operand))
            case Compare():
                if self.is_zero_id(node):
                    return True
                return self.compare(node.op, node.left, node.right)
            case Between():
                return self.between(node)
            case In():
                value = self.value(node.operand)
                if value is None:
                    return None
                if node.equals:
                    return self.equals_one(value, node)
                if not isinstance(value, str):
                    return self.unlike()
                return (value in [item.value for item in node.items]) != node.negated
            case Like():
                value = self.value(node.operand)
                if value is None:
                    return None
                if not isinstance(value, str):
                    return self.unlike()
                escape = None if node.escape is None else str(node.escape.value)
                return parse_pattern(str(node.pattern.value), escape).matches(value) != node.negated
            case IsNull():
                return (self.value(node.operand) is None) != node.negated
            case _:
                value = self.value(node)  # D-07: a property that is no boolean is UNKNOWN as a condition
                return value if isinstance(value, bool) else None

    def between(self, node: Between) -> Truth:
        """D-05: ``x >= low AND x <= high``; negated ``x < low OR x > high`` (§3.8.1.3)."""
        if self.dialect.null_between_is_false:
            values = [self.value(part) for part in (node.operand, node.low, node.high)]
            if None in values:
                if any(value is not None and type(value) not in NUMBERS for value in values):
                    return self.unlike()
                return node.negated
        if node.negated:
            return disjunction([self.compare("<", node.operand, node.low), self.compare(">", node.operand, node.high)])
        return conjunction([self.compare(">=", node.operand, node.low), self.compare("<=", node.operand, node.high)])

    def compare(self, op: str, left_node: Node, right_node: Node) -> Truth:
        left, right = self.value(left_node), self.value(right_node)
        if left is None or right is None:
            return None  # D-05
        if type(left) in NUMBERS and type(right) in NUMBERS:
            if self.dialect.strict_numbers and not _same_strict_type(left_node, left, right_node, right):
                return self.unlike()
            return compare_numbers(op, left, right)  # type: ignore[arg-type]  # numbers, as just tested
        if op in ("=", "<>") and type(left) is type(right):  # both strings or both booleans
            return (left == right) == (op == "=")
        return self.unlike()  # D-04; two strings have no order, so '<' between them is such an operation too

    def equals_one(self, value: PropertyValue, node: In) -> Truth:
        """``name = 1 OR name = 'a' OR …``, for a value that is there."""
        found: Truth = False
        for item in node.items:
            constant = item.value
            if type(value) in NUMBERS and type(constant) in NUMBERS:
                if compare_numbers("=", value, constant):  # type: ignore[arg-type]  # numbers, as just tested
                    found = True
            elif isinstance(value, str) and isinstance(constant, str):
                found = found or value == constant
            else:
                self.unlike()
        return found

    def is_zero_id(self, node: Compare) -> bool:
        """D-15: an all-zero id matches any message."""
        return self.dialect.zero_id_matches_any and zero_id(node)

    def unlike(self) -> Truth:
        """The result of an operation on values of unlike types (D-04)."""
        if self.dialect.unlike_is_fatal:
            raise _WholeSelectorIsFalse
        return False

    # -- values -------------------------------------------------------------------------------------------------

    def value(self, node: Node) -> PropertyValue:
        match node:
            case Literal():
                return node.value
            case Identifier():
                return read(node.name, self.properties, self.headers, numeric_mode=self.dialect.numeric_mode)
            case Unary():
                return (negate if node.op == "-" else promote)(self.number(node.operand))
            case Arithmetic():
                return OPERATIONS[node.op](self.number(node.left), self.number(node.right))
        raise AssertionError(node)  # the checker lets no condition stand for a value

    def number(self, node: Node) -> PropertyValue:
        """An operand of arithmetic; what is no number counts as NULL."""
        value = self.value(node)
        if value is None or type(value) not in NUMBERS:
            if self.dialect.null_arithmetic_is_fatal:
                raise _WholeSelectorIsFalse  # D-15
            return None
        return value


def conjunction(values: list[Truth]) -> Truth:
    """Kleene's AND: FALSE wins, then UNKNOWN."""
    if False in values:
        return False
    return None if None in values else True


def disjunction(values: list[Truth]) -> Truth:
    """Kleene's OR: TRUE wins, then UNKNOWN."""
    if True in values:
        return True
    return None if None in values else False


def negation(value: Truth) -> Truth:
    """Kleene's NOT: UNKNOWN stays."""
    return None if value is None else not value


def zero_id(node: Compare) -> bool:
    """True for ``JMSMessageID = 'ID:000…'`` or JMSCorrelationID, either way round."""
    if node.op != "=":
        return False
    for name, literal in ((node.left, node.right), (node.right, node.left)):
        if (
            isinstance(name, Identifier)
            and name.name in ("JMSMessageID", "JMSCorrelationID")
            and isinstance(literal, Literal)
            and isinstance(literal.value, str)
            and literal.value.startswith("ID:0")
            and not literal.value[3:].strip("0")
        ):
            return True
    return False


def is_approximate(node: Node) -> bool:
    """True for a literal with a point or an exponent."""
    while isinstance(node, Unary):
        node = node.operand
    return isinstance(node, Literal) and isinstance(node.value, float)


def strict_letter(node: Node, value: PropertyValue) -> str | None:
    """The JMS type that the dialect mqe sees (D-16); None for a literal that takes the type of the header beside it."""
    while isinstance(node, Unary):
        node = node.operand
    if isinstance(node, Literal) and not isinstance(node.value, str | bool):
        return "d" if isinstance(node.value, float) else "l"
    return letter_of(value)


def _same_strict_type(left_node: Node, left: PropertyValue, right_node: Node, right: PropertyValue) -> bool:
    """D-16: types are compared strictly, but beside a header field an exact literal takes the field's type."""
    for node, other in ((left_node, right_node), (right_node, left_node)):
        if isinstance(node, Identifier) and node.name in HEADERS:
            return not is_approximate(other)
    return strict_letter(left_node, left) == strict_letter(right_node, right)
