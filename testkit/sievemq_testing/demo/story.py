"""The demo's course: an embedded broker, a publisher process, one worker process per selector, and the referee.

All workers subscribe to the topic and receive while the publisher publishes. Then they take their turns at the queue,
which holds every flight: the first selector's matches first, then the second's from what is left, and last a worker
without a selector takes the rest. Turns, because consumers of a queue compete, and what each gets would depend on
timing; this way the referee knows exactly what it has to be.
"""

from __future__ import annotations

import multiprocessing
import multiprocessing.connection
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from sievemq_broker import EmbeddedBroker
from sievemq_testing.demo.flights import SELECTORS, read_flights
from sievemq_testing.demo.parts import Tally, publish, take
from sievemq_testing.demo.referee import Referee, Verdict

#: How long a process may print nothing before the demo fails.
SILENCE_S = 120

_processes = multiprocessing.get_context("spawn")

Progress = Callable[[str, int], None]
"""Called with ``published`` or ``received`` and how many more messages."""


class DemoFailedError(Exception):
    """A process of the demo ended or fell silent before its part was done."""


class Line(NamedTuple):
    """One line of the result: the messages that a consumer got, and those expected."""

    destination: str
    selector: str | None
    got: Tally
    expected: Verdict
    seconds: float

    @property
    def agrees(self) -> bool:
        return (self.got.messages, self.got.checksum) == self.expected and self.got.in_order


class Outcome(NamedTuple):
    """How the demo went."""

    flights: int
    lines: list[Line]
    publish_seconds: float
    topic_seconds: float
    queue_seconds: float

    @property
    def agrees(self) -> bool:
        return all(line.agrees for line in self.lines)


class _Part:
    """A process and the pipe to it."""

    def __init__(self, target: Callable[..., None], *arguments: object) -> None:
        self.pipe, theirs = _processes.Pipe()
        self.process = _processes.Process(target=target, args=(*arguments, theirs), daemon=True)
        self.process.start()
        theirs.close()  # so that the end of the process shows as the end of the pipe

    def go(self) -> None:
        self.pipe.send("go")

    def end(self) -> None:
        self.pipe.close()
        if self.process.is_alive():
            self.process.terminate()
        self.process.join()


def run_story(limit: int | None = None, progress: Progress = lambda what, count: None) -> Outcome:
    """Run the demo.

    Args:
        limit: how many flights; None for all.
        progress: called with how far it is.

    Raises:
        FileNotFoundError: the flights are not installed.
        DemoFailedError: a process failed.
    """
    referee = Referee(read_flights(limit))
    flights = referee.verdict(None).messages
    parts: list[_Part] = []
    with EmbeddedBroker() as broker:
        try:
            workers = [_Part(take, broker.url, selector, True) for selector in SELECTORS]
            rest = _Part(take, broker.url, None, False)
            publisher = _Part(publish, broker.url, limit)
            parts = [*workers, rest, publisher]
            for part in parts:
                _wait_for("ready", [part], progress)
            start = time.perf_counter()
            publisher.go()
            # Workers report while the publisher does, so all pipes are read.
            ((publish_seconds,),) = _wait_for("done", [publisher], progress, also=workers)
            for worker in workers:
                worker.go()
            topic = [tally for (tally,) in _wait_for("topic", workers, progress)]
            topic_seconds = time.perf_counter() - start
            lines = [
                Line("topic", selector, tally, referee.verdict(selector), topic_seconds)
                for selector, tally in zip(SELECTORS, topic, strict=True)
            ]
            start = time.perf_counter()
            for turn, (worker, selector) in enumerate(zip([*workers, rest], [*SELECTORS, None], strict=True)):
                before = time.perf_counter()
                worker.go()
                ((tally,),) = _wait_for("queue", [worker], progress)
                expected = referee.verdict(selector, left_by=SELECTORS[:turn])
                lines.append(Line("queue", selector, tally, expected, time.perf_counter() - before))
            queue_seconds = time.perf_counter() - start
        finally:
            for part in parts:
                part.end()
            referee.close()
    return Outcome(flights, lines, publish_seconds, topic_seconds, queue_seconds)


def _wait_for(word: str, parts: list[_Part], progress: Progress, also: list[_Part] | None = None) -> list[Any]:
    """Wait until each of `parts` has printed `word`; returns what each printed with it. Reports are passed on."""
    by_pipe = {part.pipe: part for part in [*parts, *(also or [])]}
    said: dict[_Part, Any] = {}
    published = 0
    while len(said) < len(parts):
        ready = multiprocessing.connection.wait(list(by_pipe), SILENCE_S)
        if not ready:
            raise DemoFailedError(f"nothing was heard of any process for {SILENCE_S} s while waiting for {word!r}")
        for pipe in ready:
            part = by_pipe[pipe]  # type: ignore[index]  # wait() gives back what it was given
            try:
                what, *rest = part.pipe.recv()
            except EOFError:
                part.process.join()
                raise DemoFailedError(
                    f"process {part.process.pid} ended with code {part.process.exitcode} before it said {word!r}"
                ) from None
            if what == "published":
                progress("published", rest[0] - published)
                published = rest[0]
            elif what == "received":
                progress("received", rest[0])
            else:
                said[part] = rest
    return [said[part] for part in parts]
