"""Requests to the management port's application, in this process: an answer of the documented form, never a 5xx."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from functools import cache
from typing import Any

from tests.hostile.fuzz.targets import pieces, together

from sievemq_broker.config import Settings
from sievemq_broker.server.http.api.management import Management
from sievemq_broker.server.http.app import make_app
from sievemq_broker.server.server import Server

METHODS = ("GET", "POST", "PUT", "DELETE", "PATCH", "HEAD", "OPTIONS", "get")
BASE = "/api/v1/namespaces/default/destinations"

REQUESTS: tuple[tuple[str, str, str, Any], ...] = (
    ("GET", "/livez", "", None),
    ("GET", "/metrics/detailed", "destination=queue:*", None),
    ("GET", "/openapi.json", "", None),
    ("GET", "/api/v1/broker", "", None),
    ("GET", "/api/v1/connections", "limit=5", None),
    ("GET", "/api/v1/namespaces", "", None),
    ("GET", BASE, "kind=queue&like=a*&sort=-depth&limit=1", None),
    ("PUT", f"{BASE}/queue:a", "", {}),
    ("POST", f"{BASE}/queue:a/messages", "", {"body": {"text": "x"}, "properties": {"n": 1}}),
    ("GET", f"{BASE}/queue:a/messages", "selector=n%20%3D%201&limit=2&dialect=jakarta", None),
    ("GET", f"{BASE}/queue:a/messages/1", "", None),
    ("POST", f"{BASE}/queue:a/actions/move", "", {"selector": "n = 1", "to": "queue:b", "limit": 5, "dry_run": True}),
    ("POST", f"{BASE}/queue:a/actions/purge", "", {}),
    ("POST", f"{BASE}/queue:a/actions/delete", "", {"ids": ["ID:1", 2]}),
    ("GET", f"{BASE}/queue:a/consumers", "", None),
    ("GET", f"{BASE}/queue:a/scheduled", "", None),
    ("GET", f"{BASE}/queue:a/series", "", None),
    ("GET", "/api/v1/namespaces/default/subscriptions", "", None),
    ("DELETE", "/api/v1/namespaces/default/subscriptions/me/s", "", None),
    ("GET", "/api/v1/namespaces/default/dead-letters", "", None),
    ("POST", "/api/v1/selector/check", "", {"selector": "a = 1 AND b LIKE 'x%'", "dialect": "ibm-mq"}),
    ("POST", "/api/v1/selector/explain", "", {"selector": "a = 1", "message": {"properties": {"a": 1}}}),
    ("DELETE", f"{BASE}/queue:a", "", None),
    ("GET", "/session", "", None),
    ("GET", "/", "", None),
)


def seeds() -> Iterator[bytes]:
    def packed(method: str, path: str, query: str, body: Any) -> bytes:
        content = b"" if body is None else json.dumps(body).encode()
        return together([bytes([METHODS.index(method)]), path.encode(), query.encode(), b"", content])

    for request in REQUESTS:
        yield packed(*request)
    for start in range(0, len(REQUESTS), 6):
        yield b"".join(packed(*request) for request in REQUESTS[start : start + 6])


@cache
def _runner() -> tuple[asyncio.Runner, Server, Any]:
    runner = asyncio.Runner()

    async def started() -> tuple[Server, Any]:
        server = Server(Settings(http=False, port=0))
        server.bind()
        await server.start()
        return server, make_app(server, Management(server))

    return runner, *runner.run(started())


def close() -> None:
    """Stop the broker."""
    runner, server, _ = _runner()
    runner.run(server.stop())
    runner.close()
    _runner.cache_clear()


def run(data: bytes) -> None:
    """Requests of five pieces each: method, path, query, a header's value, body."""
    runner, _, app = _runner()
    parts = pieces(data)
    for at in range(0, min(len(parts), 40), 5):
        method, path, query, header, body = (*parts[at : at + 5], b"", b"", b"", b"")[:5]
        name = METHODS[(method[0] if method else 0) % len(METHODS)]
        text = "/" + path.decode("utf-8", "replace").lstrip("/")
        if text.startswith("/api/v1/events"):
            continue  # never ends
        runner.run(_ask(app, name, text, query, header, body))


async def _ask(app: Any, method: str, path: str, query: bytes, header: bytes, body: bytes) -> None:
    clean = bytes(byte for byte in header if 32 <= byte < 127 or byte > 160)
    headers = [(b"host", b"127.0.0.1"), (b"content-type", b"application/json")]
    if clean:
        headers.append((b"authorization" if clean[0] & 1 else b"cookie", clean))
    scope = {
        "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": method, "scheme": "http",
        "path": path, "raw_path": path.encode(), "query_string": bytes(byte for byte in query if 32 < byte < 127),
        "root_path": "", "headers": headers, "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 80),
        "state": {"client_certificate": False, "gone": lambda: False},
    }  # fmt: skip
    said: list[dict[str, Any]] = []
    coming = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive() -> dict[str, Any]:
        return coming.pop() if coming else {"type": "http.disconnect"}

    async def send(event: dict[str, Any]) -> None:
        said.append(event)

    async with asyncio.timeout(60):
        await app(scope, receive, send)
    assert said, (method, path)
    status = said[0]["status"]
    content = b"".join(event.get("body", b"") for event in said[1:])
    assert status < 500, (status, method, path, query, body, content)
    kind = dict(said[0]["headers"]).get(b"content-type", b"")
    if kind.startswith(b"application/json") and method != "HEAD" and content:
        answer = json.loads(content)
        if status >= 400:
            assert set(answer) == {"error", "text", "details"}, answer
            assert len(answer["text"]) < 10_000
