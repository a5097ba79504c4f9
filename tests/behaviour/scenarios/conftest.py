"""A broker over a real socket for every story."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from sievemq import ConnectionFactory, JMSContext
from sievemq_broker import EmbeddedBroker


@pytest.fixture
def broker() -> Iterator[EmbeddedBroker]:
    """A fresh broker on a free port of the loopback."""
    with EmbeddedBroker() as broker:
        yield broker


@pytest.fixture
def context(broker: EmbeddedBroker) -> Iterator[JMSContext]:
    """A blocking context of that broker, AUTO_ACKNOWLEDGE."""
    with ConnectionFactory(broker.url).create_context() as context:
        yield context
