"""Browsing, looking at one message, sending: nothing is cut silently, types survive."""

from __future__ import annotations

import base64
from decimal import Decimal
from typing import Any
from urllib.parse import quote

import pytest

from sievemq import (
    BytesMessage,
    ConnectionFactory,
    JMSContext,
    MapMessage,
    Message,
    ObjectMessage,
    StreamMessage,
    TextMessage,
)
from sievemq_broker import EmbeddedBroker
from sievemq_broker.server.http.api import messages, selectors
from sievemq_broker.server.http.tasks import run
from sievemq_broker.server.server import Server
from sievemq_core.message.envelope import Envelope

from .conftest import Api, at, send

Q = "queue:q"


def test_every_message_is_on_one_page(api: Api, context: JMSContext) -> None:
    send(context, Q, *range(25))
    send(context, Q, 100, priority=9)
    expected = ["100", *map(str, range(25))]
    for limit in (1, 7, 26, 1000):
        assert api.ids(Q, limit=limit) == expected
    assert api.ids(Q, limit=2, selector="n > 20") == ["100", "21", "22", "23", "24"]
    assert api.get(f"{at(Q)}/messages", limit=25, selector="n < 100")["next"] is None
    assert api.get(at(Q))["depth"] == 26


def test_one_match_behind_many_is_on_the_first_page(api: Api, context: JMSContext) -> None:
    send(context, Q, *range(3000))
    page = api.get(f"{at(Q)}/messages", selector="n + 0 = 2999", limit=5)
    assert [row["properties"]["n"]["value"] for row in page["messages"]] == [2999]
    assert page["next"] is None


def test_removals_between_two_pages_hide_no_message(api: Api, context: JMSContext) -> None:
    send(context, Q, *range(6))
    first = api.get(f"{at(Q)}/messages", limit=3)
    api.act(Q, "delete", selector="n = 1 OR n = 2 OR n = 3")
    rest = api.get(f"{at(Q)}/messages", limit=3, cursor=first["next"])
    assert [row["properties"]["n"]["value"] for row in rest["messages"]] == [4, 5]


def test_headers_and_typed_properties(api: Api, context: JMSContext) -> None:
    message = context.create_text_message("body")
    for kind, value in (
        ("boolean", True),
        ("byte", 1),
        ("short", 2),
        ("int", 3),
        ("long", 4),
        ("float", 0.5),
        ("double", 0.25),
        ("string", "x"),
    ):
        getattr(message, f"set_{kind}_property")(f"a_{kind}", value)
    message.set_long_property("huge", 2**62)
    message.set_double_property("nan", float("nan"))
    message.set_jms_type("order")
    message.set_jms_correlation_id("c-1")
    message.set_jms_reply_to(context.create_queue("answers"))
    context.create_producer().set_priority(7).set_time_to_live(1_000_000).send(context.create_queue("q"), message)
    (row,) = api.get(f"{at(Q)}/messages")["messages"]
    properties = row["properties"]
    assert {name[2:]: about["type"] for name, about in properties.items() if name.startswith("a_")} == {
        kind: kind for kind in ("boolean", "byte", "short", "int", "long", "float", "double", "string")
    }
    assert properties["a_boolean"]["value"] is True
    assert (properties["a_byte"]["value"], properties["a_float"]["value"]) == (1, 0.5)
    assert properties["huge"] == {"type": "long", "value": str(2**62)}
    assert properties["nan"] == {"type": "double", "value": "NaN"}
    assert (row["type"], row["correlation_id"], row["reply_to"]) == ("order", "c-1", "queue:answers")
    assert (row["priority"], row["delivery_mode"], row["body_type"], row["body_size"]) == (7, "PERSISTENT", "TEXT", 4)
    assert row["message_id"] == message.get_jms_message_id()
    assert row["expiration"] == message.get_jms_expiration()
    assert (row["redelivered"], row["delivery_count"], row["attempts"], row["state"]) == (False, 0, 0, "ready")


def body_of(api: Api, context: JMSContext, message: Message, **query: object) -> Any:
    context.create_producer().send(context.create_queue("q"), message)
    (row,) = api.get(f"{at(Q)}/messages")["messages"]
    whole = api.get(f"{at(Q)}/messages/{row['id']}", **query)
    assert {name: whole[name] for name in row} == row
    return whole["body"]


