"""Modules of the blocking API that are generated from the asyncio API. `make lint` checks that all are up to date."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

SCRIPT = Path(__file__).parents[2] / "client" / "generate_blocking.py"


@pytest.fixture(scope="module")
def generator() -> ModuleType:
    specification = importlib.util.spec_from_file_location("generate_blocking", SCRIPT)
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


def test_every_phrase_of_the_table_is_in_a_source(generator: ModuleType) -> None:
    assert generator.unused_phrases() == []


def test_code_that_waits_becomes_code_that_blocks(generator: ModuleType) -> None:
    source = (
        "from sievemq.aio.opening import Opening, opening\n\n\n"
        "class Twice:\n"
        "    @opening\n"
        "    async def create(self) -> Opening[int]:\n"
        "        async with self._lock:\n"
        "            return await self._make()\n"
    )
    text: str = generator.blocking(source, SCRIPT.parent / "sievemq" / "blocking" / "twice.py", "twice")
    assert text.splitlines()[1:] == [
        "class Twice:",
        "    def create(self) -> int:",
        "        with self._lock:",
        "            return self._make()",
    ]


def test_a_line_may_be_left_out_or_say_what_replaces_it(generator: ModuleType) -> None:
    source = (
        "def take(self) -> None:\n"
        "    self._check()  # asyncio: threads need no check\n"
        "    if self.free:  # blocking: with self._lock:\n"
        "        self._take()\n"
    )
    text: str = generator.blocking(source, SCRIPT.parent / "sievemq" / "blocking" / "take.py", "take")
    assert text.splitlines()[1:] == ["def take(self) -> None:", "    with self._lock:", "        self._take()"]


def test_a_changed_source_makes_a_module_out_of_date(generator: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    browser = generator.SIEVEMQ / "blocking" / "browser.py"
    monkeypatch.setattr(generator, "MODULES", {browser: generator.MODULES[browser]})
    assert list(generator.out_of_date()) == []
    monkeypatch.setattr(generator, "CODE", [*generator.CODE, (r"\bbrowser\b", "reader")])
    assert list(generator.out_of_date()) == [browser]
