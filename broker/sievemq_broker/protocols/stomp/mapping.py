"""SEND to an envelope, and an envelope to the headers and the body of a MESSAGE (docs/protocols.md has the tables)."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, NoReturn

from sievemq_broker.protocols.foreign import CONVERTED_VALUES, refuse_schedule
from sievemq_core.errors import AddressError, ErrorCode, FormatError, RequestError, SieveError, shown
from sievemq_core.message.body import decode_map, decode_stream, encode_map
from sievemq_core.message.conversion import text_of
from sievemq_core.message.destination import Address, Kind, parse_address
from sievemq_core.message.envelope import (
    BODY,
    BODY_KIND,
    CORRELATION_ID,
    DELIVERY_MODE,
    EXPIRATION,
    MESSAGE_ID,
    PRIORITY,
    REPLY_TO,
    TIMESTAMP,
    TYPE,
    BodyKind,
    EnvelopeFields,
    pack_properties,
    unpack_properties,
)
from sievemq_core.message.headers import NON_PERSISTENT, PERSISTENT, id_of_bytes
from sievemq_core.message.values import (
    LONG_MAX,
    LONG_MIN,
    Byte,
    Double,
    Float,
    Int,
    Long,
    PropertyValue,
    Short,
    normalise,
    to_time,
)

#: The property for the content-type header, as the SDK's Json sets it.
CONTENT_TYPE: Final = "content_type"

#: A MAP body crosses as JSON under this transformation, as with ActiveMQ. Any other is the clients' own affair.
TRANSFORMATION: Final = "transformation"
MAP_JSON: Final = "jms-map-json"

_MARKS: Final = b",", b"[", b"{"
_STRING: Final = re.compile(rb'"(?:[^"\\]|\\.)*+"', re.DOTALL)
_SEARCHED_BYTES: Final = 1024 * 1024

_QUEUE, _TOPIC = "/queue/", "/topic/"
_TEMPORARY_QUEUE, _TEMPORARY_TOPIC = "/temp-queue/", "/temp-topic/"
_REMOTE: Final = {"/remote-temp-queue/": Kind.TEMPORARY_QUEUE, "/remote-temp-topic/": Kind.TEMPORARY_TOPIC}
_MULTICAST: Final = "MULTICAST"

#: Headers of a SEND that are no properties.
_OWN: Final = frozenset({
    "destination", "receipt", "transaction", "content-length", "content-type", "persistent", "priority", "expires",
    "reply-to", "correlation-id", "type", "destination-type", "subscription-type", "amq-msg-type",
    "AMQ_SCHEDULED_DELAY", "_AMQ_SCHED_DELIVERY", "message-id", "timestamp", "redelivered", "subscription", "ack",
})  # fmt: skip

#: Headers of ActiveMQ for messages that are delivered several times.
_SCHEDULES: Final = frozenset({"AMQ_SCHEDULED_CRON", "AMQ_SCHEDULED_PERIOD", "AMQ_SCHEDULED_REPEAT"})

_BOOLEANS: Final[dict[str, bool]] = {"true": True, "false": False}

_TYPED: Final[dict[str, Callable[[str], PropertyValue]]] = {
    "boolean": lambda text: _BOOLEANS[text],
    "byte": lambda text: Byte(int(text)),
    "short": lambda text: Short(int(text)),
    "int": lambda text: Int(int(text)),
    "long": lambda text: Long(int(text)),
    "float": lambda text: Float(float(text)),
    "double": lambda text: Double(float(text)),
    "string": lambda text: text,
}


def address_of(destination: str, headers: dict[str, str]) -> str:
    """The address of a destination header.

    Args:
        destination: ``/queue/name``, ``/topic/name``, ``/remote-temp-queue/name``, an address of SieveMQ's
            (``queue:name``), or a bare name: a queue, unless `headers` say otherwise.
        headers: of the frame; ``destination-type`` or ``subscription-type: MULTICAST`` makes a bare name a topic.

    Raises:
        AddressError: it names no destination.
    """
    for prefix, kind in ((_QUEUE, Kind.QUEUE), (_TOPIC, Kind.TOPIC), *_REMOTE.items()):
        if destination.startswith(prefix):
            return str(Address(kind, destination[len(prefix) :]))
    if ":" not in destination and _MULTICAST in (headers.get("destination-type"), headers.get("subscription-type")):
        return str(Address(Kind.TOPIC, destination))
    return str(parse_address(destination))


def destination_of(address: str) -> str:
    """The destination header for an address; the inverse of :func:`address_of`."""
    parsed = parse_address(address)
    match parsed.kind:
        case Kind.QUEUE:
            return _QUEUE + parsed.name
        case Kind.TOPIC:
            return _TOPIC + parsed.name
        case Kind.TEMPORARY_QUEUE:
            return "/remote-temp-queue/" + parsed.name
    return "/remote-temp-topic/" + parsed.name


def temporary_kind(destination: str) -> Kind | None:
    """The kind of a temporary destination of this connection; None for other destinations."""
    if destination.startswith(_TEMPORARY_QUEUE):
        return Kind.TEMPORARY_QUEUE
    return Kind.TEMPORARY_TOPIC if destination.startswith(_TEMPORARY_TOPIC) else None


def envelope_of(
    headers: dict[str, str], body: bytes, message_id: str, now: int, reply_to: str | None, infer: bool
) -> EnvelopeFields:
    """The envelope of a SEND.

    Args:
        headers: of the frame.
        body: of the frame.
        message_id: that it gets.
        now: milliseconds since 1970.
        reply_to: address to reply to.
        infer: a property whose text is a number or a boolean becomes one.

    Raises:
        RequestError: a header has a value that it must not have.
    """
    priority = _number(headers, "priority", 4)
    if priority > 9:
        raise _bad("priority", headers["priority"], "0 to 9")
    refuse_schedule(headers.keys(), _SCHEDULES, "AMQ_SCHEDULED_DELAY")
    delay = _number(headers, "AMQ_SCHEDULED_DELAY", 0)
    at = _number(headers, "_AMQ_SCHED_DELIVERY", 0)
    persistent = headers.get("persistent", "false").lower()
    if persistent not in _BOOLEANS:
        raise _bad("persistent", persistent, "true or false")
    kind, packed_body = _body_of(headers, body)
    properties: dict[str, PropertyValue] = {}
    content_type = headers.get("content-type")
    if content_type is not None:
        properties[CONTENT_TYPE] = content_type
    for name, text in headers.items():
        if name not in _OWN and not (name == TRANSFORMATION and text == MAP_JSON):
            name, value = _property_of(name, text, infer)
            properties[name] = value
    try:
        packed, letters = pack_properties(properties)
    except SieveError as error:
        raise RequestError(error.text, ErrorCode.MESSAGE_FORMAT) from error
    return (
        message_id,
        now,
        priority,
        PERSISTENT if _BOOLEANS[persistent] else NON_PERSISTENT,
        _number(headers, "expires", 0),
        max(now + delay, at) if delay or at else 0,
        headers.get("correlation-id"),
        reply_to,
        headers.get("type"),
        packed,
        letters,
        int(kind),
        packed_body,
    )


def _property_of(name: str, text: str, infer: bool) -> tuple[str, PropertyValue]:
    plain, semicolon, kind = name.partition(";type=")
    if semicolon:
        if not plain:
            raise RequestError(f"the header {shown(name)} has no name before its type", ErrorCode.MESSAGE_FORMAT)
        convert = _TYPED.get(kind)
        if convert is None:
            raise RequestError(
                f"the header {shown(name)} names no type; there are {', '.join(_TYPED)}", ErrorCode.MESSAGE_FORMAT
            )
        try:
            return plain, normalise(convert(text))
        except (ValueError, KeyError, SieveError) as error:
            raise RequestError(
                f"the header {shown(plain)} is {shown(text)}, which is no {kind}", ErrorCode.MESSAGE_FORMAT
            ) from error
    return name, inferred(text) if infer or name == "JMSXGroupSeq" else text


def inferred(text: str) -> PropertyValue:
    """The number or boolean that a text is, if it is one as a program writes it; else the text."""
    if text in _BOOLEANS:
        return _BOOLEANS[text]
    if not text or len(text) > 32 or text[-1] not in "0123456789" or not (text[0] == "-" or text[0].isdigit()):
        return text
    digits = text.removeprefix("-")
    if digits.isascii() and digits.isdigit():
        if digits[0] == "0" and len(digits) > 1:
            return text  # a code, not a number
        value = int(text)
        return value if LONG_MIN <= value <= LONG_MAX else text
    try:
        number = float(text)
    except ValueError:
        return text
    return number if math.isfinite(number) and "_" not in text else text


def _body_of(headers: dict[str, str], body: bytes) -> tuple[BodyKind, bytes]:
    if headers.get(TRANSFORMATION) == MAP_JSON:
        if not _has_few_values(body):
            raise RequestError(
                f"a body with transformation {MAP_JSON} may have {CONVERTED_VALUES:,} values", ErrorCode.MESSAGE_FORMAT
            )
        try:
            entries = json.loads(body, parse_constant=_refuse_constant)
            if not isinstance(entries, dict):
                raise FormatError("it is no object")
            return BodyKind.MAP, encode_map({str(name): normalise(value) for name, value in entries.items()})
        except (ValueError, RecursionError, SieveError) as error:
            raise RequestError(
                f"a body with transformation {MAP_JSON} must be a JSON object of scalars: {error}",
                ErrorCode.MESSAGE_FORMAT,
            ) from error
    named = headers.get("amq-msg-type")
    if named not in (None, "text", "bytes"):
        raise _bad("amq-msg-type", str(named), "text or bytes")
    content_type = headers.get("content-type", "").partition(";")[0].strip().lower()
    textual = content_type.startswith("text/") or content_type.endswith(("/json", "+json", "/xml", "+xml"))
    if named == "text" or (named is None and (textual or "content-length" not in headers)):
        try:
            body.decode()
        except UnicodeDecodeError:
            if named == "text" or textual:
                raise RequestError(
                    "the body of a text message must be UTF-8; send other bytes with a content-length and without "
                    "amq-msg-type or a content-type of text",
                    ErrorCode.MESSAGE_FORMAT,
                ) from None
        else:
            return BodyKind.TEXT, body
    return BodyKind.BYTES, body


def _has_few_values(body: bytes) -> bool:
    """True if no more commas and brackets stand outside of strings than there may be values; larger JSON is not looked
    through for its strings."""
    if sum(map(body.count, _MARKS)) <= CONVERTED_VALUES:
        return True
    if len(body) > _SEARCHED_BYTES:
        return False
    plain = _STRING.sub(b"", body)
    return sum(map(plain.count, _MARKS)) <= CONVERTED_VALUES


def _number(headers: dict[str, str], name: str, default: int) -> int:
    text = headers.get(name)
    if text is None:
        return default
    if not (text.isascii() and text.isdigit() and len(text) < 19):
        raise _bad(name, text, "a number, not negative")
    return int(text)


def _bad(name: str, value: str, wanted: str) -> RequestError:
    return RequestError(f"the header {name} must be {wanted}, not {shown(value)}", ErrorCode.MESSAGE_FORMAT)


def message_of(fields: EnvelopeFields) -> tuple[list[tuple[str, str]], bytes]:
    """The headers of a MESSAGE that do not depend on the subscription, and its body.

    Args:
        fields: of the envelope.
    """
    headers: list[tuple[str, str]] = [
        ("priority", str(fields[PRIORITY])),
        ("persistent", "true" if fields[DELIVERY_MODE] == PERSISTENT else "false"),
    ]
    if fields[TIMESTAMP]:
        headers.append(("timestamp", str(to_time(fields[TIMESTAMP]))))
    if fields[EXPIRATION]:
        headers.append(("expires", str(to_time(fields[EXPIRATION]))))
    correlation = fields[CORRELATION_ID]
    if correlation is not None:
        text = id_of_bytes(correlation) if isinstance(correlation, bytes) else correlation
        headers.append(("correlation-id", text))
    with suppress(AddressError):  # any client can send what is none
        if fields[REPLY_TO] is not None:
            headers.append(("reply-to", destination_of(fields[REPLY_TO])))
    if fields[TYPE] is not None:
        headers.append(("type", fields[TYPE]))
    kind = fields[BODY_KIND]
    body: bytes = fields[BODY] or b""
    try:
        properties: dict[str, Any] = unpack_properties(fields)
    except SieveError:
        properties = {}  # as for a selector: nothing can be read from them
    content_type = properties.pop(CONTENT_TYPE, None)
    if kind in (BodyKind.MAP, BodyKind.STREAM):
        with suppress(SieveError):  # its producer has packed something else, or very many values: it arrives as bytes
            body = _json_of(_values_of(kind, body))
            headers.append((TRANSFORMATION, MAP_JSON if kind == BodyKind.MAP else "jms-stream-json"))
            content_type = "application/json"
    elif kind == BodyKind.TEXT and content_type is None:
        content_type = "text/plain"
    if content_type is not None:
        headers.append(("content-type", str(content_type)))
    taken = {name for name, _ in headers} | _OWN
    headers += [
        (name, _text_of(value))
        for name, value in properties.items()
        if value is not None and name and name not in taken
    ]
    return headers, body


def _values_of(kind: int, body: bytes) -> object:
    if kind == BodyKind.MAP:
        return {
            name: _json_value(value) for name, value in (decode_map(body, CONVERTED_VALUES) if body else {}).items()
        }
    return [_json_value(value) for value in (decode_stream(body, CONVERTED_VALUES) if body else [])]


def _json_value(value: object) -> object:
    """The value, or its text where JSON has none like it."""
    if isinstance(value, float) and not math.isfinite(value):
        return text_of(value)
    return value


def _text_of(value: PropertyValue) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def _json_of(value: object) -> bytes:
    text = json.dumps(value, default=_plain, ensure_ascii=False)
    try:
        return text.encode()
    except UnicodeEncodeError:  # half of a surrogate pair is no UTF-8, but JSON can name it
        return json.dumps(value, default=_plain).encode()


def _refuse_constant(name: str) -> NoReturn:
    raise FormatError(f"{name} is no JSON")


def _plain(value: object) -> object:
    return value.hex() if isinstance(value, bytes) else str(value)


def message_id_of(fields: EnvelopeFields, delivery: str) -> str:
    """The message-id header: the message's own id, or one of the delivery where its producer gave it none."""
    return str(fields[MESSAGE_ID] or delivery)
