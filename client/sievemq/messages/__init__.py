"""The six kinds of message (§3), usable without a connection, and how a received one is made."""

from __future__ import annotations

from sievemq.messages.base import Message
from sievemq.messages.bytes import BytesMessage
from sievemq.messages.foreign import adopt, write_back
from sievemq.messages.json_body import Json
from sievemq.messages.map import MapMessage
from sievemq.messages.object import ObjectMessage
from sievemq.messages.stream import StreamMessage
from sievemq.messages.text import TextMessage
from sievemq.object_codec import register_type

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

received = Message._received
