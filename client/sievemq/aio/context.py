"""JMSContext (§2.8): a connection and one session in one object. Everything fails with the runtime exceptions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Self

from sievemq._engine import (
    AUTO_ACKNOWLEDGE,
    CLIENT_ACKNOWLEDGE,
    DUPS_OK_ACKNOWLEDGE,
    SESSION_TRANSACTED,
    Blocked,
    EngineProducer,
)
from sievemq._front import Body, ConnectionMetaData, check_timeout, message_for, translated
from sievemq.aio.browser import QueueBrowser
from sievemq.aio.closing import Closing
from sievemq.aio.connection import Connection
from sievemq.aio.consumer import MessageConsumer
from sievemq.aio.jms_consumer import JMSConsumer
from sievemq.aio.jms_producer import JMSProducer
from sievemq.aio.listeners import ExceptionListener
from sievemq.aio.opening import opening
from sievemq.aio.requestors import ReplyQueue
from sievemq.aio.runtime import translated_coroutine
from sievemq.aio.session import Session
from sievemq.destinations import Destination, Queue, TemporaryQueue, TemporaryTopic, Topic
from sievemq.exceptions import IllegalStateException, JMSException
from sievemq.messages import BytesMessage, Json, MapMessage, Message, ObjectMessage, StreamMessage, TextMessage
from sievemq.messages.foreign import Sendable
from sievemq.object_codec import PlainData
from sievemq.session_mode import SessionMode, SessionModeLike
from sievemq_core.durations import Milliseconds


class JMSContext(Closing):
    """Made by :meth:`ConnectionFactory.create_context`; starts its connection with the first consumer (CTX-07).

    Belongs to the loop it was made on, and to one task at a time as a :class:`Session` does (THR-02); `create_context`
    and `close` may be called from any task.
    """

    SESSION_TRANSACTED: Final = SESSION_TRANSACTED
    AUTO_ACKNOWLEDGE: Final = AUTO_ACKNOWLEDGE
    CLIENT_ACKNOWLEDGE: Final = CLIENT_ACKNOWLEDGE
    DUPS_OK_ACKNOWLEDGE: Final = DUPS_OK_ACKNOWLEDGE

    def __init__(self, connection: Connection, session: Session) -> None:
        self._connection = connection
        self._session = session
        self._replies = ReplyQueue(connection)
        self._auto_start = True
        self._number = connection._context_opened()

    @classmethod
    async def _open(cls, connection: Connection, session_mode: SessionModeLike) -> Self:
        # The session alone must not make it too late for a client id: a context is born with one (CTX-03).
        return cls(connection, await connection._create_session(session_mode, is_action=False))

    def __repr__(self) -> str:
        return f"<JMSContext on {self._connection!r}: {self._session!r}>"

    # -- the connection -----------------------------------------------------------------------------------------------

    @opening
    @translated_coroutine
    async def create_context(self, session_mode: SessionModeLike) -> JMSContext:
        """A further context on the same connection (CTX-01); does not start it. May be called from any task.

        Raises:
            JMSRuntimeException: not one of the four modes.
        """
        self._session._engine.check_open()
        return await JMSContext._open(self._connection, session_mode)

    @translated
    def get_client_id(self) -> str | None:
        """The connection's client id (CTX-03)."""
        self._session._engine.check_open()
        return self._connection.get_client_id()

    @translated_coroutine
    async def set_client_id(self, client_id: str | None) -> None:
        """Claim a client id for the connection, before anything else is done (CTX-03)."""
        self._session._engine.check_open()
        await self._connection.set_client_id(client_id)

    @translated
    def get_meta_data(self) -> ConnectionMetaData:
        """Versions and features (CTX-04)."""
        self._session._engine.check_open()
        return self._connection.get_meta_data()

    @translated
    def get_exception_listener(self) -> ExceptionListener | Callable[[JMSException], Any] | None:
        """The connection's exception listener (CTX-04)."""
        self._session._engine.check_open()
        return self._connection.get_exception_listener()

    @translated
    def set_exception_listener(self, listener: ExceptionListener | Callable[[JMSException], Any] | None) -> None:
        """Set the listener for problems of the connection (CTX-04, EXL-06)."""
        self._session._engine.check_open()
        self._connection.set_exception_listener(listener)

    @property
    @translated
    def blocked(self) -> tuple[Blocked, ...]:
        """As :meth:`Connection.blocked`."""
        self._session._engine.check_open()
        return self._connection.blocked

    @translated_coroutine
    async def start(self) -> None:
        """Start the connection, for all its contexts (CTX-05)."""
        self._session._engine.check_open()
        await self._connection.start()

    @translated_coroutine
    async def stop(self) -> None:
        """Stop the connection, for all its contexts (CTX-05).

        Raises:
            IllegalStateRuntimeException: in a message listener of any context on it (CLO-11).
        """
        self._session._engine.check_open()
        await self._connection.stop()

    @translated
    def set_auto_start(self, auto_start: bool) -> None:
        """Whether creating a consumer starts the connection; True by default (CTX-06)."""
        self._session._engine.check_open()
        self._auto_start = bool(auto_start)

    @translated
    def get_auto_start(self) -> bool:
        """Whether creating a consumer starts the connection (CTX-06)."""
        self._session._engine.check_open()
        return self._auto_start

    @translated_coroutine
    async def close(self) -> None:
        """Close the session and all it created; with the last context the connection closes too (CTX-08). Idempotent.

        Once begun it is carried out, cancelled or not.

        Raises:
            IllegalStateRuntimeException: in its own listener (CLO-11) or completion callback (CLO-13).
        """
        connection = self._connection
        if connection._has_context(self._number):
            self._session._control.check_may_close("the context")
            if connection._context_closed(self._number):
                await connection.close()
            else:
                until = connection._transport.close_by()
                await self._replies.close(until)
                await self._session._end(until)

    # -- the session --------------------------------------------------------------------------------------------------

    @translated
    def create_message(self) -> Message:
        """A message without a body (CTX-09)."""
        return self._session.create_message()

    @translated
    def create_text_message(self, text: str | Json | None = None) -> TextMessage:
        """A text message (CTX-09)."""
        return self._session.create_text_message(text)

    @translated
    def create_bytes_message(self) -> BytesMessage:
        """A bytes message, write-only (CTX-09)."""
        return self._session.create_bytes_message()

    @translated
    def create_map_message(self) -> MapMessage:
        """A map message (CTX-09)."""
        return self._session.create_map_message()

    @translated
    def create_stream_message(self) -> StreamMessage:
        """A stream message, write-only (CTX-09)."""
        return self._session.create_stream_message()

    @translated
    def create_object_message(self, obj: PlainData | None = None) -> ObjectMessage:
        """An object message with a snapshot of plain data (CTX-09)."""
        return self._session.create_object_message(obj)

    @translated
    def get_transacted(self) -> bool:
        """True if the session is transacted (CTX-10)."""
        return self._session.get_transacted()

    @translated
    def get_session_mode(self) -> SessionMode:
        """The mode given at creation (CTX-10)."""
        return self._session.get_acknowledge_mode()

    @translated_coroutine
    async def commit(self) -> None:
        """As :meth:`Session.commit` (CTX-11)."""
        await self._session.commit()

    @translated_coroutine
    async def rollback(self) -> None:
        """As :meth:`Session.rollback` (CTX-11)."""
        await self._session.rollback()

    @translated_coroutine
    async def recover(self) -> None:
        """As :meth:`Session.recover` (CTX-11)."""
        await self._session.recover()

    @translated_coroutine
    async def acknowledge(self) -> None:
        """Acknowledge everything this session has consumed, in CLIENT_ACKNOWLEDGE mode; else no effect (CTX-15)."""
        await self._session._acknowledge()

    @translated
    def create_producer(self) -> JMSProducer:
        """A producer; a light object (CTX-02)."""
        self._session._engine.check_open()
        self._connection._engine.mark_used()
        return JMSProducer(self._session._control, EngineProducer(self._session._engine, None))

    @opening
    @translated_coroutine
    async def create_consumer(
        self, destination: Destination, message_selector: str | None = None, no_local: bool = False
    ) -> JMSConsumer:
        """A consumer; starts the connection unless auto-start is off (CTX-07, CTX-12).

        As :meth:`Session.create_consumer`, with its arguments; its exceptions as their runtime twins.
        """
        return await self._consumer(await self._session.create_consumer(destination, message_selector, no_local))

    @opening
    @translated_coroutine
    async def create_shared_consumer(
        self, topic: Topic, shared_subscription_name: str, message_selector: str | None = None
    ) -> JMSConsumer:
        """A consumer of a shared non-durable subscription (CTX-13).

        As :meth:`Session.create_shared_consumer`, with its arguments; its exceptions as their runtime twins.
        """
        return await self._consumer(
            await self._session.create_shared_consumer(topic, shared_subscription_name, message_selector)
        )

    @opening
    @translated_coroutine
    async def create_durable_consumer(
        self, topic: Topic, name: str, message_selector: str | None = None, no_local: bool = False
    ) -> JMSConsumer:
        """A consumer of an unshared durable subscription (CTX-13).

        As :meth:`Session.create_durable_consumer`, with its arguments; its exceptions as their runtime twins.
        """
        return await self._consumer(
            await self._session.create_durable_consumer(topic, name, message_selector, no_local)
        )

    @opening
    @translated_coroutine
    async def create_shared_durable_consumer(
        self, topic: Topic, name: str, message_selector: str | None = None
    ) -> JMSConsumer:
        """A consumer of a shared durable subscription (CTX-13).

        As :meth:`Session.create_shared_durable_consumer`, with its arguments; its exceptions as their runtime twins.
        """
        return await self._consumer(await self._session.create_shared_durable_consumer(topic, name, message_selector))

    async def _consumer(self, consumer: MessageConsumer) -> JMSConsumer:
        self._connection._engine.mark_used()
        if self._auto_start:
            await self._connection.start()
        return JMSConsumer(consumer)

    @translated_coroutine
    async def request(
        self, destination: Destination, message: Sendable | Body, timeout: Milliseconds | None = None
    ) -> Message | None:
        """Send a request and wait for its reply. An extension.

        It is sent and its reply received outside of the context's session: at once in a transacted context, too, and
        also where the context has listeners. The first request makes a temporary queue for replies.
        Tasks that request at once take turns.

        Args:
            destination: the destination of the request.
            message: a message, whose JMSReplyTo is set; or a body, as of :meth:`JMSProducer.send`.
            timeout: of the reply: a timedelta, or an int of milliseconds; 0 or None waits without limit.

        Returns:
            The reply. A message whose JMSCorrelationID names another request is none, and a late reply is dropped.
            None when the time is over, or if the context is closed meanwhile.

        Raises:
            ValueError: the timeout is negative, or neither of these.
            IllegalStateRuntimeException: the connection is stopped, and :meth:`set_auto_start` is off.
            JMSRuntimeException: as the send raises it.
        """
        self._session._engine.check_open()
        milliseconds = None if timeout is None else check_timeout(timeout)
        request = message_for(message)
        if self._auto_start:
            await self._connection.start()
        elif not self._connection._engine.started:
            raise IllegalStateException("the connection is stopped, and no reply would come: call start() first")
        return await self._replies.request(destination, request, milliseconds)

    @translated
    def create_queue(self, queue_name: str) -> Queue:
        """Name a queue (CTX-14)."""
        return self._session.create_queue(queue_name)

    @translated
    def create_topic(self, topic_name: str) -> Topic:
        """Name a topic (CTX-14)."""
        return self._session.create_topic(topic_name)

    @translated_coroutine
    async def create_temporary_queue(self) -> TemporaryQueue:
        """A queue that lives as long as the connection (CTX-14, TMP-12)."""
        return await self._session.create_temporary_queue()

    @translated_coroutine
    async def create_temporary_topic(self) -> TemporaryTopic:
        """A topic that lives as long as the connection (CTX-14, TMP-12)."""
        return await self._session.create_temporary_topic()

    @opening
    @translated_coroutine
    async def create_browser(self, queue: Queue, message_selector: str | None = None) -> QueueBrowser:
        """A browser of a queue (CTX-14); needs no started connection (D-36).

        As :meth:`Session.create_browser`, with its arguments; its exceptions as their runtime twins.
        """
        return await self._session.create_browser(queue, message_selector)

    @translated_coroutine
    async def unsubscribe(self, name: str) -> None:
        """Delete a durable subscription (CTX-14)."""
        await self._session.unsubscribe(name)
