"""How a test says that it needs the Python build, and who knows which build it is."""

from __future__ import annotations

from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

import pytest

from sievemq_core.compiled import COMPILED
from sievemq_core.wire import codec

pytest_plugins = ["pytester"]


def test_it_is_as_the_module_says_that_was_loaded() -> None:
    assert codec.__file__.endswith(tuple(EXTENSION_SUFFIXES)) is COMPILED


@pytest.mark.parametrize(("build", "compiled"), [("Python", False), ("compiled", True)])
def test_a_test_that_needs_python_is_skipped_with_its_reason_where_the_code_is_compiled(
    pytester: pytest.Pytester, build: str, compiled: bool
) -> None:
    conftest = Path(__file__).parents[1] / "conftest.py"
    pytester.makeconftest(
        conftest.read_text("utf-8").replace(
            "from sievemq_core.compiled import COMPILED", f"COMPILED = {compiled}  # the {build} build"
        )
    )
    pytester.makepyfile(
        """
        import pytest

        @pytest.mark.needs_python("replaces a function of a module")
        def test_one():
            pass

        @pytest.mark.parametrize("n", [1, pytest.param(2, marks=pytest.mark.needs_python("counts lines"))])
        def test_some(n):
            pass
        """
    )
    outcome = pytester.runpytest_subprocess("-rs", "--strict-markers", "-p", "no:cacheprovider")
    outcome.assert_outcomes(passed=1 if compiled else 3, skipped=2 if compiled else 0)
    if compiled:
        outcome.stdout.fnmatch_lines_random(["*needs the Python build: replaces a function of a module*"])
        outcome.stdout.fnmatch_lines_random(["*needs the Python build: counts lines*"])


def test_a_test_that_needs_python_without_a_reason_is_an_error(pytester: pytest.Pytester) -> None:
    pytester.makeconftest((Path(__file__).parents[1] / "conftest.py").read_text("utf-8"))
    pytester.makepyfile("import pytest\n@pytest.mark.needs_python\ndef test_one(): pass\n")
    outcome = pytester.runpytest_subprocess("-p", "no:cacheprovider")
    outcome.assert_outcomes(errors=1)
