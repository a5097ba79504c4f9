"""The benchmark of the kit runs, and says what was promised to be measured."""

from __future__ import annotations

import re

import pytest
from benchmarks import testkit


def test_it_measures_brokers_and_namespaces(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["testkit", "--namespaces", "10"])
    testkit.main()
    shown = capsys.readouterr().out
    assert len(re.findall(r"\d\.\d{3} ms   at best \d", shown)) == 3
    assert "10 fresh namespaces" in shown
