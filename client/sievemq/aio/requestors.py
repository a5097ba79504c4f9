"""QueueRequestor and TopicRequestor (§4.1.7, §4.2.10): a request and its reply."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from sievemq._engine import AUTO_ACKNOWLEDGE, DUPS_OK_ACKNOWLEDGE
from sievemq.aio.consumer import MessageConsumer
from sievemq.aio.producer import MessageProducer
from sievemq.aio.session import Session
from sievemq.destinations import Queue, TemporaryQueue, TemporaryTopic, Topic, destination_for
from sievemq.exceptions import InvalidDestinationException, JMSException
from sievemq.messages import Message

__all__ = ["QueueRequestor", "TopicRequestor"]


class _Requestor:
    """The temporary destination is made by the first request, since a constructor cannot wait for it."""

    def __init__(self, session: Session, destination: Queue | Topic) -> None:
        self._session = session
        self._destination = destination
        self._reply_to: TemporaryQueue | TemporaryTopic | None = None
        self._producer: MessageProducer | None = None
        self._consumer: MessageConsumer | None = None

    async def __aenter__(self) -> Self:
        await self._open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    async def request(self, message: Message) -> Message | None:
        """Send a request and wait for the reply, without a limit of time (REQ-02).

        Args:
            message: its JMSReplyTo is set to the requestor's temporary destination.

        Returns:
            The reply; None if the session is closed meanwhile.

        Raises:
            JMSException: closed (REQ-05); whatever the send raises.
        """
        self._session._engine.check_open()
        producer, consumer = await self._open()
        # What is left of an earlier request is none of this one's (REQ-04).
        while await consumer.receive_no_wait() is not None:
            pass
        message.set_jms_reply_to(self._reply_to)
        await producer.send(message)
        return await consumer.receive()

    async def _open(self) -> tuple[MessageProducer, MessageConsumer]:
        session = self._session
        if self._reply_to is None:
            if isinstance(self._destination, Queue):
                self._reply_to = await session.create_temporary_queue()
            else:
                self._reply_to = await session.create_temporary_topic()
        if self._producer is None:
            self._producer = await session.create_producer(self._destination)
        if self._consumer is None:
            self._consumer = await session.create_consumer(self._reply_to)
        return self._producer, self._consumer

    async def close(self) -> None:
        """Close the session it was given, and delete the temporary destination (REQ-03). Idempotent."""
        if self._session._engine.closed:
            return
        if self._consumer is not None:
            await self._consumer.close()
        if self._reply_to is not None:
            await self._reply_to.delete()
        await self._session.close()


class QueueRequestor(_Requestor):
    """Requests to a queue.

    Args:
        session: not transacted, AUTO or DUPS_OK (REQ-01); closed with the requestor.
        queue: where requests go.

    Raises:
        InvalidDestinationException: no queue.
        JMSException: a session of another kind, or closed.
    """

    def __init__(self, session: Session, queue: Queue) -> None:
        _check_session(session)
        if queue is None or not isinstance(destination := destination_for(queue), Queue):
            raise InvalidDestinationException(f"a QueueRequestor needs a queue, not {queue!r}")
        super().__init__(session, destination)


class TopicRequestor(_Requestor):
    """Requests to a topic; of several replies the first counts (REQ-04).

    Args:
        session: not transacted, AUTO or DUPS_OK; closed with the requestor.
        topic: where requests go.

    Raises:
        InvalidDestinationException: no topic.
        JMSException: a session of another kind, or closed.
    """

    def __init__(self, session: Session, topic: Topic) -> None:
        _check_session(session)
        if topic is None or not isinstance(destination := destination_for(topic), Topic):
            raise InvalidDestinationException(f"a TopicRequestor needs a topic, not {topic!r}")
        super().__init__(session, destination)


def _check_session(session: Session) -> None:
    if session.get_acknowledge_mode() not in (AUTO_ACKNOWLEDGE, DUPS_OK_ACKNOWLEDGE):
        raise JMSException("a requestor needs a session in AUTO_ACKNOWLEDGE or DUPS_OK_ACKNOWLEDGE mode")
