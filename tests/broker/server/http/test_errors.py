"""What is refused says what was wrong and where; nothing is taken that is not understood."""

from __future__ import annotations

import socket
from typing import Any
from urllib.parse import urlsplit

import pytest

from .conftest import Api, at


def test_an_invalid_parameter_value_is_answered_with_the_valid_ones(api: Api) -> None:
    answer = api("GET", "destinations", sort="-foo")
    orders = answer.json["details"]["known"]
    assert (answer.status, answer.json["details"]["parameter"]) == (400, "sort")
    assert {"address", "-depth", "depth", "-dead_lettered"} <= set(orders)
    assert answer.json["text"] == f"the parameter sort: '-foo' is none of {', '.join(orders)}"
    assert "'queue'" not in answer.json["text"]
    kinds = api("GET", "destinations", kind="quue").json["details"]["known"]
    assert kinds == ["queue", "temporary-queue", "temporary-topic", "topic"]
    assert api("PUT", f"{at('queue:q')}/taps/t", {"mode": "copi"}).json["details"]["known"] == [
        "copy",
        "drain",
        "outcomes",
    ]


def test_a_destination_is_created_without_rules(api: Api) -> None:
    answer = api("PUT", at("queue:q"), {"max_messages": 50})
    assert (answer.status, answer.json["details"]) == (400, {"field": "", "known": []})
    assert answer.json["text"] == (
        "'max_messages' is no field here; there are none: "
        "its rules are those of the first pattern that fits it; PUT /rules/{pattern} changes them"
    )
    answer = api("POST", f"{at('queue:q')}/actions/purge", {"limmit": 50})
    assert answer.json["text"].startswith("'limmit' is no field here; selector, dialect, ids, limit")


def test_parameters_that_are_not_known_are_named(api: Api) -> None:
    answer = api("GET", "destinations", colour="red")
    assert (answer.status, answer.error) == (400, "BAD_REQUEST")
    known = ["cursor", "limit", "like", "kind", "only", "sort", "recent"]
    assert answer.json["details"] == {"parameter": "colour", "known": known}
    assert "'colour'" in answer.json["text"]
    assert "there are none" in api("GET", "/api/v1/broker", x=1).json["text"]


@pytest.mark.parametrize(
    ("query", "parameter"),
    [
        ("limit=0", "limit"),
        ("limit=1001", "limit"),
        ("limit=x", "limit"),
        ("limit=", "limit"),
        ("limit=1.5", "limit"),
        ("kind=stream", "kind"),
        ("sort=colour", "sort"),
        ("cursor=!", "cursor"),
        ("cursor=abcd", "cursor"),
        ("cursor=WzEsMl0", "cursor"),
        ("limit=1&limit=2", "limit"),
        ("limit=null", "limit"),
        ("kind=null", "kind"),
        ("sort=Null", "sort"),
    ],
)
def test_parameters_that_make_no_sense(api: Api, query: str, parameter: str) -> None:
    answer = api("GET", f"/api/v1/namespaces/default/destinations?{query}")
    assert (answer.status, answer.error) == (400, "BAD_REQUEST"), answer.content
    assert answer.json["details"]["parameter"] == parameter


@pytest.mark.parametrize("query", ["like=%ff", "&".join(f"a{n}=1" for n in range(40))])
def test_parameters_that_cannot_be_read(api: Api, query: str) -> None:
    assert api("GET", f"/api/v1/namespaces/default/destinations?{query}").error == "BAD_REQUEST"


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (b"", "needs a body"),
        (b"{", "not JSON"),
        (b"[]", "Expected `object`"),
        (b"\xff", "not JSON"),
        (b'{"body":"\xff"}', "UTF-8"),
        (b"[" * 5000, ""),
        (b'{"priority":10}', "priority"),
        (b'{"priority":"4"}', "priority"),
        (b'{"colour":1}', "'colour' is no field here; body,"),
        (b'{"body":' + b"[" * 5000 + b"]" * 5000 + b"}", ""),
        (b'{"properties":{"a":1e999}}', ""),
    ],
)
def test_bodies_that_make_no_sense(api: Api, body: bytes, text: str) -> None:
    api.ok("PUT", at("queue:q"))
    answer = api.raw("POST", f"{at('queue:q')}/messages", body)
    assert answer.status in (400, 422), answer.content
    assert answer.error in ("BAD_REQUEST", "MESSAGE_FORMAT")
    assert text in answer.json["text"]


