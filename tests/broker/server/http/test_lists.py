"""Lists: searched, filtered, sorted, in pages, with totals; connections, consumers and what they hold."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import pytest

from sievemq import ConnectionFactory, JMSContext, Queue, Topic
from sievemq.taps import open_tap
from sievemq_broker import EmbeddedBroker
from sievemq_broker.domain.broker import Broker
from sievemq_broker.domain.work import Budget, Make
from sievemq_broker.server.http.api import pages as lists
from sievemq_broker.server.http.api.pages import encode_cursor
from sievemq_broker.server.server import Server

from ...domain.support import Port
from .conftest import Api, at, send
from .test_destinations import subscribed

CONNECTIONS, CONSUMERS = "/api/v1/connections", "/api/v1/consumers"


def pages(api: Api, path: str, rows: str, **query: object) -> list[Any]:
    """All rows of a list, two at a time. Some lists do not say how many there are."""
    found: list[Any] = []
    cursor: dict[str, object] = {}
    while True:
        page = api.get(path, limit=2, **query, **cursor)
        found += page[rows]
        assert page.get("total", len(found)) >= len(found)
        if page["next"] is None:
            assert page.get("total", len(found)) == len(found)
            return found
        cursor = {"cursor": page["next"]}


# -- destinations -----------------------------------------------------------------------------------------------------


@pytest.fixture
def filled(api: Api, context: JMSContext) -> Iterator[Api]:
    """Queues a (3 messages, the oldest one), b (1, and one in flight), c (scheduled), d (empty, paused); topic t with
    two messages for each of two subscriptions."""
    topic = context.create_topic("t")
    for name in ("one", "two"):
        context.create_shared_durable_consumer(topic, name).close()
    send(context, "queue:a", 1, 2, 3)
    send(context, "topic:t", 1, 2)
    api.broker.clock.advance(seconds=10)
    send(context, "queue:b", 1, 2)
    send(context, "queue:c", 1, delivery_delay=3_600_000)
    api("PUT", at("queue:d"))
    api.act("queue:d", "pause")
    with context.create_context(2) as other:
        assert other.create_consumer(other.create_queue("b"), "n = 1").receive(60_000) is not None
        yield api


def names(api: Api, **query: object) -> str:
    return "".join(row["name"] for row in pages(api, "destinations", "destinations", **query))


@pytest.mark.parametrize(
    ("sort", "expected"),
    [
        ("address", "abcdt"),
        ("-depth", "tabcd"),
        ("depth", "cdbat"),
        ("-oldest", "atbcd"),
        ("oldest", "cdbat"),
        ("-in_flight", "bacdt"),
        ("-scheduled", "cabdt"),
        ("-consumers", "bacdt"),
        ("consumers", "acdtb"),
        ("-subscriptions", "tabcd"),
        ("-published", "abtcd"),
    ],
)
def test_destinations_are_sorted_by_any_figure(filled: Api, sort: str, expected: str) -> None:
    found = names(filled, sort=sort)
    if "oldest" in sort:  # the two oldest may be as old as each other
        found, expected = found.replace("t", "a"), expected.replace("t", "a")
    assert found == expected


@pytest.mark.parametrize(
    ("only", "expected"),
    [
        ("waiting", "abt"),
        ("unconsumed", "at"),
        ("in_flight", "b"),
        ("scheduled", "c"),
        ("paused", "d"),
        ("at_limit", ""),
        ("blocked", ""),
    ],
)
def test_destinations_of_one_kind(filled: Api, only: str, expected: str) -> None:
    assert names(filled, only=only) == expected


def test_totals_are_of_all_pages_and_samples_are_in_the_rows(filled: Api) -> None:
    page = filled.get("destinations", limit=1, recent=60)
    assert (page["totals"]["depth"], page["totals"]["in_flight"], page["totals"]["scheduled"]) == (8, 1, 1)
    assert (page["totals"]["consumers"], page["total"]) == (1, 5)
    (row,) = page["destinations"]
    assert set(row["recent"]) <= {0, 1, 2, 3}
    assert len(row["recent"]) <= 60
    assert filled.get("destinations", limit=1)["destinations"][0]["recent"] == []
    assert filled.get("destinations", limit=1, like="c")["totals"]["depth"] == 0


def test_a_cursor_belongs_to_its_order(filled: Api) -> None:
    cursor = filled.get("destinations", limit=1, sort="-depth")["next"]
    assert filled("GET", "destinations", sort="address", cursor=cursor).status == 400


@pytest.mark.parametrize("sort", ["-depth", "-oldest", "-in_flight", "-oldest_in_flight", "-dead_lettered"])
def test_a_topic_of_many_subscriptions_is_sorted_in_slices(sort: str) -> None:
    with EmbeddedBroker(http=True) as broker:
        api = Api(broker)
        broker.call(subscribed, api.namespace)
        (row,) = api.get("destinations", sort=sort)["destinations"]
        assert row["subscriptions"] > 1_000
        assert broker.call(lambda broker: broker.scheduler.overrun) < 50


def test_a_list_takes_as_long_as_the_subscriptions_of_its_topics(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    slices = 0

    async def run(server: object, make: Make[Any]) -> Any:
        nonlocal slices
        budget = Budget(50)
        task = make(0, budget)
        while True:
            slices += 1
            try:
                next(task)
            except StopIteration as over:
                return over.value
            budget.renew(50)

    def subscribe(broker: Broker) -> None:
        space = broker.namespace(api.namespace)
        for number in range(200):
            topic = f"topic:{number % 10}"
            space.open_consumer(Port(), number, topic, connection="c", credit=1, now=1)

    api.broker.call(subscribe)
    monkeypatch.setattr(lists, "run", run)
    assert api.get("destinations", limit=1, sort="-consumers")["totals"]["consumers"] == 200
    assert slices >= 200 // 50


# -- connections and consumers ----------------------------------------------------------------------------------------


@pytest.fixture
def clients(api: Api) -> Iterator[list[JMSContext]]:
    """Clients x (two consumers, one holds three messages), zoe (a consumer) and one without a client id."""
    factory = ConnectionFactory(f"{api.broker.url}/{quote(api.namespace, safe='')}")
    with factory.create_context(2) as x, factory.create_context() as y, factory.create_context() as other:
        x.set_client_id("x")
        y.set_client_id("zoe")
        send(other, "queue:held", 1, 2, 3)
        held = x.create_consumer(Queue("held"))
        assert held.receive(60_000) is not None
        kept = [held, x.create_consumer(Queue("other"), "n > 5"), y.create_consumer(Topic("t"))]
        other.create_temporary_queue()
        yield [x, y, other]
        for consumer in kept:
            consumer.close()


def test_connections_are_found_sorted_and_added_up(api: Api, clients: list[JMSContext]) -> None:
    def found(**query: object) -> list[str | None]:
        return [row["client_id"] for row in pages(api, CONNECTIONS, "connections", namespace=api.namespace, **query)]

    assert len(clients) == 3
    assert found() == ["x", "zoe", None]
    assert found(sort="-opened") == [None, "zoe", "x"]
    assert found(sort="client_id") == ["x", "zoe", None]
    assert found(sort="-consumers")[0] == "x"
    assert found(sort="-unacknowledged")[0] == "x"
    assert found(sort="-bytes_in")[0] is None
    for sort in ("user", "peer", "protocol", "-blocked", "-sessions", "-staged_bytes", "bytes_out"):
        assert sorted(found(sort=sort), key=str) == [None, "x", "zoe"]
    assert found(like="ZO") == ["zoe"]
    assert found(like="sievemq-python") == ["x", "zoe", None]
    assert found(client_id="x") == ["x"]
    assert found(only="holding") == ["x"]
    assert found(only="blocked") == found(only="congested") == []
    totals = api.get(CONNECTIONS, namespace=api.namespace, limit=1)["totals"]
    assert (totals["sessions"], totals["consumers"], totals["unacknowledged"]) == (3, 3, 3)


def test_a_connection_with_its_sessions(api: Api, clients: list[JMSContext]) -> None:
    (row,) = api.get(CONNECTIONS, client_id="x", namespace=api.namespace)["connections"]
    with clients[0].create_context(0) as other:
        other.create_producer().send(Queue("staged"), "x")
        found = api.get(f"{CONNECTIONS}/{row['id']}")
        modes = [session["mode"] for session in found["open_sessions"]]
        assert modes == ["CLIENT_ACKNOWLEDGE", "TRANSACTED"]
        assert [session["consumers"] for session in found["open_sessions"]] == [2, 0]
        assert found["sessions"] == 2
        other.rollback()
    assert (found["client_id"], found["id"]) == ("x", row["id"])
    assert api("GET", f"{CONNECTIONS}/nobody-1").status == 404


def test_consumers_are_found_sorted_and_added_up(api: Api, clients: list[JMSContext]) -> None:
    def found(**query: object) -> list[str]:
        rows = pages(api, CONSUMERS, "consumers", namespace=api.namespace, **query)
        return [row["address"].partition(":")[2] for row in rows]

    assert len(clients) == 3
    assert found() == ["held", "other", "t"]
    assert found(sort="-opened") == ["t", "held", "other"]
    assert found(sort="address") == ["held", "other", "t"]
    for sort in ("-in_flight", "-oldest", "-delivered"):
        assert found(sort=sort)[0] == "held"
    for sort in ("client_id", "peer", "-acknowledged", "-credit"):
        assert sorted(found(sort=sort)) == ["held", "other", "t"]
    assert found(client_id="zoe") == ["t"]
    assert found(destination="queue:other") == ["other"]
    assert found(like="n > 5") == ["other"]
    assert found(only="holding") == ["held"]
    assert found(only="slow") == []
    assert found(connection="nobody-1") == []
    (connection,) = api.get(CONNECTIONS, client_id="x", namespace=api.namespace)["connections"]
    assert found(connection=connection["id"]) == ["held", "other"]
    assert api.get(CONSUMERS, namespace=api.namespace, limit=1)["totals"]["in_flight"] == 3


def test_a_consumer_and_the_messages_that_it_holds(api: Api, clients: list[JMSContext]) -> None:
    assert len(clients) == 3
    (row,) = api.get(CONSUMERS, destination="queue:held", namespace=api.namespace)["consumers"]
    path = f"{CONSUMERS}/{row['id']}"
    assert api.get(path)["address"] == "queue:held"
    assert api.get(f"{at('queue:held')}/consumers")["consumers"][0]["id"] == row["id"]
    first = api.get(f"{path}/messages", limit=2)
    second = api.get(f"{path}/messages", limit=2, cursor=first["next"])
    held = first["messages"] + second["messages"]
    assert [message["properties"]["n"]["value"] for message in held] == [1, 2, 3]
    assert {message["state"] for message in held} == {"in_flight"}
    assert second["next"] is None
    for far in (-1, 4, 2**80):  # a cursor is what anybody makes of it
        assert api("GET", f"{path}/messages", cursor=encode_cursor(far)).status == 200
    for wrong in ("nobody-1.1", "x", f"{row['connection']}.99", f"{row['connection']}.x"):
        assert api("GET", f"{CONSUMERS}/{wrong}").status == 404
        assert api("GET", f"{CONSUMERS}/{wrong}/messages").status == 404
        assert api("DELETE", f"{at('queue:held')}/consumers/{wrong}").status == 404
    assert api("DELETE", f"{at('queue:other')}/consumers/{row['id']}").status == 404


# -- subscriptions, taps, dead letters --------------------------------------------------------------------------------


def test_subscriptions_are_found_and_sorted(filled: Api, context: JMSContext) -> None:
    consumer = context.create_consumer(Topic("u"))

    def found(**query: object) -> list[str | None]:
        return [row["name"] for row in pages(filled, "subscriptions", "subscriptions", **query)]

    assert found() == ["one", "two", None]
    assert found(sort="name") == ["one", "two", None]
    for sort in ("-depth", "-oldest", "-bytes"):
        assert found(sort=sort)[-1] is None
    for sort in ("client_id", "-in_flight"):
        assert sorted(found(sort=sort), key=str) == [None, "one", "two"]
    assert found(sort="-consumers")[0] is None
    assert found(only="offline") == found(only="waiting") == ["one", "two"]
    assert found(only="in_flight") == []
    assert found(client_id="nobody") == []
    assert found(like="TW") == ["two"]
    page = filled.get("subscriptions", limit=1)
    assert (page["totals"]["depth"], page["totals"]["consumers"]) == (4, 1)
    assert page["subscriptions"][0]["oldest_ms"] >= 0
    consumer.close()


def test_taps_are_found_and_sorted(api: Api, context: JMSContext) -> None:
    factory = ConnectionFactory(f"{api.broker.url}/{quote(api.namespace, safe='')}")
    with factory.create_connection() as connection:
        for name, queue in (("b", "one"), ("a", "two")):
            open_tap(connection, name, Queue(queue))
        send(context, "queue:two", 1)

        def found(**query: object) -> list[str]:
            return [row["name"] for row in pages(api, "taps", "taps", **query)]

        assert found() == ["b", "a"]
        assert found(sort="name") == ["a", "b"]
        for sort in ("-lag", "-lag_ms", "-bytes"):
            assert found(sort=sort) == ["a", "b"]
        assert found(sort="-missed") == ["b", "a"]
        assert found(like="one") == ["b"]


def test_dead_letter_queues_are_found_and_sorted(api: Api, context: JMSContext) -> None:
    send(context, "queue:DLQ.one", 1)
    send(context, "queue:DLQ.two", 1, 2)

    def found(**query: object) -> list[str]:
        return [row["address"] for row in pages(api, "dead-letters", "queues", **query)]

    assert found() == ["queue:DLQ.one", "queue:DLQ.two"]
    assert found(sort="-depth") == ["queue:DLQ.two", "queue:DLQ.one"]
    assert found(like="one") == ["queue:DLQ.one"]


# -- the record, what happened, patterns, namespaces, scheduled messages -----------------------------------------------


def paged(api: Api, path: str, rows: str, of: str, **query: object) -> list[Any]:
    return [row[of] for row in pages(api, path, rows, **query)]


@pytest.mark.parametrize(
    ("sort", "expected"),
    [("-time", "edcba"), ("time", "abcde"), ("action", "baedc"), ("user", "acdeb"), ("-touched", "bdace")],
)
def test_the_record_is_sorted(sort: str, expected: str) -> None:
    def fill(server: Server) -> None:
        for user, action, touched in (("a", "2", 3), (None, "1", 9), ("c", "3", 1), ("d", "3", 5), ("e", "2", None)):
            about = {"user": user, "touched": touched, "namespace": "ns" if user else None}
            server.audit.record(action, via="cli", **about)

    with EmbeddedBroker(http=True) as broker:
        broker._submit(fill).result()
        found = paged(Api(broker), "/api/v1/audit", "rows", "user", sort=sort)
        if sort == "action":  # within an action by age
            assert [row["action"] for row in Api(broker).get("/api/v1/audit", sort=sort)["rows"]] == list("12233")
        else:
            assert "".join(user or "b" for user in found) == expected


def test_what_happened_is_sorted_and_found() -> None:
    with EmbeddedBroker(http=True) as broker:
        api = Api(broker)
        for text in ("one", "two", "three"):
            api.ok("POST", "/api/v1/history", {"text": text})
        assert paged(api, "/api/v1/history", "events", "event", sort="event") == ["broker.started", *["mark"] * 3]
        times = paged(api, "/api/v1/history", "events", "time", sort="time")
        assert times == sorted(times)
        assert times == paged(api, "/api/v1/history", "events", "time")[::-1]
        assert paged(api, "/api/v1/history", "events", "event", like="START") == ["broker.started"]
        assert paged(api, "/api/v1/history", "events", "event", like="star", sort="event") == ["broker.started"]


def test_patterns_are_sorted() -> None:
    rules = {"destinations": {"b": {}, "a": {}, "*": {}}}
    with EmbeddedBroker(http=True, settings=rules) as broker:
        api = Api(broker)
        api.ok("PUT", "/api/v1/rules/queue:a", {"rules": {"max_attempts": 2}})
        for sort, expected in (
            ("order", ["queue:b", "queue:a", "*"]),
            ("pattern", ["*", "queue:a", "queue:b"]),
            ("-changed", ["queue:a", "queue:b", "*"]),
            ("changed", ["queue:b", "*", "queue:a"]),
        ):
            assert [row["pattern"] for row in api.get("/api/v1/rules", sort=sort)["rules"]] == expected
        assert api.get("/api/v1/limits", sort="pattern")["rules"] == []


def test_namespaces_are_sorted_by_a_figure() -> None:
    with EmbeddedBroker(http=True) as broker:
        for name, depth in (("b", 3), ("c", 1), ("a", 2)):
            with ConnectionFactory(f"{broker.url}/{name}").create_context() as context:
                send(context, "queue:q", *range(depth))
        api = Api(broker)
        assert paged(api, "/api/v1/namespaces", "namespaces", "name", like="*") == ["a", "b", "c"]
        assert paged(api, "/api/v1/namespaces", "namespaces", "name", sort="-depth") == ["b", "a", "c"]
        assert paged(api, "/api/v1/namespaces", "namespaces", "name", sort="bytes", like="b") == ["b"]


def test_scheduled_messages_are_sorted(api: Api, context: JMSContext) -> None:
    producer = context.create_producer()
    for text, delay in (("aa", 3), ("a", 2), ("aaa", 1)):
        producer.set_delivery_delay(3_600_000 * delay).send(context.create_queue("q"), text)
    path = f"{at('queue:q')}/scheduled"
    sizes = paged(api, path, "messages", "size", sort="size")
    assert sizes == sorted(sizes)
    assert paged(api, path, "messages", "size", sort="-size") == sizes[::-1]
    assert paged(api, path, "messages", "size") == [sizes[2], sizes[0], sizes[1]]
    assert paged(api, path, "messages", "size", sort="-due") == [sizes[1], sizes[0], sizes[2]]


def test_scheduled_messages_of_all_queues_are_sorted_and_found(api: Api, context: JMSContext) -> None:
    producer = context.create_producer()
    for name, text, delay in (("b", "aa", 3), ("a", "a", 3), ("b", "aaa", 1), ("a", "aaaa", 2)):
        producer.set_delivery_delay(3_600_000 * delay).send(context.create_queue(name), text)
    api.ok("POST", f"{at('queue:b')}/messages", {"body": "waits"})

    def sizes(**query: object) -> str:
        rows = pages(api, "scheduled", "messages", preview=9, **query)
        return " ".join(f"{row['destination'][6:]}{len(row['preview'])}" for row in rows)

    assert sizes(sort="-due").split()[2:] == ["a4", "b3"]
    assert sizes().split()[:2] == ["b3", "a4"]
    assert sizes(sort="size") == "a1 b2 b3 a4"
    assert sizes(sort="-size") == "a4 b3 b2 a1"
    assert sizes(sort="destination") == "a1 a4 b2 b3"
    assert sizes(sort="destination", like="B") == "b2 b3"
    whole = api.get("scheduled", limit=1)
    assert (whole["total"], whole["messages"][0]["may"]) == (4, ["send", "consume", "browse", "manage", "view"])
