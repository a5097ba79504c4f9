"""What users with few rights see and may do through the API."""

from __future__ import annotations

import base64
from collections.abc import Iterator

import pytest

from sievemq import ConnectionFactory, JMSContext, Queue
from sievemq_broker import EmbeddedBroker

from .conftest import Api, at

USERS = {
    "admin": "secret",
    "anna": {
        "password": "secret",
        "rights": [
            {"may": ["send", "browse"], "destination": "queue:orders.*", "namespace": "mine"},
            {"may": ["view"], "destination": "queue:stock", "namespace": "mine"},
        ],
    },
    "max": {
        "password": "secret",
        "rights": [{"may": ["manage"], "destination": "queue:orders.*", "namespace": "mine"}],
    },
    "eve": {
        "password": "secret",
        "rights": [{"may": ["send", "manage"], "destination": "queue:DLQ.eve", "namespace": "mine"}],
    },
}


@pytest.fixture(scope="module")
def guarded() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(http=True, settings={"users": USERS}) as broker:
        admin = as_user(broker, "admin")
        for namespace in ("mine", "other"):
            admin.ok("POST", "/api/v1/namespaces", {"name": namespace})
            inside = as_user(broker, "admin", namespace)
            for address in ("queue:orders.eu", "queue:stock", "queue:secret", "topic:orders.eu", "queue:DLQ.secret"):
                inside.ok("PUT", at(address))
            inside.ok("POST", f"{at('queue:orders.eu')}/messages", {"body": "x"})
            inside.ok("POST", f"{at('queue:DLQ.secret')}/messages", {"body": "x"})
        yield broker


def as_user(broker: EmbeddedBroker, user: str, namespace: str = "mine") -> Api:
    credentials = base64.b64encode(f"{user}:secret".encode()).decode()
    return Api(broker, namespace, Authorization=f"Basic {credentials}")


def test_lists_omit_destinations_without_the_right_to_view(guarded: EmbeddedBroker) -> None:
    anna = as_user(guarded, "anna")
    assert [row["name"] for row in anna.get("/api/v1/namespaces")["namespaces"]] == ["mine"]
    found = anna.get("destinations")
    assert [row["address"] for row in found["destinations"]] == ["queue:orders.eu", "queue:stock"]
    assert found["total"] == 2
    assert anna.get("dead-letters") == {"queues": [], "total": 0, "next": None}
    later = {"body": "x", "delivery_delay": 3_600_000}
    as_user(guarded, "admin").ok("POST", f"{at('queue:secret')}/messages", later)
    assert anna.get("scheduled") == {"messages": [], "total": 0, "next": None}
    assert anna.get("/api/v1/connections")["total"] == 0
    facts = anna.get("/api/v1/broker")
    assert (facts["user"], facts["namespaces"], facts["destinations"], facts["totals"]["enqueued"]) == ("anna", 1, 2, 1)


def test_consumers_are_shown_to_users_who_may_view_their_destinations(guarded: EmbeddedBroker) -> None:
    admin, anna = (as_user(guarded, name) for name in ("admin", "anna"))
    with ConnectionFactory(f"{guarded.url}/mine").create_context("admin", "secret") as context:
        names = ("orders.eu", "stock", "secret")
        consumers = [context.create_consumer(Queue(name), "n = 1") for name in names]
        rows = {row["address"]: row["id"] for row in admin.get("/api/v1/consumers", namespace="mine")["consumers"]}
        assert len(rows) == len(consumers)
        found = anna.get("/api/v1/consumers")
        assert [row["address"] for row in found["consumers"]] == ["queue:orders.eu", "queue:stock"]
        assert anna("GET", f"/api/v1/consumers/{rows['queue:secret']}").error == "NOT_FOUND"
        assert anna("GET", f"/api/v1/consumers/{rows['queue:orders.eu']}/messages").status == 200
        assert anna("GET", f"/api/v1/consumers/{rows['queue:stock']}").status == 200
        assert anna("GET", f"/api/v1/consumers/{rows['queue:stock']}/messages").error == "SECURITY"
        (connection,) = admin.get("/api/v1/connections")["connections"]
        assert anna("GET", f"/api/v1/connections/{connection['id']}").error == "NOT_FOUND"


def test_another_namespace_does_not_exist(guarded: EmbeddedBroker) -> None:
    anna = as_user(guarded, "anna", "other")
    for path in ("destinations", "subscriptions", "dead-letters"):
        assert anna("GET", path).error == "NOT_FOUND"
    assert anna("GET", at("queue:orders.eu")).error == "SECURITY"
    assert anna("GET", at("queue:none")).error == "SECURITY"