def test_a_text(api: Api, context: JMSContext) -> None:
    body = body_of(api, context, TextMessage("grüße 🐘"))
    assert (body["type"], body["text"], body["truncated"]) == ("TEXT", "grüße 🐘", False)


@pytest.mark.parametrize(
    ("limit", "shown"), [(0, ""), (3, "gr"), (4, "grü"), (9, "grüße "), (11, "grüße "), (12, "grüße 🐘")]
)
def test_a_text_is_cut_between_characters_and_says_so(api: Api, context: JMSContext, limit: int, shown: str) -> None:
    body = body_of(api, context, TextMessage("grüße 🐘"), body_limit=limit)
    assert (body["text"], body["size"], body["truncated"]) == (shown, 12, limit < 12)


def test_a_text_that_json_cannot_hold(api: Api, context: JMSContext) -> None:
    assert body_of(api, context, TextMessage("a\ud800b"))["text"] == "a���b"


def test_bytes(api: Api, context: JMSContext) -> None:
    message = BytesMessage()
    message.write_bytes(b"\x00hello\xff" * 5)
    body = body_of(api, context, message)
    assert base64.b64decode(body["base64"]) == b"\x00hello\xff" * 5
    assert body["hex"].splitlines()[0] == "00000000  00 68 65 6c 6c 6f ff 00 68 65 6c 6c 6f ff 00 68  .hello..hello..h"


def test_a_map(api: Api, context: JMSContext) -> None:
    message = MapMessage()
    message.set_char("c", "x")
    message.set_bytes("b", b"\x01")
    message.set_short("s", 5)
    message.set_string("nothing", None)
    assert body_of(api, context, message)["map"] == {
        "c": {"type": "char", "value": "x"},
        "b": {"type": "bytes", "value": "AQ=="},
        "s": {"type": "short", "value": 5},
        "nothing": {"type": "string", "value": None},
    }


def test_a_stream(api: Api, context: JMSContext) -> None:
    message = StreamMessage()
    message.write_int(1)
    message.write_float(0.5)
    assert body_of(api, context, message)["stream"] == [
        {"type": "int", "value": 1},
        {"type": "float", "value": 0.5},
    ]


def test_a_large_map_is_shown_as_bytes_and_says_so(api: Api, context: JMSContext) -> None:
    body = body_of(api, context, MapMessage({"a": "x" * 100}), body_limit=10)
    assert (body["map"], body["truncated"]) == (None, True)
    assert len(base64.b64decode(body["base64"])) == 10


def test_an_object_is_described(api: Api, context: JMSContext) -> None:
    body = body_of(api, context, ObjectMessage({"lines": [("tea", 2)], "price": Decimal("1.10"), "raw": b"\x00"}))
    assert body["object"] == {
        "lines": [{"$type": "tuple", "value": ["tea", 2]}],
        "price": {"$type": "Decimal", "value": "1.10"},
        "raw": {"$type": "bytes", "value": "AA=="},
    }


def test_no_body(api: Api, context: JMSContext) -> None:
    body = body_of(api, context, Message())
    assert (body["type"], body["size"], body["base64"]) == ("NONE", 0, None)


# -- where it is ------------------------------------------------------------------------------------------------------


def test_by_state(api: Api, context: JMSContext) -> None:
    send(context, Q, 1, 2, 3)
    send(context, Q, 4, delivery_delay=200_000)
    send(context, Q, 5, 6, delivery_delay=100_000)
    with context.create_context(2) as other:
        consumer = other.create_consumer(other.create_queue("q"), "n = 2")
        assert consumer.receive(60_000) is not None
        assert api.ids(Q) == ["1", "3"]
        assert api.ids(Q, state="in_flight") == ["2"]
        assert api.ids(Q, state="scheduled", limit=1) == ["5", "6", "4"]
        assert api.ids(Q, state="scheduled", selector="n <> 5") == ["6", "4"]
        assert [row["properties"]["n"]["value"] for row in api.get(f"{at(Q)}/scheduled")["messages"]] == [5, 6, 4]
        (held,) = api.get(f"{at(Q)}/messages", state="in_flight")["messages"]
        whole = api.get(f"{at(Q)}/messages/{held['id']}")
        assert (whole["state"], whole["delivery_count"], whole["body"]["text"]) == ("in_flight", 1, "text 2")
    assert api.ids(Q) == ["2", "1", "3"] or api.ids(Q) == ["1", "2", "3"]


