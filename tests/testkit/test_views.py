"""What a test sees of a broker, and the assertions that read like the requirement."""

from __future__ import annotations

import asyncio
import re
import threading
from datetime import timedelta
from typing import Any

import pytest
from tests.broker.protocols.stomp import StompSocket

from sievemq import (
    ConnectionFactory,
    DeliveryMode,
    InvalidSelectorException,
    JMSContext,
    JMSRuntimeException,
    Message,
    Queue,
    TextMessage,
    Topic,
)
from sievemq_broker.config import ConfigError
from sievemq_testing import TestBroker, TestNamespace

SOON = 60.0
ORDERS = Queue("orders")


@pytest.fixture
def broker(sievemq_test_broker: TestBroker) -> TestBroker:
    return sievemq_test_broker


def send(context: JMSContext, text: str, destination: Queue | Topic = ORDERS, **properties: object) -> None:
    producer = context.create_producer()
    for name, value in properties.items():
        producer.set_property(name, value)
    producer.send(destination, text)


def test_a_queue_that_does_not_exist_is_empty(namespace: TestNamespace) -> None:
    queue = namespace.queue("orders")
    assert queue.messages() == []
    assert (queue.depth, queue.in_flight, queue.acknowledged, queue.expired) == (0, 0, 0, 0)
    assert queue.consumers == []
    assert queue.dead_letters() == []
    assert queue.scheduled() == []
    assert queue.purge() == 0
    assert namespace.destinations == []
    with pytest.raises(AssertionError, match=r"queue:orders has never existed: .*; there are no queues"):
        queue.assert_empty()


def test_assert_empty_names_the_queue_that_was_probably_meant(namespace: TestNamespace, context: JMSContext) -> None:
    context.create_consumer(ORDERS)
    namespace.queue("orders").assert_empty()
    with pytest.raises(AssertionError, match=r"queue:order has never existed: .*; did you mean queue:orders\?"):
        namespace.queue("order").assert_empty()
    for other in ("prices", "folders"):  # the kind does not make them alike
        with pytest.raises(AssertionError, match=rf"queue:{other} has never existed: .*; there are queue:orders"):
            namespace.queue(other).assert_empty()


def test_assert_empty_waits_for_a_queue_to_exist(namespace: TestNamespace, context: JMSContext) -> None:
    waiting = threading.Thread(target=namespace.queue("orders").assert_empty, kwargs={"within": SOON})
    waiting.start()
    context.create_consumer(ORDERS)
    waiting.join()
    temporary = context.create_temporary_queue()
    context.create_producer().send(temporary, "x")
    temporary_view = namespace.queue(temporary)
    context.create_consumer(temporary).close()
    temporary.delete()
    temporary_view.assert_empty()  # it has existed


def test_an_exception_of_a_listener_is_the_cause_of_a_failed_assertion(
    namespace: TestNamespace, context: JMSContext
) -> None:
    namespace.queue("orders").configure(max_attempts=2)
    failed = threading.Event()

    def listen(message: Message) -> None:
        failed.set()
        raise LookupError("no such article")

    send(context, "elsewhere", Queue("others"))
    context.create_consumer(ORDERS).set_message_listener(listen)
    send(context, "an order")
    namespace.queue("orders").assert_dead_letters(count=1, within=SOON)
    assert failed.is_set()
    with pytest.raises(
        AssertionError, match=r"none were\n  a listener raised LookupError\('no such article'\) at ID:\S+, 2 times$"
    ) as e:
        namespace.queue("orders").assert_consumed(count=1)
    assert isinstance(e.value.__cause__, LookupError)
    with pytest.raises(AssertionError, match=r"none were$") as e:
        namespace.queue("others").assert_consumed(count=1)
    assert e.value.__cause__ is None


