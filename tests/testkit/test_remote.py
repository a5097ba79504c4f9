"""A broker elsewhere, over its wire and management ports, from this process."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from sievemq import ConnectionFactory, InvalidSelectorException, JMSContext, JMSSecurityException, Queue, Topic
from sievemq._management import place
from sievemq_testing import TestBroker
from sievemq_testing.remote import RemoteBroker, RemoteNamespace


@pytest.fixture(scope="module")
def elsewhere() -> Iterator[RemoteBroker]:
    with TestBroker(http=True) as broker:
        yield RemoteBroker(broker.url, broker.http_url or "")


@pytest.fixture
def space(elsewhere: RemoteBroker, request: pytest.FixtureRequest) -> Iterator[RemoteNamespace]:
    namespace = elsewhere.namespace(request.node.name)
    yield namespace
    assert namespace.drop() == []


@pytest.fixture
def client(space: RemoteNamespace) -> Iterator[JMSContext]:
    with ConnectionFactory(space.url).create_context() as context:
        yield context


def test_destinations_and_connections(space: RemoteNamespace) -> None:
    assert space.connections == []
    with ConnectionFactory(space.url, client_id="reader").create_context() as context:
        context.create_consumer(Queue("orders"))
        context.create_consumer(Queue("other"))
        (connection,) = space.connections
        assert connection.client_id == "reader"
        assert sorted(connection.consumers) == ["queue:orders", "queue:other"]
        assert space.destinations == ["queue:orders", "queue:other"]


def test_a_namespace_with_open_connections_stays(elsewhere: RemoteBroker) -> None:
    namespace = elsewhere.namespace("in-use")
    with ConnectionFactory(namespace.url, client_id="open").create_context():
        assert [connection.client_id for connection in namespace.drop()] == ["open"]
    assert elsewhere.namespace("in-use").drop() == []


def test_a_view_is_made_once(space: RemoteNamespace) -> None:
    assert space.queue("orders") is space.queue(Queue("orders"))
    assert space.topic("prices") is space.topic(Topic("prices"))
    assert "prices" in repr(space.topic("prices"))
    assert repr(space).startswith("<RemoteNamespace ")


def test_fixtures_that_need_an_embedded_broker_skip_the_test(elsewhere: RemoteBroker, space: RemoteNamespace) -> None:
    for view, name in ((elsewhere, "clock"), (space, "excerpt"), (space.queue("orders"), "configure")):
        with pytest.raises(pytest.skip.Exception, match=rf"{name} needs a broker in the test's process"):
            getattr(view, name)
        assert not hasattr(view, "_no_such_attribute")


def test_messages_received_twice_are_read_once(space: RemoteNamespace, client: JMSContext) -> None:
    orders = space.queue("orders")
    producer = client.create_producer()
    producer.send(Queue("orders"), "one")
    assert [message.get_text() for message in orders.assert_received(count=1, within=60)] == ["one"]
    producer.send(Queue("orders"), "two")
    assert [message.get_text() for message in orders.assert_received(count=2, within=60)] == ["one", "two"]


def test_failed_assertions_show_the_contents(space: RemoteNamespace, client: JMSContext) -> None:
    orders = space.queue("orders")
    client.create_producer().send(Queue("orders"), "one")
    with pytest.raises(AssertionError, match="queue:orders is not empty: 1 wait"):
        orders.assert_empty()
    with pytest.raises(AssertionError, match="1 consumer should be waiting"):
        orders.assert_awaited()
    with pytest.raises(ValueError, match="'attempts', 'expired', 'rejected'"):
        orders.assert_dead_letters(reason="other")
    with pytest.raises(AssertionError, match="but does not match"):
        orders.assert_received("a = 1", within=0)


def test_assert_empty_needs_a_queue_that_a_client_has_used(space: RemoteNamespace, client: JMSContext) -> None:
    with pytest.raises(AssertionError, match=r"^queue:order has never existed: .*; there are no queues$"):
        space.queue("order").assert_empty()
    consumer = client.create_consumer(Queue("orders"))
    with pytest.raises(AssertionError, match=r"did you mean queue:orders\?$"):
        space.queue("order").assert_empty(within=0.05)
    space.queue("orders").assert_empty()  # it was there before its view
    for name in ("assert_received", "assert_consumed", "assert_dead_letters", "assert_awaited"):
        with pytest.raises(
            AssertionError, match=r"\n  queue:order has never existed: .*; did you mean queue:orders\?$"
        ):
            getattr(space.queue("order"), name)()
    consumer.close()
    space.queue("orders").assert_empty()
    later = client.create_consumer(Queue("order"))
    space.queue("order").assert_empty(within=60)
    client.create_producer().send(Queue("order"), "x")
    assert later.receive_body(str, 60_000) == "x"
    later.close()
    space.queue("order").assert_empty(within=60)


def test_a_deleted_queue_is_empty_and_what_went_through_it_is_not_known(space: RemoteNamespace) -> None:
    orders = space.queue("orders")
    with ConnectionFactory(space.url).create_context() as client:
        client.create_producer().send(Queue("orders"), "one")
        with pytest.raises(AssertionError, match="queue:orders is not empty: 1 wait"):
            orders.assert_empty()
    space.api("delete").delete(place(space.name, "queue:orders"))
    orders.assert_empty()
    for assertion in (orders.assert_received, orders.assert_consumed):
        with pytest.raises(
            pytest.skip.Exception, match=r"^what went through queue:orders is not known any more: it was"
        ):
            assertion(count=0)
    with pytest.raises(AssertionError, match=r"^queue:other has never existed"):
        space.queue("other").assert_empty()


def test_retry_sends_dead_letters_back(space: RemoteNamespace, client: JMSContext) -> None:
    orders = space.queue("orders")
    assert orders.retry() == 0
    for kind in "ab":
        client.create_producer().set_property("kind", kind).send(Queue("orders"), kind)
    with ConnectionFactory(space.url).create_context(JMSContext.SESSION_TRANSACTED) as context:
        consumer = context.create_consumer(Queue("orders"))
        for _ in range(12):  # the default of max_attempts, twice
            assert consumer.receive(60_000) is not None
            context.rollback()
    orders.assert_dead_letters(count=2, within=60)
    assert orders.retry("kind = 'b'") == 1
    assert [message.get_body(str) for message in orders.messages()] == ["b"]
    assert space.queue("DLQ.orders").retry() == 1
    with pytest.raises(InvalidSelectorException):
        orders.retry("kind = ")


def test_an_address_that_is_no_management_port(elsewhere: RemoteBroker) -> None:
    other = RemoteBroker(elsewhere.url, "ftp://localhost")
    namespace = other.namespace("unmanaged")
    with pytest.raises(pytest.skip.Exception, match="is no URL of a management port"):
        _ = namespace.destinations
    namespace.drop()
    elsewhere.namespace("unmanaged").drop()


def test_the_user_of_the_url_asks_the_management_port() -> None:
    with TestBroker(http=True, settings={"users": {"ann": "rosebud"}}) as broker:
        url = broker.url.replace("://", "://ann:rosebud@")
        namespace = RemoteBroker(url, broker.http_url or "").namespace("guarded")
        with ConnectionFactory(namespace.url).create_context("ann", "rosebud") as context:
            context.create_producer().send(Queue("orders"), "x")
            assert namespace.destinations == ["queue:orders"]
        namespace.drop()
        with pytest.raises(JMSSecurityException):
            RemoteBroker(broker.url, broker.http_url or "").namespace("guarded")


def test_more_destinations_than_a_page_has(space: RemoteNamespace, client: JMSContext) -> None:
    names = [f"q{number:04}" for number in range(1_001)]
    for name in names:
        client.create_producer().set_delivery_mode(1).send(Queue(name), "x")
    client.create_consumer(Queue(names[-1])).receive(60_000)
    assert space.destinations == [f"queue:{name}" for name in names]


def test_a_topic_that_does_not_exist_has_received_nothing(space: RemoteNamespace) -> None:
    space.topic("prices").assert_received(count=0)
    with pytest.raises(AssertionError, match="prices"):
        space.topic("prices").assert_received(count=1, within=0)
