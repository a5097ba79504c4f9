"""What the files of a release contain, and what they must not."""

from __future__ import annotations

import configparser
import re
import tarfile
import tomllib
import zipfile
from collections.abc import Iterator, Mapping
from email.message import Message
from email.parser import BytesParser
from pathlib import Path, PurePosixPath
from typing import Any

#: The packages of the distribution; each says that it is typed.
PACKAGES = ("sievemq", "sievemq_broker", "sievemq_core", "sievemq_spark", "sievemq_testing")
#: Modules beside them.
MODULES = ("pyspark_sievemq.py",)
#: What is in the sdist beside the packages: how to build and try it, and what a reader looks for first.
SDIST = frozenset(
    {
        *("CHANGELOG.md", "LICENSE", "PKG-INFO", "README.md"),
        *("hatch_build.py", "pyproject.toml", "release/smoke.py", ".gitignore"),
    }
)

_TEST_PLACE = re.compile(r"(?:^|/)(?:tests/|conftest\.py$)")
_TEST = re.compile(rb"^(?:async )?def test_|^class Test\w*:", re.MULTILINE)
_RUBBISH = re.compile(r"(?:\.py[co]$|(?:^|/)__pycache__/|\.orig$|\.rej$|~$|(?:^|/)\.DS_Store$)")
_LIBRARY = re.compile(r"\.(?:so|pyd)$")


class ContentsError(Exception):
    """A file of the release is not as it has to be; the text lists all that is wrong."""


def check(path: Path, foreign: tuple[bytes, ...] = ()) -> None:
    """Check an sdist or a wheel.

    Args:
        path: the file.
        foreign: what no member may contain, such as the path of the folder that it was built in.

    Raises:
        ContentsError: something is missing, or should not be there.
    """
    if found := wrong(path.name, read(path), foreign):
        raise ContentsError("\n".join(f"{path.name}: {one}" for one in found))


def wrong(name: str, files: Mapping[str, bytes], foreign: tuple[bytes, ...] = ()) -> list[str]:
    """What is wrong with an sdist or a wheel, by its name and members; see :func:`check`."""
    found = list(_of_wheel(name, files) if name.endswith(".whl") else _of_sdist(files))
    found += [f"{each} does not belong there" for each in files if _RUBBISH.search(each)]
    found += [f"{each} does not belong there" for each, data in files.items() if _is_test(each, data)]
    for text in foreign:
        names = [each for each, data in files.items() if text in data]
        found += [f"{names[0]} contains {text!r}, as do {len(names) - 1} others"] if names else []
    return found


def read(path: Path) -> dict[str, bytes]:
    """The members of an sdist or a wheel; those of an sdist without its folder."""
    if path.suffix == ".whl":
        with zipfile.ZipFile(path) as wheel:
            return {name: wheel.read(name) for name in wheel.namelist()}
    found: dict[str, bytes] = {}
    with tarfile.open(path) as sdist:
        for member in sdist.getmembers():
            stream = sdist.extractfile(member)
            folder, _, name = member.name.partition("/")
            if stream is None or f"{folder}.tar.gz" != path.name:
                raise ContentsError(f"{path.name}: {member.name} is no file in its folder")
            found[name] = stream.read()
    return found


def metadata(wheel: Path) -> Message:
    """The metadata of a wheel."""
    (data,) = (data for name, data in read(wheel).items() if name.endswith(".dist-info/METADATA"))
    return BytesParser().parsebytes(data)


def extras(wheel: Path) -> list[str]:
    """The extras that a wheel offers."""
    return list(metadata(wheel).get_all("Provides-Extra", []))


def _of_wheel(name: str, files: Mapping[str, bytes]) -> Iterator[str]:
    distribution, version, *_, tag = name.removesuffix(".whl").split("-")
    info = f"{distribution}-{version}.dist-info"
    top = {PurePosixPath(each).parts[0] for each in files} - {info}
    libraries = {each for each in files if _LIBRARY.search(each)}
    expected = {*PACKAGES, *MODULES} | {each for each in libraries if "/" not in each}
    yield from (f"{each} does not belong there" for each in sorted(top - expected))
    yield from (f"{each} is missing" for each in sorted(expected - top))
    yield from _typed(files)
    needed = [f"{info}/licenses/LICENSE", f"{info}/METADATA", f"{info}/RECORD", f"{info}/entry_points.txt"]
    yield from (f"{each} is missing" for each in needed if each not in files)
    yield from _entry_points(files, files.get(f"{info}/entry_points.txt", b"").decode())
    described = BytesParser().parsebytes(files.get(f"{info}/METADATA", b""))
    fields = ("Requires-Python", "License-Expression", "Description-Content-Type", "Summary", "Keywords")
    yield from (f"METADATA has no {field}" for field in fields if not described[field])
    if described["Version"] != version:
        yield f"METADATA says version {described['Version']}"
    if (tag == "any") is bool(libraries):
        yield f"it has {len(libraries)} compiled modules, and its tag is {tag}"


def _of_sdist(files: Mapping[str, bytes]) -> Iterator[str]:
    project = tomllib.loads(files.get("pyproject.toml", b"").decode())
    paths = project.get("tool", {}).get("hatch", {}).get("build", {}).get("targets", {}).get("wheel", {})
    folders = tuple(f"{each}/" for each in paths.get("packages", []) if not each.endswith(".py"))
    others = {each for each in files if not each.startswith(folders)}
    allowed = SDIST | {each for each in paths.get("packages", []) if each.endswith(".py")}
    yield from (f"{each} does not belong there" for each in sorted(others - allowed))
    yield from (f"{each} is missing" for each in sorted(allowed - others))
    yield from _typed({each.partition("/")[2]: data for each, data in files.items()})
    yield from (f"{each} is missing" for each in _compiled(project) if each not in files)


def _is_test(name: str, data: bytes) -> bool:
    """Whether pytest would collect a file. By its name alone a module about test control would be one, too."""
    is_named_so = PurePosixPath(name).name.startswith("test_") and name.endswith(".py")
    return _TEST_PLACE.search(name) is not None or (is_named_so and _TEST.search(data) is not None)


def _typed(files: Mapping[str, bytes]) -> Iterator[str]:
    needed = (f"{package}/{name}" for package in PACKAGES for name in ("__init__.py", "py.typed"))
    yield from (f"{each} is missing" for each in needed if each not in files)


def _entry_points(files: Mapping[str, bytes], text: str) -> Iterator[str]:
    parser = configparser.ConfigParser(delimiters="=")
    parser.read_string(text)
    for group in parser.sections():
        for point, target in parser[group].items():
            module = target.partition(":")[0].replace(".", "/")
            if f"{module}.py" not in files and f"{module}/__init__.py" not in files:
                yield f"the entry point {point} of {group} names {target}, which is not there"


def _compiled(project: Mapping[str, Any]) -> list[str]:
    table = project["tool"]["hatch"]["build"]["targets"]["wheel"]["hooks"]["custom"]["compiled"]
    return [f"{folder}/{module}.py" for folder, modules in table.items() for module in modules]
