"""Without credentials nothing but health is answered; with few rights, little. Every route there is, by itself."""

from __future__ import annotations

import http.client
import json
import re
from collections.abc import Iterator
from contextlib import ExitStack, closing
from typing import Any
from urllib.parse import urlsplit

import pytest

from sievemq import ConnectionFactory
from sievemq_broker import EmbeddedBroker
from sievemq_broker.server.http.access import HEALTH
from sievemq_broker.server.http.api.management import Management
from sievemq_broker.server.http.app import make_app
from sievemq_broker.server.http.router import Router

from .support import DEADLINE, PASSWORD, ask, basic, secured

METHODS = ("GET", "HEAD", "OPTIONS", "POST", "PUT", "PATCH", "DELETE")

#: What a browser needs to sign in. Nothing else may be added here without a thought.
SIGN_IN = {"/sign-in", "/sign-in.css", "/session"}


def all_routes() -> list[tuple[str, str]]:
    """Method and path of each route of the management port, with something in place of parameters."""
    with secured() as broker:
        document = ask(broker, "/openapi.json", **basic("admin")).json
        app = broker.call(lambda _: make_app(broker.server, Management(broker.server)))
    assert isinstance(app.app, Router)
    routes = app.app.routes
    assert set(document["paths"]) == {route.path for route in routes if route.path.startswith("/api/v1")}
    return [(route.method, re.sub(r"\{[^}]*\}", "x", route.path)) for route in routes]


ROUTES = sorted({path for _, path in all_routes()})


def test_routes_were_found() -> None:
    assert {"/", "/metrics", "/openapi.json", "/api/v1/namespaces/x/destinations/x/actions/purge"} <= set(ROUTES)
    assert len(ROUTES) > 30


@pytest.mark.parametrize(
    "path", [*ROUTES, "/nothing-here", "/api/v1/nothing-here", "/api/v1", "/console/", "//", "/livez/"]
)
def test_without_credentials_every_route_is_refused(broker: EmbeddedBroker, path: str) -> None:
    for method in METHODS:
        answer = ask(broker, path, method)
        if path in HEALTH | SIGN_IN:
            assert answer.status in (200, 204, 400, 405), (method, path)
            assert b"incarnation" not in answer.body
        else:
            assert answer.status == 401, (method, path)
            assert answer.headers["www-authenticate"].startswith("Basic ")
            assert method == "HEAD" or answer.json["error"] == "AUTHENTICATION"


@pytest.mark.parametrize("path", ["/", "/api/v1/broker", "/metrics", "/openapi.json"])
@pytest.mark.parametrize(
    "headers",
    [
        basic("admin", "wrong"),
        basic("nobody-of-this-name"),
        {"Authorization": "Basic !"},
        {"Authorization": "Basic /w=="},
        {"Authorization": "Basic"},
        {"Authorization": ""},
        {"Authorization": "Bearer rosebud"},
        {"Authorization": f"Digest username=admin, response={PASSWORD}"},
        {"Host": "localhost", "Cookie": "sievemq-80=guessed"},
        {"Host": "localhost", "Cookie": "sievemq-80="},
        {"Host": "localhost", "Cookie": "__Host-sievemq-80=guessed; =;;=\x01"},
        {"X-Forwarded-User": "admin"},
    ],
)
def test_wrong_credentials_are_none(path: str, headers: dict[str, str]) -> None:
    with secured() as broker:  # a fresh one: these are wrong passwords, and they are counted
        assert ask(broker, path, **headers).status == 401


def test_browsers_are_redirected_to_the_form_without_basic_authentication(broker: EmbeddedBroker) -> None:
    page = ask(broker, "/?queue=a%26b", Accept="text/html,*/*")
    assert (page.status, page.headers["location"]) == (303, "/sign-in?next=/%3Fqueue%3Da%2526b")
    script = ask(
        broker, "/api/v1/broker", Accept="application/json", Sec_Fetch_Mode="cors", Sec_Fetch_Site="same-origin"
    )
    assert script.status == 401
    assert not script.headers["www-authenticate"].lower().startswith("basic")


def test_health_reveals_no_contents(broker: EmbeddedBroker) -> None:
    for path in HEALTH:
        assert set(ask(broker, path).json) <= {"status", "role", "reasons", "loop_lag_seconds"}


# -- rights -----------------------------------------------------------------------------------------------------------

SECRETS = ("secret-queue", "secret body", "secret-client", "team-s")


@pytest.fixture(scope="module")
def filled() -> Iterator[EmbeddedBroker]:
    """A namespace with secrets, in which only the administrator has a right, and somebody connected to it."""
    with ExitStack() as stack:
        broker = stack.enter_context(secured())
        factory = ConnectionFactory(f"{broker.url}/team-s")
        context = stack.enter_context(factory.create_context("admin", PASSWORD))
        context.set_client_id("secret-client")
        for name in ("secret-queue", "DLQ.secret-queue"):
            context.create_producer().send(context.create_queue(name), "secret body")
        stack.enter_context(context.create_durable_consumer(context.create_topic("secret-queue"), "secret-sub"))
        yield broker


