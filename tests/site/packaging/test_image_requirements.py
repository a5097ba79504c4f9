"""docker/requirements.txt: what the image installs is what pyproject.toml asks for, pinned, with hashes."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[3]
TEXT = (ROOT / "docker/requirements.txt").read_text(encoding="utf-8")

#: Each requirement with its hashes.
PINNED = {
    canonicalize_name(requirement.name): (requirement, hashes)
    for line in re.sub(r"\\\n", " ", re.sub(r"(?m)^#.*\n", "", TEXT)).splitlines()
    for text, *hashes in [[part.strip() for part in line.split(" --hash=")]]
    for requirement in [Requirement(text)]
}


def asked(*extras: str) -> Iterator[Requirement]:
    """What pyproject.toml asks for, of extras and those that they name; those of the image, if none is given."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    yield from map(Requirement, project["dependencies"])
    for extra in extras or ("broker", "postgres"):
        for requirement in map(Requirement, project["optional-dependencies"][extra]):
            if requirement.name == "sievemq":
                yield from asked(*requirement.extras)
            else:
                yield requirement


def test_each_package_is_pinned_with_hashes_and_without_an_address() -> None:
    assert len(PINNED) > 10
    for requirement, hashes in PINNED.values():
        assert [pin.operator for pin in requirement.specifier] == ["=="], requirement
        assert hashes
        assert all(re.fullmatch(r"sha256:[0-9a-f]{64}", each) for each in hashes), requirement
    assert "://" not in TEXT
    assert not re.search(r"(?m)^\s*(-i|--(extra-)?index|--find|--trusted)", TEXT)


def test_pinned_versions_satisfy_pyproject() -> None:
    for requirement in asked():
        pinned, _ = PINNED[canonicalize_name(requirement.name)]
        (pin,) = pinned.specifier
        assert requirement.specifier.contains(pin.version), f"{pinned}: run `make image-requirements`"


def test_dependencies_of_dependencies_are_pinned() -> None:
    """By what is installed here; versions may differ, and what is needed here is needed there."""
    open_, seen = [requirement.name for requirement in asked()], set[str]()
    while open_:
        name = canonicalize_name(open_.pop())
        if name in seen:
            continue
        seen.add(name)
        assert name in PINNED, f"{name} is not pinned: run `make image-requirements`"
        for requirement in map(Requirement, metadata.requires(name) or ()):
            if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
                open_.append(requirement.name)


def test_the_image_installs_only_pinned_packages() -> None:
    dockerfile = (ROOT / "docker/Dockerfile").read_text(encoding="utf-8")
    installs = re.findall(r"pip --python \S+ install (.*?)(?: \\|$)", dockerfile, re.MULTILINE)
    assert len(installs) == 2
    assert "--require-hashes -r /requirements.txt" in installs[0]
    assert "--no-deps --no-index" in installs[1]
