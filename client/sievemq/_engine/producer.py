"""The send path: defaults of a producer, checks of a send call, ids and times, the packed SEND."""

from __future__ import annotations

from typing import Any, Final

from sievemq._engine.outbox import Completion
from sievemq._engine.sends import Callbacks, of_another
from sievemq._engine.session import EngineSession
from sievemq.destinations import Destination, destination_for
from sievemq.exceptions import (
    IllegalStateException,
    InvalidDestinationException,
    JMSException,
    UnsupportedOperationError,
)
from sievemq.messages import Message, adopt, write_back
from sievemq.messages.base import NEW_FIELDS
from sievemq_core.durations import milliseconds
from sievemq_core.message.headers import (
    DEFAULT_DELIVERY_DELAY,
    DEFAULT_DELIVERY_MODE,
    DEFAULT_PRIORITY,
    DEFAULT_TIME_TO_LIVE,
)
from sievemq_core.wire.codec import pack_fields, send_start


class Absent:
    """The type of :data:`ABSENT`."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "<absent>"


#: An argument that was not given, where None means something (PY-14, PRO-16, PRO-24).
ABSENT: Final = Absent()

_LONGEST: Final = 2**62  # ms; a time to live or delay beyond it would leave the range of a long when added to a time

_NEVER: Final = -1  # no time of a send
_REST: Final = NEW_FIELDS[6:]


class EngineProducer:
    """A producer of a session; it exists at this end only.

    Args:
        destination: where it sends; None for an unidentified producer (SES-18).

    Attributes:
        delivery_mode, priority, time_to_live, delivery_delay, disable_message_id, disable_timestamp: defaults of its
            sends (PRO-01 … PRO-06); set them through the ``set_…`` methods, which check.
        sends: of its session, that are not settled.
        send_timeout: ms that a send may wait for room, 0 for ever.
    """

    __slots__ = (
        "_decided", "_decided_at", "_decided_mode", "_decided_packed", "_id_prefix", "_longer_from", "_start", "_text",
        "closed", "delivery_delay", "delivery_mode", "destination", "disable_message_id", "disable_timestamp",
        "priority", "send_timeout", "sends", "session", "time_to_live",
    )  # fmt: skip

    def __init__(self, session: EngineSession, destination: Destination | None) -> None:
        self.session = session
        self.sends = session.sends
        self.destination = destination
        self.delivery_mode: int = DEFAULT_DELIVERY_MODE
        self.priority: int = DEFAULT_PRIORITY
        self.time_to_live: int = DEFAULT_TIME_TO_LIVE
        self.delivery_delay: int = DEFAULT_DELIVERY_DELAY
        self.disable_message_id = self.disable_timestamp = False
        self.send_timeout = session.terms.options.send_timeout
        self.closed = False
        self._decided_at = _NEVER
        self._decided: tuple[Any, ...] = ()
        self._decided_mode = 0
        self._decided_packed = b""
        self._start: tuple[bytes, bytes] = (b"", b"")
        self._text = self._id_prefix = ""
        self._longer_from = 0

    def close(self) -> None:
        """Close it; the broker need not be informed."""
        self.closed = True

    # -- defaults ----------------------------------------------------------------------------------------------------

    def check_open(self) -> None:
        """Raise unless the producer, its session and its connection are open (PRO-26, CLO-19)."""
        if self.closed:
            raise IllegalStateException("the producer is closed")
        self.session.check_open()

    def set_disable_message_id(self, disabled: object) -> None:
        """Send without message ids (PRO-01)."""
        self.disable_message_id = bool(disabled)

    def set_disable_timestamp(self, disabled: object) -> None:
        """Send without timestamps (PRO-02)."""
        self.disable_timestamp = bool(disabled)
        self._decided_at = _NEVER

    def set_delivery_mode(self, delivery_mode: object) -> None:
        """Default delivery mode; other than 1 and 2: JMSException (PRO-03)."""
        self.delivery_mode = _mode(delivery_mode)
        self._decided_at = _NEVER

    def set_priority(self, priority: object) -> None:
        """Default priority; outside 0 … 9: JMSException (PRO-04)."""
        self.priority = _priority(priority)
        self._decided_at = _NEVER

    def set_time_to_live(self, time_to_live: object) -> None:
        """Default time to live in ms, 0 for ever; negative: JMSException (PRO-05)."""
        self.time_to_live = _duration("a time to live", time_to_live)
        self._decided_at = _NEVER

    def set_delivery_delay(self, delivery_delay: object) -> None:
        """Delivery delay in ms; negative: JMSException (PRO-06)."""
        self.delivery_delay = _duration("a delivery delay", delivery_delay)
        self._decided_at = _NEVER

    def set_send_timeout(self, timeout: object) -> None:
        """How long a send may wait for room, in ms, 0 for ever; negative: JMSException."""
        self.send_timeout = _duration("a send timeout", timeout)

    # -- sending -----------------------------------------------------------------------------------------------------

    def target(self, destination: object) -> Destination:
        """The destination of a send.

        Args:
            destination: what the call named; ABSENT if it named none.

        Raises:
            UnsupportedOperationError: named although the producer has its own (PRO-15), or missing (PRO-14).
            InvalidDestinationException: None (PRO-16), or no destination.
        """
        own = self.destination
        if own is not None:
            if destination is not ABSENT:
                raise UnsupportedOperationError(
                    f"this producer sends to {own}: name no destination in send(), or make a producer without one"
                )
            return own
        if destination is ABSENT:
            raise UnsupportedOperationError(
                "this producer was made without a destination: name one, send(destination, message)"
            )
        if destination is None:
            raise InvalidDestinationException("a message cannot be sent to None")
        return destination_for(destination)

    def send(
        self,
        message: Any,
        destination: Destination,
        callbacks: Callbacks | None = None,
        delivery_mode: object = None,
        priority: object = None,
        time_to_live: object = None,
    ) -> Completion[None] | None:
        """Send a message: check, fix its id and times (D-26), queue it. Belongs to the session's thread of control.

        The caller has seen that the session's window is not full, and flushes afterwards.

        Args:
            message: a SieveMQ message, or any object with the methods of one (D-31).
            callbacks: for an asynchronous send; one will be among the session's `sends.calls`.
            delivery_mode, priority, time_to_live: None for the producer's (D-27).

        Returns:
            A completion that the caller must wait for, or None if the send need not wait (D-24).

        Raises:
            JMSException: a bad mode, priority or time to live; nothing is sent (PRO-19).
            MessageFormatException: the message is None or cannot be encoded (PRO-17).
            ResourceAllocationException: the body is larger than the broker takes.
            IllegalStateException: something is closed.
        """
        session, sends = self.session, self.sends
        outbox, terms = session.outbox, session.terms
        if self.closed or session.closed or outbox.closing or outbox.failure is not None:
            self.check_open()
        now = terms.read() + terms.ahead
        if now != self._decided_at or not (delivery_mode is priority is time_to_live is None):
            self._decide(now, delivery_mode, priority, time_to_live)
        decided, mode = self._decided, self._decided_mode
        text = destination._text
        if self.disable_message_id:
            message_id, digits = None, ""
            self._address(text, None)
        else:
            number = terms.next_message()
            if number >= self._longer_from or text is not self._text or terms.id_prefix is not self._id_prefix:
                self._address(text, number)
            digits = str(number)
            message_id = self._id_prefix + digits
        try:
            packed = message._to_send(
                self._start,
                sends.sequence + 1,
                digits,
                self._decided_packed,
                terms.max_body,
                message_id,
                decided,
                destination,
            )
        except AttributeError:
            if isinstance(message, Message):
                raise
            ours = adopt(message)  # another implementation's (MSG-21), or MessageFormatException
            if callbacks is not None:
                callbacks = of_another(message, callbacks)
            completion = self.send(ours, destination, callbacks, delivery_mode, priority, time_to_live)
            write_back(message, ours)
            return completion
        return sends.add(packed, message, mode, callbacks)

    # The common part of most sends is built once, while the millisecond, the producer's defaults, the destination and
    # the length of the ids stay the same.

    def _decide(self, now: int, delivery_mode: object, priority: object, time_to_live: object) -> None:
        """The headers of a send at this time (HDR-14)."""
        self._decided_at = _NEVER
        # Else it is so for this send only.
        usual = delivery_mode is priority is time_to_live is None and not self.disable_timestamp
        mode = self.delivery_mode if delivery_mode is None else _mode(delivery_mode)
        urgency = self.priority if priority is None else _priority(priority)
        lives = self.time_to_live if time_to_live is None else _duration("a time to live", time_to_live)
        timestamp = 0 if self.disable_timestamp else now
        expiration = now + lives if lives else 0  # HDR-03, TXN-14: counted from here
        # HDR-04. Without a delay it is the timestamp, which travels once.
        delivery_time = now + self.delivery_delay if self.delivery_delay or self.disable_timestamp else 0
        decided = (timestamp, urgency, mode, expiration, delivery_time)
        self._decided = decided + _REST
        self._decided_mode = mode
        self._decided_packed = pack_fields(decided)
        if usual:
            self._decided_at = now

    def _address(self, text: str, number: int | None) -> None:
        """The beginning of a send to a destination, without its sequence and the digits of the message's number.

        Args:
            number: of the message; None where ids are disabled.
        """
        self._longer_from = 0  # until all of it is built: an interrupt may come before
        prefix = self.session.terms.id_prefix
        digits = "" if number is None else str(number)
        message_id = None if number is None else prefix + digits
        self._start = send_start(self.session.id, text, message_id, len(digits))
        self._text, self._id_prefix = text, prefix
        if number is not None:
            self._longer_from = 10 ** len(digits)


def _mode(delivery_mode: Any) -> int:
    if not isinstance(delivery_mode, int) or isinstance(delivery_mode, bool) or not 1 <= delivery_mode <= 2:
        raise JMSException(
            f"{delivery_mode!r} is not a delivery mode; use DeliveryMode.PERSISTENT or DeliveryMode.NON_PERSISTENT"
        )
    return int(delivery_mode)  # a plain int travels


def _priority(priority: Any) -> int:
    if type(priority) is not int or not 0 <= priority <= 9:
        raise JMSException(f"{priority!r} is not a priority; priorities are 0 to 9")
    return priority


def _duration(what: str, value: object) -> int:
    try:
        whole = milliseconds(what, value)
    except ValueError as error:
        raise JMSException(str(error)) from None
    if whole > _LONGEST:
        raise JMSException(f"{what} may be {_LONGEST} ms at most, not {value!r:.60}")
    return whole
