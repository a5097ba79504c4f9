"""Refusals, transactions and limits over HTTP and in metrics."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from sievemq import (
    ConnectionFactory,
    JMSContext,
    ResourceAllocationRuntimeException,
    TransactionRolledBackRuntimeException,
)
from sievemq_broker import EmbeddedBroker

from .conftest import Api, at

RULES = {name: {"max_messages": 2, "at_limit": "fail"} for name in ("queue:small", "topic:small")}
SPACES = {"team": {"max_messages": 8}}


@pytest.fixture(scope="module")
def limited() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(http=True, settings={"destinations": RULES, "namespaces": SPACES}) as broker:
        yield broker


def metric(api: Api, line: str) -> float:
    (found,) = [text for text in api("GET", "/metrics").content.decode().splitlines() if text.startswith(f"{line} ")]
    return float(found.split()[1])


def test_refused_sends_and_rolled_back_transactions_name_their_client(limited: EmbeddedBroker) -> None:
    api = Api(limited, "team")
    url = f"{limited.url}/team"
    with ConnectionFactory(url, client_id="flooder").create_context(JMSContext.SESSION_TRANSACTED) as context:
        queue, producer = context.create_queue("small"), context.create_producer()
        for _ in range(2):
            producer.send(queue, "x")
        before = api.get("/api/v1/broker")["transactions"]
        assert before == {"open": 1, "committed": 0, "rolled_back": 0, "refused": 0}
        assert metric(api, "sievemq_transactions_open") == 1
        context.commit()
        producer.send(queue, "x")
        context.rollback()
        for _ in range(3):
            producer.send(queue, "x")
        with pytest.raises(TransactionRolledBackRuntimeException):
            context.commit()
        (row,) = api.get("/api/v1/connections", namespace="team")["connections"]
        assert (row["committed"], row["rolled_back"], row["refused"]) == (1, 2, 3)
        assert row["port"] == limited.port
    assert api("POST", f"{at('queue:small')}/messages", {"body": "x"}).status == 409
    state = api.get("/api/v1/broker")
    assert state["transactions"] == {"open": 0, "committed": 1, "rolled_back": 1, "refused": 1}
    assert state["refused"] == 4
    shown: Any = api.get("/api/v1/refusals")
    assert [(of["namespace"], of["address"], of["reason"], of["client"], of["count"]) for of in shown["refused"]] == [
        ("team", "queue:small", "max_messages", "management port", 1),
        ("team", "queue:small", "max_messages", "flooder", 3),
    ]
    assert [of["connection"] for of in shown["refused"]] == [None, row["id"]]
    assert [(of["client"], of["count"], of["connection"]) for of in shown["rolled_back"]] == [("flooder", 2, row["id"])]
    assert api.get(at("queue:small"))["counters"]["refused"] == 4
    assert metric(api, 'sievemq_refused_total{reason="max_messages"}') == 4
    assert metric(api, 'sievemq_messages_refused_total{kind="queue",namespace="team"}') == 4
    assert metric(api, 'sievemq_transactions_total{outcome="refused"}') == 1


def test_reasons_are_there_before_anything_is_refused() -> None:
    """A series that begins above 0 has not increased: the first refusals would alert nobody."""
    with EmbeddedBroker(http=True) as broker:
        for reason in ("max_messages", "max_bytes", "max_memory_bytes", "disk", "security"):
            assert metric(Api(broker), f'sievemq_refused_total{{reason="{reason}"}}') == 0


def test_a_caller_that_cannot_wait_is_refused_while_all_producers_wait() -> None:
    with EmbeddedBroker(http=True) as broker:
        api = Api(broker)
        broker.call(lambda _: broker.server.shard.services.flow("it is full"))
        assert api("POST", f"{at('queue:q')}/messages", {"body": "x"}).status == 503
        assert api("POST", f"{at('queue:q')}/import", {"lines": ["{}", "{}"]}).status == 503
        (row,) = api.get("/api/v1/refusals")["refused"]
        assert (row["address"], row["reason"], row["count"]) == ("queue:q", "max_memory_bytes", 3)


def test_how_much_of_a_limit_is_in_use(limited: EmbeddedBroker) -> None:
    api = Api(limited, "team")
    with ConnectionFactory(f"{limited.url}/team").create_context() as context:
        subscriber = context.create_shared_durable_consumer(context.create_topic("small"), "s")
        context.create_producer().send(context.create_queue("free"), "x")
        subscriber.close()
        context.create_producer().send(context.create_topic("small"), "x")
    assert api.get(at("queue:free"))["fill"] is None
    assert api.get(at("topic:small"))["fill"] == 0.5
    (row,) = api.get("subscriptions")["subscriptions"]
    assert (row["fill"], row["oldest_in_flight_ms"]) == (0.5, 0)
    assert row["oldest_ms"] > 0
    (space,) = api.get("/api/v1/namespaces", like="team")["namespaces"]
    assert space["fill"] == (space["depth"] + space["scheduled"]) / 8
    assert metric(api, 'sievemq_namespace_fill_ratio{namespace="team"}') == space["fill"]
    assert metric(api, 'sievemq_queue_fill_ratio{kind="subscription",namespace="team"}') == 0.5


def test_a_send_to_a_full_namespace_names_its_limit() -> None:
    spaces = {"full": {"max_messages": 1, "at_limit": "fail"}}
    with EmbeddedBroker(http=True, settings={"namespaces": spaces}) as broker:
        api = Api(broker, "full")
        with ConnectionFactory(f"{broker.url}/full", client_id="c").create_context() as context:
            queue, producer = context.create_queue("q"), context.create_producer()
            producer.send(queue, "x")
            with pytest.raises(ResourceAllocationRuntimeException):
                producer.send(queue, "x")
        (row,) = api.get("/api/v1/refusals")["refused"]
        assert (row["address"], row["reason"], row["client"]) == ("queue:q", "max_messages", "c")
