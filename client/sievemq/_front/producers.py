"""The common part of both fronts' producers: defaults (§7), the state of a JMSProducer (§7.10), the forms of a send
(D-27)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Set
from typing import Any, Self, TypeAlias, TypeVar

from sievemq._engine.producer import ABSENT, Absent, EngineProducer
from sievemq._front.unpicklable import Unpicklable
from sievemq.delivery_mode import DeliveryMode, DeliveryModeLike
from sievemq.destinations import Destination
from sievemq.exceptions import JMSException, MessageFormatRuntimeException, runtime_twin
from sievemq.messages import BytesMessage, Json, MapMessage, Message, ObjectMessage, TextMessage, adopt
from sievemq.messages.base import NEW_FIELDS
from sievemq.messages.shown import short_mapping
from sievemq.object_codec import PlainData
from sievemq_core.durations import Milliseconds
from sievemq_core.message.headers import DEFAULT_PRIORITY
from sievemq_core.message.values import PropertyValue

#: What ``send`` makes a message around (JPR-02 … JPR-07).
Body: TypeAlias = "PlainData | memoryview | Json"

R = TypeVar("R")


class ProducerDefaults:
    """All of a MessageProducer but `send` and `close`; both fronts derive theirs from it."""

    __slots__ = ("_engine",)

    _engine: EngineProducer

    @property
    def _open(self) -> EngineProducer:
        """The engine of a producer that is open.

        Raises:
            IllegalStateException: it is closed.
        """
        self._engine.check_open()
        return self._engine

    def __repr__(self) -> str:
        target = self._engine.destination
        return f"<MessageProducer {'unidentified' if target is None else target}{', closed' * self._engine.closed}>"

    def set_disable_message_id(self, value: bool) -> None:
        """Send without message ids (PRO-01)."""
        self._open.set_disable_message_id(value)

    def get_disable_message_id(self) -> bool:
        """True if messages are sent without ids; False by default (PRO-01)."""
        return self._open.disable_message_id

    def set_disable_message_timestamp(self, value: bool) -> None:
        """Send without timestamps (PRO-02)."""
        self._open.set_disable_timestamp(value)

    def get_disable_message_timestamp(self) -> bool:
        """True if messages are sent without timestamps; False by default (PRO-02)."""
        return self._open.disable_timestamp

    def set_delivery_mode(self, delivery_mode: DeliveryModeLike) -> None:
        """``DeliveryMode.PERSISTENT``, the default, or ``NON_PERSISTENT``; others: JMSException (PRO-03)."""
        self._open.set_delivery_mode(delivery_mode)

    def get_delivery_mode(self) -> DeliveryMode:
        """The delivery mode of sends that name none; PERSISTENT by default (PRO-03)."""
        return DeliveryMode(self._open.delivery_mode)

    def set_priority(self, priority: int) -> None:
        """0 to 9, 4 by default; others: JMSException (PRO-04)."""
        self._open.set_priority(priority)

    def get_priority(self) -> int:
        """The priority of sends that name none, 0 to 9; 4 by default (PRO-04)."""
        return self._open.priority

    def set_time_to_live(self, time_to_live: Milliseconds) -> None:
        """A timedelta or an int of milliseconds; 0 for ever, the default; negative: JMSException (PRO-05)."""
        self._open.set_time_to_live(time_to_live)

    def get_time_to_live(self) -> int:
        """The time to live of sends that name none, in milliseconds; 0, the default, is for ever (PRO-05)."""
        return self._open.time_to_live

    def set_delivery_delay(self, delivery_delay: Milliseconds) -> None:
        """A timedelta or an int of milliseconds; 0 by default; negative: JMSException (PRO-06)."""
        self._open.set_delivery_delay(delivery_delay)

    def get_delivery_delay(self) -> int:
        """The delivery delay of sends, in milliseconds; 0 by default (PRO-06)."""
        return self._open.delivery_delay

    def set_send_timeout(self, send_timeout: Milliseconds) -> None:
        """Set for how long a send may wait for room, a timedelta or ms, 0 for ever; negative: JMSException. An
        extension."""
        self._open.set_send_timeout(send_timeout)

    def get_send_timeout(self) -> int:
        """For how long a send may wait for room or for a repair, in milliseconds; the option ``send_timeout`` by
        default. An extension."""
        return self._open.send_timeout

    def get_destination(self) -> Destination | None:
        """The destination of sends; None for an unidentified producer (PRO-07)."""
        return self._open.destination


class ProducerState(Unpicklable):
    """All of a JMSProducer but `send`; both fronts derive theirs from it. Setters return the producer (JPR-09).

    Args:
        producer: the unidentified producer underneath.
    """

    __slots__ = ("_async", "_callbacks", "_dresses", "_engine", "_headers", "_names", "_to", "_values")

    def __init__(self, producer: EngineProducer) -> None:
        self._engine = producer
        # A message holds the properties: same names, same types, same conversions (JPR-11, JPR-16).
        self._values = Message()
        self._headers = Message()
        self._names = _PropertyNames(self._values)
        self._dresses = False  # there is something of these two to put on a message
        self._to: Destination | Absent = ABSENT  # of the last send: it has been checked
        self._async: Any = None  # the CompletionListener as it was set, and its two callbacks
        self._callbacks: tuple[Callable[..., Any], Callable[..., Any]] | None = None

    def __repr__(self) -> str:
        """Its connection, and the settings that differ from the defaults."""
        engine = self._engine
        options = {
            "priority": (engine.priority, DEFAULT_PRIORITY),
            "time_to_live": (engine.time_to_live, 0),
            "delivery_delay": (engine.delivery_delay, 0),
        }
        parts = [f"{name}={value}" for name, (value, default) in options.items() if value != default]
        if engine.delivery_mode != DeliveryMode.PERSISTENT:
            parts.append(DeliveryMode(engine.delivery_mode).name)
        if self._values.properties:
            parts.append(f"properties={short_mapping(self._values.properties)}")
        if engine.session.closed:
            parts.append("closed")
        return f"<JMSProducer {', '.join([f'on {engine.session.terms.connection_id}', *parts])}>"

    # -- options (JPR-09) ---------------------------------------------------------------------------------------------

    def set_disable_message_id(self, value: bool) -> Self:
        """Send without message ids (JPR-09)."""
        return self._apply(self._engine.set_disable_message_id, value)

    def get_disable_message_id(self) -> bool:
        """True if messages are sent without ids; False by default (JPR-09)."""
        return self._engine.disable_message_id

    def set_disable_message_timestamp(self, value: bool) -> Self:
        """Send without timestamps (JPR-09)."""
        return self._apply(self._engine.set_disable_timestamp, value)

    def get_disable_message_timestamp(self) -> bool:
        """True if messages are sent without timestamps; False by default (JPR-09)."""
        return self._engine.disable_timestamp

    def set_delivery_mode(self, delivery_mode: DeliveryModeLike) -> Self:
        """Delivery mode; other than 1 and 2: JMSRuntimeException (JPR-09)."""
        return self._apply(self._engine.set_delivery_mode, delivery_mode)

    def get_delivery_mode(self) -> DeliveryMode:
        """The delivery mode of sends; PERSISTENT by default (JPR-09)."""
        return DeliveryMode(self._engine.delivery_mode)

    def set_priority(self, priority: int) -> Self:
        """Priority 0 … 9; others: JMSRuntimeException (JPR-09)."""
        return self._apply(self._engine.set_priority, priority)

    def get_priority(self) -> int:
        """The priority of sends, 0 to 9; 4 by default (JPR-09)."""
        return self._engine.priority

    def set_time_to_live(self, time_to_live: Milliseconds) -> Self:
        """Time to live, a timedelta or an int of milliseconds, 0 for ever; negative: JMSRuntimeException (JPR-09)."""
        return self._apply(self._engine.set_time_to_live, time_to_live)

    def get_time_to_live(self) -> int:
        """The time to live of sends, in milliseconds; 0, the default, is for ever (JPR-09)."""
        return self._engine.time_to_live

    def set_delivery_delay(self, delivery_delay: Milliseconds) -> Self:
        """Delivery delay, a timedelta or an int of milliseconds; negative: JMSRuntimeException (JPR-09)."""
        return self._apply(self._engine.set_delivery_delay, delivery_delay)

    def get_delivery_delay(self) -> int:
        """The delivery delay of sends, in milliseconds; 0 by default (JPR-09)."""
        return self._engine.delivery_delay

    def set_send_timeout(self, send_timeout: Milliseconds) -> Self:
        """Set for how long a send may wait for room, a timedelta or ms, 0 for ever; negative: JMSRuntimeException."""
        return self._apply(self._engine.set_send_timeout, send_timeout)

    def get_send_timeout(self) -> int:
        """For how long a send may wait for room or for a repair, in milliseconds; the option ``send_timeout`` by
        default. An extension."""
        return self._engine.send_timeout

    def _apply(self, setter: Callable[..., None], *values: Any) -> Self:
        try:
            setter(*values)
        except JMSException as error:
            raise runtime_twin(error) from None
        return self

    # -- properties ---------------------------------------------------------------------------------------------------

    def set_property(self, name: str, value: PropertyValue) -> Self:
        """Set a property for the messages sent from now on; a plain value or a wrapper Byte … Double (D-30).

        Raises:
            ValueError: the name is not allowed (JPR-11).
            MessageFormatRuntimeException: the value's type is not.
        """
        return self._set("set_object_property", name, value)

    def set_boolean_property(self, name: str, value: bool) -> Self:
        """Set a boolean property (JPR-11)."""
        return self._set("set_boolean_property", name, value)

    def set_byte_property(self, name: str, value: int) -> Self:
        """Set a byte property (JPR-11)."""
        return self._set("set_byte_property", name, value)

    def set_short_property(self, name: str, value: int) -> Self:
        """Set a short property (JPR-11)."""
        return self._set("set_short_property", name, value)

    def set_int_property(self, name: str, value: int) -> Self:
        """Set an int property (JPR-11)."""
        return self._set("set_int_property", name, value)

    def set_long_property(self, name: str, value: int) -> Self:
        """Set a long property (JPR-11)."""
        return self._set("set_long_property", name, value)

    def set_float_property(self, name: str, value: float) -> Self:
        """Set a float property (JPR-11)."""
        return self._set("set_float_property", name, value)

    def set_double_property(self, name: str, value: float) -> Self:
        """Set a double property (JPR-11)."""
        return self._set("set_double_property", name, value)

    def set_string_property(self, name: str, value: str | None) -> Self:
        """Set a String property (JPR-11)."""
        return self._set("set_string_property", name, value)

    def set_object_property(self, name: str, value: PropertyValue) -> Self:
        """As :meth:`set_property`."""
        return self._set("set_object_property", name, value)

    def _set(self, setter: str, name: str, value: Any) -> Self:
        self._apply(getattr(self._values, setter), name, value)
        self._dresses = True
        return self

    def clear_properties(self) -> Self:
        """Remove all properties (JPR-14)."""
        self._values.clear_properties()
        self._dresses = self._headers._fields is not NEW_FIELDS
        return self

    def property_exists(self, name: str) -> bool:
        """True if it was set (JPR-15)."""
        return self._values.property_exists(name)

    def get_property_names(self) -> Set[str]:
        """The names set, as a live view that cannot be modified (JPR-17, D-30)."""
        return self._names

    def get_boolean_property(self, name: str) -> bool:
        """As the message's method, but raises MessageFormatRuntimeException (JPR-16)."""
        return self._get(self._values.get_boolean_property, name)

    def get_byte_property(self, name: str) -> int:
        """As the message's method (JPR-16)."""
        return self._get(self._values.get_byte_property, name)

    def get_short_property(self, name: str) -> int:
        """As the message's method (JPR-16)."""
        return self._get(self._values.get_short_property, name)

    def get_int_property(self, name: str) -> int:
        """As the message's method (JPR-16)."""
        return self._get(self._values.get_int_property, name)

    def get_long_property(self, name: str) -> int:
        """As the message's method (JPR-16)."""
        return self._get(self._values.get_long_property, name)

    def get_float_property(self, name: str) -> float:
        """As the message's method (JPR-16)."""
        return self._get(self._values.get_float_property, name)

    def get_double_property(self, name: str) -> float:
        """As the message's method (JPR-16)."""
        return self._get(self._values.get_double_property, name)

    def get_string_property(self, name: str) -> str | None:
        """As the message's method (JPR-16)."""
        return self._get(self._values.get_string_property, name)

    def get_object_property(self, name: str) -> PropertyValue:
        """As the message's method (JPR-16)."""
        return self._get(self._values.get_object_property, name)

    def _get(self, getter: Callable[[str], R], name: str) -> R:
        try:
            return getter(name)
        except JMSException as error:
            raise runtime_twin(error) from None

    # -- headers (JPR-18): None is not set ----------------------------------------------------------------------------

    def set_jms_correlation_id(self, correlation_id: str | None) -> Self:
        """Correlation id of the messages sent from now on (JPR-18)."""
        return self._header(self._headers.set_jms_correlation_id, correlation_id)

    def get_jms_correlation_id(self) -> str | None:
        """The correlation id of messages sent from now on; None for none (JPR-18)."""
        return self._headers.get_jms_correlation_id()

    def set_jms_correlation_id_as_bytes(self, correlation_id: bytes | None) -> Self:
        """Correlation id of the messages sent from now on, binary (JPR-18)."""
        return self._header(self._headers.set_jms_correlation_id_as_bytes, correlation_id)

    def get_jms_correlation_id_as_bytes(self) -> bytes | None:
        """The binary correlation id of messages sent from now on; None for none (JPR-18)."""
        return self._headers.get_jms_correlation_id_as_bytes()

    def set_jms_type(self, type: str | None) -> Self:  # noqa: A002 - the specification's parameter
        """JMSType of the messages sent from now on (JPR-18)."""
        return self._header(self._headers.set_jms_type, type)

    def get_jms_type(self) -> str | None:
        """The JMSType of messages sent from now on; None for none (JPR-18)."""
        return self._headers.get_jms_type()

    def set_jms_reply_to(self, destination: Destination | None) -> Self:
        """Set the destination for replies to the messages sent from now on (JPR-18)."""
        return self._header(self._headers.set_jms_reply_to, destination)

    def get_jms_reply_to(self) -> Destination | None:
        """The destination for replies to messages sent from now on; None for none (JPR-18)."""
        return self._headers.get_jms_reply_to()

    def _header(self, setter: Any, value: Any) -> Self:
        self._apply(setter, value)
        self._dresses = True
        return self

    # -- for the send of a front --------------------------------------------------------------------------------------

    def _target(self, destination: Destination) -> Destination:
        """Check a destination that is another one than the last, in a session that is open.

        Raises:
            IllegalStateException: it is closed.
            InvalidDestinationException: None, or no destination.
        """
        engine = self._engine
        engine.session.check_open()
        self._to = to = destination if isinstance(destination, Destination) else engine.target(destination)
        return to

    def _dress(self, body: object) -> Message:
        """The message to send for what `send` was given: made around a body (JPR-02 … JPR-07) or adopted, with the
        producer's properties and headers on it (JPR-12, JPR-18).

        Raises:
            MessageNotWriteableException: the message's properties are read-only and there are some to set (JPR-13).
            MessageFormatException: a body of a type that no message holds; None (JPR-06).
            IllegalStateException: the session is closed.
        """
        self._engine.session.check_open()
        message = message_for(body)
        values = self._values
        if values._properties:
            for name, value in values._properties.items():
                message.set_object_property(name, value)
        _, _, _, _, _, _, correlation_id, reply_to, type_, *_ = self._headers._fields
        if correlation_id is not None:
            message._set_header(6, correlation_id)
        if reply_to is not None:
            message._set_header(7, reply_to)
        if type_ is not None:
            message._set_header(8, type_)
        return message


