"""docs/client.md: its programs print what it says, its options and dead letters are those of the code."""

from __future__ import annotations

import asyncio
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.client.relay import Relay

from sievemq import ConnectionFactory, JMSContext, Queue, Topic
from sievemq.url import options_as_rows
from sievemq_broker import EmbeddedBroker

from .programs import output_of, programs_of

TEXT = (Path(__file__).parents[3] / "docs" / "client.md").read_text(encoding="utf-8")
PROGRAMS = programs_of(TEXT)
RECIPES = re.findall(r"^```python\n(.*?)^```$", TEXT.split("## A service\n")[1].split("\n## ")[0], re.M | re.S)


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker() as broker:
        yield broker


def test_all_programs_are_run() -> None:
    assert len(PROGRAMS) == 4
    assert len(RECIPES) == 2
    assert TEXT.count("```python") == len(PROGRAMS) + len(RECIPES)


@pytest.mark.parametrize(("program", "printed"), PROGRAMS, ids=["asyncio", "workers", "requests", "prefetch"])
def test_a_program_prints_what_it_says(broker: EmbeddedBroker, program: str, printed: str) -> None:
    assert output_of(program, broker.url) == printed


def test_the_worker_finishes_its_message_on_sigterm(broker: EmbeddedBroker) -> None:
    program = RECIPES[0].replace("sievemq://localhost", broker.url)
    worker = subprocess.Popen(
        [sys.executable, "-u", "-W", "error", "-c", program],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
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
        program = RECIPES[1].replace("sievemq://localhost", relay.url(broker.url) + "/web").replace("(5)", "(0.3)")
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


def options_table() -> str:
    """The table of options, in Markdown."""
    lines = ["| option | default | | |", "| --- | --- | --- | --- |"]
    for row in options_as_rows():
        default = row["default"] or ("auto" if row["name"] == "prefetch" else "none")
        lines.append(f"| `{row['name']}` | {default} | {row['wanted']} | {row['reason']} |")
    return "\n".join(lines) + "\n"


def test_the_options_are_those_of_the_code() -> None:
    written = TEXT.split("<!-- table: made from the code -->\n")[1].split("<!-- end of table -->")[0]
    assert written.strip() == options_table().strip()


@pytest.mark.parametrize("destination", [Queue("orders"), Topic("orders")], ids=["queue", "topic"])
def test_the_properties_of_a_dead_letter_are_those_of_the_table(
    broker: EmbeddedBroker, destination: Queue | Topic
) -> None:
    named = {name for row in TEXT.splitlines() for name in re.findall(r"`(JMS_SieveMQ_\w+)`", row)}
    with (
        ConnectionFactory(broker.url).create_context(JMSContext.SESSION_TRANSACTED) as context,
        context.create_consumer(destination) as consumer,
        context.create_consumer(Queue("DLQ.orders")) as letters,
    ):
        context.create_producer().send(destination, "broken")
        context.commit()
        for _ in range(6):
            assert consumer.receive(60_000) is not None
            context.rollback()
        letter = letters.receive(60_000)
        context.commit()
    assert letter is not None
    assert {name for name in letter.properties if name.startswith("JMS_SieveMQ_")} == named
    assert letter.properties["JMS_SieveMQ_DeadLetterReason"] == "attempts"
    assert letter.properties["JMS_SieveMQ_DeadLetterOrigin"] == str(destination)
