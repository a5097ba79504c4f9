"""A message as one JSON object: what `sievemq browse --json`, `export` and `store export` write (docs/cli.md)."""

from __future__ import annotations

import math
from base64 import b64encode
from collections.abc import Callable, Mapping
from typing import Any, Final

from sievemq_core.message.body import decode_map, decode_stream, decode_text
from sievemq_core.message.envelope import (
    BODY,
    BODY_KIND,
    CORRELATION_ID,
    DELIVERY_MODE,
    DELIVERY_TIME,
    EXPIRATION,
    MESSAGE_ID,
    PRIORITY,
    REPLY_TO,
    TIMESTAMP,
    TYPE,
    BodyKind,
    EnvelopeFields,
)
from sievemq_core.message.headers import PERSISTENT
from sievemq_core.message.values import PLAIN_NAMES, BodyValue, PropertyValue, letter_of

#: Bodies that are not there, as those that are empty.
_EMPTY: Final[Mapping[str, dict[str, Any]]] = {
    "bytes": {"body": "", "body_encoding": "base64"},
    "map": {"body": {}, "body_types": {}},
    "stream": {"body": [], "body_types": []},
}
_KINDS: Final = {int(kind): kind.name.lower() for kind in BodyKind}


def record_of(
    fields: EnvelopeFields,
    destination: str | None,
    properties: Callable[[], Mapping[str, PropertyValue]],
    show: Callable[[], object] | None = None,
) -> dict[str, Any]:
    """The object. Of what cannot be decoded it has the bytes, and the reason.

    Args:
        properties: returns them, or raises.
        show: returns the content of an object, or raises; its ``repr`` is shown.
    """
    correlation_id = fields[CORRELATION_ID]
    is_binary = isinstance(correlation_id, bytes)
    record: dict[str, Any] = {
        "message_id": fields[MESSAGE_ID],
        "destination": destination,
        "timestamp": fields[TIMESTAMP],
        "priority": fields[PRIORITY],
        "delivery_mode": "PERSISTENT" if fields[DELIVERY_MODE] == PERSISTENT else "NON_PERSISTENT",
        "expiration": fields[EXPIRATION],
        "delivery_time": fields[DELIVERY_TIME] or fields[TIMESTAMP],
        "correlation_id": correlation_id.decode("utf-8", "backslashreplace") if is_binary else correlation_id,
        "reply_to": None if fields[REPLY_TO] is None else str(fields[REPLY_TO]),
        "type": fields[TYPE],
    }
    if is_binary:
        record["correlation_id_bytes"] = b64encode(correlation_id).decode()
    return record | _properties(properties) | body_of(fields[BODY_KIND], fields[BODY], show)


def body_of(kind: int, body: bytes | None, show: Callable[[], object] | None = None) -> dict[str, Any]:
    """The part of :func:`record_of` that tells the body."""
    name = _KINDS.get(kind, "unknown")
    try:
        return {"kind": name, **_decoded(name, body, show)}
    except Exception as error:  # whatever a body of another party, or a class of the application, makes it raise
        reason = f"the body cannot be decoded: {str(error) or type(error).__name__}"
        return {"kind": name, "body": _base64(body), "body_encoding": "base64", "body_error": reason}


def _decoded(name: str, body: bytes | None, show: Callable[[], object] | None) -> dict[str, Any]:
    if body is None:
        return _EMPTY.get(name, {"body": None})
    match name:
        case "text":
            return {"body": decode_text(body)}
        case "bytes":
            return {"body": _base64(body), "body_encoding": "base64"}
        case "map":
            entries = decode_map(body)
            types = {each: _type(value) for each, value in entries.items()}
            return {"body": {each: _plain(value) for each, value in entries.items()}, "body_types": types}
        case "stream":
            values = decode_stream(body)
            return {"body": [_plain(value) for value in values], "body_types": [_type(value) for value in values]}
    shown = {} if show is None else {"body": repr(show()), "body_encoding": "repr"}
    return {"body": None, **shown, "packed": _base64(body)}


def _properties(read: Callable[[], Mapping[str, PropertyValue]]) -> dict[str, Any]:
    try:
        found = dict(read())
    except Exception as error:
        reason = f"the properties cannot be decoded: {str(error) or type(error).__name__}"
        return {"properties": {}, "property_types": {}, "properties_error": reason}
    return {
        "properties": {name: _plain(value) for name, value in found.items()},
        "property_types": {name: _type(value) for name, value in found.items()},
    }


def _type(value: BodyValue) -> str:
    return PLAIN_NAMES[letter_of(value)]


def _plain(value: object) -> Any:
    """A value as JSON has it: NaN and infinities are the texts that JavaScript prints, bytes are base64."""
    if isinstance(value, bytes):
        return _base64(value)
    if isinstance(value, float):
        if math.isnan(value):
            return "NaN"
        if math.isinf(value):
            return "Infinity" if value > 0 else "-Infinity"
        return float(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return int(value)
    return value


def _base64(data: bytes | None) -> str:
    return b64encode(data or b"").decode()
