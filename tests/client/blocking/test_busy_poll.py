"""With the option `busy_poll` a caller polls for an answer before it blocks (decision 0022)."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from types import FrameType

import pytest

from sievemq import Connection, ConnectionFactory, Queue
from sievemq.blocking import transport as lead

from .conftest import Connect
from .helpers import SOON

pytestmark = pytest.mark.skipif(
    not lead.CAN_LEAD or not hasattr(os, "sched_yield"), reason="needs select.epoll, select.poll and os.sched_yield"
)

#: Microseconds: long enough for a broker of this very process on a busy machine.
GENEROUS = 10_000


class Neighbour:
    """The processor is yielded to it between two polls."""

    def __init__(self) -> None:
        self.times = 0
        self.does: Callable[[], object] = lambda: None

    def __call__(self) -> None:
        self.times += 1
        self.does()


@pytest.fixture
def neighbour(monkeypatch: pytest.MonkeyPatch) -> Neighbour:
    neighbour = Neighbour()
    monkeypatch.setattr(lead, "_give_way", neighbour)
    return neighbour


@pytest.fixture
def impatient(connect: Connect, url: str) -> Connection:
    """A connection that polls for long."""
    return connect(factory=ConnectionFactory(url, busy_poll=GENEROUS))


def ask(connection: Connection) -> None:
    connection._transport.ask(connection._engine.ping)


def ask_until(connection: Connection, condition: Callable[[], bool]) -> None:
    end = time.monotonic() + SOON / 1000
    while not condition():
        assert time.monotonic() < end, "it does not come about"
        ask(connection)


def test_a_thread_that_waits_for_an_answer_polls(impatient: Connection, neighbour: Neighbour) -> None:
    ask_until(impatient, lambda: neighbour.times > 0)


def test_a_receive_after_a_send_polls_for_the_reply(impatient: Connection, neighbour: Neighbour) -> None:
    session = impatient.create_session()
    producer, consumer = session.create_producer(Queue("q")), session.create_consumer(Queue("q"))
    ask_until(impatient, lambda: neighbour.times > 0)
    end = time.monotonic() + SOON / 1000
    before, number = neighbour.times, 0
    while neighbour.times == before:
        assert time.monotonic() < end, "it does not come about"
        number += 1
        producer.send(session.create_text_message(str(number)))
        received = consumer.receive(SOON)
        assert received is not None
        assert received.get_body(str) == str(number)


def test_by_default_no_caller_polls(connect: Connect, url: str, neighbour: Neighbour) -> None:
    connection = connect(factory=ConnectionFactory(url))
    for _ in range(300):
        ask(connection)
    assert not neighbour.times


def test_one_thread_of_a_process_polls_at_a_time(
    impatient: Connection, neighbour: Neighbour, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask_until(impatient, lambda: neighbour.times > 0)
    before = neighbour.times
    with monkeypatch.context() as patch:
        patch.setattr(lead, "_polling_thread", -1)  # another thread polls
        for _ in range(100):
            ask(impatient)
    assert neighbour.times == before
    ask_until(impatient, lambda: neighbour.times > before)


def test_an_interruption_while_polling_leaves_the_connection_usable(
    impatient: Connection, neighbour: Neighbour
) -> None:
    """At each place of the polling at which CPython runs signal handlers: where the function begins, and where a call
    of a C function has returned."""
    left = places = 0

    def interrupt(frame: FrameType, event: str, called: object) -> None:
        nonlocal left, places
        if event in ("call", "c_return") and frame.f_code is lead.Lead._look.__code__:
            left -= 1
            if left == 0:
                places += 1
                raise KeyboardInterrupt

    for number in range(1, 9):
        before = neighbour.times
        ask_until(impatient, lambda before=before: neighbour.times > before)  # type: ignore[misc]  # the next one polls
        left = number
        sys.setprofile(interrupt)
        try:
            with pytest.raises(KeyboardInterrupt):
                ask_until(impatient, lambda: False)
        finally:
            sys.setprofile(None)
        assert not lead._polling_thread
    assert places == 8
    before = neighbour.times
    ask_until(impatient, lambda: neighbour.times > before)