def test_a_body_without_the_content_type_of_json(api: Api) -> None:
    """A form on another site can be sent as text or urlencoded, never as JSON."""
    api.ok("PUT", at("queue:q"))
    for content_type in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""):
        answer = api.raw("POST", f"{at('queue:q')}/messages", b"{}", content_type)
        assert (answer.status, answer.error) == (415, "UNSUPPORTED_MEDIA_TYPE")
    assert api.raw("POST", f"{at('queue:q')}/messages", b"{}", "application/json; charset=utf-8").status == 201


def test_a_body_that_is_too_large(api: Api) -> None:
    api.ok("PUT", at("queue:q"))
    for path, limit in (
        (f"{at('queue:q')}/actions/purge", 1024 * 1024),
        (f"{at('queue:q')}/messages", 4 * 1024 * 1024),
    ):
        answer = api.raw("POST", path, b" " * (limit + 1))
        assert (answer.status, answer.error, answer.json["details"]) == (413, "REQUEST_TOO_LARGE", {"limit": limit})
    answer = api.raw("GET", at("queue:q"), b"{}")
    assert (answer.status, answer.error) == (413, "REQUEST_TOO_LARGE")


def test_a_message_that_is_too_large(api: Api) -> None:
    from sievemq_broker import EmbeddedBroker

    with EmbeddedBroker(http=True, settings={"max_body_bytes": 10}) as broker:
        small = Api(broker)
        answer = small("POST", f"{at('queue:q')}/messages", {"body": "x" * 11})
        assert (answer.status, answer.error) == (413, "MESSAGE_TOO_LARGE")
        assert small("POST", f"{at('queue:q')}/messages", {"body": "x" * 10}).status == 201


def exchange(api: Api, *chunks: bytes) -> bytes:
    parts = urlsplit(api.broker.http_url)
    with socket.create_connection((parts.hostname, parts.port), timeout=180) as sock:
        for chunk in chunks:
            sock.sendall(chunk)
        received = b""
        while data := sock.recv(65536):
            received += data
        return received


def test_a_chunked_body_cannot_pass_the_limit(api: Api) -> None:
    head = b"POST /api/v1/selector/check HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    chunk = b"10000\r\n" + b" " * 0x10000 + b"\r\n"
    head += b"Transfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
    answer = exchange(api, head, *[chunk] * 17, b"0\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 413 ")
    assert b"REQUEST_TOO_LARGE" in answer


def test_a_body_that_never_arrives(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sievemq_broker.server.http.api.operation.BODY_SECONDS", 0.05)
    head = b"POST /api/v1/selector/check HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    answer = exchange(api, head + b"Content-Length: 100\r\n\r\n{")
    assert answer.startswith(b"HTTP/1.1 408 ")
    assert b"REQUEST_TIMEOUT" in answer


def test_head_is_a_get_without_its_body(api: Api) -> None:
    head, body = exchange(api, b"HEAD /api/v1/broker HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").split(
        b"\r\n\r\n", 1
    )
    assert head.startswith(b"HTTP/1.1 200 ")
    assert b"content-length: " in head.lower()
    assert body == b""


def test_a_fault_of_ours_is_a_500_without_a_traceback(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any) -> Any:
        raise ZeroDivisionError("secret")

    monkeypatch.setattr("sievemq_broker.server.http.api.brokers._blocked_at", broken)
    answer = api("GET", "/api/v1/broker")
    assert (answer.status, answer.error) == (500, "INTERNAL")
    assert b"secret" not in answer.content
    monkeypatch.undo()
    assert api("GET", "/api/v1/broker").status == 200


def test_paths(api: Api) -> None:
    for path in ("/api/v1", "/api/v1/", "/api/v1/broker/", "/api/v1//broker", "/api/v1/namespaces//destinations"):
        assert api("GET", path).status in (404, 307), path
    answer = api("GET", "/api/v1/namespaces/%ff/destinations")
    assert (answer.status, answer.error) == (400, "BAD_REQUEST")
    answer = api("PATCH", "/api/v1/namespaces")
    assert (answer.status, answer.error, answer.headers["allow"]) == (405, "METHOD_NOT_ALLOWED", "GET, POST")


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/%0A", 404),
        ("/metrics%0A", 404),
        ("/livez%0A", 404),
        ("/console/main.js%0A", 404),
        ("/console/%2e%2e/app.py", 404),
        ("/nothing", 404),
        ("//", 404),
        ("/%00", 404),
        ("/%FF", 404),
        ("/api/v1", 404),
        ("/api/v1/", 404),
        ("/api/v1%0A/broker", 404),
        ("/api/v1/%0Abroker", 404),
        ("/api/v1/broker%0A", 404),
        ("/api/v1/namespaces/%0A/destinations", 404),
        ("/api/v1/namespaces/default/destinations/queue:a%0Ab", 422),
        ("/api/v1/namespaces/default/destinations/%C2%A0", 422),
        ("/api/v1/namespaces/default/subscriptions/%0A/%0A", 405),
    ],
)
def test_odd_paths_are_refused_in_the_form_of_all_errors(api: Api, path: str, status: int) -> None:
    answer = api("GET", path)
    assert (answer.status, answer.headers["content-type"]) == (status, "application/json")
    assert answer.error in ("NOT_FOUND", "INVALID_DESTINATION", "METHOD_NOT_ALLOWED")


