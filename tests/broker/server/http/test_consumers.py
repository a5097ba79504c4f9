"""Consumers, connections and subscriptions over HTTP."""

from __future__ import annotations

import time
from typing import Any
from urllib.parse import quote
from urllib.request import urlopen

import pytest

from sievemq import ConnectionFactory, JMSContext, JMSRuntimeException
from sievemq_broker import EmbeddedBroker
from sievemq_broker.domain import Broker
from sievemq_broker.domain.queue import Queue

from .conftest import DEADLINE, Api, at, send

Q = "queue:q"


def queue_of(broker: Broker, api: Api) -> Queue:
    found = broker.namespace(api.namespace).find(Q)
    assert isinstance(found, Queue)
    return found


def rows(api: Api, address: str, **query: object) -> Any:
    return api.get(f"{at(address)}/consumers", **query)["consumers"]


def test_a_consumer_with_its_selector_and_what_that_lets_through(api: Api, context: JMSContext) -> None:
    send(context, Q, *range(6))
    with context.create_context(2) as other:
        chosen = other.create_consumer(other.create_queue("q"), "n >= 4")
        send(context, Q, *range(6, 10))
        assert chosen.receive(60_000) is not None
        (row,) = rows(api, Q)
        assert (row["selector"], row["dialect"], row["address"]) == ("n >= 4", "jakarta", Q)
        assert (row["matched"], row["examined"], row["match_ratio"]) == (6, 10, 0.6)
        assert row["in_flight"] + api.get(at(Q))["depth"] == 10
        assert row["id"] == f"{row['connection']}.{row['consumer']}"
        everything = other.create_consumer(other.create_queue("q"))
        without = rows(api, Q)[1]
        assert (without["selector"], without["match_ratio"]) == (None, 1.0)
        everything.close()
    assert rows(api, Q) == []


def test_one_that_holds_messages_says_for_how_long(api: Api, context: JMSContext) -> None:
    consumer = context.create_consumer(context.create_queue("q"))
    send(context, Q, 1)
    (row,) = rows(api, Q)
    assert (row["slow_since"], row["congested"]) == (None, False)

    def look(broker: Broker) -> None:
        (of,) = queue_of(broker, api).consumers
        of.look(api.broker.server.clock.now())
        of.clock_jumped(-5_000)

    api.broker.call(look)
    (row,) = rows(api, Q)
    assert 5_000 <= row["idle_ms"] <= row["oldest_ms"] < 5_000 + 1_000 * DEADLINE
    assert 5_000 <= api.get(at(Q))["oldest_in_flight_ms"] < 5_000 + 1_000 * DEADLINE
    with urlopen(f"{api.broker.http_url}/metrics") as answer:
        line = f'sievemq_queue_oldest_in_flight_age_seconds{{kind="queue",namespace="{api.namespace}"}} '
        assert float(answer.read().decode().split(line)[1].split()[0]) >= 5
    consumer.close()
    assert api.get(at(Q))["oldest_in_flight_ms"] == 0


def test_a_selector_that_nothing_has_met(api: Api, context: JMSContext) -> None:
    consumer = context.create_consumer(context.create_queue("q"), "n > 100")
    (row,) = rows(api, Q)
    assert (row["matched"], row["examined"], row["match_ratio"]) == (0, 0, None)
    send(context, Q, 1, 2)
    (row,) = rows(api, Q)
    assert (row["matched"], row["examined"], row["match_ratio"]) == (0, 2, 0.0)
    consumer.close()


def test_a_subscriber(api: Api, context: JMSContext) -> None:
    send(context, "topic:t", 0)
    subscriber = context.create_shared_consumer(context.create_topic("t"), "s", "n > 1")
    send(context, "topic:t", 1, 2, 3, 4)
    (row,) = rows(api, "topic:t")
    assert (row["subscription"], row["selector"]) == ("s", "n > 1")
    assert (row["matched"], row["examined"], row["match_ratio"]) == (3, 4, 0.75)
    subscriber.close()


def test_consumers_come_in_pages(api: Api, context: JMSContext) -> None:
    consumers = [context.create_consumer(context.create_queue("q"), f"n = {number}") for number in range(5)]
    first = api.get(f"{at(Q)}/consumers", limit=2)
    second = api.get(f"{at(Q)}/consumers", limit=9, cursor=first["next"])
    assert (first["total"], second["next"]) == (5, None)
    assert [row["selector"] for row in first["consumers"] + second["consumers"]] == [f"n = {n}" for n in range(5)]
    for consumer in consumers:
        consumer.close()


