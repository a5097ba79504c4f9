"""STOMP clients on a real domain: every frame, the acknowledgement modes, transactions, limits, and what is wrong."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.broker.domain.test_batch_totals import lines

from sievemq_broker.domain.broker import Broker
from sievemq_broker.domain.fan_out import LARGE
from sievemq_broker.domain.policy import DestinationPolicy, DomainSettings
from sievemq_broker.domain.queue import Queue
from sievemq_broker.domain.work import TURN
from sievemq_broker.protocols.stomp.mapping import address_of
from sievemq_broker.session import SessionSettings
from sievemq_broker.session.rights import Grant, Rights, Verb
from sievemq_core.errors import ErrorCode, RequestError
from sievemq_core.message.body import decode_map, encode_map, encode_stream
from sievemq_core.message.envelope import BODY, BODY_KIND, DELIVERY_MODE, DELIVERY_TIME, EXPIRATION, PRIORITY, BodyKind
from sievemq_core.message.values import Float, Long
from sievemq_core.wire.commands import Command

from ..session.harness import CLIENT, START, World, envelope
from .stomp import Stomp, frame


@pytest.fixture
def world() -> World:
    return World()


def queue(world: World, name: str, namespace: str = "default") -> Queue:
    found = world.broker.namespaces[namespace].destinations[f"queue:{name}"]
    assert isinstance(found, Queue)
    return found


def limited(**policy: Any) -> World:
    return World(broker=Broker(DomainSettings(default_policy=DestinationPolicy(**policy))))


# -- the handshake ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("wanted", "spoken"), [("1.2", "1.2"), ("1.0,1.1", "1.1"), ("1.0", "1.0"), ("2.0,1.2", "1.2")])
def test_the_newest_version_that_both_speak(world: World, wanted: str, spoken: str) -> None:
    client = Stomp(world, wanted)
    [connected] = client.take("CONNECTED")
    assert connected.headers["version"] == spoken
    assert connected.headers["session"] == client.broker.peer.member.id


def test_no_version_in_common_is_an_error_that_names_ours(world: World) -> None:
    error = Stomp(world, "3.0").error()
    assert error.headers["version"] == "1.2,1.1,1.0"
    assert "3.0" in error.headers["message"]


def test_a_wrong_password_is_an_error(world: World) -> None:
    world.services.users = {"ann": "right"}
    assert "password is wrong" in Stomp(world, login="ann", passcode="wrong").error().headers["message"]
    assert Stomp(world, login="ann", passcode="right").take("CONNECTED")


def test_a_frame_before_connect_is_an_error(world: World) -> None:
    client = Stomp(world, connect=False)
    client.say("SEND", b"x", destination="/queue/a")
    assert "before CONNECT" in client.error().headers["message"]


def test_a_second_connect_is_an_error(world: World) -> None:
    client = Stomp(world)
    client.say("CONNECT", accept_version="1.2")
    assert "CONNECT on a connection" in client.error().headers["message"]


def test_the_namespace_comes_from_the_login_or_an_existing_host(world: World) -> None:
    world.broker.namespace("tests")
    named, hosted, other = Stomp(world, login="@tests"), Stomp(world, host="tests"), Stomp(world, host="broker.example")
    named.say("SEND", b"1", destination="/queue/a")
    hosted.say("SEND", b"2", destination="/queue/a")
    other.say("SEND", b"3", destination="/queue/a")
    assert queue(world, "a", "tests").depth == 2
    assert queue(world, "a").depth == 1


def test_a_namespace_of_another_broker_is_an_error_with_its_url(world: World) -> None:
    details = {"url": "stomp://mq-2:61613", "shard": "b", "namespace": "tests"}
    world.services.elsewhere["tests"] = RequestError("it is at stomp://mq-2:61613", ErrorCode.REDIRECT, details)
    client = Stomp(world, login="@tests")
    headers = client.error().headers
    assert (headers["redirect"], headers["code"]) == ("stomp://mq-2:61613", "REDIRECT")
    assert "mq-2" in headers["message"]
    assert client.closed
    world.services.elsewhere["tests"] = RequestError("no broker owns it; try again", ErrorCode.UNAVAILABLE)
    later = Stomp(world, login="@tests").error().headers
    assert later["code"] == "UNAVAILABLE"
    assert "redirect" not in later


def test_the_host_does_not_tell_which_namespaces_there_are(world: World) -> None:
    """Without a right there, a namespace is treated as one that does not exist."""
    world.broker.namespace("team-a")
    world.services.rights = {"mallory": Rights([Grant(frozenset({Verb.SEND}), "*", "default")])}
    for host in ("team-a", "team-b"):
        client = Stomp(world, login="mallory", host=host)
        client.say("SEND", b"1", destination="/queue/a")
    assert queue(world, "a").depth == 2
    errors = [Stomp(world, login="mallory", host=host).error().headers["message"] for host in ("/team-a", "/team-b")]
    assert errors[0].replace("team-a", "team-b") == errors[1]
    assert "team-b" not in world.broker.namespaces


def test_a_user_without_a_right_in_the_default_namespace_may_enter_that_of_the_host(world: World) -> None:
    world.broker.namespace("team-a")
    world.services.rights = {"ann": Rights([Grant(frozenset({Verb.SEND}), "*", "team-*")])}
    assert Stomp(world, login="ann", host="team-a").take("CONNECTED")
    for host in ("team-b", "broker.example"):
        headers = Stomp(world, login="ann", host=host).error().headers
        assert headers["code"] == "AUTHENTICATION"
        assert "no right in namespace 'default'" in headers["message"]
    assert "team-b" not in world.broker.namespaces


# -- sends and subscriptions ------------------------------------------------------------------------------------------


def test_a_message_crosses_with_its_headers(world: World) -> None:
    client = Stomp(world)
    client.say("SUBSCRIBE", id="7", destination="/queue/a")
    client.say(
        "SEND", b"hello", destination="/queue/a", persistent="true", priority="7", correlation_id="c", type="t",
        expires=str(START + 5000), color="red: not blue\\\n", receipt="r", content_type="text/plain",
    )  # fmt: skip
    [message] = client.take("MESSAGE")
    assert message.body == b"hello"
    expected = {
        "subscription": "7", "destination": "/queue/a", "redelivered": "false", "priority": "7", "persistent": "true",
        "timestamp": str(START), "expires": str(START + 5000), "correlation-id": "c", "type": "t",
        "color": "red: not blue\\\n", "content-type": "text/plain", "content-length": "5",
    }  # fmt: skip
    assert {name: message.headers[name] for name in expected} == expected
    assert message.headers["message-id"].startswith("ID:")
    assert [each.headers for each in client.take("RECEIPT")] == [{"receipt-id": "r"}]


def test_fields_of_the_envelope(world: World) -> None:
    client = Stomp(world)
    client.say("SEND", b"x", destination="/queue/a", expires="99", priority="2", AMQ_SCHEDULED_DELAY="70")
    [delayed] = queue(world, "a").scheduled.values()
    fields = delayed.envelope.fields
    assert (fields[EXPIRATION], fields[PRIORITY], fields[DELIVERY_MODE]) == (99, 2, 1)
    assert fields[DELIVERY_TIME] == START + 70


@pytest.mark.parametrize(
    ("headers", "kind"),
    [
        ({}, BodyKind.TEXT),
        ({"content_length": "2"}, BodyKind.BYTES),
        ({"content_length": "2", "amq_msg_type": "text"}, BodyKind.TEXT),
        ({"amq_msg_type": "bytes"}, BodyKind.BYTES),
        ({"content_length": "2", "content_type": "application/json;charset=utf-8"}, BodyKind.TEXT),
        ({"content_length": "2", "content_type": "image/png"}, BodyKind.BYTES),
        ({"transformation": "jms-map-json"}, BodyKind.MAP),
    ],
)
def test_the_kind_of_body(world: World, headers: dict[str, str], kind: BodyKind) -> None:
    client = Stomp(world)
    client.say("SEND", b"{}", destination="/queue/a", **headers)
    fields = queue(world, "a").backlog.page(None, -1, 1, world.now)[1][0].envelope.fields
    assert fields[BODY_KIND] == kind
    assert decode_map(fields[BODY]) == {} if kind is BodyKind.MAP else fields[BODY] == b"{}"


def test_bytes_that_are_no_text_stay_bytes(world: World) -> None:
    client = Stomp(world)
    client.say("SUBSCRIBE", id="1", destination="/queue/a")
    client.say("SEND", b"\xff\xfe", destination="/queue/a")
    [message] = client.take("MESSAGE")
    assert message.body == b"\xff\xfe"
    assert "content-type" not in message.headers
    client.say("SEND", b"\xff", destination="/queue/a", amq_msg_type="text")
    assert "UTF-8" in client.error().headers["message"]


def test_a_map_of_another_client_is_json(world: World) -> None:
    client, native = Stomp(world), world.client()
    client.say("SUBSCRIBE", id="1", destination="/queue/a")
    fields = envelope("")
    native.queue_send(
        native.session(), (*fields[:11], int(BodyKind.MAP), encode_map({"n": 1, "s": "x", "b": b"\x01"})), "queue:a"
    )
    world.settle()
    client.settle()
    [message] = client.take("MESSAGE")
    assert json.loads(message.body) == {"n": 1, "s": "x", "b": "01"}
    assert message.headers["transformation"] == "jms-map-json"


def test_values_that_json_has_not_are_text(world: World) -> None:
    client, native = Stomp(world), world.client()
    client.say("SUBSCRIBE", id="1", destination="/queue/a")
    session, half = native.session(), "\ud800"
    values = {"a": math.inf, "b": -math.inf, "c": math.nan, "d": 1.5, half: half}
    fields = envelope("")[:11]
    native.queue_send(session, (*fields, int(BodyKind.MAP), encode_map(values)), "queue:a")
    native.queue_send(session, (*fields, int(BodyKind.STREAM), encode_stream([math.nan, half])), "queue:a")
    world.settle()
    client.settle()
    mapped, streamed = (
        json.loads(each.body.decode(), parse_constant=lambda name: pytest.fail(name)) for each in client.take("MESSAGE")
    )
    assert mapped == {"a": "Infinity", "b": "-Infinity", "c": "NaN", "d": 1.5, half: half}
    assert streamed == ["NaN", half]


def test_another_transformation_passes_from_client_to_client(world: World) -> None:
    client = Stomp(world)
    client.say("SUBSCRIBE", id="1", destination="/queue/a", selector="transformation = 'jms-map-xml'")
    client.say("SEND", b"<map/>", destination="/queue/a", transformation="jms-map-xml")
    [message] = client.take("MESSAGE")
    assert (message.headers["transformation"], message.body) == ("jms-map-xml", b"<map/>")


def test_a_property_is_text_unless_its_header_says_otherwise(world: World) -> None:
    """A STOMP header is text, and to a selector a text is never equal to a number: a suffix names the type, or the
    client asks for it to be inferred."""
    client = Stomp(world)
    for number, selector in enumerate(["amount = 120", "amount = '120'"]):
        client.say("SUBSCRIBE", id=str(number), destination="/topic/t", selector=selector)
    client.say("SEND", b"text", destination="/topic/t", amount="120")
    assert [each.headers["subscription"] for each in client.take("MESSAGE")] == ["1"]
    client.say("SEND", b"int", destination="/topic/t", **{"amount;type=int": "120"})
    assert [each.headers["subscription"] for each in client.take("MESSAGE")] == ["0"]
    inferring = Stomp(world, sievemq_types="infer")
    inferring.say("SEND", b"inferred", destination="/topic/t", amount="120")
    client.settle()
    assert [each.headers["subscription"] for each in client.take("MESSAGE")] == ["0"]


def test_the_rule_of_a_destination_infers_types_unless_the_client_says_text() -> None:
    rules = (("topic:typed*", DestinationPolicy(stomp_types="infer")),)
    world = World(broker=Broker(DomainSettings(policies=rules)))
    consumer = Stomp(world)
    consumer.say("SUBSCRIBE", id="0", destination="/topic/typed", selector="amount > 100 AND urgent")
    consumer.say("SUBSCRIBE", id="1", destination="/topic/plain", selector="amount = '120' AND urgent = 'true'")
    for client in (Stomp(world), Stomp(world, sievemq_types="text")):
        for name in ("typed", "plain", "typed2"):
            client.say("SEND", destination=f"/topic/{name}", amount="120", urgent="true")
    consumer.settle()
    assert [each.headers["subscription"] for each in consumer.take("MESSAGE")] == ["0", "1", "1"]


def test_types_by_another_name_are_refused(world: World) -> None:
    client = Stomp(world, sievemq_types="guess")
    [error] = client.take("ERROR")
    assert "sievemq-types must be text or infer" in error.headers["message"]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1", 1), ("-5", -5), ("1.5", 1.5), ("1e3", 1000.0), ("true", True), ("false", False), ("007", "007"),
        ("9223372036854775808", "9223372036854775808"), ("", ""), ("-", "-"), ("1_000", "1_000"), ("nan", "nan"),
        ("1.2.3", "1.2.3"), ("True", "True"), ("0", 0), ("-0", 0), ("1e999", "1e999"), ("٣", "٣"),
    ],
)  # fmt: skip
def test_types_of_headers_are_inferred(text: str, value: object) -> None:
    from sievemq_broker.protocols.stomp.mapping import inferred

    assert inferred(text) == value
    assert type(inferred(text)) is type(value)


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [("n;type=long", "5", Long(5)), ("n;type=float", "0.5", Float(0.5)), ("n;type=boolean", "true", True)],
)
def test_typed_headers(world: World, name: str, text: str, value: object) -> None:
    client = Stomp(world)
    client.say("SEND", b"", destination="/queue/a", **{name: text})
    session = world.client()
    consumer = session.consumer(session.session(), "queue:a")
    [entry] = session.broker.peer.deliveries.consumers[consumer.id].window
    assert entry is not None
    assert entry.envelope.properties == {"n": value}
    assert type(entry.envelope.properties["n"]) is type(value)


@pytest.mark.parametrize(
    ("headers", "text"),
    [
        ({"priority": "10"}, "0 to 9"), ({"priority": "x"}, "priority"), ({"expires": "-1"}, "expires"),
        ({"persistent": "yes"}, "true or false"), ({"n;type=int": "x"}, "no int"), ({"n;type=uuid": "x"}, "no type"),
        ({"amq_msg_type": "map"}, "text or bytes"), ({"transformation": "jms-map-json"}, "JSON object"),
        ({"AMQ_SCHEDULED_CRON": "0 * * * *"}, "AMQ_SCHEDULED_CRON is not supported: a message is delivered once"),
        ({"AMQ_SCHEDULED_DELAY": "1", "AMQ_SCHEDULED_PERIOD": "1"}, "PERIOD is not supported"),
        ({"AMQ_SCHEDULED_DELAY": "1", "AMQ_SCHEDULED_REPEAT": "3"}, "AMQ_SCHEDULED_DELAY delays it"),
        ({"transaction": "t"}, "no transaction"), ({"destination": ""}, "empty"), ({"n;type=byte": "200"}, "no byte"),
    ],
)  # fmt: skip
def test_a_send_that_cannot_be_is_an_error_with_its_receipt(world: World, headers: dict[str, str], text: str) -> None:
    client = Stomp(world)
    client.say("SEND", b"[", **{"destination": "/queue/a", "receipt": "r", **headers})
    error = client.error()
    assert text in error.headers["message"]
    assert error.headers["receipt-id"] == "r"
    assert not client.take("RECEIPT")


@pytest.mark.parametrize("browser", ["true", "false"])
def test_a_selector_in_another_dialect_names_a_header_with_a_hyphen(world: World, browser: str) -> None:
    client = Stomp(world)
    for number in range(250):  # more than a page of a browser
        client.say("SEND", str(number).encode(), destination="/queue/a", **{"trace-id": str(number % 125)})
    headers = {"selector": "\"trace-id\" = '124'", "selector-dialect": "amqp", "browser": browser}
    client.say("SUBSCRIBE", id="1", destination="/queue/a", **headers)
    messages = [each for each in client.take("MESSAGE") if each.body]
    assert [(each.body, each.headers["trace-id"]) for each in messages] == [(b"124", "124"), (b"249", "124")]


@pytest.mark.parametrize(
    ("headers", "said"),
    [
        ({"selector": "\"trace-id\" = 'x'"}, "names have none, except in the dialect amqp"),
        ({"selector": "trace-id = 'x'", "selector-dialect": "amqp"}, 'in double quotes: "trace-id"'),
        ({"selector": "a = 1", "selector-dialect": "sql"}, "there are jakarta, ibm-mq, mqe, amqp"),
        ({"selector-dialect": "sql"}, "there are jakarta, ibm-mq, mqe, amqp"),
    ],
)
def test_the_error_of_a_selector_says_which_dialect_has_it(world: World, headers: dict[str, str], said: str) -> None:
    client = Stomp(world)
    client.say("SUBSCRIBE", id="1", destination="/queue/a", **headers)
    error = client.error()
    assert error.headers["code"] == "INVALID_SELECTOR"
    assert said in error.body.decode()


def test_a_bad_selector_is_an_error_with_a_caret(world: World) -> None:
    client = Stomp(world)
    client.say("SUBSCRIBE", id="1", destination="/queue/a", selector="a = ")
    error = client.error()
    assert error.headers["code"] == "INVALID_SELECTOR"
    assert error.body.decode().splitlines()[-1].strip() == "^"


def test_destinations_as_other_brokers_write_them(world: World) -> None:
    client = Stomp(world)
    client.say("SEND", b"1", destination="bare")
    client.say("SEND", b"2", destination="queue:ours")
    client.say("SUBSCRIBE", id="1", destination="news", subscription_type="MULTICAST")
    client.say("SEND", b"3", destination="news", destination_type="MULTICAST")
    assert queue(world, "bare").depth == queue(world, "ours").depth == 1
    assert client.messages() == ["3"]


def test_a_reply_through_a_temporary_queue(world: World) -> None:
    client, server = Stomp(world), Stomp(world)
    server.say("SUBSCRIBE", id="1", destination="/queue/requests")
    client.say("SUBSCRIBE", id="1", destination="/temp-queue/mine")
    client.say("SEND", b"question", destination="/queue/requests", reply_to="/temp-queue/mine", correlation_id="c")
    server.settle()
    [request] = server.take("MESSAGE")
    server.say("SEND", b"answer", destination=request.headers["reply-to"], correlation_id="c")
    client.settle()
    [reply] = client.take("MESSAGE")
    assert (reply.body, reply.headers["destination"]) == (b"answer", "/temp-queue/mine")
    client.lose()
    world.settle()
    assert not any(name.startswith("temporary") for name in world.broker.namespaces["default"].destinations)


FOREIGN = [
    "/topic/prices.>", "/queue/orders.*", "orders?consumer.prefetchSize=1", "/queue/a,b", "/exchange/amq.topic/prices",
    "/amq/queue/orders", "/dsub/mine", "queue://orders",
]  # fmt: skip


@pytest.mark.parametrize("destination", FOREIGN)
@pytest.mark.parametrize("command", ["SEND", "SUBSCRIBE"])
def test_a_name_as_other_brokers_write_it_is_refused_before_it_is_made(
    world: World, destination: str, command: str
) -> None:
    client = Stomp(world)
    client.say(command, destination=destination, id="1", receipt="r")
    error = client.error()
    assert error.headers["code"] == "INVALID_DESTINATION"
    assert error.headers["receipt-id"] == "r"
    assert "If a destination of that very name is meant, create it first" in error.body.decode()
    assert not world.broker.namespaces["default"].destinations


@pytest.mark.parametrize("destination", FOREIGN)
def test_a_name_that_is_there_goes_on_working(world: World, destination: str) -> None:
    client = Stomp(world)
    world.broker.namespaces["default"].create(address_of(destination, {}))
    client.say("SUBSCRIBE", id="1", destination=destination)
    client.say("SEND", b"x", destination=destination)
    assert client.messages() == ["x"]


def test_a_user_without_rights_does_not_learn_which_names_there_are(world: World) -> None:
    world.services.users = {"mallory": "secret"}
    world.services.rights = {"mallory": Rights([Grant(frozenset({Verb.SEND}), "queue:mine", "default")])}
    world.broker.namespace("default").create("queue:a,b")
    errors = set()
    for name in ("a,b", "c,d"):
        client = Stomp(world, login="mallory", passcode="secret")
        client.say("SUBSCRIBE", id="1", destination=f"/queue/{name}")
        errors.add(client.error().body.decode().replace(name, "name"))
    assert len(errors) == 1


def late(world: World) -> tuple[Stomp, str]:
    """A service, and the reply queue of a client that has given up."""
    client, service = Stomp(world), Stomp(world)
    service.say("SUBSCRIBE", id="1", destination="/queue/requests", ack="client-individual")
    client.say("SEND", b"question", destination="/queue/requests", reply_to="/temp-queue/mine")
    service.settle()
    client.say("DISCONNECT")
    [request] = service.take("MESSAGE")
    return service, request.headers["reply-to"]


@pytest.mark.parametrize("prefix", ["/remote-temp-queue/", "temporary-queue:", "/remote-temp-topic/"])
def test_a_late_reply_is_dropped_with_a_receipt(world: World, prefix: str) -> None:
    service, reply_to = late(world)
    name = reply_to.removeprefix("/remote-temp-queue/")
    for number in range(3):
        service.say("SEND", b"answer", destination=prefix + name, receipt=str(number))
        service.say("SEND", b"work", destination="/queue/work", receipt=f"work {number}")
    receipts = [each.headers["receipt-id"] for each in service.take("RECEIPT")]
    assert receipts == ["0", "work 0", "1", "work 1", "2", "work 2"]
    assert not service.closed
    assert queue(world, "work").depth == world.services.replies_dropped == 3
    assert not any(name.startswith("temporary") for name in world.broker.namespaces["default"].destinations)
    service.say("SUBSCRIBE", id="2", destination=prefix + name)
    assert service.error().headers["code"] == "INVALID_DESTINATION"


def test_a_late_reply_in_a_transaction_is_dropped_and_the_rest_committed(world: World) -> None:
    service, reply_to = late(world)
    service.say("BEGIN", transaction="t")
    service.say("SEND", b"before", destination="/queue/work", transaction="t")
    service.say("SEND", b"answer", destination=reply_to, transaction="t", receipt="late")
    service.say("SEND", b"after", destination="/queue/work", transaction="t")
    assert [each.headers["receipt-id"] for each in service.take("RECEIPT")] == ["late"]
    service.say("COMMIT", transaction="t", receipt="done")
    assert [each.headers["receipt-id"] for each in service.take("RECEIPT")] == ["done"]
    assert (queue(world, "work").depth, world.services.replies_dropped) == (2, 1)


@pytest.mark.parametrize("bulk", [1, 1_200])
def test_a_reply_that_is_late_at_its_commit_is_dropped(world: World, bulk: int) -> None:
    client, service = Stomp(world), Stomp(world)
    client.say("SUBSCRIBE", id="1", destination="/temp-queue/mine")
    client.say("SEND", b"question", destination="/queue/requests", reply_to="/temp-queue/mine")
    service.say("SUBSCRIBE", id="1", destination="/queue/requests", ack="client")
    [request] = service.take("MESSAGE")
    service.say("BEGIN", transaction="t")
    for body in (b"1", b"2"):
        service.say("SEND", body, destination=request.headers["reply-to"], transaction="t")
    for _ in range(bulk):
        service.say("SEND", b"log", destination="/queue/work", transaction="t")
    service.say("ACK", id=request.headers["ack"], transaction="t")
    client.lose()
    service.say("COMMIT", transaction="t", receipt="done")
    assert service.take("RECEIPT")
    assert (queue(world, "work").depth, world.services.replies_dropped) == (bulk, 2)
    assert queue(world, "requests").depth == queue(world, "requests").in_flight == 0
    service.say("BEGIN", transaction="t")
    service.say("SEND", b"log", destination="/queue/work", transaction="t")
    service.say("COMMIT", transaction="t")
    assert queue(world, "work").depth == bulk + 1
    assert not service.closed


def late_at_commit(count: int) -> int:
    """Commit replies to so many clients that are gone. Returns how many lines that took."""
    world = World()
    client, service = Stomp(world), Stomp(world)
    service.say("SUBSCRIBE", id="1", destination="/queue/requests")
    for number in range(count):
        client.say("SEND", b"question", destination="/queue/requests", reply_to=f"/temp-queue/{number}")
    service.say("BEGIN", transaction="t")
    for request in service.take("MESSAGE"):
        service.say("SEND", b"answer", destination=request.headers["reply-to"], transaction="t")
    service.say("SEND", b"log", destination="/queue/work", transaction="t")
    client.lose()
    took = lines(lambda: service.say("COMMIT", transaction="t"))
    assert (queue(world, "work").depth, world.services.replies_dropped) == (1, count)
    return took


def test_late_replies_to_many_clients_are_dropped_in_one_pass() -> None:
    assert late_at_commit(100) < 12 * late_at_commit(10)


def test_a_reply_that_waits_for_room_is_dropped_if_its_queue_goes() -> None:
    policies = (("temporary-queue:*", DestinationPolicy(max_messages=1, at_limit="block")),)
    world = World(broker=Broker(DomainSettings(policies=policies)))
    client, service = Stomp(world), Stomp(world)
    client.say("SEND", b"question", destination="/queue/requests", reply_to="/temp-queue/mine")
    service.say("SUBSCRIBE", id="1", destination="/queue/requests")
    [request] = service.take("MESSAGE")
    for receipt in ("1", "2", "3"):
        service.say("SEND", b"answer", destination=request.headers["reply-to"], receipt=receipt)
    assert len(service.take("RECEIPT")) == 1
    client.lose()
    for _ in range(2):
        service.settle()
    assert [each.headers["receipt-id"] for each in service.take("RECEIPT")] == ["2", "3"]
    assert not service.closed
    assert world.services.replies_dropped == 2


def test_a_browser_ends_with_a_frame_that_says_so(world: World) -> None:
    client = Stomp(world)
    for number in range(250):
        client.say("SEND", str(number).encode(), destination="/queue/a", even=str(number % 2 == 0))
    client.say("SUBSCRIBE", id="1", destination="/queue/a", browser="true", selector="even = 'True'", receipt="r")
    messages = client.take("MESSAGE")
    assert [int(each.body) for each in messages[:-1]] == list(range(0, 250, 2))
    assert messages[-1].headers["browser"] == "end"
    assert queue(world, "a").depth == 250
    assert client.take("RECEIPT")
    client.say("UNSUBSCRIBE", id="1")
    assert not client.closed


def test_a_durable_subscription_keeps_messages(world: World) -> None:
    first = Stomp(world, client_id="ann")
    first.say("SUBSCRIBE", id="1", destination="/topic/t", durable_subscription_name="news")
    first.say("DISCONNECT", receipt="bye")
    sender = Stomp(world)
    sender.say("SEND", b"kept", destination="/topic/t")
    second = Stomp(world, client_id="ann")
    second.say("SUBSCRIBE", id="1", destination="/topic/t", **{"activemq.subscriptionName": "news"})
    assert second.messages() == ["kept"]
    second.say("UNSUBSCRIBE", id="1", **{"activemq.subscriptionName": "news"})
    assert not second.closed
    assert not world.broker.namespaces["default"].subscriptions.durable


def test_a_no_local_subscription_gets_nothing_of_its_own_connection(world: World) -> None:
    client, other = Stomp(world), Stomp(world)
    client.say("SUBSCRIBE", id="1", destination="/topic/t", no_local="true")
    client.say("SEND", b"own", destination="/topic/t")
    other.say("SEND", b"other", destination="/topic/t")
    client.settle()
    assert client.messages() == ["other"]


@pytest.mark.parametrize(
    ("headers", "text"),
    [
        ({"id": "1"}, "destination"), ({"destination": "/queue/a"}, "id"),
        ({"id": "1", "destination": "/queue/a", "ack": "maybe"}, "client-individual"),
        ({"id": "1", "destination": "/queue/a", "prefetch_count": "0"}, "above 0"),
        ({"id": "1", "destination": "/topic/a", "durable_subscription_name": "x"}, "client id"),
    ],
)  # fmt: skip
def test_a_subscription_that_cannot_be_is_an_error(world: World, headers: dict[str, str], text: str) -> None:
    client = Stomp(world)
    client.say("SUBSCRIBE", **headers)
    assert text in client.error().body.decode()


def test_two_subscriptions_with_one_id_are_an_error(world: World) -> None:
    client = Stomp(world)
    client.say("SUBSCRIBE", id="1", destination="/queue/a")
    client.say("SUBSCRIBE", id="1", destination="/queue/b")
    assert "'1' already" in client.error().headers["message"]


# -- acknowledgement --------------------------------------------------------------------------------------------------


def deliver(world: World, count: int, ack: str, version: str = "1.2", **headers: str) -> tuple[Stomp, list[str]]:
    """A client that was sent the messages m0, m1, …, and the ids that it acknowledges them by."""
    client = Stomp(world, version)
    for number in range(count):
        client.say("SEND", f"m{number}".encode(), destination="/queue/a")
    client.say("SUBSCRIBE", id="1", destination="/queue/a", ack=ack, **headers)
    messages = client.take("MESSAGE")
    return client, [each.headers.get("ack", each.headers["message-id"]) for each in messages]


def test_auto_settles_what_is_written(world: World) -> None:
    client, _ = deliver(world, 1_000, "auto")
    assert (queue(world, "a").depth, queue(world, "a").in_flight) == (0, 0)
    client.lose()
    assert queue(world, "a").depth == 0


@pytest.mark.parametrize("command", ["UNSUBSCRIBE", "DISCONNECT"])
def test_what_auto_was_sent_does_not_return_with_its_subscription(world: World, command: str) -> None:
    client, other = Stomp(world), Stomp(world)
    for number in range(100):
        other.say("SEND", b"m%d" % number, destination="/queue/a")
    client.broker.receive_data(frame("SUBSCRIBE", id="1", destination="/queue/a", prefetch_count="10"), world.now)
    client.broker.receive_data(frame(command, id="1"), world.now)  # before the first write
    client.settle()
    assert client.messages() == [f"m{number}" for number in range(10)]
    assert (queue(world, "a").depth, queue(world, "a").in_flight) == (90, 0)
    other.say("SUBSCRIBE", id="1", destination="/queue/a")
    assert other.messages() == [f"m{number}" for number in range(10, 100)]


def test_client_acknowledges_all_up_to_a_message(world: World) -> None:
    client, ids = deliver(world, 5, "client")
    client.say("ACK", id=ids[2])
    assert queue(world, "a").in_flight == 2
    client.lose()
    world.settle()
    again, _ = Stomp(world), None
    again.say("SUBSCRIBE", id="1", destination="/queue/a")
    assert [(each.body, each.headers["redelivered"]) for each in again.take("MESSAGE")] == [
        (b"m3", "true"), (b"m4", "true"),
    ]  # fmt: skip


@pytest.mark.parametrize("version", ["1.2", "1.1"])
def test_client_individual_acknowledges_one(world: World, version: str) -> None:
    client, ids = deliver(world, 3, "client-individual", version)
    if version == "1.2":
        client.say("ACK", id=ids[1])
    else:
        client.say("ACK", message_id=ids[1], subscription="1")
    client.say("UNSUBSCRIBE", id="1")
    client.say("SUBSCRIBE", id="2", destination="/queue/a")
    assert [(each.body, each.headers["redelivered"]) for each in client.take("MESSAGE")] == [
        (b"m0", "true"), (b"m2", "true"),
    ]  # fmt: skip


def test_messages_with_one_message_id_are_settled_in_order(world: World) -> None:
    """Copies that an operator made have the id of the original."""
    client, native = Stomp(world, "1.1"), world.client()
    client.say("SUBSCRIBE", id="1", destination="/queue/a", ack="client-individual")
    session = native.session()
    for mid in ("ID:copy", "ID:other", "ID:copy"):
        native.queue_send(session, envelope(mid, mid=mid), "queue:a")
    world.settle()
    client.settle()
    [subscription] = client.broker.outbox.subscriptions.by_consumer.values()
    client.say("ACK", message_id="ID:copy", subscription="1")
    assert list(subscription.held) == [2, 3]
    client.say("NACK", message_id="ID:copy")
    assert list(subscription.held) == [2, 4]
    client.say("ACK", message_id="ID:copy")
    assert list(subscription.held) == [2]
    client.say("ACK", message_id="ID:copy")
    assert "there is no unsettled message" in client.error().headers["message"]


def test_message_ids_of_settled_messages_are_forgotten(world: World) -> None:
    client, _ = deliver(world, 0, "client-individual", prefetch_count="10")
    for number in range(1_000):
        client.say("SEND", b"x", destination="/queue/a")
        [message] = client.take("MESSAGE")
        named = message.headers["message-id" if number == 999 else "ack"]
        client.say("ACK", id=named)
    [subscription] = client.broker.outbox.subscriptions.by_consumer.values()
    assert len(subscription._named) < 150
    assert not subscription.held


def test_writes_concern_only_subscriptions_that_were_sent_something(world: World) -> None:
    client = Stomp(world)
    for number in range(20):
        client.say("SUBSCRIBE", id=str(number), destination=f"/queue/{number % 10}", ack="auto")
    subscriptions = client.broker.outbox.subscriptions
    client.broker.receive_data(frame("SEND", b"x", destination="/queue/7"), world.now)
    assert [each.id for each in subscriptions.written.values()] == ["7"]
    client.say("UNSUBSCRIBE", id="7")
    assert not subscriptions.written
    assert "7" not in subscriptions.by_id
    client.settle()
    assert (queue(world, "7").depth, queue(world, "7").in_flight) == (0, 0)


def test_output_that_has_room_again_resumes_only_what_it_held_back(world: World) -> None:
    client = Stomp(world)
    for number in range(20):
        client.say("SUBSCRIBE", id=str(number), destination=f"/queue/{number}")
    deliveries = client.broker.peer.deliveries
    client.broker.pause()
    other = Stomp(world)
    for number in (7, 3, 7):
        other.say("SEND", b"x", destination=f"/queue/{number}")
    by_id = client.broker.outbox.subscriptions.by_id
    assert list(deliveries._line) == [by_id["7"].consumer, by_id["3"].consumer]
    client.broker.resume(world.now)
    client.settle()
    assert [each.headers["subscription"] for each in client.take("MESSAGE")] == ["7", "7", "3"]
    assert not deliveries._line
    assert not deliveries._held_back


def test_very_many_are_resumed_over_several_turns(world: World) -> None:
    client, other = Stomp(world), Stomp(world)
    for number in range(1_200):
        client.say("SUBSCRIBE", id=str(number), destination=f"/queue/{number}")
    client.broker.pause()
    for number in range(1_200):
        other.say("SEND", b"x", destination=f"/queue/{number}")
    for number in range(1_199):
        queue(world, str(number)).drop_oldest()
    deliveries, left = client.broker.peer.deliveries, []
    client.broker.resume(world.now)
    while deliveries._line:
        left.append(len(deliveries._line))
        assert client.broker.has_data
        client._take(client.broker.data_to_send())
    assert left == [700, 200]
    client.settle()
    assert [each.headers["subscription"] for each in client.take("MESSAGE")] == ["1199"]


def test_a_fan_out_yields_when_its_deliveries_have_spent_the_turn(world: World) -> None:
    client, other = Stomp(world), Stomp(world)
    for number in range(LARGE + 1):
        client.say("SUBSCRIBE", id=str(number), destination="/topic/t")
    other.broker.receive_data(frame("SEND", b"x", destination="/topic/t"), world.now)
    written, slices = client.broker.outbox.subscriptions.written, 0
    while world.broker.scheduler.ring:
        world.broker.work(world.now)
        slices += 1
        assert len(written) <= TURN // 4 + 25
        client._take(client.broker.data_to_send())
        assert not written
    assert slices > 4
    client.settle()
    assert len(client.take("MESSAGE")) == LARGE + 1


def test_disconnect_ends_many_subscriptions_as_far_as_there_is_time(world: World) -> None:
    client = Stomp(world)
    for number in range(20):
        client.say("SUBSCRIBE", id=str(number), destination="/queue/a")
    world.services.spent = lambda: True
    client.broker.receive_data(frame("DISCONNECT", receipt="r"), world.now)
    turns = 0
    while client.broker.behind:
        client.broker.catch_up(world.now)
        turns += 1
    assert turns >= 20
    client.settle()
    assert [each.headers["receipt-id"] for each in client.take("RECEIPT")] == ["r"]
    assert client.closed


def test_no_more_than_the_prefetch_is_unsettled(world: World) -> None:
    client, ids = deliver(world, 10, "client-individual", prefetch_count="3")
    assert len(ids) == 3
    client.say("ACK", id=ids[1])
    assert client.messages() == ["m3"]
    client.say("NACK", id=ids[0], requeue="false")
    assert client.messages() == ["m4"]


def test_nack_returns_a_message_marked_and_it_becomes_a_dead_letter_after_its_attempts() -> None:
    world = limited(max_attempts=2)
    client, ids = deliver(world, 1, "client-individual")
    client.say("NACK", id=ids[0])
    [again] = client.take("MESSAGE")
    assert (again.headers["redelivered"], again.headers["JMSXDeliveryCount"]) == ("true", "2")
    client.say("NACK", id=again.headers["ack"])
    assert client.messages() == []
    assert queue(world, "DLQ.a").depth == 1


def test_nack_without_requeue_is_a_dead_letter_at_once(world: World) -> None:
    client, ids = deliver(world, 2, "client-individual")
    client.say("NACK", id=ids[0], requeue="false")
    client.say("SUBSCRIBE", id="dlq", destination="/queue/DLQ.a")
    [dead] = client.take("MESSAGE")
    assert (dead.body, dead.headers["JMS_SieveMQ_DeadLetterReason"]) == (b"m0", "rejected")
    assert queue(world, "a").in_flight == 1


@pytest.mark.parametrize("named", ["9-9", "1-1", "x", "-"])
def test_an_ack_of_nothing_is_an_error(world: World, named: str) -> None:
    client = Stomp(world)
    client.say("ACK", id=named)
    assert "no unsettled message of that id" in client.error().headers["message"]


def test_an_ack_of_version_1_2_may_name_the_message_id(world: World) -> None:
    client = Stomp(world)
    client.say("SUBSCRIBE", id="1", destination="/queue/a", ack="client-individual")
    for body in (b"1", b"2"):
        client.say("SEND", body, destination="/queue/a")
    _, second = client.take("MESSAGE")
    client.say("ACK", id=second.headers["message-id"], receipt="r")
    assert len(client.take("RECEIPT")) == 1
    client.lose()
    again = Stomp(world)
    again.say("SUBSCRIBE", id="1", destination="/queue/a")
    assert again.messages() == ["1"]


def test_a_message_is_settled_once(world: World) -> None:
    client, ids = deliver(world, 1, "client-individual")
    client.say("ACK", id=ids[0])
    client.say("ACK", id=ids[0])
    assert "no unsettled message" in client.error().headers["message"]


@pytest.mark.parametrize("waiting", [1, 2, 3])
def test_waiting_consumers_do_not_wait_for_what_a_stomp_client_holds(world: World, waiting: int) -> None:
    """STOMP cannot give back what is buffered: it answers that nothing is."""
    client, _ = deliver(world, 10, "client")
    native = world.client()
    consumers = [native.consumer(native.session(CLIENT), "queue:a", credit=0) for _ in range(waiting)]
    for consumer in consumers:
        native.wire.send(Command.WANT, 900 + consumer.id, consumer.id)
    native.exchange()
    client.settle()
    world.settle()
    assert {900 + consumer.id for consumer in consumers} <= {command[1] for command in native.take(Command.OK)}


# -- transactions -----------------------------------------------------------------------------------------------------


def test_a_transaction_sends_and_acknowledges_together(world: World) -> None:
    client, ids = deliver(world, 3, "client-individual")
    client.say("BEGIN", transaction="t")
    client.say("SEND", b"in", destination="/queue/out", transaction="t", receipt="s")
    client.say("ACK", id=ids[0], transaction="t")
    client.say("NACK", id=ids[1], transaction="t", requeue="false")
    assert "queue:out" not in world.broker.namespaces["default"].destinations or queue(world, "out").depth == 0
    assert queue(world, "a").in_flight == 3
    client.say("COMMIT", transaction="t", receipt="c")
    assert queue(world, "out").depth == 1
    assert queue(world, "a").in_flight == 1
    assert queue(world, "DLQ.a").depth == 1
    assert client.take("RECEIPT")[-1].headers["receipt-id"] == "c"
    client.say("BEGIN", transaction="t")  # the name is free again
    assert not client.closed


def test_an_aborted_transaction_has_done_nothing(world: World) -> None:
    client, ids = deliver(world, 2, "client-individual")
    client.say("BEGIN", transaction="t")
    client.say("SEND", b"in", destination="/queue/out", transaction="t")
    client.say("ACK", id=ids[0], transaction="t")
    client.say("ABORT", transaction="t", receipt="r")
    assert client.take("RECEIPT")
    assert queue(world, "out").depth == 0
    client.say("ACK", id=ids[0])
    assert queue(world, "a").in_flight == 1


@pytest.mark.parametrize(("second", "most"), [("ACK", 6), ("NACK", 30)])
def test_a_commit_settles_as_far_as_there_is_time(world: World, second: str, most: int) -> None:
    """Acknowledgements that follow each other are one step, otherwise each is one."""
    client, ids = deliver(world, 20, "client-individual")
    client.say("BEGIN", transaction="t")
    for number, each in enumerate(ids):
        client.say(("ACK", second)[number % 2], id=each, transaction="t")
    world.services.spent = lambda: True
    client.broker.receive_data(frame("COMMIT", transaction="t", receipt="c"), world.now)
    turns = 0
    while client.broker.behind:
        client.broker.catch_up(world.now)
        turns += 1
    assert most / 2 < turns <= most
    client.settle()
    assert client.take("RECEIPT")[-1].headers["receipt-id"] == "c"
    redelivered = 0 if second == "ACK" else 10
    assert (queue(world, "a").depth, queue(world, "a").in_flight) == (0, redelivered)


def test_an_abort_of_many_acknowledgements_sorts_once(world: World) -> None:
    client, ids = deliver(world, 20, "client-individual")
    client.say("BEGIN", transaction="t")
    for number, each in enumerate(reversed(ids)):
        client.say(("ACK", "NACK")[number % 2], id=each, transaction="t")
    [subscription] = client.broker.outbox.subscriptions.by_consumer.values()
    (transaction,) = client.broker._transactions.values()
    assert list(transaction.take_back()) == [subscription]
    client.say("ABORT", transaction="t")
    assert list(subscription.held) == sorted(subscription.held)
    assert len(subscription.held) == 20


def test_a_cumulative_acknowledgement_covers_what_an_aborted_transaction_had_settled(world: World) -> None:
    client, ids = deliver(world, 4, "client")
    client.say("BEGIN", transaction="t")
    client.say("ACK", id=ids[1], transaction="t")
    client.say("ABORT", transaction="t")
    client.say("ACK", id=ids[2])
    assert (queue(world, "a").depth, queue(world, "a").in_flight) == (0, 1)


@pytest.mark.parametrize(("command", "left"), [("COMMIT", []), ("ABORT", [("m1", "true")])])
def test_a_transaction_settles_messages_of_a_subscription_that_has_ended(
    world: World, command: str, left: list[tuple[str, str]]
) -> None:
    client, ids = deliver(world, 2, "client-individual")
    client.say("ACK", id=ids[0])
    client.say("BEGIN", transaction="t")
    client.say("ACK", id=ids[1], transaction="t")
    client.say("UNSUBSCRIBE", id="1")
    client.say("SUBSCRIBE", id="2", destination="/queue/a")
    assert client.messages() == []
    client.say(command, transaction="t")
    assert [(each.body.decode(), each.headers["redelivered"]) for each in client.take("MESSAGE")] == left
    assert (queue(world, "a").depth, queue(world, "a").in_flight) == (0, 0)


def test_a_receipt_follows_the_effect_however_long_that_takes(world: World) -> None:
    client, ids = deliver(world, 5_000, "client", prefetch_count="5000")
    client.say("BEGIN", transaction="t")
    client.say("ACK", id=ids[-1], transaction="t")
    client.say("UNSUBSCRIBE", id="1")
    client.broker.receive_data(frame("ABORT", transaction="t", receipt="r"), world.now)
    assert queue(world, "a").in_flight
    for _ in range(1_000):
        if client.broker.behind:
            client.broker.catch_up(world.now)
        client._take(client.broker.data_to_send())
        world.broker.work(world.now, 100)
        if client.take("RECEIPT"):
            break
    assert (queue(world, "a").depth, queue(world, "a").in_flight) == (5_000, 0)


def test_receipts_of_transactions_are_forgotten(world: World) -> None:
    client = Stomp(world)
    for end in ("COMMIT", "ABORT"):
        client.say("BEGIN", transaction="t")
        client.say("SEND", b"x", destination="/queue/a", transaction="t", receipt="1")
        client.say(end, transaction="t")
    client.say("SEND", b"x", destination="/queue/a", receipt="2")
    assert [each.headers["receipt-id"] for each in client.take("RECEIPT")] == ["1", "1", "2"]
    assert not [session for session in client.broker.outbox._receipts if session not in client.broker.peer.sessions]


def test_browsers_that_ended_are_bounded() -> None:
    world = World(SessionSettings(max_consumers=2))
    client = Stomp(world)
    for number in range(3):
        client.say("SUBSCRIBE", id=str(number), destination="/queue/a", browser="true")
    assert "UNSUBSCRIBE those" in client.error().headers["message"]


def test_a_transaction_that_ends_with_its_connection_has_done_nothing(world: World) -> None:
    client, ids = deliver(world, 1, "client-individual")
    client.say("BEGIN", transaction="t")
    client.say("SEND", b"in", destination="/queue/out", transaction="t")
    client.say("ACK", id=ids[0], transaction="t")
    client.lose()
    world.settle()
    assert queue(world, "a").depth == 1
    assert queue(world, "out").depth == 0


@pytest.mark.parametrize("command", ["COMMIT", "ABORT"])
def test_a_transaction_that_was_not_begun_is_an_error(world: World, command: str) -> None:
    client = Stomp(world)
    client.say(command, transaction="t")
    assert "no transaction" in client.error().headers["message"]


# -- where there is no room -------------------------------------------------------------------------------------------


def test_sends_wait_for_room_in_their_order_and_nothing_more_is_read() -> None:
    world = limited(max_messages=2, at_limit="block")
    sender, consumer = Stomp(world), Stomp(world)
    for number in range(5):
        sender.say("SEND", f"m{number}".encode(), destination="/queue/a", receipt=str(number))
    assert [each.headers["receipt-id"] for each in sender.take("RECEIPT")] == ["0", "1"]
    assert sender.broker.full
    assert sender.broker.unpublished > 0
    consumer.say("SUBSCRIBE", id="1", destination="/queue/a", ack="auto")
    for _ in range(10):
        world.settle()
        sender.settle()
        consumer.settle()
    assert consumer.messages() == ["m0", "m1", "m2", "m3", "m4"]
    assert [each.headers["receipt-id"] for each in sender.take("RECEIPT")] == ["2", "3", "4"]
    assert not sender.broker.full


def test_a_commit_that_waits_for_room_acknowledges_when_it_is_there() -> None:
    world = limited(max_messages=1, at_limit="block")
    client, ids = deliver(world, 1, "client-individual")
    client.say("SEND", b"first", destination="/queue/out")
    client.say("BEGIN", transaction="t")
    client.say("SEND", b"second", destination="/queue/out", transaction="t")
    client.say("ACK", id=ids[0], transaction="t")
    client.say("COMMIT", transaction="t", receipt="c")
    assert client.take("RECEIPT") == []
    assert queue(world, "a").in_flight == 1
    other = Stomp(world)
    other.say("SUBSCRIBE", id="1", destination="/queue/out")
    for _ in range(5):
        world.settle()
        client.settle()
        other.settle()
    assert other.messages() == ["first", "second"]
    assert client.take("RECEIPT")
    assert queue(world, "a").in_flight == 0


def test_a_refused_send_is_an_error() -> None:
    world = limited(max_messages=1, at_limit="fail")
    client = Stomp(world)
    client.say("SEND", b"1", destination="/queue/a")
    client.say("SEND", b"2", destination="/queue/a")
    assert client.error().headers["code"] == "RESOURCE_ALLOCATION"
    assert queue(world, "a").depth == 1


def test_a_reader_that_does_not_read_is_sent_no_more(world: World) -> None:
    world = World(SessionSettings(outbox_high=1_000))
    client = Stomp(world)
    for _ in range(50):
        client.say("SEND", b"x" * 200, destination="/queue/a")
    client.broker.receive_data(frame("SUBSCRIBE", id="1", destination="/queue/a", ack="client"), world.now)
    assert queue(world, "a").in_flight < 10
    client.settle()
    assert queue(world, "a").in_flight == 50


# -- the end, and time ------------------------------------------------------------------------------------------------


def test_disconnect_is_answered_and_ends_the_connection(world: World) -> None:
    client, _ = deliver(world, 2, "client")
    client.say("DISCONNECT", receipt="77")
    assert [each.headers["receipt-id"] for each in client.take("RECEIPT")] == ["77"]
    assert client.closed
    assert queue(world, "a").depth == 2


def test_heart_beats_go_both_ways(world: World) -> None:
    world = World(SessionSettings(heartbeat_ms=1_000))
    client = Stomp(world, heart_beat="500,200")
    assert client.take("CONNECTED")[0].headers["heart-beat"] == "1000,1000"
    for _ in range(4):
        world.services.real += 600
        client.broker.tick(world.now)
        client.feed(b"\n")
    assert client.beats >= 3
    for _ in range(4):
        world.services.real += 1_100
        client.broker.tick(world.now)
        client.settle()
    assert "nothing was heard" in client.error().headers["message"]


@pytest.mark.parametrize("heart_beat", ["0,0", "500,0"])
def test_a_client_is_not_silent_while_the_broker_does_not_read_from_it(heart_beat: str) -> None:
    world = World(SessionSettings(heartbeat_ms=1_000, outbox_high=2_000))
    client = Stomp(world, heart_beat=heart_beat)
    send, sent = frame("SEND", b"x", destination="/queue/a", receipt="1"), 0
    while not client.broker.full:
        client.broker.receive_data(send, world.now)
        sent += 1
    client.broker.receive_data(send, world.now)  # arrived before, and waits
    for _ in range(5):
        world.services.real += world.services.settings.frame_ms
        client.broker.tick(world.now)
    assert not client.broker.closing
    client.settle()
    assert len(client.take("RECEIPT")) == sent + 1


def test_a_client_without_heart_beats_may_be_silent(world: World) -> None:
    client = Stomp(world)
    for _ in range(5):
        world.services.real += 100_000
        client.broker.tick(world.now)
    assert not client.broker.closing


def test_a_client_that_says_nothing_is_ended(world: World) -> None:
    client = Stomp(world, connect=False)
    client.feed(b"CONN")
    world.services.real += world.services.settings.handshake_ms
    client.broker.tick(world.now)
    client.settle()
    assert "no CONNECT" in client.error().headers["message"]


def test_a_frame_that_does_not_end_has_a_deadline(world: World) -> None:
    client = Stomp(world)
    client.feed(b"SEND\ndestination:/queue/a\n\nhalf")
    client.broker.tick(world.now)
    world.services.real += world.services.settings.frame_ms
    client.broker.tick(world.now)
    client.settle()
    assert "frame_seconds" in client.error().headers["message"]


def test_the_broker_shuts_down_with_an_error(world: World) -> None:
    from sievemq_core.errors import ErrorCode

    client = Stomp(world)
    client.broker.close(ErrorCode.SHUTTING_DOWN, "the broker is shutting down", world.now)
    client.settle()
    assert client.error().headers["code"] == "SHUTTING_DOWN"


def test_a_deleted_queue_ends_the_connection_with_its_reason(world: World) -> None:
    from sievemq_core.errors import ErrorCode

    client, _ = deliver(world, 1, "client")
    queue(world, "a").delete(ErrorCode.CLOSED_BY_ADMINISTRATOR, "an administrator deleted it")
    client.settle()
    assert "an administrator deleted it" in client.error().headers["message"]


def test_moved_clocks_move_the_times_of_messages(world: World) -> None:
    client = Stomp(world)
    client.say("SUBSCRIBE", id="1", destination="/queue/a")
    world.services.move_clock(60_000, world.services.real + 60_000)
    client.settle()
    assert client.broker.peer.clock_seen == 60_000
    client.say("SEND", b"x", destination="/queue/a")
    assert client.take("MESSAGE")[0].headers["timestamp"] == str(START + 60_000)


# -- hostile bytes ----------------------------------------------------------------------------------------------------

PIECES = st.lists(
    st.one_of(
        st.binary(max_size=30),
        st.sampled_from([
            frame("CONNECT", accept_version="1.2"), frame("SEND", b"x", destination="/queue/a"), b"\0", b"\n", b"\r\n",
            frame("SUBSCRIBE", id="1", destination="/queue/a", ack="client"), frame("ACK", id="1-1"), b"SEND\n",
            frame("BEGIN", transaction="t"), frame("COMMIT", transaction="t"), frame("NACK", id="1-1"), b"a:b\n",
            b"content-length:9\n",
            frame("SEND", b"y", destination="/queue/a", transaction="t"), frame("DISCONNECT", receipt="1"),
            frame("UNSUBSCRIBE", id="1"), frame("SUBSCRIBE", id="2", destination="/queue/a", browser="true"),
        ]),
    ),
    max_size=12,
)  # fmt: skip


@settings(max_examples=200)
@given(PIECES)
def test_any_input_ends_at_most_one_connection(pieces: list[bytes]) -> None:
    world = World()
    client = Stomp(world)
    for piece in pieces:
        if not client.closed:
            client.feed(piece)
    assert world.services.reports == []
    if not client.closed:
        client.lose()
    world.settle()
    other = Stomp(world)
    other.say("SEND", b"last", destination="/queue/b")
    other.say("SUBSCRIBE", id="1", destination="/queue/b")
    assert other.messages() == ["last"]
