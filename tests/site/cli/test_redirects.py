"""Commands follow a broker that names the owner of a shard, and send a password nowhere else."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest

from sievemq._management import REDIRECTS, Management, ManagementError

from .conftest import Sievemq

Answer = tuple[int, dict[str, str], object]


class Port:
    """A management port.

    Attributes:
        answer: to each request: status, headers and JSON.
        seen: method, path, body and Authorization of each request.
    """

    def __init__(self) -> None:
        self.answer: Answer = 200, {}, {}
        self.seen: list[tuple[str, str, bytes, str | None]] = []
        port = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                port.seen.append((self.command, self.path, body, self.headers.get("Authorization")))
                status, headers, content = port.answer
                data = json.dumps(content).encode()
                self.send_response(status)
                for name, value in {**headers, "Content-Length": str(len(data))}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(data)

            do_POST = do_PUT = do_DELETE = do_GET  # noqa: N815

            def log_message(self, *_: Any) -> None:
                """Print nothing."""

        self.server = HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"

    def sends_to(self, url: str | None) -> None:
        """Name another broker from now on."""
        self.answer = 421, {}, {"error": "REDIRECT", "text": "it is elsewhere", "details": {"shard": "b", "url": url}}


@contextmanager
def serving(port: Port) -> Iterator[None]:
    thread = threading.Thread(target=port.server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield
    finally:
        port.server.shutdown()
        thread.join()
        port.server.server_close()


@pytest.fixture
def ports() -> Iterator[tuple[Port, Port]]:
    first, second = Port(), Port()
    with serving(first), serving(second):
        yield first, second


def test_a_request_is_repeated_at_the_owner(ports: tuple[Port, Port]) -> None:
    asked, owner = ports
    asked.sends_to(f"{owner.url}/")
    owner.answer = 200, {}, {"name": "orders"}
    api = Management(asked.url, "ann", "secret", None)
    for answer in (
        api.get("/namespaces/a%2Fb/taps", limit=2),
        api.put("/rules/x", {"rules": {}}, match="tag"),
        api.post("/namespaces", {"name": "orders"}),
        api.delete("/namespaces/n", dry_run=True),
    ):
        assert answer == {"name": "orders"}
    assert owner.seen == asked.seen
    methods, paths, bodies, passwords = zip(*owner.seen, strict=True)
    assert methods == ("GET", "PUT", "POST", "DELETE")
    assert paths[0] == "/api/v1/namespaces/a%2Fb/taps?limit=2"
    assert bodies[2] == b'{"name": "orders"}'
    assert set(passwords) == {f"Basic {base64.b64encode(b'ann:secret').decode()}"}


def test_brokers_that_name_each_other_are_left(ports: tuple[Port, Port]) -> None:
    first, second = ports
    first.sends_to(second.url)
    second.sends_to(first.url)
    with pytest.raises(ManagementError, match="it is elsewhere"):
        Management(first.url, None, None, None).get("/broker")
    assert len(first.seen) + len(second.seen) == 1 + REDIRECTS


def test_a_redirect_of_another_server_is_not_followed(ports: tuple[Port, Port]) -> None:
    asked, other = ports
    asked.answer = 302, {"Location": f"{other.url}/api/v1/broker"}, {}
    with pytest.raises(ManagementError, match="answered 302"):
        Management(asked.url, "ann", "secret", None).get("/broker")
    assert other.seen == []


def test_an_owner_that_does_not_answer_is_named(ports: tuple[Port, Port]) -> None:
    asked, _ = ports
    asked.sends_to("http://127.0.0.1:1")
    with pytest.raises(ManagementError, match=r"no management port answers at http://127\.0\.0\.1:1: "):
        Management(asked.url, None, None, None).get("/broker")


class Listed(Management):
    """An API whose brokers answer what a test says."""

    def __init__(self, url: str, *answers: str | None) -> None:
        super().__init__(url, "ann", "secret", None)
        self.asked: list[str] = []
        self._answers = list(answers)

    def _answer(self, url: str, *_: Any) -> Any:
        self.asked.append(url)
        owner = self._answers.pop(0)
        if owner is not None:
            raise ManagementError("it is elsewhere", 421, {"url": owner})


def test_from_clear_text_to_tls_is_followed() -> None:
    api = Listed("http://a:1", "https://b:1", "https://c:1/below/", None)
    api.get("/broker")
    assert api.asked == ["http://a:1", "https://b:1", "https://c:1/below"]


def test_from_tls_to_clear_text_is_not_followed() -> None:
    for before in ([], ["https://a:1"]):
        api = Listed("http://a:1" if before else "https://a:1", *before, "http://b:1")
        with pytest.raises(ManagementError, match="https://a:1 leads to http://b:1, which has no TLS"):
            api.get("/broker")
        assert "http://b:1" not in api.asked


@pytest.mark.parametrize(
    "url",
    ["", "b:1", "ftp://b:1", "file:///etc/passwd", "http://", "http://u:p@b:1", "http://b:1?x=1", "http://[b", "//b:1"],
)
def test_what_is_no_url_of_an_owner_is_not_followed(url: str) -> None:
    api = Listed("http://a:1", url)
    with pytest.raises(ManagementError, match="is no URL of a management port"):
        api.get("/broker")
    assert api.asked == ["http://a:1"]


def test_a_command_says_where_it_was_sent_in_vain(sievemq: Sievemq, ports: tuple[Port, Port]) -> None:
    asked, owner = ports
    asked.sends_to(owner.url)
    owner.answer = 404, {}, {"error": "NOT_FOUND", "text": "there is no namespace 'n'", "details": {}}
    outcome = sievemq("namespace", "delete", "n", "--http", asked.url)
    assert (outcome.code, outcome.err) == (3, "sievemq: there is no namespace 'n'\n")
    asked.sends_to(None)
    outcome = sievemq("namespace", "delete", "n", "--http", asked.url)
    assert (outcome.code, outcome.err) == (1, "sievemq: it is elsewhere\n")