def test_closing_a_consumer(api: Api, context: JMSContext) -> None:
    consumer = context.create_consumer(context.create_queue("q"))
    (row,) = rows(api, Q)
    path = f"{at(Q)}/consumers/{row['id']}"
    assert api.ok("DELETE", path, dry_run="true")["touched"] == 0
    assert len(rows(api, Q)) == 1
    assert api.ok("DELETE", path)["touched"] == 1
    assert rows(api, Q) == []
    with pytest.raises(JMSRuntimeException, match="closed by an administrator"):
        consumer.receive(60_000)  # None if it was waiting already when the news came (CLO-06)
        consumer.receive(60_000)
    assert api("DELETE", path).status == 404
    send(context, Q, 1)
    assert api.ids(Q) == ["1"]


def test_closing_the_last_consumer_of_a_subscription_that_dies_with_it(api: Api, context: JMSContext) -> None:
    consumers = [context.create_consumer(context.create_topic("t")) for _ in range(2)]
    first, _ = rows(api, "topic:t")
    api.ok("DELETE", f"{at('topic:t')}/consumers/{first['id']}")
    assert api.get("subscriptions")["total"] == 1
    send(context, "topic:t", 1)
    assert consumers[1].receive(60_000) is not None


# -- connections ------------------------------------------------------------------------------------------------------


def mine(api: Api) -> Any:
    return api.get("/api/v1/connections", namespace=api.namespace)["connections"]


def test_a_connection(api: Api, context: JMSContext) -> None:
    context.create_temporary_queue()
    consumer = context.create_consumer(context.create_queue("q"))
    send(context, Q, 1, 2, 3)
    (row,) = mine(api)
    assert (row["namespace"], row["user"], row["client_id"], row["congested"]) == (api.namespace, None, None, False)
    assert (row["sessions"], row["consumers"], row["temporary_destinations"]) == (1, 1, 1)
    assert row["peer"].startswith("127.0.0.1:")
    assert "sievemq" in row["agent"].lower()
    assert 100 < row["bytes_in"] < 10_000
    assert 100 < row["bytes_out"] < 10_000
    consumer.close()


def until_waiting(broker: EmbeddedBroker, waiting: bool) -> None:
    """Returns when some sender waits for room, or none does."""
    deadline = time.monotonic() + DEADLINE
    while broker.call(lambda domain: bool(domain.rooms.waiting)) is not waiting:
        assert time.monotonic() < deadline


def test_a_connection_that_waits_to_send() -> None:
    rules = {"full": {"max_messages": 1, "at_limit": "block"}}
    with EmbeddedBroker(http=True, settings={"destinations": rules}) as broker:
        api = Api(broker)
        with ConnectionFactory(broker.url).create_context() as context:
            context.create_temporary_queue()
            (row,) = mine(api)
            about = api.get("/api/v1/broker")
            assert (row["blocked_since"], row["blocked_by"]) == (None, None)
            assert (about["blocked_connections"], about["blocked_since"]) == (0, None)
            producer = context.create_producer().set_delivery_mode(1)
            for _ in range(2):
                producer.send(context.create_queue("full"), "x")
            until_waiting(broker, True)
            (row,) = mine(api)
            about = api.get("/api/v1/broker")
            assert row["blocked_by"].startswith("queue:full is full; it may hold 1")
            assert about["blocked_connections"] == 1
            assert 0 < about["blocked_since"] == row["blocked_since"] <= about["now"]
            assert row["blocked_at"] == "queue:full"
            assert api.get("/api/v1/connections", id=row["id"])["connections"] == [row]
            assert api.get("/api/v1/connections", id="nobody-1")["total"] == 0
            assert about["blocked_at"] == [
                {
                    "namespace": "default",
                    "address": "queue:full",
                    "text": "queue:full is full; it may hold 1 message (rule queue:full)",
                    "senders": 1,
                    "since": row["blocked_since"],
                    "connections": [row["id"]],
                }
            ]
            queue = api.get("destinations", like="full")["destinations"][0]
            assert (queue["at_limit"], queue["blocked_senders"]) == (True, 1)
            api.act("queue:full", "purge")
            until_waiting(broker, False)
            assert mine(api)[0]["blocked_since"] is None
            assert api.get("/api/v1/broker")["blocked_at"] == []
            queue = api.get(at("queue:full"))
            assert (queue["at_limit"], queue["blocked_senders"]) == (True, 0)  # the sender that waited filled it again
            api.act("queue:full", "purge")
            assert api.get(at("queue:full"))["at_limit"] is False


