"""The sdist and the pure wheel: what they contain, that the base install is the SDK alone. `make release` does more."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tarfile
import tomllib
from pathlib import Path
from typing import NamedTuple

import pytest
from release import contents
from release.install import PROMISES

ROOT = Path(__file__).parents[3]


class Made(NamedTuple):
    sdist: Path
    wheel: Path


def hatchling(source: Path, out: Path, *targets: str) -> None:
    command = [sys.executable, "-m", "hatchling", "build", "-d", str(out)]
    for target in targets:
        command += ["-t", target]
    environment = {**os.environ, "SOURCE_DATE_EPOCH": "1700000000"}
    subprocess.run(command, cwd=source, env=environment, check=True, capture_output=True)


def environment(folder: Path, *requirements: str) -> Path:
    """The Python of a new environment without pip."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    python = folder / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "--no-input", "--no-compile", *requirements], check=True)
    return python


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    """Those of this tree."""
    folder = tmp_path_factory.mktemp("made")
    hatchling(ROOT, folder, "sdist", "wheel")
    (sdist,), (wheel,) = folder.glob("*.tar.gz"), folder.glob("*.whl")
    return Made(sdist, wheel)


@pytest.fixture(scope="module")
def base_install(made: Made, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of an environment that has the wheel with its required dependencies and nothing else."""
    return environment(tmp_path_factory.mktemp("base"), str(made.wheel))


@pytest.mark.slow
def test_the_contents_are_as_they_have_to_be(made: Made) -> None:
    foreign = str(ROOT).encode(), str(made.wheel.parent).encode()
    contents.check(made.sdist, foreign)
    contents.check(made.wheel, foreign)


@pytest.mark.slow
def test_every_file_of_the_console_is_in_the_wheel(made: Made) -> None:
    folder = ROOT / "broker" / "sievemq_broker" / "server" / "http" / "console"
    names = {path.relative_to(ROOT / "broker").as_posix() for path in folder.rglob("*.*") if path.suffix != ".pyc"}
    assert {Path(name).suffix for name in names} >= {".js", ".css", ".html", ".svg"}
    assert names <= contents.read(made.wheel).keys()


@pytest.mark.slow
def test_the_sdist_makes_the_same_wheel(made: Made, tmp_path: Path) -> None:
    with tarfile.open(made.sdist) as members:
        members.extractall(tmp_path, filter="data")
    hatchling(tmp_path / made.sdist.name.removesuffix(".tar.gz"), tmp_path, "wheel")
    assert (tmp_path / made.wheel.name).read_bytes() == made.wheel.read_bytes()


@pytest.mark.slow
def test_the_base_install_is_the_sdk_with_msgpack(base_install: Path) -> None:
    pip = [sys.executable, "-m", "pip", "--python", str(base_install), "list", "--format=freeze"]
    listing = subprocess.run([*pip, "--disable-pip-version-check"], check=True, capture_output=True, text=True).stdout
    assert {line.partition("==")[0] for line in listing.split()} == {"msgpack", "sievemq"}


@pytest.mark.slow
def test_the_base_install_exchanges_messages_with_both_apis(base_install: Path) -> None:
    command = [str(base_install), "-W", "error", str(ROOT / "release" / "smoke.py"), "--whole", "sievemq_core"]
    printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert printed.endswith("; round trips pass\n")
    refused = subprocess.run([*command, "--compiled"], check=False, capture_output=True, text=True)
    assert (refused.returncode, refused.stderr) == (1, "the hot modules are not compiled\n")


@pytest.mark.slow
def test_the_extra_of_the_test_kit_fits_beside_an_older_web_stack(made: Made, tmp_path: Path) -> None:
    """An application's tests install the kit where its own framework is pinned."""
    python = environment(tmp_path / "app", f"{made.wheel}[test]", "uvicorn==0.34.0", "starlette==0.46.2")
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    program = readme[readme.index("# test_orders.py") :].partition("```")[0]
    (tmp_path / "test_orders.py").write_text(program, encoding="utf-8")
    command = [str(python), "-W", "error", "-m", "pytest", "-q", "test_orders.py"]
    subprocess.run(command, cwd=tmp_path, check=True)


@pytest.mark.slow
def test_a_command_without_its_extra_says_which_one_to_install(base_install: Path) -> None:
    command = [str(base_install.with_name("sievemq")), "broker"]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode != 0
    assert "Traceback" not in result.stderr
    assert "pip install 'sievemq[cli]'" in result.stderr


def test_each_extra_is_tried_in_a_release() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert PROMISES.keys() == {"", *project["optional-dependencies"]}


def test_what_cibuildwheel_runs_is_in_the_sdist() -> None:
    """It unpacks the sdist and works there: {project} is the sdist's folder, not the clone."""
    tools = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]
    named = re.findall(r"{project}/(\S+)", tools["cibuildwheel"]["test-command"])
    assert named
    assert set(named) <= {*tools["hatch"]["build"]["targets"]["sdist"]["only-include"]} & contents.SDIST


