"""docs/recipes.md: its programs do what it says."""

from __future__ import annotations

import asyncio
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from tests.client.relay import Relay

from sievemq import ConnectionFactory, Queue
from sievemq_broker import EmbeddedBroker
from sievemq_broker.config import load

from .programs import ROOT, output_of, programs_of

TEXT = (ROOT / "docs" / "recipes.md").read_text(encoding="utf-8")
PROGRAMS = programs_of(TEXT)
#: Heading -> the first program below it.
RECIPES = {
    section.partition("\n")[0]: found[1]
    for section in TEXT.split("\n## ")[1:]
    if (found := re.search(r"^```python\n(.*?)^```$", section, re.MULTILINE | re.DOTALL))
}


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker() as broker:
        yield broker


def started(program: str, url: str) -> subprocess.Popen[str]:
    """A program of the page in a process of its own, connected to `url`."""
    return subprocess.Popen(
        [sys.executable, "-u", "-W", "error", "-c", program.replace("sievemq://localhost", url)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_all_programs_are_run() -> None:
    assert len(PROGRAMS) == 3
    assert TEXT.count("```python") == len(RECIPES) == len(PROGRAMS) + 3


@pytest.mark.parametrize(("program", "printed"), PROGRAMS, ids=["json", "requests", "retry"])
def test_programs_print_the_shown_output(broker: EmbeddedBroker, program: str, printed: str) -> None:
    assert output_of(program, broker.url) == printed


def test_the_rules_for_retries_are_valid(tmp_path: Any) -> None:
    (table,) = re.findall(r"^```toml\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)
    file = tmp_path / "broker.toml"
    file.write_text(table)
    policy = load(config=file).settings.destinations["queue:orders"]
    assert [policy.redelivery_delay_after(attempts) for attempts in (1, 2, 3, 9)] == [1_000, 2_000, 4_000, 60_000]


def test_the_service_reports_a_lost_connection_and_continues(broker: EmbeddedBroker) -> None:
    with Relay(broker.port) as relay:
        service = started(RECIPES["A service that reconnects for ever"], relay.url(broker.url))
        try:
            assert service.stdout is not None
            assert service.stdout.readline() == "started\n"
            relay.cut()
            assert [service.stdout.readline() for _ in range(2)] == ["lost\n", "restored\n"]
            with ConnectionFactory(broker.url).create_context() as context:
                context.create_producer().send(Queue("invoices"), "one")
            assert service.stdout.readline() == "handled one\n"
            service.send_signal(signal.SIGTERM)
            assert service.communicate(timeout=60)[0] == ""
            assert service.returncode == 0
        finally:
            service.kill()
            service.communicate()


def test_the_worker_finishes_its_message_on_sigterm(broker: EmbeddedBroker) -> None:
    worker = started(RECIPES["A worker that ends on SIGTERM"], broker.url)
    try:
        with ConnectionFactory(broker.url).create_context() as context:
            context.create_producer().send(Queue("orders"), "one").send(Queue("orders"), {"not": "a text"})
            assert worker.stdout is not None
            assert worker.stdout.readline() == "handled one\n"
            letter = context.create_consumer(Queue("DLQ.orders")).receive(60_000)
            assert letter is not None
            worker.send_signal(signal.SIGTERM)
            printed, logged = worker.communicate(timeout=60)
            assert (worker.returncode, printed) == (0, "stopped\n")
            assert logged.count("an order failed") == 6
            assert context.create_consumer(Queue("orders")).receive_no_wait() is None
    finally:
        worker.kill()
        worker.communicate()


WORKER, SERVICE = "A worker that ends on SIGTERM", "A service that reconnects for ever"


@pytest.mark.parametrize("recipe", [WORKER, SERVICE])
def test_one_signal_ends_a_service_that_never_reached_its_broker(broker: EmbeddedBroker, recipe: str) -> None:
    with Relay(broker.port) as relay:
        relay.refuse()
        service = started(RECIPES[recipe], relay.url(broker.url))
        try:
            assert service.stderr is not None
            assert "trying again for ever" in service.stderr.readline()
            service.send_signal(signal.SIGTERM)
            printed, _ = service.communicate(timeout=20)
            assert (service.returncode, printed) == (0, "")
        finally:
            service.kill()
            service.communicate()


@pytest.mark.parametrize("recipe", [WORKER, SERVICE])
def test_one_signal_ends_a_service_whose_broker_is_away(broker: EmbeddedBroker, recipe: str) -> None:
    with Relay(broker.port) as relay, ConnectionFactory(broker.url).create_context() as context:
        service = started(RECIPES[recipe], relay.url(broker.url))
        try:
            assert service.stdout is not None
            assert service.stderr is not None
            while recipe == SERVICE and service.stdout.readline() != "started\n":
                pass  # its listener prints in another thread
            context.create_producer().send(Queue("orders"), "one").send(Queue("invoices"), "one")
            while service.stdout.readline() != "handled one\n":
                pass
            relay.refuse()
            relay.cut()
            assert "trying to reconnect for ever" in service.stderr.readline()
            service.send_signal(signal.SIGTERM)
            printed, _ = service.communicate(timeout=20)
            assert service.returncode == 0
            assert printed == "stopped\n" or "lost\n".startswith(
                printed
            )  # another thread prints that, as far as it gets
        finally:
            service.kill()
            service.communicate()
        for queue in ("orders", "invoices"):
            consumer = context.create_consumer(Queue(queue))
            while consumer.receive_no_wait() is not None:
                pass


async def posted(app: Any, state: dict[str, Any], body: bytes) -> int:
    """The status of a POST of an order."""
    statuses: list[int] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": body}

    async def send(event: dict[str, Any]) -> None:
        if event["type"] == "http.response.start":
            statuses.append(event["status"])

    scope = {
        "type": "http", "http_version": "1.1", "method": "POST", "path": "/orders", "raw_path": b"/orders",
        "headers": [], "query_string": b"", "root_path": "", "scheme": "http", "state": dict(state),
    }  # fmt: skip
    await app(scope, receive, send)
    return statuses[0]


async def test_the_web_application_answers_again_when_its_broker_is_back(broker: EmbeddedBroker) -> None:
    with Relay(broker.port) as relay:
        program = (
            RECIPES["A web application"]
            .replace("sievemq://localhost", relay.url(broker.url) + "/web")
            .replace("(5)", "(0.3)")
        )
        names: dict[str, Any] = {}
        exec(program, names)
        app = names["app"]
        async with app.router.lifespan_context(app) as state:
            assert await posted(app, state, b"one") == 202
            relay.refuse()
            relay.cut()
            assert await posted(app, state, b"two") == 503
            relay.accept()
            async with asyncio.timeout(60):
                while await posted(app, state, b"three") != 202:
                    pass
    with ConnectionFactory(broker.url + "/web").create_context() as context:
        bodies = [message.get_body(str) for message in context.create_browser(Queue("orders"))]
    assert {"one", "three"} <= set(bodies)


async def test_the_web_application_starts_answers_and_ends_without_its_broker(broker: EmbeddedBroker) -> None:
    with Relay(broker.port) as relay:
        relay.refuse()
        url = relay.url(broker.url) + "/web"
        names: dict[str, Any] = {}
        exec(RECIPES["A web application"].replace("sievemq://localhost", url).replace("(5)", "(0.3)"), names)
        app = names["app"]
        for comes_back in (False, True):
            async with asyncio.timeout(60), app.router.lifespan_context(app) as state:
                assert await posted(app, state, b"early") == 503
                if comes_back:
                    relay.accept()
                    while await posted(app, state, b"late") != 202:
                        pass