def test_connections_come_in_pages_oldest_first(api: Api, context: JMSContext) -> None:
    url = f"{api.broker.url}/{quote(api.namespace, safe='')}"
    others = [ConnectionFactory(url).create_context() for _ in range(3)]
    for other in others:
        other.create_temporary_queue()  # connected
    whole = [row["id"] for row in mine(api)]
    first = api.get("/api/v1/connections", namespace=api.namespace, limit=2)
    second = api.get("/api/v1/connections", namespace=api.namespace, limit=2, cursor=first["next"])
    assert len(whole) == 4
    assert [row["id"] for row in first["connections"] + second["connections"]] == whole
    assert (first["total"], second["total"], second["next"]) == (4, 4, None)
    for other in others:
        other.close()


def test_closing_a_connection_returns_its_messages(api: Api, context: JMSContext) -> None:
    send(context, Q, 1, 2)
    url = f"{api.broker.url}/{quote(api.namespace, safe='')}?reconnect=0"
    before = {row["id"] for row in mine(api)}
    other = ConnectionFactory(url).create_context(2)
    try:
        assert other.create_consumer(other.create_queue("q")).receive(60_000) is not None
        (victim,) = {row["id"] for row in mine(api)} - before
        path = f"/api/v1/connections/{victim}"
        assert api.ok("DELETE", path, dry_run="true")["touched"] == 0
        assert api.ok("DELETE", path)["touched"] == 1
        assert victim not in {row["id"] for row in mine(api)}
        assert api("DELETE", path).status == 404
        assert sorted(api.ids(Q)) == ["1", "2"]
        (first, _) = api.get(f"{at(Q)}/messages")["messages"]
        assert (first["redelivered"], first["delivery_count"], first["attempts"]) == (True, 1, 1)
    finally:
        try:
            other.close()
        except JMSRuntimeException:
            pass


# -- subscriptions ----------------------------------------------------------------------------------------------------


def test_subscriptions_of_all_kinds(api: Api) -> None:
    url = f"{api.broker.url}/{quote(api.namespace, safe='')}"
    factory = ConnectionFactory(url)
    with factory.create_context() as context:
        context.set_client_id("me/1")
        topic = context.create_topic("t")
        context.create_durable_consumer(topic, "mine", "n > 1", False).close()
        context.create_shared_durable_consumer(topic, "ours").close()
        shared = context.create_shared_consumer(topic, "now")
        plain = context.create_consumer(topic, "n < 0")
        send(context, "topic:t", 1, 2)
        found = api.get("subscriptions")
        assert found["total"] == 4
        about = {(row["name"], row["client_id"]): row for row in found["subscriptions"]}
        mine_ = about["mine", "me/1"]
        assert (mine_["durable"], mine_["shared"], mine_["active"], mine_["selector"], mine_["depth"]) == (
            True,
            False,
            False,
            "n > 1",
            1,
        )
        assert (about["ours", "me/1"]["shared"], about["ours", "me/1"]["counters"]["enqueued"]) == (True, 2)
        assert (about["now", "me/1"]["durable"], about["now", "me/1"]["active"]) == (False, True)
        assert about[None, "me/1"]["selector"] == "n < 0"
        assert [row["name"] for row in api.get("subscriptions", like="OUR")["subscriptions"]] == ["ours"]
        assert api.get("subscriptions", durable="true")["total"] == 2
        assert api.get("subscriptions", topic="u")["total"] == 0
        cursor: dict[str, object] = {}
        names = []
        while True:
            page = api.get("subscriptions", limit=1, **cursor)
            names += [row["name"] for row in page["subscriptions"]]
            if page["next"] is None:
                break
            cursor = {"cursor": page["next"]}
        assert names == [None, "mine", "now", "ours"]
        shared.close()
        plain.close()
    one = f"subscriptions/{quote('me/1', safe='')}/mine"
    assert api.ok("DELETE", one, dry_run="true")["matched"] == 1
    assert api.ok("DELETE", one)["touched"] == 1
    assert api("DELETE", one).status == 404


def test_a_subscription_without_client_id_and_one_in_use(api: Api, context: JMSContext) -> None:
    consumer = context.create_shared_durable_consumer(context.create_topic("t"), "s")
    answer = api("DELETE", "subscriptions/-/s")
    assert (answer.status, answer.error) == (409, "SUBSCRIPTION_IN_USE")
    consumer.close()
    assert api.ok("DELETE", "subscriptions/-/s")["touched"] == 0
    assert api.get("subscriptions")["total"] == 0
