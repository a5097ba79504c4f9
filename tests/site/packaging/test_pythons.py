"""SieveMQ on the other Pythons of this machine, and as on other systems; `make pythons` and `platforms` do more."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
from release import interpreters

ROOT = Path(__file__).parents[3]
SOURCES = [str(ROOT / folder) for folder in ("core", "client", "broker", "testkit", "pipeline")]
SMOKE = ROOT / "release" / "smoke.py"


def dependencies(version: str) -> Path:
    """A folder with what the base install needs, for another Python; made once."""
    folder = ROOT / "build" / "pythons" / version
    if not folder.exists():
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-input"]
        options = ["--target", str(folder), "--python-version", version, "--only-binary", ":all:", "--no-deps"]
        done = subprocess.run([*pip, *options, "msgpack>=1.1,<2"], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            pytest.skip(f"msgpack for Python {version} cannot be had: {done.stderr[-200:]}")
    return folder


@pytest.mark.parametrize("version", [version for version in interpreters.SUPPORTED if version != interpreters.own()])
def test_both_apis_work_on_other_pythons(version: str) -> None:
    if version not in interpreters.found():
        pytest.skip(f"no Python {version} on this machine")
    path = os.pathsep.join([*SOURCES, str(dependencies(version))])
    command = [str(interpreters.found()[version]), "-S", "-W", "error", str(SMOKE), "--whole", "sievemq_core"]
    done = subprocess.run(
        command, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    assert f"CPython {version}." in done.stdout
    assert done.stdout.endswith("round trips pass\n")


@pytest.mark.needs_python("imports SieveMQ a second time")
def test_nothing_needs_what_another_system_lacks() -> None:
    program = Path(__file__).with_name("without_unix.py")
    done = subprocess.run(
        [sys.executable, str(program), "darwin", "win32"], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    assert [line.partition(":")[0] for line in done.stdout.splitlines()] == ["darwin", "win32"]


# -- which there are --------------------------------------------------------------------------------------------------


def python(path: Path, printed: str, status: int = 0) -> None:
    """A program that answers as a Python does."""
    path.parent.mkdir(parents=True)
    path.write_text(f"#!/bin/sh\necho {printed}\nexit {status}\n")
    path.chmod(0o755)


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of pyenv on a machine with no other Python."""
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path / "path"))
    monkeypatch.setattr(interpreters, "found", interpreters.found.__wrapped__)
    monkeypatch.setattr(interpreters, "own", lambda: "3.11")
    python(tmp_path / "own" / "python", "cpython 3 11 False")
    monkeypatch.setattr(sys, "executable", str(tmp_path / "own" / "python"))  # the tests may run on another
    return tmp_path / "versions"


def test_the_newest_patch_of_each_is_found(machine: Path) -> None:
    for patch in (1, 9, 10):
        python(machine / f"3.12.{patch}" / "bin" / "python", "cpython 3 12 False")
    assert interpreters.others() == {"3.12": machine / "3.12.10" / "bin" / "python"}
    assert interpreters.summary() == "Python 3.11, 3.12; not on this machine: 3.13, 3.14"


@pytest.mark.parametrize("printed", ["pypy 3 12 False", "cpython 3 12 True", "cpython 3 13 False", ""])
def test_what_is_not_that_cpython_is_passed_over(machine: Path, printed: str) -> None:
    python(machine / "3.12.9" / "bin" / "python", printed)
    assert interpreters.others() == {}


def test_one_on_path_is_found_and_one_that_does_not_start_is_not(machine: Path) -> None:
    python(machine.with_name("path") / "python3.13", "cpython 3 13 False")
    (machine / "3.12.9" / "bin").mkdir(parents=True)
    (machine / "3.12.9" / "bin" / "python").write_bytes(b"\0")
    assert interpreters.others() == {"3.13": machine.with_name("path") / "python3.13"}


# -- the smoke test ---------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def smoke() -> ModuleType:
    spec = importlib.util.spec_from_file_location("smoke", SMOKE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def package(smoke: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package of SieveMQ's, so to speak, with a module that needs another distribution."""
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(smoke, "PACKAGES", ("smoked",))
    folder = tmp_path / "smoked"
    folder.mkdir()
    (folder / "__init__.py").write_text("")
    (folder / "__main__.py").write_text("raise SystemExit")
    (folder / "needy.py").write_text(
        "try:\n    import absent_package.part\nexcept ImportError as error:\n    raise ImportError from error\n"
    )
    for name in [name for name in sys.modules if name.startswith("smoked")]:
        del sys.modules[name]
    return folder


def test_modules_that_need_another_distribution_are_named(smoke: ModuleType, package: Path) -> None:
    loaded, absent = smoke.load("smoked")
    assert (loaded, absent) == (1, {"smoked.needy": "absent_package"})
    assert smoke.lacking(absent, ["smoked"], []) == ["smoked.needy needs absent_package"]
    assert smoke.lacking(absent, ["smoked"], ["absent_package"]) == smoke.lacking(absent, [], []) == []


@pytest.mark.parametrize("line", ["import smoked.gone", "from smoked import gone", "raise ImportError('broken')"])
def test_any_other_failed_import_is_an_error(smoke: ModuleType, package: Path, line: str) -> None:
    (package / "broken.py").write_text(f"{line}\n")
    with pytest.raises(ImportError, match=r"smoked\.broken: "):
        smoke.load("smoked")