@pytest.mark.parametrize(
    "path", [f"{at(Q)}/messages", f"{at(Q)}/messages?state=scheduled", f"{at(Q)}/scheduled", f"{at(Q)}/messages/1"]
)
def test_messages_that_leave_once_they_are_found_are_shown(
    api: Api, context: JMSContext, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    send(context, Q, 1)
    send(context, Q, 2, delivery_delay=100_000)
    leave_once_found(api, monkeypatch)
    assert api("GET", path).status == 200
    assert api("GET", at(Q)).status == 404


def test_a_selector_is_explained_for_a_message_that_leaves_once_it_is_found(
    api: Api, context: JMSContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    send(context, Q, 1)
    name = api.get(f"{at(Q)}/messages")["messages"][0]["id"]
    leave_once_found(api, monkeypatch)
    body = {"selector": "n = 1", "namespace": api.namespace, "destination": Q, "id": str(name)}
    assert api.ok("POST", "/api/v1/selector/explain", body)["matches"] is True
    assert api("GET", at(Q)).status == 404


def test_a_send_to_a_namespace_that_is_deleted_amid_it_is_refused(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    async def run_then_delete(server: Server, make: Any) -> Any:
        result = await run(server, make)
        assert server.shard.broker.delete_namespace("brief")
        return result

    api.ok("POST", "/api/v1/namespaces", {"name": "brief"})
    monkeypatch.setattr(messages, "run", run_then_delete)
    answer = api("POST", f"/api/v1/namespaces/brief/{at(Q)}/messages", {"body": "x"})
    assert (answer.status, answer.error) == (404, "NOT_FOUND")


def leave_once_found(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    """Delete the queue as soon as the first task of a request is over."""

    async def run_then_delete(server: Server, make: Any) -> Any:
        result = await run(server, make)
        server.shard.broker.namespace(api.namespace).delete(Q)
        return result

    monkeypatch.setattr(messages, "run", run_then_delete)
    monkeypatch.setattr(selectors, "run", run_then_delete)


def test_by_number_and_by_message_id(api: Api, context: JMSContext) -> None:
    send(context, Q, *range(10))
    rows = api.get(f"{at(Q)}/messages")["messages"]
    for row in (rows[0], rows[7]):
        assert api.get(f"{at(Q)}/messages/{row['id']}")["message_id"] == row["message_id"]
        assert api.get(f"{at(Q)}/messages/{quote(row['message_id'], safe='')}")["id"] == row["id"]
    for unknown in ("999", "ID:nobody-1:1", "x"):
        assert api("GET", f"{at(Q)}/messages/{quote(unknown)}").error == "NOT_FOUND"


def test_of_a_subscription(api: Api, context: JMSContext) -> None:
    topic = context.create_topic("t")
    context.create_shared_durable_consumer(topic, "s", "n > 1").close()
    send(context, "topic:t", 1, 2, 3)
    answer = api("GET", f"{at('topic:t')}/messages")
    assert (answer.status, answer.error) == (409, "ILLEGAL_STATE")
    assert api.ids("topic:t", subscription="s") == ["2", "3"]
    assert api("GET", f"{at('topic:t')}/messages", subscription="other").status == 404
    assert api("GET", f"{at('topic:t')}/messages", subscription="s", client_id="x").status == 404


def test_a_message_whose_properties_are_broken(api: Api) -> None:
    """The broker accepts none; a store of an earlier version may hold some."""
    odd = Envelope((None, 1, 4, 1, 0, 0, b"\x01", None, None, b"\xc1", None, 3, b"\xc1"))
    api.broker.call(lambda domain: domain.namespace(api.namespace).send(Q, odd, 1))
    (row,) = api.get(f"{at(Q)}/messages")["messages"]
    assert row["properties"] == {}
    assert "cannot be decoded" in row["unreadable"]
    assert (row["correlation_id"], row["correlation_id_bytes"], row["message_id"]) == (None, "AQ==", None)
    body = api.get(f"{at(Q)}/messages/{row['id']}")["body"]
    assert "cannot be decoded" in body["unreadable"]
    assert body["base64"] == "wQ=="


# -- sending ----------------------------------------------------------------------------------------------------------


def test_sent_here_received_there(api: Api, context: JMSContext) -> None:
    sent = api.ok(
        "POST",
        f"{at(Q)}/messages",
        {
            "body": "hello",
            "properties": {
                "plain": 5,
                "text": "x",
                "yes": True,
                "half": 0.5,
                "none": None,
                "byte": {"type": "byte", "value": 1},
                "short": {"type": "short", "value": 2},
                "long": {"type": "long", "value": "9007199254740993"},
                "float": {"type": "float", "value": 0.1},
                "infinite": {"type": "double", "value": "-Infinity"},
                "JMSXGroupID": "g",
                "JMS_Vendor": "v",
            },
            "type": "order",
            "correlation_id": "c",
            "reply_to": "answers",
            "priority": 8,
            "delivery_mode": "NON_PERSISTENT",
            "time_to_live": 60_000,
        },
    )
    message = context.create_consumer(context.create_queue("q")).receive(60_000)
    assert isinstance(message, TextMessage)
    assert message.get_text() == "hello"
    assert message.get_jms_message_id() == sent["message_id"]
    assert message.get_jms_expiration() == sent["timestamp"] + 60_000 == sent["expiration"]
    assert (message.get_jms_type(), message.get_jms_correlation_id()) == ("order", "c")
    assert str(message.get_jms_reply_to()) == "queue:answers"
    assert (message.get_jms_priority(), int(message.get_jms_delivery_mode())) == (8, 1)
    assert type(message.get_object_property("byte")).__name__ == "Byte"
    assert type(message.get_object_property("short")).__name__ == "Short"
    assert type(message.get_object_property("float")).__name__ == "Float"
    assert message.get_long_property("long") == 9007199254740993
    assert message.get_object_property("plain") == 5
    assert message.get_object_property("infinite") == float("-inf")
    assert (message.get_object_property("yes"), message.get_object_property("none")) == (True, None)


@pytest.mark.parametrize(
    ("given", "kind", "body"),
    [
        ({}, Message, None),
        ({"body": "text"}, TextMessage, "text"),
        ({"body_type": "TEXT"}, TextMessage, None),
        ({"body": "AAE=", "body_type": "BYTES"}, BytesMessage, b"\x00\x01"),
        ({"body": {"a": 1, "b": {"type": "char", "value": "x"}}}, MapMessage, {"a": 1, "b": "x"}),
        ({"body": [1, "x", {"type": "bytes", "value": "AQ=="}]}, StreamMessage, [1, "x", b"\x01"]),
    ],
)
def test_bodies(api: Api, context: JMSContext, given: Any, kind: type[Message], body: Any) -> None:
    api.ok("POST", f"{at(Q)}/messages", given)
    message = context.create_consumer(context.create_queue("q")).receive(60_000)
    assert type(message) is kind
    if isinstance(message, StreamMessage):
        assert [message.read_object() for _ in body] == body
    elif isinstance(message, MapMessage):
        assert {name: message.get_object(name) for name in message.get_map_names()} == body
    elif isinstance(message, BytesMessage):
        assert message.get_body(bytes) == body
    elif isinstance(message, TextMessage):
        assert message.get_text() == body


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"properties": {"a b": 1}}, "a b"),
        ({"properties": {"": 1}}, ""),
        ({"properties": {"JMSXDeliveryCount": 1}}, "JMSXDeliveryCount"),
        ({"properties": {"JMSPriority": 1}}, "JMSPriority"),
        ({"properties": {"and": 1}}, "and"),
        ({"properties": {"a": [1]}}, "properties.a"),
        ({"properties": {"a": 2**64}}, "properties.a"),
        ({"properties": {"a": {"type": "byte", "value": 300}}}, "properties.a"),
        ({"properties": {"a": {"type": "short", "value": "x"}}}, "properties.a"),
        ({"properties": {"a": {"type": "int", "value": None}}}, "properties.a"),
        ({"properties": {"a": {"type": "decimal", "value": 1}}}, "properties.a"),
        ({"properties": {"a": {"value": 1}}}, "properties.a"),
        ({"properties": {"a": {"type": "int", "value": 1, "more": 2}}}, "properties.a"),
        ({"properties": {"a": {"type": "char", "value": "x"}}}, "a"),
        ({"properties": {"a": {"type": "long", "value": "1e3"}}}, "properties.a"),
        ({"properties": {"a": {"type": "double", "value": "nan"}}}, "properties.a"),
        ({"body": 5}, "body"),
        ({"body": "x", "body_type": "MAP"}, "body"),
        ({"body": "not base64!", "body_type": "BYTES"}, "body"),
        ({"body": {"": 1}}, "body"),
        ({"body": {"a": {"b": 1}}}, "body.a"),
        ({"body": "x", "body_type": "NONE"}, "body"),
        ({"reply_to": " "}, "reply_to"),
    ],
)  # fmt: skip
def test_an_invalid_message_is_refused_with_the_place_of_the_error(api: Api, given: Any, field: str) -> None:
    api.ok("PUT", at(Q))
    answer = api("POST", f"{at(Q)}/messages", given)
    assert (answer.status, answer.error) == (422, "MESSAGE_FORMAT"), answer.content
    assert answer.json["details"]["field"] == field
    assert api.get(at(Q))["counters"]["enqueued"] == 0


