"""MessageProducer (§7)."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import Any, Self, TypedDict, overload

from sievemq._engine import ABSENT, Absent, EngineProducer
from sievemq._front import ProducerDefaults, completion_callbacks, destination_and_message
from sievemq.blocking.control import Control
from sievemq.blocking.listeners import CompletionListener
from sievemq.blocking.transport import Transport
from sievemq.delivery_mode import DeliveryModeLike
from sievemq.destinations import Destination
from sievemq.exceptions import IllegalStateException
from sievemq.messages import Message
from sievemq.messages.foreign import Sendable
from sievemq_core.durations import Milliseconds

__all__ = ["MessageProducer", "SendOptions", "send_message"]

Listener = CompletionListener | tuple[Callable[[Message], None], Callable[[Message, Exception], None]]


class SendOptions(TypedDict, total=False):
    """Keywords of a send."""

    delivery_mode: DeliveryModeLike | None
    priority: int | None
    time_to_live: Milliseconds | None
    completion_listener: Listener | Absent


class MessageProducer(ProducerDefaults):
    """Made by a session; sends to one destination, or to the one that each send names."""

    __slots__ = ("_control",)

    def __init__(self, control: Control, engine: EngineProducer) -> None:
        self._control = control
        self._engine = engine

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    # -- sending ------------------------------------------------------------------------------------------------------

    @overload
    def send(
        self,
        message: Sendable,
        /,
        *,
        destination: Destination | Absent | None = ABSENT,
        delivery_mode: DeliveryModeLike | None = None,
        priority: int | None = None,
        time_to_live: Milliseconds | None = None,
        completion_listener: Listener | Absent = ABSENT,
    ) -> None: ...

    @overload
    def send(
        self,
        destination: Destination | None,
        message: Sendable,
        /,
        *,
        delivery_mode: DeliveryModeLike | None = None,
        priority: int | None = None,
        time_to_live: Milliseconds | None = None,
        completion_listener: Listener | Absent = ABSENT,
    ) -> None: ...

    @overload
    def send(
        self,
        *,
        message: Sendable,
        destination: Destination | Absent | None = ABSENT,
        delivery_mode: DeliveryModeLike | None = None,
        priority: int | None = None,
        time_to_live: Milliseconds | None = None,
        completion_listener: Listener | Absent = ABSENT,
    ) -> None: ...

    def send(
        self,
        *arguments: Any,
        message: Sendable | Absent = ABSENT,
        destination: Destination | Absent | None = ABSENT,
        delivery_mode: DeliveryModeLike | None = None,
        priority: int | None = None,
        time_to_live: Milliseconds | None = None,
        completion_listener: Listener | Absent = ABSENT,
    ) -> None:
        """Send a message: ``send(message)``, or of an unidentified producer ``send(destination, message)`` (D-27).

        Returns when the message is as safe as its mode promises (D-24); then its provider-set headers can be read
        (PRO-21). The object can be changed and sent again at once (PRO-22).

        Args:
            message: what to send.
            destination: where to, of an unidentified producer.
            delivery_mode, priority: for this send only; the producer's if not given (PRO-10).
            time_to_live: likewise, a timedelta or an int of milliseconds.
            completion_listener: makes the send asynchronous (section 12): an object with ``on_completion(message)``
                and ``on_exception(message, exception)``, or a pair of callables.

        Raises:
            UnsupportedOperationError: a destination where the producer has its own, or none where it has none.
            InvalidDestinationException: the destination is None, or was deleted.
            MessageFormatException: no message (PRO-17).
            JMSException: a bad mode, priority or time to live (PRO-19); the connection is lost.
            ResourceAllocationException: a limit is reached; or where that makes senders wait, the message has waited as
                long as it may (``send_timeout``), and was not sent.
            ValueError: the completion listener is None (PRO-24).
        """
        engine = self._engine
        if len(arguments) == 1 and message is ABSENT and engine.destination is not None and destination is ABSENT:
            to, message = engine.destination, arguments[0]
        else:
            named, message = destination_and_message(arguments, message, destination)
            engine.check_open()
            to = engine.target(named)
        if completion_listener is not ABSENT:
            callbacks = completion_callbacks(completion_listener, awaits=False)
            send_message(self._control, engine, message, to, callbacks, delivery_mode, priority, time_to_live)
            return
        control, sends = self._control, engine.sends
        with control.sending:
            if sends.sequence >= sends.sequence_limit or sends.sent_bytes >= sends.byte_limit:
                wait_for_window(control.transport, engine)
            try:
                completion = engine.send(message, to, None, delivery_mode, priority, time_to_live)
            except BaseException as error:
                if sends.torn:
                    control.transport.broken(error, sends)
                raise
            if completion is not None and engine.send_timeout:
                control.transport.expect(sends, completion, engine.send_timeout, sends.sequence)
        transport = control.transport
        if completion is not None:
            transport.wait_without_limit(completion)
            return
        transport.queued(sends)

    # -- closing ------------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Close the producer; waits for its asynchronous sends and their callbacks (PRO-08). Idempotent.

        Raises:
            IllegalStateException: in a completion callback of its session (CPL-11).
        """
        if self._engine.closed:
            return
        control = self._control
        if control.calls.mine:
            raise IllegalStateException("a producer cannot be closed in a completion callback that it would wait for")
        control.settle_sends()
        self._engine.close()


def wait_for_window(transport: Transport, engine: EngineProducer) -> None:
    """Wait until the broker has taken enough of what the session sent.

    Args:
        transport: of the connection.
        engine: the producer that is to send; its `send_timeout` says how long at most, in ms, 0 for ever.

    Raises:
        IllegalStateException: the producer or its session is closed.
        JMSException: the connection failed, or there was no room in time.
    """
    engine.check_open()
    timeout = engine.send_timeout
    sends = engine.sends
    with transport.lock:
        completion = sends.window_opens()
    if timeout:
        transport.expect(sends, completion, timeout)
    transport.wait_without_limit(completion)


def send_message(
    control: Control,
    engine: EngineProducer,
    message: object,
    destination: Destination,
    callbacks: tuple[Callable[..., Any], Callable[..., Any]],
    delivery_mode: DeliveryModeLike | None = None,
    priority: int | None = None,
    time_to_live: Milliseconds | None = None,
) -> None:
    """Send asynchronously (section 12): the session's completion thread calls one of `callbacks`."""
    calls, sends = control.calls, engine.sends
    with control.sending:
        calls.begin()
        try:
            if sends.sequence >= sends.sequence_limit or sends.sent_bytes >= sends.byte_limit:
                wait_for_window(control.transport, engine)
            engine.send(message, destination, callbacks, delivery_mode, priority, time_to_live)
            if engine.send_timeout:
                control.transport.expect(sends, None, engine.send_timeout, sends.sequence)
        except BaseException as error:
            calls.cancel()  # CPL-03
            if sends.torn:
                control.transport.broken(error, sends)
            raise
    control.transport.queued(sends, heeded=True)
