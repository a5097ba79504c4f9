"""Namespaces and destinations over HTTP."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

import pytest

from sievemq import JMSContext
from sievemq_broker import EmbeddedBroker
from sievemq_broker.domain.broker import Broker
from sievemq_broker.domain.management import emptied
from sievemq_broker.domain.topic import Topic
from sievemq_broker.domain.work import TURN, Budget
from sievemq_broker.server.http.api import brokers
from sievemq_broker.server.watch.counts import queues_at

from .conftest import Api, at, send
from .deep import fill


def test_figures_of_a_queue(api: Api, context: JMSContext) -> None:
    send(context, "queue:orders", 1, 2, 3)
    send(context, "queue:orders", 4, delivery_delay=100_000)
    with context.create_consumer(context.create_queue("orders")) as consumer:
        assert consumer.receive(60_000) is not None
    row = api.get(at("queue:orders"))
    assert (row["namespace"], row["address"], row["kind"], row["name"]) == (
        api.namespace,
        "queue:orders",
        "queue",
        "orders",
    )
    assert (row["depth"], row["in_flight"], row["scheduled"], row["paused"]) == (2, 0, 1, False)
    assert (row["counters"]["enqueued"], row["counters"]["acknowledged"]) == (4, 1)
    assert row["dead_letters"] == "queue:DLQ.orders"
    assert row["policy"]["max_attempts"] == 6
    assert row["bytes"] > 0


def test_a_topic_sums_up_its_subscriptions(api: Api, context: JMSContext) -> None:
    topic = context.create_topic("prices")
    with (
        context.create_shared_durable_consumer(topic, "a"),
        context.create_shared_durable_consumer(topic, "b", "n > 1"),
    ):
        pass
    send(context, "topic:prices", 1, 2)
    row = api.get(at("topic:prices"))
    assert (row["kind"], row["depth"], row["subscriptions"]) == ("topic", 3, 2)
    assert row["oldest_ms"] >= 0
    assert (row["counters"]["published"], row["counters"]["enqueued"]) == (2, 3)


@pytest.mark.parametrize("path", ["/api/v1/broker", "/api/v1/namespaces", "subscriptions", at("topic:prices")])
def test_subscriptions_of_one_topic_are_added_up_in_slices(path: str) -> None:
    with EmbeddedBroker(http=True) as broker:
        api = Api(broker)
        topic = broker.call(subscribed, api.namespace)
        api.get(path)
        assert broker.call(lambda broker: broker.scheduler.overrun) < 50
        assert len(list(emptied(queues_at(topic), True, 0, Budget(TURN)))) == 2 * TURN


def test_a_destination_that_is_deleted_amid_the_totals_counts_once(monkeypatch: pytest.MonkeyPatch) -> None:
    with EmbeddedBroker(http=True) as broker:
        api = Api(broker)
        for name in ("a", "b"):
            broker.call(fill, api.namespace, f"queue:{name}", 3)
        deleted: list[bool] = []
        add_figures = brokers.add_figures

        def delete_then(*given: Any) -> Any:
            yield from add_figures(*given)
            space = broker.server.shard.broker.namespace(api.namespace)
            deleted.append(bool(deleted) or space.delete(given[0].label))

        monkeypatch.setattr(brokers, "add_figures", delete_then)
        assert api.get("/api/v1/broker")["totals"]["enqueued"] == 6
        assert deleted == [True, True]
        assert api.get("/api/v1/broker")["totals"]["enqueued"] == 6


def subscribed(broker: Broker, namespace: str) -> Topic:
    """A topic with more subscriptions than a turn adds up."""
    space = broker.namespace(namespace)
    topic = space.create("topic:prices")
    assert isinstance(topic, Topic)
    for number in range(3 * TURN):
        space.subscriptions.subscribe(
            topic,
            f"s{number}",
            None,
            None,
            durable=False,
            shared=True,
            no_local=False,
            connection="c",
            temporary=False,
        )
    return topic


def test_a_list_is_filtered_sorted_and_paged(api: Api) -> None:
    for name in ("queue:b", "queue:a", "topic:a", "queue:c1", "queue:c2"):
        assert api("PUT", at(name)).status == 201
    for count, name in enumerate(("queue:a", "queue:b", "queue:c1"), 1):
        for _ in range(count):
            api.ok("POST", f"{at(name)}/messages", {"body": "x"})

    def addresses(**query: object) -> list[str]:
        found: list[str] = []
        cursor: dict[str, object] = {}
        while True:
            page = api.get("destinations", **query, **cursor)
            found += [row["address"] for row in page["destinations"]]
            if page["next"] is None:
                return found
            cursor = {"cursor": page["next"]}

    everything = ["queue:a", "queue:b", "queue:c1", "queue:c2", "topic:a"]
    assert addresses() == everything
    assert addresses(limit=2) == everything
    assert addresses(kind="topic") == ["topic:a"]
    assert addresses(like="C") == ["queue:c1", "queue:c2"]
    assert addresses(like="queue") == addresses(like="e:") == []  # the kind is not part of a name
    assert addresses(like="queue:C") == ["queue:c1", "queue:c2"]
    assert addresses(like="queue:*2") == ["queue:c2"]
    assert addresses(like="[a-c]") == addresses(like="null") == []
    deepest = ["queue:c1", "queue:b", "queue:a", "queue:c2", "topic:a"]
    assert addresses(sort="-depth") == deepest
    assert addresses(sort="-depth", limit=2) == addresses(sort="-bytes") == deepest
    for figure in (
        "in_flight",
        "scheduled",
        "consumers",
        "out_rate",
        "dead_lettered",
    ):  # equal ones by their address
        assert addresses(sort=f"-{figure}", limit=2) == everything
    assert api.get("destinations", kind="queue", limit=1)["total"] == 4


def test_rows_that_go_between_two_pages_hide_no_others(api: Api) -> None:
    for name in "abcdef":
        api("PUT", at(f"queue:{name}"))
    first = api.get("destinations", limit=3)
    for name in "ace":
        assert api("DELETE", at(f"queue:{name}")).status == 200
    second = api.get("destinations", limit=3, cursor=first["next"])
    assert [row["address"] for row in first["destinations"] + second["destinations"]] == [
        f"queue:{name}" for name in "abcdf"
    ]


def test_making_and_deleting(api: Api, context: JMSContext) -> None:
    assert api("PUT", at("queue:q")).status == 201
    assert api("PUT", at("queue:q"), {}).status == 200
    send(context, "queue:q", 1, 2)
    counted = api.ok("DELETE", at("queue:q"), dry_run="true")
    assert (counted["matched"], counted["touched"], counted["dry_run"]) == (2, 0, True)
    assert api.get(at("queue:q"))["depth"] == 2
    assert api.ok("DELETE", at("queue:q"))["touched"] == 2
    gone = api("GET", at("queue:q"))
    assert (gone.status, gone.error) == (404, "NOT_FOUND")
    assert gone.json["details"] == {"namespace": api.namespace, "address": "queue:q"}
    assert api("DELETE", at("queue:q")).status == 404


def test_a_temporary_destination_is_a_connections(api: Api, context: JMSContext) -> None:
    queue = context.create_temporary_queue()
    row = api.get(at(f"temporary-queue:{queue.get_queue_name()}" if ":" not in str(queue) else str(queue)))
    assert row["kind"] == "temporary-queue"
    assert row["owner"] in [connection["id"] for connection in api.get("/api/v1/connections")["connections"]]
    answer = api("PUT", at("temporary-queue:nobody-1.9"))
    assert (answer.status, answer.error) == (409, "ILLEGAL_STATE")


@pytest.mark.parametrize("name", ["a/b", "ä ö", "a%2Fb", "a?b=c&d", "..", "queue:queue:x", "#"])
def test_any_name_can_be_named(api: Api, name: str) -> None:
    address = name if name.startswith("queue:") else f"queue:{name}"
    assert api("PUT", at(address)).json["address"] == address
    api.ok("POST", f"{at(address)}/messages", {"body": name})
    assert api.get(f"{at(address)}/messages/1")["body"]["text"] == name
    assert api.get("destinations")["total"] == 1


def test_invalid_addresses_are_refused(api: Api) -> None:
    answer = api("GET", at("queue: x"))
    assert (answer.status, answer.error) == (422, "INVALID_DESTINATION")


# -- namespaces -------------------------------------------------------------------------------------------------------


def test_namespaces_are_made_listed_and_deleted(api: Api) -> None:
    name = f"{api.namespace}-made"
    path = "/api/v1/namespaces"
    assert api("POST", path, {"name": name}).status == 201
    assert api("POST", path, {"name": name}).status == 200
    inside = Api(api.broker, name)
    inside.ok("PUT", at("queue:q"))
    inside.ok("POST", f"{at('queue:q')}/messages", {"body": "x"})
    rows = api.get(path, like=name)["namespaces"]
    size = rows[0].pop("bytes")
    assert rows == [
        {"name": name, "destinations": 1, "connections": 0, "depth": 1, "in_flight": 0, "scheduled": 0, "fill": None}
    ]
    assert size > 0
    one = f"{path}/{quote(name, safe='')}"
    assert api.ok("DELETE", one, dry_run="true")["matched"] == 1
    assert api.ok("DELETE", one)["touched"] == 1
    assert api("DELETE", one).status == 404
    assert api("GET", f"{one}/destinations").status == 404


def test_a_namespace_in_use_is_not_deleted(api: Api, context: JMSContext) -> None:
    answer = api("DELETE", f"/api/v1/namespaces/{quote(api.namespace, safe='')}")
    assert (answer.status, answer.error, answer.json["details"]["connections"]) == (409, "ILLEGAL_STATE", 1)


def test_the_default_namespace_is_always_there(broker: object, api: Api) -> None:
    default = Api(api.broker)
    assert default("GET", "destinations").status == 200


def test_broker(api: Api, context: JMSContext) -> None:
    before = api.get("/api/v1/broker")
    send(context, "queue:q", 1, 2)
    after = api.get("/api/v1/broker")
    assert after["totals"]["enqueued"] - before["totals"]["enqueued"] == 2
    assert after["messages"]["ready"] - before["messages"]["ready"] == 2
    assert (after["phase"], after["url"], after["http_url"]) == ("ready", api.broker.url, api.broker.http_url)
    assert (after["user"], after["blocked"], after["durable"]) == (None, None, False)
    api.ok("DELETE", at("queue:q"))
    assert api.get("/api/v1/broker")["totals"]["enqueued"] == after["totals"]["enqueued"]
