"""Messages and their bodies."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta

from sievemq_broker.server.http.api.answers.common import Answer

__all__ = ["Body", "Message", "MessageDetails", "Messages", "Sent", "Value"]


class Value(Answer, kw_only=True):
    """A typed value. A long beyond 2^53, an infinity and NaN are text; bytes are base64."""

    type: Literal["boolean", "byte", "short", "int", "long", "float", "double", "string", "char", "bytes"]
    value: bool | int | float | str | None


class Message(Answer, kw_only=True):
    """A message without its body."""

    id: Annotated[str, Meta(description="Names it in its queue.")]
    state: Literal["ready", "in_flight", "scheduled"]
    message_id: str | None
    timestamp: int
    priority: int
    delivery_mode: str
    expiration: int
    delivery_time: int
    due: Annotated[int, Meta(description="When a scheduled one is delivered, or delivered again; 0 for others.")]
    correlation_id: str | None
    correlation_id_bytes: Annotated[str | None, Meta(description="Base64, where the id is bytes.")]
    reply_to: str | None
    type: str | None
    redelivered: bool
    delivery_count: int
    size: Annotated[int, Meta(description="Bytes of the packed message.")]
    body_type: Literal["NONE", "TEXT", "BYTES", "MAP", "STREAM", "OBJECT", "UNKNOWN"]
    body_size: int
    properties: dict[str, Value]
    unreadable: Annotated[str | None, Meta(description="Why its properties cannot be shown.")]


class Messages(Answer, kw_only=True):
    """A page of messages."""

    messages: list[Message]
    next: Annotated[str | None, Meta(description="Cursor of the next page; null at the end.")]


class Body(Answer, kw_only=True):
    """A body by its type; members of other types are null."""

    type: Literal["NONE", "TEXT", "BYTES", "MAP", "STREAM", "OBJECT", "UNKNOWN"]
    size: int
    truncated: Annotated[bool, Meta(description="Only its beginning is shown: `body_limit` bytes, 10000 values.")]
    text: str | None = None
    map: dict[str, Value] | None = None
    stream: list[Value] | None = None
    base64: str | None = None
    hex: Annotated[str | None, Meta(description="The first bytes, sixteen a line.")] = None
    object: Annotated[Any, Meta(description="An outline of an object; nothing is ever unpickled.")] = None
    unreadable: Annotated[str | None, Meta(description="Why it cannot be decoded.")] = None


class MessageDetails(Message, kw_only=True):
    """A message with its body."""

    destination: str
    body: Body


class Sent(Answer, kw_only=True):
    """The outcome of a message that was sent here."""

    message_id: str
    address: str
    timestamp: int
    expiration: int
    delivery_time: int
