"""The shop with asyncio."""

from __future__ import annotations

import asyncio

import pytest

from sievemq import TextMessage
from sievemq.aio import ConnectionFactory, JMSRuntimeException
from sievemq_broker.domain.broker import Broker
from sievemq_broker.domain.topic import Topic
from sievemq_testing import BrokerClock, ContextOpener, Faults, TestNamespace

from .aio_shop import payment_service, place, watch, work
from .orders import ORDERS, PRICES, Order

pytestmark = pytest.mark.asyncio
SOON = 60.0
ORDER = Order("o1", "EU", 990)


@pytest.fixture
def factory(sievemq_url: str) -> ConnectionFactory:
    return ConnectionFactory(sievemq_url)


async def test_an_order_is_paid_and_shipped(
    shop: TestNamespace, factory: ConnectionFactory, sievemq_aio: ContextOpener
) -> None:
    async with sievemq_aio() as desk, payment_service(factory) as charged:
        await place(desk, ORDER)
        await work(factory, 1)
        assert charged == {"o1": 990}
    (shipment,) = shop.queue("shipments").assert_received(count=1)
    assert Order.of(shipment) == ORDER


@pytest.mark.parametrize(("amount", "target"), [(100_000, "shipments"), (100_001, "declined")])
async def test_the_limit(
    shop: TestNamespace, factory: ConnectionFactory, sievemq_aio: ContextOpener, amount: int, target: str
) -> None:
    async with sievemq_aio() as desk, payment_service(factory):
        await place(desk, Order("o1", "EU", amount))
        await work(factory, 1)
    shop.queue(target).assert_received(count=1)


async def test_ten_workers_share_fifty_orders(
    shop: TestNamespace, factory: ConnectionFactory, sievemq_aio: ContextOpener
) -> None:
    async with sievemq_aio() as desk, payment_service(factory) as charged:
        for number in range(50):
            await place(desk, Order(f"o{number}", "EU", 1))
        await asyncio.gather(*(work(factory, 5) for _ in range(10)))
        assert len(charged) == 50
    shop.queue("shipments").assert_received(count=50)
    shop.queue("orders").assert_empty()


async def test_a_silent_payment_service_makes_a_dead_letter(
    shop: TestNamespace, factory: ConnectionFactory, sievemq_aio: ContextOpener, sievemq_clock: BrokerClock
) -> None:
    async with sievemq_aio() as desk:
        await place(desk, ORDER)
    for wait in (1, 10, 100):
        await work(factory, 1, patience=10)
        await sievemq_clock.advance(seconds=wait)
    shop.queue("orders").assert_dead_letters(count=1, reason="attempts")


async def test_what_is_no_order_is_put_back(
    shop: TestNamespace, factory: ConnectionFactory, sievemq_aio: ContextOpener, sievemq_clock: BrokerClock
) -> None:
    await sievemq_clock.freeze()
    async with sievemq_aio() as desk:
        await desk.create_producer().send(ORDERS, TextMessage("not an order"))
    await work(factory, 1)
    assert len(shop.queue("orders").scheduled()) == 1


async def test_an_order_expires(
    shop: TestNamespace, factory: ConnectionFactory, sievemq_aio: ContextOpener, sievemq_clock: BrokerClock
) -> None:
    async with sievemq_aio() as desk:
        await place(desk, ORDER, valid_for=60_000)
        await sievemq_clock.advance(seconds=60)
    assert shop.queue("orders").expired == 1


async def test_a_lost_connection_gives_the_order_back(
    shop: TestNamespace,
    factory: ConnectionFactory,
    sievemq_aio: ContextOpener,
    sievemq_faults: Faults,
    sievemq_clock: BrokerClock,
) -> None:
    async with sievemq_aio() as desk, payment_service(factory):
        await place(desk, ORDER)
        sievemq_faults.drop_on("commit")
        with pytest.raises(JMSRuntimeException):
            await work(factory, 1)
        await sievemq_clock.advance(seconds=1)
        await work(factory, 1)
    shop.queue("shipments").assert_received(count=1)


async def test_a_refused_commit_is_raised_and_ships_nothing(
    shop: TestNamespace, factory: ConnectionFactory, sievemq_aio: ContextOpener, sievemq_faults: Faults
) -> None:
    async with sievemq_aio() as desk, payment_service(factory):
        await place(desk, ORDER)
        sievemq_faults.refuse("commit")
        with pytest.raises(JMSRuntimeException):
            await work(factory, 1)
    shop.queue("shipments").assert_received(count=0)


@pytest.mark.parametrize(
    ("selector", "seen"),
    [
        ("symbol = 'ACME'", ["ACME 1", "ACME 9"]),
        ("price BETWEEN 5 AND 10", ["ACME 9", "INIT 6"]),
        ("symbol LIKE 'IN%' AND price > 5", ["INIT 6"]),
    ],
)
async def test_prices(shop: TestNamespace, sievemq_aio: ContextOpener, selector: str, seen: list[str]) -> None:
    async with sievemq_aio() as watching, sievemq_aio() as board:
        watcher = asyncio.create_task(watch(watching, selector, len(seen)))
        await asyncio.to_thread(shop.broker.wait_for, lambda _: bool(_subscriptions(shop, _)), SOON)
        producer = board.create_producer()
        for symbol, price in (("ACME", 1), ("ACME", 9), ("INIT", 2), ("INIT", 6)):
            producer.set_property("symbol", symbol).set_property("price", price)
            await producer.send(PRICES, f"{symbol} {price}")
        assert sorted(await watcher) == seen


def _subscriptions(shop: TestNamespace, broker: Broker) -> bool:
    """On the broker's thread: is somebody subscribed?"""
    namespace = broker.namespaces.get(shop.name)
    topic = namespace and namespace.destinations.get("topic:prices")
    return isinstance(topic, Topic) and bool(topic.subscriptions)
