"""The headers and the JMSX properties: their defaults, which end sets each, which the application may set (§3.4,
§3.5.9)."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

NON_PERSISTENT: Final = 1
PERSISTENT: Final = 2

DEFAULT_DELIVERY_MODE: Final = PERSISTENT
DEFAULT_PRIORITY: Final = 4
DEFAULT_TIME_TO_LIVE: Final = 0
"""Milliseconds; 0 = never expires."""
DEFAULT_DELIVERY_DELAY: Final = 0
"""Milliseconds."""


class SetBy(StrEnum):
    """Which side sets a header or JMSX property, and when."""

    CLIENT = "client"
    ON_SEND = "provider on send"
    ON_RECEIVE = "provider on receive"


@dataclass(frozen=True, slots=True)
class Header:
    """A header or JMSX property.

    Attributes:
        name: as selectors and documents write it.
        type: its type as the API names it.
        set_by: a value that a client gives to one that it does not set is overwritten or dropped (HDR-13, JSX-11).
    """

    name: str
    type: str
    set_by: SetBy


HEADERS: Final[dict[str, Header]] = {
    header.name: header
    for header in (
        Header("JMSDestination", "Destination", SetBy.ON_SEND),
        Header("JMSDeliveryMode", "int", SetBy.ON_SEND),
        Header("JMSExpiration", "long", SetBy.ON_SEND),
        Header("JMSDeliveryTime", "long", SetBy.ON_SEND),
        Header("JMSPriority", "int", SetBy.ON_SEND),
        Header("JMSMessageID", "String", SetBy.ON_SEND),
        Header("JMSTimestamp", "long", SetBy.ON_SEND),
        Header("JMSCorrelationID", "String", SetBy.CLIENT),
        Header("JMSReplyTo", "Destination", SetBy.CLIENT),
        Header("JMSType", "String", SetBy.CLIENT),
        Header("JMSRedelivered", "boolean", SetBy.ON_RECEIVE),
    )
}

JMSX: Final[dict[str, Header]] = {
    header.name: header
    for header in (
        Header("JMSXUserID", "String", SetBy.ON_SEND),
        Header("JMSXAppID", "String", SetBy.ON_SEND),
        Header("JMSXDeliveryCount", "int", SetBy.ON_RECEIVE),
        Header("JMSXGroupID", "String", SetBy.CLIENT),
        Header("JMSXGroupSeq", "int", SetBy.CLIENT),
        Header("JMSXProducerTXID", "String", SetBy.ON_SEND),
        Header("JMSXConsumerTXID", "String", SetBy.ON_RECEIVE),
        Header("JMSXRcvTimestamp", "long", SetBy.ON_RECEIVE),
        Header("JMSXState", "int", SetBy.ON_RECEIVE),
    )
}
"""The nine that the standard defines, exactly as written (JSX-15)."""

DELIVERY_COUNT: Final = "JMSXDeliveryCount"

ON_RECEIVE: Final = frozenset(name for name, header in JMSX.items() if header.set_by is SetBy.ON_RECEIVE)
"""JMSX properties that are dropped when a message is sent (JSX-11)."""


#: How an id that is bytes is written as text: so does Qpid JMS.
_BINARY_ID: Final = "ID:AMQP_BINARY:"


def id_of_bytes(data: bytes) -> str:
    return _BINARY_ID + data.hex().upper()


def bytes_of_id(text: str) -> bytes | None:
    """The bytes of an id whose text is that of :func:`id_of_bytes`; None for any other text."""
    if text.startswith(_BINARY_ID):
        with suppress(ValueError):
            data = bytes.fromhex(text.removeprefix(_BINARY_ID))
            if len(text) == len(_BINARY_ID) + 2 * len(data):  # there are no blanks between them
                return data
    return None
