"""`sievemq healthcheck`: the probe in a container."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from sievemq.cli.healthcheck import probe
from sievemq.cli.local import settings_of, urls_of
from sievemq_broker import EmbeddedBroker
from sievemq_broker.server.server import Phase

from .conftest import Sievemq

VARIABLES = (
    "SIEVEMQ_HTTP",
    "SIEVEMQ_HTTP_URL",
    "SIEVEMQ_HTTP_HOST",
    "SIEVEMQ_HTTP_PORT",
    "SIEVEMQ_HOST",
    "SIEVEMQ_PORT",
)


@pytest.fixture(autouse=True)
def clean(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*VARIABLES, "HTTP_PROXY", "http_proxy"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def server() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(http=True) as broker:
        yield broker


def test_ready(sievemq: Sievemq, server: EmbeddedBroker) -> None:
    outcome = sievemq("healthcheck", "--url", f"{server.http_url}/readyz")
    assert (outcome.code, outcome.out) == (0, "ready\n")


def test_the_port_of_the_environment_is_probed_on_the_loopback(
    sievemq: Sievemq, server: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SIEVEMQ_HTTP_PORT", str(urlsplit(server.http_url).port))
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")  # nobody to go through
    for host in ("", "0.0.0.0", "::", "127.0.0.1"):
        monkeypatch.setenv("SIEVEMQ_HOST", host)
        assert sievemq("healthcheck").code == 0


def test_a_broker_that_is_not_ready_reports_the_reason(sievemq: Sievemq, server: EmbeddedBroker) -> None:
    server.call(lambda _: setattr(server.server, "phase", Phase.DRAINING))
    outcome = sievemq("healthcheck", "--url", f"{server.http_url}/readyz")
    server.call(lambda _: setattr(server.server, "phase", Phase.READY))
    assert (outcome.code, outcome.err) == (1, "not ready: draining\n")


def test_no_broker_there(sievemq: Sievemq) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        outcome = sievemq("healthcheck", "--url", f"http://127.0.0.1:{unused.getsockname()[1]}/readyz")
    assert outcome.code == 1
    assert "refused" in outcome.err


def test_an_unanswered_call_ends_at_its_timeout(sievemq: Sievemq) -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        outcome = sievemq("healthcheck", "--timeout", "0.1", "--url", f"http://127.0.0.1:{silent.getsockname()[1]}/")
    assert outcome.code == 1
    assert "timed out" in outcome.err


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (b"HTTP/1.1 500 X\r\nContent-Length: 4\r\n\r\noops", "status 500"),
        (b"HTTP/1.1 503 X\r\nContent-Length: 4\r\n\r\n[42]", "status 503"),
        (b"nonsense\r\n\r\n", "nonsense"),
    ],
)
def test_strange_answers_are_not_ready(sievemq: Sievemq, answer: bytes, text: str) -> None:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()

        def serve() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(4096)
                connection.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        outcome = sievemq("healthcheck", "--url", f"http://127.0.0.1:{server.getsockname()[1]}/readyz")
        thread.join()
    assert outcome.code == 1
    assert text in outcome.err


@pytest.mark.parametrize("url", ["ftp://x/", "nonsense", "http://", "http://x:99999/"])
def test_wrong_url_is_a_usage_error(sievemq: Sievemq, url: str) -> None:
    assert sievemq("healthcheck", "--url", url).code == 2


def test_without_http_the_wire_port_is_probed(
    sievemq: Sievemq, server: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SIEVEMQ_HTTP", "false")
    monkeypatch.setenv("SIEVEMQ_PORT", str(server.port))
    assert sievemq("healthcheck").code == 0
    server.stop()
    assert sievemq("healthcheck").code == 1


def command_line(tmp_path: Path, *words: str) -> str:
    """A file as Linux shows a process's command line."""
    path = tmp_path / "cmdline"
    path.write_bytes(b"\0".join(map(os.fsencode, words)) + b"\0")
    return str(path)


