"""Printing messages, as text or as JSON with a fixed schema; escaping untrusted text on a terminal."""

from __future__ import annotations

import json
import math
import sys
from base64 import b64encode
from collections.abc import Sequence
from typing import Any

from sievemq import BytesMessage, DeliveryMode, MapMessage, Message, ObjectMessage, StreamMessage, TextMessage
from sievemq.exceptions import MessageEOFException
from sievemq_core.harmless import harmless
from sievemq_core.message.envelope import CORRELATION_ID
from sievemq_core.message.values import PLAIN_NAMES, BodyValue, PropertyValue, letter_of
from sievemq_core.output import complain, show

__all__ = ["as_json", "harmless", "json_line", "print_message"]


def print_message(message: Message, *, json_line: bool, verbose: bool) -> None:
    """Print a message: byte for byte where a program reads, :func:`harmless` where a person does.

    A body that cannot be decoded is printed as base64 of its bytes, and the reason on standard error.

    Raises:
        OutputError: standard output cannot be written.
    """
    text, errors = (as_json(message), ()) if json_line else _as_text(message, verbose=verbose)
    show(harmless(text, "\n\t") if sys.stdout.isatty() else text)
    for error in filter(None, errors):
        complain(f"sievemq: {harmless(f'{message.get_jms_message_id()}: {error}')}")


def json_line(record: Any) -> str:
    """A line of JSON; on a terminal, text that could command it is escaped."""
    line = json.dumps(record, ensure_ascii=False, allow_nan=False)
    return json.dumps(record, allow_nan=False) if sys.stdout.isatty() and not line.isprintable() else line


def as_json(message: Message) -> str:
    """One line of JSON.

    Bytes are base64 text with ``"body_encoding": "base64"``; NaN and infinities are the texts that JavaScript prints.
    Values of a map or stream have their types in ``body_types``. An object is shown as its ``repr``, and is in
    ``packed`` as base64. A body that cannot be decoded is base64, too, and ``body_error`` is the reason; of such
    properties there is ``properties_error`` alone. :mod:`sievemq.cli.lines` reads it.
    """
    body, encoding, body_error = _body(message)
    properties, properties_error = _properties(message)
    record: dict[str, Any] = {
        "message_id": message.get_jms_message_id(),
        "destination": _text_or_none(message.get_jms_destination()),
        "timestamp": message.get_jms_timestamp(),
        "priority": message.get_jms_priority(),
        "delivery_mode": "PERSISTENT"
        if message.get_jms_delivery_mode() == DeliveryMode.PERSISTENT
        else "NON_PERSISTENT",
        "expiration": message.get_jms_expiration(),
        "delivery_time": message.get_jms_delivery_time(),
        "correlation_id": message.get_jms_correlation_id(),
        "reply_to": _text_or_none(message.get_jms_reply_to()),
        "type": message.get_jms_type(),
        "redelivered": message.get_jms_redelivered(),
        "properties": {name: _plain(value) for name, value in properties.items()},
        "property_types": {name: PLAIN_NAMES[letter_of(value)] for name, value in properties.items()},
        "kind": _kind(message),
        "body": body,
    }
    if encoding:
        record["body_encoding"] = encoding
    if encoding == "repr":
        record["packed"] = b64encode(message._encode_body() or b"").decode()
    if types := _body_types(message) if not body_error else None:
        record["body_types"] = types
    if isinstance(message._fields[CORRELATION_ID], bytes):
        record["correlation_id_bytes"] = b64encode(message._fields[CORRELATION_ID]).decode()
    if body_error:
        record["body_error"] = body_error
    if properties_error:
        record["properties_error"] = properties_error
    return json_line(record)


def _as_text(message: Message, *, verbose: bool) -> tuple[str, Sequence[str]]:
    """The body, and with `verbose` the headers and properties that are set before it; and what cannot be decoded."""
    body, encoding, body_error = _body(message)
    shown = "" if body is None else body if isinstance(body, str) else json.dumps(body, ensure_ascii=False)
    if not verbose:
        return shown, [body_error]
    properties, properties_error = _properties(message)
    headers = {
        "JMSMessageID": message.get_jms_message_id(),
        "JMSDestination": message.get_jms_destination(),
        "JMSType": message.get_jms_type(),
        "JMSCorrelationID": message.get_jms_correlation_id(),
        "JMSReplyTo": message.get_jms_reply_to(),
        "JMSPriority": message.get_jms_priority(),
        "JMSExpiration": message.get_jms_expiration() or None,
        "JMSRedelivered": message.get_jms_redelivered() or None,
    }
    lines = [f"{name}: {value}" for name, value in headers.items() if value is not None]
    lines += [f"{name} = {value!r}" for name, value in properties.items()]
    kind = f"[{_kind(message)}{', ' + encoding if encoding else ''}]"
    return "\n".join([*lines, kind, shown]) + "\n", [body_error, properties_error]


def _kind(message: Message) -> str:
    for kind, name in _KINDS:
        if isinstance(message, kind):
            return name
    return "none"


_KINDS = (
    (TextMessage, "text"),
    (BytesMessage, "bytes"),
    (MapMessage, "map"),
    (StreamMessage, "stream"),
    (ObjectMessage, "object"),
)


def _body(message: Message) -> tuple[Any, str | None, str]:
    """The body as JSON has it, how it is encoded if that is not plain to see, and why it is not decoded."""
    try:
        return *_decoded(message), ""
    except Exception as error:  # whatever a body of another party, or a class of the application, makes it raise
        packed = message._encode_body() or b""
        return b64encode(packed).decode(), "base64", f"the body cannot be decoded: {str(error) or type(error).__name__}"


def _decoded(message: Message) -> tuple[Any, str | None]:
    if isinstance(message, TextMessage):
        return message.get_text(), None
    if isinstance(message, BytesMessage):
        return b64encode(message.get_body(bytes) or b"").decode(), "base64"
    if isinstance(message, MapMessage):
        return {name: _plain(message.get_object(name)) for name in message.get_map_names()}, None
    if isinstance(message, StreamMessage):
        return [_plain(value) for value in _values(message)], None
    if isinstance(message, ObjectMessage):
        return repr(message.get_object()), "repr"
    return None, None


def _body_types(message: Message) -> dict[str, str] | list[str] | None:
    """The types of the values of a map or stream."""
    if isinstance(message, MapMessage):
        return {name: _type(message.get_object(name)) for name in message.get_map_names()}
    if isinstance(message, StreamMessage):
        return [_type(value) for value in _values(message)]
    return None


def _type(value: BodyValue) -> str:
    return PLAIN_NAMES[letter_of(value)]


def _values(message: StreamMessage) -> list[BodyValue]:
    message.reset()
    values: list[BodyValue] = []
    try:
        while True:
            values.append(message.read_object())
    except MessageEOFException:
        return values


def _properties(message: Message) -> tuple[dict[str, PropertyValue], str]:
    try:
        return dict(message.properties), ""
    except Exception as error:
        return {}, f"the properties cannot be decoded: {str(error) or type(error).__name__}"


def _plain(value: object) -> Any:
    if isinstance(value, (bytes, bytearray)):
        return b64encode(value).decode()
    if isinstance(value, float):
        if math.isnan(value):
            return "NaN"
        if math.isinf(value):
            return "Infinity" if value > 0 else "-Infinity"
        return float(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return int(value)
    return value


def _text_or_none(value: object) -> str | None:
    return None if value is None else str(value)
