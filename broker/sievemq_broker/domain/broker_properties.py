"""The properties that only the broker sets. Values that producers set are dropped (HDR-13, JSX-11, PRP-12): a retry
trusts the origin in a dead letter."""

from __future__ import annotations

import re
from typing import Any, Final

from sievemq_core.errors import ProtocolError
from sievemq_core.message.envelope import PROPERTIES, PROPERTY_TYPES, pack_properties, unpack_properties
from sievemq_core.message.headers import JMSX, SetBy

_VENDOR_PREFIX: Final = "JMS_SieveMQ_"

_suspicious: Final = re.compile(rb"JMS(?:_SieveMQ_|X(?!Group(?:ID|Seq)))").search


def set_by_broker(name: str) -> bool:
    standard = JMSX.get(name)
    return name.startswith(_VENDOR_PREFIX) if standard is None else standard.set_by is not SetBy.CLIENT


def may_set_broker_properties(packed: bytes) -> bool:
    """False if packed properties cannot contain one that only the broker sets. A value may look like a name, so True is
    not certain. Bytes without b"JMS" need no call."""
    return _suspicious(packed) is not None


def without_broker_properties(fields: tuple[Any, ...]) -> tuple[Any, ...]:
    """The envelope of a producer without the properties that only the broker sets.

    They are dropped, not refused, so that a consumer can forward a dead letter unchanged. Properties that cannot be
    decoded are kept as they are: the broker reads nothing from them.

    Raises:
        FormatError: the others, packed as the broker packs them, are too large.
    """
    packed = fields[PROPERTIES]
    if packed is None or b"JMS" not in packed or not may_set_broker_properties(packed):
        return fields
    try:
        properties = unpack_properties(fields)
    except ProtocolError:
        return fields
    cleaned = list(fields)
    cleaned[PROPERTIES], cleaned[PROPERTY_TYPES] = pack_properties(
        {name: value for name, value in properties.items() if not set_by_broker(name)}
    )
    return tuple(cleaned)
