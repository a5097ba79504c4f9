"""ClientConnection: handshake, requests, heartbeats, what else the broker says, the end."""

from __future__ import annotations

import re

import pytest

from sievemq import (
    IllegalStateException,
    InvalidClientIDException,
    JMSException,
    JMSSecurityException,
    Queue,
    ResourceAllocationException,
    TextMessage,
)
from sievemq._engine import ClientConnection, Completion, EngineOptions
from sievemq._engine.terms import Terms
from sievemq.url import parse_url
from sievemq_broker.protocols.sieve import SieveConnection
from sievemq_core.errors import ErrorCode
from sievemq_core.wire.codec import pack
from sievemq_core.wire.commands import PROTOCOL_VERSION, Command
from sievemq_core.wire.connection import pack_frames

from .harness import Clock, FakeBroker, World

# -- Completion -------------------------------------------------------------------------------------------------------


def test_a_completion_is_settled_once() -> None:
    completion: Completion[int] = Completion()
    heard: list[object] = []
    completion.add_callback(lambda c: heard.append(("first", c.done)))
    completion.add_callback(lambda c: heard.append(("second", c.done)))
    assert not completion.done
    completion.succeed(7)
    completion.succeed(8)
    completion.fail(ValueError())
    assert completion.result() == 7
    assert heard == [("first", True), ("second", True)]
    completion.add_callback(lambda c: heard.append("late"))
    assert heard[-1] == "late"


def test_a_completion_that_fails() -> None:
    completion: Completion[int] = Completion()
    completion.fail(KeyError("x"))
    with pytest.raises(KeyError):
        completion.result()


# -- handshake --------------------------------------------------------------------------------------------------------


def test_hello_carries_the_options_of_the_url() -> None:
    url = parse_url("sievemq://ann:secret@host/tests?client_id=me&heartbeat=500&prefetch=3&application=app")
    options = EngineOptions.from_url(url, None, None, "agent/1")
    broker = FakeBroker(options)
    assert broker.welcome()[:8] == (
        Command.HELLO, PROTOCOL_VERSION, "tests", "ann", "secret", "me", 500, "agent/1 app",
    )  # fmt: skip
    assert options.prefetch == 3
    other = EngineOptions.from_url(url, "bob", "word", "agent/1")
    assert (other.user, other.password) == ("bob", "word")
    assert "secret" not in repr(options)


def test_welcome_opens_the_connection() -> None:
    broker = FakeBroker(window_messages=5, window_bytes=6, body_bytes=7)
    broker.welcome(clock_offset=100, durable=True)
    engine = broker.engine
    assert broker.handshake is None
    assert (engine.terms.broker, engine.terms.connection_id, engine.terms.clock_offset) == ("SieveMQ/test", "c1", 100)
    assert (engine.terms.window_messages, engine.terms.window_bytes, engine.terms.max_body) == (5, 6, 7)
    assert engine.terms.features["durable"] is True


def test_the_brokers_that_welcome_names_are_tried_behind_the_hosts_of_the_url() -> None:
    broker = FakeBroker()
    broker.welcome(peers=["a:1", "b:7672", "[::1]:5", "no host:x", "", 7])
    configured = [("z", 9), ("a", 1)]
    known, _ = broker.engine.terms.hosts(configured)
    assert known[:4] == [("z", 9), ("a", 1), ("b", 7672), ("::1", 5)]


def test_the_host_that_the_client_was_connected_to_is_tried_first() -> None:
    terms = Terms(EngineOptions(), lambda: 0)
    assert terms.hosts([("a", 1), ("b", 1)]) == ([("a", 1), ("b", 1)], 0)
    terms.connected_to(("b", 1))
    assert terms.hosts([("a", 1), ("b", 1)]) == ([("a", 1), ("b", 1)], 1)
    terms.connected_to(("c", 1))  # behind a redirect
    assert terms.hosts([("a", 1), ("b", 1)]) == ([("a", 1), ("b", 1), ("c", 1)], 2)


