"""The command that fuzzes, without libFuzzer: it ends, and what it finds can be run again."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.hostile.fuzz import run
from tests.hostile.fuzz.targets import TARGETS


class Broken:
    """A target that fails on some input."""

    def seeds(self) -> Iterable[bytes]:
        return [b"abc", b"x" * 20]

    def run(self, data: bytes) -> None:
        if data not in self.seeds():
            raise ValueError(data)


@contextmanager
def broken(_name: str) -> Iterator[Broken]:
    yield Broken()


def test_a_run_without_findings_reports_its_inputs(capsys: pytest.CaptureFixture[str]) -> None:
    assert run._blind("text", 0.01, 1, None)
    assert "inputs" in capsys.readouterr().out


def test_findings_are_kept_and_fail_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(run, "opened", broken)
    monkeypatch.setattr(run, "FOUND", tmp_path)
    assert not run._blind("text", 60, 1, None)
    (path,) = tmp_path.iterdir()
    heard = capsys.readouterr()
    assert f"--target text --input {path}" in heard.out
    assert "ValueError" in heard.err
    monkeypatch.setattr("sys.argv", ["fuzz", "--target", "text", "--input", str(path)])
    with pytest.raises(ValueError, match="b"):
        run.main()


def test_every_target_in_turn(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    said = []
    monkeypatch.setattr(run, "_guided", lambda name, *_: said.append(name) or name != "store")
    monkeypatch.setattr(run, "_blind", run._guided)
    monkeypatch.setattr("sys.argv", ["fuzz", "--seconds", "1", "--seed", "5"])
    assert run.main() == 1
    assert said == list(TARGETS)
    assert "seed 5" in capsys.readouterr().out
