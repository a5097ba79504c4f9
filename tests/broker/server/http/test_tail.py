"""Following a destination: each message that arrives is shown, and none is taken."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

import pytest

from sievemq import ConnectionFactory, JMSContext
from sievemq_broker import EmbeddedBroker
from sievemq_broker.server.http.api import tail
from sievemq_broker.server.http.api.management import Slots
from sievemq_broker.server.http.errors import ApiError

from .conftest import DEADLINE, Api, at, send

Q = "queue:q"


@contextmanager
def following(api: Api, address: str = Q, **query: object) -> Iterator[Iterator[tuple[str, Any]]]:
    """Events but heartbeats, once the broker follows."""
    parts = urlsplit(api.broker.http_url)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=DEADLINE)
    target = f"/api/v1/namespaces/{quote(api.namespace, safe='')}/{at(address)}/tail?{urlencode(query)}"
    connection.request("GET", target)
    response = connection.getresponse()
    assert response.status == 200, response.read()

    def events() -> Iterator[tuple[str, Any]]:
        name = ""
        for raw in response:
            line = raw.decode().rstrip("\n")
            if line.startswith("event: "):
                name = line[7:]
            elif line.startswith("data: "):
                yield name, json.loads(line[6:])

    found = events()
    assert next(found) == ("heartbeat", {"seconds": 2.0})
    try:
        yield (event for event in found if event[0] != "heartbeat")
    finally:
        connection.close()
        response.close()


def test_arrivals_are_shown_and_stay(api: Api, context: JMSContext) -> None:
    send(context, Q, 0)
    consumer = context.create_consumer(context.create_queue("q"))
    with following(api, selector="n > 1", preview=40) as events:
        send(context, Q, 1, 2, 3)
        name, row = next(events)
        assert (name, row["preview"], row["properties"]["n"]["value"]) == ("message", "text 2", 2)
        assert next(events)[1]["preview"] == "text 3"
        assert [consumer.receive_body(str, 30_000) for _ in range(4)] == ["text 0", "text 1", "text 2", "text 3"]
        (tap,) = api.get("taps")["taps"]
        assert (tap["mode"], tap["destination"], tap["name"][:5]) == ("copy", Q, "tail ")
        assert api.ok("DELETE", f"{at(Q)}/taps/{quote(tap['name'])}")
        assert next(events) == ("ended", {})
    assert api.get("taps")["taps"] == []


def test_a_topic_is_followed(api: Api, context: JMSContext) -> None:
    send(context, "topic:t", 0)
    with following(api, "topic:t") as events:
        send(context, "topic:t", 1)
        assert next(events)[1]["properties"]["n"]["value"] == 1


def test_what_comes_too_fast_is_counted(api: Api, context: JMSContext, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tail, "_TERMS", {**tail._TERMS, "retain_messages": 3})
    context.create_producer().send(context.create_queue("q"), "x")
    with following(api) as events, context.create_context(JMSContext.SESSION_TRANSACTED) as other:
        send(other, Q, *range(10))
        other.commit()
        assert next(events) == ("missed", {"messages": 7})
        assert [next(events)[1]["properties"]["n"]["value"] for _ in range(3)] == [7, 8, 9]


def test_half_a_character_does_not_end_it(api: Api, context: JMSContext) -> None:
    send(context, Q, 0)
    with following(api, preview=9) as events:
        for text in ("\ud800", "x"):
            context.create_producer().send(context.create_queue("q"), text)
        assert [next(events)[1]["preview"] for _ in range(2)] == ["\ufffd\ufffd\ufffd", "x"]


def test_what_cannot_be_followed(api: Api, context: JMSContext) -> None:
    send(context, Q, 0)
    assert api("GET", f"{at('queue:none')}/tail").status == 404
    assert api("GET", f"{at(Q)}/tail", selector="n >").status == 422
    assert api("HEAD", f"{at(Q)}/tail").status == 200
    assert api.get("taps")["taps"] == []


def test_there_are_places_for_some_at_a_time() -> None:
    slots = Slots(1, "live tails")
    for _ in range(2):
        with slots.one(None), pytest.raises(ApiError, match="1 live tails are at work") as raised, slots.one(None):
            pass
    assert raised.value.status == 429


def test_one_user_leaves_places_for_others() -> None:
    slots = Slots(4, "exports")
    for _ in range(2):
        with slots.one("anna"), slots.one("anna"), slots.one("max"):
            with pytest.raises(ApiError, match="2 exports of 'anna' are at work"), slots.one("anna"):
                pass
            with slots.one("max"), pytest.raises(ApiError, match="4 exports are at work"), slots.one("eva"):
                pass


def test_it_ends_with_the_broker_and_is_not_cut() -> None:
    with EmbeddedBroker(http=True) as broker:
        api = Api(broker)
        api.ok("PUT", at(Q))
        parts = urlsplit(broker.http_url)
        connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=DEADLINE)
        connection.request("GET", f"/api/v1/namespaces/default/{at(Q)}/tail")
        with closing(connection), connection.getresponse() as response:
            assert response.readline() == b"event: heartbeat\n"
            broker.stop()
            response.read()  # IncompleteRead if it was cut


def test_a_tail_is_not_stored(tmp_path: Path) -> None:
    with EmbeddedBroker(http=True, data_dir=tmp_path) as broker:
        api = Api(broker)
        with ConnectionFactory(broker.url).create_context() as context:
            send(context, Q, 0)
            with following(api) as events:
                (tap,) = broker.call(lambda b: list(b.namespace("default").taps))
                assert not tap.kept
                send(context, Q, 1)
                assert next(events)[1]["properties"]["n"]["value"] == 1
