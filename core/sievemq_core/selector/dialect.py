"""The differences between the selector languages that SieveMQ supports, as flags that the passes read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

_RESERVED = frozenset({"NULL", "TRUE", "FALSE", "NOT", "AND", "OR", "BETWEEN", "LIKE", "IN", "IS"})


@dataclass(frozen=True, slots=True, eq=False)
class Dialect:
    """One selector language.

    Attributes:
        name: how users name it.
        reserved: words that cannot be identifiers, in upper case.
        operators_minimal: only AND, ``=`` and IS NULL exist (D-16).
        strict_numbers: an exact literal is a long, an approximate one a double, and a property equals it only if it is
            of that very type; against a header an exact literal takes the header's type (D-16).
        numeric_mode: JMSDeliveryMode is a number, 2 for persistent messages, and not a text (D-16).
        unlike_is_fatal: comparing unlike types makes the whole selector false, not just the operation (D-15, D-16).
        null_arithmetic_is_fatal: so does arithmetic on NULL (D-15).
        null_between_is_false: BETWEEN with a NULL is false and NOT BETWEEN true instead of unknown (D-15).
        zero_id_matches_any: ``JMSMessageID = 'ID:000…'`` and the same for JMSCorrelationID match any message (D-15).
        fields: what a name with a dot stands for, by section and field; None if no name has one. Of a section that
            has None as its fields, each stands for the property of that name. With them ``!=`` is ``<>``, and a name in
            double quotes may have any characters.
    """

    name: str
    reserved: frozenset[str]
    operators_minimal: bool = False
    strict_numbers: bool = False
    numeric_mode: bool = False
    unlike_is_fatal: bool = False
    null_arithmetic_is_fatal: bool = False
    null_between_is_false: bool = False
    zero_id_matches_any: bool = False
    fields: Mapping[str, Mapping[str, str] | None] | None = None

    def __str__(self) -> str:
        return self.name


#: Jakarta Messaging 3.1 (§3.8) with decisions D-01 to D-14.
JAKARTA = Dialect("jakarta", _RESERVED | {"ESCAPE"})

#: The language as IBM MQ describes it (D-15).
IBM_MQ = Dialect(
    "ibm-mq",
    _RESERVED,
    unlike_is_fatal=True,
    null_arithmetic_is_fatal=True,
    null_between_is_false=True,
    zero_id_matches_any=True,
)

#: The small language of MQ Everyplace (D-16).
MQE = Dialect("mqe", _RESERVED, operators_minimal=True, strict_numbers=True, numeric_mode=True, unlike_is_fatal=True)

_PROPERTIES = {
    "subject": "JMSType", "correlation_id": "JMSCorrelationID", "creation_time": "JMSTimestamp",
    "group_id": "JMSXGroupID", "group_sequence": "JMSXGroupSeq", "content_type": "content_type",
}  # fmt: skip
_HEADER = {"priority": "JMSPriority"}

#: The SQL filters of AMQP Filter Expressions 1.0, as far as a message has here what they name: names of sections and
#: fields beside those of Jakarta Messaging.
AMQP = Dialect(
    "amqp",
    _RESERVED,
    fields={
        "p": _PROPERTIES, "properties": _PROPERTIES, "h": _HEADER, "header": _HEADER,
        "a": None, "application_properties": None,
    },
)  # fmt: skip

DIALECTS: dict[str, Dialect] = {dialect.name: dialect for dialect in (JAKARTA, IBM_MQ, MQE, AMQP)}

#: Words that cannot be names in any dialect. A message does not depend on dialects, so a property may have any other
#: name, such as ESCAPE: selectors of the dialects that do not reserve the word can use it.
RESERVED = frozenset.intersection(*(dialect.reserved for dialect in DIALECTS.values()))


def dialect_named(dialect: str | Dialect) -> Dialect:
    """The dialect of that name (or itself).

    Raises:
        ValueError: there is none of that name; the text lists those there are.
    """
    if isinstance(dialect, Dialect):
        return dialect
    try:
        return DIALECTS[dialect]
    except KeyError:
        raise ValueError(f"no selector dialect {dialect!r:.60}; there are {', '.join(DIALECTS)}") from None
