"""Which build this is, and how a test says that it needs the one or the other."""

from __future__ import annotations

import tomllib
from importlib import import_module
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

import pytest
from tests.projects import QUIET

from sievemq_core.compiled import COMPILED
from sievemq_core.wire import codec

pytest_plugins = ["pytester"]

ROOT = Path(__file__).parents[2]
CONFTEST = ROOT / "tests" / "conftest.py"


def modules() -> list[str]:
    """What pyproject.toml says is compiled."""
    hooks = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["hatch"]["build"]["targets"]["wheel"]
    folders = hooks["hooks"]["custom"]["compiled"].items()
    # without core/, client/, broker/, in which the packages are
    return [f"{folder}/{name}".partition("/")[2].replace("/", ".") for folder, names in folders for name in names]


def test_the_loaded_module_matches_the_reported_build() -> None:
    assert codec.__file__.endswith(tuple(EXTENSION_SUFFIXES)) is COMPILED


@pytest.mark.parametrize("name", modules())
def test_every_module_that_is_to_be_compiled_is_or_none_and_its_source_is_there(name: str) -> None:
    module = import_module(name)
    assert module.__file__ is not None
    assert module.__file__.endswith(tuple(EXTENSION_SUFFIXES)) is COMPILED
    file = Path(module.__file__)
    assert (file.parent / f"{name.rpartition('.')[2]}.py").is_file()


def test_the_option_compiled_accepts_only_the_compiled_build(pytester: pytest.Pytester) -> None:
    for compiled, code in ((True, pytest.ExitCode.OK), (False, pytest.ExitCode.USAGE_ERROR)):
        pytester.makeconftest(conftest(compiled))
        pytester.makepyfile("def test_one(): pass")
        outcome = pytester.runpytest_inprocess("--compiled", *QUIET)
        assert outcome.ret == code
    outcome.stderr.fnmatch_lines(["*--compiled: *codec* is not; `make compiled` runs them where it is"])


def conftest(compiled: bool) -> str:
    """That of all tests, on one build or the other."""
    return CONFTEST.read_text("utf-8").replace(
        "from sievemq_core.compiled import COMPILED", f"COMPILED = {compiled}  # as if"
    )


@pytest.mark.parametrize("compiled", [False, True])
def test_a_test_that_needs_python_is_skipped_with_its_reason_where_the_code_is_compiled(
    pytester: pytest.Pytester, compiled: bool
) -> None:
    pytester.makeconftest(conftest(compiled))
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
    outcome = pytester.runpytest_inprocess("-rs", "--strict-markers", *QUIET)
    outcome.assert_outcomes(passed=1 if compiled else 3, skipped=2 if compiled else 0)
    if compiled:
        outcome.stdout.fnmatch_lines_random(["*needs the Python build: replaces a function of a module*"])
        outcome.stdout.fnmatch_lines_random(["*needs the Python build: counts lines*"])


def test_a_test_that_needs_python_without_a_reason_is_an_error(pytester: pytest.Pytester) -> None:
    pytester.makeconftest(CONFTEST.read_text("utf-8"))
    pytester.makepyfile("import pytest\n@pytest.mark.needs_python\ndef test_one(): pass\n")
    outcome = pytester.runpytest_inprocess(*QUIET)
    outcome.assert_outcomes(errors=1)
