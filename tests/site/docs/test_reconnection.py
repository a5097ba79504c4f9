"""docs/reconnection.md: its options are those of the code, its program runs."""

from __future__ import annotations

import re
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from sievemq import ConnectionFactory, JMSException, Topic
from sievemq.url import options_as_rows
from sievemq_broker import EmbeddedBroker
from sievemq_testing import TestBroker

DOCUMENT = (Path(__file__).parents[3] / "docs" / "reconnection.md").read_text(encoding="utf-8")


def test_the_options_match_the_code() -> None:
    known = {row["name"]: row for row in options_as_rows()}
    rows = re.findall(r"^\| (\w+) \| (\w*) \| ([^|]+) \| ([^|]+) \|$", DOCUMENT, re.M)
    assert {name for name, *_ in rows} >= {name for name in known if name.startswith("reconnect")}
    for name, *cells in rows:
        assert cells == [known[name][part] for part in ("default", "wanted", "reason")], name


def test_the_program_runs() -> None:
    (program,) = re.findall(r"```python\n(.*?)```", DOCUMENT, re.S)
    with EmbeddedBroker() as broker:
        program = program.replace("sievemq://localhost", broker.url)
        done = subprocess.run(
            [sys.executable, "-W", "error", "-c", program], capture_output=True, text=True, timeout=180, check=False
        )
    assert (done.returncode, done.stderr) == (0, "")


class Restored:
    """An exception listener that waits for the connection to be there again."""

    def __init__(self) -> None:
        self.event = threading.Event()

    def on_exception(self, error: JMSException) -> None:
        pass

    def on_connection_restored(self) -> None:
        self.event.set()


@pytest.mark.parametrize(("durable", "expected"), [(False, ["after"]), (True, ["before", "after"])])
def test_messages_that_a_subscriber_misses(durable: bool, expected: list[str]) -> None:
    restored, prices = Restored(), Topic("prices")
    with (
        TestBroker() as broker,
        ConnectionFactory(broker.url, client_id="reader").create_context() as reader,
        ConnectionFactory(broker.url).create_context() as writer,
    ):
        reader.set_exception_listener(restored)
        consumer = reader.create_durable_consumer(prices, "all") if durable else reader.create_consumer(prices)
        writer.create_producer().send(prices, "before")
        broker.wait_until_idle()  # it lies in the buffer of the consumer
        broker.faults.drop_connections("reader")
        assert restored.event.wait(60)
        writer.create_producer().send(prices, "after")
        assert [consumer.receive_body(str, 60_000) for _ in expected] == expected
