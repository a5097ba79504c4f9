"""Keeps pytest from rewriting SieveMQ itself.

pytest rewrites the assertions of every module of a distribution that contains a plugin. For this one these are client,
broker and core: some 250 modules without a test. pytest then ignores their installed bytecode, and compiles them again
in each run if it may not write its own (``PYTHONDONTWRITEBYTECODE``). This finder precedes pytest's import hook and
loads them as Python does."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Final

_PACKAGES: Final = frozenset({"sievemq", "sievemq_broker", "sievemq_core", "sievemq_spark", "sievemq_testing"})


class PlainImports(MetaPathFinder):
    """Finds SieveMQ's own modules on ``sys.path``, and nothing else."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname.partition(".")[0] not in _PACKAGES:
            return None
        return PathFinder.find_spec(fullname, path, target)
