"""Every link between the documents of this project leads to a file that is there, and to a heading in it; every path of
the tree that they name is one."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
DOCUMENTS = sorted(
    path.relative_to(ROOT)
    for pattern in ("*.md", "docs/**/*.md", "examples/**/*.md", "benchmarks/*.md", "tests/**/*.md", "docker/*.md")
    for path in ROOT.glob(pattern)
)
PACKAGES = sorted(path.parent for path in ROOT.glob("*/sievemq*/__init__.py"))
#: With which a path begins that is one of this tree, from the top or in a package.
FOLDERS = {
    path.name for top in (ROOT, *PACKAGES) for path in top.iterdir() if path.is_dir() and path.name[0] not in "._"
}


def prose(path: Path) -> str:
    """The document without its blocks of code."""
    return re.sub(r"^```.*?^```", "", path.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)


def anchors(path: Path) -> set[str]:
    """What can stand behind the # of a link to this document, as GitHub makes it of headings."""
    headings = re.findall(r"^#+ (.*)$", prose(path), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


def test_the_documents_are_found() -> None:
    assert {Path("README.md"), Path("docs/client.md"), Path("docs/decisions/README.md")} <= set(DOCUMENTS)


@pytest.mark.parametrize("document", DOCUMENTS, ids=str)
def test_every_link_leads_somewhere(document: Path) -> None:
    for link in re.findall(r"\]\(([^)\s]+)\)", prose(ROOT / document)):
        if re.match(r"(https?|mailto):", link):
            continue
        place, _, anchor = link.partition("#")
        target = (ROOT / document).parent / place if place else ROOT / document
        assert target.exists(), link
        if anchor and target.suffix == ".md":
            assert anchor in anchors(target), link


@pytest.mark.parametrize("document", DOCUMENTS, ids=str)
def test_every_path_is_one(document: Path) -> None:
    """As in `broker/sievemq_broker/domain/`, or in a package: `wire/commands.py`. What a build or a benchmark has
    written, and the environment that it was run in, need not be there."""
    for path in re.findall(r"`([\w.-]+/[\w./-]*)`", prose(ROOT / document)):
        if path.partition("/")[0] in FOLDERS and not path.startswith(("benchmarks/results/", "build/")):
            assert any((place / path).exists() for place in (ROOT, (ROOT / document).parent, *PACKAGES)), path
