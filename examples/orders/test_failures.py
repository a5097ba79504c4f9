"""The shop when things go wrong: every order is handled once, or kept, and no customer is charged twice."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from sievemq import (
    ConnectionFactory,
    JMSRuntimeException,
    ResourceAllocationRuntimeException,
    TransactionRolledBackRuntimeException,
)
from sievemq_broker.embedded import BrokerClock
from sievemq_testing import Faults, Replay, TestBroker, TestNamespace

from .orders import Order
from .shop import OrderDesk, OrderWorker, PaymentService

SOON = 60.0
ORDER = Order("o1", "EU", 990)


def test_no_payment_service_so_the_order_waits_and_is_shipped_later(
    shop: TestNamespace, desk: OrderDesk, factory: ConnectionFactory, sievemq_clock: BrokerClock
) -> None:
    sievemq_clock.freeze()
    desk.place(ORDER)
    with OrderWorker(factory, patience=20) as worker:
        assert not worker.work()
        (waiting,) = shop.queue("orders").scheduled()
        assert Order.of(waiting) == ORDER
        worker.patience = 60_000
        sievemq_clock.advance(seconds=1)
        with PaymentService(factory):
            assert worker.work()
    shop.queue("shipments").assert_received(count=1)


def test_no_payment_service_at_all_makes_a_dead_letter(
    shop: TestNamespace, desk: OrderDesk, factory: ConnectionFactory, sievemq_clock: BrokerClock
) -> None:
    desk.place(ORDER)
    with OrderWorker(factory, patience=10) as worker:
        for wait in (1, 10, 100):
            assert not worker.work()
            sievemq_clock.advance(seconds=wait)
    (letter,) = shop.queue("orders").assert_dead_letters(count=1, reason="attempts")
    assert Order.of(letter) == ORDER
    assert letter.properties["JMS_SieveMQ_DeadLetterAttempts"] == 3
    shop.queue("shipments").assert_received(count=0)
    shop.assert_nothing_lost(allow_expired=True)  # the payment requests have expired, and should have


def test_retries_come_after_a_second_and_after_ten(
    shop: TestNamespace, desk: OrderDesk, factory: ConnectionFactory, sievemq_clock: BrokerClock
) -> None:
    desk.place(ORDER)
    sievemq_clock.freeze()
    with OrderWorker(factory, patience=10) as worker:
        for seconds in (1, 10):
            assert not worker.work()
            sievemq_clock.advance(milliseconds=seconds * 1_000 - 1)
            assert len(shop.queue("orders").scheduled()) == 1
            sievemq_clock.advance(milliseconds=1)
            assert not shop.queue("orders").scheduled()


def test_nobody_is_charged_twice_when_the_reply_is_refused(
    shop: TestNamespace, desk: OrderDesk, payments: PaymentService, worker: OrderWorker, sievemq_faults: Faults
) -> None:
    sievemq_faults.refuse("send", destination="temporary-queue:*")  # the reply: the listener raises and is called again
    desk.place(ORDER)
    assert worker.work()
    assert shop.queue("payments").redelivered == 1
    assert payments.charged == {"o1": 990}
    shop.queue("shipments").assert_received(count=1)


def test_nobody_is_charged_twice_when_the_reply_comes_too_late(
    shop: TestNamespace, desk: OrderDesk, factory: ConnectionFactory, sievemq_clock: BrokerClock
) -> None:
    desk.place(ORDER)
    with (
        PaymentService(ConnectionFactory(shop.url, client_id="payments")) as payments,
        OrderWorker(factory, patience=50) as worker,
    ):
        with shop.faults.pause_connections("payments"):
            assert not worker.work()
        shop.queue("payments").assert_empty(within=SOON)
        worker.patience = 60_000
        sievemq_clock.advance(seconds=1)
        assert worker.work()
        assert payments.charged == {"o1": 990}
    shop.queue("shipments").assert_received(count=1)


def test_a_commit_that_is_refused_ships_nothing(
    shop: TestNamespace,
    desk: OrderDesk,
    payments: PaymentService,
    worker: OrderWorker,
    sievemq_faults: Faults,
    sievemq_clock: BrokerClock,
) -> None:
    sievemq_clock.freeze()
    desk.place(ORDER)
    sievemq_faults.refuse("commit")
    with pytest.raises(JMSRuntimeException):
        worker.work()
    shop.queue("shipments").assert_received(count=0)
    assert len(shop.queue("orders").scheduled()) == 1


@pytest.mark.parametrize("after", [False, True])
def test_the_connection_fails_around_the_commit(
    shop: TestNamespace,
    desk: OrderDesk,
    payments: PaymentService,
    factory: ConnectionFactory,
    sievemq_faults: Faults,
    sievemq_clock: BrokerClock,
    after: bool,
) -> None:
    desk.place(ORDER)
    broken = OrderWorker(ConnectionFactory(shop.url, reconnect=0))
    sievemq_faults.drop_on("commit", after=after)
    with pytest.raises(JMSRuntimeException):
        broken.work()
    broken.__exit__()
    sievemq_clock.advance(seconds=1)
    with OrderWorker(factory) as worker:
        if after:  # carried out, only the answer was lost
            shop.queue("orders").assert_empty()
        else:
            assert worker.work()
    shop.queue("shipments").assert_received(count=1)
    assert payments.charged == {"o1": 990}


@pytest.mark.parametrize("after", [False, True])
def test_a_worker_goes_on_when_its_connection_failed_around_the_commit(
    shop: TestNamespace,
    desk: OrderDesk,
    payments: PaymentService,
    worker: OrderWorker,
    sievemq_faults: Faults,
    sievemq_clock: BrokerClock,
    after: bool,
) -> None:
    desk.place(ORDER)
    sievemq_faults.drop_on("commit", after=after)
    if after:
        assert worker.work()  # it has come back, and was told that the commit was carried out
    else:
        with pytest.raises(TransactionRolledBackRuntimeException):
            worker.work()
        sievemq_clock.advance(seconds=1)
        assert worker.work()
    shop.queue("shipments").assert_received(count=1)
    assert payments.charged == {"o1": 990}
    shop.queue("orders").assert_empty()
    shop.assert_nothing_lost()


def test_every_connection_is_lost_and_the_shop_goes_on(
    shop: TestNamespace, desk: OrderDesk, payments: PaymentService, worker: OrderWorker, sievemq_faults: Faults
) -> None:
    for number in range(3):
        sievemq_faults.drop_connections()
        desk.place(Order(f"o{number}", "EU", 1))
        assert worker.work()
    assert len(payments.charged) == 3
    shop.queue("shipments").assert_received(count=3)
    shop.queue("orders").assert_empty(within=SOON)
    shop.assert_nothing_lost()


def test_a_worker_gives_up_after_its_patience_without_a_wait(
    shop: TestNamespace, desk: OrderDesk, factory: ConnectionFactory, sievemq_clock: BrokerClock
) -> None:
    sievemq_clock.freeze()
    desk.place(ORDER)
    with OrderWorker(factory) as worker:
        worked: list[bool] = []
        working = threading.Thread(target=lambda: worked.append(worker.work()))
        working.start()
        shop.queue("payments").assert_received(count=1, within=SOON)
        while working.is_alive():  # nobody answers for a minute, whenever that has begun
            sievemq_clock.advance(seconds=60)
        working.join()
    assert worked == [False]
    orders = shop.queue("orders")
    assert orders.depth + len(orders.scheduled()) == 1


def test_a_worker_that_dies_with_an_order_in_its_hands(
    shop: TestNamespace,
    desk: OrderDesk,
    payments: PaymentService,
    factory: ConnectionFactory,
    sievemq_clock: BrokerClock,
) -> None:
    desk.place(ORDER)
    dying = ConnectionFactory(shop.url, client_id="dying").create_context()
    held = dying.create_context(dying.SESSION_TRANSACTED)
    held.start()
    consumer = held.create_consumer(held.create_queue("orders"))
    assert consumer.receive(60_000) is not None
    shop.faults.drop_connections("dying")
    sievemq_clock.advance(seconds=1)
    with OrderWorker(factory) as worker:
        assert worker.work()
    assert shop.queue("orders").redelivered == 1
    held.close()
    dying.close()


def test_a_full_queue_is_the_desks_to_report(shop: TestNamespace, desk: OrderDesk, sievemq_faults: Faults) -> None:
    sievemq_faults.fill("orders")
    with pytest.raises(ResourceAllocationRuntimeException):
        desk.place(ORDER)
    sievemq_faults.clear()
    desk.place(ORDER)
    assert shop.queue("orders").depth == 1


@pytest.mark.parametrize("to_client", [False, True])
def test_a_frame_cut_in_half_loses_no_order(shop: TestNamespace, sievemq_faults: Faults, to_client: bool) -> None:
    desk = OrderDesk(ConnectionFactory(shop.url, reconnect=0))
    sievemq_faults.cut_frame(to_client=to_client)
    with pytest.raises(JMSRuntimeException):
        desk.place(ORDER)
    desk.__exit__()
    # The desk cannot know whether the order arrived: it did if only the answer was cut.
    assert shop.queue("orders").depth == (1 if to_client else 0)


def test_a_slow_worker_does_not_keep_orders_from_a_quick_one(
    shop: TestNamespace, desk: OrderDesk, payments: PaymentService, sievemq_faults: Faults
) -> None:
    with (
        OrderWorker(ConnectionFactory(shop.url, client_id="slow")),
        OrderWorker(ConnectionFactory(shop.url, client_id="quick")) as quick,
        sievemq_faults.slow_consumers("slow"),
    ):
        for number in range(5):
            desk.place(Order(f"o{number}", "EU", 1))
        for _ in range(5):
            assert quick.work()


@pytest.mark.parametrize(("keep", "shipped"), [("persistent", 1), ("nothing", 0)])
def test_the_broker_dies_and_comes_back(
    sievemq_broker_factory: Callable[..., TestBroker], keep: str, shipped: int
) -> None:
    broker = sievemq_broker_factory(policies={"orders": {"max_attempts": 3}})
    factory = ConnectionFactory(broker.url)
    desk = OrderDesk(ConnectionFactory(broker.url, reconnect=0))
    desk.place(ORDER)
    broker.restart(keep)  # type: ignore[arg-type]
    with pytest.raises(JMSRuntimeException):
        desk.place(Order("o2", "EU", 1))
    desk.__exit__()
    with PaymentService(factory), OrderWorker(factory) as worker:
        if shipped:
            assert worker.work()
        else:
            broker.queue("orders").assert_empty()
    broker.queue("shipments").assert_received(count=shipped)


def test_the_broker_dies_and_the_desk_hardly_notices(sievemq_broker_factory: Callable[..., TestBroker]) -> None:
    broker = sievemq_broker_factory()
    factory = ConnectionFactory(broker.url, reconnect_delay=1)
    with OrderDesk(factory) as desk, PaymentService(factory), OrderWorker(factory) as worker:
        desk.place(ORDER)
        broker.restart()
        desk.place(Order("o2", "EU", 1))
        for _ in range(2):
            try:
                assert worker.work()
            except TransactionRolledBackRuntimeException:
                assert worker.work()  # it had an order in hand when the broker died: that one comes again
    broker.queue("shipments").assert_received(count=2)
    broker.assert_nothing_lost(within=SOON)


@pytest.mark.parametrize("seed", range(5))
def test_whatever_goes_wrong_no_order_is_lost_or_shipped_twice(
    sievemq_broker_factory: Callable[..., TestBroker], seed: int
) -> None:
    """Answers get lost and commands are refused, by chance, the same way for the same seed."""
    broker = sievemq_broker_factory(seed=seed, policies={"orders": {"max_attempts": 0}})
    factory = ConnectionFactory(broker.url, reconnect_delay=1)
    with OrderDesk(factory) as desk:
        for number in range(10):
            desk.place(Order(f"o{number}", "EU", 1))
    broker.faults.refuse("commit", times=99, probability=0.2)
    broker.faults.drop_on("commit", times=99, probability=0.2, after=bool(seed % 2))
    broker.faults.refuse("open_consumer", times=99, probability=0.1)
    with _payment_service(factory) as payments:
        while broker.queue("orders").depth or broker.queue("orders").in_flight:
            try:
                with OrderWorker(factory) as worker:
                    while worker.work(5):
                        pass
            except JMSRuntimeException:
                continue
        numbers = [Order.of(m).number for m in broker.queue("shipments").messages()]
        assert sorted(numbers) == [f"o{number}" for number in range(10)]
        assert len(payments.charged) == 10


def _payment_service(factory: ConnectionFactory) -> PaymentService:
    """One that has got through, whatever is refused by chance."""
    while True:
        try:
            return PaymentService(factory)
        except JMSRuntimeException:
            continue


def test_yesterdays_orders_are_replayed(
    shop: TestNamespace, desk: OrderDesk, payments: PaymentService, worker: OrderWorker,
    sievemq_test_broker: TestBroker, tmp_path: Path,
) -> None:  # fmt: skip
    with sievemq_test_broker.record(tmp_path / "orders.jsonl", shop.name):
        desk.place(ORDER)
        desk.place(Order("o2", "US", 100_001))
    for _ in range(2):
        assert worker.work()
    shop.reset()
    Replay(tmp_path / "orders.jsonl").into(shop)
    for _ in range(2):
        assert worker.work()
    assert len(shop.queue("shipments").messages()) == len(shop.queue("declined").messages()) == 1
    assert payments.charged == {"o1": 990}
