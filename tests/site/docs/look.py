"""Looks at the built site in a real Chromium without a network: `make site`, `python -m tests.site.docs.look SITE`.

Every page is opened from the file system at the width of a phone, some at that of a laptop too: nothing may be loaded
from elsewhere, fail, or be wider than the window. The search finds a setting. With a second folder, pictures of some
pages are written there, light and dark.
"""

from __future__ import annotations

import sys
from pathlib import Path

from tests.site.console.chromium import Chromium, Page

WIDTHS = (390, 1280)
#: Pages of which pictures are made.
PICTURED = ("index", "docs/tutorial", "docs/coming-from/index", "docs/operating", "docs/testing",
            "reference/python/sievemq/JMSContext", "reference/python/sievemq/index", "reference/command-line",
            "reference/settings", "reference/http-api", "docs/decisions/index")  # fmt: skip

_READY = "document.readyState === 'complete'"
#: The search has a shadow of its own.
_SEARCH = "[...document.querySelectorAll('*')].find((it) => it.shadowRoot)?.shadowRoot"
_FOUND = f"[...({_SEARCH})?.querySelectorAll('a') ?? []].some((it) => it.href.includes('QueueView.configure'))"
_WIDER = "document.documentElement.scrollWidth - innerWidth"
_ELSEWHERE = """performance.getEntriesByType("resource").map((it) => it.name)
    .filter((it) => !it.startsWith("file:") && !it.startsWith("data:") && !it.startsWith("blob:"))"""


def main(site: Path, pictures: Path | None) -> int:
    """Look at every page; returns the exit code."""
    wrong: list[str] = []
    with Chromium() as chromium:
        for width in WIDTHS:
            with chromium.page(width=width) as page:
                page.send("Network.enable")
                page.send("Network.emulateNetworkConditions", offline=True, latency=0, downloadThroughput=-1,
                          uploadThroughput=-1)  # fmt: skip
                for path in sorted(site.rglob("*.html")):
                    name = path.relative_to(site).with_suffix("").as_posix()
                    if name != "404" and (width < 600 or name in PICTURED):
                        wrong += [f"{path.relative_to(site)} at {width} px: {it}" for it in problems_of(page, path)]
                wrong += searched(page, site)
            if pictures is not None:
                for dark in (False, True):
                    with chromium.page(width=width, dark=dark) as page:
                        take(page, site, pictures, "dark" if dark else "light")
    for problem in wrong:
        print(f"site: {problem}")
    print(f"site: looked at in Chromium, {len(wrong)} problems")
    return int(bool(wrong))


def problems_of(page: Page, path: Path) -> list[str]:
    """What is wrong with a page as the browser shows it."""
    page.leave()
    page.open(path.resolve().as_uri())
    page.until(f"location.protocol === 'file:' && {_READY}")
    found = [f"complains: {problem}" for problem in page.problems]
    found += [f"loads {url}" for url in page.value(_ELSEWHERE)]
    if (wider := page.value(_WIDER)) > 0:
        found.append(f"is {wider} px wider than the window")
    return found


def searched(page: Page, site: Path) -> list[str]:
    """Whether the search of the site finds a setting."""
    page.leave()
    page.open((site / "index.html").resolve().as_uri())
    page.until(f"location.protocol === 'file:' && {_READY}")
    page.value("document.querySelector('.md-search__button').click()")
    page.until(f"({_SEARCH})?.activeElement?.tagName === 'INPUT'")
    page.send("Input.insertText", text="redelivery_delay")
    try:
        page.until(_FOUND)
    except AssertionError as error:
        return [f"the search does not find redelivery_delay: {error}"]
    return []


def take(page: Page, site: Path, folder: Path, look: str) -> None:
    """Write pictures of some pages."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in PICTURED:
        page.resize(page.width, 900)
        page.open((site / f"{name}.html").resolve().as_uri())
        page.until(f"location.href.endsWith('{name}.html') && {_READY}")
        height = min(page.value("document.documentElement.scrollHeight"), 3_000)
        page.resize(page.width, height)
        page.screenshot(folder / f"{name.replace('/', '-')}-{page.width}-{look}.png")


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), Path(sys.argv[2]) if len(sys.argv) > 2 else None))
