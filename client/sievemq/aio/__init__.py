"""The asyncio API: the same names as :mod:`sievemq`, to be awaited where they wait.

    async with ConnectionFactory("sievemq://localhost").create_context() as context:
        await context.create_producer().send(context.create_queue("orders"), "hello")

What is answered locally is plain: getters, setters, ``create_queue``, ``create_text_message``, ``create_producer`` of a
context. Closeables are async context managers; a call that opens one is awaited, or stands behind ``async with``.
``async for message in consumer`` receives; listeners may be coroutine functions. Messages, destinations, selectors and
exceptions are those of :mod:`sievemq` itself.

A connection belongs to the event loop that it was made on and adds no thread. Cancelling is safe: a cancelled receive
has taken no message, a cancelled ``create_…`` leaves nothing behind, a ``close`` that has begun is carried out.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from sievemq._front import ConnectionMetaData
from sievemq.advice import DestinationNameWarning, DoubtfulSelectorWarning, SieveMQWarning, WildcardWarning
from sievemq.aio.browser import QueueBrowser
from sievemq.aio.connection import Connection
from sievemq.aio.consumer import MessageConsumer, QueueReceiver, TopicSubscriber
from sievemq.aio.context import JMSContext
from sievemq.aio.domains import (
    QueueConnection,
    QueueConnectionFactory,
    QueueSender,
    QueueSession,
    TopicConnection,
    TopicConnectionFactory,
    TopicPublisher,
    TopicSession,
)
from sievemq.aio.factory import ConnectionFactory
from sievemq.aio.jms_consumer import JMSConsumer
from sievemq.aio.jms_producer import JMSProducer
from sievemq.aio.listeners import CompletionListener, ExceptionListener, MessageListener
from sievemq.aio.producer import MessageProducer
from sievemq.aio.requestors import QueueRequestor, TopicRequestor
from sievemq.aio.session import Session
from sievemq.delivery_mode import DeliveryMode
from sievemq.destinations import Destination, Queue, TemporaryQueue, TemporaryTopic, Topic
from sievemq.exceptions import (
    IllegalStateException,
    IllegalStateRuntimeException,
    InvalidClientIDException,
    InvalidClientIDRuntimeException,
    InvalidDestinationException,
    InvalidDestinationRuntimeException,
    InvalidSelectorException,
    InvalidSelectorRuntimeException,
    InvalidURLException,
    JMSException,
    JMSRuntimeException,
    JMSSecurityException,
    JMSSecurityRuntimeException,
    MessageEOFException,
    MessageFormatException,
    MessageFormatRuntimeException,
    MessageNotReadableException,
    MessageNotWriteableException,
    MessageNotWriteableRuntimeException,
    NullValueError,
    NumberFormatError,
    Reject,
    ResourceAllocationException,
    ResourceAllocationRuntimeException,
    TransactionInProgressException,
    TransactionInProgressRuntimeException,
    TransactionRolledBackException,
    TransactionRolledBackRuntimeException,
    UnsupportedOperationError,
)
from sievemq.messages import (
    BytesMessage,
    Json,
    MapMessage,
    Message,
    ObjectMessage,
    StreamMessage,
    TextMessage,
    register_type,
)
from sievemq.selector import Selector
from sievemq.session_mode import SessionMode
from sievemq_core.message.values import Byte, Char, Double, Float, Int, Long, Short

if TYPE_CHECKING:
    from sievemq.aio.listening import Listeners
    from sievemq.listening import Header, Property, Retry

__all__ = [
    "Byte",
    "BytesMessage",
    "Char",
    "CompletionListener",
    "Connection",
    "ConnectionFactory",
    "ConnectionMetaData",
    "DeliveryMode",
    "Destination",
    "DestinationNameWarning",
    "Double",
    "DoubtfulSelectorWarning",
    "ExceptionListener",
    "Float",
    "Header",
    "IllegalStateException",
    "IllegalStateRuntimeException",
    "Int",
    "InvalidClientIDException",
    "InvalidClientIDRuntimeException",
    "InvalidDestinationException",
    "InvalidDestinationRuntimeException",
    "InvalidSelectorException",
    "InvalidSelectorRuntimeException",
    "InvalidURLException",
    "JMSConsumer",
    "JMSContext",
    "JMSException",
    "JMSProducer",
    "JMSRuntimeException",
    "JMSSecurityException",
    "JMSSecurityRuntimeException",
    "Json",
    "Listeners",
    "Long",
    "MapMessage",
    "Message",
    "MessageConsumer",
    "MessageEOFException",
    "MessageFormatException",
    "MessageFormatRuntimeException",
    "MessageListener",
    "MessageNotReadableException",
    "MessageNotWriteableException",
    "MessageNotWriteableRuntimeException",
    "MessageProducer",
    "NullValueError",
    "NumberFormatError",
    "ObjectMessage",
    "Property",
    "Queue",
    "QueueBrowser",
    "QueueConnection",
    "QueueConnectionFactory",
    "QueueReceiver",
    "QueueRequestor",
    "QueueSender",
    "QueueSession",
    "Reject",
    "ResourceAllocationException",
    "ResourceAllocationRuntimeException",
    "Retry",
    "Selector",
    "Session",
    "SessionMode",
    "Short",
    "SieveMQWarning",
    "StreamMessage",
    "TemporaryQueue",
    "TemporaryTopic",
    "TextMessage",
    "Topic",
    "TopicConnection",
    "TopicConnectionFactory",
    "TopicPublisher",
    "TopicRequestor",
    "TopicSession",
    "TopicSubscriber",
    "TransactionInProgressException",
    "TransactionInProgressRuntimeException",
    "TransactionRolledBackException",
    "TransactionRolledBackRuntimeException",
    "UnsupportedOperationError",
    "WildcardWarning",
    "register_type",
]


def __getattr__(name: str) -> object:
    """What an application that has no listeners need not load."""
    if name in ("Header", "Listeners", "Property", "Retry"):
        home = import_module("sievemq.aio.listening" if name == "Listeners" else "sievemq.listening")
        globals()[name] = value = getattr(home, name)
        return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
