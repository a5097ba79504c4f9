"""The management port: health, metrics, API."""

from __future__ import annotations

import base64
import http.client
import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from sievemq_broker import EmbeddedBroker
from sievemq_broker.server.server import Phase
from sievemq_core.wire.commands import Command

from .wire_client import DEADLINE, WireClient


class Answer:
    def __init__(self, response: http.client.HTTPResponse) -> None:
        self.status = response.status
        self.headers = {name.lower(): value for name, value in response.getheaders()}
        self.text = response.read().decode()

    @property
    def json(self) -> Any:
        return json.loads(self.text)


def get(broker: EmbeddedBroker, path: str, method: str = "GET", **headers: str) -> Answer:
    parts = urlsplit(broker.http_url)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=DEADLINE)
    try:
        connection.request(method, path, headers=headers)
        return Answer(connection.getresponse())
    finally:
        connection.close()


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(http=True) as broker:
        yield broker


@pytest.fixture
def client(broker: EmbeddedBroker) -> Iterator[WireClient]:
    """A client in a namespace of its own."""
    number = len(broker.server.shard.broker.namespaces)
    with WireClient(broker.port, namespace=f"space{number}") as client:
        client.namespace = f"space{number}"  # type: ignore[attr-defined]
        yield client.open_session()


# -- health -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/livez", "/readyz", "/healthz"])
def test_healthy(broker: EmbeddedBroker, path: str) -> None:
    answer = get(broker, path)
    assert answer.status == 200
    assert answer.json["status"] in ("ok", "ready")


def test_readiness_says_why_not(broker: EmbeddedBroker) -> None:
    server = broker.server
    broker.call(lambda _: setattr(server, "phase", Phase.DRAINING))
    try:
        answer = get(broker, "/readyz")
        assert (answer.status, answer.json["reasons"]) == (503, ["draining"])
        assert get(broker, "/livez").status == 200
    finally:
        broker.call(lambda _: setattr(server, "phase", Phase.READY))
    limit = server.links.limit
    broker.call(lambda _: setattr(server.links, "limit", 0))
    try:
        assert get(broker, "/readyz").json["reasons"] == ["all 0 connections are taken"]
    finally:
        broker.call(lambda _: setattr(server.links, "limit", limit))


# -- what is not there ------------------------------------------------------------------------------------------------


def test_unknown_paths_and_methods(broker: EmbeddedBroker) -> None:
    for path in ("/nope", "/api/v1/nope", "/api/v2/broker"):
        answer = get(broker, path)
        assert (answer.status, answer.json["error"]) == (404, "NOT_FOUND")
    for path in ("/livez", "/api/v1/broker"):
        answer = get(broker, path, method="DELETE")
        assert (answer.status, answer.json["error"]) == (405, "METHOD_NOT_ALLOWED")
        assert "GET" in answer.headers["allow"]


# -- metrics ----------------------------------------------------------------------------------------------------------


def metric(broker: EmbeddedBroker, name: str, **labels: str) -> float:
    """The sum of the samples of a metric that have these labels."""
    return total(samples(broker), name, **labels)


def samples(broker: EmbeddedBroker) -> list[Sample]:
    """What one scrape says."""
    answer = get(broker, "/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=")
    return [sample for family in text_string_to_metric_families(answer.text) for sample in family.samples]


def total(samples: list[Sample], name: str, **labels: str) -> float:
    """The sum of those of this name that have these labels."""
    found = [s.value for s in samples if s.name == name and labels.items() <= s.labels.items()]
    assert found, f"no sample of {name} with {labels}"
    return sum(found)


def test_metrics_follow_the_messages(broker: EmbeddedBroker, client: WireClient) -> None:
    of = {"namespace": client.namespace, "kind": "queue"}  # type: ignore[attr-defined]
    for _ in range(4):
        client.send("queue:a")
    client.send("queue:b").confirmed().open_consumer("queue:a", credit=3)
    for _ in range(3):
        tag = client.until(Command.DELIVER)[2]
    client.say(Command.ACKNOWLEDGE, 1, tag - 1, 0)
    client.request(Command.PING)
    assert metric(broker, "sievemq_messages_enqueued_total", **of) == 5
    assert metric(broker, "sievemq_messages_delivered_total", **of) == 3
    assert metric(broker, "sievemq_messages_acknowledged_total", **of) == 2
    assert metric(broker, "sievemq_queue_messages", state="ready", **of) == 2
    assert metric(broker, "sievemq_queue_messages", state="inflight", **of) == 1
    assert metric(broker, "sievemq_consumers", **of) == 1
    assert metric(broker, "sievemq_destinations", **of) == 2
    assert metric(broker, "sievemq_connections") >= 1
    assert metric(broker, "sievemq_received_bytes_total") > 0


def test_counters_do_not_fall_when_destinations_go(broker: EmbeddedBroker, client: WireClient) -> None:
    space = {"namespace": client.namespace}  # type: ignore[attr-defined]
    address = client.request(Command.CREATE_TEMPORARY, False)[2]
    topic = client.request(Command.CREATE_TEMPORARY, True)[2]
    client.open_consumer(topic, credit=5, selector="JMSPriority = 4")
    client.send(address).send(topic).until(Command.DELIVER)
    names = ("enqueued", "published", "delivered")
    before = [metric(broker, f"sievemq_messages_{name}_total", **space) for name in names]
    assert before == [2, 1, 1]
    client.request(Command.CLOSE_CONSUMER, 1, 1)
    for text in (address, topic):
        assert client.request(Command.DELETE_TEMPORARY, text)[0] == Command.OK
    assert [metric(broker, f"sievemq_messages_{name}_total", **space) for name in names] == before
    assert metric(broker, "sievemq_selector_matches_total", **space) >= 1


def test_loop_lag_is_a_histogram_that_adds_up(broker: EmbeddedBroker) -> None:
    scraped = samples(broker)  # one: the loop goes on between two
    assert total(scraped, "sievemq_event_loop_lag_seconds_bucket", le="+Inf") == total(
        scraped, "sievemq_event_loop_lag_seconds_count"
    )


def test_labels_are_of_low_cardinality(broker: EmbeddedBroker, client: WireClient) -> None:
    for number in range(50):
        client.send(f"queue:zebra{number}")
    client.confirmed()
    text = get(broker, "/metrics").text
    assert "zebra" not in text
    assert client.welcome[4] not in text


# -- who may look -----------------------------------------------------------------------------------------------------


def test_with_users_only_they_see_the_console_and_probes_stay_open() -> None:
    with EmbeddedBroker(http=True, users={"anna": "rosebud"}) as broker:
        for path in ("/", "/api/v1/broker", "/console/main.js", "/nope"):
            answer = get(broker, path)
            assert answer.status == 401
            assert answer.headers["www-authenticate"].startswith("Basic")
            assert answer.json["error"] == "AUTHENTICATION"
        for path in ("/livez", "/readyz", "/healthz"):
            assert get(broker, path).status == 200
        right = "Basic " + base64.b64encode(b"anna:rosebud").decode()
        assert get(broker, "/api/v1/broker", Authorization=right).status == 200
        for wrong in ("Basic " + base64.b64encode(b"anna:wrong").decode(), "Basic !", "Bearer x", "Basic /w==", ""):
            assert get(broker, "/api/v1/broker", Authorization=wrong).status == 401
