"""The broker in the test's own process: ready when the call returns, gone when the block ends, alone in its world."""

from __future__ import annotations

import asyncio
import gc
import logging
import socket
import threading
import urllib.request
from concurrent.futures import CancelledError
from datetime import UTC, datetime

import pytest

from sievemq import ConnectionFactory, Queue
from sievemq_broker import EmbeddedBroker
from sievemq_broker.config import ConfigError
from sievemq_broker.server.net.listener import ListenError
from sievemq_core.errors import ErrorCode
from sievemq_core.wire.commands import Command

from .wire_client import DEADLINE, WireClient

_before: set[threading.Thread] = set()


@pytest.fixture(autouse=True)
def _other_brokers() -> None:
    """Brokers that other tests of the run share are none of this module's."""
    _before.clear()
    _before.update(threading.enumerate())


def broker_threads() -> list[threading.Thread]:
    return [t for t in threading.enumerate() if t not in _before and t.name.startswith("sievemq-broker")]


def test_ready_when_the_block_begins_and_gone_when_it_ends() -> None:
    with EmbeddedBroker() as broker:
        port = broker.port
        assert broker.url == f"sievemq://127.0.0.1:{port}"
        with WireClient(port) as client:
            assert client.welcome[0] == Command.WELCOME
    assert broker_threads() == []
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port), 1)


async def test_async_with() -> None:
    async with EmbeddedBroker() as broker:
        reader, writer = await asyncio.open_connection("127.0.0.1", broker.port)
    await reader.read()  # up to the end of the stream
    assert reader.at_eof()
    writer.close()
    await writer.wait_closed()
    assert broker_threads() == []


def test_stop_with_open_connections_says_why() -> None:
    broker = EmbeddedBroker().start()
    with WireClient(broker.port) as client:
        broker.stop()
        error = client.until(Command.ERROR)
        assert error[1:3] == (0, ErrorCode.SHUTTING_DOWN)
        assert client.at_end()


def test_stop_twice_and_start_again() -> None:
    broker = EmbeddedBroker()
    broker.stop()
    broker.start()
    first = broker.server.shard.services.settings.incarnation
    broker.stop()
    broker.stop()
    with broker:
        assert broker.server.shard.services.settings.incarnation != first
        WireClient(broker.port).close()


def test_start_while_running_is_refused() -> None:
    with EmbeddedBroker() as broker, pytest.raises(RuntimeError, match="runs already"):
        broker.start()


@pytest.mark.parametrize(
    "use", [lambda b: b.url, lambda b: b.port, lambda b: b.drop_connections(), lambda b: b.http_url]
)
def test_use_before_start_is_refused(use: object) -> None:
    with pytest.raises(RuntimeError, match=r"not started|is not running"):
        use(EmbeddedBroker())  # type: ignore[operator]


def test_the_repr_says_where_it_is_and_whether_it_runs() -> None:
    broker = EmbeddedBroker(namespace="shop")
    assert repr(broker) == "<EmbeddedBroker never started>"
    with broker:
        url = broker.url
        assert repr(broker) == f"<EmbeddedBroker {url}>"
        assert repr(broker.clock) == "<BrokerClock +0 s from the machine's>"
        broker.clock.advance(seconds=90)
        assert repr(broker.clock) == "<BrokerClock +90 s from the machine's>"
        broker.clock.freeze()
        broker.clock.set(datetime(2030, 1, 1, tzinfo=UTC))
        assert repr(broker.clock) == "<BrokerClock frozen at 2030-01-01T00:00:00+00:00>"
    assert repr(broker) == f"<EmbeddedBroker {url}, stopped>"


def test_taken_port_is_a_clear_error_and_leaves_nothing() -> None:
    with EmbeddedBroker() as broker:
        wire = (
            rf"wire port {broker.port} on 127.0.0.1 is in use by another process; choose another \(setting port\), or 0"
        )
        with pytest.raises(ListenError, match=wire):
            EmbeddedBroker(port=broker.port).start()
        with pytest.raises(ListenError, match=r"HTTP port \d+ .* choose another \(setting http_port\), or 0"):
            EmbeddedBroker(http=True, http_port=broker.port).start()
        assert len(broker_threads()) == 1
        WireClient(broker.port).close()


