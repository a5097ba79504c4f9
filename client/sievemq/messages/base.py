"""Message: headers, properties and their modes together (§3); the body belongs to the subclasses, one per file.

A message's headers are held as an envelope tuple, the very form that travels: a received message is built around what
the decoder yielded, without a copy, and its properties and body are decoded at the first access. On a message that
is being made, the tuple is a constant until a header is set.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Final, TypeVar

import msgpack

from sievemq.delivery_mode import DeliveryMode
from sievemq.destinations import Destination
from sievemq.exceptions import MessageFormatException, ResourceAllocationException
from sievemq.messages.json_body import read_json
from sievemq.messages.modes import BODY_READ_ONLY, RECEIVED, SLOW_TO_SEND
from sievemq.messages.properties import Properties, packed_properties
from sievemq.messages.shown import short_mapping
from sievemq_core.message.envelope import BodyKind, EnvelopeFields
from sievemq_core.message.headers import (
    DEFAULT_DELIVERY_DELAY,
    DEFAULT_DELIVERY_MODE,
    DEFAULT_PRIORITY,
    DEFAULT_TIME_TO_LIVE,
)
from sievemq_core.message.values import PropertyValue
from sievemq_core.wire.codec import pack, pack_send

T = TypeVar("T")

#: Headers of a message that was never sent (HDR-16); message_id … body as in core's envelope.
NEW_FIELDS: Final[EnvelopeFields] = (
    None, 0, DEFAULT_PRIORITY, DEFAULT_DELIVERY_MODE, 0, 0, None, None, None, None, None, 0, None,
)  # fmt: skip


class _Pending:
    """The class of :data:`PENDING`; copies and pickles are the one object itself."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "<not decoded>"

    def __reduce__(self) -> str:
        return "PENDING"


#: The largest packed body that is decoded for a repr.
MAX_REPR_BYTES: Final = 4096

#: Marks a body that has arrived and not been decoded.
PENDING: Final = _Pending()

#: Kinds whose body may be JSON.
_OF_JSON: Final = frozenset({int(BodyKind.TEXT), int(BodyKind.BYTES)})

#: As `pack`, but for text with lone surrogates, which it refuses: that takes it a third of the time less.
_pack_well_formed: Final[Callable[[object], bytes]] = msgpack.Packer(use_bin_type=True).pack
#: Bytes of packed properties that cannot be too many.
_FEW: Final = 1_024


