"""Checks of the built site: it needs no network, every link in it leads somewhere, every public name is described."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

#: Attributes whose target the browser loads by itself, by the element.
_LOADED = {"script": "src", "img": "src", "link": "href", "source": "src", "iframe": "src"}
#: Relations of a link element that load nothing.
_NAMED = {"canonical", "prev", "next", "alternate", "license"}


class Page(HTMLParser):
    """What is of interest in a page.

    Attributes:
        ids: targets of links into it.
        links: what it links to.
        loads: what a browser loads with it.
    """

    def __init__(self, text: str) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.links: set[str] = set()
        self.loads: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.ids |= {given[name] for name in ("id", "name") if name in given}
        if tag == "a" and "href" in given:
            self.links.add(given["href"])
        target = given.get(_LOADED.get(tag, ""))
        if target and not (tag == "link" and given.get("rel") in _NAMED):
            self.loads.add(target)


def problems(site: Path, names: Iterable[str]) -> Iterator[str]:
    """What is wrong with a built site.

    Args:
        site: its folder.
        names: public names, each of which must be the target of a link.
    """
    # 404.html is served for any path, and names what it loads from the top.
    paths = sorted(path for path in site.rglob("*.html") if path.name != "404.html")
    pages = {path: Page(path.read_text("utf-8")) for path in paths}
    for path, page in pages.items():
        here = path.relative_to(site)
        for target in sorted(page.loads):
            if urlsplit(target).scheme not in ("", "data") or target.startswith("//"):
                yield f"{here} loads {target} from the network"
            elif not target.startswith("data:") and not _file(path, target).exists():
                yield f"{here} loads {target}, which is not there"
        yield from (f"{here} links to {link}" for link in sorted(page.links) if not _leads(path, link, pages))
        if unresolved := re.search(r"<autoref[^>]*>", path.read_text("utf-8")):
            yield f"{here} names what is not described: {unresolved[0]}"
    for style in site.rglob("*.css"):
        for target in re.findall(r"(?:@import\s*|url\()[\"']?([^\"')]+)", style.read_text("utf-8")):
            if re.match(r"(https?:)?//", target):
                yield f"{style.relative_to(site)} loads {target} from the network"
    described = {name for page in pages.values() for name in page.ids}
    yield from (f"{name} is public and on no page" for name in sorted(set(names) - described))


def _file(path: Path, target: str) -> Path:
    file = (path.parent / unquote(urlsplit(target).path)).resolve()
    return file / "index.html" if file.is_dir() else file


def _leads(path: Path, link: str, pages: dict[Path, Page]) -> bool:
    parts = urlsplit(link)
    if parts.scheme or link.startswith("//"):
        return parts.scheme in ("http", "https", "mailto")
    file = _file(path, link) if parts.path else path
    if not file.exists():
        return False
    return not parts.fragment or file not in pages or unquote(parts.fragment) in pages[file].ids
