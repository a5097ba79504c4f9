"""SieveMQ's client: the Jakarta Messaging 3.1 API in Python.

>>> from sievemq import Queue, TextMessage
>>> message = TextMessage("hello", properties={"region": "EU"})
>>> message.get_text(), message.get_string_property("region"), str(Queue("orders"))
('hello', 'EU', 'queue:orders')

The names are loaded when they are first used: the ``sievemq`` command starts brokers and asks for their health, and
does not wait for a client that it has no use for.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sievemq.advice import DestinationNameWarning, DoubtfulSelectorWarning, SieveMQWarning, WildcardWarning
    from sievemq.blocking import (
        CompletionListener,
        Connection,
        ConnectionFactory,
        ConnectionMetaData,
        ExceptionListener,
        JMSConsumer,
        JMSContext,
        JMSProducer,
        MessageConsumer,
        MessageListener,
        MessageProducer,
        QueueBrowser,
        QueueConnection,
        QueueConnectionFactory,
        QueueReceiver,
        QueueRequestor,
        QueueSender,
        QueueSession,
        Session,
        TopicConnection,
        TopicConnectionFactory,
        TopicPublisher,
        TopicRequestor,
        TopicSession,
        TopicSubscriber,
    )
    from sievemq.blocking.listening import Listeners
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
    from sievemq.listening import Header, Property, Retry
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

_HOMES = (
    "sievemq.messages",
    "sievemq.advice",
    "sievemq.destinations",
    "sievemq.delivery_mode",
    "sievemq.session_mode",
    "sievemq.exceptions",
    "sievemq_core.message.values",
    "sievemq.selector",
    "sievemq.blocking",
    "sievemq.listening",
    "sievemq.blocking.listening",
)


def __getattr__(name: str) -> object:
    if name in __all__:
        for home in _HOMES:
            module = import_module(home)
            if hasattr(module, name):
                globals()[name] = value = getattr(module, name)
                return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
