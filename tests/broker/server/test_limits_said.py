"""Limits that a client cannot count beforehand: the error names the limit, its number and the remedy."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest

from sievemq import ConnectionFactory, JMSContext, ResourceAllocationRuntimeException
from sievemq_broker import EmbeddedBroker


@contextmanager
def with_limits(**limits: Any) -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker() as broker:
        broker.call(lambda domain: setattr(domain, "settings", replace(domain.settings, **limits)))
        yield broker


def refused(act: Callable[[], object]) -> str:
    with pytest.raises(ResourceAllocationRuntimeException) as caught:
        act()
    return str(caught.value)


def durable(context: JMSContext, name: str) -> None:
    context.create_shared_durable_consumer(context.create_topic("t"), name).close()


def test_connections() -> None:
    with EmbeddedBroker(settings={"max_connections": 2}) as broker:
        factory = ConnectionFactory(broker.url, reconnect=0)
        contexts = [factory.create_context() for _ in range(2)]
        for context in contexts:
            context.create_temporary_queue()  # connected
        text = refused(lambda: factory.create_context().create_temporary_queue())
        assert re.search(r"has 2 connections, as many as are allowed \(max_connections\); close unused", text), text
        for context in contexts:
            context.close()


def test_subscriptions() -> None:
    with with_limits(max_subscriptions=2) as broker, ConnectionFactory(broker.url).create_context() as context:
        for name in "ab":
            durable(context, name)
        text = refused(lambda: durable(context, "c"))
        assert re.search(r"'default' has 2 durable and shared subscriptions, .* unsubscribe unused", text), text
        durable(context, "a")  # one that is there
        context.unsubscribe("a")
        durable(context, "c")


def test_destinations() -> None:
    with with_limits(max_destinations=1) as broker, ConnectionFactory(broker.url).create_context() as context:
        context.create_producer().send(context.create_queue("a"), "x")
        text = refused(lambda: context.create_producer().send(context.create_queue("b"), "x"))
        assert re.search(r"'default' has 1 destination, as many as are allowed; delete unused", text), text


def test_namespaces() -> None:
    with with_limits(max_namespaces=1) as broker, ConnectionFactory(broker.url).create_context() as context:
        context.create_temporary_queue()
        other = ConnectionFactory(f"{broker.url}/other", reconnect=0)
        text = refused(lambda: other.create_context().create_temporary_queue())
        assert re.search(r"there are 1 namespaces, as many as are allowed; delete unused", text), text
