"""The envelope: everything of a message that travels, in fixed positions.

    0 message_id      str | nil     "ID:…", nil where the producer disabled ids
    1 timestamp       int           ms since 1970-01-01 UTC; 0 where disabled
    2 priority        int           0 … 9
    3 delivery_mode   int           1 NON_PERSISTENT, 2 PERSISTENT
    4 expiration      int           ms since 1970; 0 = never
    5 delivery_time   int           ms since 1970; not delivered before; 0 = at once
    6 correlation_id  str | bin | nil
    7 reply_to        str | nil     an address in text
    8 type            str | nil
    9 properties      bin | nil     a packed map name -> value; nil = none
   10 property_types  str | nil     a letter per property, in map order; nil = every value's msgpack form says its type
   11 body_kind       int           BodyKind
   12 body            bin | nil     nil = no body; its inner form belongs to the body kind (docs/protocol.md)

It is a plain tuple, because every message of every consumer is one and a tuple is what the decoder yields. Fields that
a later version adds behind the last are carried along untouched. They are scalars: what has structure is packed into
bin.

The destination and the delivery count are not in it: they belong to a send and to a delivery, and differ while the
envelope's bytes are shared.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from enum import IntEnum
from typing import Any, Final, TypeAlias

import msgpack

from sievemq_core.errors import FormatError, ProtocolError
from sievemq_core.limits import MAX_PROPERTIES, MAX_PROPERTIES_BYTES, MAX_PROPERTY_CHARS
from sievemq_core.message.values import (
    AMBIGUOUS,
    LONG_MAX,
    Byte,
    Double,
    Float,
    Int,
    PropertyValue,
    Short,
    letter_of,
    to_long,
)

MESSAGE_ID: Final = 0
TIMESTAMP: Final = 1
PRIORITY: Final = 2
DELIVERY_MODE: Final = 3
EXPIRATION: Final = 4
DELIVERY_TIME: Final = 5
CORRELATION_ID: Final = 6
REPLY_TO: Final = 7
TYPE: Final = 8
PROPERTIES: Final = 9
PROPERTY_TYPES: Final = 10
BODY_KIND: Final = 11
BODY: Final = 12
ENVELOPE_FIELDS: Final = 13

EnvelopeFields: TypeAlias = tuple[Any, ...]
"""An envelope as decoded; see the module's table."""


class BodyKind(IntEnum):
    """The six kinds of message (MSG-19)."""

    NONE = 0
    TEXT = 1
    BYTES = 2
    MAP = 3
    STREAM = 4
    OBJECT = 5


_packer = msgpack.Packer(use_bin_type=True, unicode_errors="surrogatepass")
_pack: Final = _packer.pack

#: A faster decoder of properties, if there is one (:func:`use_decoder`).
_decode: Callable[[bytes], dict[str, PropertyValue]] | None = None


def use_decoder(decode: Callable[[bytes], dict[str, PropertyValue]] | None) -> None:
    """From now on have something faster than msgpack decode properties. A broker's process does, for half of what
    selectors take is decoding; a client's one dependency is msgpack.

    Args:
        decode: unpacks a map of at most MAX_PROPERTIES whose keys are text and whose values are scalars, no integer
            above LONG_MAX, or raises ValueError: then msgpack decodes it. None for msgpack alone.
    """
    global _decode, read_properties
    _decode = decode
    read_properties = _read_well_formed if decode is None else decode


_WRAP: dict[str, Callable[[Any], Any]] = {"b": Byte, "h": Short, "l": to_long, "f": Float, "i": Int, "d": Double}


def pack_properties(properties: Mapping[str, PropertyValue]) -> tuple[bytes | None, str | None]:
    """The fields `properties` and `property_types` for a mapping of held values.

    Raises:
        FormatError: more than MAX_PROPERTIES, more than MAX_PROPERTIES_BYTES when packed, or a text that is too long.
    """
    if not properties:
        return None, None
    packed: bytes = _pack(properties)
    if len(properties) > MAX_PROPERTIES or len(packed) > MAX_PROPERTIES_BYTES:
        raise FormatError(
            f"a message may have {MAX_PROPERTIES} properties of {MAX_PROPERTIES_BYTES} bytes in all; "
            f"this one has {len(properties)} of {len(packed)} bytes"
        )
    if len(packed) > MAX_PROPERTY_CHARS and (wrong := too_long(properties)) is not None:
        raise FormatError(wrong)
    if AMBIGUOUS.isdisjoint(map(type, properties.values())):
        return packed, None
    return packed, "".join(map(letter_of, properties.values()))


