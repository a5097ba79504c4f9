"""Load on a broker for a bounded time: workers in threads, what they measured, and showing it."""

from __future__ import annotations

import sys
import threading
from array import array
from collections.abc import Callable, Sequence
from functools import partial
from time import monotonic
from typing import Any, Final

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from sievemq.cli.show import json_line
from sievemq_core.output import report

#: Seconds between two updates of the progress bar.
_INTERVAL: Final = 0.1
#: Seconds that workers get to end once they are to stop, before their connections are closed.
_PATIENCE: Final = 1.0
_PERCENTILES: Final = (50, 90, 99)


class Meter:
    """What one worker does and measures. Only its thread calls it.

    Args:
        load: whose.
        count: of operations; 0 for no limit.
        interval: seconds between the beginnings of two; 0 for none.
    """

    def __init__(self, load: Load, count: int, interval: float) -> None:
        self._load = load
        self._left = count or -1
        self._interval = interval
        self._next = 0.0
        self.done = 0
        self.latencies = array("d")

    def goes_on(self) -> bool:
        """True if another operation is wanted; waits for its time."""
        if self._left == 0 or not self._load.goes_on():
            return False
        wait = self._next - monotonic()
        return wait <= 0 or not self._load.stopped(wait)

    def at_most(self, messages: int) -> int:
        """So many messages, or as many as are left."""
        return messages if self._left < 0 else min(messages, self._left)

    def note(self, latency: float | None, messages: int = 1) -> None:
        """So many messages are done.

        Args:
            latency: seconds of the operation; None for one that does not count.
        """
        self.done += messages
        if self._left > 0:
            self._left -= messages
        if self._interval:
            now = monotonic()
            self._next = max(self._next or now, now - _INTERVAL) + self._interval * messages
        if latency is not None:
            self.latencies.append(latency)


class Load:
    """A run of workers.

    Args:
        count: operations of all together; 0 for no limit.
        seconds: after which it ends.
        rate: operations in a second of all together; 0 for as many as go.
        workers: how many share these.
    """

    def __init__(self, count: int, seconds: float, rate: float, workers: int) -> None:
        self._count, self._seconds = count, seconds
        self._stop = threading.Event()
        self._begun = self._ends = monotonic()
        self._failure: Exception | None = None
        shares = [(count + n) // workers for n in range(workers)] if count else [0] * workers
        self.meters = [Meter(self, share, workers / rate if rate else 0.0) for share in shares]
        self._busy = [meter for meter, share in zip(self.meters, shares, strict=True) if share or not count]
        self.interrupted = False
        self.seconds = 0.0

    def goes_on(self) -> bool:
        """True until it is to end."""
        return not self._stop.is_set() and monotonic() < self._ends

    def stopped(self, seconds: float) -> bool:
        """Wait so long, or to the end; True if it is to end."""
        return self._stop.wait(max(0.0, min(seconds, self._ends - monotonic()))) or not self.goes_on()

    @property
    def done(self) -> int:
        """Operations of all workers so far."""
        return sum([meter.done for meter in self.meters])

    def run(
        self, work: Callable[[Meter], None], end: Callable[[], None], others: Sequence[Callable[[], None]] = ()
    ) -> None:
        """Run the workers to the end, or until Ctrl-C.

        Args:
            work: what each does, in a thread of its own.
            end: called if they do not end by themselves: it closes their connections.
            others: run in threads beside the workers; they return once :meth:`goes_on` is false and nothing is left.

        Raises:
            Exception: what a worker raised.
        """
        self._begun = monotonic()
        self._ends = self._begun + self._seconds
        workers = [self._thread(partial(work, meter)) for meter in self._busy]
        helpers = [self._thread(other) for other in others]
        try:
            self._watch(workers)
        except KeyboardInterrupt:
            self.interrupted = True
        self.seconds = monotonic() - self._begun
        self._stop.set()
        _join([*workers, *helpers], _PATIENCE)
        if any(thread.is_alive() for thread in (*workers, *helpers)):
            end()
            _join([*workers, *helpers], _PATIENCE)
        if self._failure is not None:
            raise self._failure

    def _thread(self, run: Callable[[], None]) -> threading.Thread:
        def guarded() -> None:
            try:
                run()
            except Exception as error:
                if not self._stop.is_set():
                    self._failure = self._failure or error
                    self._stop.set()

        thread = threading.Thread(target=guarded, daemon=True)
        thread.start()
        return thread

    def _watch(self, threads: Sequence[threading.Thread]) -> None:
        with Progress(
            TextColumn("{task.fields[rate]}"), BarColumn(), TimeElapsedColumn(),
            console=Console(stderr=True), transient=True, disable=not sys.stderr.isatty(),
        ) as progress:  # fmt: skip
            task = progress.add_task("", total=1.0, rate="")
            while any(thread.is_alive() for thread in threads) and monotonic() < self._ends + _PATIENCE:
                _join(threads, _INTERVAL)
                elapsed = monotonic() - self._begun
                part = max(elapsed / self._seconds, self.done / self._count if self._count else 0.0)
                progress.update(task, completed=part, rate=f"{self.done / elapsed:,.0f}/s" if elapsed else "")


def _join(threads: Sequence[threading.Thread], seconds: float) -> None:
    ends = monotonic() + seconds
    for thread in threads:
        thread.join(max(0.0, ends - monotonic()))


def print_result(load: Load, what: str, latency: str, as_json: bool, more: dict[str, Any] | None = None) -> None:
    """Print what was measured.

    Args:
        what: it did: "sent".
        latency: what the latencies are of.
        more: rates beside that, by name.
    """
    seconds = load.seconds or _INTERVAL
    latencies = sorted(each for meter in load.meters for each in meter.latencies)
    found = {f"p{each}": _at(latencies, each) for each in _PERCENTILES}
    found["max"] = latencies[-1] if latencies else 0.0
    if as_json:
        report(
            json_line(
                {
                    "messages": load.done,
                    "seconds": round(seconds, 3),
                    "rate": round(load.done / seconds, 1),
                    **(more or {}),
                    "latency_ms": {name: round(value * 1000, 3) for name, value in found.items()},
                    "interrupted": load.interrupted,
                }
            )
        )
        return
    report(f"{load.done:,} {what} in {seconds:.1f} s: {load.done / seconds:,.0f}/s")
    for name, value in (more or {}).items():
        report(f"{name.replace('_', ' ')}: {value:,}")
    if latencies:
        report(f"{latency}: " + ", ".join(f"{name} {value * 1000:.2f} ms" for name, value in found.items()))


def _at(latencies: Sequence[float], percent: int) -> float:
    return latencies[min(len(latencies) - 1, len(latencies) * percent // 100)] if latencies else 0.0