# -- what is refused --------------------------------------------------------------------------------------------------

INFO = "sievemq-1.0.dist-info"
PURE = "sievemq-1.0-py3-none-any.whl"
METADATA = b"""Metadata-Version: 2.4
Name: sievemq
Version: 1.0
Summary: s
Keywords: k
License-Expression: Apache-2.0
Requires-Python: >=3.11
Description-Content-Type: text/markdown
"""
TYPED = [f"{package}/{name}" for package in contents.PACKAGES for name in ("__init__.py", "py.typed")]
WHEEL = {
    **dict.fromkeys([*TYPED, *contents.MODULES, f"{INFO}/RECORD", f"{INFO}/licenses/LICENSE"], b""),
    f"{INFO}/METADATA": METADATA,
    f"{INFO}/entry_points.txt": b"[console_scripts]\na = sievemq:main",
}
PROJECT = b"""[tool.hatch.build.targets.wheel]
packages = [
    "core/sievemq", "core/sievemq_broker", "core/sievemq_core", "core/sievemq_spark", "core/sievemq_testing", "a.py",
]
[tool.hatch.build.targets.wheel.hooks.custom.compiled]
"core/sievemq_core" = ["hot"]
"""
SDIST = {
    **dict.fromkeys([*contents.SDIST, *(f"core/{name}" for name in TYPED), "a.py", "core/sievemq_core/hot.py"], b""),
    "pyproject.toml": PROJECT,
}


def test_files_in_order_pass() -> None:
    assert contents.wrong(PURE, {**WHEEL, "sievemq/test_control.py": b"def control() -> None:\n"}) == []
    libraries = {"sievemq__mypyc.so": b"", "sievemq/hot.so": b""}
    assert contents.wrong("sievemq-1.0-cp311-cp311-linux_x86_64.whl", {**WHEEL, **libraries}) == []
    assert contents.wrong("sievemq-1.0.tar.gz", SDIST) == []


@pytest.mark.parametrize(
    ("name", "data", "wrong"),
    [
        ("sievemq/tests/x.py", b"", "sievemq/tests/x.py does not belong there"),
        ("sievemq/test_x.py", b"import x\n\n\nasync def test_y():", "sievemq/test_x.py does not belong there"),
        ("sievemq/test_x.py", b"class TestX:\n", "sievemq/test_x.py does not belong there"),
        ("sievemq/conftest.py", b"", "sievemq/conftest.py does not belong there"),
        ("sievemq/__pycache__/a.pyc", b"", "sievemq/__pycache__/a.pyc does not belong there"),
        ("tools/x.py", b"", "tools does not belong there"),
        ("sievemq/a.py", b"# /home/anna/x", "sievemq/a.py contains b'/home/anna', as do 0 others"),
        ("sievemq/py.typed", None, "sievemq/py.typed is missing"),
        (f"{INFO}/licenses/LICENSE", None, f"{INFO}/licenses/LICENSE is missing"),
        ("pyspark_sievemq.py", None, "pyspark_sievemq.py is missing"),
        (f"{INFO}/METADATA", METADATA.replace(b"1.0", b"2.0"), "METADATA says version 2.0"),
        (f"{INFO}/METADATA", METADATA.replace(b"Summary", b"Other"), "METADATA has no Summary"),
        (
            f"{INFO}/entry_points.txt",
            b"[g]\nb = sievemq.gone:f",
            "the entry point b of g names sievemq.gone:f, which is not there",
        ),
        ("sievemq/hot.so", b"", "it has 1 compiled modules, and its tag is any"),
    ],
)
def test_a_wheel_that_is_not_in_order_is_refused(name: str, data: bytes | None, wrong: str) -> None:
    changed = {key: value for key, value in {**WHEEL, name: data}.items() if value is not None}
    assert contents.wrong(PURE, changed, (b"/home/anna",)) == [wrong]


@pytest.mark.parametrize(
    ("name", "data", "wrong"),
    [
        ("tests/test_x.py", b"", "tests/test_x.py does not belong there"),
        ("docs/client.md", b"", "docs/client.md does not belong there"),
        ("LICENSE", None, "LICENSE is missing"),
        ("hatch_build.py", None, "hatch_build.py is missing"),
        ("core/sievemq_core/hot.py", None, "core/sievemq_core/hot.py is missing"),
        ("core/sievemq/py.typed", None, "sievemq/py.typed is missing"),
    ],
)
def test_an_sdist_that_is_not_in_order_is_refused(name: str, data: bytes | None, wrong: str) -> None:
    changed = {key: value for key, value in {**SDIST, name: data}.items() if value is not None}
    assert set(contents.wrong("sievemq-1.0.tar.gz", changed)) == {wrong}


def test_a_file_beside_the_folder_of_an_sdist_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "sievemq-1.0.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        archive.add(ROOT / "LICENSE", "elsewhere/LICENSE")
    with pytest.raises(contents.ContentsError, match="elsewhere/LICENSE is no file in its folder"):
        contents.check(path)
