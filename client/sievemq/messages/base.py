"""Message: headers, properties and their modes (§3); the body belongs to the subclasses, one per file.

A message's headers are held as an envelope tuple, the very form that travels: a received message is built around what
the decoder yielded, without a copy, and its properties and body are decoded when somebody first asks. On a message that
is being made, the tuple is a constant until a header is set.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, ClassVar, Final, TypeVar

import msgpack

from sievemq.destinations import Destination, destination_for, parse_destination
from sievemq.exceptions import MessageFormatException, MessageNotWriteableException
from sievemq.messages.properties import (
    KNOWN_NAMES,
    check_property_name,
    read_property,
    to_property,
    to_typed_property,
)
from sievemq_core.errors import FormatError, ProtocolError
from sievemq_core.limits import MAX_HEADER_CHARS, MAX_PROPERTIES, MAX_PROPERTIES_BYTES
from sievemq_core.message.envelope import BodyKind, EnvelopeFields, pack_properties, unpack_properties
from sievemq_core.message.headers import (
    DEFAULT_DELIVERY_DELAY,
    DEFAULT_DELIVERY_MODE,
    DEFAULT_PRIORITY,
    DEFAULT_TIME_TO_LIVE,
    DELIVERY_COUNT,
    ON_RECEIVE,
)
from sievemq_core.message.values import Byte, Float, Long, PropertyValue, Short

__all__ = ["Message"]

T = TypeVar("T")

# Bits of Message._modes. Properties and body have modes of their own (MOD-08).
PROPERTIES_READ_ONLY: Final = 1
BODY_READ_ONLY: Final = 2
RECEIVED: Final = PROPERTIES_READ_ONLY | BODY_READ_ONLY  # MSG-14
HAS_ON_RECEIVE: Final = 4  # some property must be dropped when the message is sent (JSX-11)
HAS_TYPED: Final = 8  # some property may need type letters: looked at when the message is sent
SLOW_TO_SEND: Final = HAS_ON_RECEIVE | HAS_TYPED

#: Headers of a message that was never sent (HDR-16); message_id … body as in core's envelope.
_NEW_FIELDS: Final[EnvelopeFields] = (
    None, 0, DEFAULT_PRIORITY, DEFAULT_DELIVERY_MODE, 0, 0, None, None, None, None, None, 0, None,
)  # fmt: skip


class _Pending:
    """The class of :data:`PENDING`; copies and pickles are the one object itself."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "<not decoded>"

    def __reduce__(self) -> str:
        return "PENDING"


#: Stands for a body that has arrived and not been decoded.
PENDING: Final = _Pending()

_AMBIGUOUS: Final = frozenset({Byte, Short, Long, Float})
_pack: Final = msgpack.Packer(use_bin_type=True, unicode_errors="surrogatepass").pack