def test_later_welcomes_add_hosts_within_bounds() -> None:
    terms = Terms(EngineOptions(), lambda: 0)
    for peers in (["a:1", "b:1"], ["c:1", "b:1"], "b:1", None, [f"h{n}:1" for n in range(100)]):
        terms.welcome((Command.WELCOME, 1, "b", "i", "c", 0, {}, {"peers": peers}), 0)
    known, _ = terms.hosts([("a", 1)])
    assert known[:3] == [("a", 1), ("b", 1), ("c", 1)]
    assert len(known) == 16, "a broker must not fill the memory of its clients"


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (ErrorCode.AUTHENTICATION, JMSSecurityException),
        (ErrorCode.INVALID_CLIENT_ID, InvalidClientIDException),
        (ErrorCode.TOO_MANY_CONNECTIONS, ResourceAllocationException),
        (ErrorCode.UNSUPPORTED_VERSION, JMSException),
    ],
)
def test_fac_02_exc_06_a_refused_hello(code: int, kind: type[Exception]) -> None:
    broker = FakeBroker()
    broker.heard()
    broker.say(Command.ERROR, 0, code, "no", {})
    assert broker.handshake is not None
    assert type(broker.handshake.error) is kind
    assert "no" in str(broker.handshake.error)
    assert broker.reported == []  # EXL-03: the call that opens reports it


@pytest.mark.parametrize("version", [0, PROTOCOL_VERSION + 1])
def test_a_broker_that_answers_in_an_unknown_version(version: int) -> None:
    broker = FakeBroker()
    broker.heard()
    broker.say(Command.WELCOME, version, "SieveMQ/test", "i", "c1", 0, {}, {})
    assert broker.handshake is not None
    error = broker.handshake.error
    assert error is not None
    assert error.get_error_code() == "UNSUPPORTED_VERSION"
    assert re.search(rf"protocol version {version}; .*: upgrade the (broker|client)$", str(error))


def test_a_broker_of_a_later_release_may_say_more_in_welcome() -> None:
    broker = FakeBroker()
    broker.heard()
    welcome = pack((Command.WELCOME, 1, "SieveMQ/9", "i", "c1", 0, {"new": 1}, {"newer": True}, "more", 5))
    assert broker.handshake is not None
    broker.handshake.receive_data(b"".join(pack_frames([welcome])))
    broker.engine.welcomed(broker.handshake)
    assert broker.engine.terms.broker == "SieveMQ/9"


def test_commands_behind_welcome_are_carried_out() -> None:
    broker = FakeBroker()
    broker.heard()
    welcome = pack((Command.WELCOME, 1, "SieveMQ/9", "i", "c1", 0, {}, {"clock_offset": 5}))
    clock, flow = pack((Command.CLOCK, 7)), pack((Command.FLOW, True, "full", 0, 0, None))
    assert broker.handshake is not None
    for frame in pack_frames([welcome, clock, flow], gather=1):
        broker.handshake.receive_data(frame)
    broker.engine.welcomed(broker.handshake)
    assert broker.engine.terms.clock_offset == 7
    assert broker.engine.flow.broker_blocked == "full"


def test_a_stream_that_ends_before_welcome() -> None:
    broker = FakeBroker()
    assert broker.handshake is not None
    broker.handshake.lost(None)
    broker.handshake.lost(OSError("told twice"))
    assert "before it answered" in str(broker.handshake.error)
    assert broker.handshake.leave() == b""


def test_what_answers_in_another_protocol_is_named() -> None:
    handshake = ClientConnection(EngineOptions(), Clock()).hello(("there", 80))
    handshake.receive_data(b"HTTP/1.1 400 Bad Request\r\n\r\n")
    assert "what answers at there:80 does not speak" in str(handshake.error)
    handshake.receive_data(b"more")
    assert handshake.over


def test_a_host_that_lost_the_race_is_left_in_order() -> None:
    """The broker keeps nothing: neither if it has welcomed the client, nor if it does so later."""
    world = World()
    memory = world.connect(reconnect=60_000)
    assert len(world.services.connections) == 1
    for welcomed_before in (True, False):
        handshake = ClientConnection(EngineOptions(heartbeat=0, reconnect=60_000), world.clock).hello()
        broker = SieveConnection(world.broker, world.services, address="memory")
        said = handshake.data_to_send()
        if welcomed_before:
            broker.receive_data(said, world.clock.now)
            assert len(world.services.connections) == 2
            broker.receive_data(handshake.leave(), world.clock.now)
        else:
            broker.receive_data(said + handshake.leave(), world.clock.now)
        broker.lost(world.clock.now)
        assert len(world.services.connections) == 1
        assert len(world.services.lost) == 0
    assert memory.engine.usable


# -- requests ---------------------------------------------------------------------------------------------------------


