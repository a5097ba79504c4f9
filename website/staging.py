"""Copies the documents into one tree from which the site is built, laid out as the repository is.

Links between documents stay as they are. What else a document links to is staged too: a picture is copied, a source
file or a folder becomes a page that shows it.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

from website.markup import tables
from website.navigation import ROOT

_FENCE = re.compile(r"(^ *```.*?^ *```$)", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\]\(([^)#\s]+)((?:#[^)\s]*)?)\)")
_IMAGE = re.compile(r'<img [^>]*src="([^"]+)"')
_OPENING = re.compile(r"^( *```\w+) ([\w./-]+)$", re.MULTILINE)
#: What the site's Markdown reads otherwise than a forge does: comments beside a table, lists indented by two or three.
_COMMENT = re.compile(r"^<!-- .* -->$", re.MULTILINE)
_NESTED = re.compile(r"^ {2,3}(?=[-*] )", re.MULTILINE)
_PICTURES = {".png", ".svg", ".jpg", ".gif"}
#: What a folder has that no page shows: made by tools.
_MADE = {"__pycache__", "node_modules", "target", "package-lock.json", "go.sum"}
_LANGUAGES = {".py": "python", ".mjs": "javascript", ".js": "javascript", ".java": "java", ".xml": "xml", ".go": "go",
              ".toml": "toml", ".yaml": "yaml", ".yml": "yaml", ".json": "json", ".ts": "typescript"}  # fmt: skip


def stage(target: Path) -> set[str]:
    """Write the tree.

    Args:
        target: a folder; it is emptied before.

    Returns:
        The pages, as paths in the tree.

    Raises:
        FileNotFoundError: a document links to what is not there; the text names both.
    """
    shutil.rmtree(target, ignore_errors=True)
    waiting = sorted((ROOT / "docs").rglob("*.md"))
    pages: set[str] = set()
    while waiting:
        path = waiting.pop()
        page = place_of(path)
        if page in pages:
            continue
        pages.add(page)
        written = target / page
        written.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix != ".md":
            written.write_text(_source(path), "utf-8")
            continue
        text = path.read_text("utf-8")
        for linked in links_of(path, text):
            if not linked.exists():
                raise FileNotFoundError(f"{path.relative_to(ROOT)} links to {linked}, which is not there")
            if linked.suffix in _PICTURES:
                copy = target / linked.relative_to(ROOT)
                copy.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(linked, copy)
            else:
                waiting.append(linked)
        written.write_text(_rewritten(path, text), "utf-8")
    return pages


def place_of(path: Path) -> str:
    """The page of a document, a source file or a folder, as a path in the tree."""
    place = path.relative_to(ROOT).as_posix()
    if place == "README.md":
        return "readme.md"  # the site's first page is another one
    return place if path.suffix == ".md" else f"{place}.md"


def links_of(document: Path, text: str) -> Iterator[Path]:
    """The files of this repository to which a document links."""
    prose = _FENCE.sub("", text)
    for link in [*(link for link, _ in _LINK.findall(prose)), *_IMAGE.findall(prose)]:
        if not re.match(r"\w+:", link):
            yield (document.parent / link).resolve()


def _rewritten(document: Path, text: str) -> str:
    """The text with links to pages of source files, and with fences as the site's Markdown has them."""

    def link(match: re.Match[str]) -> str:
        there, anchor = match.groups()
        path = (document.parent / there).resolve()
        if re.match(r"\w+:", there) or path.suffix in _PICTURES:
            return match[0]
        name = Path(place_of(path)).name
        whole = there.rstrip("/")
        return f"]({whole[: len(whole) - len(path.name)]}{name}{anchor})" if path.name == Path(whole).name else match[0]

    def opening(match: re.Match[str]) -> str:
        return f'{match[1]} title="{match[2]}"' if "." in match[2] else match[1]

    parts = _FENCE.split(text)
    parts[::2] = [_LINK.sub(link, _NESTED.sub("    ", _COMMENT.sub("", tables(part)))) for part in parts[::2]]
    parts[1::2] = [_OPENING.sub(opening, part) for part in parts[1::2]]
    return "".join(parts)


def _source(path: Path) -> str:
    """A page that shows a file, or all files of a folder."""
    name = path.relative_to(ROOT).as_posix()
    if path.is_file():
        return f"# {path.name}\n\n`{name}` of the repository:\n\n{_shown(path)}"
    files = sorted(file for file in path.rglob("*") if file.is_file() and not _MADE & {*file.parts})
    shown = "\n".join(f"## {file.relative_to(path).as_posix()}\n\n{_shown(file)}" for file in files)
    return f"# {path.name}\n\nThe folder `{name}` of the repository.\n\n{shown}"


def _shown(path: Path) -> str:
    return f"````{_LANGUAGES.get(path.suffix, 'text')}\n{path.read_text('utf-8')}````\n"
