"""Where another provider may disagree: the parts of a selector that the specification leaves open or brokers differ in.

Each note names the decision (D-…) that says what happens here.
"""

from __future__ import annotations

import re

from sievemq_core.selector.ast import Arithmetic, Between, Compare, Identifier, In, Like, Literal, Node, Not, walk
from sievemq_core.selector.names import FieldType, field_type
from sievemq_core.selector.source import SelectorWarning

__all__ = ["portability"]

_PLAIN_NUMBER = re.compile(r"[+-]?\s*(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")


def portability(node: Node, text: str) -> tuple[SelectorWarning, ...]:
    """The notes for a checked selector.

    Args:
        node: the checked tree.
        text: the selector, for the spelling of its constants.
    """
    found: list[SelectorWarning] = []

    def note(part: Node, code: str, message: str) -> None:
        found.append(SelectorWarning(code, message, part.span))

    for part in walk(node):
        match part:
            case Between() if any(isinstance(below, Identifier) for below in walk(part)):
                note(part, "D-05", "with a NULL this is UNKNOWN; for IBM MQ BETWEEN is FALSE and NOT BETWEEN TRUE")
            case Compare(op="<>") if _has_property(part):
                note(part, "D-04", "FALSE if the types are unlike; some providers say TRUE")
            case In(negated=True) | Like(negated=True) if _has_property(part):
                note(part, "D-04", "FALSE if the property is no string; some providers say TRUE")
            case Not() if any(isinstance(below, Compare) and _has_property(below) for below in walk(part.operand)):
                note(part, "D-04", "TRUE where a comparison inside meets unlike types; IBM MQ makes the selector FALSE")
            case Arithmetic(op="/"):
                note(part, "D-01", "two integers are divided as in Java, 7/2 is 3, and by zero give NULL (D-02)")
            case Identifier(name="JMSDeliveryMode"):
                note(part, "D-13", "compared as 'PERSISTENT' or 'NON_PERSISTENT'; some providers have 2 and 1")
            case Identifier(name=name) if not name.isascii():
                note(part, "D-09", "a name with letters that some providers do not know")
            case Literal(value=value) if not isinstance(value, str | bool):
                spelling = text[part.span[0] : part.span[1]]
                if not _PLAIN_NUMBER.fullmatch(spelling):
                    note(part, "D-10", f"{spelling[:40]} is Java's syntax for a number; some providers do not read it")
            case _:
                pass
    return tuple(found)


def _has_property(node: Node) -> bool:
    """True if a property, whose type only a message shows, is named in it."""
    return any(isinstance(part, Identifier) and field_type(part.name) is FieldType.PROPERTY for part in walk(node))