def test_a_topic_is_awaited_once_a_consumer_has_subscribed(namespace: TestNamespace, context: JMSContext) -> None:
    prices = namespace.topic("prices")
    with pytest.raises(AssertionError, match="topic:prices: 1 subscription should have an open consumer; none has"):
        prices.assert_awaited()
    context.create_shared_durable_consumer(Topic("prices"), "audit").close()
    waiting = threading.Thread(target=prices.assert_awaited, kwargs={"count": 2, "within": SOON})
    waiting.start()
    context.create_consumer(Topic("prices"))
    with pytest.raises(AssertionError, match="2 subscriptions should have an open consumer; 1 has"):
        prices.assert_awaited(count=2)
    context.create_consumer(Topic("prices"))
    waiting.join()
    prices.assert_awaited(count=2)


def test_messages_are_in_the_order_of_delivery_and_chosen_by_selector(
    namespace: TestNamespace, context: JMSContext
) -> None:
    send(context, "a", region="EU")
    context.create_producer().set_priority(9).send(ORDERS, "b")
    send(context, "c", region="EU")
    queue = namespace.queue("orders")
    assert [m.get_body(str) for m in queue.messages()] == ["b", "a", "c"]
    assert [m.get_body(str) for m in queue.messages("region = 'EU'")] == ["a", "c"]
    assert queue.depth == 3
    assert namespace.destinations == ["queue:orders"]
    with pytest.raises(InvalidSelectorException):
        queue.messages("region == 'EU'")


def test_a_long_queue_is_shown_whole(namespace: TestNamespace, context: JMSContext) -> None:
    producer = context.create_producer().set_delivery_mode(DeliveryMode.NON_PERSISTENT)
    for number in range(2_500):
        producer.set_property("even", number % 2 == 0).send(ORDERS, str(number))
    queue = namespace.queue("orders")
    queue.assert_received(count=2_500, within=SOON)
    assert [m.get_body(str) for m in queue.messages()] == [str(number) for number in range(2_500)]
    assert len(queue.messages("even")) == 1_250


def test_consumers_and_what_they_hold(broker: TestBroker, namespace: TestNamespace) -> None:
    factory = ConnectionFactory(namespace.url, client_id="till 1")
    with factory.create_context(JMSContext.CLIENT_ACKNOWLEDGE) as context:
        send(context, "one", region="EU")
        consumer = context.create_consumer(ORDERS, "region = 'EU'")
        assert consumer.receive_body(str, 60_000) == "one"
        queue = namespace.queue("orders")
        assert queue.in_flight == 1
        assert queue.depth == 0
        (seen,) = queue.consumers
        assert (seen.selector, seen.client_id, seen.unacknowledged) == ("region = 'EU'", "till 1", 1)
        with pytest.raises(AssertionError, match="1 are in flight"):
            queue.assert_empty()
        context.acknowledge()
        queue.assert_empty()
        assert queue.acknowledged == 1
    assert queue.consumers == []


def test_assert_received_counts_arrivals_whatever_became_of_them(namespace: TestNamespace, context: JMSContext) -> None:
    queue = namespace.queue("orders")
    for region in ("EU", "US", "EU"):
        send(context, region, region=region)
    assert context.create_consumer(ORDERS).receive_body(str, 60_000) == "EU"
    assert [m.get_body(str) for m in queue.assert_received()] == ["EU", "US", "EU"]
    queue.assert_received(count=3)
    assert len(queue.assert_received("region = 'EU'", count=2)) == 2
    queue.assert_received("region = 'JP'", count=0)
    assert queue.assert_received("region = 'US'")[0].properties["region"] == "US"


def test_assert_received_says_what_did_come_and_why_it_does_not_match(
    namespace: TestNamespace, context: JMSContext
) -> None:
    send(context, "an order", region="US")
    with pytest.raises(AssertionError) as caught:
        namespace.queue("orders").assert_received("region = 'EU'", count=1)
    text = str(caught.value)
    assert "queue:orders: 1 message should have been received that match \"region = 'EU'\"; none were" in text
    assert "region='US' 'an order': region = 'EU' is FALSE (region is 'US')" in text


