"""STOMP frames that lack or repeat something, and connections that end or stop in the middle."""

from __future__ import annotations

import json

import pytest

from sievemq_broker.session import SessionSettings
from sievemq_core.message.body import encode_map, encode_stream
from sievemq_core.message.envelope import Envelope

from ..session.harness import START, World, envelope
from .stomp import Stomp, frame


@pytest.fixture
def world() -> World:
    return World()


@pytest.mark.parametrize(
    ("frames", "text"),
    [
        ([("BEGIN", {"transaction": "t"})] * 2, "there is a transaction 't' already"),
        ([("UNSUBSCRIBE", {})], "UNSUBSCRIBE needs the header id"),
        ([("SUBSCRIBE", {"destination": "/queue/a"})], "SUBSCRIBE needs the header id"),
        ([("SEND", {"destination": "/queue/a", "transformation": "jms-map-json"})], "must be a JSON object"),
        ([("SEND", {"destination": "/queue/a", ";type=int": "1"})], "no name before its type"),
    ],
)
def test_frames_that_lack_or_repeat_something(
    world: World, frames: list[tuple[str, dict[str, str]]], text: str
) -> None:
    client = Stomp(world)
    for command, headers in frames:
        client.say(command, b"[1]" if command == "SEND" else b"", **headers)
    assert text in client.error().headers["message"]


@pytest.mark.parametrize("constant", ["NaN", "Infinity", "-Infinity"])
def test_constants_of_python_are_no_json(world: World, constant: str) -> None:
    client = Stomp(world)
    body = b'{"a": %s}' % constant.encode()
    client.say("SEND", body, destination="/queue/a", transformation="jms-map-json")
    assert f"{constant} is no JSON" in client.error().headers["message"]


def test_a_property_without_a_name_is_left_out(world: World) -> None:
    client, native = Stomp(world), world.client()
    client.say("SUBSCRIBE", id="1", destination="/queue/a")
    native.queue_send(native.session(), envelope("x", properties={"": 1, "a": 2}), "queue:a")
    world.settle()
    client.settle()
    [message] = client.take("MESSAGE")
    assert message.headers["a"] == "2"
    assert "" not in message.headers


@pytest.mark.parametrize("intervals", ["1", "x,1", "-1,1", "1,2,3", "1" * 30 + ",1"])
def test_heart_beats_that_are_no_two_numbers(world: World, intervals: str) -> None:
    client = Stomp(world, **{"heart-beat": intervals})
    assert "heart-beat must be two numbers" in client.error().headers["message"]


def test_a_subscription_of_version_1_0_is_named_by_its_destination(world: World) -> None:
    client = Stomp(world, "1.0")
    client.say("SUBSCRIBE", destination="/queue/a")
    client.say("SEND", b"1", destination="/queue/a")
    client.say("UNSUBSCRIBE", destination="/queue/a")
    client.say("SEND", b"2", destination="/queue/a")
    assert client.messages() == ["1"]


def test_an_ack_by_message_id_names_its_subscription(world: World) -> None:
    client = Stomp(world, "1.1")
    for number in ("1", "2"):
        client.say("SUBSCRIBE", id=number, destination=f"/queue/{number}", ack="client-individual")
    client.say("SEND", b"x", destination="/queue/2")
    client.say("SEND", b"y", destination="/queue/2")
    first, second = client.take("MESSAGE")
    client.say("ACK", message_id=second.headers["message-id"], subscription="2", receipt="r")
    assert client.take("RECEIPT")
    client.say("ACK", message_id=first.headers["message-id"], subscription="1")
    assert "no unsettled message of that id" in client.error().headers["message"]


@pytest.mark.parametrize(
    ("reply_to", "header"),
    [
        ("topic:answers", "/topic/answers"),
        ("temporary-queue:c.1", "/remote-temp-queue/c.1"),
        ("temporary-topic:c.1", "/remote-temp-topic/c.1"),
    ],
)
def test_destinations_of_other_clients(world: World, reply_to: str, header: str) -> None:
    client, native = Stomp(world), world.client()
    client.say("SUBSCRIBE", id="1", destination="/queue/a")
    fields = envelope("x")
    native.queue_send(native.session(), (*fields[:7], reply_to, *fields[8:]), "queue:a")
    world.settle()
    client.settle()
    [message] = client.take("MESSAGE")
    assert message.headers["reply-to"] == header


def test_a_message_without_a_timestamp_has_no_header_of_one(world: World) -> None:
    client, native = Stomp(world), world.client()
    client.say("SUBSCRIBE", id="1", destination="/queue/a")
    fields = envelope("x")
    native.queue_send(native.session(), (fields[0], 0, *fields[2:]), "queue:a")
    world.settle()
    client.settle()
    assert "timestamp" not in client.take("MESSAGE")[0].headers


def test_properties_that_cannot_be_decoded_leave_the_body(world: World) -> None:
    """The broker accepts none; a store of an earlier version may hold some."""
    client = Stomp(world)
    client.say("SUBSCRIBE", id="1", destination="/queue/a")
    odd = Envelope((*envelope("x")[:9], b"\xc1", *envelope("x")[10:]))
    world.broker.namespace("").send("queue:a", odd, world.now)
    client.settle()
    assert client.messages() == ["x"]