def test_a_delayed_message_waits(api: Api) -> None:
    sent = api.ok("POST", f"{at(Q)}/messages", {"body": "x", "delivery_delay": 5_000})
    assert sent["delivery_time"] - sent["timestamp"] == 5_000
    row = api.get(at(Q))
    assert (row["depth"], row["scheduled"]) == (0, 1)
    api.broker.clock.advance(seconds=6)
    assert api.get(at(Q))["depth"] == 1


def test_producers_that_are_held_back_are_so_here(api: Api) -> None:
    api.broker.call(lambda _: api.broker.server.shard.services.flow("full"))
    try:
        answer = api("POST", f"{at(Q)}/messages", {"body": "x"})
        assert (answer.status, answer.error, answer.headers["retry-after"]) == (503, "RESOURCE_ALLOCATION", "1")
        assert api.get("/api/v1/broker")["blocked"] == "full"
    finally:
        api.broker.call(lambda _: api.broker.server.shard.services.flow(None))
    assert api("POST", f"{at(Q)}/messages", {"body": "x"}).status == 201


def test_delayed_redeliveries_are_listed_by_their_state() -> None:
    """Its delivery time is that of the first attempt, and long over."""
    with EmbeddedBroker(http=True, settings={"destinations": {"q": {"redelivery_delay": 3_600_000}}}) as slow:
        api = Api(slow)
        with ConnectionFactory(slow.url).create_context(JMSContext.CLIENT_ACKNOWLEDGE) as context:
            queue = context.create_queue("q")
            producer = context.create_producer()
            producer.set_delivery_delay(1)
            producer.set_property("n", 1).send(queue, "comes back")
            slow.clock.advance(seconds=1)
            with context.create_consumer(queue) as consumer:
                assert consumer.receive(60_000) is not None
                context.recover()
            producer.set_delivery_delay(1_800_000).set_property("n", 2).send(queue, "later")
        now = api.get("/api/v1/broker")["now"]
        rows = api.get(f"{at(Q)}/scheduled")["messages"]
        assert [row["properties"]["n"]["value"] for row in rows] == [2, 1]
        assert [row["state"] for row in rows] == ["scheduled", "scheduled"]
        assert rows[0]["due"] == rows[0]["delivery_time"]
        assert rows[1]["delivery_time"] < now < rows[0]["due"] < rows[1]["due"] <= now + 3_600_000
        assert api.get(f"{at(Q)}/messages", state="scheduled", limit=1)["next"] is not None
        slow.clock.advance(seconds=1_801)
        assert [row["due"] for row in api.get(f"{at(Q)}/messages")["messages"]] == [0]
