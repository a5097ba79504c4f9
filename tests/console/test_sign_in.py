"""The console of a broker with users: signing in and out, changes that carry the token, rights that are missing."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from sievemq import ConnectionFactory
from sievemq_broker import EmbeddedBroker

from .chromium import Chromium, Page
from .opening import open_view

pytestmark = pytest.mark.slow


@pytest.fixture
def page(chromium: Chromium) -> Iterator[Page]:
    """A page with cookies of its own."""
    with chromium.page() as page:
        yield page
        assert page.complaints == []


@pytest.fixture
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(http=True, users={"anna": "rosebud"}) as broker:
        with ConnectionFactory(broker.url).create_context("anna", "rosebud") as client:
            client.create_producer().send(client.create_queue("work"), "x")
        yield broker


def sign_in(page: Page) -> None:
    page.fill("#user", "anna")
    page.fill("#password", "rosebud")
    page.press("Enter")


def test_signing_in_changing_something_and_signing_out(page: Page, broker: EmbeddedBroker) -> None:
    page.open(f"{broker.http_url}/")
    page.until("location.pathname === '/sign-in' && document.querySelector('#user') !== null")
    page.fill("#user", "anna")
    page.fill("#password", "wrong")
    page.press("Enter")
    page.shows("User name or password is wrong.", "main")
    sign_in(page)
    page.shows("Deepest queues")
    page.shows("anna", ".foot")
    page.open(f"{broker.http_url}/#/default/destination/queue%3Awork")
    page.click("button", "Pause")
    page.shows("paused", ".badges")
    assert broker.call(lambda domain: domain.namespace("default").destinations["queue:work"].paused) is True
    page.click("button", "Sign out")
    page.until("location.pathname === '/sign-in'")
    page.open(f"{broker.http_url}/#/default/queues")
    page.until("location.pathname === '/sign-in'")


def test_after_a_session_has_ended_one_comes_back_to_the_same_view(page: Page, broker: EmbeddedBroker) -> None:
    page.open(f"{broker.http_url}/")
    page.until("document.querySelector('#user') !== null")
    sign_in(page)
    page.shows("Deepest queues")
    page.open(f"{broker.http_url}/#/default/queues?like=wo")
    page.shows("1 queue")
    page.send("Network.clearBrowserCookies")
    page.until("location.pathname === '/sign-in' && document.querySelector('#user') !== null")
    sign_in(page)
    page.shows("1 queue")
    assert page.value("location.hash") == "#/default/queues?like=wo"


def test_who_may_only_look_is_told_so(page: Page) -> None:
    guest = {"password": "rosebud", "rights": [{"may": ["browse"], "destination": "queue:open"}]}
    with EmbeddedBroker(http=True, settings={"users": {"anna": guest, "boss": "rosebud"}}) as broker:
        with ConnectionFactory(broker.url).create_context("boss", "rosebud") as client:
            for name in ("open", "secret"):
                client.create_producer().set_property("a", 1).send(client.create_queue(name), name)
        page.open(f"{broker.http_url}/")
        page.until("document.querySelector('#user') !== null")
        sign_in(page)
        page.shows("Deepest queues")
        assert [row[0] for row in page.rows("Deepest queues")] == ["open"]
        open_view(page, broker, "#/default/destination/queue%3Aopen/messages")
        page.shows("1 message on this page")
        page.click("button", "Pause")
        page.shows("must not manage", ".notices")
        assert broker.call(lambda domain: domain.namespace("default").destinations["queue:open"].paused) is False
        open_view(page, broker, "#/default/workbench?selector=a+%3D+1&destination=queue%3Aopen")
        page.shows("1 of 1 waiting message would match.", ".card:has(.sample)")  # counted by looking
        open_view(page, broker, "#/default/destination/queue%3Asecret")
        page.shows("You may not see this.")