def test_answers_find_their_requests_in_any_order(broker: FakeBroker) -> None:
    first, second = broker.engine.ping(), broker.engine.create_temporary(topic=True)
    (_, one), (_, two, topic, _) = broker.heard()
    assert topic is True
    broker.say(Command.OK, two, "temporary-topic:c1.1")
    assert second.result() == "temporary-topic:c1.1"
    assert not first.done
    broker.say(Command.ERROR, one, ErrorCode.INTERNAL, "oops", {"a": 1})
    with pytest.raises(JMSException, match="oops") as caught:
        first.result()
    assert caught.value.details == {"a": 1}


def test_unexpected_answers_are_ignored(broker: FakeBroker) -> None:
    broker.say(Command.OK, 99, None)
    broker.say(Command.ERROR, 98, ErrorCode.INTERNAL, "x", {})
    assert broker.engine.failure is None


# -- what the broker says by itself -----------------------------------------------------------------------------------


def test_the_clock_is_followed_and_confirmed(broker: FakeBroker) -> None:
    broker.say(Command.CLOCK, -5)
    assert broker.engine.terms.clock_offset == -5
    assert broker.heard() == [(Command.CLOCK_SEEN, -5)]
    broker.say(Command.CLOCK, "x")
    assert broker.engine.terms.clock_offset == -5


def test_flow(broker: FakeBroker) -> None:
    broker.say(Command.FLOW, True, "memory")
    assert broker.engine.flow.blocked == ((None, "memory"),)
    broker.say(Command.FLOW, False, "")
    assert broker.engine.flow.blocked == ()


def test_a_shutdown_is_the_reason_of_the_loss_that_follows(broker: FakeBroker) -> None:
    broker.say(Command.SHUTDOWN, 100, "maintenance")
    assert broker.engine.failure is None
    broker.engine.receive_eof()
    assert "maintenance" in str(broker.engine.failure)


# -- heartbeats -------------------------------------------------------------------------------------------------------


def test_heartbeats_are_sent_when_nothing_else_is() -> None:
    broker = FakeBroker()
    broker.welcome(heartbeat=1_000)
    engine = broker.engine
    assert engine.tick(0) == 500
    assert engine.tick(500) == 500
    assert broker.heard() == []  # HELLO was said in this interval
    assert engine.tick(1_000) == 500
    assert broker.heard() == [(Command.HEARTBEAT,)]
    engine.outbox.append((Command.CREDIT, 1, 1))
    broker.heard()
    engine.tick(1_500)
    assert broker.heard() == []


def test_no_heartbeats_where_none_are_wanted(broker: FakeBroker) -> None:
    assert broker.engine.tick(0) is None


def test_a_silent_broker_is_lost_after_two_intervals() -> None:
    broker = FakeBroker(EngineOptions(heartbeat=1_000))
    broker.welcome()
    engine = broker.engine
    assert engine.tick(0) == 1_000
    assert engine.tick(400) == 600
    engine.tick(1_000)  # WELCOME was heard
    assert engine.tick(2_000) == 1_000
    broker.say(Command.HEARTBEAT)
    engine.tick(3_000)
    engine.tick(4_000)
    assert engine.failure is None
    assert engine.tick(5_000) is None
    assert "silent" in str(engine.failure)


# -- the end ----------------------------------------------------------------------------------------------------------


def test_clo_02_d_26_goodbye_comes_behind_sends_and_acknowledgements(broker: FakeBroker) -> None:
    session = broker.session()
    consumer = broker.consumer(session)
    client = broker.session(2)
    second = broker.consumer(client)
    broker.deliver(consumer, 1, 2)
    broker.deliver(second, 1, 2)
    consumer.take()
    consumer.settle()
    second.take()
    broker.producer(session).send(TextMessage("x"), Queue("q"), delivery_mode=1)
    closing = broker.engine.close()
    said = broker.heard()
    assert [command[0] for command in said] == [Command.SEND, Command.ACKNOWLEDGE, Command.GOODBYE]
    assert said[1][1:] == (consumer.id, 1, 0)
    assert said[2][2] == (consumer.id, 1, second.id, 1)
    broker.deliver(consumer, 3)  # on its way; no answer is allowed any more
    broker.say(Command.RECALL, consumer.id, (3,))
    assert broker.heard() == []
    broker.say(Command.OK, said[2][1], None)
    closing.result()
    assert broker.engine.closed
    assert broker.engine.failure is None
    with pytest.raises(IllegalStateException):
        broker.engine.check_open()


