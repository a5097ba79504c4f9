"""JMSProducer (§7.10)."""

from __future__ import annotations

from typing import Self

from sievemq._engine import EngineProducer
from sievemq._front import Body, ProducerState, completion_callbacks, refused
from sievemq.aio.control import Control
from sievemq.aio.producer import Listener
from sievemq.destinations import Destination
from sievemq.exceptions import JMSException, runtime_twin
from sievemq.messages import Message
from sievemq.messages.foreign import Sendable
from sievemq.observers import OBSERVERS


class JMSProducer(ProducerState):
    """A light producer of a context. Its setters return itself, so that calls can be chained.

    ``await context.create_producer().set_priority(9).set_property("region", "EU").send(queue, "hello")``
    """

    __slots__ = ("_control", "_transport")

    def __init__(self, control: Control, engine: EngineProducer) -> None:
        super().__init__(engine)
        self._control = control
        self._transport = control.transport

    async def send(self, destination: Destination, message: Sendable | Body) -> Self:
        """Send a message, or a body that a message is made around (JPR-01 … JPR-07).

        :meth:`MessageProducer.send` describes the effect of cancelling.

        Args:
            destination: where to.
            message: a message; or a ``str`` or :class:`Json` (TextMessage), a ``dict`` with text keys (MapMessage),
                ``bytes`` (BytesMessage), other plain data (ObjectMessage).

        Raises:
            InvalidDestinationRuntimeException: the destination is None, or was deleted.
            ResourceAllocationRuntimeException: as ResourceAllocationException at :meth:`MessageProducer.send`.
            MessageFormatRuntimeException: None, or a body that no message holds.
            MessageNotWriteableRuntimeException: the producer has properties, the message's are read-only (JPR-13).
        """
        try:
            if OBSERVERS:
                await self._send_observed(destination, message)
                return self
            engine = self._engine
            if destination is not self._to:
                destination = self._target(destination)
            if self._dresses or not isinstance(message, Message):
                message = self._dress(message)
            if not self._transport.admits(engine.sends):  # asyncio
                await self._control.make_room(engine)  # asyncio
            completion = self._control.send(engine, message, destination, self._callbacks)
            if completion is not None:
                await self._transport.wait(completion)
        except JMSException as error:
            raise runtime_twin(error) from error.__cause__
        return self

    async def _send_observed(self, destination: Destination, body: object) -> None:
        try:
            to, message = self._target(destination), self._dress(body)
        except Exception as error:
            refused(self._engine.session.terms, error)
            raise
        await self._control.send_observed(self._engine, message, to, self._callbacks)

    def set_async(self, completion_listener: Listener | None) -> Self:
        """Make later sends asynchronous (JPR-10); None makes them synchronous again.

        Args:
            completion_listener: an object with ``on_completion(message)`` and ``on_exception(message, exception)``, or
                a pair of callables; may be coroutine functions.
        """
        # Anything else is refused now, not at the send.
        self._callbacks = (
            None if completion_listener is None else completion_callbacks(completion_listener, awaits=True)
        )
        self._async = completion_listener
        return self

    def get_async(self) -> Listener | None:
        """The CompletionListener that was set (JPR-10)."""
        return self._async  # type: ignore[no-any-return]