def test_two_brokers_never_mix() -> None:
    with EmbeddedBroker() as one, EmbeddedBroker() as two:
        assert one.port != two.port
        with WireClient(one.port) as a, WireClient(two.port) as b:
            assert a.welcome[3] != b.welcome[3]  # incarnations
            a.open_session().send("queue:q", b"for one").confirmed()
            b.open_session().open_consumer("queue:q", credit=10)
            assert b.request(Command.WANT, 1)[0] == Command.OK
            assert not [command for command in b.waiting if command[0] == Command.DELIVER]
            two.clock.advance(seconds=3600)
            assert abs((one.clock.now() - two.clock.now()).total_seconds()) > 3500
        assert one.call(lambda broker: broker.namespace("default").queue("q").depth) == 1
        assert two.call(lambda broker: broker.namespace("default").queue("q").depth) == 0


@pytest.mark.parametrize("name", ["a/b", "ü x", "50%", "who?", "a@b#c"])
def test_the_url_of_a_namespace_leads_there_whatever_its_name(name: str) -> None:
    with EmbeddedBroker(namespace=name) as broker, ConnectionFactory(broker.url).create_context() as context:
        context.create_producer().send(Queue("q"), "x")
        with ConnectionFactory(broker.namespace(f"{name}2").url).create_context() as other:
            other.create_producer().send(Queue("q"), "y").send(Queue("q"), "z")
        assert broker.call(lambda b: b.namespace(name).queue("q").depth) == 1
        assert broker.call(lambda b: b.namespace(f"{name}2").queue("q").depth) == 2


def test_namespaces_of_one_broker_never_mix() -> None:
    with EmbeddedBroker(namespace="main") as broker:
        assert broker.url.endswith(f":{broker.port}/main")
        assert broker.namespace("other").url == f"sievemq://127.0.0.1:{broker.port}/other"
        with WireClient(broker.port, namespace="main") as client:
            client.open_session().send("queue:q").confirmed()
        assert broker.call(lambda b: b.namespace("main").queue("q").depth) == 1
        assert broker.call(lambda b: b.namespace("other").queue("q").depth) == 0


def test_credentials_are_required_and_others_refused() -> None:
    with EmbeddedBroker(users={"anna": "rosebud"}) as broker:
        with WireClient(broker.port, user="anna", password="rosebud") as client:
            assert client.welcome[0] == Command.WELCOME
        for user, password in (("anna", "wrong"), ("ben", "rosebud"), (None, None)):
            with WireClient(broker.port, user=user, password=password) as client:
                assert client.welcome[:3] == (Command.ERROR, 0, ErrorCode.AUTHENTICATION)
                assert client.at_end()


def test_settings_that_make_no_sense_are_refused_at_once() -> None:
    with pytest.raises(ConfigError, match="insecure"):
        EmbeddedBroker(host="0.0.0.0")
    with pytest.raises(ConfigError, match=r"http_prot \(EmbeddedBroker\) is not a setting; did you mean http_port\?"):
        EmbeddedBroker(settings={"http_prot": 1})


def test_drop_connections_cuts_without_a_word_and_lets_in_again() -> None:
    with EmbeddedBroker() as broker:
        clients = [WireClient(broker.port) for _ in range(3)]
        assert broker.drop_connections() == 3
        for client in clients:
            assert client.at_end()
            assert client.waiting == []
            client.close()
        assert broker.drop_connections() == 0
        WireClient(broker.port).close()


def test_dropping_a_connection_returns_its_messages() -> None:
    with EmbeddedBroker() as broker:
        with WireClient(broker.port) as client:
            client.open_session().open_consumer("queue:q", credit=5).send("queue:q").until(Command.DELIVER)
            broker.drop_connections()
            assert client.at_end()
        with WireClient(broker.port) as client:
            client.open_session().open_consumer("queue:q", credit=5)
            assert client.until(Command.DELIVER)[3] == 2  # JSX-12: delivered before, so this is the second time


