"""The notes of a release, from CHANGELOG.md: ``python -m release.notes`` prints them.

python -m release.notes                 of the version in core/sievemq_core/version.py
python -m release.notes 0.2.0           of another
python -m release.notes --begin 0.2.0   make 0.2.0 the version, and *Unreleased* its section
"""

from __future__ import annotations

import argparse
import re
import sys
from datetime import UTC, datetime
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
CHANGELOG = ROOT / "CHANGELOG.md"
UNRELEASED = "Unreleased"

_VERSION = re.compile(r'^VERSION = "(.+)"$', re.MULTILINE)
_HEADING = re.compile(r"^## \[(?P<name>[^\]]+)\](?: - (?P<date>\d{4}-\d\d-\d\d))?\n", re.MULTILINE)
#: Files that cannot read the version, and the pattern before it in each; :func:`begin` renews them.
COPIES = {
    "docker/Dockerfile": re.compile(r"^(ARG VERSION=)\S+", re.MULTILINE),
    "docs/testing.md": re.compile(r"(\bsievemq-python/)[^\s,]+"),
    "testkit/java/pom.xml": re.compile(r"^(  <version>)[^<]+", re.MULTILINE),
    "testkit/node/package.json": re.compile(r'^(  "version": ")[^"]+', re.MULTILINE),
}
#: Files with words that are true until the first release; :func:`begin` refuses to make one that has them.
PROVISIONAL = {
    "CHANGELOG.md": "Nothing has been released yet",
    "README.md": "Until it is on PyPI",
    "docs/tutorial.md": "until it is on PyPI",
}
#: What PyPI and the tag of a release take: a final version, or a pre-release of one.
_FORM = re.compile(r"\d+\.\d+\.\d+(?:(?:a|b|rc)\d+)?")


class NotesError(Exception):
    """There are no notes; the text says what to write where."""


def version(root: Path = ROOT) -> str:
    """The version of a tree of SieveMQ."""
    found = _VERSION.search(_module(root).read_text(encoding="utf-8"))
    assert found is not None
    return found[1]


def notes(changelog: str, name: str) -> str:
    """A section of a changelog, without its heading.

    Args:
        changelog: the text of the file.
        name: a version, or :data:`UNRELEASED`.

    Raises:
        NotesError: there is no such section, or it is empty.
    """
    headings = list(_HEADING.finditer(changelog))
    for heading, following in zip(headings, [*headings[1:], None], strict=True):
        if heading["name"] == name:
            text = changelog[heading.end() : following.start() if following else len(changelog)].strip()
            if not text:
                raise NotesError(f"CHANGELOG.md: the section [{name}] is empty")
            return text + "\n"
    listed = ", ".join(heading["name"] for heading in headings) or "none"
    raise NotesError(f"CHANGELOG.md has no section [{name}], only {listed}: python -m release.notes --begin {name}")


def begin(root: Path, name: str, date: str) -> None:
    """Make a version the tree's: where it is defined, in :data:`COPIES`, and in the changelog, whose section
    *Unreleased* becomes its own.

    Raises:
        NotesError: it is not a version, it has a section, nothing is unreleased, or a file says that nothing has been
            released (:data:`PROVISIONAL`).
    """
    if not _FORM.fullmatch(name):
        raise NotesError(f"{name!r} is not a version such as 0.2.0 or 0.2.0rc1")
    changelog = root / "CHANGELOG.md"
    text = changelog.read_text(encoding="utf-8")
    if any(heading["name"] == name for heading in _HEADING.finditer(text)):
        raise NotesError(f"CHANGELOG.md has a section [{name}] already")
    notes(text, UNRELEASED)
    for file, words in PROVISIONAL.items():
        if words in (root / file).read_text(encoding="utf-8"):
            raise NotesError(f"{file} says {words!r}: rewrite what is true only before the first release")
    heading = f"## [{UNRELEASED}]\n"
    changelog.write_text(text.replace(heading, f"{heading}\n## [{name}] - {date}\n", 1), encoding="utf-8")
    module = _module(root)
    module.write_text(_VERSION.sub(f'VERSION = "{name}"', module.read_text(encoding="utf-8")), encoding="utf-8")
    for copy, pattern in COPIES.items():
        path = root / copy
        path.write_text(pattern.sub(rf"\g<1>{name}", path.read_text(encoding="utf-8")), encoding="utf-8")


def _module(root: Path) -> Path:
    return root / "core" / "sievemq_core" / "version.py"


def main(arguments: list[str] | None = None) -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m release.notes", description="Print the notes of a release.")
    parser.add_argument("version", nargs="?", default=version(), help="the tree's by default")
    parser.add_argument("--begin", action="store_true", help="make it the tree's version first")
    given = parser.parse_args(arguments)
    try:
        if given.begin:
            begin(ROOT, given.version, datetime.now(UTC).date().isoformat())
        sys.stdout.write(notes(CHANGELOG.read_text(encoding="utf-8"), given.version))
    except NotesError as error:
        parser.exit(1, f"{error}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
