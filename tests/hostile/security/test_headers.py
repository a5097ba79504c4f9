"""What answers say to browsers, and that nobody else decides what they say."""

from __future__ import annotations

from urllib.parse import quote

import pytest

from sievemq_broker import EmbeddedBroker

from .support import ask, basic, raw, sign_in, signed_in

SENT = ["/", "/sign-in", "/livez", "/metrics", "/api/v1/broker", "/nothing-here", "/session", "/openapi.json"]


@pytest.mark.parametrize("path", SENT)
@pytest.mark.parametrize("credentials", [{}, basic("admin")], ids=["nobody", "admin"])
def test_every_answer_has_the_security_headers(broker: EmbeddedBroker, path: str, credentials: dict[str, str]) -> None:
    headers = ask(broker, path, **credentials).headers
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["x-frame-options"] == "DENY"
    assert headers["referrer-policy"] == "same-origin"
    assert headers["cross-origin-resource-policy"] == "same-origin"
    assert headers["cache-control"] in ("no-store", "no-cache")  # the console's own files ask each time
    assert headers["server"] is None
    policy = dict(rule.strip().split(" ", 1) for rule in headers["content-security-policy"].split(";"))
    assert policy["default-src"] == policy["frame-ancestors"] == policy["base-uri"] == "'none'"
    assert policy["script-src"] == "'self'"
    assert "unsafe" not in str(policy)
    assert "*" not in str(policy)


INJECTED = ["x\r\nX-Injected: 1", "x\nX-Injected: 1", "x\rX-Injected: 1", "x\0", "x\x0b", "é\u2028", "x" * 3_000]


@pytest.mark.parametrize("text", INJECTED)
def test_text_of_a_request_makes_no_header(broker: EmbeddedBroker, text: str) -> None:
    cookie, _ = signed_in(broker)
    said = quote(text)
    for path in (f"/{said}", f"/?a={said}", f"/sign-in?next=/{said}", f"/api/v1/namespaces/{said}/destinations",
                 f"/api/v1/namespaces/default/destinations/{said}", f"/console/{said}"):  # fmt: skip
        for credentials in ({"Accept": "text/html"}, {"Cookie": cookie}):
            answer = ask(broker, path, **credentials)
            assert answer.status < 500, path
            assert answer.headers["x-injected"] is None
    answer = sign_in(broker, "admin", following=f"/{text}")
    assert answer.headers["x-injected"] is None
    assert answer.status == 303


def test_lines_in_a_request_line_or_header_are_no_request(broker: EmbeddedBroker) -> None:
    for head in (
        b"GET /\rX HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: localhost\r\nX: a\rb\0\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost : localhost\r\n\r\n",
        b"G@T / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    ):
        assert raw(broker, head).split(b" ", 2)[1:2] == [b"400"]


def test_faults_show_no_inside(broker: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("a secret of the inside")

    monkeypatch.setattr("sievemq_broker.server.http.app.readiness", fail)
    answer = ask(broker, "/readyz")
    assert (answer.status, answer.json["error"]) == (500, "INTERNAL")
    assert "inside" not in answer.text
    assert "Traceback" not in answer.text
