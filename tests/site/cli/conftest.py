"""Running `sievemq` in the test's process."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import pytest

from sievemq.cli import run
from sievemq_broker import EmbeddedBroker


@dataclass(frozen=True)
class Outcome:
    """What a command did."""

    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()


class Sievemq(Protocol):
    def __call__(self, *arguments: str, stdin: bytes = b"") -> Outcome: ...


@pytest.fixture
def sievemq(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Sievemq:
    """Runs one command line, without the contexts that the user of this machine has saved."""
    for name in ("URL", "HTTP_URL", "NAMESPACE", "USER", "PASSWORD", "CONFIG", "CONTEXT"):
        monkeypatch.delenv(f"SIEVEMQ_{name}", raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "user's configuration"))

    def call(*arguments: str, stdin: bytes = b"") -> Outcome:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin), encoding="utf-8"))
        capfd.readouterr()
        code = run(arguments)
        return Outcome(code, *capfd.readouterr())

    return call


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch, sievemq: Sievemq) -> Iterator[EmbeddedBroker]:
    """A broker that the commands find through SIEVEMQ_URL."""
    with EmbeddedBroker() as broker:
        monkeypatch.setenv("SIEVEMQ_URL", broker.url)
        yield broker
