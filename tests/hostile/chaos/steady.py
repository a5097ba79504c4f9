"""Whether a broker stays as it is: memory, open files and latency, sampled all the time, the end beside the beginning.

Latency is that of a probe, a message that is sent, confirmed and received on a queue of its own; beside it that of as
many bytes to a plain echo and back, which tells a broker that has become slow from a machine that has.
"""

from __future__ import annotations

import os
import socket
import statistics
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from sievemq import ConnectionFactory, JMSContext, JMSRuntimeException

#: Seconds from one sample to the next, probes in one, and seconds from one probe to the next.
EVERY, PROBES, PAUSE = 3.0, 100, 0.01

#: What the last third may have more than the first one, in the median of its samples: times, and beyond that (bytes,
#: files, ms). The slowest message in a hundred waited for its turn on the machine: that says less than the median.
MEMORY = (1.15, 24 * 1024 * 1024)
DESCRIPTORS = (1.1, 16)
LATENCY = (2.0, 3.0)
SLOWEST = (4.0, 50.0)
STORED = (1.5, 48 * 1024 * 1024)

#: Fewer samples say nothing: they are those of a minute and a half.
LEAST = 27

#: Of the samples, how many at the start are left out: caches fill, and clients come.
WARM_UP = 0.1


class Sample(NamedTuple):
    """A look at a broker.

    Attributes:
        memory: resident bytes.
        descriptors: open files.
        latency: ms, median of the probes.
        slowest: ms, 99th percentile of the probes.
        echo, slowest_echo: ms, the same of the plain echo.
    """

    memory: int
    descriptors: int
    latency: float
    slowest: float
    echo: float
    slowest_echo: float


def judge(samples: list[Sample]) -> tuple[list[str], str]:
    """What has grown beyond its bounds, and a line that says how it was."""
    samples = samples[int(len(samples) * WARM_UP) :]
    if len(samples) < LEAST:
        return [], f"steady: {len(samples)} samples are too few to tell"
    third = len(samples) // 3

    def ends(of: Callable[[Sample], float]) -> tuple[float, float]:
        first, last = samples[:third], samples[-third:]
        return statistics.median(map(of, first)), statistics.median(map(of, last))

    memory, descriptors = ends(lambda sample: sample.memory), ends(lambda sample: sample.descriptors)
    latency, slowest = ends(lambda sample: sample.latency), ends(lambda sample: sample.slowest)
    echo, slowest_echo = ends(lambda sample: sample.echo), ends(lambda sample: sample.slowest_echo)
    wrong = [
        f"{what} grew: {first:,.1f} in the first third, {last:,.1f} in the last; {most:,.1f} would do"
        for what, (first, last), most in (
            ("memory (bytes)", memory, memory[0] * MEMORY[0] + MEMORY[1]),
            ("open files", descriptors, descriptors[0] * DESCRIPTORS[0] + DESCRIPTORS[1]),
            ("latency (ms)", latency, (latency[0] * LATENCY[0] + LATENCY[1]) * max(1.0, echo[1] / echo[0])),
            (
                "p99 of latency (ms)",
                slowest,
                (slowest[0] * SLOWEST[0] + SLOWEST[1]) * max(1.0, slowest_echo[1] / slowest_echo[0]),
            ),
        )
        if last > most
    ]
    line = (
        f"steady: {len(samples)} samples, first third and last: "
        f"memory {memory[0] / 1e6:.1f} and {memory[1] / 1e6:.1f} MB, "
        f"open files {descriptors[0]:.0f} and {descriptors[1]:.0f}, "
        f"median of a message {latency[0]:.2f} and {latency[1]:.2f} ms (of an echo {echo[0]:.2f} and {echo[1]:.2f}), "
        f"p99 {slowest[0]:.1f} and {slowest[1]:.1f} ms (of an echo {slowest_echo[0]:.1f} and {slowest_echo[1]:.1f})"
    )
    return wrong, line


class Life(NamedTuple):
    """A last look at a broker that is about to be killed.

    Attributes:
        memory: resident bytes.
        descriptors: open files.
        stored: bytes in its data directory.
    """

    memory: int
    descriptors: int
    stored: int


def look(pid: int, data: Path) -> Life:
    """How a broker is now."""
    return Life(resident(pid), open_files(pid), sum(path.stat().st_size for path in data.iterdir()))


def judge_lives(lives: list[Life]) -> tuple[list[str], str]:
    """What has grown beyond its bounds from life to life, for each begins with what the last one has left; and a line
    that says how it was."""
    lives = lives[int(len(lives) * WARM_UP) :]
    if len(lives) < LEAST:
        return [], f"steady: {len(lives)} lives are too few to tell"
    third = len(lives) // 3
    wrong, said = [], []
    for what, values, (times, more) in (
        ("memory (bytes)", [life.memory for life in lives], MEMORY),
        ("open files", [life.descriptors for life in lives], DESCRIPTORS),
        ("stored (bytes)", [life.stored for life in lives], STORED),
    ):
        first, last = statistics.median(values[:third]), statistics.median(values[-third:])
        most = first * times + more
        said.append(f"{what} {first:,.0f} and {last:,.0f}")
        if last > most:
            wrong.append(f"{what} grew: {first:,.1f} in the first third, {last:,.1f} in the last; {most:,.1f} would do")
    return wrong, f"steady: {len(lives)} lives, first third and last: {', '.join(said)}"


class Steady:
    """Samples a broker's process until it is stopped.

    Args:
        url: the broker's.
        pid: of its process.
    """

    def __init__(self, url: str, pid: int) -> None:
        self.samples: list[Sample] = []
        self.failure: BaseException | None = None
        self._url = url
        self._pid = pid
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="steady")
        self._thread.start()

    def stop(self) -> list[Sample]:
        """All samples."""
        self._over.set()
        self._thread.join()
        return self.samples

    def _run(self) -> None:
        try:
            ours, theirs = socket.socketpair()
            echoing = threading.Thread(target=_echo, args=(theirs,), name="echo")
            echoing.start()
            with ours, ConnectionFactory(self._url).create_context(JMSContext.AUTO_ACKNOWLEDGE) as context:
                self._sample_on(context, ours)
            echoing.join()
        except (JMSRuntimeException, OSError) as error:
            self.failure = error

    def _sample_on(self, context: JMSContext, echo: socket.socket) -> None:
        queue = context.create_queue("probe")
        producer, consumer = context.create_producer(), context.create_consumer(queue)
        while not self._over.is_set():
            begin = time.monotonic()
            times, plain = [], []
            for _ in range(PROBES):
                started = time.perf_counter()
                producer.send(queue, b"x" * 100)
                consumer.receive(60_000)
                between = time.perf_counter()
                echo.sendall(b"x" * 100)
                echo.recv(200)
                times.append(between - started)
                plain.append(time.perf_counter() - between)
                if self._over.wait(PAUSE):
                    return
            found = (_at(times, 50), _at(times, 99), _at(plain, 50), _at(plain, 99))
            self.samples.append(Sample(resident(self._pid), open_files(self._pid), *found))
            self._over.wait(max(0.0, begin + EVERY - time.monotonic()))


def resident(pid: int) -> int:
    """Resident bytes of a process."""
    pages = Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


def open_files(pid: int) -> int:
    """File descriptors of a process."""
    return sum(1 for _ in Path(f"/proc/{pid}/fd").iterdir())


def _at(times: list[float], percent: int) -> float:
    return sorted(times)[len(times) * percent // 100] * 1000.0


def _echo(end: socket.socket) -> None:
    with end:
        while data := end.recv(200):
            end.sendall(data)