def test_each_action_needs_its_right(guarded: EmbeddedBroker) -> None:
    anna, manager = as_user(guarded, "anna"), as_user(guarded, "max")
    queue, secret, stock = at("queue:orders.eu"), at("queue:secret"), at("queue:stock")
    assert anna("GET", f"{queue}/messages").status == 200
    assert anna("POST", f"{queue}/messages", {"body": "x"}).status == 201
    assert anna("GET", stock).status == 200
    for method, path, body in (
        ("GET", f"{stock}/messages", None),
        ("GET", f"{stock}/messages/1/body", None),
        ("GET", f"{stock}/tail", None),
        ("POST", f"{stock}/export", {}),
        ("POST", f"{stock}/messages", {"body": "x"}),
        ("POST", f"{stock}/import", {"lines": ["{}"], "dry_run": True}),
        ("GET", secret, None),
        ("GET", f"{secret}/messages/1", None),
        ("GET", f"{secret}/series", None),
        ("GET", f"{secret}/consumers", None),
        ("GET", at("topic:orders.eu"), None),
        ("POST", f"{queue}/actions/purge", {}),
        ("POST", f"{queue}/actions/pause", {}),
        ("DELETE", queue, None),
        ("PUT", at("queue:orders.new"), None),
        ("DELETE", "/api/v1/namespaces/mine", None),
        ("POST", "/api/v1/namespaces", {"name": "new"}),
        ("GET", "/api/v1/series", None),
    ):
        answer = anna(method, path, body)
        assert (answer.status, answer.error) == (403, "SECURITY"), (method, path)
    assert manager("PUT", at("queue:orders.new")).status == 201
    assert manager("POST", f"{queue}/actions/purge", {"dry_run": True}).status == 200
    assert manager("GET", f"{queue}/messages").error == "SECURITY"


def test_a_move_needs_the_right_to_send_to_its_target(guarded: EmbeddedBroker) -> None:
    manager = as_user(guarded, "max")
    path = f"{at('queue:orders.eu')}/actions/move"
    for target in ("queue:orders.new", "queue:secret", "orders.new"):
        assert manager("POST", path, {"to": target}).error == "SECURITY"


def test_a_retry_needs_the_right_to_send_to_the_origin(guarded: EmbeddedBroker) -> None:
    eve, admin = as_user(guarded, "eve"), as_user(guarded, "admin")
    factory = ConnectionFactory(f"{guarded.url}/mine")
    with factory.create_context("admin", "secret", JMSContext.CLIENT_ACKNOWLEDGE) as context:
        context.create_producer().send(Queue("stock"), "x")
        consumer = context.create_consumer(Queue("stock"))
        while consumer.receive_no_wait() is not None:
            context.recover()
    queue = at("queue:DLQ.eve")
    admin.ok("POST", f"{at('queue:DLQ.stock')}/actions/move", {"to": "queue:DLQ.eve"})
    assert eve("POST", f"{queue}/actions/retry", {"dry_run": True}).status == 200
    assert eve("POST", f"{queue}/actions/retry").error == "SECURITY"
    assert admin.get(at("queue:stock"))["depth"] == 0
    assert admin.ok("POST", f"{queue}/actions/retry")["touched"] == 1
    assert admin.get(at("queue:stock"))["depth"] == 1


def test_a_selector_is_not_tried_on_what_may_not_be_seen(guarded: EmbeddedBroker) -> None:
    anna = as_user(guarded, "anna")
    body = {"selector": "a = 1", "namespace": "mine", "destination": "queue:DLQ.secret", "id": "1"}
    assert anna("POST", "/api/v1/selector/explain", body).error == "SECURITY"
    assert anna("POST", "/api/v1/selector/explain", {**body, "destination": "orders.eu"}).status == 200
    assert anna("POST", "/api/v1/selector/explain", {**body, "namespace": "other"}).error == "SECURITY"


def test_the_session_lists_the_callers_rights(guarded: EmbeddedBroker) -> None:
    admin, anna, manager = (as_user(guarded, name) for name in ("admin", "anna", "max"))
    everything = ["send", "consume", "browse", "manage", "view"]
    assert admin.get("/api/v1/session") == {
        "user": "admin",
        "unlimited": True,
        "rights": [{"may": sorted(everything), "destination": "*", "namespace": "*"}],
        "may": everything,
    }
    hers = anna.get("/api/v1/session")
    assert (hers["user"], hers["unlimited"], hers["may"]) == ("anna", False, [])
    assert hers["rights"] == [
        {"may": ["browse", "send"], "destination": "queue:orders.*", "namespace": "mine"},
        {"may": ["view"], "destination": "queue:stock", "namespace": "mine"},
    ]
    assert anna.get("/api/v1/session", namespace="other")["rights"] == []

    def may(api: Api, destination: str) -> list[str]:
        found: list[str] = api.get("/api/v1/session", namespace="mine", destination=destination)["may"]
        return found

    assert may(anna, "orders.not-there-yet") == ["send", "browse", "view"]
    assert may(anna, "queue:stock") == ["view"]
    assert may(anna, "queue:secret") == []
    assert may(manager, "queue:orders.eu") == ["manage", "view"]
    assert anna("GET", "/api/v1/session", destination="queue:").status == 422


