"""The wire: nothing before HELLO and WELCOME, and after them only what the rights say. Every command there is."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator
from typing import Any

import pytest

from sievemq import ConnectionFactory, InvalidDestinationException, JMSContext, JMSSecurityException
from sievemq.exceptions import JMSSecurityRuntimeException
from sievemq_broker import EmbeddedBroker
from sievemq_broker.session.table import CHECKS, HANDLERS, UNRESTRICTED
from sievemq_core.errors import ErrorCode
from sievemq_core.wire.codec import pack
from sievemq_core.wire.commands import COMMANDS, PROTOCOL_VERSION, Command
from sievemq_core.wire.connection import WireConnection, pack_frames

from .support import DEADLINE, PASSWORD, hello, said_at_last, secured

ENVELOPE = ("ID:x:1", 0, 4, 2, 0, 0, None, None, None, None, None, 1, b"x")
FILL = {
    "uint": 1, "bool": False, "str": "queue:orders.x", "bytes": b"", "ids": (), "map": {}, "any": 1,
    "envelope": ENVELOPE, "envelopes": (ENVELOPE,),
}  # fmt: skip


def command(number: int) -> bytes:
    """A frame with one command, in form, filled with something."""
    fields = [FILL[f.kind.rstrip("?")] for f in COMMANDS[number].fields]
    return b"".join(pack_frames([pack((number, *fields))]))


def answers(broker: EmbeddedBroker, *data: bytes) -> list[tuple[Any, ...]]:
    """What the broker says to bytes until it closes the connection."""
    with socket.create_connection(("127.0.0.1", broker.port), DEADLINE) as sock:
        sock.sendall(b"".join(data))
        said = said_at_last(sock)
    client = WireConnection("client")
    client.send(Command.HELLO, PROTOCOL_VERSION, "", None, None, None, 0, "", None, {})
    return client.receive_data(said)


FROM_CLIENT = [number for number, spec in COMMANDS.items() if spec.sender in ("client", "both")]


@pytest.mark.parametrize("number", [n for n in COMMANDS if n != Command.HELLO], ids=lambda n: COMMANDS[n].name)
def test_nothing_is_carried_out_before_hello(broker: EmbeddedBroker, number: int) -> None:
    last = answers(broker, command(number))[-1]
    assert last[:3] == (Command.ERROR, 0, ErrorCode.UNEXPECTED_COMMAND)
    assert broker.call(lambda b: "queue:orders.x" not in b.namespace("default").destinations)


@pytest.mark.parametrize(
    "number", [n for n in FROM_CLIENT if n not in (Command.HELLO,)], ids=lambda n: COMMANDS[n].name
)
def test_commands_sent_with_hello_are_not_carried_out(broker: EmbeddedBroker, number: int) -> None:
    """Neither behind one that will be refused, nor behind one that is right but not answered yet."""
    for credentials in (hello("admin", "wrong"), hello("admin", PASSWORD), hello()):
        last = answers(broker, credentials, command(number))[-1]
        assert last[:2] == (Command.ERROR, 0)
        assert last[2] in (ErrorCode.UNEXPECTED_COMMAND, ErrorCode.AUTHENTICATION)
    assert broker.call(lambda b: "queue:orders.x" not in b.namespace("default").destinations)


@pytest.mark.parametrize(
    ("user", "password"),
    [(None, None), ("", ""), ("admin", None), ("admin", ""), ("admin", "Rosebud"), ("nobody-of-this-name", PASSWORD),
     ("admin\0", PASSWORD), ("admin", PASSWORD + "\0"), ("\ud800", "\ud800"), ("admin", "x" * 5_000)],
)  # fmt: skip
def test_wrong_credentials_end_the_connection(user: str | None, password: str | None) -> None:
    with secured() as broker:
        (last,) = answers(broker, hello(user, password))
        assert last[:3] == (Command.ERROR, 0, ErrorCode.AUTHENTICATION)
        assert broker.call(lambda b: not b.namespaces)


def test_user_without_a_right_in_a_namespace_does_not_make_it(broker: EmbeddedBroker) -> None:
    for user, namespace in (("anna", "team-b"), ("ben", ""), ("ben", "default"), ("nobody", ""), ("anna", "no-such")):
        (last,) = answers(broker, hello(user, PASSWORD, namespace))
        assert last[:3] == (Command.ERROR, 0, ErrorCode.AUTHENTICATION)
        assert "no right in namespace" in last[3]
    assert not {"team-b", "no-such"} & set(broker.call(lambda b: list(b.namespaces)))


def test_every_command_is_decided_on() -> None:
    """A new command has to be put into one of the groups of `session/table.py`; what it needs is tested below."""
    groups = [UNRESTRICTED, frozenset(CHECKS)]
    assert frozenset().union(*groups) == frozenset(HANDLERS)  # SEND has a check of its own
    assert sum(map(len, groups)) == len(HANDLERS)


# -- rights, through the SDK ------------------------------------------------------------------------------------------


@contextlib.contextmanager
def as_user(broker: EmbeddedBroker, user: str, namespace: str = "") -> Iterator[JMSContext]:
    with ConnectionFactory(f"{broker.url}/{namespace}").create_context(user, PASSWORD) as context:
        yield context


@pytest.fixture
def anna(broker: EmbeddedBroker) -> Iterator[JMSContext]:
    with as_user(broker, "anna") as context:
        yield context


def test_granted_commands_work(anna: JMSContext) -> None:
    queue = anna.create_queue("orders.eu")
    anna.create_producer().send(queue, "one")
    assert [message.get_text() for message in anna.create_browser(queue)] == ["one"]
    with anna.create_consumer(queue) as consumer:
        assert consumer.receive_body(str, 60_000) == "one"
    anna.create_consumer(anna.create_topic("prices")).close()


@pytest.mark.parametrize("name", ["stock", "orders", "orders-eu", "Orders.eu", "xorders.eu", "topic:orders.eu"])
def test_send_consume_and_browse_where_nothing_is_granted(anna: JMSContext, name: str) -> None:
    where = anna.create_topic("orders.eu") if name.startswith("topic:") else anna.create_queue(name)
    with pytest.raises(JMSSecurityRuntimeException) as refused:
        anna.create_producer().send(where, "x")
    text = str(refused.value)
    assert all(word in text for word in ("'anna'", "send to", name, "'default'"))
    with pytest.raises(JMSSecurityRuntimeException, match="consume from"):
        anna.create_consumer(where)
    if not name.startswith("topic:"):
        with pytest.raises(JMSSecurityRuntimeException, match="browse"):
            list(anna.create_browser(where))


def test_a_refused_send_has_no_effect_and_the_session_continues(broker: EmbeddedBroker, anna: JMSContext) -> None:
    producer = anna.create_producer()
    for _ in range(3):
        with pytest.raises(JMSSecurityRuntimeException):
            producer.send(anna.create_queue("fresh"), "x")
        producer.send(anna.create_queue("orders.kept"), "x")
    assert len(list(anna.create_browser(anna.create_queue("orders.kept")))) == 3
    assert broker.call(lambda b: "queue:fresh" not in b.namespace("default").destinations)


def test_refused_send_dooms_its_transaction(broker: EmbeddedBroker) -> None:
    with ConnectionFactory(broker.url).create_context("anna", PASSWORD, JMSContext.SESSION_TRANSACTED) as context:
        context.create_producer().send(context.create_queue("orders.staged"), "x")
        context.create_producer().send(context.create_queue("payroll"), "x")
        with pytest.raises(Exception, match="rolled back: user 'anna' must not send to queue:payroll"):
            context.commit()
    assert broker.call(lambda b: "queue:payroll" not in b.namespace("default").destinations)


def test_a_read_only_user_creates_nothing(broker: EmbeddedBroker) -> None:
    with ConnectionFactory(broker.url).create_connection("anna", PASSWORD) as connection:
        session = connection.create_session()
        with pytest.raises(JMSSecurityException, match="'anna' must not send to queue:stock"):
            session.create_producer(session.create_queue("stock"))
        assert broker.call(lambda b: b.namespace("default").find("queue:stock")) is None
        broker.call(lambda b: b.namespace("default").create("queue:stock"))
        session.create_producer(session.create_queue("stock"))  # it is there: any right shows that
        session.create_producer(session.create_queue("orders.new"))


def test_reading_a_topic_is_no_right_to_publish(anna: JMSContext) -> None:
    with pytest.raises(JMSSecurityRuntimeException):
        anna.create_producer().send(anna.create_topic("prices"), "x")


def test_subscriptions_of_topics_that_are_not_granted(broker: EmbeddedBroker) -> None:
    with as_user(broker, "admin") as admin:
        admin.set_client_id("shared-id")
        admin.create_durable_consumer(admin.create_topic("secret"), "sub").close()
        admin.create_shared_durable_consumer(admin.create_topic("secret"), "pool").close()
    with as_user(broker, "anna") as anna:
        anna.set_client_id("shared-id")
        with pytest.raises(JMSSecurityRuntimeException, match="consume from topic:secret"):
            anna.unsubscribe("sub")
        for make in (anna.create_durable_consumer, anna.create_shared_durable_consumer):
            for name in ("sub", "pool"):  # on a topic of its own: that would end the subscription to the other one
                with pytest.raises(JMSSecurityRuntimeException, match="consume from topic:secret"):
                    make(anna.create_topic("prices"), name)
    held = broker.call(lambda b: [key[1] for key in b.namespace("default").subscriptions.durable])
    assert sorted(held) == ["pool", "sub"]


def test_request_and_reply_needs_no_right_on_the_reply_queue(broker: EmbeddedBroker) -> None:
    with as_user(broker, "anna") as anna, as_user(broker, "admin") as admin:
        replies = anna.create_temporary_queue()
        consumer = anna.create_consumer(replies)
        admin.create_producer().send(replies, "from the administrator")
        assert consumer.receive_body(str, 60_000) == "from the administrator"
        theirs = admin.create_temporary_queue()
        anna.create_producer().send(theirs, "a reply")
        assert admin.create_consumer(theirs).receive_body(str, 60_000) == "a reply"


@pytest.mark.parametrize("user", ["anna", "admin"])
def test_no_limited_user_takes_over_a_connection_from_before_a_restart(broker: EmbeddedBroker, user: str) -> None:
    """Its id is no secret, and replies to its requests may still be on their way to its temporary queue."""
    (welcome,) = answers(broker, hello(user, PASSWORD, resume="abcdefghjk-7"))
    assert (welcome[4] == "abcdefghjk-7") is (user == "admin")


def test_no_client_takes_over_a_living_connection_of_another(broker: EmbeddedBroker) -> None:
    with as_user(broker, "admin") as admin:
        (connection,) = broker.call(lambda _: list(broker.server.shard.services.connections))
        (welcome,) = answers(broker, hello("anna", PASSWORD, resume=connection))
        assert welcome[0] == Command.WELCOME
        assert welcome[4] != connection
        admin.create_producer().send(admin.create_queue("orders.x"), "still here")


def test_temporary_queue_of_another_is_for_its_owner(broker: EmbeddedBroker) -> None:
    with as_user(broker, "anna") as anna, as_user(broker, "admin") as admin:
        theirs = admin.create_temporary_queue()
        admin.create_producer().send(theirs, "private")
        text = theirs.get_queue_name()
        queue = anna.create_queue(text)
        for attempt in (lambda: anna.create_consumer(queue), lambda: list(anna.create_browser(queue))):
            with pytest.raises((JMSSecurityRuntimeException, Exception)) as refused:
                attempt()
            assert refused.value.get_error_code() in ("SECURITY", "INVALID_DESTINATION")


def test_namespaces_do_not_see_each_other(broker: EmbeddedBroker) -> None:
    with as_user(broker, "admin") as admin, as_user(broker, "ben", "team-b") as ben:
        admin.set_client_id("one-id")
        ben.set_client_id("one-id")  # names are apart, too
        admin.create_producer().send(admin.create_queue("orders.both"), "in default")
        queue = ben.create_queue("orders.both")
        assert list(ben.create_browser(queue)) == []
        assert ben.create_consumer(queue).receive_no_wait() is None
        replies = admin.create_temporary_queue()
        with pytest.raises(Exception, match="does not exist"):
            ben.create_producer().send(replies, "x")


@pytest.mark.parametrize(("mode", "verb"), [("copy", "browse"), ("drain", "consume from")])
def test_taps_need_the_right_that_reading_would(broker: EmbeddedBroker, mode: str, verb: str) -> None:
    client = WireConnection("client")
    with socket.create_connection(("127.0.0.1", broker.port), DEADLINE) as sock:
        heard: list[tuple[Any, ...]] = []

        def say(*fields: Any) -> tuple[Any, ...]:
            client.send(*fields)
            sock.sendall(client.data_to_send())
            heard.clear()
            while not heard:
                heard.extend(client.receive_data(sock.recv(65_536)))
            return heard[-1]

        say(Command.HELLO, PROTOCOL_VERSION, "", "anna", PASSWORD, None, 0, "attack", None, {})
        refused = say(Command.OPEN_TAP, 1, mode, "queue:stock", mode, None, None, {})
        assert refused[:3] == (Command.ERROR, 1, ErrorCode.SECURITY)
        assert verb in refused[3]
        for number in (Command.LOOK_TAP, Command.FETCH_TAP, Command.ACKNOWLEDGE_TAP, Command.DELETE_TAP):
            fields = [FILL[f.kind.rstrip("?")] for f in COMMANDS[number].fields]
            fields[:3] = [7, mode, "queue:stock"]
            fields = ["x" if f.name == "id" else v for f, v in zip(COMMANDS[number].fields, fields, strict=True)]
            answer = say(number, *fields)
            assert answer[0] == Command.ERROR or answer[2] is False, answer
        assert say(Command.OPEN_TAP, 9, mode, "queue:orders.x", mode, None, None, {})[0] == Command.OK


def test_checked_exceptions_say_the_same(broker: EmbeddedBroker) -> None:
    with ConnectionFactory(broker.url).create_connection("anna", PASSWORD) as connection:
        session = connection.create_session()
        with pytest.raises(
            JMSSecurityException, match="'anna' must not consume from queue:stock in namespace 'default'"
        ):
            session.create_consumer(session.create_queue("stock"))
        with pytest.raises(InvalidDestinationException):
            session.unsubscribe("no-such")
