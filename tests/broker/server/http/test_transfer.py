"""Messages as lines of JSON out of a queue and into one; a body as it is; previews."""

from __future__ import annotations

import json
import socket
import time
from contextlib import suppress
from typing import Any
from urllib.parse import urlsplit

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
    Topic,
)
from sievemq_broker import EmbeddedBroker
from sievemq_broker.domain import Broker, management
from sievemq_broker.domain.policy import DestinationPolicy, DomainSettings
from sievemq_broker.domain.queue import Queue
from sievemq_broker.domain.work import Budget
from sievemq_broker.server.http.api import operation, transfer
from sievemq_broker.server.http.api.management import Slots
from sievemq_core.message.envelope import Envelope

from .conftest import DEADLINE, Answer, Api, at, send

Q = "queue:q"
#: Bytes of a body that no buffer between broker and reader holds.
_LARGE = 20 * 1024 * 1024
#: Keys that a new message has for itself.
NEW = ("message_id", "timestamp", "destination", "delivery_time")


def export(api: Api, address: str = Q, /, **body: Any) -> list[dict[str, Any]]:
    answer = api("POST", f"{at(address)}/export", body)
    assert answer.status == 200, answer.content
    assert answer.headers["content-type"] == "application/x-ndjson"
    return [json.loads(line) for line in answer.content.splitlines()]


def bring(api: Api, *lines: object, to: str = "queue:copies", dry_run: bool = False) -> Answer:
    texts = [line if isinstance(line, str) else json.dumps(line) for line in lines]
    return api("POST", f"{at(to)}/import", {"lines": texts, "dry_run": dry_run})


def kinds() -> list[Message]:
    mapped, streamed, text = MapMessage({"a": 1, "b": "two"}), StreamMessage(), TextMessage("hello ☃ \ud800")
    streamed.write_long(2**62)
    text.set_long_property("huge", 2**62)
    text.set_double_property("nan", float("nan"))
    text.set_jms_type("order")
    text.set_jms_reply_to(Topic("answers"))
    text.set_jms_correlation_id_as_bytes(b"\xff\x00")
    return [text, BytesMessage(b"\x00\xff"), mapped, streamed, ObjectMessage([1, (2, 3)]), TextMessage(None), Message()]


@pytest.mark.parametrize("plain", [True, False])
def test_what_is_exported_is_imported(
    api: Api, context: JMSContext, monkeypatch: pytest.MonkeyPatch, plain: bool
) -> None:
    if not plain:  # each body that is there is large
        monkeypatch.setattr(transfer, "_PLAIN", {})
        monkeypatch.setattr(transfer, "_PLAIN_BYTES", 0)
        monkeypatch.setattr(transfer, "_PIECE", 3)
    for number, message in enumerate(kinds()):
        context.create_producer().set_priority(number).send(context.create_queue("q"), message)
    before = export(api)
    assert len(before) == len(kinds())
    assert {record["destination"] for record in before} == {Q}
    assert sum("packed" in record for record in before) == (1 if plain else 5)
    answer = bring(api, *before).json
    assert (answer["matched"], answer["touched"], answer["skipped"], answer["stopped"]) == (7, 7, 0, None)
    assert api.get(at(Q))["depth"] == 7
    bodies = [m.get_body(object) for m in map(readable, context.create_browser(context.create_queue("copies"))) if m]
    assert bodies == [m.get_body(object) for m in map(readable, context.create_browser(context.create_queue("q"))) if m]
    after = export(api, "queue:copies")
    for old, new in zip(before, after, strict=True):
        assert {key: old[key] for key in old if key not in NEW} == {key: new[key] for key in new if key not in NEW}


def readable(message: Message) -> Message | None:
    return message if isinstance(message, TextMessage | BytesMessage | MapMessage | ObjectMessage) else None


def test_a_selection_is_exported_in_pages(api: Api, context: JMSContext, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transfer, "_PAGE", 3)
    send(context, Q, *range(10))

    def numbers(**body: Any) -> list[int]:
        return [record["properties"]["n"] for record in export(api, **body)]

    assert numbers() == [*range(10)]
    assert numbers(limit=7) == [*range(7)]
    assert numbers(selector="n > 4", limit=4) == [5, 6, 7, 8]
    ids = [row["id"] for row in api.get(f"{at(Q)}/messages")["messages"]]
    assert numbers(ids=[ids[8], ids[2], "ID:gone"]) == [2, 8]
    assert numbers(ids=ids[:3], selector="n <> 1", limit=1) == [0]
    assert numbers(ids=["ID:gone"]) == []


def test_ten_thousand_chosen_messages_are_no_work_of_one_turn(api: Api, context: JMSContext) -> None:
    send(context, Q, *range(10))
    namespace = api.namespace

    def slices(broker: Broker) -> int:
        queue = broker.namespace(namespace).destinations[Q]
        assert isinstance(queue, Queue)
        ids: list[int | str] = [*range(1, 11)]
        found = len(list(queue.locate(ids, True, 0, Budget(0))))
        return len(list(transfer._located(queue, ids, None, 0, Budget(0)))) - found

    assert api.broker.call(slices) == 10