def test_options_of_the_brokers_process_come_before_the_environment(
    server: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A broker on another port, as `docker run IMAGE broker --http-port …` starts it, is ready all the same."""
    port = str(urlsplit(server.http_url).port)
    for words in (
        ("python3", "/opt/sievemq/bin/sievemq", "broker", "--port", "1", "--http-port", port),
        ("/sbin/docker-init", "--", "sievemq", "broker", f"--http-port={port}", "--host=127.0.0.1"),
    ):
        assert probe(None, 60.0, command_line(tmp_path, *words)) == ("ready", True)
    monkeypatch.setenv("SIEVEMQ_HTTP_PORT", "1")
    assert probe(None, 60.0, command_line(tmp_path, "sievemq", "broker", "--http-port", port))[1]
    assert not probe(None, 60.0, command_line(tmp_path, "sievemq", "broker"))[1]
    assert not probe(None, 60.0, command_line(tmp_path, "pause", "--http-port", port))[1]
    words = ("sievemq", "broker", "--no-http", "--port", str(server.port))
    assert probe(None, 60.0, command_line(tmp_path, *words)) == ("ready", True)


def test_a_configuration_file_comes_last(tmp_path: Path) -> None:
    config = tmp_path / "sievemq.toml"
    config.write_text('http_port = 1234\nport = 5\nhttp = false\nhost = "::1"\n')
    main = command_line(tmp_path, "sievemq", "broker", "--config", str(config), "--port", "6")
    assert settings_of({"SIEVEMQ_HTTP_PORT": "4321", "SIEVEMQ_PORT": "7"}, main) == {
        "http_port": "4321",
        "port": "6",
        "http": "False",
        "host": "::1",
        "config": str(config),
    }
    assert settings_of({"SIEVEMQ_CONFIG": str(config)}, str(tmp_path / "none"))["http_port"] == "1234"
    config.write_text("not TOML")
    assert settings_of({"SIEVEMQ_CONFIG": str(config)}, str(tmp_path / "none")) == {}


def test_another_machines_broker_is_named_as_for_other_commands(
    server: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("SIEVEMQ_HTTP_URL", f"{server.http_url}/")
    for words in (("bash",), ("sievemq", "healthcheck")):
        assert probe(None, 60.0, command_line(tmp_path, *words)) == ("ready", True)
    own = command_line(tmp_path, "sievemq", "broker", "--http-port", "1")
    assert not probe(None, 60.0, own)[1], "in a broker's container that broker is meant"


@pytest.mark.parametrize(
    ("settings", "urls"),
    [
        ({}, {}),
        ({"http": "false"}, {}),
        ({"port": "1234"}, {"SIEVEMQ_URL": "sievemq://127.0.0.1:1234"}),
        ({"http_port": "0", "port": "tcp://10.0.0.1:7672"}, {}),
        (
            {"http_port": "80", "host": "::", "http_host": "::1"},
            {"SIEVEMQ_URL": "sievemq://127.0.0.1:7672", "SIEVEMQ_HTTP_URL": "http://[::1]:80"},
        ),
        (
            {"tls_cert": "/a b.pem", "host": "mq"},
            {
                "SIEVEMQ_URL": "sievemqs://mq:7672?tls_ca=/a%20b.pem",
                "SIEVEMQ_HTTP_URL": "https://mq:7680?tls_ca=/a%20b.pem",
            },
        ),
    ],
)
def test_the_urls_of_the_broker_on_this_machine(settings: dict[str, str], urls: dict[str, str]) -> None:
    assert urls_of(settings) == urls


def test_commands_find_the_broker_of_their_container(
    sievemq: Sievemq, server: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SIEVEMQ_PORT", str(server.port))
    monkeypatch.setenv("SIEVEMQ_HTTP_PORT", str(urlsplit(server.http_url).port))
    assert sievemq("send", "orders", "x").code == 0
    assert sievemq("queue", "ls").lines[1].startswith("orders\t1\t")
    monkeypatch.setenv("SIEVEMQ_HTTP_URL", "http://127.0.0.1:1")
    assert sievemq("queue", "ls").code == 1, "what is named goes first"
