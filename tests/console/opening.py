"""Showing a view of the console."""

from __future__ import annotations

from sievemq_broker import EmbeddedBroker

from .chromium import Page

__all__ = ["SHOWN", "open_view"]

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
    page.open(f"{broker.http_url}/{view}")
    page.until(SHOWN)
