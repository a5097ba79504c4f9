"""Properties and bodies as they come from a broker, and XML: read, or the documented exceptions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tests.hostile.fuzz.targets.vectors import vectors

from sievemq import BytesMessage, MapMessage, ObjectMessage, Queue, StreamMessage, TextMessage
from sievemq.exceptions import JMSException, MessageFormatException
from sievemq.messages import received
from sievemq_core.errors import FormatError, ProtocolError
from sievemq_core.message.body import decode_map, decode_stream, decode_text, encode_map, encode_stream
from sievemq_core.message.envelope import BodyKind, Envelope, unpack_properties
from sievemq_core.message.values import Byte, Char, Float, Long, Short
from sievemq_core.wire.form import check_envelope

KINDS = len(BodyKind)
#: What the first byte may choose, besides reading a body of some kind.
PROPERTIES, XML, ENVELOPE = KINDS + 1, KINDS + 2, KINDS + 3


def seeds() -> Iterator[bytes]:
    values = [True, Byte(1), Short(2), 3, Long(4), Float(0.5), 2.5, "text", b"bytes", Char("c"), None, 2**40]
    yield bytes([BodyKind.STREAM]) + encode_stream(values)
    yield bytes([BodyKind.MAP]) + encode_map({str(number): value for number, value in enumerate(values)})
    for vector in vectors("bodies"):
        yield bytes([vector.get("kind", 1) if isinstance(vector.get("kind", 1), int) else 1]) + _bytes(vector)
    for vector in vectors("properties"):
        letters = str(vector.get("letters") or vector.get("types") or "")
        yield bytes([PROPERTIES, len(letters)]) + letters.encode() + _bytes(vector)
    for made in (
        ObjectMessage({"a": [1, 2.5, "x", b"y", None], "b": ({1, 2}, 1 + 2j)}),
        TextMessage("text \U0001f600"),
        BytesMessage(bytes(range(64))),
    ):
        yield bytes([made._body_kind]) + (made._encode_body() or b"")
    mapped = MapMessage({"a": 1, "b": "x", "c": b"y", "d": 2.5})
    yield bytes([XML]) + mapped.to_xml().encode()
    stream = StreamMessage([1, "x", b"y", 2.5, True])
    yield bytes([XML]) + stream.to_xml().encode()
    yield bytes([ENVELOPE]) + Envelope(_fields(1, b"body")).packed


def run(data: bytes) -> None:
    """The first byte says what the rest is."""
    if not data:
        return
    what, rest = data[0] % (KINDS + 4), data[1:]
    if what == PROPERTIES:
        _properties(rest)
    elif what == XML:
        _xml(rest)
    elif what == ENVELOPE:
        _envelope(rest)
    else:
        _bodies(rest)
        _message(what, rest)


def _fields(kind: int, body: bytes | None) -> tuple[Any, ...]:
    return ("ID:1", 5, 4, 2, 0, 5, "c", None, None, None, None, kind, body)


def _bytes(vector: dict[str, Any]) -> bytes:
    found = vector.get("hex", vector.get("packed", ""))
    return bytes.fromhex(found) if isinstance(found, str) else b""


def _properties(data: bytes) -> None:
    size = data[0] if data else 0
    letters = data[1 : 1 + size].decode("latin-1") or None
    fields = (*_fields(1, None)[:9], data[1 + size :], letters, 1, None)
    try:
        properties = unpack_properties(fields)
    except ProtocolError:
        return
    message = received(fields, Queue("q"), 1, None)
    for name in message.get_property_names():
        assert name in properties or name.startswith("JMSX")
        for read in (message.get_string_property, message.get_long_property, message.get_boolean_property):
            try:
                read(name)
            except (JMSException, ValueError):  # the conversion table; NumberFormat is a ValueError
                pass
    assert repr(message)


def _bodies(data: bytes) -> None:
    for decode in (decode_text, decode_map, decode_stream):
        try:
            decode(data)
        except FormatError as error:
            assert len(str(error)) < 1_000


def _message(kind: int, data: bytes) -> None:
    message = received(_fields(kind, data), Queue("q"), 1, None)
    assert repr(message)
    for body_type in (str, bytes, dict, object):
        try:
            message.get_body(body_type)
            message.is_body_assignable_to(body_type)
        except JMSException:
            pass
    try:
        match message:
            case StreamMessage():
                message.to_xml()
                while True:
                    message.read_object()
            case MapMessage():
                message.to_xml()
                for name in message.get_map_names():
                    message.get_object(name)
            case ObjectMessage():
                message.get_object()
            case BytesMessage():
                while True:
                    message.read_utf()
            case _:
                pass
    except JMSException:  # MessageEOFException among them
        pass


def _xml(data: bytes) -> None:
    for kind in (MapMessage, StreamMessage):
        try:
            message = kind.from_xml(data)
        except MessageFormatException:
            continue
        again = kind.from_xml(message.to_xml())
        assert repr(again) == repr(message)


def _envelope(data: bytes) -> None:
    try:
        envelope = Envelope.from_packed(data)
        check_envelope(envelope.fields)  # as whoever takes it in does
        assert isinstance(envelope.properties, dict)
    except ProtocolError:
        pass
