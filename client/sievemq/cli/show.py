"""Printing messages, as text or as JSON with a fixed schema; escaping untrusted text on a terminal."""

from __future__ import annotations

import json
import math
import sys
from base64 import b64encode
from typing import Any

import typer

from sievemq import BytesMessage, DeliveryMode, MapMessage, Message, ObjectMessage, StreamMessage, TextMessage
from sievemq.exceptions import JMSException, MessageEOFException
from sievemq_core.harmless import harmless
from sievemq_core.message.values import PLAIN_NAMES, letter_of

__all__ = ["as_json", "as_text", "harmless", "json_line", "print_message"]


def print_message(message: Message, *, json_line: bool, verbose: bool) -> None:
    """Print a message: byte for byte where a program reads, :func:`harmless` where a person does.

    Args:
        message: the message.
        json_line: as one line of JSON.
        verbose: headers and properties too.
    """
    text = as_json(message) if json_line else as_text(message, verbose=verbose)
    # color: else what looks like a colour is cut out of what is no terminal's.
    typer.echo(harmless(text, "\n\t") if sys.stdout.isatty() else text, color=True)


def json_line(record: Any) -> str:
    """A line of JSON; on a terminal, text that could command it is escaped."""
    line = json.dumps(record, ensure_ascii=False, allow_nan=False)
    return json.dumps(record, allow_nan=False) if sys.stdout.isatty() and not line.isprintable() else line


def as_json(message: Message) -> str:
    """One line of JSON.

    Bytes are base64 text with ``"body_encoding": "base64"``; NaN and infinities are the texts that JavaScript prints.
    """
    body, encoding = _body(message)
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
        "properties": {name: _plain(value) for name, value in message.properties.items()},
        "property_types": {name: PLAIN_NAMES[letter_of(value)] for name, value in message.properties.items()},
        "kind": _kind(message),
        "body": body,
    }
    if encoding:
        record["body_encoding"] = encoding
    return json_line(record)


def as_text(message: Message, *, verbose: bool) -> str:
    """The body, and with `verbose` the headers and properties that are set before it."""
    body, encoding = _body(message)
    shown = "" if body is None else body if isinstance(body, str) else json.dumps(body, ensure_ascii=False)
    if not verbose:
        return shown
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
    lines += [f"{name} = {value!r}" for name, value in message.properties.items()]
    kind = f"[{_kind(message)}{', ' + encoding if encoding else ''}]"
    return "\n".join([*lines, kind, shown]) + "\n"


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


def _body(message: Message) -> tuple[Any, str | None]:
    """The body as JSON has it, and how it is encoded if that is not plain to see."""
    if isinstance(message, TextMessage):
        return message.get_text(), None
    if isinstance(message, BytesMessage):
        return b64encode(message.get_body(bytes) or b"").decode(), "base64"
    if isinstance(message, MapMessage):
        return {name: _plain(message.get_object(name)) for name in message.get_map_names()}, None
    if isinstance(message, StreamMessage):
        values = []
        try:
            while True:
                values.append(_plain(message.read_object()))
        except MessageEOFException:
            return values, None
    if isinstance(message, ObjectMessage):
        try:
            return repr(message.get_object()), "repr"
        except JMSException as error:  # a class that this version does not have
            return f"({error})", "error"
    return None, None


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