class Message(Properties):
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

    __slots__ = ("_acknowledge", "_body")

    DEFAULT_DELIVERY_MODE: ClassVar[DeliveryMode] = DeliveryMode(DEFAULT_DELIVERY_MODE)
    DEFAULT_PRIORITY: ClassVar[int] = DEFAULT_PRIORITY
    DEFAULT_TIME_TO_LIVE: ClassVar[int] = DEFAULT_TIME_TO_LIVE
    DEFAULT_DELIVERY_DELAY: ClassVar[int] = DEFAULT_DELIVERY_DELAY

    _body_kind: ClassVar[int] = int(BodyKind.NONE)

    #: The class that a received message of a kind gets: the first one of that kind.
    _classes: ClassVar[dict[int, type[Message]]] = {}

    def __init_subclass__(cls) -> None:
        cls._classes.setdefault(cls._body_kind, cls)

    _acknowledge: Callable[[], Any] | None
    _body: Any

    def __init__(self, *, properties: Mapping[str, PropertyValue] | None = None) -> None:
        self._fields = NEW_FIELDS
        self._properties = {}
        self._modes = 0
        self._body = None
        self._destination = self._acknowledge = None
        self._count = 0
        self._redelivered = False
        if properties is not None:
            self._set_properties(properties)

    # -- acknowledgement -----------------------------------------------------------------------------------------------

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

    def _call_to_acknowledge(self, hook: Callable[[], Any]) -> None:
        """The effect of :meth:`acknowledge` on a message that was not received."""
        self._acknowledge = hook

    def clear_body(self) -> None:
        """Make the body that of a new message, and writable; headers and properties stay (MSG-04)."""
        self._body = None
        self._modes &= ~BODY_READ_ONLY

    # -- body, whatever its kind --------------------------------------------------------------------------------------

    def get_body(self, body_type: type[T]) -> T | None:
        """The body as a value of a type.

        Args:
            body_type: ``str`` of a TextMessage, ``dict`` of a MapMessage, ``bytes`` of a BytesMessage, the object's
                class of an ObjectMessage; or a base of these, such as ``object``.

        Returns:
            A copy (MSG-11); None if there is no body (MSG-08, MSG-09). An empty map, ``{}``, and no bytes, ``b""``, are
            bodies of their own types, and none for every other type.

        Raises:
            MessageFormatException: the body is not of that type; always of a StreamMessage (MSG-07).

        >>> from sievemq.messages import TextMessage
        >>> TextMessage("hi").get_body(str)
        'hi'
        """
        check_type(body_type)
        return None

    def get_json(self) -> Any:
        """The value of a body that is JSON: the text of a TextMessage, or a BytesMessage in UTF-8. An extension.

        Raises:
            MessageFormatException: a message of another kind, without a body, or whose body is not JSON.

        >>> from sievemq.messages import Json, TextMessage
        >>> TextMessage(Json({"items": [1, 2]})).get_json()
        {'items': [1, 2]}
        """
        kind = type(self).__name__
        return read_json(self.get_body(object) if self._body_kind in _OF_JSON else None, kind)

    def is_body_assignable_to(self, body_type: type) -> bool:
        """True exactly when ``get_body(body_type)`` would not raise MessageFormatException (MSG-12)."""
        check_type(body_type)
        return True

    # -- what the engine calls ----------------------------------------------------------------------------------------

    @staticmethod
    def _received(
        fields: EnvelopeFields, destination: Destination, count: int, acknowledge: Callable[[], Any] | None
    ) -> Message:
        """A message as it arrived: properties and body read-only (MSG-14), decoded at their first use.

        Args:
            fields: the envelope as the decoder yielded it; kept, not copied.
            count: delivery count, from 1; more is a redelivery (JSX-01, JSX-12). 0 shows none.
            acknowledge: what ``acknowledge()`` calls; None where it has no effect.

        Raises:
            MessageFormatException: the envelope is not in form. Brokers validate envelopes, so only the fields are
                checked that could not be read later.
        """
        if type(fields[12]) not in _BINARY or type(fields[9]) not in _BINARY:
            raise MessageFormatException("the broker delivered a message whose properties or body are not bytes")
        try:
            self = _new(_classes[fields[11]])
        except KeyError:  # a kind of a later version: headers and properties can be read all the same
            self = _new(Message)
        except TypeError as error:
            raise MessageFormatException("the broker delivered a message whose kind is no number") from error
        self._fields = fields
        self._destination = destination
        self._count = count
        self._redelivered = count > 1
        self._acknowledge = acknowledge
        self._modes = RECEIVED
        self._properties = None
        self._body = PENDING
        return self

    def _to_send(
        self,
        start: tuple[bytes, bytes],
        sequence: int,
        digits: str,
        packed_decided: bytes,
        max_body: int,
        message_id: str | None,
        decided: EnvelopeFields,
        destination: Destination,
    ) -> bytes:
        """The SEND of this message; afterwards the message shows what the send decided (HDR-14). Headers of the
        application stay (HDR-17). Where this raises, the message does not change (MSG-16).

        Args:
            start, sequence, digits, packed_decided: as :func:`sievemq_core.wire.codec.pack_send` takes them.
            max_body: bytes that a body may have.
            message_id: None where ids are disabled.
            decided: the fields of a new message after its id, from timestamp to delivery time.

        Raises:
            MessageFormatException: too many properties, or a body that cannot be encoded.
            ResourceAllocationException: the body is larger than the broker takes.
        """
        fields, properties = self._fields, self._properties
        packed: bytes | None = None
        letters: str | None = None
        if properties:
            if self._modes & SLOW_TO_SEND:
                packed, letters = packed_properties(properties)
            else:
                try:
                    packed = _pack_well_formed(properties)
                except UnicodeEncodeError:
                    packed = pack(properties)
                if len(packed) >= _FEW:
                    packed_properties(properties)  # raises if they are too many
        elif properties is None:  # received, never decoded, passed on
            packed, letters = fields[9], fields[10]
        body = self._body
        if body.__class__ is not bytes or not body:
            body = self._encode_body()
        if body is not None and len(body) > max_body:
            raise ResourceAllocationException(
                f"the body has {len(body)} bytes; the broker takes {max_body} (max_body_bytes)", "MESSAGE_TOO_LARGE"
            )
        headers = None
        if fields is not NEW_FIELDS:
            if not fields[6] is fields[7] is fields[8] is None:
                reply_to = fields[7]
                if reply_to is not None and type(reply_to) is not str:
                    reply_to = reply_to._text
                headers = (fields[6], reply_to, fields[8])
            decided = decided[:5] + fields[6:]
        send = pack_send(start, sequence, digits, packed_decided, headers, packed, letters, self._body_kind, body)
        # Unpacking takes twice as long as a sum.
        self._fields = (message_id,) + decided  # noqa: RUF005
        self._destination = destination
        return send

    def _encode_body(self) -> bytes | None:
        """The body as it travels; None if there is none."""
        return None

    def _completed(self) -> None:
        """Make the message readable for a CompletionListener (MOD-09, CPL-15)."""

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


_new: Final = Message.__new__
_classes: Final = Message._classes
_classes[Message._body_kind] = Message
_BINARY: Final = (bytes, type(None))


def check_type(body_type: object) -> None:
    if not isinstance(body_type, type):
        raise TypeError(f"get_body takes a class such as str or dict, not {body_type!r:.60}")
