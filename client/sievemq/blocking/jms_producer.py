"""JMSProducer (§7.10)."""

from __future__ import annotations

from typing import Any, Self

from sievemq._engine import EngineProducer, ProducerState, completion_callbacks
from sievemq._engine.jms_producer import NO_HEADERS
from sievemq.blocking.producer import Listener, send_message, wait_for_window
from sievemq.blocking.session import Session
from sievemq.blocking.transport import GATHER
from sievemq.destinations import Destination
from sievemq.exceptions import JMSException, runtime_twin
from sievemq.messages import Message

__all__ = ["JMSProducer"]


class JMSProducer(ProducerState):
    """A light producer of a context. Its methods return itself, so that calls can be chained.

    ``context.create_producer().set_priority(9).set_property("region", "EU").send(queue, "hello")``
    """

    __slots__ = ("_session",)

    def __init__(self, session: Session, engine: EngineProducer) -> None:
        super().__init__(engine)
        self._session = session

    def send(self, destination: Destination, message: Any) -> Self:
        """Send a message, or a body that a message is made around (JPR-01 … JPR-07).

        Args:
            destination: where to.
            message: a message; or a ``str`` (TextMessage), a ``dict`` with text keys (MapMessage), ``bytes``
                (BytesMessage), other plain data (ObjectMessage).

        Raises:
            InvalidDestinationRuntimeException: the destination is None, or was deleted.
            ResourceAllocationRuntimeException: as ResourceAllocationException at :meth:`MessageProducer.send`.
            MessageFormatRuntimeException: None, or a body that no message holds.
            MessageNotWriteableRuntimeException: the producer has properties, the message's are read-only (JPR-13).
        """
        try:
            engine, session = self._engine, self._session
            state = engine.session
            connection = state.connection
            if state.closed or connection.closing or connection.failure is not None:
                state.check_open()
            to = destination if isinstance(destination, Destination) else engine.target(destination)
            if not isinstance(message, Message) or self._values._properties or self._headers._fields is not NO_HEADERS:
                message = self._dress(message)
            if self._callbacks is not None:
                send_message(session, engine, message, to, self._callbacks)
                return self
            sends = engine.sends
            with session._sending:
                if sends.sequence >= sends.sequence_limit or sends.sent_bytes >= sends.byte_limit:
                    wait_for_window(session, engine.send_timeout)
                completion = engine.send(message, to)
                if completion is not None and engine.send_timeout:
                    session._transport.expect(sends, completion, engine.send_timeout, sends.sequence)
            transport = session._transport
            if completion is not None:
                transport.wait_without_limit(completion)
                return self
            if connection.sent_at != transport.written_at or connection.outbox_bytes >= GATHER:
                transport.flush()
            elif transport.asleep:
                transport.wake()
        except JMSException as error:
            raise runtime_twin(error) from error.__cause__
        return self

    def set_async(self, completion_listener: Listener | None) -> Self:
        """Make later sends asynchronous (JPR-10); None makes them synchronous again.

        Args:
            completion_listener: an object with ``on_completion(message)`` and ``on_exception(message, exception)``, or
                a pair of callables.
        """
        # What is none is refused now, not at the send.
        self._callbacks = None if completion_listener is None else completion_callbacks(completion_listener)
        self._async = completion_listener
        return self

    def get_async(self) -> Listener | None:
        """What was set (JPR-10)."""
        return self._async  # type: ignore[no-any-return]