@pytest.mark.parametrize("assertion", ["assert_received", "assert_consumed", "assert_dead_letters", "assert_awaited"])
def test_failed_assertions_name_the_queue_that_was_probably_meant(
    namespace: TestNamespace, context: JMSContext, assertion: str
) -> None:
    send(context, "an order")
    with pytest.raises(AssertionError, match=r"\n  queue:order has never existed: .*; did you mean queue:orders\?"):
        getattr(namespace.queue("order"), assertion)()
    if assertion != "assert_received":
        with pytest.raises(AssertionError, match=r"queue:orders: .* (none were|are none|0 of 0 are)$"):
            getattr(namespace.queue("orders"), assertion)()


def test_assert_received_fails_for_too_many_and_for_none(namespace: TestNamespace, context: JMSContext) -> None:
    queue = namespace.queue("orders")
    with pytest.raises(AssertionError, match=r"at least 1 message should have been received; none were"):
        queue.assert_received()
    send(context, "one")
    send(context, "two")
    with pytest.raises(AssertionError, match=r"1 message should have been received; 2 were"):
        queue.assert_received(count=1)


def test_within_waits_for_later_messages(namespace: TestNamespace) -> None:
    ready = threading.Event()

    def later() -> None:
        ready.wait()
        with ConnectionFactory(namespace.url).create_context() as context:
            send(context, "late")
            assert context.create_consumer(ORDERS).receive_body(str, 60_000) == "late"

    thread = threading.Thread(target=later)
    thread.start()
    ready.set()
    namespace.queue("orders").assert_received(count=1, within=SOON)
    namespace.queue("orders").assert_consumed(count=1, within=SOON)
    namespace.queue("orders").assert_empty(within=SOON)
    thread.join()


def test_within_that_is_not_enough_fails(namespace: TestNamespace) -> None:
    with pytest.raises(AssertionError, match=r"within 0\.01 s; none were"):
        namespace.queue("orders").assert_consumed(within=0.01)


def test_every_wait_takes_a_timedelta(namespace: TestNamespace) -> None:
    orders, prices, later = namespace.queue("orders"), namespace.topic("prices"), timedelta(milliseconds=5)
    for assertion in (
        orders.assert_received, orders.assert_consumed, orders.assert_dead_letters, orders.assert_awaited,
        orders.assert_empty, prices.assert_received, prices.assert_consumed, prices.assert_awaited,
    ):  # fmt: skip
        with pytest.raises(AssertionError):
            assertion(within=later)
    assert not namespace.broker.wait_for(lambda _: False, later)
    namespace.wait_until_idle(timedelta(seconds=SOON))
    namespace.assert_nothing_lost(within=later)
    with pytest.raises(AssertionError, match=r"within 0\.005 s; none were"):
        orders.assert_consumed(within=later)


def test_a_predicate_of_wait_for_may_raise(broker: TestBroker) -> None:
    def look(_: object) -> bool:
        if look.calls:  # type: ignore[attr-defined]
            raise ZeroDivisionError
        look.calls += 1  # type: ignore[attr-defined]
        return False

    look.calls = 0  # type: ignore[attr-defined]
    with pytest.raises(ZeroDivisionError):
        broker.wait_for(look, SOON)


async def test_on_a_running_loop_waiting_needs_a_thread(namespace: TestNamespace, sievemq_aio: object) -> None:
    queue = namespace.queue("orders")
    with pytest.raises(RuntimeError, match=r"asyncio\.to_thread"):
        queue.assert_received(within=SOON)
    waiting = asyncio.create_task(asyncio.to_thread(queue.assert_received, count=1, within=SOON))
    async with sievemq_aio() as context:  # type: ignore[operator]
        await context.create_producer().send(ORDERS, "hello")
    (message,) = await waiting
    assert message.get_body(str) == "hello"
    queue.assert_received(count=1, within=SOON)  # it is so: no wait, so no error


