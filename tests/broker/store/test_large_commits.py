"""A broker that is killed in the middle of a large commit has kept all of it or nothing."""

from __future__ import annotations

import importlib.util
import random
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from sievemq import ConnectionFactory, JMSContext, JMSRuntimeException
from sievemq_broker.domain.publishing import AT_ONCE

from .kill import has_ahead

COUNT = 6 * AT_ONCE
#: Lives of the broker at least; and at most, until one was killed after it had written a part of a commit ahead.
LIVES, MOST_LIVES = 6, 40


def host_of(data: Path) -> Any:
    path = Path(__file__).parents[2] / "hostile" / "chaos" / "host.py"
    spec = importlib.util.spec_from_file_location("chaos_host", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.Host(data, {})


class Commit(threading.Thread):
    """Consumes a message and sends very many in one transaction.

    Attributes:
        begun: everything is sent, COMMIT is next.
        took: seconds that the commit took, None if it failed.
    """

    def __init__(self, url: str, name: str) -> None:
        super().__init__(name=f"commit {name}")
        self.begun = threading.Event()
        self.took: float | None = None
        self._url, self._name = url, name

    def run(self) -> None:
        try:
            with ConnectionFactory(f"{self._url}?reconnect=0").create_context(JMSContext.SESSION_TRANSACTED) as context:
                assert context.create_consumer(context.create_queue(f"in-{self._name}")).receive(60_000) is not None
                producer, queue = context.create_producer(), context.create_queue(f"out-{self._name}")
                for number in range(COUNT):
                    producer.send(queue, text(number))
                begin = time.monotonic()
                self.begun.set()
                context.commit()
                self.took = time.monotonic() - begin
        except JMSRuntimeException:
            pass  # killed: whether it happened is what the store says


def text(number: int) -> str:
    """So long that a part of a commit is written ahead of its end."""
    return f"{number:<2000}"


def left(url: str, queue: str) -> list[str]:
    """What is in a queue; taken out."""
    found = []
    with ConnectionFactory(url).create_context() as context:
        consumer = context.create_consumer(context.create_queue(queue))
        while (message := consumer.receive_no_wait()) is not None:
            found.append(message.get_body(str))
    return found


@pytest.mark.slow
def test_a_large_commit_is_stored_whole_or_not_at_all(tmp_path: Path) -> None:
    chance = random.Random(7)
    host = host_of(tmp_path / "data")
    usual = 0.0
    ahead = 0
    try:
        for life in range(MOST_LIVES):
            name = str(life)
            with ConnectionFactory(host.url).create_context() as context:
                context.create_producer().send(context.create_queue(f"in-{name}"), "in")
            commit = Commit(host.url, name)
            commit.start()
            assert commit.begun.wait(60)
            if life:  # the first one says how long it takes
                commit.join(usual * chance.random())
            else:
                commit.join()
                assert commit.took is not None
                usual = commit.took
            host.crash()
            commit.join()
            ahead += has_ahead(tmp_path / "data")
            host.start()
            out, consumed = left(host.url, f"out-{name}"), not left(host.url, f"in-{name}")
            assert out == ([text(number) for number in range(COUNT)] if consumed else [])
            assert consumed or commit.took is None
            if ahead and life + 1 >= LIVES:
                break
        assert ahead
    finally:
        host.stop()
