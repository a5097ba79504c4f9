"""Session (§6.2): makes everything else, acknowledges, commits, and belongs to one task at a time."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, Protocol, TypeVar

from sievemq._engine import (
    AUTO_ACKNOWLEDGE,
    CLIENT_ACKNOWLEDGE,
    DUPS_OK_ACKNOWLEDGE,
    SESSION_TRANSACTED,
    ClientConnection,
    Completion,
    EngineBrowser,
    EngineProducer,
    EngineSession,
)
from sievemq._front import failure_of, is_gone, settling, weakly
from sievemq.aio.acknowledging import nothing
from sievemq.aio.browser import QueueBrowser
from sievemq.aio.closing import Closing
from sievemq.aio.consumer import MessageConsumer, QueueReceiver, TopicSubscriber
from sievemq.aio.control import Control
from sievemq.aio.opening import opening
from sievemq.aio.producer import MessageProducer
from sievemq.aio.transport import Transport
from sievemq.aio.waiting import Once
from sievemq.destinations import (
    Destination,
    Queue,
    TemporaryQueue,
    TemporaryTopic,
    Topic,
    destination_for,
    parse_destination,
    warn_of_notation,
)
from sievemq.exceptions import IllegalStateException, InvalidDestinationException, JMSException
from sievemq.messages import BytesMessage, Json, MapMessage, Message, ObjectMessage, StreamMessage, TextMessage
from sievemq.object_codec import PlainData
from sievemq.session_mode import SessionMode

C = TypeVar("C", bound=MessageConsumer)
M = TypeVar("M", bound=Message)


class _Connection(Protocol):
    """What a session needs of its connection, which it keeps alive."""

    _engine: ClientConnection
    _transport: Transport

    def _forget(self, session: Session) -> None:
        """The session is closed."""


class Session(Closing):
    """Created by :meth:`Connection.create_session`. Belongs to the loop it was made on.

    One task at a time receives, acknowledges and ends transactions in it (THR-02); several may send; `close` may be
    called from any task. With a listener it belongs to its delivery task, except for sends: a call such as `recover`
    from another task waits until no listener is running.

    ``message.acknowledge()`` of a message received here acknowledges at once, and what it returns can be awaited to
    hear the broker's answer. So can that of a message that the session made, which has no effect.
    """

    SESSION_TRANSACTED: Final = SESSION_TRANSACTED
    AUTO_ACKNOWLEDGE: Final = AUTO_ACKNOWLEDGE
    CLIENT_ACKNOWLEDGE: Final = CLIENT_ACKNOWLEDGE
    DUPS_OK_ACKNOWLEDGE: Final = DUPS_OK_ACKNOWLEDGE

    def __init__(self, connection: _Connection, engine: EngineSession) -> None:
        self._connection = connection
        self._engine = engine
        self._transport = connection._transport
        self._control = Control(engine, self._transport, self)
        self._closing = Once(self._transport)
        engine.call_to_acknowledge(weakly(self._control.acknowledge, is_gone))

    def __repr__(self) -> str:
        return f"<Session {self._engine.id} {self._engine.mode.name}{', closed' if self._engine.closed else ''}>"

    # -- messages -----------------------------------------------------------------------------------------------------

    def create_message(self) -> Message:
        """A message without a body (SES-01)."""
        return self._made(Message)

    def create_text_message(self, text: str | Json | None = None) -> TextMessage:
        """A text message (SES-02, SES-03)."""
        return self._made(TextMessage, text)

    def create_bytes_message(self) -> BytesMessage:
        """A bytes message, write-only (SES-04)."""
        return self._made(BytesMessage)

    def create_map_message(self) -> MapMessage:
        """A map message (SES-05)."""
        return self._made(MapMessage)

    def create_stream_message(self) -> StreamMessage:
        """A stream message, write-only (SES-06)."""
        return self._made(StreamMessage)

    def create_object_message(self, obj: PlainData | None = None) -> ObjectMessage:
        """An object message with a snapshot of plain data (SES-07, SES-08)."""
        return self._made(ObjectMessage, obj)

    def _made(self, kind: Callable[..., M], *body: object) -> M:
        self._engine.check_open()
        message = kind(*body)
        message._call_to_acknowledge(nothing)  # asyncio: no effect (MSG-02), but as awaitable as that of a received one
        return message

    # -- mode ---------------------------------------------------------------------------------------------------------

    def get_transacted(self) -> bool:
        """True if the session is transacted (SES-10)."""
        self._engine.check_open()
        return self._engine.transacted

    def get_acknowledge_mode(self) -> SessionMode:
        """The mode (SES-11)."""
        self._engine.check_open()
        return self._engine.mode

    # -- transactions, recovery ---------------------------------------------------------------------------------------

    async def commit(self) -> None:
        """Publish all sends and acknowledge all messages received since the last commit or rollback (TXN-10).

        If it is cancelled, its outcome is open: the next call on the session raises if it was rolled back (D-41).

        Raises:
            IllegalStateException: the session is not transacted (TXN-08), or in its own completion callback (CPL-11).
            TransactionRolledBackException: it ended as a rollback (TXN-09), such as one that has waited for room as
                long as it may (``send_timeout``). Or so did one before it, whose outcome was open.
            JMSException: the outcome of one before it is not known within the option `request_timeout`.
        """
        with settling("commit", self._engine.terms):
            await self._end_transaction("commit", self._commit)

    async def _commit(self) -> None:
        transport, engine = self._transport, self._engine
        await self._control.settle_doubts()
        completion = transport.call(engine.commit)
        timeout = engine.terms.options.send_timeout
        if timeout:
            await transport.wait(transport.expect_commit(engine.sends, completion, timeout))
        await transport.wait(completion)  # at a limit where senders wait

    async def rollback(self) -> None:
        """Drop all sends; received messages are redelivered with JMSRedelivered set (TXN-04).

        Raises:
            IllegalStateException: the session is not transacted (TXN-08), or in its own completion callback (CPL-11).
            TransactionRolledBackException: a commit() whose outcome was open was rolled back, too (D-41).
        """
        with settling("rollback", self._engine.terms):
            await self._end_transaction("rollback", self._rollback)

    async def _rollback(self, failure: Mapping[str, object] | None = None) -> None:
        await self._control.settle_doubts()
        await self._transport.ask(lambda: self._engine.rollback(failure))
        self._engine.outcomes.tell()

    async def _roll_back_for(self, error: BaseException) -> None:
        """As :meth:`rollback`, because a listener raised this."""
        failure = failure_of(error, self._engine.retry_rule)
        with settling("rollback", self._engine.terms):
            await self._end_transaction("rollback", lambda: self._rollback(failure))

    async def recover(self) -> None:
        """Redeliver the messages that were received and not acknowledged, with JMSRedelivered set (ACK-08).

        Raises:
            IllegalStateException: the session is transacted (ACK-12).
        """
        with settling("recover", self._engine.terms):
            self._engine.check_open()
            await self._control.exclusively(self._recover)

    async def _recover(self) -> None:
        await self._control.raise_doubts()
        await self._control.recover()

    async def _stage(self, key: str, batch: int, lease: int) -> str:
        self._engine.check_open()
        await self._control.raise_doubts()
        name: str = await self._control.conclude(lambda: self._engine.stage(key, batch, lease))
        return name

    async def _acknowledge(self) -> None:
        with settling("acknowledge", self._engine.terms):
            await self._control.raise_doubts()
            await self._control.conclude(self._engine.acknowledge)

    async def _end_transaction(self, verb: str, act: Callable[[], Awaitable[Any]]) -> None:
        self._engine.check_open()
        if self._control.calls.mine:
            raise IllegalStateException(f"{verb}() is not allowed in a completion callback of the session (CPL-11)")
        if not self._engine.transacted:
            raise IllegalStateException(f"{verb}() is for transacted sessions")
        self._control.check_alone()
        self._transport.call(lambda: self._engine.begin(verb))
        outcomes = self._engine.outcomes
        try:
            await self._control.settle_sends()
            await self._control.exclusively(act)
        except JMSException as error:
            outcomes.hear(error)
            raise
        outcomes.hear()

    # -- destinations -------------------------------------------------------------------------------------------------

    def create_queue(self, queue_name: str) -> Queue:
        """Name a queue; it is made at its first use (SES-28).

        Raises:
            InvalidDestinationException: the name is not allowed.
        """
        self._engine.check_open()
        return Queue(queue_name)

    def create_topic(self, topic_name: str) -> Topic:
        """Name a topic (SES-29).

        Raises:
            InvalidDestinationException: the name is not allowed.
        """
        self._engine.check_open()
        return Topic(topic_name)

    async def create_temporary_queue(self) -> TemporaryQueue:
        """A queue that lives as long as the connection (SES-30, TMP-05). Its ``delete()`` is to be awaited."""
        return TemporaryQueue(*await self._create_temporary(topic=False))

    async def create_temporary_topic(self) -> TemporaryTopic:
        """A topic that lives as long as the connection (SES-31). Its ``delete()`` is to be awaited."""
        return TemporaryTopic(*await self._create_temporary(topic=True))

    async def _create_temporary(self, topic: bool) -> tuple[str, Callable[[], Awaitable[None]]]:
        self._engine.check_open()
        engine, transport = self._connection._engine, self._transport
        address: str = await transport.ask(lambda: engine.create_temporary(topic))

        async def delete() -> None:
            await transport.ask(lambda: engine.delete_temporary(address))

        return parse_destination(address).name, delete

    async def unsubscribe(self, name: str) -> None:
        """Delete a durable subscription of this client id, or of no id (SES-27).

        Raises:
            InvalidDestinationException: there is no such subscription (SUB-24).
            JMSException: it has a consumer, or messages not yet acknowledged (SUB-25, SUB-26).
        """
        self._engine.check_open()
        if not isinstance(name, str) or not name:
            raise InvalidDestinationException(f"a subscription's name is needed, not {name!r}")
        await self._transport.undone()  # a consumer of it whose caller no longer waits
        await self._transport.ask(lambda: self._engine.unsubscribe(name))

    # -- producers, consumers, browsers -------------------------------------------------------------------------------

    @opening
    async def create_producer(self, destination: Destination | None = None) -> MessageProducer:
        """A producer for a destination, or with None an unidentified one (SES-18).

        Raises:
            InvalidDestinationException: the destination cannot be sent to.
        """
        self._engine.check_open()
        if destination is not None:
            destination = destination_for(destination)
            address = str(destination)
            await self._transport.ask(lambda: self._engine.declare(address))
        return MessageProducer(self._control, EngineProducer(self._engine, destination))

    @opening
    async def create_consumer(
        self, destination: Destination, message_selector: str | None = None, no_local: bool = False
    ) -> MessageConsumer:
        """A consumer of a queue, or of a topic from now on (SES-19 … SES-21).

        Args:
            destination: queue or topic.
            message_selector: condition on headers and properties; None or "" for none (SES-22).
            no_local: of a topic, not what this connection publishes; ignored for a queue.

        Raises:
            InvalidDestinationException: None, or not usable here (TMP-03).
            InvalidSelectorException: with the place of the mistake (SEL-01).
        """
        self._engine.check_open()
        destination = _needed(destination)
        kind = QueueReceiver if isinstance(destination, Queue) else TopicSubscriber
        return await self._open(
            kind, destination, message_selector, no_local=no_local and isinstance(destination, Topic)
        )

    @opening
    async def create_shared_consumer(
        self, topic: Topic, shared_subscription_name: str, message_selector: str | None = None
    ) -> MessageConsumer:
        """A consumer of a shared non-durable subscription (SES-23, SUB-02).

        Args:
            topic: what to subscribe to.
            shared_subscription_name: of the subscription, which ends with its last consumer; each of its messages goes
                to one of them.
            message_selector: condition on headers and properties; None or "" for none.

        Raises:
            InvalidDestinationException: None, or not a topic.
            InvalidSelectorException: with the place of the mistake.
            JMSException: the subscription is in use with another topic or selector (SUB-14).
        """
        self._engine.check_open()
        return await self._open(
            TopicSubscriber, _topic(topic), message_selector, name=shared_subscription_name, shared=True
        )

    @opening
    async def create_durable_subscriber(
        self, topic: Topic, name: str, message_selector: str | None = None, no_local: bool = False
    ) -> TopicSubscriber:
        """A consumer of an unshared durable subscription (SES-24, SUB-03).

        Args:
            topic: what to subscribe to.
            name: of the subscription, within the connection's client id; it collects messages until it is unsubscribed.
            message_selector: condition on headers and properties; None or "" for none.
            no_local: not what this connection, or another with its client id, publishes (SUB-21).

        Raises:
            IllegalStateException: the connection has no client id (SUB-10).
            InvalidDestinationException: None, not a topic, or a temporary one (TMP-10).
            InvalidSelectorException: with the place of the mistake.
            JMSException: the subscription has a consumer (SUB-11), or is a shared one (SUB-16).
        """
        self._engine.check_open()
        return await self._open(
            TopicSubscriber, _topic(topic), message_selector, name=name, durable=True, no_local=no_local
        )

    @opening
    async def create_durable_consumer(
        self, topic: Topic, name: str, message_selector: str | None = None, no_local: bool = False
    ) -> MessageConsumer:
        """As :meth:`create_durable_subscriber`, with the same arguments and errors (SES-25)."""
        return await self.create_durable_subscriber(topic, name, message_selector, no_local)

    @opening
    async def create_shared_durable_consumer(
        self, topic: Topic, name: str, message_selector: str | None = None
    ) -> MessageConsumer:
        """A consumer of a shared durable subscription (SES-26, SUB-04).

        Args:
            topic: what to subscribe to.
            name: of the subscription, within the connection's client id if it has one; it collects messages until
                :meth:`unsubscribe`, and each goes to one of its consumers.
            message_selector: condition on headers and properties; None or "" for none.

        Raises:
            InvalidDestinationException: None, not a topic, or a temporary one (TMP-10).
            InvalidSelectorException: with the place of the mistake.
            JMSException: it is in use with another topic or selector (SUB-14), or is an unshared one (SUB-16).
        """
        self._engine.check_open()
        return await self._open(TopicSubscriber, _topic(topic), message_selector, name=name, durable=True, shared=True)

    async def _open(
        self,
        kind: type[C],
        destination: Destination,
        selector: str | None,
        *,
        no_local: bool = False,
        name: str | None = None,
        durable: bool = False,
        shared: bool = False,
    ) -> C:
        warn_of_notation(destination)
        # One whose caller no longer waits may hold messages, or a subscription of the same name (SUB-11, SUB-14).
        await self._transport.undone()
        made: list[C] = []

        def open_consumer() -> Completion[Any]:
            engine = self._engine.open_consumer(
                destination,
                str(destination),
                selector,
                no_local=bool(no_local),
                subscription=name,
                durable=durable,
                shared=shared,
            )
            made.append(kind(self._control, engine))
            return engine.opened

        await self._transport.ask(open_consumer)
        return made[0]

    @opening
    async def create_browser(self, queue: Queue, message_selector: str | None = None) -> QueueBrowser:
        """A browser of a queue (SES-32).

        Args:
            queue: the queue to browse; no message is removed.
            message_selector: condition on headers and properties; None or "" for none.

        Raises:
            InvalidDestinationException: None, or not a queue (BRW-12).
            InvalidSelectorException: with the place of the mistake.
        """
        self._engine.check_open()
        destination = _needed(queue)
        if not isinstance(destination, Queue):
            raise InvalidDestinationException(f"only a queue can be browsed, not {destination}")
        engine = self._transport.call(lambda: EngineBrowser(self._engine, destination, message_selector))
        await self._transport.ask(lambda: engine.opened)
        return QueueBrowser(self._control, engine)

    # -- closing ------------------------------------------------------------------------------------------------------

    async def close(self) -> None:
        """Close the session and all it created; a transaction is rolled back (CLO-03, TXN-05). Idempotent.

        Waits for a running listener (CLO-08) and for asynchronous sends (CPL-09); a receive that waits in another task
        returns None (CLO-06). Once begun it is carried out, cancelled or not.

        On a lost connection it does not wait for the broker; else no longer than the option `close_timeout`. What was
        sent is still delivered if the broker comes back while the connection is open.

        Raises:
            IllegalStateException: in its own listener (CLO-10) or completion callback (CLO-13).
        """
        await self._end(self._transport.close_by())

    async def _end(self, until: float) -> None:
        """Close it; until then, by the clock of :meth:`Transport.close_by`, it may wait for the broker."""
        if self._engine.closed:
            return
        self._control.check_may_close("the session")
        await self._closing.run(lambda: self._close(until))

    async def _close(self, until: float) -> None:
        with self._transport.lock:
            self._engine.shut_gate()
        try:
            await self._control.leave(min(self._transport.close_by(0.8), until))
            await self._transport.end(self._engine.close, until)
        except JMSException:
            if self._engine.outbox.failure is None:  # else it is closed by the connection's end
                raise
        finally:
            self._connection._forget(self)


def _needed(destination: object) -> Destination:
    if destination is None:
        raise InvalidDestinationException("a destination is needed, not None")
    return destination_for(destination)


def _topic(topic: object) -> Topic:
    destination = _needed(topic)
    if not isinstance(destination, Topic):
        raise InvalidDestinationException(f"a subscription is made on a topic, not on {destination}")  # SES-33
    return destination
