"""What a type checker must infer from the test kit's fixtures and options, and what it must refuse. Never run."""

from __future__ import annotations

from datetime import timedelta
from typing import assert_type

from sievemq import DeliveryMode, JMSContext
from sievemq.aio import JMSContext as AioContext
from sievemq_broker import EmbeddedBroker
from sievemq_testing import (
    BrokerClock,
    BrokerFactory,
    BrokerTestCase,
    ContextOpener,
    Faults,
    QueueView,
    TestBroker,
    TestNamespace,
)


async def fixtures(
    sievemq_test_broker: TestBroker,
    sievemq_broker_factory: BrokerFactory,
    sievemq_namespace: TestNamespace,
    sievemq_aio: ContextOpener,
    sievemq_clock: BrokerClock,
    sievemq_faults: Faults,
) -> None:
    assert_type(sievemq_test_broker.clock, BrokerClock)
    assert_type(sievemq_broker_factory(users={"me": "secret"}, seed=3), TestBroker)
    sievemq_broker_factory(polices={})  # type: ignore[call-arg]
    assert_type(sievemq_namespace.queue("orders"), QueueView)
    async with sievemq_aio() as context:
        assert_type(context, AioContext)
    sievemq_aio(JMSContext.SESSION_TRANSACTED)
    sievemq_aio("transacted")  # type: ignore[call-overload]
    assert_type(sievemq_faults, Faults)
    sievemq_clock.advance(timedelta(minutes=1))


def policies(queue: QueueView) -> None:
    queue.configure(max_attempts=3, redelivery_delay=timedelta(seconds=1), at_limit="block")
    queue.configure(delivery_mode=DeliveryMode.NON_PERSISTENT, time_to_live=None)
    queue.configure(max_retries=3)  # type: ignore[call-arg]
    queue.configure(at_limit="wait")  # type: ignore[arg-type]
    TestBroker(policies={"orders": {"max_attempts": 3}}, port=0)
    TestBroker(policies={"orders": {"max_retries": 3}})  # type: ignore[dict-item]
    TestBroker(polices={})  # type: ignore[call-arg]
    EmbeddedBroker(prt=0)  # type: ignore[call-arg]


class Orders(BrokerTestCase):
    broker_options = {"policies": {"orders": {"max_attempts": 3}}}  # noqa: RUF012 - a ClassVar of the base


def context_of_a_case(case: BrokerTestCase) -> None:
    assert_type(case.create_context(JMSContext.SESSION_TRANSACTED), JMSContext)
    case.create_context("transacted")  # type: ignore[call-overload]


class Typo(BrokerTestCase):
    broker_options = {"polices": {}}  # type: ignore[typeddict-unknown-key]  # noqa: RUF012
