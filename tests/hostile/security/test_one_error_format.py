"""Whatever is wrong with a request, on whatever path: one form of answer."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from sievemq_broker import EmbeddedBroker
from sievemq_broker.server.http.access import HEALTH, MAX_REQUEST_BYTES
from sievemq_broker.server.http.api.assemble import ENDPOINTS

from .support import Answer, ask, basic, raw
from .test_endpoints import METHODS, all_routes

ROUTES = sorted({(method, path) for method, path in all_routes()})
PATHS = sorted({path for _, path in ROUTES})
ADMIN = basic("admin")
JSON = {"Content_Type": "application/json"}

#: Everything in `ENDPOINTS` as requests, with something in place of parameters.
OPERATIONS = [(each, "/api/v1" + re.sub(r"\{[^}]*\}", "x", each.path)) for each in ENDPOINTS]


def assert_error(answer: Answer, status: int, name: str) -> dict[str, Any]:
    """The answer is an error of the one form; its JSON."""
    assert answer.status == status, answer.text
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["cache-control"] == "no-store"
    said = answer.json
    assert set(said) == {"error", "text", "details"}
    assert said["error"] == name
    assert isinstance(said["details"], dict)
    assert said["text"]
    return dict(said)


@pytest.mark.parametrize("path", PATHS)
def test_wrong_method(broker: EmbeddedBroker, path: str) -> None:
    there = {method for method, of in ROUTES if of == path}
    for method in set(METHODS) - there - {"HEAD"}:
        answer = ask(broker, path, method, **ADMIN)
        assert_error(answer, 405, "METHOD_NOT_ALLOWED")
        assert set(answer.headers["allow"].split(", ")) == there


@pytest.mark.parametrize("path", PATHS)
def test_unknown_route(broker: EmbeddedBroker, path: str) -> None:
    for wrong in (f"{path.rstrip('/')}/", f"{path}%0A", f"/{path}", f"{path.rstrip('/')}/x/y/z/0"):
        if wrong not in PATHS and not (wrong.endswith("%0A") and path.endswith("/x")):  # a name may have line breaks
            assert_error(ask(broker, wrong, **ADMIN), 404, "NOT_FOUND")


@pytest.mark.parametrize(("method", "path"), ROUTES)
def test_refused_at_the_gate(broker: EmbeddedBroker, method: str, path: str) -> None:
    assert_error(ask(broker, path, method, Host="evil.example", **ADMIN), 421, "MISDIRECTED")
    both = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n"
    answer = raw(broker, both.encode())
    assert answer.split(b" ", 2)[1] == b"400"
    assert set(json.loads(answer.partition(b"\r\n\r\n")[2])) == {"error", "text", "details"}
    if path not in HEALTH:
        if method != "GET":
            assert_error(ask(broker, path, method, Origin="http://evil.example", **ADMIN), 403, "CROSS_SITE")
        large = str(MAX_REQUEST_BYTES + 1)
        assert_error(ask(broker, path, method, Content_Length=large, **ADMIN), 413, "REQUEST_TOO_LARGE")
        if path not in ("/sign-in", "/sign-in.css", "/session"):
            assert_error(ask(broker, path, method), 401, "AUTHENTICATION")
            assert_error(ask(broker, path, method, Authorization="Bearer x"), 401, "AUTHENTICATION")


@pytest.mark.parametrize("path", ["/metrics", "/metrics/detailed"])
def test_no_right_on_a_page(broker: EmbeddedBroker, path: str) -> None:
    said = assert_error(ask(broker, path, **basic("anna")), 403, "SECURITY")
    assert said["details"]["user"] == "anna"


@pytest.mark.parametrize(("endpoint", "path"), OPERATIONS, ids=lambda value: getattr(value, "name", None))
def test_wrong_requests_of_an_operation(broker: EmbeddedBroker, endpoint: Any, path: str) -> None:
    method = endpoint.method
    if "{ns}" in endpoint.path:
        answer = ask(broker, path, method, b"{}" if endpoint.body else None, **basic("nobody"), **JSON)
        assert (answer.status, answer.json["error"]) in ((403, "SECURITY"), (404, "NOT_FOUND"))
        assert set(answer.json) == {"error", "text", "details"}
        assert_error(ask(broker, re.sub("/x(?=/|$)", "/%ff", path), method, **ADMIN), 400, "BAD_REQUEST")
    assert_error(ask(broker, f"{path}?nonsense=1", method, **ADMIN), 400, "BAD_REQUEST")
    if endpoint.body is None:
        assert_error(ask(broker, path, method, b"x", **ADMIN), 413, "REQUEST_TOO_LARGE")
        return
    assert_error(ask(broker, path, method, b"{}", **ADMIN, Content_Type="text/plain"), 415, "UNSUPPORTED_MEDIA_TYPE")
    for body in (b"{", b"[]", b'{"nonsense": 1}', b'"\xff"', b"[" * 5_000):
        assert_error(ask(broker, path, method, body, **ADMIN, **JSON), 400, "BAD_REQUEST")
    if not endpoint.body_optional:
        assert_error(ask(broker, path, method, b"", **ADMIN, **JSON), 400, "BAD_REQUEST")
    large = b" " * (endpoint.body_limit + 1)
    assert_error(ask(broker, path, method, large, **ADMIN, **JSON), 413, "REQUEST_TOO_LARGE")
    many = b"[" + b"1," * (endpoint.value_limit + 1) + b"1]"
    assert_error(ask(broker, path, method, many, **ADMIN, **JSON), 413, "REQUEST_TOO_LARGE")


def test_wrong_parameter_of_a_page(broker: EmbeddedBroker) -> None:
    assert_error(ask(broker, "/metrics/detailed?nonsense=1", **ADMIN), 400, "BAD_REQUEST")


@pytest.mark.parametrize("said", [b"\x16\x03\x01\r\n\r\n", b"GET\r\n\r\n", b"GET / HTTP/1.1\r\nHost : x\r\n\r\n"])
def test_bytes_that_are_no_http(broker: EmbeddedBroker, said: bytes) -> None:
    head, _, body = raw(broker, said).partition(b"\r\n\r\n")
    assert head.split(b" ", 2)[1] == b"400"
    assert b"application/json" in head
    assert set(json.loads(body)) == {"error", "text", "details"}


def test_a_fault_of_the_broker(broker: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("a secret")

    monkeypatch.setattr("sievemq_broker.server.http.metrics.DetailedCollector", fail)
    monkeypatch.setattr("sievemq_broker.server.http.api.operation.check", fail)
    monkeypatch.setattr("sievemq_broker.server.http.sign_in._form", fail)
    for path in ("/metrics/detailed", "/api/v1/broker", "/sign-in"):
        said = assert_error(ask(broker, path, **ADMIN), 500, "INTERNAL")
        assert "secret" not in said["text"]
    monkeypatch.setattr(type(broker.server.authenticator), "check", fail)
    assert_error(ask(broker, "/", **ADMIN), 500, "INTERNAL")
