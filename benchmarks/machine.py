"""What a figure depends on: the machine, how fast it is right now, and what each process used."""

from __future__ import annotations

import os
import platform
import statistics
import sys
import time
from importlib import metadata
from pathlib import Path
from typing import Any

_TICKS = os.sysconf("SC_CLK_TCK")


def calibrate_ms() -> float:
    """Milliseconds of a fixed Python loop: rows carry it, because a shared machine is not equally fast all the time."""
    times = []
    for _ in range(3):
        start, table = time.perf_counter(), {}
        for i in range(200_000):
            table[i & 1023] = i * 3 + 1
        times.append((time.perf_counter() - start) * 1e3)
    return round(statistics.median(times), 2)


def cpu_seconds(pid: int) -> float:
    """CPU seconds, user and system, that a live process has used; 0.0 where the system does not tell."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / _TICKS


def processes_of(pid: int) -> list[int]:
    """A process and its descendants, parents first."""
    parents: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(stat.read_text().rpartition(")")[2].split()[1])
        except OSError:  # it has ended
            continue
        parents.setdefault(parent, []).append(int(stat.parent.name))
    found = [pid]
    for each in found:
        found.extend(parents.get(each, ()))
    return found


def resident_mb(pid: int) -> float:
    """Resident memory of a live process in megabytes; 0.0 where the system does not tell."""
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    except OSError:
        return 0.0
    return round(pages * os.sysconf("SC_PAGE_SIZE") / 1e6, 1)


def describe() -> dict[str, Any]:
    """The machine and the versions that matter, for the head of a result file."""
    from sievemq_core.compiled import COMPILED  # who runs the other brokers has a Python without SieveMQ

    versions = {}
    for name in ("sievemq", "msgpack", "uvloop"):
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            versions[name] = "not installed"
    return {
        "cpu": _cpu_model(),
        "cores": os.cpu_count(),
        "system": f"{platform.system()} {platform.release()}",
        "python": f"{platform.python_implementation()} {sys.version.split()[0]}",
        "build": "compiled" if COMPILED else "Python",
        "versions": versions,
    }


def _cpu_model() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()