def too_long(properties: Mapping[str, PropertyValue]) -> str | None:
    """Which property's text is longer than a selector reads (MAX_PROPERTY_CHARS), and what to do; None if there is
    none."""
    for name, value in properties.items():
        if isinstance(value, str) and len(value) > MAX_PROPERTY_CHARS:
            return (
                f"the property {name[:60]!r} has {len(value)} characters; at most {MAX_PROPERTY_CHARS} are accepted, "
                "longer text belongs into the body"
            )
    return None


def unpack_properties(fields: EnvelopeFields) -> dict[str, PropertyValue]:
    """The properties of an envelope as held values, in a new dict. Type letters that do not fit them are ignored.

    Raises:
        ProtocolError: the field is not a packed map of scalars under text keys. A broker accepts no such message.
    """
    packed = fields[PROPERTIES]
    if packed is None:
        return {}
    properties = None
    if _decode is not None:
        try:
            properties = _decode(packed)
        except (ValueError, RecursionError):  # msgpack packs it, or raises with the reason
            pass
    if properties is None:
        properties = _unpack_properties(packed)
    letters = fields[PROPERTY_TYPES]
    if type(letters) is str and len(letters) == len(properties):
        for (name, value), letter in zip(tuple(properties.items()), letters, strict=True):
            if letter in "bhlf" and value is not None:
                with suppress(FormatError, TypeError):
                    properties[name] = _WRAP[letter](value)
    return properties


def _read_well_formed(packed: bytes) -> dict[str, PropertyValue]:
    return _unpack_properties(packed, "strict")


#: Decodes packed properties that any reader can read, without their type letters; raises ValueError or ProtocolError
#: for others. A broker calls it for each message that it accepts; :func:`use_decoder` replaces it.
read_properties: Callable[[bytes], dict[str, PropertyValue]] = _read_well_formed


def _unpack_properties(packed: bytes, errors: str = "surrogatepass") -> dict[str, PropertyValue]:
    try:
        # What a property cannot be is refused before it is made: it may announce thousands of values.
        properties = msgpack.unpackb(
            packed, unicode_errors=errors, max_map_len=MAX_PROPERTIES, max_array_len=0, max_bin_len=0, max_ext_len=0
        )
    except (ValueError, msgpack.UnpackException) as error:
        raise ProtocolError(f"the properties of a message cannot be decoded: {error}") from error
    if type(properties) is not dict or not _PLAIN.issuperset(map(type, properties.values())):
        raise ProtocolError("the properties of a message must be a map of scalars")
    try:
        "".join(properties)  # a third of the time of a check of each type
    except TypeError:
        raise ProtocolError("the names of properties must be text") from None
    if b"\xcf" in packed:  # begins an unsigned 64-bit integer (and may be a byte of something else)
        for name, value in properties.items():
            if type(value) is int and value > LONG_MAX:
                raise ProtocolError(f"property {name!r:.200} is {value}, which no JMS type holds")
    return properties


def _unpack(packed: bytes) -> Any:
    return msgpack.unpackb(packed, use_list=False, unicode_errors="surrogatepass", max_bin_len=2**31 - 1)


_PLAIN = frozenset({str, int, bool, float, type(None)})
_SCALARS: frozenset[type] = frozenset({str, bytes, int, bool, float, type(None)})
_INTS: frozenset[type] = frozenset({int})
_IDS: frozenset[type] = frozenset({str, bytes, type(None)})


def has_scalars_behind(fields: EnvelopeFields) -> bool:
    """True if the fields that only a later version knows are scalars, as they must be."""
    return _SCALARS.issuperset(map(type, fields[ENVELOPE_FIELDS:]))


#: Halves of surrogate pairs: Java's and Python's text may have one alone, UTF-8 has none.
_HALVES: Final = re.compile(r"[\ud800-\udfff]")


