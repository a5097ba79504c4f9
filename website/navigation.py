"""The site's navigation. docs/README.md is its only source: a new page takes one line there.

A heading of docs/README.md is a section, each link to a document below it a page. A page that is the README of a folder
brings the documents of that folder to which it links.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[1]
INDEX = ROOT / "docs" / "README.md"

_DOCUMENT = re.compile(r"(?<!!)\[([^\]]+)\]\(([^)#\s]+\.md)\)")
#: A row of a table of documents that have numbers.
_NUMBERED = re.compile(r"^\| \[(\d+)\](\([^)]+\)) \| (.*) \|$", re.MULTILINE)


@dataclass
class Entry:
    """A page, a section, or a section with a page of its own.

    Attributes:
        title: as the navigation shows it.
        page: path from the top of the repository, or of a generated page; None for a section without one.
        below: the entries of a section.
    """

    title: str
    page: str | None = None
    below: list[Entry] = field(default_factory=list)

    def pages(self) -> Iterator[str]:
        """Paths of this entry and all below it."""
        if self.page is not None:
            yield self.page
        for entry in self.below:
            yield from entry.pages()

    def as_toml(self) -> str:
        """The entry as an item of Zensical's `nav`."""
        if not self.below:
            return f"{{ {json.dumps(self.title)} = {json.dumps(self.page)} }}"
        items = [json.dumps(self.page)] if self.page is not None else []
        items += [entry.as_toml() for entry in self.below]
        return f"{{ {json.dumps(self.title)} = [{', '.join(items)}] }}"


def sections() -> list[Entry]:
    """The sections of docs/README.md, with their pages."""
    found = []
    for part in INDEX.read_text("utf-8").split("\n## ")[1:]:
        title, _, text = part.partition("\n")
        section = Entry(title.strip(), below=_entries(text, INDEX.parent))
        for entry in section.below:
            path = ROOT / str(entry.page)
            if path.name == "README.md" and path.parent != ROOT:
                inside = _entries(path.read_text("utf-8"), path.parent)
                entry.below = [below for below in inside if (ROOT / str(below.page)).parent == path.parent]
        found.append(section)
    return found


def _entries(text: str, folder: Path) -> list[Entry]:
    """The documents to which a text links, each once."""
    found: dict[str, Entry] = {}
    for title, link in _DOCUMENT.findall(_NUMBERED.sub(r"[\1 \3]\2", text)):
        page = (folder / link).resolve().relative_to(ROOT).as_posix()
        found.setdefault(page, Entry(title, page))
    return list(found.values())
