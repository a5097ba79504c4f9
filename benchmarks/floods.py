"""How long others wait while somebody floods the broker.

python -m benchmarks.floods [--rows commit,websocket] [--durable | --memory] [--scale 1.0] [--json]

Each flood has a broker of its own, once in memory and once with a data directory, and comes from clients without an SDK
(doors.py), from bytes that were made beforehand. Meanwhile an uninvolved process has connections to another namespace,
one for each of PROBES, and makes one round trip after the other. A wait is given by the clock, and behind it the
processor time that the broker used during a wait, since by the clock it is longer wherever other processes have the
processors. A turn of the broker's loop is given in processor time of its thread. What is above a limit is bold.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

if __name__ == "__main__":  # run by path as a part: its own folder must not be searched
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from benchmarks.doors import MARK, WAIT_S, Amqp, Door, Http, Place, Sieve, Stomp
from benchmarks.flood_rows import FLOODS
from benchmarks.machine import calibrate_ms, resident_mb
from benchmarks.macro.processes import free_port
from sievemq_core.wire.commands import Command

#: Milliseconds that others may wait, and a turn of the loop may take.
LIMITS = {"memory": 30.0, "durable": 60.0}
TURN_MS = 10.0

#: Seconds between two looks at the loop, and between two round trips of the bystander.
_LOOK_S, _PAUSE_S = 0.001, 0.01


def measured(name: str, mode: str, scale: float = 1.0) -> dict[str, Any]:
    """One flood beside its bystander.

    Args:
        name: of a row.
        mode: "memory" or "durable".
        scale: of the number of messages and the like.

    Returns:
        Milliseconds: `wait_ms`, the longest of the round trips `waits`, which `slowest` was; `work_ms`, the broker's
        processor time during one; `quiet_ms`, the longest before the flood; `turn_ms`, the longest turn; `over`,
        the number of turns above TURN_MS; `overrun`, the most units by which a slice of a task has exceeded its budget;
        `writes` to the disk; `grown_mb` of the broker's memory; the `note` of the row; `error` where the flood did not
        end.
    """
    found: dict[str, Any] = {"row": name, "mode": mode, "load": os.getloadavg()[0]}
    with ExitStack() as stack:
        stack.callback(Door.close_all)
        folder = [stack.enter_context(tempfile.TemporaryDirectory())] if mode == "durable" else []
        at = Place(free_port(), free_port())
        broker = _start(stack, "broker", str(at.port), str(at.http_port), *folder)
        steps = FLOODS[name].play(at, scale)
        try:
            with _limited(broker):
                next(steps)
            bystander = _start(stack, "bystander", str(at.port), str(at.http_port), str(broker.pid))
            time.sleep(0.5)
            found["quiet_ms"] = max(wait for wait, _ in _told(bystander, signal.SIGUSR1).values())
            _told(broker, signal.SIGUSR1)  # from here on it counts
            begin, memory = time.monotonic(), resident_mb(broker.pid)
            with _limited(broker):
                found["note"] = next(steps, None)
            time.sleep(0.1)  # round trips that wait have ended
        except (OSError, ConnectionError) as error:
            found["error"] = f"ended after {WAIT_S:g} s" if broker.poll() is not None else repr(error)
        if "quiet_ms" in found:
            found["seconds"] = round(time.monotonic() - begin, 2)
            found["waits"] = waits = _told(bystander, signal.SIGUSR1)
            found["slowest"] = max(waits, key=waits.__getitem__)
            found["wait_ms"], found["work_ms"] = (max(column) for column in zip(*waits.values(), strict=True))
        if "seconds" in found and broker.poll() is None:
            found["grown_mb"] = round(resident_mb(broker.pid) - memory)
            found |= _told(broker, signal.SIGUSR1)
    return found


class _limited:  # noqa: N801 - used as a function
    """Kill the broker if what is inside takes longer than WAIT_S: its clients see that."""

    def __init__(self, broker: subprocess.Popen[str]) -> None:
        self._timer = threading.Timer(WAIT_S, broker.kill)

    def __enter__(self) -> None:
        self._timer.start()

    def __exit__(self, *_: object) -> None:
        self._timer.cancel()


def _start(stack: ExitStack, part: str, *options: str) -> subprocess.Popen[str]:
    command = [sys.executable, str(Path(__file__).resolve()), "--part", part, *options]
    process = stack.enter_context(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
    stack.callback(process.kill)
    assert process.stdout is not None
    if process.stdout.readline() != "READY\n":
        raise RuntimeError(f"the {part} did not start")
    return process


def _told(process: subprocess.Popen[str], number: int) -> dict[str, Any]:
    process.send_signal(number)
    assert process.stdout is not None
    found: dict[str, Any] = json.loads(process.stdout.readline())
    return found


# -- the broker --------------------------------------------------------------------------------------------------------


class Loop:
    """The turns of a loop, measured from outside: a callback every millisecond sees what the loop's thread has used
    since the last one. That is the longest turn, and up to a millisecond of others."""

    def __init__(self, loop: Any) -> None:
        self._loop = loop
        self._last = 0.0
        self.longest, self.over = 0.0, 0
        loop.call_soon(self._look)

    def _look(self) -> None:
        now = time.thread_time()
        took = (now - self._last) * 1e3
        self._last = now
        self.longest = max(self.longest, took)
        self.over += took > TURN_MS
        self._loop.call_later(_LOOK_S, self._look)

    def reset(self) -> None:
        self.longest, self.over = 0.0, 0


def overrun(server: Any) -> int | None:
    """The most units by which a slice of a task has exceeded its budget; None for a broker without a scheduler."""
    shard = getattr(server, "shard", None)
    return None if shard is None else getattr(shard.broker.scheduler, "overrun", None)


def _broker(at: Place, data_dir: str | None) -> None:
    """A broker that says what its turns took since it was last asked."""
    from sievemq_broker.config import Settings
    from sievemq_broker.server import process

    servers: list[Any] = []
    loops: list[Loop] = []
    bind, new_event_loop = process.bind, process.new_event_loop

    def bound(server: Any) -> Any:
        servers.append(server)
        return bind(server)

    def timed() -> Any:
        loop = new_event_loop()
        loops.append(Loop(loop))
        return loop

    def tell(*_: object) -> None:
        [server], [loop] = servers, loops
        commits = server.shard.commits
        writes = 0 if commits is None else commits.writes
        found = {"turn_ms": round(loop.longest, 1), "over": loop.over, "writes": writes - told[0]}
        found["overrun"] = overrun(server)
        told[0] = writes
        loop.reset()
        print(json.dumps(found), flush=True)

    told = [0]
    for name, function in (("bind", bound), ("new_event_loop", timed)):
        setattr(process, name, function)
    signal.signal(signal.SIGUSR1, tell)
    threading.Thread(target=_say_ready, args=(at.http_port,), daemon=True).start()
    settings = Settings(
        port=at.port, http_port=at.http_port, data_dir=data_dir, heartbeat_seconds=0, log_level="error"
    )  # fmt: skip
    sys.exit(process.run(settings))


def _say_ready(http_port: int) -> None:
    """Once it serves HTTP, too, and has laid that aside for its garbage collector, its start is over."""
    while True:
        try:
            for path in ("readyz", "metrics", "api/v1/broker"):  # the latter load modules
                with urllib.request.urlopen(f"http://127.0.0.1:{http_port}/{path}", timeout=5):
                    pass
        except OSError:
            time.sleep(0.05)
        else:
            time.sleep(0.5)
            print("READY", flush=True)
            return


# -- the bystander -----------------------------------------------------------------------------------------------------


def _echo(at: Place, door: type[Door]) -> Callable[[], object]:
    """A NON_PERSISTENT message that comes back."""
    client = door(at, "other")
    address = f"queue:{door.name}"
    client.subscribe(address)
    return lambda: client.flood(client.sends(address, persistent=False), MARK)


def _receive_no_wait(at: Place) -> Callable[[], object]:
    client = Sieve(at, "other")
    client.flood(
        client.said(Command.OPEN_CONSUMER, 1, 1, 1, "queue:empty", None, None, False, None, False, False, 0, 0)
    )
    return lambda: client.flood(client.said(Command.WANT, 2, 1))


def _confirmed(at: Place) -> Callable[[], object]:
    """A PERSISTENT message whose receipt comes once it is on disk."""
    client = Stomp(at, "other")
    return lambda: client.flood(client.sends("topic:nobody"))


def _livez(at: Place) -> Callable[[], object]:
    client = Http(at)
    return lambda: client.flood(client.nothing, b'"status"')


#: What the bystander does, by name: makes a connection, and returns its round trip.
PROBES: dict[str, Callable[[Place], Callable[[], object]]] = {
    "echo": lambda at: _echo(at, Sieve),
    "receive_no_wait": _receive_no_wait,
    "heartbeat": lambda at: Sieve(at, "other").ask,
    "stomp": lambda at: _echo(at, Stomp),
    "amqp": lambda at: _echo(at, Amqp),
    "confirmed": _confirmed,
    "livez": _livez,
}


class Waits:
    """The longest wait of each round trip, unfinished ones too, and the longest work of the broker in one.

    Args:
        worked: seconds of processor time that the broker has used.
        clock: seconds.
    """

    def __init__(self, worked: Callable[[], float], clock: Callable[[], float] = time.monotonic) -> None:
        self._worked = worked
        self._clock = clock
        self._longest = dict.fromkeys(PROBES, (0.0, 0.0))
        self._begun: dict[str, tuple[float, float]] = {}

    def repeat(self, name: str, act: Callable[[], object]) -> None:
        """Make round trips until the connection ends."""
        with suppress(OSError):
            while True:
                self._begun[name] = self._clock(), self._worked()
                act()
                self._end(name)
                del self._begun[name]
                time.sleep(_PAUSE_S)

    def _end(self, name: str) -> None:
        (wait, work), (begin, before) = self._longest[name], self._begun[name]
        self._longest[name] = max(wait, self._clock() - begin), max(work, self._worked() - before)

    def take(self) -> dict[str, tuple[float, float]]:
        """Milliseconds by name, since the last call."""
        for name in tuple(self._begun):
            with suppress(KeyError):  # it has ended meanwhile
                self._end(name)
        found = {name: (round(wait * 1e3, 1), round(work * 1e3, 1)) for name, (wait, work) in self._longest.items()}
        self._longest = dict.fromkeys(PROBES, (0.0, 0.0))
        return found


def processor_time(pid: int) -> Callable[[], float]:
    """What reads the processor time of another process; 0.0 where the system has no such clock."""
    clock = ~pid << 3 | 2  # Linux: CPUCLOCK_SCHED of the process

    def read() -> float:
        try:
            return time.clock_gettime(clock)
        except OSError:  # another system, or the process has ended
            return 0.0

    return read


def _hurry() -> None:
    """Run before all other processes, where that is allowed: what the bystander waits for is the broker alone."""
    with suppress(AttributeError, PermissionError):
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))


def _bystander(at: Place, pid: int) -> None:
    _hurry()
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})  # threads inherit that
    waits = Waits(processor_time(pid))
    for name, connect in PROBES.items():
        threading.Thread(target=waits.repeat, args=(name, connect(at)), daemon=True).start()
    print("READY", flush=True)
    while signal.sigwait({signal.SIGUSR1}):
        print(json.dumps(waits.take()), flush=True)


# -- the table ---------------------------------------------------------------------------------------------------------


def line(title: str, found: dict[str, dict[str, Any]]) -> str:
    """A row of the table.

    Args:
        title: of the row.
        found: by mode.
    """

    def cell(mode: str) -> str:
        one = found.get(mode)
        if one is None:
            return ""
        if "wait_ms" not in one:
            return str(one["error"])
        wait, work = (marked(one[name], LIMITS[mode]) for name in ("wait_ms", "work_ms"))
        text = f"{wait} ({work}) {one['slowest']}"
        return f"{text}, {one['error']}" if "error" in one else text

    turns = [one["turn_ms"] for one in found.values() if "turn_ms" in one]
    notes = [f"{mode}: {one['note'].format(**one)}" for mode, one in found.items() if one.get("note")]
    turn = marked(max(turns), TURN_MS) if turns else ""
    return f"| {title} | {cell('memory')} | {cell('durable')} | {turn} | {'; '.join(notes)} |"


def marked(value: float, limit: float) -> str:
    text = f"{value:,.0f}" if value >= 10 else f"{value:.1f}"
    return f"**{text}**" if value > limit else text


def chosen(text: str) -> list[str]:
    """The rows whose names contain one of these words.

    Raises:
        SystemExit: none does.
    """
    names = [name for name in FLOODS if any(word in name for word in text.split(","))]
    if not names:
        raise SystemExit(f"no row is called {text}; there are {', '.join(FLOODS)}")
    return names


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description="how long others wait while somebody floods the broker")
    parser.add_argument("--rows", default="", help=f"those whose names contain one of these words: {', '.join(FLOODS)}")
    parser.add_argument("--scale", type=float, default=1.0, help="of the number of messages and the like")
    for mode in LIMITS:
        help_text = "only in memory" if mode == "memory" else "only with a data directory"
        parser.add_argument(f"--{mode}", dest="modes", action="append_const", const=mode, help=help_text)
    parser.add_argument("--json", action="store_true", help="all figures, one flood a line")
    parser.add_argument("--part", nargs="+", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.part:
        part, port, http_port, *more = options.part
        at = Place(int(port), int(http_port))
        _broker(at, more[0] if more else None) if part == "broker" else _bystander(at, int(more[0]))
        return
    if not options.json:
        print(f"calibration {calibrate_ms()} ms, {os.cpu_count()} processors, load {os.getloadavg()[0]:.1f}\n")
        titles = ("flood", "wait ms in memory", "wait ms durable", "longest turn ms", "more")
        print(f"| {' | '.join(titles)} |\n|{'---|' * len(titles)}")
    for name in chosen(options.rows):
        found = {}
        for mode in options.modes or LIMITS:
            found[mode] = measured(name, mode, options.scale)
            if options.json:
                print(json.dumps(found[mode]), flush=True)
        if not options.json:
            print(line(f"{name}: {FLOODS[name].title}", found), flush=True)


if __name__ == "__main__":
    main()
