"""What all tests share: what the report of a failure says, and when slow tests begin no more."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

pytest_plugins = ["pytester"]


def test_a_failure_tells_of_the_machine_and_of_the_other_threads(pytester: pytest.Pytester) -> None:
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
    outcome = pytester.runpytest_subprocess("-p", "no:cacheprovider")
    outcome.assert_outcomes(failed=1)
    outcome.stdout.fnmatch_lines(["*the machine then*", "after * s; load * on * processors; *", "*the threads then*"])
    outcome.stdout.fnmatch_lines(["the other: *wait_for_ever*"])


def test_slow_tests_begin_no_more_once_their_time_is_up(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytester.makeconftest(Path(__file__).with_name("conftest.py").read_text("utf-8"))
    pytester.makepyfile(
        """
        import pytest

        @pytest.mark.slow
        def test_slow():
            pass

        @pytest.mark.spark
        def test_spark():
            pass

        def test_fast():
            pass
        """
    )
    asked = ("-p", "no:cacheprovider", "-rs", "-W", "ignore")
    pytester.runpytest_subprocess(*asked).assert_outcomes(passed=3)
    monkeypatch.setenv("SLOW_TESTS_UNTIL", str(time.time() - 1))
    monkeypatch.setenv("SPARK_TESTS_UNTIL", str(time.time() + 3_600))
    outcome = pytester.runpytest_subprocess(*asked)
    outcome.assert_outcomes(passed=2, skipped=1)
    outcome.stdout.fnmatch_lines(["SKIPPED * the time for slow tests was up: `make slow` runs them"])