class Message:
    """A message without a body, and what all messages have in common (§3).

    Args:
        properties: set one by one as :meth:`set_object_property` does.

    >>> message = Message(properties={"region": "EU", "amount": 12})
    >>> message.set_jms_type("order")
    >>> message.get_string_property("amount"), message.get_jms_type()
    ('12', 'order')
    >>> message
    Message(type='order', properties={'region': 'EU', 'amount': 12})
    """

    __slots__ = (
        "_acknowledge",
        "_body",
        "_count",
        "_destination",
        "_fields",
        "_modes",
        "_properties",
        "_redelivered",
    )

    DEFAULT_DELIVERY_MODE: ClassVar[int] = DEFAULT_DELIVERY_MODE
    DEFAULT_PRIORITY: ClassVar[int] = DEFAULT_PRIORITY
    DEFAULT_TIME_TO_LIVE: ClassVar[int] = DEFAULT_TIME_TO_LIVE
    DEFAULT_DELIVERY_DELAY: ClassVar[int] = DEFAULT_DELIVERY_DELAY

    _body_kind: ClassVar[int] = int(BodyKind.NONE)

    _acknowledge: Callable[[], Any] | None
    _body: Any
    _count: int
    _destination: Destination | None
    _fields: EnvelopeFields
    _modes: int
    _properties: dict[str, PropertyValue] | None  # None: received and not decoded yet; then they are read-only
    _redelivered: bool

    def __init__(self, *, properties: Mapping[str, object] | None = None) -> None:
        self._fields = _NEW_FIELDS
        self._properties = {}
        self._modes = 0
        self._body = None
        self._destination = self._acknowledge = None
        self._count = 0
        self._redelivered = False
        if properties is not None:
            self._set_properties(properties)

    def _set_properties(self, properties: Mapping[str, object]) -> None:
        for name, value in properties.items():
            self.set_object_property(name, value)

    # -- acknowledgement and clearing ---------------------------------------------------------------------------------

    def acknowledge(self) -> Any:
        """Acknowledge everything that the message's session has consumed so far (MSG-01).

        Only a CLIENT_ACKNOWLEDGE session needs it; elsewhere, a second time, and on a message that was never received
        it has no effect (MSG-02, MSG-03).

        Returns:
            None; on a message received by the asyncio API, something to await.

        Raises:
            IllegalStateException: session or connection are closed.
        """
        acknowledge = self._acknowledge
        return None if acknowledge is None else acknowledge()

    def clear_body(self) -> None:
        """Make the body that of a new message, and writable; headers and properties stay (MSG-04)."""
        self._body = None
        self._modes &= ~BODY_READ_ONLY

    def clear_properties(self) -> None:
        """Remove all properties and make them writable; headers and body stay (MSG-05)."""
        if self._properties is None:
            self._properties = {}
        else:
            self._properties.clear()
        self._modes &= BODY_READ_ONLY

    # -- body, whatever its kind --------------------------------------------------------------------------------------

    def get_body(self, body_type: type[T]) -> T | None:
        """The body as a value of a type.

        Args:
            body_type: ``str`` of a TextMessage, ``dict`` of a MapMessage, ``bytes`` of a BytesMessage, the object's
                class of an ObjectMessage; or a base of these, such as ``object``.

        Returns:
            A copy (MSG-11); None if there is no body (MSG-08, MSG-09).

        Raises:
            MessageFormatException: the body is not of that type; always of a StreamMessage (MSG-07).

        >>> from sievemq.messages import TextMessage
        >>> TextMessage("hi").get_body(str)
        'hi'
        """
        _check_type(body_type)
        return None

    def is_body_assignable_to(self, body_type: type) -> bool:
        """True exactly when ``get_body(body_type)`` would not raise MessageFormatException (MSG-12)."""
        _check_type(body_type)
        return True

    # -- headers ------------------------------------------------------------------------------------------------------
    # Never read-only (HDR-15). What a provider sets is overwritten by the send (HDR-13).

    def get_jms_message_id(self) -> str | None:
        """The id that the send gave, ``ID:…``; None before, or where the producer disabled ids (HDR-06)."""
        return self._fields[0]  # type: ignore[no-any-return]

    def set_jms_message_id(self, message_id: str | None) -> None:
        """Overwritten by the send (HDR-13)."""
        self._set_header(0, _text("JMSMessageID", message_id))

    def get_jms_timestamp(self) -> int:
        """When it was sent: ms since 1970-01-01 UTC; 0 before, or where the producer disabled timestamps (HDR-07)."""
        return self._fields[1]  # type: ignore[no-any-return]

    def set_jms_timestamp(self, timestamp: int) -> None:
        """Overwritten by the send (HDR-13)."""
        self._set_header(1, _integer("JMSTimestamp", timestamp))

    def get_jms_priority(self) -> int:
        """0 to 9; from 5 on expedited (HDR-05)."""
        return self._fields[2]  # type: ignore[no-any-return]

    def set_jms_priority(self, priority: int) -> None:
        """Overwritten by the send: choose a priority at the producer or in the send call (HDR-18)."""
        self._set_header(2, _integer("JMSPriority", priority))

    def get_jms_delivery_mode(self) -> int:
        """``DeliveryMode.PERSISTENT`` or ``NON_PERSISTENT`` (HDR-02)."""
        return self._fields[3]  # type: ignore[no-any-return]

    def set_jms_delivery_mode(self, delivery_mode: int) -> None:
        """Overwritten by the send: choose a mode at the producer or in the send call (HDR-18)."""
        self._set_header(3, _integer("JMSDeliveryMode", delivery_mode))

    def get_jms_expiration(self) -> int:
        """When it expires: ms since 1970-01-01 UTC; 0 = never (HDR-03)."""
        return self._fields[4]  # type: ignore[no-any-return]

    def set_jms_expiration(self, expiration: int) -> None:
        """Overwritten by the send: choose a time to live at the producer or in the send call (HDR-18)."""
        self._set_header(4, _integer("JMSExpiration", expiration))

    def get_jms_delivery_time(self) -> int:
        """Not delivered before: ms since 1970-01-01 UTC; the time of the send if there was no delay (HDR-04)."""
        return self._fields[5]  # type: ignore[no-any-return]

    def set_jms_delivery_time(self, delivery_time: int) -> None:
        """Overwritten by the send: choose a delivery delay at the producer (HDR-18)."""
        self._set_header(5, _integer("JMSDeliveryTime", delivery_time))

    def get_jms_correlation_id(self) -> str | None:
        """What links this message to another, often that one's id (HDR-08).

        One that was set as bytes is shown as UTF-8, bytes that are not as ``\\xNN``.
        """
        value = self._fields[6]
        return value.decode("utf-8", "backslashreplace") if type(value) is bytes else value

    def set_jms_correlation_id(self, correlation_id: str | None) -> None:
        """Link this message to another (HDR-08)."""
        self._set_header(6, _text("JMSCorrelationID", correlation_id))

    def get_jms_correlation_id_as_bytes(self) -> bytes | None:
        """The correlation id as bytes; one that was set as text is encoded as UTF-8 (HDR-09)."""
        value = self._fields[6]
        return value.encode("utf-8", "surrogatepass") if type(value) is str else value

    def set_jms_correlation_id_as_bytes(self, correlation_id: bytes | bytearray | memoryview | None) -> None:
        """Link this message to another by a binary id, which is copied (HDR-09)."""
        if correlation_id is not None:
            if not isinstance(correlation_id, (bytes, bytearray, memoryview)):
                raise _wrong("JMSCorrelationID", "bytes", correlation_id)
            correlation_id = bytes(correlation_id)
            _check_length("JMSCorrelationID", correlation_id)
        self._set_header(6, correlation_id)

    def get_jms_reply_to(self) -> Destination | None:
        """Where a reply should go; a receiver can use it as it is (HDR-10)."""
        value = self._fields[7]
        return parse_destination(value) if type(value) is str else value

    def set_jms_reply_to(self, destination: Destination | None) -> None:
        """Say where a reply should go (HDR-10).

        Raises:
            InvalidDestinationException: not a destination.
        """
        self._set_header(7, None if destination is None else destination_for(destination))

    def get_jms_type(self) -> str | None:
        """The application's name for this kind of message (HDR-11)."""
        return self._fields[8]  # type: ignore[no-any-return]

    def set_jms_type(self, type: str | None) -> None:  # noqa: A002 - the specification's parameter
        """Name this kind of message (HDR-11)."""
        self._set_header(8, _text("JMSType", type))

    def get_jms_destination(self) -> Destination | None:
        """Where it was sent (HDR-01); None before."""
        return self._destination

    def set_jms_destination(self, destination: Destination | None) -> None:
        """Overwritten by the send (HDR-13)."""
        self._destination = None if destination is None else destination_for(destination)

    def get_jms_redelivered(self) -> bool:
        """True if it was delivered before; then JMSXDeliveryCount is 2 or more (HDR-12, JSX-12)."""
        return self._redelivered

    def set_jms_redelivered(self, redelivered: bool) -> None:
        """Overwritten when the message is delivered (HDR-13)."""
        self._redelivered = bool(redelivered)

    def _set_header(self, position: int, value: object) -> None:
        fields = self._fields
        self._fields = (*fields[:position], value, *fields[position + 1 :])

    # -- properties: set ----------------------------------------------------------------------------------------------
    # A known name costs one set lookup; the straight path of each setter holds the value without a further call.

    def set_boolean_property(self, name: str, value: bool) -> None:
        """Set a boolean property.

        Raises:
            MessageNotWriteableException: the message was received; call :meth:`clear_properties` first (PRP-10).
            ValueError: the name is not allowed (PRP-07, PRP-08, PRP-12).
            MessageFormatException: the value is not a bool.
        """
        self._set_typed(name, "z", value)

    def set_byte_property(self, name: str, value: int) -> None:
        """Set a byte property, -128 to 127 (PRP-01); errors as for the others, MessageFormatException out of range."""
        self._set_typed(name, "b", value)

    def set_short_property(self, name: str, value: int) -> None:
        """Set a short property, 16 bits signed (PRP-01)."""
        self._set_typed(name, "h", value)

    def set_int_property(self, name: str, value: int) -> None:
        """Set an int property, 32 bits signed (PRP-01)."""
        if type(value) is int and -0x80000000 <= value <= 0x7FFFFFFF and name in KNOWN_NAMES and not self._modes & 1:
            self._properties[name] = value  # type: ignore[index]  # writable ones are never None
        else:
            self._set_typed(name, "i", value)

    def set_long_property(self, name: str, value: int) -> None:
        """Set a long property, 64 bits signed (PRP-01)."""
        self._set_typed(name, "l", value)

    def set_float_property(self, name: str, value: float) -> None:
        """Set a float property; the value is rounded to IEEE single (PY-09)."""
        self._set_typed(name, "f", value)

    def set_double_property(self, name: str, value: float) -> None:
        """Set a double property (PRP-01)."""
        if type(value) is float and name in KNOWN_NAMES and not self._modes & 1:
            self._properties[name] = value  # type: ignore[index]
        else:
            self._set_typed(name, "d", value)

    def set_string_property(self, name: str, value: str | None) -> None:
        """Set a String property; None is a null String, and the property then exists (PRP-05)."""
        if type(value) is str and name in KNOWN_NAMES and not self._modes & 1:
            self._properties[name] = value  # type: ignore[index]
        else:
            self._set_typed(name, "s", value)

    def set_object_property(self, name: str, value: object) -> None:
        """Set a property of the type that the value has: bool, int, float, str, None, or a wrapper Byte … Double.

        A plain int is an int if it fits 32 bits, else a long; a plain float is a double.

        Raises:
            MessageFormatException: the value is of another type (PRP-02), or beyond 64 bits.
        """
        self._check_settable(name)
        held = to_property(name, value)
        if type(held) in _AMBIGUOUS:
            self._modes |= HAS_TYPED
        self._properties[name] = held  # type: ignore[index]

    def _set_typed(self, name: str, letter: str, value: object) -> None:
        self._check_settable(name)
        held = to_typed_property(name, letter, value)
        if type(held) in _AMBIGUOUS:
            self._modes |= HAS_TYPED
        self._properties[name] = held  # type: ignore[index]

    def _check_settable(self, name: str) -> None:
        if self._modes & PROPERTIES_READ_ONLY:
            raise MessageNotWriteableException(
                f"property {name!r:.60} cannot be set: the properties of a received message are read-only; "
                "clear_properties() makes them writable"
            )
        if type(name) is not str or name not in KNOWN_NAMES:
            check_property_name(name)
            if name in ON_RECEIVE:
                self._modes |= HAS_ON_RECEIVE

    # -- properties: get ----------------------------------------------------------------------------------------------

    def get_boolean_property(self, name: str) -> bool:
        """A property as a boolean: of a boolean or of text; an absent one is False (CNV-01, CNV-07).

        Raises:
            MessageFormatException: the property's type cannot be read as this one (PRP-03).
        """
        return read_property(self._property_values(), name, "z")  # type: ignore[no-any-return]

    def get_byte_property(self, name: str) -> int:
        """A property as a byte: of a byte or of text.

        Raises:
            MessageFormatException: the property's type cannot be read as this one (PRP-03).
            NumberFormatError: it is text that is no such number, null or absent (CNV-02, CNV-08).
        """
        return read_property(self._property_values(), name, "b")  # type: ignore[no-any-return]

    def get_short_property(self, name: str) -> int:
        """A property as a short: of a byte, a short or of text; errors as :meth:`get_byte_property`."""
        return read_property(self._property_values(), name, "h")  # type: ignore[no-any-return]

    def get_int_property(self, name: str) -> int:
        """A property as an int: of a byte, a short, an int or of text; errors as :meth:`get_byte_property`."""
        return read_property(self._property_values(), name, "i")  # type: ignore[no-any-return]

    def get_long_property(self, name: str) -> int:
        """A property as a long: of any integer type or of text; errors as :meth:`get_byte_property`."""
        return read_property(self._property_values(), name, "l")  # type: ignore[no-any-return]

    def get_float_property(self, name: str) -> float:
        """A property as a float: of a float or of text.

        Raises:
            MessageFormatException: the property's type cannot be read as this one (PRP-03).
            NumberFormatError: it is text that is no such number (CNV-03).
            NullValueError: it is null or absent (CNV-09).
        """
        return read_property(self._property_values(), name, "f")  # type: ignore[no-any-return]

    def get_double_property(self, name: str) -> float:
        """A property as a double: of a float, a double or of text; errors as :meth:`get_float_property`."""
        return read_property(self._property_values(), name, "d")  # type: ignore[no-any-return]

    def get_string_property(self, name: str) -> str | None:
        """A property as text, whatever its type; None if null or absent (CNV-04 to CNV-06, CNV-10)."""
        value = self._property_values().get(name)
        return value if type(value) is str else read_property(self._property_values(), name, "s")

    def get_object_property(self, name: str) -> PropertyValue:
        """A property in its own type: plain, or a wrapper where Python has no type for it; None if absent (PRP-04)."""
        return self._property_values().get(name)

    def property_exists(self, name: str) -> bool:
        """True if the property was set, be it to a null String (PRP-05)."""
        return name in self._property_values()

    def get_property_names(self) -> Iterator[str]:
        """The names of all properties, once, in no promised order (PRP-06). Headers are not among them."""
        return iter(tuple(self._property_values()))

    @property
    def properties(self) -> Mapping[str, PropertyValue]:
        """All properties by name in their own types: a read-only view that follows later changes (PRP-06)."""
        return MappingProxyType(self._property_values())

    def _property_values(self) -> dict[str, PropertyValue]:
        """The properties to read; decoded here on a received message."""
        properties = self._properties
        if properties is None:
            try:
                properties = unpack_properties(self._fields)
            except ProtocolError as error:
                raise MessageFormatException(str(error)) from error
            if self._count:
                properties[DELIVERY_COUNT] = self._count  # JSX-01
            self._modes |= SLOW_TO_SEND
            self._properties = properties
        return properties

    # -- what the engine calls ----------------------------------------------------------------------------------------

    def _to_fields(
        self,
        message_id: str | None,
        timestamp: int,
        priority: int,
        delivery_mode: int,
        expiration: int,
        delivery_time: int,
    ) -> EnvelopeFields:
        """The envelope of a send. Times in ms since 1970-01-01 UTC. The message itself does not change (MSG-16).

        Raises:
            MessageFormatException: too many properties, or a body that cannot be encoded.
        """
        fields = self._fields
        properties = self._properties
        letters = None
        if properties:
            if self._modes & SLOW_TO_SEND:
                packed, letters = _pack_properties(properties)
            else:
                packed = _pack(properties)
                if len(packed) > MAX_PROPERTIES_BYTES or len(properties) > MAX_PROPERTIES:
                    _pack_properties(properties)  # raises
        elif properties is None:  # received, never looked at, passed on
            packed, letters = fields[9], fields[10]
        else:
            packed = None
        reply_to = fields[7]
        return (
            message_id,
            timestamp,
            priority,
            delivery_mode,
            expiration,
            delivery_time,
            fields[6],
            reply_to if reply_to is None or type(reply_to) is str else reply_to._text,
            fields[8],
            packed,
            letters,
            self._body_kind,
            self._encode_body(),
        )

    def _encode_body(self) -> bytes | None:
        """The body as it travels; None if there is none."""
        return None

    def _sent(
        self,
        message_id: str | None,
        timestamp: int,
        priority: int,
        delivery_mode: int,
        expiration: int,
        delivery_time: int,
        destination: Destination,
    ) -> None:
        """Show on the sender's object what the send decided (HDR-14). Client headers stay (HDR-17)."""
        self._fields = (
            message_id,
            timestamp,
            priority,
            delivery_mode,
            expiration,
            delivery_time,
            *self._fields[6:],
        )
        self._destination = destination

    def _completed(self) -> None:
        """Make the message what a CompletionListener may read at once (MOD-09, CPL-15)."""

    def __getstate__(self) -> object:
        """For copy and pickle: the copy is independent of this message (MSG-17) and of its session."""
        state = {
            name: getattr(self, name)
            for kind in type(self).__mro__
            for name in getattr(kind, "__slots__", ())
            if hasattr(self, name)
        }
        state["_acknowledge"] = None
        for name in ("_properties", "_body"):
            if isinstance(state[name], (dict, list, bytearray)):
                state[name] = state[name].copy()
        return None, state

    # -- for people ---------------------------------------------------------------------------------------------------

    def __repr__(self) -> str:
        """Kind, body, id, destination, type and properties, cut to what a test failure can show."""
        parts = [text for text in (self._body_repr(),) if text]
        fields = self._fields
        if fields[0] is not None:
            parts.append(f"id={fields[0]!r:.80}")
        if self._destination is not None:
            parts.append(f"destination={str(self._destination)!r:.80}")
        if fields[8] is not None:
            parts.append(f"type={fields[8]!r:.80}")
        if fields[6] is not None:
            parts.append(f"correlation_id={fields[6]!r:.80}")
        if self._redelivered:
            parts.append(f"redelivered, count={self._count}")
        try:
            properties = self._property_values()
        except MessageFormatException:
            parts.append("properties=<cannot be decoded>")
        else:
            if properties:
                parts.append(f"properties={short_mapping(properties)}")
        return f"{type(self).__name__}({', '.join(parts)})"

    def _body_repr(self) -> str:
        return ""


