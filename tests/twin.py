"""A second process that plays what this one plays, on the Python sources, whatever this one's SieveMQ is made of.

So a test can ask on the compiled build whether both do the same, step by step. On the Python build it says that what
happens depends on nothing but the steps.

What goes over is written as Python literals: steps that are made of None, booleans, numbers, text, bytes, tuples and
lists.
"""

from __future__ import annotations

import subprocess
import sys
from ast import literal_eval
from collections.abc import Callable, Sequence
from importlib import import_module
from importlib.machinery import SOURCE_SUFFIXES, FileFinder, ModuleSpec, SourceFileLoader
from pathlib import Path
from types import ModuleType
from typing import Any

_ROOT = Path(__file__).resolve().parent.parent
_PACKAGES = frozenset({"sievemq", "sievemq_broker", "sievemq_core"})


class Twin:
    """Plays in another process what a function plays here.

    Args:
        play: a function of a test module; given literals, it returns what can be seen from outside, as a list of text.
    """

    def __init__(self, play: Callable[..., list[str]]) -> None:
        self.play = play
        begin = f"from tests.twin import serve; serve({play.__module__!r}, {play.__name__!r})"
        self._process = subprocess.Popen(
            [sys.executable, "-c", begin], cwd=_ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, encoding="ascii"
        )

    def check(self, *args: object) -> None:
        """Play it there and here: the same has to be seen."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(ascii(args), file=self._process.stdin, flush=True)
        here = self.play(*literal_eval(ascii(args)))
        line = self._process.stdout.readline()
        assert line, f"the other process ended with {self._process.wait()}"
        there = literal_eval(line)
        for number, (one, other) in enumerate(zip(here, there, strict=False)):
            assert one == other, f"step {number}"
        assert len(here) == len(there)

    def close(self) -> None:
        """End it."""
        self._process.communicate()


def serve(module: str, name: str) -> None:
    """The other process: plays its input until the pipe closes."""
    sys.meta_path.insert(0, _Sources())  # type: ignore[arg-type]  # a finder needs no other method
    play = getattr(import_module(module), name)
    queue = import_module("sievemq_broker.domain.queue")
    assert str(queue.__file__).endswith(".py"), "the compiled build would be compared with itself"
    for line in sys.stdin:
        print(ascii(play(*literal_eval(line))), flush=True)


class _Sources:
    """Finds the sources of SieveMQ where a library lies beside them."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name.partition(".")[0] not in _PACKAGES:
            return None
        loader: tuple[Any, list[str]] = (SourceFileLoader, SOURCE_SUFFIXES)
        found = (FileFinder(entry, loader).find_spec(name) for entry in path or sys.path)
        return next((spec for spec in found if spec is not None and spec.loader is not None), None)
