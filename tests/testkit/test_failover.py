"""Another broker takes over: what an application sees, in memory, with a data directory, and with PostgreSQL."""

from __future__ import annotations

import socket
from datetime import timedelta
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from tests.postgres import Database

from sievemq import ConnectionFactory, DeliveryMode, Queue
from sievemq_testing import BrokerFactory, TestBroker

SECONDS = 60.0
WAIT = timedelta(seconds=SECONDS)
QUEUE = Queue("orders")


@pytest.fixture(params=["memory", "directory", "database"])
def broker(request: pytest.FixtureRequest, sievemq_broker_factory: BrokerFactory, tmp_path: Path) -> TestBroker:
    if request.param == "memory":
        return sievemq_broker_factory()
    if request.param == "directory":
        return sievemq_broker_factory(data_dir=tmp_path)
    database: Database = request.getfixturevalue("database")
    return sievemq_broker_factory(store=database.url, settings={"shard": database.shard()})


def test_a_context_goes_on_at_the_other_broker(broker: TestBroker) -> None:
    with ConnectionFactory(broker.failover_url).create_context() as context:
        producer = context.create_producer()
        consumer = context.create_consumer(QUEUE)
        ports = [broker.port]
        for number in range(3):
            producer.send(QUEUE, f"chair {number}")
            broker.fail_over()
            ports.append(broker.port)
            assert consumer.receive_body(str, WAIT) == f"chair {number}"
        assert ports == [ports[0], ports[1], ports[0], ports[1]]
        assert ports[0] != ports[1]
        broker.queue("orders").assert_empty(within=WAIT)  # before close(), which does not wait for a lost connection
    assert broker.url.endswith(str(ports[1]))


def test_what_is_not_persistent_is_lost(broker: TestBroker) -> None:
    with ConnectionFactory(broker.failover_url).create_context() as context:
        context.create_producer().set_delivery_mode(DeliveryMode.NON_PERSISTENT).send(QUEUE, "a chair")
        context.create_producer().send(QUEUE, "a table")
        broker.fail_over()
        assert context.create_consumer(QUEUE).receive_body(str, WAIT) == "a table"
        broker.queue("orders").assert_empty(within=WAIT)


def test_the_other_address_refuses_connections_until_then(sievemq_broker_factory: BrokerFactory) -> None:
    broker = sievemq_broker_factory(namespace="shop")
    first, second = (int(host.rpartition(":")[2]) for host in urlsplit(broker.failover_url).netloc.split(","))
    assert broker.failover_url.endswith("/shop")
    assert first == broker.port
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", second), SECONDS)
    broker.fail_over()
    assert broker.port == second
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", first), SECONDS)
    broker.restart()
    assert broker.port == second


def test_a_failover_that_keeps_the_impossible_is_refused(tmp_path: Path, sievemq_broker_factory: BrokerFactory) -> None:
    broker = sievemq_broker_factory(data_dir=tmp_path)
    port = broker.port
    with pytest.raises(ValueError, match="cannot be kept"):
        broker.fail_over("all")
    broker.restart()
    assert broker.port == port


def test_two_brokers_share_a_database(database: Database, sievemq_broker_factory: BrokerFactory) -> None:
    settings = {"shard": database.shard()}
    owner = sievemq_broker_factory(store=database.url, settings=settings)
    with ConnectionFactory(owner.url).create_context() as context:
        context.create_producer().send(QUEUE, "a chair")
    follower = sievemq_broker_factory(store=database.url, settings=settings)
    with pytest.raises(RuntimeError, match="follows"):
        follower.queue("orders").assert_received()
    owner.kill()
    follower.wait_until_serving(SECONDS)
    with ConnectionFactory(follower.url).create_context() as context:
        assert context.create_consumer(QUEUE).receive_body(str, WAIT) == "a chair"


def test_a_store_that_brokers_share_keeps_what_is_persistent(
    database: Database, sievemq_broker_factory: BrokerFactory
) -> None:
    broker = sievemq_broker_factory(store=database.url, settings={"shard": database.shard()})
    for keep in ("all", "nothing"):
        with pytest.raises(ValueError, match="keeps what is PERSISTENT"):
            broker.restart(keep)  # type: ignore[arg-type]