def test_dead_letters_with_reason_and_selector(namespace: TestNamespace) -> None:
    queue = namespace.queue("orders")
    queue.configure(max_attempts=2)
    with ConnectionFactory(namespace.url).create_context(JMSContext.SESSION_TRANSACTED) as context:
        send(context, "bad", kind="broken")
        context.commit()
        consumer = context.create_consumer(ORDERS)
        for _ in range(2):
            assert consumer.receive(60_000) is not None
            context.rollback()
        (letter,) = queue.assert_dead_letters(count=1, reason="attempts")
        assert letter.get_body(str) == "bad"
        assert letter.properties["JMS_SieveMQ_DeadLetterAttempts"] == 2
        assert queue.dead_letters("kind = 'broken'")
        queue.assert_dead_letters("kind = 'fine'", count=0)
        with pytest.raises(AssertionError, match=r"there should be 1 dead letter with the reason 'expired'; .* none"):
            queue.assert_dead_letters(count=1, reason="expired")
        with pytest.raises(AssertionError, match="2 dead letters"):
            queue.assert_dead_letters(count=2)
        assert [m.get_body(str) for m in namespace.queue("DLQ.orders").dead_letters()] == ["bad"]


def fail_all(url: str, count: int) -> None:
    """Let a number of messages of the queue fail for good."""
    with ConnectionFactory(url).create_context(JMSContext.SESSION_TRANSACTED) as context:
        consumer = context.create_consumer(ORDERS)
        for _ in range(count):
            assert consumer.receive(60_000) is not None
            context.rollback()


def test_retry_sends_dead_letters_back(namespace: TestNamespace, context: JMSContext) -> None:
    queue = namespace.queue("orders")
    assert queue.retry() == 0
    queue.configure(max_attempts=1)
    for kind in "abb":
        send(context, kind, kind=kind)
    send(context, "put here by hand", destination=Queue("DLQ.orders"))
    fail_all(namespace.url, 3)
    queue.assert_dead_letters(count=3)
    assert queue.retry("kind = 'b'") == 2
    assert [message.get_body(str) for message in queue.messages()] == ["b", "b"]
    assert namespace.queue("DLQ.orders").retry() == 1
    assert [message.get_body(str) for message in queue.messages()] == ["b", "b", "a"]
    assert queue.messages()[0].get_jms_redelivered() is False
    with pytest.raises(InvalidSelectorException):
        queue.retry("kind = ")


def test_retry_to_a_full_queue_fails(namespace: TestNamespace, context: JMSContext) -> None:
    queue = namespace.queue("orders")
    queue.configure(max_attempts=1, max_messages=2)
    for text in "ab":
        send(context, text)
    fail_all(namespace.url, 2)
    send(context, "one place is left")
    with pytest.raises(RuntimeError, match=r"the dead letters of queue:orders cannot be sent back: .*may hold 2;"):
        queue.retry()
    assert queue.depth == 2


@pytest.mark.parametrize("reason", ["attempts", "rejected"])
def test_a_dead_letter_that_its_consumer_rejected(
    broker: TestBroker, namespace: TestNamespace, context: JMSContext, reason: str
) -> None:
    queue = namespace.queue("orders")
    queue.configure(max_attempts=1)
    send(context, "poison")
    with StompSocket(broker.port, {"host": namespace.name}) as client:
        client.say("SUBSCRIBE", id="1", destination="/queue/orders", ack="client-individual")
        message = client.frame("MESSAGE").headers["ack"]
        client.confirmed("NACK", id=message, requeue=str(reason == "attempts").lower())
    (letter,) = queue.assert_dead_letters(count=1, reason=reason, within=SOON)
    assert letter.properties["JMS_SieveMQ_DeadLetterReason"] == reason


