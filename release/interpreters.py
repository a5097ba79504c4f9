"""The Pythons of this machine that SieveMQ supports."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

#: The oldest is `requires-python`; the newest is the last that a release makes compiled wheels for.
SUPPORTED = ("3.11", "3.12", "3.13", "3.14")

_PROBE = "import sys; print(sys.implementation.name, *sys.version_info[:2], 't' in getattr(sys, 'abiflags', ''))"


def own() -> str:
    """The version of the Python that runs this, such as ``3.11``."""
    return f"{sys.version_info[0]}.{sys.version_info[1]}"


@cache
def found() -> dict[str, Path]:
    """CPython by version, oldest first: the one that runs this, those of pyenv, those on PATH.

    Free-threaded builds do not count.
    """
    chosen: dict[str, Path] = {}
    for version in SUPPORTED:
        for path in _candidates(version):
            if _is(version, path):
                chosen[version] = path
                break
    return chosen


def others() -> dict[str, Path]:
    """Those of :func:`found` but the one that runs this."""
    return {version: path for version, path in found().items() if version != own()}


def summary() -> str:
    """One line: which there are, and which are missing."""
    missing = [version for version in SUPPORTED if version not in found()]
    line = f"Python {', '.join(found())}"
    return f"{line}; not on this machine: {', '.join(missing)}" if missing else line


def _candidates(version: str) -> Iterator[Path]:
    if version == own():
        yield Path(sys.executable)
    root = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    yield from sorted((root / "versions").glob(f"{version}.*/bin/python"), key=_patch, reverse=True)
    if on_path := shutil.which(f"python{version}"):
        yield Path(on_path)


def _patch(path: Path) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", path.parts[-3])]


def _is(version: str, path: Path) -> bool:
    try:
        done = subprocess.run([str(path), "-c", _PROBE], capture_output=True, text=True, timeout=60, check=False)
    except OSError:
        return False
    words = done.stdout.split()
    return words[:3] == ["cpython", *version.split(".")] and words[3:] == ["False"]
