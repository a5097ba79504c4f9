"""A shell completes the names of queues and topics from the broker that the command line means."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator

import pytest

from sievemq import ConnectionFactory
from sievemq.cli import completing
from sievemq_broker import EmbeddedBroker

from .conftest import Sievemq

Complete = Callable[[str], list[str]]


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(http=True) as broker:
        with ConnectionFactory(broker.url).create_context() as context:
            for name in ("orders", "orders.eu", "other", "two words", "2026:orders"):
                context.create_producer().send(context.create_queue(name), "x")
            context.create_producer().send(context.create_topic("prices"), "x")
        broker.call(lambda b: b.namespace("shop").create("queue:shop"))
        yield broker


@pytest.fixture
def complete(sievemq: Sievemq, broker: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch) -> Complete:
    """What bash is told for a command line whose last word is to be completed."""
    monkeypatch.setenv("SIEVEMQ_HTTP_URL", str(broker.http_url))
    monkeypatch.setenv("_SIEVEMQ_COMPLETE", "complete_bash")
    monkeypatch.setattr(completing, "_SECONDS", 60.0)  # a busy machine takes longer than a shell should wait

    def call(line: str) -> list[str]:
        monkeypatch.setenv("COMP_WORDS", line)
        monkeypatch.setenv("COMP_CWORD", str(line.count(" ")))
        outcome = sievemq(*line.split()[1:])
        assert outcome.err == ""
        return outcome.out.split()

    return call


@pytest.mark.parametrize(
    ("line", "names"),
    [
        ("queue info ord", ["orders", "orders.eu"]),
        ("send o", ["orders", "orders.eu", "other"]),
        ("move orders oth", ["other"]),
        ("export orders oth", ["other"]),
        ("topic info ", ["prices"]),
        ("browse topic:p", ["topic:prices"]),
        ("browse queue:oth", ["queue:other"]),
        ("queue info --namespace shop s", ["shop"]),
        ("queue info tw", []),  # a shell would take it for two words
        ("browse 2026:", []),  # no kind
        ("browse x", []),
    ],
)
def test_names_that_begin_so(complete: Complete, line: str, names: list[str]) -> None:
    assert complete(f"sievemq {line}") == names


def test_the_management_port_belongs_to_the_wire_port(
    complete: Complete, broker: EmbeddedBroker, sievemq: Sievemq, monkeypatch: pytest.MonkeyPatch
) -> None:
    http = str(broker.http_url)
    monkeypatch.delenv("SIEVEMQ_HTTP_URL")
    assert complete(f"sievemq queue info --http {http} oth") == ["other"]
    monkeypatch.setenv("SIEVEMQ_PORT", str(broker.port))
    monkeypatch.setenv("SIEVEMQ_HTTP_PORT", http.rpartition(":")[2])
    assert complete("sievemq send oth") == ["other"]
    assert complete("sievemq queue info oth") == ["other"]
    monkeypatch.delenv("SIEVEMQ_PORT")
    monkeypatch.delenv("SIEVEMQ_HTTP_PORT")
    monkeypatch.delenv("_SIEVEMQ_COMPLETE")
    assert sievemq("context", "add", "here", "--url", f"{broker.url}/shop", "--http", http).code == 0
    assert sievemq("context", "use", "here").code == 0
    monkeypatch.setenv("_SIEVEMQ_COMPLETE", "complete_bash")
    assert complete("sievemq send s") == ["shop"]


@pytest.mark.parametrize(
    "line",
    [
        "queue info --http http://127.0.0.1:1 o",
        "queue info --http nonsense o",
        "browse --url sievemq://[ o",
        "queue info --http https://127.0.0.1:1?tls_ca=none o",
    ],
)
def test_a_broker_that_does_not_answer_has_no_names(complete: Complete, line: str) -> None:
    assert complete(f"sievemq {line}") == []


def test_a_shell_does_not_wait_for_a_broker_that_hangs(complete: Complete, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(completing, "_SECONDS", 0.05)
    with socket.create_server(("127.0.0.1", 0)) as hangs:
        assert complete(f"sievemq queue info --http http://127.0.0.1:{hangs.getsockname()[1]} o") == []


@pytest.mark.parametrize(
    ("url", "asked"),
    [
        ("sievemq://mq", "http://mq:7680"),
        ("sievemqs://anna@mq:7672,other:7673/shop?reconnect=1", "https://mq:7680"),
        ("sievemq://[::1]:7672", "http://[::1]:7680"),
        ("sievemq://[::1]", "http://[::1]:7680"),
    ],
)
def test_the_usual_port_of_the_first_host(
    sievemq: Sievemq, monkeypatch: pytest.MonkeyPatch, url: str, asked: str
) -> None:
    assert completing._place_of({"url": url}) == (asked, "shop" if "shop" in url else "default")
