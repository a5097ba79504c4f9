"""The kit itself must not be what fails now and then: its suite, many times, on one core that is busy."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
#: How often. CI has other things to do; `FLAKINESS_RUNS=50` is what a change of the kit is worth.
RUNS = int(os.environ.get("FLAKINESS_RUNS", "1"))
SUITE = [
    "examples/orders",
    *(
        f"tests/testkit/test_{name}.py"
        for name in ("views", "namespaces", "journal", "faults", "clock", "clients", "recording")
    ),
]


@pytest.mark.slow
@pytest.mark.timeout(600 * RUNS + 60)
@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="a process cannot be kept on one core here")
def test_the_suite_many_times_on_one_busy_core() -> None:
    core = {min(os.sched_getaffinity(0))}

    def stay() -> None:
        os.sched_setaffinity(0, core)

    busy = subprocess.Popen([sys.executable, "-c", "while True: pass"], preexec_fn=stay)
    try:
        for number in range(RUNS):
            result = subprocess.run(
                [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *SUITE],
                cwd=ROOT,
                capture_output=True,
                text=True,
                timeout=600,
                check=False,
                preexec_fn=stay,
            )
            assert result.returncode == 0, f"run {number + 1} of {RUNS}:\n{result.stdout}\n{result.stderr}"
    finally:
        busy.kill()
        busy.wait()
