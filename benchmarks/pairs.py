"""This tree beside another one, in turn: for a machine that others use, too.

What the machine does to a block it does to the next one as well, so the median of the pairs' ratios says what a change
brought when rates of single runs say nothing. Processor time is that of all threads, as Linux' scheduler counts it.

python -m benchmarks.pairs FOLDER_OF_THE_OTHER_TREE [--what request,send,correlate] [--calls 100] [--pairs 40]
python -m benchmarks.pairs FOLDER_OF_THE_OTHER_TREE --what W1,W4 --pairs 10 [--compiled] [--api aio]

Calls: broker and clients of both trees are alive at the same time, and each block is a hundred calls.

    request     request and reply, NON_PERSISTENT (W2)
    listen      the same; the responder has a listener
    send        a PERSISTENT send, confirmed
    correlate   open a consumer for a correlation id, receive, close (W6), from a queue of 20,000

Workloads, W1 to W6: each block is a whole run of ``make bench`` with processes of its own, by the Python of each tree
(`make venv` there); ``--compiled`` measures the compiled builds (`make venv-compiled`).
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

if __name__ == "__main__":  # run by path as a part: its own folder must not be searched
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from benchmarks.macro.processes import ROLE, Broker, run_workload
from benchmarks.workloads import DEFAULT_COUNTS, Job, body_of, properties_of

HERE = Path(__file__).resolve()
KINDS = ("request", "listen", "send", "correlate")
#: The column of which more is better; all others are microseconds.
RATE = "per second"
BACKLOG = 20_000
WARM = 200


class Tree:
    """A broker and its clients, run from one tree."""

    def __init__(self, folder: Path, kind: str) -> None:
        packages = [str(folder / name) for name in ("core", "client", "broker", "testkit")]
        os.environ["PYTHONPATH"] = os.pathsep.join(packages)
        self.broker = Broker()
        parts = ["caller"] if kind in ("send", "correlate") else ["responder", "caller"]
        self.parts = {part: self._start(part, kind) for part in parts}
        self.rows: list[dict[str, float]] = []

    def _start(self, part: str, kind: str) -> subprocess.Popen[str]:
        command = [sys.executable, str(HERE), "--part", part, "--what", kind, self.broker.url]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        if process.stdout.readline() != "READY\n":
            raise RuntimeError(f"the {part} ended with its start")
        return process

    def run(self, calls: int) -> None:
        """One block."""
        before = self._spent()
        caller = self.parts["caller"]
        assert caller.stdin is not None
        assert caller.stdout is not None
        caller.stdin.write(f"{calls}\n")
        caller.stdin.flush()
        row: dict[str, float] = json.loads(caller.stdout.readline())
        spent = {name: (after - before[name]) / calls / 1e3 for name, after in self._spent().items()}
        self.rows.append({**row, **spent, "all": sum(spent.values())})

    def _spent(self) -> dict[str, int]:
        processes = {name: part.pid for name, part in self.parts.items()} | {"broker": self.broker.process.pid}
        return {name: processor_ns(pid) for name, pid in processes.items()}

    def stop(self) -> None:
        for part in self.parts.values():
            part.kill()
            part.wait()
        self.broker.stop()


def processor_ns(pid: int) -> int:
    return sum(int((task / "schedstat").read_text().split()[0]) for task in Path(f"/proc/{pid}/task").iterdir())


def respond(context: Any, listening: bool) -> None:
    """Answer requests until killed."""
    from sievemq import BytesMessage, DeliveryMode

    producer = context.create_producer().set_delivery_mode(DeliveryMode.NON_PERSISTENT)
    consumer = context.create_consumer(context.create_queue("requests"))

    def answer(request: Any) -> None:
        reply = BytesMessage(request.get_body(bytes))
        reply.set_jms_correlation_id(request.get_jms_message_id())
        producer.send(request.get_jms_reply_to(), reply)

    if listening:
        consumer.set_message_listener(answer)
    print("READY", flush=True)
    if listening:
        threading.Event().wait()
    for request in consumer:
        answer(request)


def call_of(context: Any, kind: str) -> Callable[[int], Any]:
    """What is done again and again."""
    from sievemq import BytesMessage, DeliveryMode

    queue, producer = context.create_queue("messages"), context.create_producer()
    if kind == "send":
        return lambda number: producer.send(queue, BytesMessage(body_of(number, 256)))
    producer.set_delivery_mode(DeliveryMode.NON_PERSISTENT)
    if kind == "correlate":
        for number in range(BACKLOG):
            message = BytesMessage(body_of(number, 256))
            message.set_jms_correlation_id(f"c{number}")
            producer.send(queue, message)

        def take(number: int) -> None:
            with context.create_consumer(queue, f"JMSCorrelationID = 'c{number}'") as consumer:
                assert consumer.receive(10_000) is not None

        return take
    requests, replies = context.create_queue("requests"), context.create_temporary_queue()
    consumer = context.create_consumer(replies)

    def call(number: int) -> None:
        message = BytesMessage(body_of(number, 256))
        for name, value in properties_of("W2", number).items():
            message.set_object_property(name, value)
        message.set_jms_reply_to(replies)
        producer.send(requests, message)
        assert consumer.receive(10_000) is not None

    return call


def play(part: str, kind: str, url: str) -> None:
    """A part in a process of its own: a number on its input is a block of so many calls."""
    from sievemq import ConnectionFactory

    with ConnectionFactory(url).create_context() as context:
        if part == "responder":
            respond(context, kind == "listen")
        call, done = call_of(context, kind), 0
        for done in range(WARM):
            call(done)
        print("READY", flush=True)
        for line in sys.stdin:
            times = []
            for _ in range(int(line)):
                done += 1
                start = time.perf_counter()
                call(done)
                times.append((time.perf_counter() - start) * 1e6)
            times.sort()
            print(json.dumps({"p50": times[len(times) // 2], "p10": times[len(times) // 10]}), flush=True)


def compare(other: Path, kind: str, calls: int, pairs: int) -> None:
    """Measure, and print medians, the best block, and the median of the pairs' ratios."""
    trees: list[Tree] = []
    try:
        for folder in (other, HERE.parents[1]):
            trees.append(Tree(folder, kind))
        for pair in range(pairs):
            for tree in trees if pair % 2 else trees[::-1]:
                tree.run(calls)
    finally:
        for tree in trees:
            tree.stop()
    print(f"\n{kind}: µs a call; median (best) of {pairs} blocks of {calls}")
    report(trees[0].rows, trees[1].rows)


