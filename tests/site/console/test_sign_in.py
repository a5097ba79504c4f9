"""The console of a broker with users: signing in and out, changes that carry the token, rights that are missing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

import pytest

from sievemq import ConnectionFactory, Queue, ResourceAllocationRuntimeException
from sievemq.taps import open_tap
from sievemq_broker import EmbeddedBroker

from .chromium import Chromium, Page
from .opening import SHOWN, open_view

pytestmark = pytest.mark.slow


@pytest.fixture
def page(chromium: Chromium) -> Iterator[Page]:
    """A page with cookies of its own."""
    with chromium.page() as page:
        yield page
        assert page.complaints == []


@pytest.fixture
def broker() -> Iterator[EmbeddedBroker]:
    rules = {"full": {"max_messages": 1, "at_limit": "fail"}}
    with EmbeddedBroker(http=True, users={"anna": "rosebud"}, settings={"destinations": rules}) as broker:
        with ConnectionFactory(broker.url).create_context("anna", "rosebud") as client:
            client.create_producer().send(client.create_queue("work"), "x")
        yield broker


def sign_in(page: Page) -> None:
    page.fill("#user", "anna")
    page.fill("#password", "rosebud")
    page.press("Enter")


def test_who_was_refused_and_who_failed_to_sign_in(page: Page, broker: EmbeddedBroker) -> None:
    with ConnectionFactory(broker.url, client_id="flooder").create_context("anna", "rosebud") as context:
        for _ in range(3):
            with suppress(ResourceAllocationRuntimeException):
                context.create_producer().send(context.create_queue("full"), "x")
    page.open(f"{broker.http_url}/sign-in")
    page.fill("#user", "anna")
    page.fill("#password", "wrong")
    page.press("Enter")
    page.shows("User name or password is wrong.", "main")
    sign_in(page)
    page.shows("Deepest queues")
    open_view(page, broker, "#/default/broker")
    assert page.rows("Refused sends and requests")[0][:4] == ["flooder", "queue:full", "max_messages", "2"]
    assert page.rows("Failed sign-ins")[0][:2] == ["127.0.0.1", "anna"]
    shown = page.text("main")
    assert "No client has rolled back." in shown


def test_the_rights_of_a_user_are_lines_that_fit_a_phone(page: Page) -> None:
    rights = [{"may": ["send"], "destination": f"queue:{name}.orders-of-the-shop.*"} for name in ("DLQ", "eu")]
    users = {"anna": "rosebud", "shop": {"password": "x", "rights": rights}}
    with EmbeddedBroker(http=True, settings={"users": users}) as broker:
        page.open(f"{broker.http_url}/sign-in")
        sign_in(page)
        page.shows("Deepest queues")
        page.resize(390)
        open_view(page, broker, "#/default/rules")
        page.shows("send: queue:DLQ.orders-of-the-shop.* in default\nsend: queue:eu.orders-of-the-shop.* in default")
        cut = "[...document.querySelectorAll('.table td')].filter((cell) => cell.scrollWidth > cell.clientWidth)"
        assert page.value(f"{cut}.map((cell) => cell.innerText)") == []


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


def test_signing_in_again_returns_to_the_same_view(page: Page, broker: EmbeddedBroker) -> None:
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


def test_a_read_only_user_sees_permitted_destinations_only(page: Page) -> None:
    guest = {"password": "rosebud", "rights": [{"may": ["browse"], "destination": "queue:open"}]}
    with EmbeddedBroker(http=True, settings={"users": {"anna": guest, "boss": "rosebud"}}) as broker:
        with ConnectionFactory(broker.url).create_context("boss", "rosebud") as client:
            for name in ("open", "secret"):
                client.create_producer().set_property("a", 1).send(client.create_queue(name), name)
        page.open(f"{broker.http_url}/")
        page.until("document.querySelector('#user') !== null")
        sign_in(page)
        page.shows("Deepest queues")
        page.until(SHOWN)
        assert [row[0] for row in page.rows("Deepest queues")] == ["open"]
        open_view(page, broker, "#/default/destination/queue%3Aopen/messages")
        page.shows("1 message on this page")
        open_view(page, broker, "#/default/workbench?selector=a+%3D+1&destination=queue%3Aopen")
        page.shows("1 of 1 waiting message would match.", ".card:has(.sample)")  # counted by looking
        open_view(page, broker, "#/default/destination/queue%3Asecret")
        page.shows("You may not see this.")


GUEST = {
    "password": "rosebud",
    "rights": [
        {"may": ["browse"], "destination": "queue:open"},
        {"may": ["browse"], "destination": "queue:absent"},
        {"may": ["send"], "destination": "queue:inbox"},
        {"may": ["view"], "destination": "topic:*"},
    ],
}

#: Why something cannot be pressed: text of each control that is off, with its title.
REASONS = """Object.fromEntries(Array.from(
    document.querySelectorAll('main button:disabled[title], [aria-disabled=true]'),
    (off) => [off.textContent, off.title]))"""


@pytest.fixture
def guarded() -> Iterator[EmbeddedBroker]:
    """A broker with something that a guest may look at, and somebody who may do everything."""
    users = {"anna": GUEST, "boss": "rosebud"}
    with EmbeddedBroker(http=True, settings={"users": users}) as broker:
        with ConnectionFactory(broker.url, client_id="shop").create_context("boss", "rosebud") as client:
            for name in ("open", "inbox", "secret"):
                client.create_producer().set_property("a", 1).send(client.create_queue(name), name)
            client.create_durable_consumer(client.create_topic("prices"), "watch").close()
        with ConnectionFactory(broker.url).create_connection("boss", "rosebud") as connection:
            open_tap(connection, "audit", Queue("open"), start="earliest")
        yield broker


def test_forbidden_actions_are_disabled_with_a_reason(page: Page, guarded: EmbeddedBroker) -> None:
    page.open(f"{guarded.http_url}/")
    page.until("document.querySelector('#user') !== null")
    sign_in(page)
    page.shows("Deepest queues")
    page.until("document.querySelector('.tile:nth-child(3) b').textContent === '2'")  # ready, in what she may see
    page.until("document.querySelector('.tile[hidden] .name').textContent === 'Memory'")
    page.until("document.querySelector('.foot .user [title]')?.title.includes('browse: queue:open in default')")
    open_view(page, guarded, "#/default/queues")
    page.until("document.querySelector('main .head button:disabled') !== null")
    assert page.value(REASONS)["New queue"].startswith("You have no right to manage any queue in default.")

    open_view(page, guarded, "#/default/destination/queue%3Aopen")
    off = page.value(REASONS)
    assert {"Pause", "Purge…", "Move messages…", "Delete the queue…", "Send", "Delete…"} <= off.keys()
    assert off["Pause"] == "You have no right to manage queue:open. An administrator can grant it."
    assert off["Send"] == "You have no right to send to queue:open. An administrator can grant it."
    assert off["Delete…"].startswith("The tap is boss's: deleting it")
    open_view(page, guarded, "#/default/destination/queue%3Aopen/messages")
    page.shows("1 message on this page")
    page.click("td.check input")
    assert {"Move…", "Copy…", "Delete…"} <= page.value(REASONS).keys()
    page.click("td.main a")
    page.shows("JMSPriority")
    assert {"Send like this", "Move…", "Delete…"} <= page.value(REASONS).keys()
    open_view(page, guarded, "#/default/destination/queue%3Aopen/send")
    assert page.value(REASONS)["Send"].startswith("You have no right to send to queue:open.")

    open_view(page, guarded, "#/default/destination/queue%3Ainbox")
    assert page.value(REASONS)["Messages"] == (
        "You have no right to see messages of queue:inbox. An administrator can grant it."
    )
    page.click(".tabs a", "Send")
    page.until("document.querySelector('form.send button[type=submit]:not(:disabled)') !== null")
    page.fill("textarea", "hello")
    page.click("form.send button[type=submit]")
    page.says("Sent 1 message to queue:inbox.")
    open_view(page, guarded, "#/default/destination/queue%3Aabsent/send")
    assert page.value(REASONS)["Send"].startswith("You have no right to send to queue:absent.")
    open_view(page, guarded, "#/default/subscriptions")
    page.shows("watch")
    page.click("td.check input")
    assert page.value(REASONS)["Remove…"].startswith("You have no right to manage topic:prices.")


def test_only_who_may_manage_a_queue_closes_its_consumers(page: Page, guarded: EmbeddedBroker) -> None:
    page.open(f"{guarded.http_url}/")
    page.until("document.querySelector('#user') !== null")
    sign_in(page)
    page.shows("Deepest queues")
    with ConnectionFactory(guarded.url, client_id="worker").create_context("boss", "rosebud") as client:
        client.create_consumer(client.create_queue("open"))
        open_view(page, guarded, "#/default/client/worker")
        page.shows("Only connections to namespaces that you may view as a whole are listed.")
        page.click("td.check input")
        refused = "You have no right to manage queue:open. An administrator can grant it."
        assert page.value(REASONS)["Close…"] == refused
        page.click("td.main a")
        page.shows("Messages that it holds")
        assert page.value(REASONS)["Close…"] == refused


def test_a_user_with_all_rights_can_press_every_button(page: Page, guarded: EmbeddedBroker) -> None:
    page.open(f"{guarded.http_url}/")
    page.until("document.querySelector('#user') !== null")
    page.fill("#user", "boss")
    page.fill("#password", "rosebud")
    page.press("Enter")
    page.shows("Deepest queues")
    page.until("document.querySelector('.foot .user [title]')?.title === 'may do everything'")
    assert page.value("document.querySelector('.tile[hidden]')") is None
    for view in ("destination/queue%3Aopen", "destination/queue%3Aopen/send", "queues", "subscriptions", "taps"):
        open_view(page, guarded, f"#/default/{view}")
        assert page.value(REASONS) == {}
