"""Types of answers: each module has what the routes of the module of its name beside this folder answer.

Times are ms since 1970-01-01 UTC by the broker's clock; 0 where there is none.
"""

from __future__ import annotations

from sievemq_broker.server.http.api.answers.actions import Touched
from sievemq_broker.server.http.api.answers.brokers import BlockedPlace, BrokerInfo, Holdings, Memory
from sievemq_broker.server.http.api.answers.common import Counters, Error, Rates
from sievemq_broker.server.http.api.answers.connections import Connection, Connections
from sievemq_broker.server.http.api.answers.consumers import Consumer, Consumers
from sievemq_broker.server.http.api.answers.dead_letters import DeadLetterGroup, DeadLetterQueue, DeadLetters
from sievemq_broker.server.http.api.answers.destinations import Destination, DestinationDetails, Destinations
from sievemq_broker.server.http.api.answers.messages import Body, Message, MessageDetails, Messages, Sent, Value
from sievemq_broker.server.http.api.answers.namespaces import Namespace, Namespaces
from sievemq_broker.server.http.api.answers.selectors import Advice, CheckedSelector, ExplainedSelector, PortabilityNote
from sievemq_broker.server.http.api.answers.series import Series
from sievemq_broker.server.http.api.answers.subscriptions import Subscription, Subscriptions
from sievemq_broker.server.http.api.answers.taps import Retention, Tap, Taps
from sievemq_broker.server.http.api.answers.whoami import Right, Session

__all__ = [
    "Advice",
    "BlockedPlace",
    "Body",
    "BrokerInfo",
    "CheckedSelector",
    "Connection",
    "Connections",
    "Consumer",
    "Consumers",
    "Counters",
    "DeadLetterGroup",
    "DeadLetterQueue",
    "DeadLetters",
    "Destination",
    "DestinationDetails",
    "Destinations",
    "Error",
    "ExplainedSelector",
    "Holdings",
    "Memory",
    "Message",
    "MessageDetails",
    "Messages",
    "Namespace",
    "Namespaces",
    "PortabilityNote",
    "Rates",
    "Retention",
    "Right",
    "Sent",
    "Series",
    "Session",
    "Subscription",
    "Subscriptions",
    "Tap",
    "Taps",
    "Touched",
    "Value",
]
