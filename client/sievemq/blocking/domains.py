# Generated from sievemq/aio/domains.py by client/generate_blocking.py; change that file, then run `make format`.
"""The names of JMS 1.0.2's two domains, point-to-point and publish/subscribe, as thin classes (§9.2).

Code written against them ports word by word. Each is one of the unified classes with a few names more, and without what
does not fit its domain: that raises IllegalStateException.
"""

from __future__ import annotations

from typing import Any, NoReturn, Unpack, overload

from sievemq._engine import AUTO_ACKNOWLEDGE, EngineProducer
from sievemq.blocking.connection import Connection, session_mode_of
from sievemq.blocking.consumer import QueueReceiver, TopicSubscriber
from sievemq.blocking.factory import ConnectionFactory
from sievemq.blocking.producer import MessageProducer, SendOptions
from sievemq.blocking.session import Session
from sievemq.destinations import Destination, Queue, Topic, destination_for
from sievemq.exceptions import IllegalStateException, InvalidDestinationException
from sievemq.messages.foreign import Sendable
from sievemq.session_mode import SessionModeLike

# -- point-to-point ---------------------------------------------------------------------------------------------------


class QueueConnectionFactory(ConnectionFactory):
    """A ConnectionFactory of the point-to-point domain; same arguments."""

    __slots__ = ()

    def create_queue_connection(self, user_name: str | None = None, password: str | None = None) -> QueueConnection:
        """As :meth:`ConnectionFactory.create_connection`, with the same arguments and errors."""
        return self._connect(QueueConnection, user_name, password)


class QueueConnection(Connection):
    """A Connection of the point-to-point domain."""

    def create_queue_session(
        self, transacted: bool, acknowledge_mode: SessionModeLike = AUTO_ACKNOWLEDGE
    ) -> QueueSession:
        """As :meth:`Connection.create_session` with two arguments.

        Args:
            transacted: True for a transacted session, whatever the mode.
            acknowledge_mode: mode of a session that is not transacted.

        Raises:
            JMSException: another mode.
        """
        return self._open_session(QueueSession, session_mode_of(bool(transacted), acknowledge_mode))


class QueueSession(Session):
    """A Session of the point-to-point domain: everything about topics raises IllegalStateException (§9.2)."""

    def create_receiver(self, queue: Queue, message_selector: str | None = None) -> QueueReceiver:
        """As :meth:`Session.create_consumer` on a queue.

        Raises:
            InvalidDestinationException: None, or not a queue.
            InvalidSelectorException: with the place of the mistake.
        """
        self._engine.check_open()
        return self._open(QueueReceiver, _queue(queue), message_selector)

    def create_sender(self, queue: Queue | None = None) -> QueueSender:
        """As :meth:`Session.create_producer` for a queue, or with None for any.

        Raises:
            InvalidDestinationException: not a queue, or it cannot be sent to.
        """
        self._engine.check_open()
        destination = None if queue is None else _queue(queue)
        if destination is not None:
            address = str(destination)
            self._transport.ask(lambda: self._engine.declare(address))
        return QueueSender(self._control, EngineProducer(self._engine, destination))

    def create_topic(self, *arguments: Any, **keywords: Any) -> NoReturn:
        """IllegalStateException: there are no topics in this domain (section 35)."""
        self._refuse_topics("create_topic")

    def create_temporary_topic(self, *arguments: Any, **keywords: Any) -> NoReturn:
        """IllegalStateException: there are no topics in this domain (section 35)."""
        self._refuse_topics("create_temporary_topic")

    def create_shared_consumer(self, *arguments: Any, **keywords: Any) -> NoReturn:
        """IllegalStateException: there are no topics in this domain (section 35)."""
        self._refuse_topics("create_shared_consumer")

    def create_durable_subscriber(self, *arguments: Any, **keywords: Any) -> NoReturn:
        """IllegalStateException: there are no topics in this domain (section 35)."""
        self._refuse_topics("create_durable_subscriber")

    def create_durable_consumer(self, *arguments: Any, **keywords: Any) -> NoReturn:
        """IllegalStateException: there are no topics in this domain (section 35)."""
        self._refuse_topics("create_durable_consumer")

    def create_shared_durable_consumer(self, *arguments: Any, **keywords: Any) -> NoReturn:
        """IllegalStateException: there are no topics in this domain (section 35)."""
        self._refuse_topics("create_shared_durable_consumer")

    def unsubscribe(self, *arguments: Any, **keywords: Any) -> NoReturn:
        """IllegalStateException: there are no subscriptions in this domain (section 35)."""
        self._refuse_topics("unsubscribe")

    def _refuse_topics(self, method: str) -> NoReturn:
        self._engine.check_open()
        raise IllegalStateException(f"a QueueSession has no {method}(); use a TopicSession or a Session (§9.2)")


