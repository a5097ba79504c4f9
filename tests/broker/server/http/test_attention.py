"""What needs attention, over HTTP: the list, the rights on it, badges of rows, events, the metric."""

from __future__ import annotations

from base64 import b64encode
from typing import Any

import pytest

from sievemq import ConnectionFactory, JMSContext
from sievemq_broker import EmbeddedBroker
from sievemq_broker.domain import Broker
from sievemq_broker.server.http.api import series
from sievemq_broker.server.server import Phase
from sievemq_broker.thresholds import Thresholds

from .conftest import Api, at, send
from .test_events import listening

#: What takes time is found at once.
SETTINGS = {"attention": {"no_consumer_seconds": 1, "stuck_seconds": 1}, "destinations": {"full": {"max_messages": 1}}}


def look(broker: EmbeddedBroker) -> None:
    """Have a round made now, some seconds later."""
    broker.clock.advance(seconds=5)

    def work(_: Broker) -> None:
        for watch in (broker.server.shard.slow_consumers, broker.server.attention):
            watch._round.next = 0.0
            watch.look()

    broker.call(work)


def found(api: Api) -> dict[str, dict[str, Any]]:
    return {row["rule"]: row for row in api.get("/api/v1/attention")["findings"]}


def test_an_end_in_order_needs_no_attention(monkeypatch: pytest.MonkeyPatch) -> None:
    with EmbeddedBroker(settings=SETTINGS) as broker:
        monkeypatch.setattr(broker.server, "phase", Phase.DRAINING)
        look(broker)
        assert broker.call(lambda _: dict(broker.server.attention.listed)) == {}
        monkeypatch.setattr(broker.server, "phase", Phase.FAILED)
        look(broker)
        assert broker.call(lambda _: [rule.name for rule, _ in broker.server.attention.listed]) == ["not_ready"]
        monkeypatch.setattr(broker.server, "phase", Phase.READY)


def test_what_is_found_is_listed_with_its_object_and_marks_its_rows() -> None:
    with EmbeddedBroker(http=True, settings=SETTINGS) as broker:
        api = Api(broker)
        assert api.get("/api/v1/attention")["findings"] == []
        factory = ConnectionFactory(f"{broker.url}?prefetch=10", client_id="shop")
        with factory.create_context(JMSContext.CLIENT_ACKNOWLEDGE) as context:
            send(context, "queue:alone", 1, 2)
            send(context, "queue:held", 1)
            consumer = context.create_consumer(context.create_queue("held"))
            assert consumer.receive(60_000) is not None
            look(broker)
            look(broker)
            rows = found(api)
            alone, stuck = rows["no_consumer"], rows["consumer_stuck"]
            assert (alone["severity"], alone["address"], alone["amount"]) == ("warning", "queue:alone", 2)
            assert alone["text"] == "no consumer is open; waiting: 2 messages"
            assert alone["advice"].startswith("Start the application")
            assert 0 < alone["since"] < api.get("/api/v1/attention")["now"] - 4_000
            assert (stuck["address"], stuck["client_id"]) == ("queue:held", "shop")
            (consumed,) = api.get(f"{at('queue:held')}/consumers")["consumers"]
            assert stuck["consumer"] == consumed["id"]
            assert consumed["attention"] == ["consumer_stuck"]
            (connection,) = api.get("/api/v1/connections")["connections"]
            assert (connection["id"], connection["attention"]) == (stuck["connection"], ["consumer_stuck"])
            destinations = {row["address"]: row["attention"] for row in api.get("destinations")["destinations"]}
            assert destinations == {"queue:alone": ["no_consumer"], "queue:held": ["consumer_stuck"]}
            metrics = api("GET", "/metrics").content.decode()
            assert 'sievemq_attention{rule="no_consumer",severity="warning"} 1.0' in metrics
            assert 'sievemq_attention{rule="disk_full",severity="critical"} 0.0' in metrics
            assert api.get("/api/v1/attention")["totals"] == {"no_consumer": 1, "consumer_stuck": 1}


def test_a_subscription_has_its_marks() -> None:
    with EmbeddedBroker(http=True, settings=SETTINGS) as broker:
        api = Api(broker)
        with ConnectionFactory(broker.url).create_context() as context:
            context.create_shared_durable_consumer(context.create_topic("prices"), "board").close()
            send(context, "topic:prices", 1)
        look(broker)
        look(broker)
        (row,) = api.get("subscriptions")["subscriptions"]
        assert row["attention"] == ["no_consumer"]
        assert found(api)["no_consumer"]["subscription"] == "topic:prices/board"


def test_callers_see_what_they_may_view() -> None:
    users = {
        "admin": "a",
        "team": {"password": "t", "rights": [{"may": ["view"], "destination": "queue:mine"}]},
    }
    with EmbeddedBroker(http=True, settings={**SETTINGS, "users": users}) as broker:
        with ConnectionFactory(broker.url).create_context("admin", "a") as context:
            send(context, "queue:mine", 1)
            send(context, "queue:other", 1)
        for _ in range(5):
            assert Api(broker, Authorization=basic("admin", "x"))("GET", "/api/v1/broker").status == 401
        look(broker)
        look(broker)
        admin, team = (Api(broker, Authorization=basic(user, user[0])) for user in ("admin", "team"))
        assert admin.get("/api/v1/attention")["totals"] == {"no_consumer": 2, "wrong_passwords": 1}
        answer = team.get("/api/v1/attention")
        assert [row["address"] for row in answer["findings"]] == ["queue:mine"]
        assert answer["totals"] == {"no_consumer": 1}


def basic(user: str, password: str) -> str:
    return "Basic " + b64encode(f"{user}:{password}".encode()).decode()


def test_listeners_learn_what_begins_and_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(series, "STEP_SECONDS", 0.02)
    with EmbeddedBroker(http=True, settings=SETTINGS) as broker, listening(broker) as stream:
        stream.until("tick")
        with ConnectionFactory(broker.url).create_context() as context:
            send(context, "queue:alone", 1)
        look(broker)
        look(broker)
        began = dict(stream.until("attention.began"))["attention.began"]
        assert began["rule"] == "no_consumer"
        assert began["severity"] == "warning"
        assert began["text"] == "no consumer is open; waiting: 1 message"
        assert (began["namespace"], began["address"]) == ("default", "queue:alone")
        broker.call(lambda domain: domain.namespace("default").queue("queue:alone").clear())
        look(broker)
        assert dict(stream.until("attention.ended"))["attention.ended"]["rule"] == "no_consumer"


def test_thresholds_are_a_setting() -> None:
    with EmbeddedBroker(http=True, settings={"attention": {"stuck_seconds": 7}}) as broker:
        assert broker.server.settings.attention == Thresholds(stuck_seconds=7)
