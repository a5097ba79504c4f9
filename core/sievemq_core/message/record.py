"""A message as one JSON object (docs/cli.md): commands, the management API and the console write and read it."""

from __future__ import annotations

import json
import math
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from sievemq_core.errors import AddressError, FormatError
from sievemq_core.message.body import decode_map, decode_stream, decode_text, encode_map, encode_stream, encode_text
from sievemq_core.message.destination import parse_address
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
    pack_properties,
)
from sievemq_core.message.headers import JMSX, NON_PERSISTENT, PERSISTENT, SetBy
from sievemq_core.message.values import PLAIN_NAMES, BodyValue, PropertyValue, hold, letter_of

#: Bodies that are not there, as those that are empty.
_EMPTY: Final[Mapping[str, dict[str, Any]]] = {
    "bytes": {"body": "", "body_encoding": "base64"},
    "map": {"body": {}, "body_types": {}},
    "stream": {"body": [], "body_types": []},
}
_NAMES: Final = {int(kind): kind.name.lower() for kind in BodyKind}
_KINDS: Final = {kind.name.lower(): kind for kind in BodyKind}
_MODES: Final = {"PERSISTENT": PERSISTENT, "NON_PERSISTENT": NON_PERSISTENT}
_LETTERS: Final = {name: letter for letter, name in PLAIN_NAMES.items()}
_LATEST: Final = 2**62


class Recorded(NamedTuple):
    """A message that was read from its JSON.

    Attributes:
        fields: of its envelope, without message id and timestamp: a new message has its own.
        destination: where it was; None if the JSON does not tell, or if that is temporary, a subscription or a tap.
    """

    fields: EnvelopeFields
    destination: str | None


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
    name = _NAMES.get(kind, "unknown")
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


# -- reading ----------------------------------------------------------------------------------------------------------


def read_record(line: str) -> Recorded:
    """A message from a line of JSON. What the provider sets, such as the message id, is read over.

    Raises:
        FormatError: the text names the key, and what is wrong with it.
    """
    try:
        record = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise FormatError(f"it is not JSON: {error}") from None
    if not isinstance(record, dict):
        raise FormatError("it is no JSON object")
    if record.get("properties_error"):
        raise FormatError("properties: they could not be read when the line was written")
    properties = _table(record, "properties")
    types = _table(record, "property_types")
    held: dict[str, Any] = {
        name: _typed(f"properties: {name}", value, types.get(name))
        for name, value in properties.items()
        if name not in JMSX or JMSX[name].set_by is SetBy.CLIENT
    }
    named = record.get("kind", "none")
    kind = _KINDS.get(named) if isinstance(named, str) else None
    if kind is None:
        raise FormatError(f"kind: must be one of {', '.join(_KINDS)}, not {named!r:.60}")
    packed, letters = pack_properties(held)
    body = _body(record, kind)
    destination, reply_to = _address(record, "destination"), _address(record, "reply_to")
    correlation_id: str | bytes | None = _text(record, "correlation_id")
    if record.get("correlation_id_bytes") is not None:
        correlation_id = _bytes("correlation_id_bytes", record["correlation_id_bytes"])
    mode = record.get("delivery_mode", "PERSISTENT")
    if not isinstance(mode, str) or mode not in _MODES:
        raise FormatError(f"delivery_mode: must be PERSISTENT or NON_PERSISTENT, not {mode!r:.60}")
    fields = (
        None, 0, _number(record, "priority", 4, 9), _MODES[mode], _number(record, "expiration"),
        _number(record, "delivery_time"), correlation_id, reply_to, _text(record, "type"), packed, letters, int(kind),
        body,
    )  # fmt: skip
    if destination is not None and parse_address(destination).kind.is_temporary:
        destination = None  # it ended with its connection
    of_another = record.get("tap") or record.get("subscription")  # it was not sent to that one alone
    return Recorded(fields, None if of_another else destination)


def _body(record: Mapping[str, Any], kind: BodyKind) -> bytes | None:
    body = record.get("body")
    if "packed" in record:
        return _bytes("packed", record["packed"])
    if record.get("body_error"):
        return _bytes("body", body)
    if body is None or kind is BodyKind.NONE:
        return None
    if kind is BodyKind.TEXT and isinstance(body, str):
        return encode_text(body)
    if kind is BodyKind.BYTES:
        return _bytes("body", body)
    if kind is BodyKind.MAP and isinstance(body, dict):
        types = _table(record, "body_types")
        return encode_map({name: _typed(f"body: {name}", each, types.get(name)) for name, each in body.items()})
    if kind is BodyKind.STREAM and isinstance(body, list):
        named = record.get("body_types")
        each_type = named if isinstance(named, list) and len(named) == len(body) else [None] * len(body)
        return encode_stream([_typed("body", each, of) for each, of in zip(body, each_type, strict=True)])
    raise FormatError(f"body: it is none of a message of kind {kind.name.lower()}")


def _typed(key: str, value: Any, kind: Any) -> Any:
    """A value of a property or body, as the type that is named; without one, as it looks."""
    if kind is None:
        kind = {bool: "boolean", int: "long", float: "double"}.get(type(value), "string")
    letter = _LETTERS.get(kind) if isinstance(kind, str) else None
    if letter is None:
        raise FormatError(f"{key}: {kind!r:.60} is not a type; the types are {', '.join(_LETTERS)}")
    if letter == "x" and value is not None:
        value = _bytes(key, value)
    try:
        if letter in "fd" and isinstance(value, str):
            value = float(value)
        return None if value is None else hold(letter, value)
    except (ValueError, OverflowError, FormatError) as error:
        raise FormatError(f"{key}: {value!r:.60} is no {kind}: {error}") from None


def _table(record: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    found = record.get(key, {})
    if not isinstance(found, dict):
        raise FormatError(f"{key}: must be an object")
    return found


def _text(record: Mapping[str, Any], key: str) -> str | None:
    found = record.get(key)
    if found is not None and not isinstance(found, str):
        raise FormatError(f"{key}: must be text, not {found!r:.60}")
    return found


def _address(record: Mapping[str, Any], key: str) -> str | None:
    text = _text(record, key)
    try:
        return None if text is None else str(parse_address(text))
    except AddressError as error:
        raise FormatError(f"{key}: {error.text}") from None


def _number(record: Mapping[str, Any], key: str, default: int = 0, most: int = _LATEST) -> int:
    found = record.get(key, default)
    if type(found) is not int or not 0 <= found <= most:
        raise FormatError(f"{key}: must be a whole number from 0 to {most}, not {found!r:.60}")
    return found


def _bytes(key: str, text: Any) -> bytes:
    try:
        return b64decode(text, validate=True)
    except (ValueError, TypeError) as error:
        raise FormatError(f"{key}: not base64: {error}") from None
