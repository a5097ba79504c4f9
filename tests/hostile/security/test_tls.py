"""TLS: broken, missing, in the wrong place; and access without a client certificate."""

from __future__ import annotations

import socket
import ssl
import struct
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from sievemq import ConnectionFactory
from sievemq.cli.healthcheck import probe
from sievemq_broker import EmbeddedBroker
from sievemq_broker.server.http import protocol
from sievemq_core.wire.commands import PROTOCOL_VERSION, Command
from sievemq_core.wire.connection import WireConnection

from .support import DEADLINE, PASSWORD, USERS, ask, basic, until_closed


def settings(folder: Path, **more: object) -> dict[str, object]:
    return {"tls_cert": str(folder / "server.pem"), "tls_key": str(folder / "server.key"), "users": USERS, **more}


def context(folder: Path, name: str | None = None) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=folder / "ca.pem")
    if name is not None:
        context.load_cert_chain(folder / f"{name}.pem", folder / f"{name}.key")
    return context


@pytest.fixture(scope="module")
def broker(certificates: Path) -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(http=True, settings=settings(certificates)) as broker:
        yield broker


@pytest.fixture(scope="module")
def hasty(certificates: Path) -> Iterator[EmbeddedBroker]:
    """Gives a handshake a second and a half."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(protocol, "HEAD_SECONDS", 1.5)
        with EmbeddedBroker(http=True, settings=settings(certificates, handshake_seconds=1.5)) as broker:
            monkeypatch.undo()
            yield broker


@pytest.fixture(scope="module")
def mutual(certificates: Path) -> Iterator[EmbeddedBroker]:
    """Clients have to show a certificate."""
    more = {"tls_client_ca": str(certificates / "ca.pem")}
    with EmbeddedBroker(http=True, settings=settings(certificates, **more)) as broker:
        yield broker


def ports(broker: EmbeddedBroker) -> list[int]:
    return [broker.port, urlsplit(broker.http_url).port or 0]


HELLO = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"
MALFORMED = {
    "HTTP": b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "the wire in clear": struct.pack(">I", 40) + b"\x9a\x01\x01" + b"\xc0" * 37,
    "zeros": b"\0" * 4_096,
    "half a ClientHello": HELLO,
    "a record that is too long": b"\x16\x03\x01\xff\xff" + b"A" * 70_000,
    "SSL 2": b"\x80\x2e\x01\x00\x02\x00\x15\x00\x00\x00\x10\x01\x00\x80",
    "SSL 3": b"\x16\x03\x00\x00\x2f\x01\x00\x00\x2b\x03\x00" + b"\0" * 40,
    "a heartbeat out of bounds": b"\x18\x03\x02\x00\x03\x01\x40\x00",
    "an alert first": b"\x15\x03\x01\x00\x02\x02\x28",
}


@pytest.mark.parametrize("said", MALFORMED.values(), ids=MALFORMED.keys())
def test_bytes_that_are_no_tls_are_refused_and_harm_no_other_client(
    hasty: EmbeddedBroker, certificates: Path, said: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    for port in ports(hasty):
        with socket.create_connection(("127.0.0.1", port), DEADLINE) as sock:
            sock.sendall(said)
            heard = until_closed(sock)  # an alert at most
            assert len(heard) < 100
            assert b"HTTP" not in heard
    assert ask(hasty, "/livez", tls=context(certificates)).status == 200
    assert hasty.call(lambda _: len(hasty.server.shard.services.connections)) == 0
    assert not [record for record in caplog.records if record.name.startswith("sievemq_broker")]


def test_tls_to_clear_ports() -> None:
    with EmbeddedBroker(http=True) as clear:
        for port in ports(clear):
            with (
                socket.create_connection(("127.0.0.1", port), DEADLINE) as sock,
                pytest.raises((ssl.SSLError, OSError)),
            ):
                ssl.create_default_context().wrap_socket(sock, server_hostname="localhost")
        assert ask(clear, "/livez").status == 200


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1])
@pytest.mark.filterwarnings("ignore:ssl.TLSVersion:DeprecationWarning")
def test_old_versions_are_not_spoken(broker: EmbeddedBroker, version: ssl.TLSVersion) -> None:
    for port in ports(broker):
        old = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        old.check_hostname, old.verify_mode = False, ssl.CERT_NONE
        old.minimum_version, old.maximum_version = version, version
        old.set_ciphers("ALL:@SECLEVEL=0")
        with socket.create_connection(("127.0.0.1", port), DEADLINE) as sock, pytest.raises((ssl.SSLError, OSError)):
            old.wrap_socket(sock, server_hostname="localhost")


def test_management_port_speaks_tls(broker: EmbeddedBroker, certificates: Path) -> None:
    assert broker.http_url.startswith("https://")
    assert ask(broker, "/api/v1/broker", tls=context(certificates), **basic("admin")).status == 200
    with pytest.raises(ssl.SSLCertVerificationError):
        ask(broker, "/livez", tls=ssl.create_default_context())


def test_the_cookie_is_sent_over_tls_only(broker: EmbeddedBroker, certificates: Path) -> None:
    form = {"Content_Type": "application/x-www-form-urlencoded"}
    answer = ask(broker, "/session", "POST", f"user=admin&password={PASSWORD}", tls=context(certificates), **form)
    cookie = answer.headers["set-cookie"]
    assert cookie.startswith(f"__Host-sievemq-{urlsplit(broker.http_url).port}=")
    assert {"Secure", "HttpOnly", "SameSite=strict", "Path=/"} == {part.strip() for part in cookie.split(";")[1:]}
    assert ask(broker, "/api/v1/broker", tls=context(certificates), Cookie=answer.cookie).status == 200
    renamed = answer.cookie.removeprefix("__Host-")  # the name that a page in clear could set
    assert ask(broker, "/api/v1/broker", tls=context(certificates), Cookie=renamed).status == 401


# -- certificates of clients ------------------------------------------------------------------------------------------


def test_wire_without_a_certificate_or_with_a_strangers(mutual: EmbeddedBroker, certificates: Path) -> None:
    hello = WireConnection("client")
    hello.send(Command.HELLO, PROTOCOL_VERSION, "", "admin", PASSWORD, None, 0, "attack", None, {})
    data = hello.data_to_send()
    for name in (None, "stranger"):
        with socket.create_connection(("127.0.0.1", mutual.port), DEADLINE) as sock:
            try:
                with context(certificates, name).wrap_socket(sock, server_hostname="localhost") as tls:
                    tls.sendall(data)
                    assert until_closed(tls) == b""
            except (ssl.SSLError, ConnectionError):
                pass  # TLS 1.2 says so in the handshake
        assert mutual.call(lambda _: len(mutual.server.shard.services.connections)) == 0


def test_wire_with_a_certificate_still_requires_the_password(mutual: EmbeddedBroker, certificates: Path) -> None:
    files = f"tls_ca={certificates}/ca.pem&tls_cert={certificates}/client.pem&tls_key={certificates}/client.key"
    url = f"{mutual.url.replace('127.0.0.1', 'localhost')}?{files}"
    with pytest.raises(Exception, match="user name or password is wrong"):
        ConnectionFactory(url).create_context("admin", "wrong")
    ConnectionFactory(url).create_context("admin", PASSWORD).close()


def test_http_without_a_certificate_is_answered_about_health_alone(mutual: EmbeddedBroker, certificates: Path) -> None:
    bare, known = context(certificates), context(certificates, "client")
    assert ask(mutual, "/readyz", tls=bare).status == 200
    for path in ("/", "/metrics", "/sign-in", "/session", "/api/v1/broker"):
        answer = ask(mutual, path, tls=bare, **basic("admin"))
        assert (answer.status, answer.json["error"]) == (403, "CERTIFICATE")
    assert ask(mutual, "/api/v1/broker", tls=known, **basic("admin")).status == 200
    assert ask(mutual, "/api/v1/broker", tls=known).status == 401


def test_http_with_the_certificate_of_a_stranger(mutual: EmbeddedBroker, certificates: Path) -> None:
    with pytest.raises((ssl.SSLError, ConnectionError)):
        ask(mutual, "/livez", tls=context(certificates, "stranger"))


def test_header_is_no_certificate(mutual: EmbeddedBroker, certificates: Path) -> None:
    answer = ask(mutual, "/metrics", tls=context(certificates), X_Client_Cert="x", Client_Cert=":x:", **basic("admin"))
    assert answer.status == 403


def test_the_probe_requests_over_tls(
    mutual: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch, certificates: Path
) -> None:
    monkeypatch.setenv("SIEVEMQ_HTTP_PORT", str(urlsplit(mutual.http_url).port))
    monkeypatch.setenv("SIEVEMQ_TLS_CERT", str(certificates / "server.pem"))
    for name in ("SIEVEMQ_HTTP", "SIEVEMQ_HTTP_HOST", "SIEVEMQ_HOST"):
        monkeypatch.delenv(name, raising=False)
    assert probe(None, DEADLINE) == ("ready", True)
