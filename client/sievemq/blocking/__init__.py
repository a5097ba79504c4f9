"""The blocking API: what ``from sievemq import …`` gives."""

from __future__ import annotations

from sievemq._front import ConnectionMetaData
from sievemq.blocking.browser import QueueBrowser
from sievemq.blocking.connection import Connection
from sievemq.blocking.consumer import MessageConsumer, QueueReceiver, TopicSubscriber
from sievemq.blocking.context import JMSContext
from sievemq.blocking.domains import (
    QueueConnection,
    QueueConnectionFactory,
    QueueSender,
    QueueSession,
    TopicConnection,
    TopicConnectionFactory,
    TopicPublisher,
    TopicSession,
)
from sievemq.blocking.factory import ConnectionFactory
from sievemq.blocking.jms_consumer import JMSConsumer
from sievemq.blocking.jms_producer import JMSProducer
from sievemq.blocking.listeners import CompletionListener, ExceptionListener, MessageListener
from sievemq.blocking.producer import MessageProducer
from sievemq.blocking.requestors import QueueRequestor, TopicRequestor
from sievemq.blocking.session import Session

__all__ = [
    "CompletionListener",
    "Connection",
    "ConnectionFactory",
    "ConnectionMetaData",
    "ExceptionListener",
    "JMSConsumer",
    "JMSContext",
    "JMSProducer",
    "MessageConsumer",
    "MessageListener",
    "MessageProducer",
    "QueueBrowser",
    "QueueConnection",
    "QueueConnectionFactory",
    "QueueReceiver",
    "QueueRequestor",
    "QueueSender",
    "QueueSession",
    "Session",
    "TopicConnection",
    "TopicConnectionFactory",
    "TopicPublisher",
    "TopicRequestor",
    "TopicSession",
    "TopicSubscriber",
]
