"""The headers and the JMSX properties: their defaults, who sets each, what may be set (§3.4, §3.5.9)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

__all__ = [
    "DEFAULT_DELIVERY_DELAY",
    "DEFAULT_DELIVERY_MODE",
    "DEFAULT_PRIORITY",
    "DEFAULT_TIME_TO_LIVE",
    "DELIVERY_COUNT",
    "HEADERS",
    "JMSX",
    "NON_PERSISTENT",
    "ON_RECEIVE",
    "PERSISTENT",
    "Header",
    "SetBy",
]

NON_PERSISTENT: Final = 1
PERSISTENT: Final = 2

DEFAULT_DELIVERY_MODE: Final = PERSISTENT
DEFAULT_PRIORITY: Final = 4
DEFAULT_TIME_TO_LIVE: Final = 0
"""Milliseconds; 0 = never expires."""
DEFAULT_DELIVERY_DELAY: Final = 0
"""Milliseconds."""


class SetBy(StrEnum):
    """Who gives a header or JMSX property its value, and when."""

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
        in_selectors: a selector may name it (§3.8.1.1; every JMSX property may be named, JSX-14).
    """

    name: str
    type: str
    set_by: SetBy
    in_selectors: bool


HEADERS: Final[dict[str, Header]] = {
    header.name: header
    for header in (
        Header("JMSDestination", "Destination", SetBy.ON_SEND, False),
        Header("JMSDeliveryMode", "int", SetBy.ON_SEND, True),
        Header("JMSExpiration", "long", SetBy.ON_SEND, False),
        Header("JMSDeliveryTime", "long", SetBy.ON_SEND, False),
        Header("JMSPriority", "int", SetBy.ON_SEND, True),
        Header("JMSMessageID", "String", SetBy.ON_SEND, True),
        Header("JMSTimestamp", "long", SetBy.ON_SEND, True),
        Header("JMSCorrelationID", "String", SetBy.CLIENT, True),
        Header("JMSReplyTo", "Destination", SetBy.CLIENT, False),
        Header("JMSType", "String", SetBy.CLIENT, True),
        Header("JMSRedelivered", "boolean", SetBy.ON_RECEIVE, False),
    )
}

JMSX: Final[dict[str, Header]] = {
    header.name: header
    for header in (
        Header("JMSXUserID", "String", SetBy.ON_SEND, True),
        Header("JMSXAppID", "String", SetBy.ON_SEND, True),
        Header("JMSXDeliveryCount", "int", SetBy.ON_RECEIVE, True),
        Header("JMSXGroupID", "String", SetBy.CLIENT, True),
        Header("JMSXGroupSeq", "int", SetBy.CLIENT, True),
        Header("JMSXProducerTXID", "String", SetBy.ON_SEND, True),
        Header("JMSXConsumerTXID", "String", SetBy.ON_RECEIVE, True),
        Header("JMSXRcvTimestamp", "long", SetBy.ON_RECEIVE, True),
        Header("JMSXState", "int", SetBy.ON_RECEIVE, True),
    )
}
"""The nine that the standard defines, exactly as written (JSX-15)."""

DELIVERY_COUNT: Final = "JMSXDeliveryCount"

ON_RECEIVE: Final = frozenset(name for name, header in JMSX.items() if header.set_by is SetBy.ON_RECEIVE)
"""JMSX properties that are dropped when a message is sent (JSX-11)."""
