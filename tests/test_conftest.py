"""The report of a failed test."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.projects import QUIET

pytest_plugins = ["pytester"]


def test_a_failure_report_shows_the_machine_and_all_threads(pytester: pytest.Pytester) -> None:
    pytester.makeconftest(Path(__file__).with_name("conftest.py").read_text("utf-8"))
    pytester.makepyfile(
        """
        import threading

        def wait_for_ever(begun):
            begun.set()
            threading.Event().wait()

        def test_it():
            begun = threading.Event()
            threading.Thread(target=wait_for_ever, args=(begun,), name="the other", daemon=True).start()
            begun.wait()
            assert 1 == 2
        """
    )
    outcome = pytester.runpytest_inprocess(*QUIET)
    outcome.assert_outcomes(failed=1)
    outcome.stdout.fnmatch_lines(["*the machine then*", "after * s; load * on * processors; *", "*the threads then*"])
    outcome.stdout.fnmatch_lines(["the other: *wait_for_ever*"])
