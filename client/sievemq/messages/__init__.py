"""The six kinds of message (§3), usable without a connection, and how a received one is made."""

from __future__ import annotations

import builtins
from collections.abc import Callable
from typing import Any, Final

from sievemq.destinations import Destination
from sievemq.exceptions import MessageFormatException
from sievemq.messages.base import PENDING, Message
from sievemq.messages.bytes import BytesMessage
from sievemq.messages.foreign import adopt, write_back
from sievemq.messages.json_body import Json
from sievemq.messages.map import MapMessage
from sievemq.messages.modes import RECEIVED
from sievemq.messages.object import ObjectMessage
from sievemq.messages.stream import StreamMessage
from sievemq.messages.text import TextMessage
from sievemq.object_codec import register_type
from sievemq_core.message.envelope import EnvelopeFields

__all__ = [
    "BytesMessage",
    "Json",
    "MapMessage",
    "Message",
    "ObjectMessage",
    "StreamMessage",
    "TextMessage",
    "adopt",
    "received",
    "register_type",
    "write_back",
]

_CLASSES: Final[dict[int, type[Message]]] = {
    kind._body_kind: kind for kind in (Message, TextMessage, BytesMessage, MapMessage, StreamMessage, ObjectMessage)
}
_new: Final = Message.__new__


_BINARY: Final = (builtins.bytes, type(None))  # `bytes` is a module here


def received(
    fields: EnvelopeFields, destination: Destination, count: int, acknowledge: Callable[[], Any] | None
) -> Message:
    """A message as it arrived: properties and body read-only (MSG-14), decoded when somebody asks.

    Args:
        fields: the envelope as the decoder yielded it; kept, not copied.
        destination: shown as JMSDestination.
        count: delivery count, from 1; more is a redelivery (JSX-01, JSX-12). 0 shows none.
        acknowledge: what ``acknowledge()`` calls; None where it has no effect.

    Raises:
        MessageFormatException: the envelope is not in form. Brokers validate envelopes, so only the fields are checked
            that could not be read later.
    """
    if type(fields[12]) not in _BINARY or type(fields[9]) not in _BINARY:
        raise MessageFormatException("the broker delivered a message whose properties or body are not bytes")
    try:
        message = _new(_CLASSES[fields[11]])
    except KeyError:  # a kind of a later version: headers and properties can be read all the same
        message = _new(Message)
    except TypeError as error:
        raise MessageFormatException("the broker delivered a message whose kind is no number") from error
    message._fields = fields
    message._destination = destination
    message._count = count
    message._redelivered = count > 1
    message._acknowledge = acknowledge
    message._modes = RECEIVED
    message._properties = None
    message._body = PENDING
    return message