def test_rows_list_permitted_actions(guarded: EmbeddedBroker) -> None:
    anna, eve, admin = (as_user(guarded, name) for name in ("anna", "eve", "admin"))
    rows = {row["address"]: row["may"] for row in anna.get("destinations")["destinations"]}
    assert rows == {"queue:orders.eu": ["send", "browse", "view"], "queue:stock": ["view"]} | {
        address: ["send", "browse", "view"] for address in rows if address == "queue:orders.new"
    }
    assert anna.get(at("queue:stock"))["may"] == ["view"]
    assert eve.get("dead-letters")["queues"] == []
    assert "manage" in admin.get("dead-letters")["queues"][0]["may"]


def test_rows_of_connections_and_subscriptions_say_so_too() -> None:
    may = ["view", "consume", "send"]
    users = {
        "admin": "secret",
        "tom": {"password": "secret", "rights": [{"may": may, "destination": "*", "namespace": "mine"}]},
        "eva": {"password": "secret", "rights": [{"may": ["manage"], "destination": "topic:*", "namespace": "mine"}]},
    }
    with EmbeddedBroker(http=True, settings={"users": users}) as broker:
        tom, eva, admin = (as_user(broker, name) for name in ("tom", "eva", "admin"))
        with (
            ConnectionFactory(f"{broker.url}/mine", client_id="shop").create_context("tom", "secret") as context,
            context.create_durable_consumer(context.create_topic("prices"), "watch"),
        ):
            for api, verbs in ((tom, ["send", "consume", "view"]), (eva, ["manage", "view"])):
                (row,) = api.get("subscriptions")["subscriptions"]
                assert row["may"] == verbs
            (row,) = tom.get("/api/v1/connections")["connections"]
            assert row["may"] == ["send", "consume", "view"]
            assert "manage" in admin.get("/api/v1/connections")["connections"][0]["may"]
            assert tom("DELETE", f"/api/v1/connections/{row['id']}").error == "SECURITY"
            assert eva.get("/api/v1/connections")["connections"] == []
            assert (tom.get("/api/v1/broker")["connections"], eva.get("/api/v1/broker")["connections"]) == (1, 0)


def test_figures_cover_visible_destinations_only(guarded: EmbeddedBroker) -> None:
    anna, admin = as_user(guarded, "anna"), as_user(guarded, "admin")
    (hers,) = anna.get("/api/v1/namespaces")["namespaces"]
    seen = anna.get("destinations")["destinations"]
    assert hers["destinations"] == len(seen)
    assert hers["depth"] == sum(row["depth"] for row in seen)
    (all_,) = (row for row in admin.get("/api/v1/namespaces")["namespaces"] if row["name"] == "mine")
    assert all_["destinations"] > hers["destinations"]
    assert all_["depth"] > hers["depth"]


def test_a_user_without_browse_sees_the_count_of_dead_letters() -> None:
    users = {"admin": "secret", "watch": {"password": "secret", "rights": [{"may": ["view"], "namespace": "mine"}]}}
    with EmbeddedBroker(http=True, settings={"users": users}) as broker:
        admin, watch = as_user(broker, "admin"), as_user(broker, "watch")
        admin.ok("POST", "/api/v1/namespaces", {"name": "mine"})
        admin.ok("POST", f"{at('queue:DLQ.q')}/messages", {"body": "x"})
        (queue,) = watch.get("dead-letters")["queues"]
        assert (queue["depth"], queue["examined"], queue["groups"], queue["may"]) == (1, 0, [], ["view"])
        (queue,) = admin.get("dead-letters")["queues"]
        assert (queue["examined"], len(queue["groups"])) == (1, 1)


def test_memory_is_shown_to_users_with_the_right_to_view_everything(guarded: EmbeddedBroker) -> None:
    anna, admin = as_user(guarded, "anna"), as_user(guarded, "admin")
    facts = anna.get("/api/v1/broker")
    assert facts["memory"] is None
    assert facts["messages"]["bytes"] < admin.get("/api/v1/broker")["messages"]["bytes"]  # of what she may view
    assert admin.get("/api/v1/broker")["memory"]["bytes"] > 0
