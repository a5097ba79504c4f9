"""Fetches clients and their suites: fixed versions from the package registries, into a folder of the harness' own.

Nothing is installed into the system. What cannot be had raises :class:`MissingError` with the reason.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

FOLDER = Path(os.environ.get("SIEVEMQ_INTEROP_FOLDER", Path(__file__).resolve().parents[2] / "build" / "interop"))


class MissingError(Exception):
    """A client cannot be had here; the text says why, in one line."""


def installed(*programs: str) -> None:
    """Raise :class:`MissingError` for a program that is not on this machine."""
    for name in programs:
        if shutil.which(name) is None:
            raise MissingError(f"{name} is not installed")


def python(*packages: str) -> Path:
    """The interpreter of a virtual environment with these packages and pytest."""
    folder = FOLDER / "python" / "-".join(package.replace("==", "-") for package in packages)
    program = folder / "bin" / "python"
    if _stale(folder, packages):
        _run(sys.executable, "-m", "venv", folder)
        _run(program, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-input", *packages)
        _finish(folder, packages)
    return program


def source(package: str) -> Path:
    """The unpacked source distribution of a Python package, given as ``name==version``."""
    folder = FOLDER / "source" / package.replace("==", "-")
    if _stale(folder, (package,)):
        pip = (sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps")
        _run(*pip, "--no-binary", ":all:", "--dest", folder, package)
        [archive] = folder.glob("*.tar.gz")
        shutil.unpack_archive(archive, folder, filter="data")
        _finish(folder, (package,))
    [root] = (path for path in folder.iterdir() if path.is_dir())
    return root


def node(*packages: str) -> Path:
    """A folder with ``node_modules`` that holds these npm packages, given as ``name@version``."""
    installed("node", "npm")
    folder = FOLDER / "node" / packages[0].strip("@").replace("/", "-")
    if _stale(folder, packages):
        (folder / "package.json").write_text('{"private": true}\n')
        _run("npm", "install", "--silent", "--no-audit", "--no-fund", "--prefix", folder, *packages)
        _finish(folder, packages)
    return folder


def maven(*artifacts: str) -> str:
    """The class path of these artifacts, given as ``group:artifact:version``, with all that they need."""
    installed("mvn", "javac", "java")
    folder = FOLDER / "maven" / artifacts[0].split(":")[1]
    if _stale(folder, artifacts):
        wanted = "".join(
            f"<dependency><groupId>{group}</groupId><artifactId>{name}</artifactId><version>{version}</version>"
            "</dependency>"
            for group, name, version in (artifact.split(":") for artifact in artifacts)
        )
        (folder / "pom.xml").write_text(
            "<project><modelVersion>4.0.0</modelVersion><groupId>interop</groupId><artifactId>interop</artifactId>"
            f"<version>1</version><dependencies>{wanted}</dependencies></project>"
        )
        _run("mvn", "-q", "-B", "dependency:copy-dependencies", f"-DoutputDirectory={folder / 'lib'}", folder=folder)
        _finish(folder, artifacts)
    return f"{folder / 'lib'}/*"


def go(module: str, version: str) -> tuple[Path, str]:
    """A copy of the sources of a Go module, and its version."""
    installed("go")
    folder = FOLDER / "go" / module.rpartition("/")[2]
    if _stale(folder, (module, version)):
        (folder / "go.mod").write_text("module interop\n")
        found = json.loads(_run("go", "mod", "download", "-json", f"{module}@{version}", folder=folder))
        shutil.copytree(found["Dir"], folder / "source", copy_function=shutil.copyfile)
        _finish(folder, (module, version))
    return folder / "source", version


def given(variable: str, what: str) -> Path:
    """A folder that a variable of the environment names, for sources that no registry has."""
    path = os.environ.get(variable)
    if path is None:
        raise MissingError(f"{variable} does not name a folder with {what}")
    return Path(path)


def debian(*packages: str) -> tuple[Path, str]:
    """A folder into which Debian's packages are unpacked, and the version of the first."""
    installed("apt-get", "dpkg-deb")
    folder = FOLDER / "debian" / packages[0]
    if _stale(folder, packages):
        _run("apt-get", "download", *packages, folder=folder)
        for package in sorted(folder.glob("*.deb")):
            _run("dpkg-deb", "-x", package, folder / "root")
        _finish(folder, packages)
    [first] = folder.glob(f"{packages[0]}_*.deb")
    return folder / "root", first.name.split("_")[1].replace("%3a", ":")


def _stale(folder: Path, wanted: tuple[str, ...]) -> bool:
    """True, and the folder is empty, if it does not hold exactly what is wanted."""
    stamp = folder / ".fetched"
    if stamp.exists() and stamp.read_text() == "\n".join(wanted):
        return False
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return True


def _finish(folder: Path, wanted: tuple[str, ...]) -> None:
    (folder / ".fetched").write_text("\n".join(wanted))


def _run(*command: str | Path, folder: Path | None = None) -> str:
    words = [str(word) for word in command]
    try:
        done = subprocess.run(words, capture_output=True, text=True, check=False, cwd=folder, timeout=600)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise MissingError(f"{Path(words[0]).name}: {error}") from error
    if done.returncode:
        lines = [line for line in f"{done.stderr}\n{done.stdout}".splitlines() if line.strip()] or ["no message"]
        reason = next((line for line in lines if "error" in line.lower()), lines[0])
        raise MissingError(f"{Path(words[0]).name} failed: {reason}"[:300])
    return done.stdout
