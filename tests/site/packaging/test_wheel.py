"""What the wheel contains, and that the base install is the SDK alone."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PACKAGES = ("sievemq", "sievemq_broker", "sievemq_core", "sievemq_spark", "sievemq_testing")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.Path:
    """The root of a wheel made from this tree."""
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--disable-pip-version-check", "--no-input"]
    subprocess.run([*command, "--no-deps", "--wheel-dir", str(folder), str(ROOT)], check=True)
    (path,) = folder.glob("sievemq-*-py3-none-any.whl")
    return zipfile.Path(path)


@pytest.fixture(scope="module")
def base_install(wheel: zipfile.Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of an environment that has the wheel with its required dependencies and nothing else."""
    folder = tmp_path_factory.mktemp("base")
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    python = folder / "bin" / "python"
    install = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-input"]
    subprocess.run([*install, str(wheel.root.filename)], check=True)
    return python


@pytest.mark.slow
@pytest.mark.parametrize("package", PACKAGES)
def test_every_package_is_in_the_wheel_and_typed(wheel: zipfile.Path, package: str) -> None:
    assert (wheel / package / "__init__.py").is_file()
    assert (wheel / package / "py.typed").is_file()


@pytest.mark.slow
def test_every_file_of_the_console_is_in_the_wheel(wheel: zipfile.Path) -> None:
    folder = ROOT / "broker" / "sievemq_broker" / "server" / "http" / "console"
    names = [path.relative_to(ROOT / "broker").as_posix() for path in folder.rglob("*.*") if path.suffix != ".pyc"]
    assert {Path(name).suffix for name in names} >= {".js", ".css", ".html", ".svg"}
    for name in names:
        assert (wheel / name).is_file(), name


@pytest.mark.slow
def test_nothing_else_is_in_the_wheel(wheel: zipfile.Path) -> None:
    names = {entry.name for entry in wheel.iterdir()}
    extra = {name for name in names - set(PACKAGES) if not name.startswith("sievemq-") and name != "pyspark_sievemq.py"}
    assert not extra


@pytest.mark.slow
def test_the_licence_is_in_the_wheel(wheel: zipfile.Path) -> None:
    (info,) = (entry for entry in wheel.iterdir() if entry.name.endswith(".dist-info"))
    assert (info / "licenses" / "LICENSE").is_file()


@pytest.mark.slow
def test_the_base_install_is_the_sdk_with_msgpack(base_install: Path) -> None:
    listing = subprocess.run(
        [str(base_install), "-m", "pip", "list", "--format=freeze", "--disable-pip-version-check"],
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    names = {line.partition("==")[0] for line in listing.split()}
    assert names - {"pip", "setuptools"} == {"msgpack", "sievemq"}


@pytest.mark.slow
def test_the_extra_of_the_test_kit_fits_beside_an_older_web_stack(wheel: zipfile.Path, tmp_path: Path) -> None:
    """An application's tests install the kit where its own framework is pinned."""
    subprocess.run([sys.executable, "-m", "venv", str(tmp_path / "app")], check=True)
    python = str(tmp_path / "app" / "bin" / "python")
    install = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-input"]
    subprocess.run([*install, f"{wheel.root.filename}[test]", "uvicorn==0.34.0", "starlette==0.46.2"], check=True)
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    program = readme[readme.index("# test_orders.py") :].partition("```")[0]
    (tmp_path / "test_orders.py").write_text(program, encoding="utf-8")
    subprocess.run([python, "-W", "error", "-m", "pytest", "-q", "test_orders.py"], cwd=tmp_path, check=True)


@pytest.mark.slow
def test_the_base_install_imports_and_makes_messages(base_install: Path) -> None:
    program = (
        "import sievemq, sievemq.aio\n"
        "message = sievemq.TextMessage('hi')\n"
        "message.set_string_property('region', 'EU')\n"
        "assert sievemq.Selector(\"region = 'EU'\").matches(message)\n"
    )
    subprocess.run([str(base_install), "-W", "error", "-c", program], check=True)


@pytest.mark.slow
def test_a_command_without_its_extra_says_which_one_to_install(base_install: Path) -> None:
    command = [str(base_install.with_name("sievemq")), "broker"]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode != 0
    assert "Traceback" not in result.stderr
    assert "pip install" in result.stderr
    assert "in a clone of SieveMQ" in result.stderr
