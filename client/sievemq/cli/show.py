"""Printing messages, as text or as JSON with a fixed schema; escaping untrusted text on a terminal."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from typing import Any

from sievemq import Message, ObjectMessage
from sievemq_core.harmless import harmless
from sievemq_core.message.envelope import BODY, BODY_KIND
from sievemq_core.message.record import body_of, record_of
from sievemq_core.message.values import PropertyValue
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
    """One line of JSON (:mod:`sievemq_core.message.record`)."""
    destination = message.get_jms_destination()
    target = None if destination is None else str(destination)
    record = record_of(message._fields, target, lambda: message.properties, _content(message))
    return json_line({**record, "redelivered": message.get_jms_redelivered()})


def _as_text(message: Message, *, verbose: bool) -> tuple[str, Sequence[str]]:
    """The body, and with `verbose` the headers and properties that are set before it; and what cannot be decoded."""
    record = body_of(message._fields[BODY_KIND], message._fields[BODY], _content(message))
    body, encoding, body_error = record["body"], record.get("body_encoding"), record.get("body_error", "")
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
    kind = f"[{record['kind']}{', ' + encoding if encoding else ''}]"
    return "\n".join([*lines, kind, shown]) + "\n", [body_error, properties_error]


def _content(message: Message) -> Callable[[], object] | None:
    """Reads the content of an object."""
    return message.get_object if isinstance(message, ObjectMessage) else None


def _properties(message: Message) -> tuple[dict[str, PropertyValue], str]:
    try:
        return dict(message.properties), ""
    except Exception as error:
        return {}, f"the properties cannot be decoded: {str(error) or type(error).__name__}"
