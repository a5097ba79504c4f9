"""MessageProducer (§7)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypedDict, overload

from sievemq._engine import ABSENT, Absent, EngineProducer
from sievemq._front import ProducerDefaults, adopted, completion_callbacks, destination_and_message, refused
from sievemq.aio.closing import Closing
from sievemq.aio.control import Control
from sievemq.aio.listeners import CompletionListener
from sievemq.delivery_mode import DeliveryModeLike
from sievemq.destinations import Destination
from sievemq.exceptions import IllegalStateException
from sievemq.messages import Message, write_back
from sievemq.messages.foreign import Sendable
from sievemq.observers import OBSERVERS
from sievemq_core.durations import Milliseconds

Listener = CompletionListener | tuple[Callable[[Message], Any], Callable[[Message, Exception], Any]]


class SendOptions(TypedDict, total=False):
    """Keywords of a send."""

    delivery_mode: DeliveryModeLike | None
    priority: int | None
    time_to_live: Milliseconds | None
    completion_listener: Listener | Absent


class MessageProducer(ProducerDefaults, Closing):
    """Made by a session; sends to one destination, or to the one that each send names."""

    __slots__ = ("_control", "_transport")

    def __init__(self, control: Control, engine: EngineProducer) -> None:
        self._control = control
        self._engine = engine
        self._transport = control.transport

    # -- sending ------------------------------------------------------------------------------------------------------

    @overload
    async def send(
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
    async def send(
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
    async def send(
        self,
        *,
        message: Sendable,
        destination: Destination | Absent | None = ABSENT,
        delivery_mode: DeliveryModeLike | None = None,
        priority: int | None = None,
        time_to_live: Milliseconds | None = None,
        completion_listener: Listener | Absent = ABSENT,
    ) -> None: ...

    async def send(
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

        Cancelled while it waits for room, the message has not been sent and has no new id. Cancelled while it waits for
        the broker's confirm, the message is on its way as after an asynchronous send: only its confirm is ignored.

        Args:
            message: what to send.
            destination: where to, of an unidentified producer.
            delivery_mode, priority: for this send only; the producer's if not given (PRO-10).
            time_to_live: likewise, a timedelta or an int of milliseconds.
            completion_listener: makes the send asynchronous (section 12): an object with ``on_completion(message)``
                and ``on_exception(message, exception)``, or a pair of callables; may be coroutine functions.

        Raises:
            UnsupportedOperationError: a destination where the producer has its own, or none where it has none.
            InvalidDestinationException: the destination is None, or was deleted.
            MessageFormatException: no message (PRO-17).
            JMSException: a bad mode, priority or time to live (PRO-19); the connection is lost.
            ResourceAllocationException: a limit is reached; or where that makes senders wait, the message has waited as
                long as it may (``send_timeout``), and was not sent.
            ValueError: the completion listener is None (PRO-24).
        """
        if OBSERVERS:
            await self._send_observed(
                arguments, message, destination, completion_listener, (delivery_mode, priority, time_to_live)
            )
            return
        engine = self._engine
        if len(arguments) == 1 and message is ABSENT and engine.destination is not None and destination is ABSENT:
            to, message = engine.destination, arguments[0]
        else:
            named, message = destination_and_message(arguments, message, destination)
            engine.check_open()
            to = engine.target(named)
        callbacks = None if completion_listener is ABSENT else completion_callbacks(completion_listener, awaits=True)
        if not self._transport.admits(engine.sends):  # asyncio
            await self._control.make_room(engine)  # asyncio
        completion = self._control.send(engine, message, to, callbacks, delivery_mode, priority, time_to_live)
        if completion is not None:
            await self._transport.wait(completion)

    async def _send_observed(
        self,
        arguments: tuple[Any, ...],
        message: Any,
        destination: Destination | Absent | None,
        completion_listener: Any,
        options: tuple[object, object, object],
    ) -> None:
        engine = self._engine
        try:
            named, message = destination_and_message(arguments, message, destination)
            engine.check_open()
            to = engine.target(named)
            callbacks = (
                None if completion_listener is ABSENT else completion_callbacks(completion_listener, awaits=True)
            )
            ours, callbacks = adopted(message, callbacks)
        except Exception as error:
            refused(engine.session.terms, error)
            raise
        await self._control.send_observed(engine, ours, to, callbacks, *options)
        if ours is not message:
            write_back(message, ours)

    # -- closing ------------------------------------------------------------------------------------------------------

    async def close(self) -> None:
        """Close the producer; waits for its asynchronous sends and their callbacks (PRO-08). Idempotent.

        Raises:
            IllegalStateException: in a completion callback of its session (CPL-11).
        """
        if self._engine.closed:
            return
        control = self._control
        if control.calls.mine:
            raise IllegalStateException("a producer cannot be closed in a completion callback that it would wait for")
        await control.called_back()
        self._engine.close()
