"""What the shop's tests share: its parts, in the namespace that the plugin gives each test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from sievemq import ConnectionFactory
from sievemq_testing import TestNamespace

from .shop import OrderDesk, OrderWorker, PaymentService


@pytest.fixture
def factory(sievemq_url: str) -> ConnectionFactory:
    return ConnectionFactory(sievemq_url, reconnect_delay=1)


@pytest.fixture
def desk(factory: ConnectionFactory) -> Iterator[OrderDesk]:
    with OrderDesk(factory) as desk:
        yield desk


@pytest.fixture
def payments(factory: ConnectionFactory) -> Iterator[PaymentService]:
    with PaymentService(factory) as payments:
        yield payments


@pytest.fixture
def worker(factory: ConnectionFactory) -> Iterator[OrderWorker]:
    with OrderWorker(factory) as worker:
        yield worker


@pytest.fixture
def shop(sievemq_namespace: TestNamespace) -> TestNamespace:
    """The test's namespace, with the shop's rules: three attempts, a second and then ten between them."""
    sievemq_namespace.queue("orders").configure(max_attempts=3, redelivery_delay=1_000, redelivery_factor=10.0)
    return sievemq_namespace
