"""Makes the pictures of docs/console.md and of the site: `make screenshots`, or
`python -m tests.site.console.screenshots [folder]`.

A real broker with a small shop's traffic, a real Chromium. It takes a minute, because charts want something to show.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote

from sievemq_broker import EmbeddedBroker

from .chromium import Chromium, Page
from .opening import open_view
from .shop import SETTINGS, Shop

FOLDER = Path(__file__).parents[3] / "docs" / "images"
#: The pictures of the site's first page, light and dark.
SITE = Path(__file__).parents[3] / "website" / "pages" / "images"

#: Seconds of traffic before the first picture.
SECONDS = 60

#: Bytes of one picture at most: they are in the repository.
MAX_BYTES = 150_000

ORDERS = "#/default/destination/queue%3Aorders"
WORD = quote("region = 'EU' AND NOT amount <> 86.5")
BENCH = f"#/default/workbench?selector={WORD}&destination=queue%3Aorders"
TRIAL = '{"properties": {"region": {"type": "string", "value": "EU"}}}'


def message(page: Page) -> None:
    page.click("td.main a")
    page.until("document.querySelector('.body-view') !== null")


def move(page: Page) -> None:
    page.click("details.actions summary")
    page.click(".menu-list button", "Move messages…")
    page.fill("dialog input[type=text]:not(.selector)", "queue:orders.large")
    page.fill("dialog input.selector", "amount > 350 AND NOT express")
    page.shows("messages match.", "dialog .count")
    page.until("!document.querySelector('dialog button[type=submit]').disabled")


def explained(page: Page) -> None:
    page.until("document.querySelectorAll('.sample details').length === 8")
    page.click(".sample details:nth-child(2) summary")
    page.until("document.querySelector('section > .explanation .branch') !== null")


def filled(page: Page) -> None:
    page.fill("textarea", '{\n  "order": 231,\n  "lines": [{"sku": "A-017", "quantity": 2}]\n}')
    for name, kind, value in (("region", "string", "EU"), ("amount", "double", "129.90"), ("customer", "long", "4711")):
        page.click("fieldset button", "Add a property")
        page.fill(".rows .row:last-child .name", name)
        page.choose(".rows .row:last-child .kind", kind)
        page.fill(".rows .row:last-child .what", value)
    page.value("document.activeElement.blur()")


def mistaken(page: Page) -> None:
    page.until("document.querySelector('.caret') !== null")


#: Name, view, height of the window, what is done first.
PICTURES: list[tuple[str, str, int, Callable[[Page], None] | None]] = [
    ("overview", "#/default/overview", 1010, None),
    ("queue", ORDERS.replace("orders", "invoices"), 800, None),
    ("consumers", ORDERS, 960, None),
    ("messages", f"{ORDERS}/messages?selector=region+%3D+%27EU%27+AND+express", 620, None),
    ("message", f"{ORDERS}/messages?selector=JMSCorrelationID+%3D+%27cart-00021%27", 660, message),
    ("move", ORDERS, 640, move),
    ("send", f"{ORDERS}/send", 700, filled),
    ("dead-letters", "#/default/dead-letters", 420, None),
    ("taps", "#/default/taps", 420, None),
    ("workbench", f"{BENCH}&message={quote(TRIAL)}", 920, explained),
    ("mistake", "#/default/workbench?selector=region+%3D+%27EU%27+ANDD+amount+%3E+10", 360, mistaken),
]


def main(folder: Path) -> None:
    """Make all of them.

    Raises:
        SystemExit: one is too large for the repository, or something went wrong in the page.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with EmbeddedBroker(http=True, settings=SETTINGS) as broker, Shop(broker) as shop, Chromium() as chromium:
        shop.open()
        with chromium.page() as page:
            prepare(page, broker, "#/default/overview")
            wait(page, SECONDS)
            for name, view, height, first in PICTURES:
                picture(page, broker, folder / f"{name}.png", view, height, first)
        with chromium.page(dark=True) as page:
            picture(page, broker, folder / "dark.png", ORDERS.replace("orders", "invoices"), 800, None)
        with chromium.page(width=390) as page:
            picture(page, broker, folder / "phone.png", "#/default/queues?sort=-depth", 844, None)
        site(chromium, broker)
    names = (*(name for name, *_ in PICTURES), "dark", "phone")
    for path in sorted([*(folder / f"{name}.png" for name in names), *SITE.glob("*.png")]):
        size = path.stat().st_size
        print(f"{path.name:18}{size:>8,} bytes")
        if size > MAX_BYTES:
            raise SystemExit(f"{path} is larger than {MAX_BYTES:,} bytes")


def site(chromium: Chromium, broker: EmbeddedBroker) -> None:
    """Why a message does not match, as the workbench shows it: that part of its view alone."""
    SITE.mkdir(parents=True, exist_ok=True)
    for name, dark in (("why", False), ("why-dark", True)):
        with chromium.page(dark=dark) as page:
            page.resize(page.width, 1_000)
            prepare(page, broker, f"{BENCH}&message={quote(TRIAL)}")
            explained(page)
            page.value("scrollTo(0, 0)")
            page.screenshot(SITE / f"{name}.png", element=".card:has(.sample)")


def prepare(page: Page, broker: EmbeddedBroker, view: str) -> None:
    """Show a view, with its data and fonts."""
    page.leave()
    open_view(page, broker, view)
    page.until("document.querySelector('.foot').innerText.includes('SieveMQ')")
    page.value("document.fonts.ready.then(() => true)")


def wait(page: Page, ticks: int) -> None:
    """Until the broker has told its totals so many times, about once a second."""
    for _ in range(ticks):
        page.value(
            "new Promise((resolve) => { const source = new EventSource('/api/v1/events');"
            "source.addEventListener('tick', () => { source.close(); resolve(); }); })"
        )


def picture(
    page: Page, broker: EmbeddedBroker, path: Path, view: str, height: int, first: Callable[[Page], None] | None
) -> None:
    """Write one."""
    page.resize(page.width, height)
    prepare(page, broker, view)
    if first is not None:
        first(page)
    wait(page, 3 if "overview" in view else 1)
    page.value("scrollTo(0, 0)")
    page.screenshot(path)
    if page.complaints:
        raise SystemExit(f"{path.name}: {page.complaints}")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER)
