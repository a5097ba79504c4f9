"""Fuzz what hostile bytes can reach, for a bounded time.

    python -m tests.hostile.fuzz.run --seconds 60                     every target in turn, a minute in all
    python -m tests.hostile.fuzz.run --target selector --seconds 600
    python -m tests.hostile.fuzz.run --target store --input FILE      one input again

With atheris (the extra ``fuzz``; Linux on x86-64) libFuzzer is guided by coverage; without it the seeds are mutated
blindly. Ends with 0 if nothing was found; otherwise prints the input, where it was put, and how to run it again.
"""

from __future__ import annotations

import argparse
import importlib.util
import random
import subprocess
import sys
import tempfile
import time
import traceback
from pathlib import Path

from tests.hostile.fuzz.mutate import mutate
from tests.hostile.fuzz.targets import TARGETS, opened

#: Seconds that one input may take, and megabytes that a target may use, before that counts as found.
TIMEOUT, MEMORY = 20, 2_048
#: Where what was found is put.
FOUND = Path("build") / "fuzz"
#: Bytes of an input. A selector or frame of this size has everything that a larger one has.
MOST = 4_096


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="make fuzz", description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--seconds", type=float, default=60, help="in all, shared by the targets")
    parser.add_argument("--target", action="append", choices=TARGETS, help="only this one; may be given several times")
    parser.add_argument("--seed", type=int, default=None, help="of the randomness; printed if not given")
    parser.add_argument("--input", type=Path, help="run this input only")
    parser.add_argument("--corpus", type=Path, help="folder that keeps what was interesting, for the next run")
    given = parser.parse_args()
    names = given.target or list(TARGETS)
    if given.input is not None:
        for name in names:
            with opened(name) as target:
                target.run(given.input.read_bytes())
        return 0
    seed = given.seed if given.seed is not None else random.SystemRandom().randrange(1, 2**31)
    guided = importlib.util.find_spec("atheris") is not None
    print(f"seed {seed}, {'libFuzzer by way of atheris' if guided else 'blind mutations: atheris is not installed'}")
    found = []
    for name in names:
        share = max(1.0, given.seconds / len(names))
        print(f"{name}: {TARGETS[name]}, {share:.0f} s", flush=True)
        fuzz = _guided if guided else _blind
        if not fuzz(name, share, seed, given.corpus):
            found.append(name)
    print(f"found something in {', '.join(found)}" if found else "nothing found")
    return 1 if found else 0


def _guided(name: str, seconds: float, seed: int, corpus: Path | None) -> bool:
    """True if nothing was found."""
    with tempfile.TemporaryDirectory(prefix="sievemq-fuzz-") as temporary:
        kept = (corpus or Path(temporary)) / name
        seeds, output = Path(temporary) / "seeds", FOUND / f"{name}-"
        for folder in (kept, seeds, FOUND):
            folder.mkdir(parents=True, exist_ok=True)
        with opened(name) as target:
            for number, data in enumerate(target.seeds()):
                (seeds / f"{number:05}").write_bytes(data)
        command = [
            sys.executable, "-m", "tests.hostile.fuzz.libfuzzer", name, f"-max_total_time={max(1, int(seconds))}",
            f"-seed={seed}", f"-timeout={TIMEOUT}", f"-rss_limit_mb={MEMORY}", f"-max_len={MOST}", "-verbosity=0",
            "-print_final_stats=1", f"-artifact_prefix={output}", str(kept), str(seeds),
        ]  # fmt: skip
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace")
    if done.returncode == 0:
        runs = [line for line in done.stdout.splitlines() if "number_of_executed_units" in line]
        print(f"  {runs[0].split()[-1]} inputs" if runs else "  done")
        return True
    lines = [line for line in done.stdout.splitlines() if not line.startswith(("INFO:", "WARNING:"))]
    print("\n".join(lines)[-6_000:])
    print(f"  again: python -m tests.hostile.fuzz.run --target {name} --input {output}…")
    return False


def _blind(name: str, seconds: float, seed: int, _corpus: Path | None) -> bool:
    """True if nothing was found."""
    chance = random.Random(f"{name} {seed}")
    end = time.monotonic() + seconds
    count = 0
    with opened(name) as target:
        seeds = list(target.seeds())
        while time.monotonic() < end:
            data = mutate(seeds, chance, MOST)
            count += 1
            start = time.monotonic()
            try:
                target.run(data)
                if time.monotonic() - start > TIMEOUT:
                    raise TimeoutError(f"{time.monotonic() - start:.0f} s for one input")
            except Exception:
                traceback.print_exc()
                FOUND.mkdir(parents=True, exist_ok=True)
                path = FOUND / f"{name}-blind-{seed}-{count}"
                path.write_bytes(data)
                print(f"  again: python -m tests.hostile.fuzz.run --target {name} --input {path}")
                return False
    print(f"  {count} inputs")
    return True


if __name__ == "__main__":
    sys.exit(main())
