"""What the process takes of its machine."""

from __future__ import annotations

import mmap
import os
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from sievemq_broker import logs
from sievemq_broker.server.watch.memory import machine_limit

_PROC: Final = Path("/proc/self")

log = logs.get("server")


@dataclass(frozen=True, slots=True)
class Resources:
    """What the process takes now; 0 for what this system does not tell.

    Attributes:
        memory_bytes: resident memory.
        memory_limit: bytes that it may have: of its container, or the machine's memory.
        files: open file descriptors, of which each connection takes one.
        files_limit: how many it may have.
        cpu_seconds: processor time since its start.
    """

    memory_bytes: int
    memory_limit: int
    files: int
    files_limit: int
    cpu_seconds: float


def read_resources(proc: Path = _PROC) -> Resources:
    """The resources now.

    Args:
        proc: what the kernel tells of this process.
    """
    try:
        memory = int((proc / "statm").read_text(encoding="ascii").split()[1]) * mmap.PAGESIZE
        files = len(os.listdir(proc / "fd"))  # noqa: PTH208  a path for each takes twice the time
    except (OSError, ValueError):  # no Linux
        memory = files = 0
    return Resources(memory, machine_limit(), files, _files_limit(), time.process_time())


def _files_limit() -> int:
    if sys.platform == "win32":
        return 0
    import resource

    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return 0 if limit == resource.RLIM_INFINITY else limit


def raise_file_limit(connections: int) -> None:
    """Ask for as many file descriptors as connections may come; a soft limit of 1024 is the usual default."""
    if sys.platform == "win32":
        return
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = connections + 256
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return
    allowed = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
    except (OSError, ValueError):
        allowed = soft
    if allowed < wanted:
        log.warning("broker.few_files", files=allowed, max_connections=connections, note="raise the limit (ulimit -n)")