def test_dead_letters_of_another_queue_are_not_this_ones(namespace: TestNamespace, context: JMSContext) -> None:
    send(context, "put here by hand", destination=Queue("DLQ.orders"))
    assert namespace.queue("orders").dead_letters() == []


def test_pause_and_resume(namespace: TestNamespace, context: JMSContext) -> None:
    queue = namespace.queue("orders")
    queue.pause()
    send(context, "one")
    consumer = context.create_consumer(ORDERS)
    assert consumer.receive_no_wait() is None
    queue.resume()
    assert consumer.receive_body(str, 60_000) == "one"


def test_scheduled_messages_are_shown_apart(
    namespace: TestNamespace, context: JMSContext, sievemq_clock: object
) -> None:
    context.create_producer().set_delivery_delay(60_000).send(ORDERS, "later")
    queue = namespace.queue("orders")
    assert (queue.depth, len(queue.scheduled()), len(queue.scheduled("JMSPriority = 4"))) == (0, 1, 1)
    with pytest.raises(AssertionError, match="1 are scheduled"):
        queue.assert_empty()
    sievemq_clock.advance(seconds=60)  # type: ignore[attr-defined]
    assert (queue.depth, queue.scheduled()) == (1, [])
    assert queue.purge() == 1


def test_topics(namespace: TestNamespace, context: JMSContext) -> None:
    prices = namespace.topic("prices")
    assert prices.subscriptions == []
    consumer = context.create_consumer(Topic("prices"), "symbol = 'ACME'")
    shared = context.create_shared_consumer(Topic("prices"), "audit")
    send(context, "9", Topic("prices"), symbol="ACME")
    send(context, "8", Topic("prices"), symbol="INIT")
    assert consumer.receive_body(str, 60_000) == "9"
    assert shared.receive_body(str, 60_000) == "9"
    assert [(s["name"], s["selector"], s["consumers"]) for s in prices.subscriptions] == [
        (None, "symbol = 'ACME'", 1),
        ("audit", None, 1),
    ]
    prices.assert_received(count=2)
    prices.assert_received("symbol = 'INIT'", count=1)
    assert [m.get_body(str) for m in prices.assert_consumed(count=2, within=SOON)] == ["9", "9"]  # by either


def test_a_topic_counts_accepted_messages_as_received(namespace: TestNamespace) -> None:
    prices = namespace.topic("prices")
    with ConnectionFactory(namespace.url).create_context(JMSContext.SESSION_TRANSACTED) as context:
        send(context, "withdrawn", Topic("prices"))
        context.rollback()
        send(context, "pending", Topic("prices"))
        prices.assert_received(count=0)
        context.commit()
        assert [m.get_body(str) for m in prices.assert_received(count=1)] == ["pending"]
    with ConnectionFactory(namespace.url).create_context() as context, namespace.faults.refuse("send"):
        with pytest.raises(JMSRuntimeException):
            send(context, "refused", Topic("prices"))
        prices.assert_received(count=1)


def test_a_topics_new_limit_holds_for_subscriptions_made_later(namespace: TestNamespace) -> None:
    namespace.topic("prices").configure(max_messages=2, at_limit="fail")
    with ConnectionFactory(namespace.url).create_context() as context:
        context.create_shared_durable_consumer(Topic("prices"), "later").close()
        send(context, "1", Topic("prices"))
        send(context, "2", Topic("prices"))
        with pytest.raises(JMSRuntimeException, match="prices"):
            send(context, "3", Topic("prices"))


def test_configure_takes_lengths_of_time_and_modes(namespace: TestNamespace) -> None:
    policy = namespace.queue("orders").configure(
        redelivery_delay=timedelta(seconds=1),
        slow_consumer_seconds=timedelta(minutes=2),
        delivery_mode=DeliveryMode.NON_PERSISTENT,
        priority=None,
    )
    assert (policy.redelivery_delay, policy.slow_consumer_seconds, policy.delivery_mode) == (1_000, 120, 1)
    assert type(policy.delivery_mode) is int
    assert namespace.queue("orders").configure(delivery_mode="persistent").delivery_mode == 2