class QueueSender(MessageProducer):
    """A MessageProducer for a queue."""

    __slots__ = ()

    def get_queue(self) -> Queue | None:
        """The queue; None if each send names it (section 35)."""
        return self.get_destination()  # type: ignore[return-value]


# -- publish/subscribe ------------------------------------------------------------------------------------------------


class TopicConnectionFactory(ConnectionFactory):
    """A ConnectionFactory of the publish/subscribe domain; same arguments."""

    __slots__ = ()

    def create_topic_connection(self, user_name: str | None = None, password: str | None = None) -> TopicConnection:
        """As :meth:`ConnectionFactory.create_connection`, with the same arguments and errors."""
        return self._connect(TopicConnection, user_name, password)


class TopicConnection(Connection):
    """A Connection of the publish/subscribe domain."""

    def create_topic_session(
        self, transacted: bool, acknowledge_mode: SessionModeLike = AUTO_ACKNOWLEDGE
    ) -> TopicSession:
        """As :meth:`Connection.create_session` with two arguments.

        Args:
            transacted: True for a transacted session, whatever the mode.
            acknowledge_mode: mode of a session that is not transacted.

        Raises:
            JMSException: another mode.
        """
        return self._open_session(TopicSession, session_mode_of(bool(transacted), acknowledge_mode))


class TopicSession(Session):
    """A Session of the publish/subscribe domain: everything about queues raises IllegalStateException (§9.2)."""

    def create_subscriber(
        self, topic: Topic, message_selector: str | None = None, no_local: bool = False
    ) -> TopicSubscriber:
        """As :meth:`Session.create_consumer` on a topic.

        Args:
            topic: what to subscribe to, from now on.
            message_selector: condition on headers and properties; None or "" for none.
            no_local: not what this connection publishes.

        Raises:
            InvalidDestinationException: None, or not a topic.
            InvalidSelectorException: with the place of the mistake.
        """
        self._engine.check_open()
        return self._open(TopicSubscriber, _topic(topic), message_selector, no_local=no_local)

    def create_publisher(self, topic: Topic | None = None) -> TopicPublisher:
        """As :meth:`Session.create_producer` for a topic, or with None for any.

        Raises:
            InvalidDestinationException: not a topic, or it cannot be sent to.
        """
        self._engine.check_open()
        destination = None if topic is None else _topic(topic)
        if destination is not None:
            address = str(destination)
            self._transport.ask(lambda: self._engine.declare(address))
        return TopicPublisher(self._control, EngineProducer(self._engine, destination))

    def create_queue(self, *arguments: Any, **keywords: Any) -> NoReturn:
        """IllegalStateException: there are no queues in this domain (section 35)."""
        self._refuse_queues("create_queue")

    def create_temporary_queue(self, *arguments: Any, **keywords: Any) -> NoReturn:
        """IllegalStateException: there are no queues in this domain (section 35)."""
        self._refuse_queues("create_temporary_queue")

    def create_browser(self, *arguments: Any, **keywords: Any) -> NoReturn:
        """IllegalStateException: there are no queues in this domain (section 35)."""
        self._refuse_queues("create_browser")

    def _refuse_queues(self, method: str) -> NoReturn:
        self._engine.check_open()
        raise IllegalStateException(f"a TopicSession has no {method}(); use a QueueSession or a Session (§9.2)")


class TopicPublisher(MessageProducer):
    """A MessageProducer for a topic."""

    __slots__ = ()

    def get_topic(self) -> Topic | None:
        """The topic; None if each publish names it (section 35)."""
        return self.get_destination()  # type: ignore[return-value]

    @overload
    def publish(self, message: Sendable, /, **options: Unpack[SendOptions]) -> None: ...

    @overload
    def publish(self, topic: Topic, message: Sendable, /, **options: Unpack[SendOptions]) -> None: ...

    def publish(self, *arguments: Any, **options: Unpack[SendOptions]) -> None:
        """As :meth:`MessageProducer.send`: ``publish(message)``, or ``publish(topic, message)`` without a topic of its
        own; same options, same errors."""
        self.send(*arguments, **options)


def _queue(queue: object) -> Queue:
    destination = _needed(queue, "a queue")
    if not isinstance(destination, Queue):
        raise InvalidDestinationException(f"this domain has queues; {destination} is none")
    return destination


def _topic(topic: object) -> Topic:
    destination = _needed(topic, "a topic")
    if not isinstance(destination, Topic):
        raise InvalidDestinationException(f"this domain has topics; {destination} is none")
    return destination


def _needed(destination: object, what: str) -> Destination:
    if destination is None:
        raise InvalidDestinationException(f"{what} is needed, not None")
    return destination_for(destination)
