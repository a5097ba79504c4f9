"""What messages, names and selectors say stays text: it is sent as JSON that no browser takes for a page.

That the console shows it as text, in a real browser, is tested with the console.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from urllib.parse import quote

import pytest
from tests.broker.protocols.stomp import StompSocket

from sievemq import ConnectionFactory, JMSContext, JMSException, JMSRuntimeException, TextMessage, WildcardWarning
from sievemq_broker import EmbeddedBroker

from .support import PASSWORD, ask, basic, secured

SCRIPT = "<script>alert(1)</script>"
EVIL = f"\"'><img src=x onerror=alert(1)>{SCRIPT}</style></title>{{{{7*7}}}}${{7*7}}javascript:alert(1)"


@pytest.fixture(scope="module")
def filled() -> Iterator[tuple[EmbeddedBroker, JMSContext]]:
    with secured() as broker, ConnectionFactory(broker.url).create_context("admin", PASSWORD) as context:
        context.set_client_id(EVIL)
        message = TextMessage(f"{EVIL}\u2028\x00")
        message.set_string_property("evil", EVIL)
        message.set_jms_type(EVIL)
        message.set_jms_correlation_id(EVIL)
        context.create_producer().send(context.create_queue(EVIL), message)
        context.create_producer().send(context.create_queue(f"DLQ.{EVIL}"), message)
        with pytest.warns(WildcardWarning):
            context.create_consumer(context.create_queue(f"{EVIL}2"), f"evil = '{EVIL.replace(chr(39), chr(39) * 2)}'")
        with pytest.warns(WildcardWarning):
            context.create_durable_consumer(context.create_topic(EVIL), EVIL)
        yield broker, context


def test_every_answer_that_repeats_it_is_json(filled: tuple[EmbeddedBroker, JMSContext]) -> None:
    broker, _ = filled
    document = ask(broker, "/openapi.json", **basic("admin")).json
    repeated = 0
    for path, methods in document["paths"].items():
        if "get" not in methods or "text/event-stream" in json.dumps(methods["get"]["responses"]):
            continue
        filled_in = path.replace("{ns}", "default").replace("{address}", quote(f"queue:{EVIL}", safe=""))
        answer = ask(broker, filled_in.replace("{id}", quote(EVIL, safe="")), **basic("admin"))
        lines = answer.headers["content-type"] == "application/x-ndjson"
        assert lines or answer.headers["content-type"].startswith("application/json"), path
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert "default-src 'none'" in answer.headers["content-security-policy"]
        said = [json.loads(line) for line in answer.text.splitlines()] if lines else answer.json
        repeated += EVIL in json.dumps(said, ensure_ascii=False).replace('\\"', '"')
    assert repeated >= 5, "the answers should have shown the text that this is about"


@pytest.mark.parametrize("path", ["/", "/sign-in", "/console/main.js", "/console/", "/metrics", "/openapi.json"])
def test_no_other_page_repeats_the_script(filled: tuple[EmbeddedBroker, JMSContext], path: str) -> None:
    broker, _ = filled
    answer = ask(broker, path, **basic("admin"))
    assert SCRIPT not in answer.text


@pytest.mark.parametrize("accept", ["text/html", "*/*", "application/json"])
@pytest.mark.parametrize(
    "path",
    [f"/{SCRIPT}", f"/?a={SCRIPT}", f"/api/v1/{SCRIPT}", f"/api/v1/namespaces/{SCRIPT}/destinations",
     f"/api/v1/namespaces/default/destinations/{SCRIPT}", f"/api/v1/namespaces/default/destinations?sort={SCRIPT}",
     f"/sign-in?next=/{SCRIPT}", f"/console/{SCRIPT}"],
)  # fmt: skip
def test_path_and_query_are_never_returned_as_html(broker: EmbeddedBroker, path: str, accept: str) -> None:
    for credentials in ({}, basic("admin")):
        answer = ask(broker, quote(path, safe="/?=&"), Accept=accept, **credentials)
        if answer.headers["content-type"] and answer.headers["content-type"].startswith("text/html"):
            assert SCRIPT not in answer.text
        else:
            assert answer.headers["x-content-type-options"] == "nosniff"


def test_an_invalid_selector_is_answered_as_json(broker: EmbeddedBroker) -> None:
    answer = ask(broker, "/api/v1/selector/check", "POST", {"selector": f"a = {EVIL}"}, **basic("admin"))
    assert answer.headers["content-type"].startswith("application/json")
    assert answer.status < 500


def test_console_lets_no_text_become_a_script(broker: EmbeddedBroker) -> None:
    """Its policy forbids scripts but its own files, and (trusted types) that any of them parses text as HTML."""
    policy = ask(broker, "/", **basic("admin")).headers["content-security-policy"]
    rules = {rule.split()[0]: rule.split()[1:] for rule in policy.split(";")}
    assert rules["script-src"] == ["'self'"]
    assert rules["default-src"] == ["'none'"]
    assert rules["require-trusted-types-for"] == ["'script'"]
    assert rules["trusted-types"] == ["'none'"]


@pytest.mark.parametrize("char", ["\x1b", "\x9b", "\u202e", "\u2066", "\u200b", "\u2028"])
def test_no_name_changes_how_text_reads(filled: tuple[EmbeddedBroker, JMSContext], char: str) -> None:
    """Names of clients are printed in lists, logs and errors: they have no control or format characters."""
    broker, context = filled
    name, address = f"a{char}b", quote(f"a{char}b")
    topic, anonymous = context.create_topic("names"), ConnectionFactory(broker.url).create_context("admin", PASSWORD)
    for refused in (
        lambda: ConnectionFactory(f"{broker.url}/{address}").create_context("admin", PASSWORD),
        lambda: anonymous.set_client_id(name),
        lambda: context.create_queue(name),
        lambda: context.create_durable_consumer(topic, name),
        lambda: context.create_shared_consumer(topic, name),
        lambda: context.create_shared_durable_consumer(topic, name),
    ):
        with pytest.raises((JMSException, JMSRuntimeException)) as caught:
            refused()
        assert char not in str(caught.value)
    anonymous.close()
    space = "/api/v1/namespaces/default/destinations"
    for method, path, body in (
        ("POST", "/api/v1/namespaces", {"name": name}),
        ("PUT", f"{space}/queue:{address}", {}),
        ("PUT", f"{space}/queue:q/taps/{address}", {}),
        ("POST", f"{space}/queue:{address}/messages", {"body": "x"}),
    ):
        answer = ask(broker, path, method, body, **basic("admin"))
        assert answer.status in (400, 409, 422), path
        assert char not in answer.json["text"]
    for headers in ({"client-id": name}, {"host": f"/{name}"}):
        with StompSocket(broker.port, None) as client:
            client.say("CONNECT", **{"accept-version": "1.2", "login": "admin", "passcode": PASSWORD, **headers})
            assert char not in client.frame("ERROR").headers["message"]
