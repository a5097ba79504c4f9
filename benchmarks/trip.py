"""The system calls of one request and its reply (W2), at each of the three processes, for SieveMQ and for peers.

    python -m benchmarks.trip                              both SDKs
    python -m benchmarks.trip --peers sievemq,nats,redis   beside other brokers, which peers/README.md describes

Each part runs twice under strace, with N and with twice as many trips. The difference, by N, leaves out what a process
does once. Counts do not depend on the load of the machine, except that a part which is late may wait once more.
"""

from __future__ import annotations

import argparse
import signal
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from benchmarks.macro.processes import Broker, Server, run_workload
from benchmarks.peers.catalogue import OURS, PEERS
from benchmarks.workloads import Job

#: Columns of the table, and the system calls that each sums.
COLUMNS = {
    "reads": {"read", "readv", "recv", "recvfrom", "recvmsg"},
    "writes": {"write", "writev", "send", "sendto", "sendmsg"},
    "waits": {"poll", "ppoll", "select", "pselect6", "epoll_wait", "epoll_pwait", "epoll_pwait2"},
    "futex": {"futex"},
}
PARTS = ("request", "broker", "respond")


def _strace(file: Path, *more: str) -> list[str]:
    return ["strace", "-f", "-c", "-qq", "-U", "calls,name", "-o", str(file), *more]


def _counts(file: Path) -> Counter[str]:
    """Calls by name, from the summary that strace has written."""
    deadline = time.monotonic() + 20
    while "total" not in (text := file.read_text() if file.exists() else ""):
        if time.monotonic() > deadline:
            raise RuntimeError(f"strace wrote no summary: {text}")
        time.sleep(0.05)
    rows = [line.split() for line in text.splitlines()]
    return Counter({row[1]: int(row[0]) for row in rows if len(row) == 2 and row[0].isdigit() and row[1] != "total"})


def _run(name: str, n: int, folder: Path) -> dict[str, Counter[str]]:
    peer = PEERS[name]

    def command(job: Job) -> Sequence[str]:
        return [*_strace(folder / f"{job['role']}.{n}", "-D"), *peer.command(job)]

    server: Server = Broker() if name in OURS else peer.start("W2")
    with server:
        file = folder / f"broker.{n}"
        tracer = subprocess.Popen(_strace(file, "-p", str(server.process.pid)))
        try:
            time.sleep(0.5)
            run_workload(server, "W2", n, 256, name, f"t{n}", command)
        finally:
            tracer.send_signal(signal.SIGINT)
            tracer.wait(20)
    return {part: _counts(folder / f"{part}.{n}") for part in PARTS}


def measure(name: str, n: int) -> list[str]:
    """A row of the table for each process."""
    with tempfile.TemporaryDirectory() as text:
        folder = Path(text)
        less, more = _run(name, n, folder), _run(name, 2 * n, folder)
    lines = []
    for part in PARTS:
        each = {call: (more[part][call] - less[part][call]) / n for call in more[part]}
        sums = [sum(each.get(call, 0) for call in calls) for calls in COLUMNS.values()]
        other = {call: count for call, count in each.items() if not any(call in calls for calls in COLUMNS.values())}
        named = ", ".join(f"{call} {count:.1f}" for call, count in sorted(other.items()) if count >= 0.05)
        cells = [name if part == PARTS[0] else "", part, *(f"{value:.2f}" for value in sums), named]
        lines.append(f"| {' | '.join(cells)} | {sum(each.values()):.1f} |")
    return lines


def main() -> None:
    """Measure, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peers", default=",".join(OURS), help="names, with commas between")
    parser.add_argument("-n", type=int, default=500, help="trips of the shorter run")
    given = parser.parse_args()
    columns = ["", "process", *COLUMNS, "others", "all"]
    print(f"| {' | '.join(columns)} |\n|{' --- |' * len(columns)}")
    for name in given.peers.split(","):
        print("\n".join(measure(name, given.n)), flush=True)


if __name__ == "__main__":
    main()