def message_for(body: Any) -> Message:
    """The message itself, or one around a body (JPR-02 … JPR-07).

    Raises:
        MessageFormatException: a body of a type that no message holds; None (JPR-06).
    """
    if isinstance(body, Message):
        return body
    if isinstance(body, (str, Json)):
        return TextMessage(body)
    if isinstance(body, dict) and all(isinstance(name, str) for name in body):
        return MapMessage(body)
    if isinstance(body, (bytes, bytearray, memoryview)):
        return BytesMessage(bytes(body))
    if body is None:
        raise MessageFormatRuntimeException("None is no message; send TextMessage() for one without a body")
    if hasattr(body, "get_jms_message_id"):
        return adopt(body)
    return ObjectMessage(body)


class _PropertyNames(Set[str]):
    __slots__ = ("_values",)

    def __init__(self, values: Message) -> None:
        self._values = values

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and self._values.property_exists(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._values.properties)

    def __len__(self) -> int:
        return len(self._values.properties)

    def __repr__(self) -> str:
        return f"{{{', '.join(map(repr, self))}}}"

    @classmethod
    def _from_iterable(cls, names: Iterable[R]) -> Set[R]:
        return frozenset(names)  # the result of an operation such as `&`


def destination_and_message(
    arguments: tuple[Any, ...], message: Any, destination: Destination | Absent | None
) -> tuple[Destination | Absent | None, Any]:
    """Sort the positional arguments of a send, ``(message)`` or ``(destination, message)``, and its keywords.

    Args:
        arguments: the positional ones.
        message: the keyword, or ABSENT.
        destination: the keyword, or ABSENT.

    Raises:
        TypeError: too many, too few, or one given twice, in the words of Python.
    """
    if len(arguments) > 2:
        raise TypeError(
            "send() takes a message, or a destination and a message, by position; delivery_mode, priority, "
            "time_to_live and completion_listener are given by name"
        )
    if len(arguments) == 2:
        if destination is not ABSENT or message is not ABSENT:
            raise TypeError("send() got its destination or message twice")
        return arguments[0], arguments[1]
    if arguments:
        if message is not ABSENT:
            if destination is not ABSENT:
                raise TypeError("send() got its destination or message twice")
            return arguments[0], message  # send(destination, message=…)
        return destination, arguments[0]
    if message is ABSENT:
        raise TypeError("send() needs a message")
    return destination, message