def well_formed(text: str) -> str:
    """Text that UTF-8 can hold: U+FFFD takes the place of each lone surrogate."""
    return text if text.isascii() else _HALVES.sub("\ufffd", text)


def with_well_formed_text(fields: EnvelopeFields) -> EnvelopeFields:
    """The envelope with U+FFFD in the place of each lone surrogate in its headers. Its properties are left alone."""
    return tuple([well_formed(value) if type(value) is str else value for value in fields])


class Envelope:
    """An immutable message as a broker holds it: packed bytes to share, decoded only on demand.

    Args:
        packed: the same, packed; made from `fields` if not given.

    Attributes:
        answers: results of costly selectors for it (see the broker's matching); None for none.
    """

    # Six: a seventh would take 16 bytes of each waiting message.
    __slots__ = ("_fields", "_properties", "answers", "expiration", "packed", "priority")

    def __init__(self, fields: EnvelopeFields, packed: bytes | None = None) -> None:
        self.packed: bytes = _pack(fields) if packed is None else packed
        self.priority: int = fields[PRIORITY]
        self.expiration: int = fields[EXPIRATION]
        #: Once it is compact: the correlation id.
        self._fields: EnvelopeFields | str | bytes | None = fields
        self._properties: dict[str, PropertyValue] | None = None
        self.answers: Any = None

    @classmethod
    def from_packed(cls, packed: bytes, compact: bool = True) -> Envelope:
        """The envelope that was packed so.

        Args:
            compact: as one that waits. Otherwise its fields are at hand.

        Raises:
            ProtocolError: these bytes are no envelope.
        """
        try:
            fields = _unpack(packed)
        except (ValueError, TypeError, msgpack.UnpackException) as error:
            raise ProtocolError(f"the envelope of a message cannot be decoded: {error}") from error
        if (
            type(fields) is not tuple
            or len(fields) < ENVELOPE_FIELDS
            or not _INTS.issuperset(map(type, fields[TIMESTAMP:CORRELATION_ID]))
            or type(fields[CORRELATION_ID]) not in _IDS
        ):
            raise ProtocolError("the envelope of a message cannot be decoded: these are not its fields")
        if len(fields) > ENVELOPE_FIELDS and not has_scalars_behind(fields):  # an earlier version took it like that
            envelope = cls(fields[:ENVELOPE_FIELDS])
        else:
            envelope = cls(fields, packed)
        if compact:
            envelope.compact()
        return envelope

    @property
    def fields(self) -> EnvelopeFields:
        """The decoded fields; decoded again after :meth:`compact`."""
        fields = self._fields
        if type(fields) is tuple:
            return fields
        unpacked: EnvelopeFields = _unpack(self.packed)
        self._fields = unpacked
        return unpacked

    @property
    def delivery_time(self) -> int:
        """ms since 1970, 0 where the sender set no delay (HDR-04); decoded again after :meth:`compact`."""
        time: int = self.fields[DELIVERY_TIME]
        return time

    @property
    def properties(self) -> dict[str, PropertyValue]:
        """The properties, decoded at the first use. Read only by agreement: selectors share it.

        Raises:
            ProtocolError: the sender packed something that is not a map of scalars.
        """
        return self.read_properties()

    def read_properties(self) -> dict[str, PropertyValue]:
        """As :attr:`properties`, for the data path: a method call costs less than a Python property."""
        properties = self._properties
        if properties is None:
            fields = self._fields
            properties = self._properties = unpack_properties(fields if type(fields) is tuple else self.fields)
        return properties

    @property
    def correlation_id(self) -> str | bytes | None:
        """The field of that name. Not decoded again after :meth:`compact`: a deep queue is looked through for it."""
        fields = self._fields
        if isinstance(fields, tuple):
            correlation_id: str | bytes | None = fields[CORRELATION_ID]
            return correlation_id
        return fields

    def remember(self, answers: Any) -> None:
        """Results of costly selectors for it."""
        self.answers = answers

    def compact(self) -> None:
        """Drop what can be decoded again, so that a waiting message costs little more than its packed bytes."""
        fields = self._fields
        if type(fields) is tuple:
            self._fields = fields[CORRELATION_ID]
            self._properties = None

    def __len__(self) -> int:
        return len(self.packed)
