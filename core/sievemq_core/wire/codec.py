"""Commands to bytes and back, over the msgpack package. The only place that knows it, and translates its errors."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, Final, TypeAlias

import msgpack

from sievemq_core.errors import ErrorCode, ProtocolError
from sievemq_core.limits import MAX_ARRAY, MAX_HEADER_CHARS
from sievemq_core.message.envelope import (
    CORRELATION_ID,
    ENVELOPE_FIELDS,
    MESSAGE_ID,
    REPLY_TO,
    TYPE,
    BodyKind,
)
from sievemq_core.wire.commands import COMMANDS, Command, CommandSpec

__all__ = ["CommandTuple", "Decoder", "pack", "pack_delivery", "unpack_value"]

CommandTuple: TypeAlias = tuple[Any, ...]
"""A decoded command: its number, then its fields as COMMANDS lists them."""

pack: Final[Callable[[object], bytes]] = msgpack.Packer(use_bin_type=True, unicode_errors="surrogatepass").pack
"""Pack a command tuple (or any value that msgpack carries) into bytes."""

_DELIVERY = struct.Struct(">BBBIBQBI").pack


def pack_delivery(consumer: int, tag: int, count: int, envelope: bytes) -> bytes:
    """A DELIVER command around an envelope that is packed already.

    The numbers are written at full width, so that one struct call makes the head: the head is all that differs
    between the deliveries of one message, the envelope's bytes are shared.
    """
    return _DELIVERY(0x95, Command.DELIVER, 0xCE, consumer, 0xCF, tag, 0xCE, count) + envelope


def unpack_value(data: bytes) -> Any:
    """One msgpack value, arrays as tuples.

    Raises:
        ProtocolError: `data` is not exactly one value.
    """
    try:
        return msgpack.unpackb(data, use_list=False, unicode_errors="surrogatepass", max_array_len=MAX_ARRAY)
    except (ValueError, msgpack.UnpackException) as error:
        raise ProtocolError(f"not a msgpack value: {error}") from error


class Decoder:
    """Decodes frame payloads into commands and checks the form of each.

    Args:
        max_frame: bytes of the largest payload that will be fed.
    """

    __slots__ = ("_max_frame", "_unpacker")

    def __init__(self, max_frame: int) -> None:
        self._max_frame = max_frame
        self._unpacker = msgpack.Unpacker(
            use_list=False,
            strict_map_key=True,
            unicode_errors="surrogatepass",
            max_buffer_size=max_frame,
            max_array_len=MAX_ARRAY,
            max_map_len=4096,
            max_ext_len=0,
        )

    def decode(self, payload: bytes) -> list[CommandTuple]:
        """The commands of one frame's payload, in order, each of the form that COMMANDS gives it.

        Raises:
            ProtocolError: the payload is not a sequence of whole msgpack arrays, a command is unknown
                (UNKNOWN_COMMAND) or a field has a form that it must not have. The decoder is of no use afterwards.
        """
        unpacker = self._unpacker
        before = unpacker.tell()
        unpacker.feed(payload)
        try:
            commands: list[CommandTuple] = list(unpacker)
        except (ValueError, TypeError, msgpack.UnpackException) as error:
            raise ProtocolError(f"a frame that is not msgpack: {error or type(error).__name__}") from error
        if unpacker.tell() - before != len(payload):
            raise ProtocolError("a frame that ends inside a command")
        for command in commands:
            # A command that was seen with fields of the same types before is in form: one set lookup decides.
            try:
                known = _in_form[command[0]]
            except (LookupError, TypeError):
                raise _not_a_command(command) from None
            if type(command) is not tuple:  # bytes have a [0] too
                raise _not_a_command(command)
            if command[0] in _WITH_ENVELOPE and len(command) > 4:
                fields = command[4]
                if type(fields) is not tuple or tuple(map(type, fields)) not in _envelopes_in_form:
                    check_envelope(fields)
                if not (0 <= fields[2] <= 9 and 1 <= fields[3] <= 2 and fields[1] >= 0 <= fields[4] and fields[5] >= 0):
                    raise ProtocolError(f"an envelope with priority, mode or times out of range: {fields[1:6]}")
            if tuple(map(type, command)) not in known:
                check(command)
        return commands


_WITH_ENVELOPE = frozenset({Command.SEND, Command.DELIVER})

# Type signatures that passed the slow check. Bounded: a peer could otherwise grow them with trailing fields.
_in_form: dict[int, set[tuple[type, ...]]] = {number: set() for number in COMMANDS}
_envelopes_in_form: set[tuple[type, ...]] = set()
_MAX_SIGNATURES = 256

_CHECKS: dict[str, Callable[[object], bool]] = {
    "uint": lambda v: type(v) is int and v >= 0,
    "bool": lambda v: type(v) is bool,
    "str": lambda v: type(v) is str,
    "bytes": lambda v: type(v) is bytes,
    "map": lambda v: type(v) is dict and all(type(k) is str for k in v),
    "ids": lambda v: type(v) is tuple and all(type(i) is int and i >= 0 for i in v),
    "envelope": lambda v: type(v) is tuple,  # looked into by check_envelope
    "any": lambda v: True,
}
# Kinds whose check needs the value and not only its type: a command with one is checked every time.
_BY_VALUE = frozenset({"map", "ids"})


def check(command: CommandTuple) -> None:
    """Check a command field by field and remember its type signature when that alone proves the form.

    Raises:
        ProtocolError: names the command and the field that is wrong.
    """
    spec = COMMANDS[command[0]]
    fields = spec.fields
    if type(command[0]) is not int:  # True hashes like 1
        raise _not_a_command(command)
    if len(command) <= len(fields):
        missing = fields[len(command) - 1].name
        raise ProtocolError(f"{spec.name} without its field {missing!r} ({len(command) - 1} of {len(fields)} given)")
    by_value = False
    for field, value in zip(fields, command[1:], strict=False):
        kind = field.kind.removesuffix("?")
        by_value = by_value or kind in _BY_VALUE
        if value is None and field.kind.endswith("?"):
            continue
        if not _CHECKS[kind](value):
            raise ProtocolError(f"{spec.name}.{field.name} must be {_article(field.kind)}, not {_show(value)}")
    known = _in_form[command[0]]
    if not by_value and len(known) < _MAX_SIGNATURES:
        known.add(tuple(map(type, command)))


_TEXT: frozenset[type] = frozenset({str, type(None)})
_BIN: frozenset[type] = frozenset({bytes, type(None)})
_INT: frozenset[type] = frozenset({int})
_ENVELOPE_TYPES: tuple[tuple[str, frozenset[type]], ...] = (
    ("message_id", _TEXT),
    ("timestamp", _INT),
    ("priority", _INT),
    ("delivery_mode", _INT),
    ("expiration", _INT),
    ("delivery_time", _INT),
    ("correlation_id", _TEXT | {bytes}),
    ("reply_to", _TEXT),
    ("type", _TEXT),
    ("properties", _BIN),
    ("property_types", _TEXT),
    ("body_kind", _INT),
    ("body", _BIN),
)


def check_envelope(fields: object) -> None:
    """Check the form of an envelope's fields and remember the type signature.

    Raises:
        ProtocolError: names the field that is wrong.
    """
    if type(fields) is not tuple or len(fields) < ENVELOPE_FIELDS:
        raise ProtocolError(f"an envelope has {ENVELOPE_FIELDS} fields, not {_show(fields)}")
    for (name, kinds), value in zip(_ENVELOPE_TYPES, fields, strict=False):
        if type(value) not in kinds:
            raise ProtocolError(f"an envelope's {name} must not be {_show(value)}")
    if len(_envelopes_in_form) < _MAX_SIGNATURES:
        _envelopes_in_form.add(tuple(map(type, fields)))


def check_headers(fields: CommandTuple) -> str | None:
    """What is wrong with the header values of an envelope in good form, or None: lengths and the body kind.

    Not a matter of the wire but of one message: whoever accepts messages asks, and refuses only that message.
    """
    for position, name in _HEADERS:
        value = fields[position]
        if value is not None and len(value) > MAX_HEADER_CHARS:
            return f"{name} has {len(value)} characters; at most {MAX_HEADER_CHARS} are accepted"
    if fields[11] not in _BODY_KINDS:
        return f"body kind {fields[11]} is unknown"
    return None


_HEADERS = (
    (MESSAGE_ID, "JMSMessageID"),
    (CORRELATION_ID, "JMSCorrelationID"),
    (REPLY_TO, "JMSReplyTo"),
    (TYPE, "JMSType"),
)
_BODY_KINDS = frozenset(int(kind) for kind in BodyKind)


def _not_a_command(command: object) -> ProtocolError:
    if type(command) is not tuple or not command or type(command[0]) is not int:
        return ProtocolError(f"a command is an array that begins with its number, not {_show(command)}")
    return ProtocolError(f"unknown command {command[0]}", ErrorCode.UNKNOWN_COMMAND)


def _article(kind: str) -> str:
    text = {"uint": "an unsigned integer", "ids": "an array of unsigned integers", "str": "text", "bool": "a boolean"}
    optional = kind.endswith("?")
    kind = kind.removesuffix("?")
    return text.get(kind, f"a {kind}") + (" or nil" if optional else "")


def _show(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}…"


def describe(spec: CommandSpec) -> str:
    """The form of a command in one line, as the protocol's document shows it."""
    return f"[{spec.number}, {', '.join(field.name for field in spec.fields)}]" if spec.fields else f"[{spec.number}]"
