"""A Chromium for all tests of the console, and brokers for it to look at."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from sievemq import ConnectionFactory, JMSContext
from sievemq_broker import EmbeddedBroker

from .chromium import Chromium, Page, find_chromium
from .shop import SETTINGS, Shop


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip what wants a browser where there is none: from one place, so that the report has one line for all of it."""
    if "chromium" in getattr(item, "fixturenames", ()) and find_chromium() is None:
        pytest.skip("no Chromium here: apt-get install chromium, or name one in the variable CHROMIUM")


@pytest.fixture(scope="session")
def chromium() -> Iterator[Chromium]:
    """A browser."""
    with Chromium() as chromium:
        yield chromium


@pytest.fixture(scope="session")
def window(chromium: Chromium) -> Iterator[Page]:
    """One window of ordinary size for many tests: opening one costs more than most of them."""
    with chromium.page() as page:
        yield page


@pytest.fixture
def page(window: Page, request: pytest.FixtureRequest) -> Iterator[Page]:
    """A page. At the end nothing may have gone wrong in it.

    Tests that only look at the shop go from view to view as a user does; for others the page begins anew.
    """
    looks = "shop_broker" in request.fixturenames
    url = request.getfixturevalue("shop_broker").http_url if looks else "nowhere"
    if "broker" in request.fixturenames:
        request.getfixturevalue("broker")  # it outlives the page: what the page says of its end is no concern of a test
    if window.value(f"location.href.startsWith({url!r}) && document.querySelector('dialog') === null"):
        window.problems.clear()
    else:
        window.leave()
    yield window
    complaints = window.complaints
    if not looks:
        window.leave()
    assert complaints == []


@pytest.fixture(scope="session")
def shop_broker() -> Iterator[EmbeddedBroker]:
    """A broker with something to see in every view. Tests only look at it."""
    # Nothing that takes time needs attention: names would have a badge in the tests of the next minute.
    off = {"no_consumer_seconds": 0, "stuck_seconds": 0, "growing_messages": 0}
    with EmbeddedBroker(http=True, settings={**SETTINGS, "attention": off}) as broker, Shop(broker):
        yield broker


@pytest.fixture
def broker() -> Iterator[EmbeddedBroker]:
    """An empty broker, for tests that change it."""
    with EmbeddedBroker(http=True) as broker:
        yield broker


@pytest.fixture
def client(broker: EmbeddedBroker) -> Iterator[JMSContext]:
    """A client of the empty broker."""
    with ConnectionFactory(broker.url).create_context() as context:
        yield context


@pytest.fixture
def depth(broker: EmbeddedBroker) -> Callable[[str], int]:
    """How many messages wait in a queue of the empty broker's default namespace."""

    def count(address: str) -> int:
        def look(domain: Any) -> int:
            return domain.namespace("default").destinations[address].depth

        return broker.call(look)

    return count
