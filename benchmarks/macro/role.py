"""Plays one part of a run in its own process: ``role.py '<job as JSON>'``."""

from __future__ import annotations

import asyncio
import gc
import importlib
import inspect
import json
import os
import resource
import sys
from pathlib import Path

# Run by path, so that its place does not depend on where it is called from; its own folder must not be searched.
sys.path[0] = str(Path(__file__).resolve().parents[2])

#: The drivers of SieveMQ's own interfaces; every other one is named as its peer.
DRIVERS = {"blocking": "sievemq", "aio": "sievemq_aio"}


class Stage:
    """READY and GO over the standard streams, and the CPU seconds used since."""

    def __init__(self) -> None:
        self._cpu = 0.0

    def ready(self) -> None:
        gc.collect()  # the first full collection pauses a process for ten milliseconds: it belongs to the start
        self._cpu = _cpu()
        print("READY", flush=True)

    def wait_go(self) -> None:
        if sys.stdin.readline().strip() != "GO":
            sys.exit("told to end instead of to go")
        self._cpu = _cpu()

    def ready_go_sync(self) -> None:
        self.ready()
        self.wait_go()

    async def ready_go(self) -> None:
        self.ready()
        await asyncio.get_running_loop().run_in_executor(None, self.wait_go)

    def cpu_used(self) -> float:
        return round(_cpu() - self._cpu, 3)


def _cpu() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def main() -> None:
    job = json.loads(sys.argv[1])
    driver = DRIVERS.get(job["api"], job["api"])
    part = getattr(importlib.import_module(f"benchmarks.peers.drivers.{driver}"), job["role"])
    stage = Stage()
    if inspect.iscoroutinefunction(part):
        import uvloop

        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            result = runner.run(part(job, stage))
    else:
        result = part(job, stage)
    result["cpu_s"] = stage.cpu_used()
    os.set_blocking(sys.stdout.fileno(), True)
    with open(sys.stdout.fileno(), "w", closefd=False) as out:  # stdout drops what a write leaves, if it is unbuffered
        out.write(f"RESULT {json.dumps(result)}\n")
    os._exit(0)  # the figures are out; nothing that a closing connection does belongs to them


if __name__ == "__main__":
    main()
