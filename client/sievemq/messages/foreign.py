"""Messages that are not ours, recognised by their public methods (MSG-21, D-31).

Such an object may come from another library or from a test. To send it, it is read through its getters into a message
of ours; after the send, what the provider sets is written back through its setters.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, Protocol, TypeAlias

from sievemq.exceptions import InvalidDestinationException, MessageFormatException
from sievemq.messages.base import Message
from sievemq.messages.bytes import BytesMessage
from sievemq.messages.map import MapMessage
from sievemq.messages.object import ObjectMessage
from sievemq.messages.stream import StreamMessage
from sievemq.messages.text import TextMessage
from sievemq_core.message.headers import JMSX, ON_RECEIVE

#: Methods that every message has.
_COMMON: Final = ("get_jms_message_id", "get_jms_type", "get_object_property", "get_property_names")


class ReadableMessage(Protocol):
    """Another library's message, recognised by its methods (D-31). What else it has, ``get_text`` for instance, says of
    which kind it is."""

    def get_jms_message_id(self) -> str | None: ...

    def get_jms_type(self) -> str | None: ...

    def get_object_property(self, name: str, /) -> Any: ...

    def get_property_names(self) -> Iterable[str]: ...


class ForeignMessage(ReadableMessage, Protocol):
    """One that can be sent: the send writes back what the provider sets (HDR-14)."""

    def set_jms_message_id(self, message_id: Any, /) -> object: ...

    def set_jms_timestamp(self, timestamp: int, /) -> object: ...

    def set_jms_priority(self, priority: int, /) -> object: ...

    def set_jms_delivery_mode(self, delivery_mode: int, /) -> object: ...

    def set_jms_expiration(self, expiration: int, /) -> object: ...

    def set_jms_delivery_time(self, delivery_time: int, /) -> object: ...

    def set_jms_destination(self, destination: Any, /) -> object: ...


#: What ``MessageProducer.send`` takes.
Sendable: TypeAlias = Message | ForeignMessage


def adopt(message: object) -> Message:
    """`message` as one of ours: itself, or a copy of another implementation's.

    Raises:
        MessageFormatException: it is no message (None too), or holds a value that ours cannot.
    """
    if isinstance(message, Message):
        return message
    if isinstance(message, type) or not all(_has(message, method) for method in _COMMON):
        raise MessageFormatException(f"a message is needed, not {type(message).__name__}")
    ours = _copy_body(message)
    _copy_headers(message, ours)
    _copy_properties(message, ours)
    return ours


def write_back(message: Any, sent: Message) -> None:
    """Give a foreign message what the send gave our copy of it (HDR-14)."""
    message.set_jms_message_id(sent.get_jms_message_id())
    message.set_jms_timestamp(sent.get_jms_timestamp())
    message.set_jms_priority(sent.get_jms_priority())
    message.set_jms_delivery_mode(sent.get_jms_delivery_mode())
    message.set_jms_expiration(sent.get_jms_expiration())
    message.set_jms_delivery_time(sent.get_jms_delivery_time())
    message.set_jms_destination(sent.get_jms_destination())


def _has(message: object, method: str) -> bool:
    return callable(getattr(message, method, None))


def _copy_body(message: Any) -> Message:
    if _has(message, "get_text"):
        return TextMessage(message.get_text())
    if _has(message, "get_map_names"):
        ours = MapMessage()
        for name in message.get_map_names():
            ours.set_object(name, message.get_object(name))
        return ours
    if _has(message, "get_body_length"):
        message.reset()
        buffer = bytearray(message.get_body_length())
        message.read_bytes(buffer)
        message.reset()
        return BytesMessage(buffer)
    if _has(message, "read_object"):
        return _copy_stream(message)
    if _has(message, "get_object"):
        return ObjectMessage(message.get_object())
    return Message()


def _copy_stream(message: Any) -> StreamMessage:
    ours = StreamMessage()
    message.reset()
    while True:
        try:
            value = message.read_object()
        except Exception as error:
            # another library may have its own class for the end of the stream, but not under another name
            if any(kind.__name__ == "MessageEOFException" for kind in type(error).__mro__):
                break
            raise
        ours.write_object(value)
    message.reset()
    return ours


def _copy_headers(message: Any, ours: Message) -> None:
    ours.set_jms_type(message.get_jms_type())
    if _has(message, "get_jms_correlation_id"):
        ours.set_jms_correlation_id(message.get_jms_correlation_id())
    if _has(message, "get_jms_reply_to"):
        try:
            ours.set_jms_reply_to(message.get_jms_reply_to())
        except InvalidDestinationException:
            pass  # a destination of another provider need not be kept (MSG-21)


def _copy_properties(message: Any, ours: Message) -> None:
    for name in message.get_property_names():
        # properties that another provider sets for receivers are not passed on (JSX-11)
        if name in ON_RECEIVE or (name.startswith("JMSX") and name not in JMSX):
            continue
        ours.set_object_property(name, message.get_object_property(name))
