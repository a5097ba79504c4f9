"""A message's headers (§3.4)."""

from __future__ import annotations

from sievemq.destinations import Destination, destination_for, parse_destination
from sievemq.exceptions import InvalidDestinationException, MessageFormatException
from sievemq_core.limits import MAX_HEADER_CHARS
from sievemq_core.message.envelope import EnvelopeFields
from sievemq_core.message.headers import bytes_of_id
from sievemq_core.message.values import to_time


class Headers:
    """The headers of a message, in the form of the envelope that travels."""

    __slots__ = ("_destination", "_fields", "_redelivered")

    _destination: Destination | None
    _fields: EnvelopeFields
    _redelivered: bool

    # Never read-only (HDR-15). What a provider sets is overwritten by the send (HDR-13).

    def get_jms_message_id(self) -> str | None:
        """The id that the send gave, ``ID:…``; None before, or where the producer disabled ids (HDR-06)."""
        return self._fields[0]  # type: ignore[no-any-return]

    def set_jms_message_id(self, message_id: str | None) -> None:
        """Overwritten by the send (HDR-13)."""
        self._set_header(0, _text("JMSMessageID", message_id))

    def get_jms_timestamp(self) -> int:
        """Time of the send in ms since 1970-01-01 UTC; 0 before it, or if the producer disabled timestamps (HDR-07)."""
        return to_time(self._fields[1])

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
        """Time of expiry in ms since 1970-01-01 UTC; 0 = never (HDR-03)."""
        return to_time(self._fields[4])

    def set_jms_expiration(self, expiration: int) -> None:
        """Overwritten by the send: choose a time to live at the producer or in the send call (HDR-18)."""
        self._set_header(4, _integer("JMSExpiration", expiration))

    def get_jms_delivery_time(self) -> int:
        """Not delivered before: ms since 1970-01-01 UTC; the time of the send if there was no delay (HDR-04)."""
        return to_time(self._fields[5] or self._fields[1])  # 0 travels: without a delay

    def set_jms_delivery_time(self, delivery_time: int) -> None:
        """Overwritten by the send: choose a delivery delay at the producer (HDR-18)."""
        self._set_header(5, _integer("JMSDeliveryTime", delivery_time))

    def get_jms_correlation_id(self) -> str | None:
        """The id that links this message to another, often the other's message id (HDR-08).

        One that was set as bytes is shown as UTF-8, bytes that are not as ``\\xNN``.
        """
        value = self._fields[6]
        return value.decode("utf-8", "backslashreplace") if type(value) is bytes else value

    def set_jms_correlation_id(self, correlation_id: str | None) -> None:
        """Link this message to another (HDR-08)."""
        self._set_header(6, _text("JMSCorrelationID", correlation_id))

    def get_jms_correlation_id_as_bytes(self) -> bytes | None:
        """The correlation id as bytes; one that was set as text is encoded as UTF-8 (HDR-09).

        The id of an AMQP client that is bytes has the text ``ID:AMQP_BINARY:01AB``, and is those bytes.
        """
        value = self._fields[6]
        if type(value) is str:
            data = bytes_of_id(value)
            return value.encode("utf-8", "surrogatepass") if data is None else data
        return value  # type: ignore[no-any-return]

    def set_jms_correlation_id_as_bytes(self, correlation_id: bytes | bytearray | memoryview | None) -> None:
        """Link this message to another by a binary id, which is copied (HDR-09)."""
        if correlation_id is not None:
            if not isinstance(correlation_id, (bytes, bytearray, memoryview)):
                raise _wrong("JMSCorrelationID", "bytes", correlation_id)
            correlation_id = bytes(correlation_id)
            _check_length("JMSCorrelationID", correlation_id)
        self._set_header(6, correlation_id)

    def get_jms_reply_to(self) -> Destination | None:
        """The destination for a reply; a receiver can use it unchanged (HDR-10).

        None if there is none, or if a client of another kind has sent text that names no destination.
        """
        value = self._fields[7]
        if type(value) is not str:
            return value  # type: ignore[no-any-return]
        try:
            return parse_destination(value)
        except InvalidDestinationException:
            return None

    def set_jms_reply_to(self, destination: Destination | None) -> None:
        """Set the destination for a reply (HDR-10).

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
        """The destination of the send (HDR-01); None before it."""
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
