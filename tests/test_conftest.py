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


def test_counts_are_left_in_a_file(pytester: pytest.Pytester) -> None:
    pytester.makeconftest(Path(__file__).with_name("conftest.py").read_text("utf-8"))
    pytester.makepyfile(
        """
        import pytest

        def test_passes():
            pass

        def test_fails():
            assert 1 == 2

        @pytest.fixture
        def broken():
            assert 1 == 2

        def test_has_an_error(broken):
            pass

        @pytest.mark.skip(reason="no")
        def test_is_skipped():
            pass
        """
    )
    pytester.runpytest_inprocess(*QUIET, "--counts=counts")
    assert pytester.path.joinpath("counts").read_text() == "1 2 1\n"
