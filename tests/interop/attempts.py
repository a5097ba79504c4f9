"""Deliveries and attempts with clients that others wrote: whose messages become dead letters (docs/guarantees.md).

A worker is a program of such a client. It settles some messages of a queue, has the next one in work, and ends: in
order, with its process killed, or with its connection cut; or it connects again after a cut, has another one in work,
and is killed then. A model counts how often each message was in work.

    the worker's environment   BROKER_URL, PREFETCH, HANDLE (messages to settle first), END (one of its ends)
    what it writes             `handled BODY` for each, then `working BODY`; after a line of input it ends.
                               With the end `return` it connects again then, and writes `working BODY` once more
"""

from __future__ import annotations

import os
import random
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.client.relay import Relay
from tests.interop.results import Result

from sievemq import ConnectionFactory, Queue
from sievemq_broker import EmbeddedBroker

QUEUE = "jobs"

#: Attempts that a message has; messages; seconds that a worker may take.
_MOST, _MESSAGES, _LONGEST = 3, 6, 60
_DEAD = f"DLQ.{QUEUE}"


@dataclass(frozen=True)
class Worker:
    """How a worker is run.

    Attributes:
        command: program and arguments.
        scheme: of its URL.
        ends: the ways to end in order that it knows. `kill`, `cut` and `return` it knows as well.
        environment: further variables.
    """

    command: Sequence[str | Path]
    scheme: str
    ends: Sequence[str]
    environment: dict[str, str] = field(default_factory=dict)


def attempts(worker: Worker) -> list[Result]:
    """The results: a line for each prefetch."""
    return [_outcome(worker, prefetch) for prefetch in (1, 10, 100)]


def _outcome(worker: Worker, prefetch: int) -> Result:
    name = f"dead letters were in work {_MOST} times, with a prefetch of {prefetch}"
    try:
        with (
            EmbeddedBroker(settings={"destinations": {QUEUE: {"max_attempts": _MOST}}}) as broker,
            Relay(broker.port) as relay,
        ):
            _play(worker, prefetch, broker, relay)
    except Exception as error:
        return Result(name, passed=False, detail=f"{type(error).__name__}: {error}")
    return Result(name, passed=True)


def _play(worker: Worker, prefetch: int, broker: EmbeddedBroker, relay: Relay) -> None:
    chance = random.Random(prefetch)
    left = {f"m{number}": 0 for number in range(_MESSAGES)}
    dead: list[str] = []
    with ConnectionFactory(broker.url).create_context() as context:
        for body in left:
            context.create_producer().send(Queue(QUEUE), body)

        def waiting(name: str) -> list[str]:
            with context.create_browser(Queue(name)) as browser:
                return sorted(message.get_body(str) for message in browser)

        turn = 0
        while left:
            several = len(left) > 1
            ends = [*worker.ends, "kill", "cut", *(["return"] if several else [])]
            end = ends[turn % len(ends)]
            turn += 1
            # One that returns needs a second message, should the first become a dead letter.
            handle = chance.randint(0, 1) if several and end != "return" else 0
            handled, in_work = _run(worker, relay, end, prefetch, handle)
            for body in handled:
                del left[body]
            for body in in_work:
                left[body] += 1
                if left[body] == _MOST:
                    dead.append(body)
                    del left[body]
            _await(waiting, QUEUE, sorted(left), end)
            _await(waiting, _DEAD, sorted(dead), end)


def _run(worker: Worker, relay: Relay, end: str, prefetch: int, handle: int) -> tuple[list[str], list[str]]:
    """Run a worker. Returns what it has handled, and what it had in work."""
    environment = {
        **os.environ, **worker.environment, "BROKER_URL": f"{worker.scheme}://127.0.0.1:{relay.port}",
        "PREFETCH": str(prefetch), "HANDLE": str(handle), "END": end,
    }  # fmt: skip
    process = subprocess.Popen(
        [str(word) for word in worker.command], env=environment, text=True, stdin=subprocess.PIPE,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    deadline = threading.Timer(_LONGEST, process.kill)
    deadline.start()
    handled: list[str] = []
    in_work: list[str] = []
    expected = 2 if end == "return" else 1
    try:
        assert process.stdout is not None
        assert process.stdin is not None
        for line in process.stdout:
            word, _, body = line.strip().partition(" ")
            if word == "handled":
                handled.append(body)
            elif word == "working":
                in_work.append(body)
                if end in ("cut", "return") and len(in_work) == 1:
                    relay.cut()
                if len(in_work) == expected:
                    break
                process.stdin.write("\n")
                process.stdin.flush()
        _, errors = process.communicate("\n")
    finally:
        deadline.cancel()
        process.kill()
        process.wait()
    if len(in_work) < expected:
        raise AssertionError(f"{end}: the worker ended without a message in work: {errors[-300:]}")
    return handled, in_work


def _await(waiting: Callable[[str], list[str]], queue: str, expected: list[str], end: str) -> None:
    """Wait until these messages wait in a queue: the broker has to notice the end of a worker."""
    pause, latest = threading.Event(), time.monotonic() + 20
    while (found := waiting(queue)) != expected:
        if time.monotonic() > latest:
            raise AssertionError(f"after {end}: {queue} has {found}, not {expected}")
        pause.wait(0.05)