def _pack_properties(properties: dict[str, PropertyValue]) -> tuple[bytes | None, str | None]:
    if not ON_RECEIVE.isdisjoint(properties):
        properties = {name: value for name, value in properties.items() if name not in ON_RECEIVE}  # JSX-11
    try:
        return pack_properties(properties)
    except FormatError as error:
        raise MessageFormatException(str(error), error.code.name) from error


def _check_type(body_type: object) -> None:
    if not isinstance(body_type, type):
        raise TypeError(f"get_body takes a class such as str or dict, not {body_type!r:.60}")


def _wrong(header: str, needed: str, value: object) -> MessageFormatException:
    return MessageFormatException(f"{header} is set from {needed}, not from {type(value).__name__}")


def _text(header: str, value: str | None) -> str | None:
    if value is None:
        return None
    if not isinstance(value, str):
        raise _wrong(header, "a str", value)
    _check_length(header, value)
    return value if type(value) is str else str.__str__(value)


def _check_length(header: str, value: str | bytes) -> None:
    if len(value) > MAX_HEADER_CHARS:
        raise MessageFormatException(f"{header} has {len(value)} characters; at most {MAX_HEADER_CHARS} are accepted")


def _integer(header: str, value: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise _wrong(header, "an int", value)
    return int(value)


def short(value: object, limit: int = 60) -> str:
    """A value in a repr: never longer than about `limit` characters, and never the work of more than that."""
    if isinstance(value, (str, bytes)) and len(value) > limit:
        return f"{value[:limit]!r}… ({len(value)} {'characters' if isinstance(value, str) else 'bytes'})"
    text = repr(value)
    return text if len(text) <= limit * 2 else f"{text[:limit]}…"


def short_mapping(values: Mapping[str, object], limit: int = 12) -> str:
    """The first entries of a mapping in a repr."""
    shown = [f"{short(name)}: {short(value)}" for name, value in list(values.items())[:limit]]
    if len(values) > limit:
        shown.append(f"… {len(values) - limit} more")
    return "{" + ", ".join(shown) + "}"
