"""Which reply answers a request."""

from __future__ import annotations

from sievemq.messages import Message

__all__ = ["answers"]


def answers(request: Message, reply: Message) -> bool:
    """False if the reply names another request: by the JMSCorrelationID, which is to be the request's JMSMessageID or
    JMSCorrelationID. One without a correlation id answers the request that waits."""
    correlation_id = reply.get_jms_correlation_id()
    return correlation_id is None or correlation_id in (request.get_jms_message_id(), request.get_jms_correlation_id())
