"""The benchmark of the kit runs, over both transports, and says what was promised to be measured."""

from __future__ import annotations

import re

import pytest
from benchmarks import testkit


def test_it_measures_brokers_namespaces_and_both_transports(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["testkit", "--namespaces", "10", "--rounds", "40"])
    testkit.main()
    shown = capsys.readouterr().out
    assert len(re.findall(r"\d\.\d{3} ms   at best \d", shown)) == 3
    assert len(re.findall(r"memory +\d+ µs   TCP +\d+ µs   ratio \d+\.\d\d", shown)) == 4
    assert "10 fresh namespaces" in shown