@pytest.mark.parametrize("how", ["eof", "lost", "error"])
def test_closing_succeeds_also_when_the_answer_is_lost(broker: FakeBroker, how: str) -> None:
    closing = broker.engine.close()
    broker.heard()
    if how == "eof":
        broker.engine.receive_eof()
    elif how == "lost":
        broker.engine.lost(OSError())
    else:
        broker.say(Command.ERROR, 0, ErrorCode.SHUTTING_DOWN, "bye", {})
    closing.result()
    assert broker.engine.closed
    assert broker.reported == []


def test_clo_01_closing_again_and_before_the_handshake(broker: FakeBroker) -> None:
    broker.engine.close()
    broker.engine.close().result()
    fresh = ClientConnection(EngineOptions(), Clock())
    fresh.hello()
    fresh.close().result()
    with pytest.raises(IllegalStateException):
        fresh.check_open()


def test_d_32_a_loss_fails_everything_in_order(broker: FakeBroker) -> None:
    session = broker.session()
    failed: list[str] = []
    for name in "abc":
        fate = broker.producer(session).send(TextMessage(name), Queue("q"))
        assert fate is not None
        fate.add_callback(lambda c, name=name: failed.append(name) if c.error else None)  # type: ignore[misc]
    for name in "de":
        broker.engine.ping().add_callback(lambda c, name=name: failed.append(name) if c.error else None)  # type: ignore[misc]
    broker.engine.lost(OSError("cable"))
    broker.engine.lost(OSError("again"))
    assert failed == list("abcde")
    assert [str(error) for error in broker.reported] == ["the connection to the broker is lost: cable"]
    assert isinstance(broker.reported[0], JMSException)
    assert isinstance(broker.reported[0].get_linked_exception(), OSError)
    with pytest.raises(JMSException, match="cable"):
        broker.engine.ping()
    with pytest.raises(JMSException, match="cable"):
        session.open_consumer(Queue("q"), "queue:q")
    broker.engine.receive_data(b"\xff")  # nobody listens any more
    assert session.close().done
    broker.engine.close().result()


def test_bytes_that_break_the_protocol_lose_the_connection(broker: FakeBroker) -> None:
    broker.engine.receive_data(b"\x00\x00\x00\x00")
    assert "length zero" in str(broker.engine.failure)


def test_a_fatal_error_is_the_reason(broker: FakeBroker) -> None:
    asking = broker.engine.ping()
    broker.say(Command.ERROR, 0, ErrorCode.CLOSED_BY_ADMINISTRATOR, "go away", {})
    with pytest.raises(JMSException, match="go away"):
        asking.result()
    assert [str(error) for error in broker.reported] == ["go away"]


def test_unknown_sessions_and_consumers_are_passed_over(broker: FakeBroker) -> None:
    broker.say(Command.CONFIRM, 77, 1)
    broker.say(Command.SEND_FAILED, 77, 1, ErrorCode.INTERNAL, "x")
    broker.say(Command.RECALL, 77, (1,))
    broker.say(Command.CONSUMER_CLOSED, 77, ErrorCode.INVALID_DESTINATION, "x")
    broker.say(Command.DELIVER, 77, 1, 1, (None, 0, 4, 2, 0, 0, None, None, None, None, None, 0, None))
    assert broker.engine.failure is None
    assert broker.heard() == []


def test_requests_behind_goodbye_fail_and_goodbye_succeeds(broker: FakeBroker) -> None:
    """CLO-15: a session is closed by one thread while another closes the connection."""
    session = broker.session()
    consumer = broker.consumer(session)
    closing = broker.engine.close()
    assert session.close().done
    assert session.close_consumer(consumer).done
    late = broker.engine.request(Command.PING)
    with pytest.raises(IllegalStateException):
        late.result()
    broker.engine.receive_eof()
    closing.result()


def test_con_02_modes(broker: FakeBroker) -> None:
    for mode in (-1, 4, True, "1"):
        with pytest.raises(JMSException):
            broker.engine.open_session(mode)  # type: ignore[arg-type]
    session = broker.engine.open_session(2)
    assert broker.refuse(ErrorCode.RESOURCE_ALLOCATION)[2:] == (session.id, 2, 0)
    with pytest.raises(ResourceAllocationException):
        session.opened.result()
    assert broker.engine.sessions == {}