def test_messages_in_flight_are_exported_by_id_alone(api: Api, context: JMSContext) -> None:
    send(context, Q, 1)
    with context.create_context(JMSContext.CLIENT_ACKNOWLEDGE) as other:
        assert other.create_consumer(other.create_queue("q")).receive(30_000) is not None
        (row,) = api.get(f"{at(Q)}/messages", state="in_flight")["messages"]
        assert export(api) == []
        (record,) = export(api, ids=[row["id"]])
        assert record["deliveries"] == 1


def test_a_subscription_is_exported_with_its_name(api: Api, context: JMSContext) -> None:
    context.create_shared_durable_consumer(context.create_topic("t"), "s").close()
    send(context, "topic:t", 1)
    (record,) = export(api, "topic:t", subscription="s")
    assert (record["destination"], record["subscription"], record["client_id"]) == ("topic:t", "s", None)
    assert api("POST", f"{at('topic:t')}/export", {}).status == 409


@pytest.mark.parametrize(
    ("line", "status", "text"),
    [
        ("[]", 422, "lines[2]: it is no JSON object"),
        ({"priority": 10}, 422, "lines[2]: priority: must be a whole number"),
        ("[" + "1," * 4_001 + "1]", 413, "lines[2]: a line may have some 4000 values"),
    ],
)
def test_a_wrong_line_is_named_and_nothing_is_sent(api: Api, line: Any, status: int, text: str) -> None:
    answer = bring(api, {"kind": "text", "body": "x"}, line)
    assert (answer.status, answer.json["text"][: len(text)]) == (status, text)
    assert api("GET", at("queue:copies")).status == 404


def test_an_import_counts_first_and_skips_what_has_expired(api: Api) -> None:
    now = round(time.time() * 1000)
    lines = (
        {"kind": "text", "body": "gone", "expiration": now - 60_000},
        {"kind": "text", "body": "later", "delivery_time": now + 3_600_000},
        {"kind": "text", "body": "now", "properties": {"JMS_SieveMQ_DeadLetterReason": "forged", "a": 1}},
    )
    counted = bring(api, *lines, dry_run=True).json
    assert (counted["matched"], counted["touched"], counted["skipped"]) == (2, 0, 1)
    assert api("GET", at("queue:copies")).status == 404
    assert bring(api, *lines).json["touched"] == 2
    found = api.get(at("queue:copies"))
    assert (found["depth"], found["scheduled"]) == (1, 1)
    (row,) = api.get(f"{at('queue:copies')}/messages")["messages"]
    assert row["properties"] == {"a": {"type": "long", "value": 1}}


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ({"type": "t" * 32_769}, "lines[2]: JMSType has 32769 characters"),
        ({"correlation_id": "t" * 32_769}, "lines[2]: JMSCorrelationID has 32769 characters"),
        ({"properties": {"a": "t" * 32_769}}, "lines[2]: the property 'a' has 32769 characters"),
    ],
)
def test_no_message_is_imported_that_a_client_could_not_send(api: Api, line: dict[str, Any], text: str) -> None:
    answer = bring(api, {"kind": "none"}, line)
    assert (answer.status, answer.error, answer.json["text"][: len(text)]) == (422, "MESSAGE_FORMAT", text)
    assert api("GET", at("queue:copies")).status == 404


def test_half_characters_are_replaced_as_those_that_clients_send(api: Api) -> None:
    line = {"kind": "text", "body": "\ud800", "type": "t\ud800", "properties": {"a\ud800": "b\ud800"}}
    assert bring(api, line).json["touched"] == 1
    (row,) = api.get(f"{at('queue:copies')}/messages")["messages"]
    assert (row["type"], row["properties"]) == ("t\ufffd", {"a\ufffd": {"type": "string", "value": "b\ufffd"}})


def test_an_import_ends_at_a_limit(api: Api) -> None:
    body = {"destination": "temporary", "kind": "text", "body": "x"}
    answer = bring(api, body, to="temporary-queue:c1.1")
    assert answer.json["touched"] == 0
    assert answer.json["matched"] == 0
    assert answer.json["stopped"]["error"] in ("INVALID_DESTINATION", "NOT_FOUND")


def test_an_import_needs_its_namespace(api: Api) -> None:
    answer = api("POST", f"/api/v1/namespaces/none/{at(Q)}/import", {"lines": ['{"kind": "none"}']})
    assert (answer.status, answer.error) == (404, "NOT_FOUND")


