"""The fast tests on each other Python of this machine: ``make pythons``.

Each has an environment of its own in .venv-pythons/, made by uv. Further arguments go to pytest.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from release import interpreters
from release.build import run, uv

ROOT = Path(__file__).resolve().parents[1]
FAST = ("-q", "-n", "3", "--dist", "worksteal", "-m", "not slow and not docker and not spark")


def environment(version: str, python: Path) -> Path:
    """The interpreter of a Python's environment, with SieveMQ, editable, and all that its tests need."""
    folder = ROOT / ".venv-pythons" / version
    stamp = folder / ".installed"
    project = ROOT / "pyproject.toml"
    if not stamp.exists() or stamp.stat().st_mtime < project.stat().st_mtime:
        run(
            [
                uv(),
                "venv",
                "--quiet",
                "--seed",
                "--clear",
                "--no-python-downloads",
                "--python",
                str(python),
                str(folder),
            ]
        )
        run([uv(), "pip", "install", "--quiet", "--python", str(folder), "--editable", f"{ROOT}[dev]"])
        stamp.touch()
    return folder / "bin" / "python"


def main() -> int:
    """The command: fails if a test does, on any of them."""
    print(interpreters.summary(), flush=True)
    failed = []
    for version, python in interpreters.others().items():
        command = [str(environment(version, python)), "-m", "pytest", *FAST, *sys.argv[1:]]
        print(f"-- Python {version}", flush=True)
        if subprocess.run(command, cwd=ROOT, check=False).returncode != 0:
            failed.append(version)
    if failed:
        print(f"failed on Python {', '.join(failed)}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