def test_call_runs_on_the_brokers_thread_and_brings_back_results_and_errors() -> None:
    with EmbeddedBroker() as broker:
        name = broker.call(lambda _, suffix: threading.current_thread().name + suffix, "!")
        assert name == "sievemq-broker!"
        with pytest.raises(ZeroDivisionError):
            broker.call(lambda _: 1 // 0)
        with pytest.raises(RuntimeError, match="own thread"):
            broker.call(lambda b: broker.call(lambda _: None))


def test_call_that_meets_the_end_is_cancelled_and_does_not_hang() -> None:
    broker = EmbeddedBroker().start()
    inside, leave = threading.Event(), threading.Event()

    def busy(_: object) -> None:
        inside.set()
        assert leave.wait(DEADLINE)

    outcomes: list[BaseException | None] = []

    def ask() -> None:
        try:
            broker.call(lambda _: None)
        except BaseException as error:
            outcomes.append(error)
        else:
            outcomes.append(None)

    first = threading.Thread(target=broker.call, args=(busy,))
    first.start()
    assert inside.wait(DEADLINE)
    stopper = threading.Thread(target=broker.stop)
    askers = [threading.Thread(target=ask) for _ in range(4)]
    for thread in (*askers[:2], stopper, *askers[2:]):
        thread.start()
    leave.set()
    for thread in (first, stopper, *askers):
        thread.join(DEADLINE)
        assert not thread.is_alive()
    assert len(outcomes) == 4
    assert all(error is None or isinstance(error, (CancelledError, RuntimeError)) for error in outcomes)


def test_call_that_makes_output_has_it_written() -> None:
    with EmbeddedBroker() as broker, WireClient(broker.port) as client:
        client.open_session().open_consumer("queue:q", credit=5)
        broker.call(lambda b: b.namespace("default").delete("queue:q"))
        assert client.until(Command.CONSUMER_CLOSED)[1:3] == (1, ErrorCode.INVALID_DESTINATION)


def test_process_is_left_as_it_was() -> None:
    before, frozen = (gc.get_threshold(), logging.root.handlers[:], logging.root.level), gc.get_freeze_count()
    with EmbeddedBroker(), EmbeddedBroker(http=True):
        assert (gc.get_threshold(), logging.root.handlers[:], logging.root.level) == before
        assert gc.get_freeze_count() <= frozen  # what the tests have frozen may go


def test_http_is_served_when_configured() -> None:
    with EmbeddedBroker(http=True) as broker:
        with urllib.request.urlopen(f"{broker.http_url}/readyz") as answer:
            assert answer.status == 200
        url = broker.http_url
    with pytest.raises(OSError, match="refused"):
        urllib.request.urlopen(url)


def test_absence_of_http_is_reported() -> None:
    with EmbeddedBroker() as broker, pytest.raises(RuntimeError, match="serves no HTTP"):
        _ = broker.http_url


def test_rules_of_destinations_apply() -> None:
    rules = {"destinations": {"queue:small": {"max_messages": 1}, "*": {"priority": 9}}}
    with EmbeddedBroker(settings=rules) as broker, WireClient(broker.port) as client:
        client.open_session().send("queue:small").send("queue:small")
        assert client.until(Command.SEND_FAILED)[2:4] == (2, ErrorCode.RESOURCE_ALLOCATION)
        client.open_consumer("queue:other", credit=1).send("queue:other")
        assert client.until(Command.DELIVER)[4][2] == 9


def test_no_destination_is_created_without_auto_create() -> None:
    with EmbeddedBroker(settings={"auto_create": False}) as broker, WireClient(broker.port) as client:
        client.open_session()
        assert client.request(Command.DECLARE, "queue:q")[2] == ErrorCode.INVALID_DESTINATION


def test_limits_are_announced_and_enforced() -> None:
    settings = {"max_body_bytes": "100 KiB", "heartbeat_seconds": 7}
    with EmbeddedBroker(settings=settings) as broker, WireClient(broker.port) as client:
        assert client.welcome[5] == 7_000
        assert client.welcome[6]["body_bytes"] == 102_400
        client.open_session().send("queue:q", b"x" * 102_401)
        assert client.until(Command.SEND_FAILED)[3] == ErrorCode.MESSAGE_TOO_LARGE