def test_an_import_that_stops_names_the_line_from_which_to_go_on(api: Api) -> None:
    namespace = api.namespace
    api.broker.call(
        lambda b: setattr(b.namespace(namespace).create("queue:copies"), "policy", DestinationPolicy(max_messages=2))
    )
    answer = bring(api, *({"kind": "none", "expiration": number % 2} for number in range(9))).json
    assert (answer["touched"], answer["skipped"], answer["more"]) == (2, 4, True)
    assert (answer["stopped"]["error"], answer["stopped"]["details"]["line"]) == ("RESOURCE_ALLOCATION", 5)
    refused = api.get("/api/v1/refusals")["refused"]
    found = [row for row in refused if (row["namespace"], row["address"]) == (api.namespace, "queue:copies")]
    assert [(row["reason"], row["client"], row["count"]) for row in found] == [("max_messages", "management port", 1)]
    assert api.get(at("queue:copies"))["depth"] == 2


def test_nothing_is_brought_to_a_namespace_that_is_deleted_meanwhile() -> None:
    broker = Broker(DomainSettings())
    space, message = broker.namespace("mine"), Envelope(("ID:1", 0, 4, 1, 0, 0, None, None, None, None, None, 0, None))
    work = management.bring(lambda: broker.namespaces["mine"], Q, [message] * 3, 0, 0, Budget(0))
    next(work)
    broker.delete_namespace("mine")
    with pytest.raises(KeyError, match="mine"):
        work.send(0)
    assert not space.destinations


def test_a_body_is_downloaded_as_it_is(api: Api, context: JMSContext, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transfer, "_PIECE", 3)
    for message in (TextMessage("a ☃ text"), BytesMessage(b"\x00\xff\x00\xff"), Message()):
        context.create_producer().send(context.create_queue("q"), message)
    found = []
    for row in api.get(f"{at(Q)}/messages")["messages"]:
        answer = api("GET", f"{at(Q)}/messages/{row['id']}/body")
        assert answer.headers["content-type"] == "application/octet-stream"
        assert answer.headers["content-disposition"].startswith(f'attachment; filename="{row["id"]}.')
        found.append(answer.content)
    assert found == ["a ☃ text".encode(), b"\x00\xff\x00\xff", b""]
    assert api("GET", f"{at(Q)}/messages/99/body").status == 404


def test_a_reader_that_takes_nothing_is_cut_and_leaves_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operation, "READER_SECONDS", 0.05)
    with EmbeddedBroker(http=True) as broker, ConnectionFactory(broker.url).create_context() as context:
        context.create_producer().send(context.create_queue("q"), BytesMessage(bytes(_LARGE)))
        broker._http.management.exports = Slots(1, "exports")  # type: ignore[union-attr]
        api, parts = Api(broker), urlsplit(broker.http_url)
        with socket.create_connection((parts.hostname or "", parts.port or 0), DEADLINE) as reader:
            path = f"/api/v1/namespaces/default/{at(Q)}/messages/1/body"
            reader.sendall(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode())
            said = len(reader.recv(1))
            end = time.monotonic() + DEADLINE
            while (answer := api("POST", f"{at(Q)}/export", {"ids": ["ID:none"]})).status == 429:
                assert time.monotonic() < end
            assert answer.status == 200
            with suppress(ConnectionError):
                while data := reader.recv(1 << 20):
                    said += len(data)
            assert said < _LARGE


def test_previews_are_short_and_never_fail(api: Api, context: JMSContext) -> None:
    long = TextMessage("é" * 2_000)
    for message in (*kinds(), long, TextMessage("a\n  b"), BytesMessage(bytes(100_000))):
        context.create_producer().send(context.create_queue("q"), message)
    rows = api.get(f"{at(Q)}/messages", preview=20)["messages"]
    previews = [row["preview"] for row in rows]
    assert previews[1:7] == ["00 ff", "a = 1, b = two", str(2**62), '[1,{"$type":"tuple"…', "", ""]
    assert previews[7:9] == ["é" * 19 + "…", "a b"]
    assert previews[9].startswith("00 00")
    assert all(len(preview) <= 20 for preview in previews)
    assert {row["preview"] for row in api.get(f"{at(Q)}/messages")["messages"]} == {None}


def test_half_a_character_in_an_object_hides_no_other_message(api: Api, context: JMSContext) -> None:
    for message in (ObjectMessage(["\ud800"]), TextMessage("x")):
        context.create_producer().send(context.create_queue("q"), message)
    rows = api.get(f"{at(Q)}/messages", preview=20)["messages"]
    assert [row["preview"] for row in rows] == ['["\ufffd\ufffd\ufffd"]', "x"]


def test_a_file_is_named_for_its_queue_in_plain_letters(api: Api, context: JMSContext) -> None:
    context.create_producer().send(context.create_queue("a/ü"), "x")
    answer = api("POST", f"{at('queue:a/ü')}/export", {})
    assert answer.headers["content-disposition"] == 'attachment; filename="queue-a--.ndjson"'
