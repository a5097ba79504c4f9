"""The test kit: a broker to watch, disturb and move through time, and a pytest plugin around it.

    from sievemq_testing import TestBroker

    with TestBroker() as broker:
        ...                                     # the application, with broker.url
        broker.clock.advance(seconds=60)
        broker.queue("orders").assert_consumed(count=3, within=1)

Names are loaded when they are used: pytest imports this package in every project that has SieveMQ installed.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sievemq_testing.broker import TestBroker, TestNamespace
    from sievemq_testing.faults import Faults, Rule
    from sievemq_testing.fixtures import BrokerClock, BrokerFactory, ContextOpener, ListenersRunner
    from sievemq_testing.journal import Event, Journal
    from sievemq_testing.recording import Replay
    from sievemq_testing.remote import RemoteBroker
    from sievemq_testing.snapshot import Snapshot
    from sievemq_testing.unittest import BrokerTestCase
    from sievemq_testing.views import ConnectionView, ConsumerView, QueueView, TopicView

__all__ = [
    "BrokerClock",
    "BrokerFactory",
    "BrokerTestCase",
    "ConnectionView",
    "ConsumerView",
    "ContextOpener",
    "Event",
    "Faults",
    "Journal",
    "ListenersRunner",
    "QueueView",
    "RemoteBroker",
    "Replay",
    "Rule",
    "Snapshot",
    "TestBroker",
    "TestNamespace",
    "TopicView",
]

_HOMES = {
    "BrokerClock": "fixtures",
    "BrokerFactory": "fixtures",
    "BrokerTestCase": "unittest",
    "ConnectionView": "views",
    "ConsumerView": "views",
    "ContextOpener": "fixtures",
    "Event": "journal",
    "Faults": "faults",
    "Journal": "journal",
    "ListenersRunner": "fixtures",
    "QueueView": "views",
    "RemoteBroker": "remote",
    "Replay": "recording",
    "Rule": "faults",
    "Snapshot": "snapshot",
    "TestBroker": "broker",
    "TestNamespace": "broker",
    "TopicView": "views",
}


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{home}"), name)
