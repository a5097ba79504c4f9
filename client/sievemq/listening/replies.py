"""What a listener returned becomes a message, for the destination where its replies go."""

from __future__ import annotations

import dataclasses
import datetime as dt
import enum
import sys
from decimal import Decimal
from typing import Any
from uuid import UUID

from sievemq.destinations import Destination, TemporaryQueue, TemporaryTopic
from sievemq.listening.conversion import is_model, is_struct
from sievemq.messages import BytesMessage, Json, Message, TextMessage


def reply_to(request: Message, fixed: Destination | None) -> Destination | None:
    """Where the reply to a message goes; None if nobody wants it."""
    return fixed if fixed is not None else request.get_jms_reply_to()


def is_temporary(destination: Destination) -> bool:
    """True if the destination ends with the connection of the client that waits there."""
    return isinstance(destination, (TemporaryQueue, TemporaryTopic))


def reply_of(result: object, request: Message) -> Message:
    """A message of what a listener returned, with the correlation id of the request, or else its message id.

    Raises:
        MessageFormatException: no message holds it.
    """
    message = _message_of(result)
    if message.get_jms_correlation_id() is None:
        message.set_jms_correlation_id(request.get_jms_correlation_id() or request.get_jms_message_id())
    return message


def _message_of(result: object) -> Message:
    if isinstance(result, Message):
        return result
    if isinstance(result, (str, Json)):
        return TextMessage(result)
    if isinstance(result, (bytes, bytearray, memoryview)):
        message = BytesMessage()
        message.write_bytes(bytes(result))
        return message
    if is_struct(type(result)) or is_model(type(result)):
        result = _plain(result)
    return TextMessage(Json(result, default=_plain))


def _plain(value: Any) -> Any:
    """What JSON does not have, as something that it has.

    Raises:
        TypeError: neither has it.
    """
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {each.name: getattr(value, each.name) for each in dataclasses.fields(value)}
    if is_struct(type(value)):
        return sys.modules["msgspec"].to_builtins(value)
    if is_model(type(value)):
        return value.model_dump(mode="json")
    if isinstance(value, (dt.datetime, dt.date, dt.time)):
        return value.isoformat()
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, (Decimal, UUID)):
        return str(value)
    if isinstance(value, (set, frozenset)):
        return list(value)
    raise TypeError(f"a listener returned {value!r:.80}, of which no message can be made")
