"""The header fields that a selector may name, and how their values are read (D-08, D-13)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any

from sievemq_core.message.envelope import CORRELATION_ID, DELIVERY_MODE, MESSAGE_ID, PRIORITY, TIMESTAMP, TYPE
from sievemq_core.message.headers import HEADERS as ALL_HEADERS
from sievemq_core.message.values import PropertyValue

Headers = Sequence[Any]
"""A message's headers in the positions of message/envelope.py; a longer sequence, such as an Envelope, will do."""


class FieldType(Enum):
    """The static type of a field."""

    PROPERTY = "property"  # anything
    TEXT = "text"  # str or NULL
    NUMBER = "number"  # int, never NULL
    MODE = "mode"  # 'PERSISTENT' or 'NON_PERSISTENT', never NULL


#: JMS name -> (position, type). Only these six may be named (§3.8.1.1).
HEADERS: dict[str, tuple[int, FieldType]] = {
    "JMSDeliveryMode": (DELIVERY_MODE, FieldType.MODE),
    "JMSPriority": (PRIORITY, FieldType.NUMBER),
    "JMSMessageID": (MESSAGE_ID, FieldType.TEXT),
    "JMSTimestamp": (TIMESTAMP, FieldType.NUMBER),
    "JMSCorrelationID": (CORRELATION_ID, FieldType.TEXT),
    "JMSType": (TYPE, FieldType.TEXT),
}

#: Header fields that exist but cannot be named in a selector.
OTHER_HEADERS = tuple(name for name in ALL_HEADERS if name not in HEADERS)

#: The texts that JMSDeliveryMode is compared with (D-13, §3.8.1.3).
MODES = {1: "NON_PERSISTENT", 2: "PERSISTENT"}
MODE_NUMBERS = {text: number for number, text in MODES.items()}


def field_type(name: str, *, numeric_mode: bool = False) -> FieldType:
    kind = HEADERS[name][1] if name in HEADERS else FieldType.PROPERTY
    return FieldType.NUMBER if numeric_mode and kind is FieldType.MODE else kind


def read(
    name: str, properties: Mapping[str, PropertyValue], headers: Headers, *, numeric_mode: bool = False
) -> PropertyValue:
    """The value that a selector sees for a name; None is NULL (missing, or null)."""
    if name not in HEADERS:
        return properties.get(name)
    position, kind = HEADERS[name]
    value = headers[position]
    if kind is FieldType.MODE and not numeric_mode:
        return "PERSISTENT" if value == 2 else "NON_PERSISTENT"
    if kind is FieldType.TEXT and not isinstance(value, str):
        return None  # a correlation id set as bytes has no text
    return value  # type: ignore[no-any-return]  # str or int, by position
