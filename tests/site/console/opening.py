"""Showing a view of the console."""

from __future__ import annotations

from sievemq_broker import EmbeddedBroker

from .chromium import Page

#: True once the view that the address names is there, with its data.
SHOWN = """(() => { const main = document.querySelector('main');
    return main?.dataset.address === location.hash.split('?')[0] && main.getAttribute('aria-busy') === 'false'; })()"""


def open_view(page: Page, broker: EmbeddedBroker, view: str) -> None:
    """Go to a view of a broker's console, and wait until it shows its data.

    Args:
        page: where.
        broker: whose console.
        view: the fragment, with its `#`.
    """
    url = f"{broker.http_url}/{view}"
    if page.value("location.href.split('?')[0]") == url.partition("?")[0]:
        page.open("about:blank")  # a view whose query alone changes does not say when it has read its data
    else:
        page.value("window.moved = false, addEventListener('hashchange', () => { moved = true; }, { once: true }), 0")
    page.open(url)
    page.until(f"window.moved !== false && {SHOWN}")  # not the view before