@pytest.fixture(scope="module")
def operations() -> list[tuple[str, str, Any]]:
    """Method, path with the secret names in it, and a body for every operation of the API."""
    bodies = {
        "move": {"to": "queue:mine", "selector": "TRUE = TRUE"},
        "copy": {"to": "queue:mine"},
        "messages": {"body": "x"},
        "namespaces": {"name": "team-s"},
        "check": {"selector": "a = 1"},
        "explain": {"selector": "a = 1", "namespace": "team-s", "destination": "queue:secret-queue", "id": "ID:x:1"},
    }
    with secured() as broker:
        document = ask(broker, "/openapi.json", **basic("admin")).json
    found = []
    for path, methods in document["paths"].items():
        filled = path.replace("{ns}", "team-s").replace("{address}", "queue:secret-queue")
        filled = filled.replace("{client_id}", "secret-client").replace("{name}", "secret-sub").replace("{id}", "x")
        for method in methods:
            body = bodies.get(path.rpartition("/")[2], {}) if method in ("post", "put") else None
            found.append((method.upper(), filled, body))
    return found


@pytest.mark.parametrize("user", ["nobody", "anna", "ben"])
def test_another_namespace_does_not_exist(
    filled: EmbeddedBroker, operations: list[tuple[str, str, Any]], user: str
) -> None:
    for method, path, body in operations:
        if path == "/api/v1/events":
            continue  # it does not end; tested below
        answer = ask(filled, path, method, body, **basic(user))
        assert answer.status < 500, (method, path, answer.text)
        if "team-s" in path or (body and "team-s" in str(body)):
            assert answer.status in (403, 404), (method, path, answer.text)
            known = answer.text
            for said in (path, str(body)):  # what the caller said itself is no secret
                for secret in SECRETS:
                    if secret in said:
                        known = known.replace(secret, "")
        else:
            known = answer.text
        for secret in SECRETS:
            assert secret not in known, (method, path, answer.text)


def test_metrics_show_every_namespace_so_they_take_a_right_on_all(filled: EmbeddedBroker) -> None:
    assert "team-s" in ask(filled, "/metrics", **basic("admin")).text
    for user in ("nobody", "anna", "ben"):
        answer = ask(filled, "/metrics", **basic(user))
        assert (answer.status, answer.json["error"]) == (403, "SECURITY")
        assert "team-s" not in answer.text


def test_only_visible_destinations_are_listed(filled: EmbeddedBroker) -> None:
    with ConnectionFactory(filled.url).create_context("admin", PASSWORD) as context:
        for name in ("orders.eu", "stock", "payroll"):
            context.create_producer().send(context.create_queue(name), "x")
    answer = ask(filled, "/api/v1/namespaces/default/destinations", **basic("anna")).json
    assert {row["address"] for row in answer["destinations"]} == {"queue:orders.eu", "queue:stock"}
    assert [row["name"] for row in ask(filled, "/api/v1/namespaces", **basic("anna")).json["namespaces"]] == ["default"]


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "orders.eu/messages", 200),
        ("GET", "stock", 200),
        ("GET", "stock/messages", 403),
        ("GET", "payroll", 403),
        ("GET", "payroll/messages", 403),
        ("POST", "payroll/messages", 403),
        ("POST", "stock/messages", 403),
        ("POST", "orders.eu/actions/purge", 403),
        ("PUT", "orders.new", 403),
        ("DELETE", "orders.eu", 403),
    ],
)
def test_verbs_are_apart(filled: EmbeddedBroker, method: str, path: str, status: int) -> None:
    with ConnectionFactory(filled.url).create_context("admin", PASSWORD) as context:
        for name in ("orders.eu", "stock", "payroll"):
            context.create_producer().send(context.create_queue(name), "x")
    body = {"body": "x"} if path.endswith("messages") and method == "POST" else {} if method != "GET" else None
    answer = ask(filled, f"/api/v1/namespaces/default/destinations/queue:{path}", method, body, **basic("anna"))
    assert answer.status == status, answer.text
    if status == 403:
        assert (answer.json["error"], answer.json["details"]["user"]) == ("SECURITY", "anna")


@pytest.mark.parametrize("user", ["anna", "nobody"])
def test_events_cover_visible_destinations_only(user: str) -> None:
    """Events of other namespaces and queues come first; the stream is read until a tick that is later than all."""
    with secured() as broker:
        parts = urlsplit(broker.http_url)
        with closing(http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=DEADLINE)) as stream:
            stream.request("GET", "/api/v1/events", headers=basic(user))
            with stream.getresponse() as response:
                assert response.status == 200
                assert response.readline() == b"retry: 2000\n"
                for namespace, names in (("team-s", ["secret-queue"]), ("", ["payroll", "orders.mine"])):
                    factory = ConnectionFactory(f"{broker.url}/{namespace}")
                    with factory.create_context("admin", PASSWORD) as context:
                        for name in names:
                            queue = context.create_queue(name)
                            context.create_producer().send(queue, "secret body")
                            context.create_consumer(queue, "a = 'secret-selector'").close()
                end = broker.clock.now().timestamp() * 1000 + 2_000
                told, last_tick = b"", 0
                while b"orders.mine" not in told and last_tick < end:
                    line = response.readline()
                    told += line
                    if line.startswith(b'data: {"time":'):
                        last_tick = json.loads(line.removeprefix(b"data: "))["time"]
        assert (b"orders.mine" in told) is (user == "anna")
        for secret in (b"secret", b"team-s", b"payroll"):
            assert secret not in told