def compare_runs(other: Path, workload: str, api: str, compiled: bool, pairs: int) -> None:
    """Run a workload in turn in both trees, and print as :func:`compare`."""
    rows: dict[Path, list[dict[str, float]]] = {other: [], HERE.parents[1]: []}
    for pair in range(pairs):
        for folder in rows if pair % 2 else reversed(rows):
            rows[folder].append(_run(folder, workload, api, compiled, f"p{pair}"))
    print(f"\n{workload}, {api}: messages a second, and µs of processor time; median (best) of {pairs} runs")
    report(*rows.values())


def _run(folder: Path, workload: str, api: str, compiled: bool, run: str) -> dict[str, float]:
    python = str(folder / (".venv-compiled" if compiled else ".venv") / "bin" / "python")

    def command(job: Job) -> list[str]:
        return [python, str(ROLE), json.dumps(job)]

    with Broker(python=python) as broker:
        row = run_workload(broker, workload, DEFAULT_COUNTS[workload], 256, api, run, command)
    spent: dict[str, float] = row["us_per_message"]
    return {RATE: row["msgs_per_s"], **spent, "all": sum(spent.values())}


def report(was: list[dict[str, float]], now: list[dict[str, float]]) -> None:
    for column in was[0]:
        best = max if column == RATE else min
        blocks = [[row[column] for row in rows] for rows in (was, now)]
        ratio = statistics.median(b / a for a, b in zip(*blocks, strict=True))
        before, after = (f"{statistics.median(of):,.1f} ({best(of):,.1f})" for of in blocks)
        print(f"  {column:10} other {before:24} this {after:24} ratio {ratio:.3f}", flush=True)


def main() -> None:
    """Parse arguments; compare, or play a part."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.pairs", description="this tree beside another one")
    parser.add_argument("other", help="folder of the other tree")
    parser.add_argument("--what", default=",".join(KINDS), help="comma-separated; all by default")
    parser.add_argument("--calls", type=int, default=100, help="calls of a block (100)")
    parser.add_argument("--pairs", type=int, default=40, help="pairs of blocks (40)")
    parser.add_argument(
        "--api", default="blocking", choices=("blocking", "aio"), help="the SDK of a workload (blocking)"
    )
    parser.add_argument("--compiled", action="store_true", help="of a workload: the compiled builds")
    parser.add_argument("--part", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if unknown := set(arguments.what.split(",")) - {*KINDS, *DEFAULT_COUNTS}:
        parser.error(f"nothing called {', '.join(sorted(unknown))}; there are {', '.join((*KINDS, *DEFAULT_COUNTS))}")
    if arguments.part:
        play(arguments.part, arguments.what, arguments.other)
        return
    for kind in arguments.what.split(","):
        if kind in DEFAULT_COUNTS:
            compare_runs(Path(arguments.other).resolve(), kind, arguments.api, arguments.compiled, arguments.pairs)
            continue
        if kind == "correlate" and WARM + arguments.calls * arguments.pairs >= BACKLOG:
            parser.error(f"a backlog of {BACKLOG} is too small for {arguments.pairs} blocks of {arguments.calls} calls")
        compare(Path(arguments.other).resolve(), kind, arguments.calls, arguments.pairs)


if __name__ == "__main__":
    main()
