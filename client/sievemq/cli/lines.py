"""Messages from the lines of JSON that :mod:`sievemq.cli.show` prints."""

from __future__ import annotations

import binascii
import json
from base64 import b64decode
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from sievemq import DeliveryMode, Message
from sievemq.destinations import TemporaryQueue, TemporaryTopic, parse_destination
from sievemq.exceptions import InvalidDestinationException
from sievemq.messages import received
from sievemq_core.errors import FormatError
from sievemq_core.message.body import encode_map, encode_stream, encode_text
from sievemq_core.message.envelope import BodyKind, pack_properties
from sievemq_core.message.headers import JMSX, SetBy
from sievemq_core.message.values import PLAIN_NAMES, BodyValue, hold

_LETTERS: Final = {name: letter for letter, name in PLAIN_NAMES.items()}
_MODES: Final = {"PERSISTENT": DeliveryMode.PERSISTENT, "NON_PERSISTENT": DeliveryMode.NON_PERSISTENT}
_KINDS: Final = {kind.name.lower(): kind for kind in BodyKind}


class Line(NamedTuple):
    """A message that was read.

    Attributes:
        message: its headers that a client sets, properties and body, ready to be sent.
        destination: where it was; None if the line does not tell, or if that is temporary, a subscription or a tap.
        expiration, delivery_time: ms since 1970; 0 for none.
    """

    message: Message
    destination: str | None
    priority: int
    delivery_mode: DeliveryMode
    expiration: int
    delivery_time: int


def read_line(text: str) -> Line:
    """A message from a line of JSON. What the provider sets, such as the message id, is read over.

    Raises:
        ValueError: the text names the key, and what is wrong with it.
    """
    try:
        record = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"it is not JSON: {error}") from None
    if not isinstance(record, dict):
        raise ValueError("it is no JSON object")  # noqa: TRY004  an error about the line
    if record.get("properties_error"):
        raise ValueError("properties: they could not be read when the line was written")
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
        raise ValueError(f"kind: must be one of {', '.join(_KINDS)}, not {named!r:.60}")
    try:
        packed, letters = pack_properties(held)
        body = _body(record, kind)
    except FormatError as error:
        raise ValueError(error.text) from None
    destination = _text(record, "destination")
    reply_to = _text(record, "reply_to")
    try:
        target = parse_destination(destination or "queue:none")
        reply_to = None if reply_to is None else str(parse_destination(reply_to))
    except InvalidDestinationException as error:
        raise ValueError(str(error)) from None
    correlation_id: Any = _text(record, "correlation_id")
    if record.get("correlation_id_bytes") is not None:
        correlation_id = _bytes("correlation_id_bytes", record["correlation_id_bytes"])
    mode = record.get("delivery_mode", "PERSISTENT")
    if not isinstance(mode, str) or mode not in _MODES:
        raise ValueError(f"delivery_mode: must be PERSISTENT or NON_PERSISTENT, not {mode!r:.60}")
    fields = (
        None, 0, 4, 2, 0, 0, correlation_id, reply_to, _text(record, "type"), packed, letters, int(kind), body,
    )  # fmt: skip
    if record.get("tap") or record.get("subscription") or isinstance(target, TemporaryQueue | TemporaryTopic):
        destination = None  # it was not sent to one of the first alone, and the others end with their connection
    return Line(
        received(fields, target, 0, None),
        destination,
        _number(record, "priority", 4, 9),
        _MODES[mode],
        _number(record, "expiration", 0),
        _number(record, "delivery_time", 0),
    )


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
    raise ValueError(f"body: it is none of a message of kind {kind.name.lower()}")


def _typed(key: str, value: Any, kind: Any) -> BodyValue:
    """A value of a property or body, as the type that is named; without one, as it looks."""
    if kind is None:
        kind = {bool: "boolean", int: "long", float: "double"}.get(type(value), "string")
    letter = _LETTERS.get(kind) if isinstance(kind, str) else None
    if letter is None:
        raise ValueError(f"{key}: {kind!r:.60} is not a type; the types are {', '.join(_LETTERS)}")
    if letter == "x" and value is not None:
        value = _bytes(key, value)
    try:
        if letter in "fd" and isinstance(value, str):
            value = float(value)
        return None if value is None else hold(letter, value)
    except (ValueError, FormatError) as error:
        raise ValueError(f"{key}: {value!r:.60} is no {kind}: {error}") from None


def _table(record: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    found = record.get(key, {})
    if not isinstance(found, dict):
        raise ValueError(f"{key}: must be an object")  # noqa: TRY004
    return found


def _text(record: Mapping[str, Any], key: str) -> str | None:
    found = record.get(key)
    if found is not None and not isinstance(found, str):
        raise ValueError(f"{key}: must be text, not {found!r:.60}")
    return found


def _number(record: Mapping[str, Any], key: str, default: int, most: int = 2**62) -> int:
    found = record.get(key, default)
    if type(found) is not int or not 0 <= found <= most:
        raise ValueError(f"{key}: must be a whole number from 0 to {most}, not {found!r:.60}")
    return found


def _bytes(key: str, text: Any) -> bytes:
    try:
        return b64decode(text, validate=True)
    except (binascii.Error, ValueError, TypeError) as error:
        raise ValueError(f"{key}: not base64: {error}") from None
