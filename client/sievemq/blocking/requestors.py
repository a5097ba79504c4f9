# Generated from sievemq/aio/requestors.py by client/generate_blocking.py; change that file, then run `make format`.
"""QueueRequestor and TopicRequestor (§4.1.7, §4.2.10): a request and its reply."""

from __future__ import annotations

from math import ceil
from typing import Self

from sievemq._engine import AUTO_ACKNOWLEDGE, DUPS_OK_ACKNOWLEDGE
from sievemq._front import answers, check_timeout
from sievemq.blocking.closing import Closing
from sievemq.blocking.connection import Connection
from sievemq.blocking.consumer import MessageConsumer
from sievemq.blocking.producer import MessageProducer
from sievemq.blocking.session import Session
from sievemq.blocking.waiting import Lock, now
from sievemq.destinations import Destination, Queue, TemporaryQueue, TemporaryTopic, Topic, destination_for
from sievemq.exceptions import IllegalStateException, InvalidDestinationException, JMSException
from sievemq.messages import Message
from sievemq_core.durations import Milliseconds


class _Requestor(Closing):
    """The temporary destination is made by the first request; a constructor waits for nothing."""

    def __init__(self, session: Session, destination: Queue | Topic) -> None:
        self._session = session
        self._destination = destination
        self._reply_to: TemporaryQueue | TemporaryTopic | None = None
        self._producer: MessageProducer | None = None
        self._consumer: MessageConsumer | None = None
        self._late = False  # replies to an earlier request may still come

    def __enter__(self) -> Self:
        self._open()
        return self

    def request(self, message: Message, timeout: Milliseconds | None = None) -> Message | None:
        """Send a request and wait for the reply (REQ-02). Its JMSCorrelationID is the request's JMSMessageID or
        JMSCorrelationID, or None.

        Args:
            message: its JMSReplyTo is set to the requestor's temporary destination.
            timeout: of the reply: a timedelta, or an int of milliseconds; 0 or None waits without limit. An extension.

        Returns:
            The reply; None when the time is over, or if the session is closed meanwhile.

        Raises:
            ValueError: the timeout is negative, or neither of these.
            JMSException: closed (REQ-05); or as the send raises it.
        """
        self._session._engine.check_open()
        milliseconds = None if timeout is None else check_timeout(timeout)
        producer, consumer = self._open()
        # What is left of an earlier request is none of this one's (REQ-04).
        while self._late and consumer.receive_no_wait() is not None:
            pass
        message.set_jms_reply_to(self._reply_to)
        self._late = True
        producer.send(message)
        reply = _reply(consumer, message, milliseconds)
        self._late = reply is None or isinstance(self._destination, Topic)
        return reply

    def _open(self) -> tuple[MessageProducer, MessageConsumer]:
        session = self._session
        if self._reply_to is None:
            if isinstance(self._destination, Queue):
                self._reply_to = session.create_temporary_queue()
            else:
                self._reply_to = session.create_temporary_topic()
        if self._producer is None:
            self._producer = session.create_producer(self._destination)
        if self._consumer is None:
            self._consumer = session.create_consumer(self._reply_to)
        return self._producer, self._consumer

    def close(self) -> None:
        """Close the session it was given, and delete the temporary destination (REQ-03). Idempotent."""
        if self._session._engine.closed:
            return
        transport, reply_to = self._session._transport, self._reply_to
        until = transport.close_by()
        if self._consumer is not None:
            self._consumer._end(until)
        if reply_to is not None:
            engine = self._session._connection._engine
            transport.end(lambda: engine.delete_temporary(str(reply_to)), until)
        self._session._end(until)


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


class ReplyQueue:
    """Where replies to the requests of a context arrive.

    Args:
        connection: the context's. The replies have a session of their own there.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._session: Session | None = None
        self._consumer: MessageConsumer | None = None
        self._queue: TemporaryQueue | None = None
        self._late = False  # the reply to an earlier request may still come
        self._closed = False
        self._turn = Lock()

    def request(self, destination: Destination, request: Message, timeout: int | None) -> Message | None:
        """As :meth:`JMSContext.request`; the timeout in milliseconds."""
        with self._turn:
            if self._late:
                self._drop()
            if self._session is None:
                self._session = self._connection.create_session(AUTO_ACKNOWLEDGE)
            if self._queue is None:
                self._queue = self._session.create_temporary_queue()
            if self._consumer is None:
                self._consumer = self._session.create_consumer(self._queue)
            request.set_jms_reply_to(self._queue)
            self._late = True
            producer = self._session.create_producer()
            producer.send(destination, request)
            try:
                reply = _reply(self._consumer, request, timeout)
            except IllegalStateException:
                if not self._closed:
                    raise
                return None  # closed after the send and before the wait
            self._late = reply is None
            return reply

    def _drop(self) -> None:
        if self._consumer is not None:
            self._consumer.close()
            self._consumer = None
        if self._queue is not None:
            self._queue.delete()
            self._queue = None
        self._late = False

    def close(self, until: float) -> None:
        """Close the session; a request that waits returns None.

        Args:
            until: by the clock of :meth:`Transport.close_by`, how long the broker's answer is awaited.
        """
        self._closed = True
        if self._session is not None:
            self._session._end(until)


def _reply(consumer: MessageConsumer, request: Message, timeout: int | None) -> Message | None:
    """The reply to a request; late ones to earlier requests are dropped. None when the time, in ms, is over."""
    end = now() + timeout / 1000.0 if timeout else None
    while True:
        reply = consumer.receive(timeout)
        if reply is None or answers(request, reply):
            return reply
        if end is not None:
            timeout = max(1, ceil((end - now()) * 1000.0))


def _check_session(session: Session) -> None:
    if not isinstance(session, Session):
        raise TypeError(f"a requestor needs a Session, not {session!r:.80}; a JMSContext has the method request()")
    if session.get_acknowledge_mode() not in (AUTO_ACKNOWLEDGE, DUPS_OK_ACKNOWLEDGE):
        raise JMSException("a requestor needs a session in AUTO_ACKNOWLEDGE or DUPS_OK_ACKNOWLEDGE mode")
