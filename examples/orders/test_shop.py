"""The shop as it should be: orders, payments, prices."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from sievemq import ConnectionFactory, TextMessage
from sievemq_broker.embedded import BrokerClock
from sievemq_testing import TestNamespace

from .orders import ORDERS, Order
from .shop import OrderDesk, OrderWorker, PaymentService, PriceBoard, PriceWatch

SOON = 60.0


def test_an_order_is_paid_and_shipped(
    shop: TestNamespace, desk: OrderDesk, payments: PaymentService, worker: OrderWorker
) -> None:
    desk.place(Order("o1", "EU", 990))
    assert worker.work()
    (shipment,) = shop.queue("shipments").assert_received(count=1)
    assert Order.of(shipment) == Order("o1", "EU", 990)
    assert payments.charged == {"o1": 990}
    shop.queue("orders").assert_empty(within=SOON)


def test_what_is_not_paid_is_not_shipped(
    shop: TestNamespace, desk: OrderDesk, payments: PaymentService, worker: OrderWorker
) -> None:
    desk.place(Order("o1", "EU", 100_001))
    assert worker.work()
    shop.queue("shipments").assert_received(count=0)
    shop.queue("declined").assert_received("amount = 100001", count=1)
    assert payments.charged == {}


@pytest.mark.parametrize(("amount", "target"), [(1, "shipments"), (100_000, "shipments"), (100_001, "declined")])
def test_the_limit(
    shop: TestNamespace, desk: OrderDesk, payments: PaymentService, worker: OrderWorker, amount: int, target: str
) -> None:
    desk.place(Order("o1", "EU", amount))
    worker.work()
    shop.queue(target).assert_received(count=1)


def test_express_goes_first(
    shop: TestNamespace, desk: OrderDesk, payments: PaymentService, factory: ConnectionFactory
) -> None:
    desk.place(Order("slow", "EU", 1))
    desk.place(Order("fast", "EU", 1, express=True))
    with OrderWorker(factory) as worker:
        assert worker.work()
        assert worker.work()
    shipped = [Order.of(message).number for message in shop.queue("shipments").assert_received(count=2)]
    assert shipped == ["fast", "slow"]


def test_orders_of_equal_urgency_keep_their_order(
    shop: TestNamespace, desk: OrderDesk, payments: PaymentService, worker: OrderWorker
) -> None:
    for number in range(10):
        desk.place(Order(f"o{number}", "EU", 1))
    for _ in range(10):
        assert worker.work()
    shipped = [Order.of(message).number for message in shop.queue("shipments").messages()]
    assert shipped == [f"o{number}" for number in range(10)]


@pytest.mark.parametrize(
    ("selector", "taken"),
    [
        ("region = 'EU'", ["eu-big", "eu-small"]),
        ("region <> 'EU'", ["us"]),
        ("amount >= 500", ["eu-big", "us"]),
        ("region = 'EU' AND amount < 500", ["eu-small"]),
        ("region IN ('JP', 'US') OR amount > 800", ["eu-big", "us"]),
        ("region LIKE 'J%'", []),
    ],
)
def test_workers_may_choose(
    shop: TestNamespace,
    desk: OrderDesk,
    payments: PaymentService,
    factory: ConnectionFactory,
    selector: str,
    taken: list[str],
) -> None:
    for order in (Order("eu-big", "EU", 900), Order("eu-small", "EU", 10), Order("us", "US", 500)):
        desk.place(order)
    with OrderWorker(factory, selector) as worker:
        for _ in taken:
            assert worker.work()
        assert shop.queue("orders").consumers[0].selector == selector
    assert sorted(Order.of(m).number for m in shop.queue("shipments").messages()) == taken
    assert shop.queue("orders").depth == 3 - len(taken)


def test_two_workers_share_the_work(
    shop: TestNamespace, desk: OrderDesk, payments: PaymentService, factory: ConnectionFactory
) -> None:
    for number in range(20):
        desk.place(Order(f"o{number}", "EU", 1))

    def work() -> None:
        with OrderWorker(factory) as worker:
            while shop.queue("orders").depth or shop.queue("orders").in_flight:
                worker.work(50)

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({Order.of(m).number for m in shop.queue("shipments").assert_received(count=20)}) == 20
    assert len(payments.charged) == 20
    shop.assert_nothing_lost(allow_expired=True)


def test_an_order_nobody_wants_any_more_expires(
    shop: TestNamespace, desk: OrderDesk, factory: ConnectionFactory, sievemq_clock: BrokerClock
) -> None:
    desk.place(Order("o1", "EU", 1), valid_for=60_000)
    sievemq_clock.advance(seconds=30)
    assert shop.queue("orders").depth == 1
    sievemq_clock.advance(seconds=30)
    shop.queue("orders").assert_empty()
    assert shop.queue("orders").expired == 1


# -- prices -----------------------------------------------------------------------------------------------------------


def test_a_watch_sees_what_it_asked_for(shop: TestNamespace, factory: ConnectionFactory) -> None:
    with PriceBoard(factory) as board, PriceWatch(factory, "symbol = 'ACME' AND price < 10") as watch:
        for symbol, price in (("ACME", 12.0), ("INIT", 9.0), ("ACME", 9.5)):
            board.publish(symbol, price)
        assert watch.next() == "ACME 9.50"
        assert watch.nothing_yet()


def test_every_watch_gets_its_own_copy(shop: TestNamespace, factory: ConnectionFactory) -> None:
    with PriceBoard(factory) as board, PriceWatch(factory) as first, PriceWatch(factory) as second:
        board.publish("ACME", 1.0)
        assert first.next() == second.next() == "ACME 1.00"


def test_who_comes_late_sees_nothing_of_before(shop: TestNamespace, factory: ConnectionFactory) -> None:
    with PriceBoard(factory) as board:
        board.publish("ACME", 1.0)
        with PriceWatch(factory) as watch:
            assert watch.nothing_yet()


def test_a_named_watch_sees_what_came_while_it_was_away(shop: TestNamespace, factory: ConnectionFactory) -> None:
    PriceWatch(factory, "price > 5", "history").__exit__()
    with PriceBoard(factory) as board:
        board.publish("ACME", 4.0)
        board.publish("ACME", 6.0)
    assert shop.topic("prices").subscriptions[0]["depth"] == 1
    with PriceWatch(factory, "price > 5", "history") as watch:
        assert watch.next() == "ACME 6.00"


@pytest.mark.parametrize("make", [lambda: TextMessage("not an order"), lambda: Order("o1", "EU", -5).to_message()])
def test_what_is_no_order_ends_as_a_dead_letter(
    shop: TestNamespace,
    factory: ConnectionFactory,
    worker: OrderWorker,
    sievemq_clock: BrokerClock,
    make: Callable[[], TextMessage],
) -> None:
    with factory.create_context() as context:
        context.create_producer().send(ORDERS, make())
    for wait in (1, 10, 100):
        assert not worker.work()
        sievemq_clock.advance(seconds=wait)
    shop.queue("orders").assert_dead_letters(count=1, reason="attempts")
    shop.queue("orders").assert_empty()
