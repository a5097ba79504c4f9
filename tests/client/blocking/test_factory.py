"""ConnectionFactory: section 4 of the API map."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from typing import cast

import pytest

from sievemq import (
    ConnectionFactory,
    InvalidURLException,
    JMSContext,
    JMSException,
    JMSRuntimeException,
    JMSSecurityException,
    JMSSecurityRuntimeException,
)
from sievemq._engine import Handshake, Race
from sievemq.blocking.repair import Attempt
from sievemq_broker import EmbeddedBroker

from .helpers import Background


@pytest.fixture(scope="module")
def guarded() -> Iterator[str]:
    """A broker that wants credentials."""
    with EmbeddedBroker(users={"ann": "secret"}) as broker:
        yield broker.url


def test_fac_01_clo_24_a_connection_starts_stopped(factory: ConnectionFactory) -> None:
    with factory.create_connection() as connection:
        assert "stopped" in repr(connection)


def test_fac_02_exc_06_credentials_are_checked_when_the_connection_is_made(guarded: str) -> None:
    factory = ConnectionFactory(guarded)
    with pytest.raises(JMSSecurityException):
        factory.create_connection("ann", "wrong")
    with pytest.raises(JMSSecurityException):
        factory.create_connection()
    factory.create_connection("ann", "secret").close()


def test_fac_05_fac_06_a_context_with_credentials(guarded: str) -> None:
    factory = ConnectionFactory(guarded)
    with pytest.raises(JMSSecurityRuntimeException):
        factory.create_context("ann", "wrong")
    with pytest.raises(JMSSecurityRuntimeException):
        factory.create_context("ann", "wrong", JMSContext.CLIENT_ACKNOWLEDGE)
    with factory.create_context("ann", "secret") as context:
        assert context.get_session_mode() == JMSContext.AUTO_ACKNOWLEDGE
    with factory.create_context("ann", "secret", JMSContext.SESSION_TRANSACTED) as context:
        assert context.get_transacted()


def test_credentials_of_the_url_the_factory_and_the_call(guarded: str) -> None:
    in_url = guarded.replace("://", "://ann:secret@")
    ConnectionFactory(in_url).create_connection().close()
    ConnectionFactory(guarded, user_name="ann", password="secret").create_connection().close()
    with pytest.raises(JMSSecurityException):
        ConnectionFactory(in_url).create_connection("ann", "wrong")


def test_fac_03_fac_04_modes_of_a_context(factory: ConnectionFactory) -> None:
    with factory.create_context() as context:
        assert context.get_session_mode() == JMSContext.AUTO_ACKNOWLEDGE
    for mode in range(4):
        with factory.create_context(session_mode=mode) as context:
            assert context.get_session_mode() == mode
        with factory.create_context(mode) as context:  # D-28
            assert context.get_session_mode() == mode
    with pytest.raises(JMSRuntimeException):
        factory.create_context(session_mode=-1)


def test_hosts_are_tried_in_order(url: str) -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))  # bound and not listening: refuses
        port = nobody.getsockname()[1]
        ConnectionFactory(url.replace("://", f"://127.0.0.1:{port},")).create_connection().close()
        with pytest.raises(JMSException, match=f"127.0.0.1:{port}") as caught:
            ConnectionFactory(f"sievemq://127.0.0.1:{port}?reconnect=0").create_connection()
        assert isinstance(caught.value.get_linked_exception(), OSError)
        with pytest.raises(JMSRuntimeException):
            ConnectionFactory(f"sievemq://127.0.0.1:{port}?reconnect=0").create_context()


def test_a_host_that_says_nothing() -> None:
    with socket.socket() as mute:
        mute.bind(("127.0.0.1", 0))
        mute.listen()
        factory = ConnectionFactory(f"sievemq://127.0.0.1:{mute.getsockname()[1]}?connect_timeout=1000&reconnect=0")
        with pytest.raises(JMSException, match="says nothing"):
            factory.create_connection()


def test_the_reason_is_known_before_a_host_is_left() -> None:
    """Its thread may still say goodbye when the time is over."""
    leaving, asked = threading.Event(), threading.Event()
    ours, mute = socket.socketpair()

    class Silent:
        over, welcome, error = False, None, None

        def data_to_send(self) -> bytes:
            race.until = 0
            return b""

        def leave(self) -> bytes:
            leaving.set()
            assert asked.wait(60)
            return b""

    now = int(time.monotonic() * 1000.0)
    race = Race([(0, ("a", 1))], now, now + 60_000)
    attempt = Attempt(race, lambda address, seconds: ours, lambda address: cast("Handshake", Silent()), lambda: None)
    with mute, ours:
        assert attempt.step() is not None
        assert leaving.wait(60)
        assert attempt.step() is None
        assert attempt.take() is None
        asked.set()
    assert str(race.error()) == "no broker could be reached: a:1: it accepts connections but says nothing"
    assert race.error().get_error_code() == "TIMEOUT"


def test_a_host_that_speaks_something_else() -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        factory = ConnectionFactory(f"sievemq://127.0.0.1:{other.getsockname()[1]}")
        call = Background(factory.create_connection)
        peer, _ = other.accept()
        with peer:
            peer.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            with pytest.raises(JMSException):
                call.result()


def test_wrong_urls_are_refused_at_once() -> None:
    with pytest.raises(InvalidURLException):
        ConnectionFactory("amqp://localhost")
    with pytest.raises(InvalidURLException):
        ConnectionFactory("sievemq://localhost", prefetch=-1)
    assert "secret" not in repr(ConnectionFactory("sievemq://ann:secret@localhost"))
