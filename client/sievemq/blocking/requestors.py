"""QueueRequestor and TopicRequestor (§4.1.7, §4.2.10): a request and its reply."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from sievemq._engine import AUTO_ACKNOWLEDGE, DUPS_OK_ACKNOWLEDGE
from sievemq.blocking.session import Session
from sievemq.destinations import Queue, TemporaryQueue, TemporaryTopic, Topic, destination_for
from sievemq.exceptions import InvalidDestinationException, JMSException
from sievemq.messages import Message

__all__ = ["QueueRequestor", "TopicRequestor"]


class _Requestor:
    def __init__(self, session: Session, destination: Queue | Topic, reply_to: TemporaryQueue | TemporaryTopic) -> None:
        self._session = session
        self._reply_to = reply_to
        self._producer = session.create_producer(destination)
        self._consumer = session.create_consumer(reply_to)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def request(self, message: Message) -> Message | None:
        """Send a request and wait for the reply, without a limit of time (REQ-02).

        Args:
            message: its JMSReplyTo is set to the requestor's temporary destination.

        Returns:
            The reply; None if the session is closed meanwhile.

        Raises:
            JMSException: closed (REQ-05); whatever the send raises.
        """
        self._session._engine.check_open()
        self._forget_late_replies()
        message.set_jms_reply_to(self._reply_to)
        self._producer.send(message)
        return self._consumer.receive()

    def _forget_late_replies(self) -> None:
        """Drop what is left of an earlier request."""

    def close(self) -> None:
        """Close the session it was given, and delete the temporary destination (REQ-03). Idempotent."""
        if self._session._engine.closed:
            return
        self._consumer.close()
        self._reply_to.delete()
        self._session.close()


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
        super().__init__(session, destination, session.create_temporary_queue())


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
        super().__init__(session, destination, session.create_temporary_topic())

    def _forget_late_replies(self) -> None:
        while self._consumer.receive_no_wait() is not None:  # REQ-04
            pass


def _check_session(session: Session) -> None:
    if session.get_acknowledge_mode() not in (AUTO_ACKNOWLEDGE, DUPS_OK_ACKNOWLEDGE):
        raise JMSException("a requestor needs a session in AUTO_ACKNOWLEDGE or DUPS_OK_ACKNOWLEDGE mode")