@pytest.mark.parametrize("path", ["/metrics", "/livez", "/", "/openapi.json", "/api/v1/broker"])
def test_another_method_is_refused_in_that_form(api: Api, path: str) -> None:
    answer = api("PATCH", path)
    assert (answer.status, answer.error) == (405, "METHOD_NOT_ALLOWED")
    assert "GET" in answer.headers["allow"]


LONG = "x" * 40_000


@pytest.mark.parametrize(
    ("method", "path", "body", "query"),
    [
        ("GET", f"/api/v1/{LONG}", None, {}),
        ("GET", f"/api/v1/namespaces/{LONG}/destinations", None, {}),
        ("GET", at(f"queue:{LONG}"), None, {}),
        ("GET", at(LONG), None, {}),
        ("GET", f"{at('queue:q')}/messages/{LONG}", None, {}),
        ("GET", f"{at('queue:q')}/consumers/{LONG}", None, {}),
        ("DELETE", f"subscriptions/{LONG}/{LONG[:20_000]}", None, {}),
        ("GET", "destinations", None, {LONG: "1"}),
        ("GET", "destinations", None, {"sort": LONG}),
        ("GET", "destinations", None, {"limit": LONG}),
        ("GET", "destinations", None, {"cursor": LONG}),
        (LONG, "destinations", None, {}),
        ("POST", f"{at('queue:q')}/actions/purge", {LONG: 1}, {}),
        ("POST", f"{at('queue:q')}/actions/purge", {"limit": LONG}, {}),
        ("POST", f"{at('queue:q')}/actions/move", {"to": LONG}, {}),
        ("PUT", f"{at('queue:q')}/taps/t", {"mode": LONG}, {}),
        ("PUT", f"{at('queue:q')}/taps/{LONG}", {"mode": "copy"}, {}),
    ],
    ids=lambda value: None if value is None else str(value)[:40],
)
def test_an_error_quotes_little_of_a_long_request(
    api: Api, method: str, path: str, body: dict[str, object] | None, query: dict[str, object]
) -> None:
    api.ok("PUT", at("queue:q"), {})
    answer = api(method, path, body, **query)
    assert 400 <= answer.status < 500
    assert len(answer.json["text"]) <= 2_000
    assert len(answer.content) <= 6_000


def test_a_long_selector_is_quoted_around_its_mistake(api: Api) -> None:
    api.ok("PUT", at("queue:q"), {})
    answer = api("GET", f"{at('queue:q')}/messages", selector=f"a = '{LONG[:3_000]}' AND b >> 3")
    assert (answer.status, answer.error) == (422, "INVALID_SELECTOR")
    assert len(answer.json["text"]) <= 2_000
    assert "b >> 3" in answer.json["text"]
    assert answer.json["details"]["position"] == 3_014