@pytest.mark.parametrize(
    ("rules", "text"),
    [
        ({"max_retries": 3}, "there is no rule 'max_retries'; did you mean max_attempts?"),
        ({"max_attempt": 3}, "there is no rule 'max_attempt'; did you mean max_attempts?"),
        ({"nonsense": 3}, "there is no rule 'nonsense'; there are max_attempts, redelivery_delay"),
        ({"max_attempts": "3"}, "the rule max_attempts must be a whole number, not '3'"),
        (
            {"max_attempts": timedelta(1)},
            "the rule max_attempts must be a whole number, not datetime.timedelta(days=1)",
        ),
        (
            {"redelivery_delay": 0.5},
            "the rule redelivery_delay must be a whole number of milliseconds, or a timedelta, not 0.5",
        ),
        ({"redelivery_delay": timedelta(-1)}, "redelivery_delay must not be negative"),
    ],
)
def test_rules_with_a_mistake_are_refused(namespace: TestNamespace, rules: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(text)}"):
        namespace.queue("orders").configure(**rules)
    if "negative" not in text:
        with pytest.raises(ConfigError, match=re.escape(text)):
            TestBroker(policies={"orders": rules})
    assert namespace.queue("orders").configure().max_attempts == 6


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"polices": {}}, "TestBroker has no option 'polices'; did you mean 'policies'?"),
        ({"max_connections": 3}, "TestBroker has no option 'max_connections'; it is a setting: TestBroker(settings="),
        ({"nonsense": 3}, "TestBroker has no option 'nonsense'; there are host, port, "),
    ],
)
def test_options_with_a_mistake_are_refused(options: dict[str, Any], text: str) -> None:
    with pytest.raises(TypeError, match=f"^{re.escape(text)}"):
        TestBroker(**options)


def test_settings_in_seconds_take_a_timedelta() -> None:
    broker = TestBroker(settings={"heartbeat_seconds": timedelta(minutes=1)})
    assert broker._settings.heartbeat_seconds == 60


def test_configure_a_topic_reaches_its_subscriptions(namespace: TestNamespace, context: JMSContext) -> None:
    context.create_shared_durable_consumer(Topic("prices"), "audit")
    policy = namespace.topic("prices").configure(max_messages=1)
    assert policy.max_messages == 1
    with ConnectionFactory(namespace.url).create_context() as other:
        subscriptions = namespace.topic("prices").subscriptions
        assert subscriptions[0]["durable"]
        assert other is not None


def test_names_with_the_wrong_kind_are_refused(namespace: TestNamespace) -> None:
    with pytest.raises(ValueError, match=r"\.topic\(\)"):
        namespace.queue("topic:prices")
    with pytest.raises(ValueError, match=r"\.queue\(\)"):
        namespace.topic("queue:orders")
    with pytest.raises(ValueError, match=r"did you mean queue:orders\? A queue of that name is queue:qeue:orders"):
        namespace.queue("qeue:orders")
    with pytest.raises(ValueError, match=r"a fault that never happens: 'qeue' in 'qeue:\*' is no kind"):
        namespace.faults.refuse("send", destination="qeue:*")
    assert namespace.queue("queue:qeue:orders").name == "queue:qeue:orders"
    assert namespace.topic("topic:prices").name == namespace.topic("prices").name
    assert namespace.queue("queue:orders").name == namespace.queue("orders").name
    assert "orders" in repr(namespace.queue("orders"))