def test_too_many_temporary_destinations_are_refused() -> None:
    client = Stomp(World(SessionSettings(max_temporaries=1)))
    for name in ("one", "two"):
        client.say("SUBSCRIBE", id=name, destination=f"/temp-queue/{name}")
    assert client.error().headers["code"] == "RESOURCE_ALLOCATION"


def test_bytes_after_the_end_are_ignored(world: World) -> None:
    client = Stomp(world)
    client.broker.receive_data(
        frame("DISCONNECT", receipt="r") + frame("SEND", b"x", destination="/queue/a"), world.now
    )
    assert client.broker.closing
    client.broker.receive_data(frame("SEND", b"x", destination="/queue/a"), world.now)
    client.broker.tick(world.now)
    client.settle()
    assert client.take("RECEIPT")
    assert world.client().browse("queue:a") == []


def test_a_congested_client_gets_its_messages_when_it_reads(world: World) -> None:
    client = Stomp(world)
    client.say("SUBSCRIBE", id="1", destination="/queue/a")
    client.broker.pause()
    Stomp(world).say("SEND", b"x", destination="/queue/a")
    client.settle()
    assert client.messages() == []
    client.broker.resume(world.now)
    client.settle()
    assert client.messages() == ["x"]
    client.lose()
    client.broker.pause()
    client.broker.resume(world.now)


def test_a_client_that_has_time_left_to_connect(world: World) -> None:
    client = Stomp(world, connect=False)
    due = client.broker.tick(world.now)
    assert due == START + world.services.settings.handshake_ms
    assert not client.broker.closing


def test_one_missed_heart_beat_is_forgiven(world: World) -> None:
    client = Stomp(world, **{"heart-beat": "1000,0"})
    for _ in range(4):
        world.services.real += 1_500
        client.broker.tick(world.now)
        client.feed(b"\n")
    assert not client.broker.closing


def test_open_transactions_and_subscriptions_have_limits() -> None:
    world = World(settings=SessionSettings(max_sessions=3, max_consumers=3))
    client = Stomp(world)
    for number in range(4):
        client.say("BEGIN", transaction=str(number), receipt=str(number))
    assert [each.headers["receipt-id"] for each in client.take("RECEIPT")] == ["0", "1"]
    assert client.error().headers["receipt-id"] == "2"
    client = Stomp(world)
    for number in range(4):
        client.say("SUBSCRIBE", id=str(number), destination="/queue/a", receipt=str(number))
    assert len(client.take("RECEIPT")) == 3
    assert client.error().headers["receipt-id"] == "3"


def test_an_error_names_the_receipt_of_its_own_frame_only() -> None:
    world = World(settings=SessionSettings(body_bytes=100))
    client = Stomp(world)
    client.say("SEND", b"x", destination="/queue/a", receipt="s")
    client.say("SUBSCRIBE", id="1", destination="/queue/a", receipt="r")
    assert len(client.take("RECEIPT")) == 2
    client.feed(b"SEND\ncontent-length:1000\n\n")
    assert "receipt-id" not in client.error().headers


@pytest.mark.parametrize(
    ("body", "fine"),
    [
        (json.dumps({f"n{n}": n for n in range(6_500)}), True),
        (json.dumps({f"n{n}": n for n in range(8_000)}), False),
        ('{"a":[' + "1," * 8_000 + "1]}", False),
        ('{"a":' + "[" * 8_000, False),
        (json.dumps({"a": 'x,"[{\\' * 12_000}), True),
        ('{"a":"' + "," * 2_000_000 + '"}', False),  # larger JSON is not looked through for its strings
        ('{"a":"' + "x" * 2_000_000 + '"}', True),
    ],
    ids=["few", "many", "array", "nested", "text", "long commas", "long text"],
)
def test_json_of_very_many_values_is_not_decoded(
    world: World, monkeypatch: pytest.MonkeyPatch, body: str, fine: bool
) -> None:
    decoded: list[bytes] = []
    real = json.loads
    monkeypatch.setattr(json, "loads", lambda data, **options: decoded.append(data) or real(data, **options))
    client = Stomp(world)
    client.say("SEND", body.encode(), destination="/queue/a", transformation="jms-map-json", receipt="1")
    assert len(decoded) == fine
    if fine:
        assert client.take("RECEIPT")
    else:
        assert "may have 7,000 values" in client.error().headers["message"]


@pytest.mark.parametrize(
    ("kind", "many"), [(3, encode_map({f"n{n}": n for n in range(6_000)})), (4, encode_stream([None] * 11_000))]
)
def test_a_body_of_very_many_values_arrives_as_bytes(world: World, kind: int, many: bytes) -> None:
    """Converting millions of them would take seconds, in one turn of the loop."""
    client, sender = Stomp(world), world.client()
    client.say("SUBSCRIBE", id="1", destination="/queue/a")
    sender.queue_send(sender.session(), (*envelope()[:11], kind, many), "queue:a")
    world.settle()
    sender.exchange()
    client.settle()
    (message,) = client.take("MESSAGE")
    assert (message.body, message.headers.get("transformation")) == (many, None)
