"""Rules, limits and users in the console: all of them are shown, and change while the broker runs."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from sievemq_broker import EmbeddedBroker
from sievemq_broker.domain.policy import DestinationPolicy

from .chromium import Page
from .opening import open_view

pytestmark = pytest.mark.slow


@pytest.fixture
def broker() -> Iterator[EmbeddedBroker]:
    settings = {"destinations": {"orders.*": {"max_attempts": 3, "slow_consumer": "close", "stomp_types": "infer"}}}
    with EmbeddedBroker(http=True, settings=settings) as broker:
        broker.call(lambda b: b.namespace("default").create("queue:orders.eu"))
        yield broker


def policy(broker: EmbeddedBroker) -> DestinationPolicy:
    return broker.call(lambda b: b.namespace("default").queue("queue:orders.eu").policy)


def test_a_queue_shows_every_rule_and_has_them_changed(page: Page, broker: EmbeddedBroker) -> None:
    open_view(page, broker, "#/default/destination/queue%3Aorders.eu")
    page.until("document.body.innerText.includes('Values in STOMP headers')")
    shown = page.value("document.querySelector('main').innerText")
    for words in ("queue:orders.*", "are closed", "become numbers and booleans", "sends are refused", "3"):
        assert words in shown
    page.click("section button", "Change…")
    page.until("document.querySelector('dialog') !== null")
    page.fill("dialog .rule-fields .field:nth-child(1) input", "5")
    page.click("dialog button", "Apply now")
    page.until("document.querySelector('dialog') === null")
    page.shows("The rules of queue:orders.eu apply. They end with the broker.", "body")  # behind the dialog too
    assert (policy(broker).max_messages, policy(broker).max_attempts) == (5, 3)
    page.shows("queue:orders.eu", "dl a")


def test_rules_are_added_and_reset(page: Page, broker: EmbeddedBroker) -> None:
    open_view(page, broker, "#/default/rules")
    page.shows("max_attempts = 3", "main")
    page.click(".head button", "New rule…")
    page.fill("dialog input[type=text]", "orders.eu")
    page.fill("dialog .rule-fields .field:nth-child(4) input", "9")
    page.click("dialog button", "Apply now")
    page.shows("queue:orders.eu", "main table")
    assert policy(broker).max_attempts == 9
    page.click("td.actions button", "Reset…")
    page.click("dialog button", "Reset")
    page.until("!document.querySelector('main table').innerText.includes('queue:orders.eu')")
    assert policy(broker).max_attempts == 3
    page.shows("a program has given them", "main")
    page.click("[aria-label='Limits of the broker'] button", "Change…")
    page.fill("dialog input[type=text]", "50")
    page.click("dialog button", "Apply now")
    page.shows("max_connections is 50. That ends with the broker.", "body")
    page.until("/50\\s/.test(document.querySelector('[aria-label=\"Limits of the broker\"] tbody tr').innerText)")
    assert broker._submit(lambda server: server.links.limit).result() == 50
    page.click("[aria-label='Limits of the broker'] button", "Reset…")
    page.click("dialog button", "Reset")
    page.until("document.querySelector('[aria-label=\"Limits of the broker\"] tbody').innerText.includes('10000')")