def test_destination_objects_are_accepted_as_names(namespace: TestNamespace, context: JMSContext) -> None:
    assert namespace.queue(ORDERS).name == namespace.queue("orders").name
    assert namespace.topic(Topic("odd:name")).name == "topic:odd:name"
    with pytest.raises(ValueError, match=r"\.topic\(\)"):
        namespace.queue(Topic("prices"))
    with namespace.faults.refuse("send", destination=ORDERS):
        send(context, "passes", Queue("others"))
        with pytest.raises(JMSRuntimeException):
            send(context, "refused")
    send(context, "fills")
    namespace.faults.fill(ORDERS)
    with pytest.raises(JMSRuntimeException):
        send(context, "too many")


@pytest.mark.parametrize("count", [-1, "1", True, 1.0])
def test_a_count_that_cannot_be_is_refused(namespace: TestNamespace, count: Any) -> None:
    for asserted in (namespace.queue("orders").assert_received, namespace.queue("orders").assert_dead_letters):
        with pytest.raises(ValueError, match="count is an int that is not negative"):
            asserted(count=count)


def test_a_reason_that_cannot_be_is_refused(namespace: TestNamespace) -> None:
    with pytest.raises(ValueError, match="'attempts', 'expired', 'rejected', not 'attempt'"):
        namespace.queue("orders").assert_dead_letters(count=0, reason="attempt")


def test_dead_letters_are_waited_for_by_selector_and_reason(namespace: TestNamespace) -> None:
    queue = namespace.queue("orders")
    queue.configure(max_attempts=1)
    with ConnectionFactory(namespace.url).create_context(JMSContext.SESSION_TRANSACTED) as context:
        consumer = context.create_consumer(ORDERS)

        def fail(kind: str) -> None:
            send(context, kind, kind=kind)
            context.commit()
            assert consumer.receive(60_000) is not None
            context.rollback()

        fail("first")
        queue.assert_dead_letters(count=1)
        later = threading.Thread(target=fail, args=("second",))
        namespace.broker.call(lambda _: later.start())
        (letter,) = queue.assert_dead_letters("kind = 'second'", count=1, reason="attempts", within=SOON)
        later.join()
        assert letter.get_body(str) == "second"


def test_policies_are_given_to_the_broker() -> None:
    with (
        TestBroker(policies={"queue:orders": {"max_attempts": 1}}) as broker,
        ConnectionFactory(broker.url).create_context(JMSContext.SESSION_TRANSACTED) as context,
    ):
        send(context, "bad")
        context.commit()
        assert context.create_consumer(ORDERS).receive(60_000) is not None
        context.rollback()
        broker.queue("orders").assert_dead_letters(count=1)
        broker.topic("prices").assert_received(count=0)
        assert broker.namespace("default").queue("orders").depth == broker.queue("orders").depth == 0


def test_message_shown_is_a_message(namespace: TestNamespace, context: JMSContext) -> None:
    sent = TextMessage("x", properties={"n": 1})
    context.create_producer().send(ORDERS, sent)
    (seen,) = namespace.queue("orders").messages()
    assert seen.get_jms_message_id() == sent.get_jms_message_id()
    assert seen.get_jms_destination() == ORDERS
    assert seen.get_int_property("n") == 1


def test_waiting_consumers_are_shown(sievemq_context: JMSContext, sievemq_namespace: TestNamespace) -> None:
    queue = sievemq_namespace.queue("orders")
    with pytest.raises(AssertionError, match="queue:orders: 1 consumer should be waiting for a message; 0 of 0 are"):
        queue.assert_awaited()
    consumer = sievemq_context.create_consumer(Queue("orders"))
    assert not queue.consumers[0].waiting
    thread = threading.Thread(target=consumer.receive)
    thread.start()
    queue.assert_awaited(within=SOON)
    with pytest.raises(AssertionError, match="2 consumers should be waiting for a message; 1 of 1 is"):
        queue.assert_awaited(count=2)
    sievemq_context.create_producer().send(Queue("orders"), "x")
    thread.join()
    assert not queue.consumers[0].waiting
