"""Names, bodies and selectors that would like to be markup: they are shown as they are, and nothing runs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from urllib.parse import quote

import pytest

from sievemq import ConnectionFactory, JMSContext, MapMessage, Queue, TextMessage
from sievemq.taps import open_tap
from sievemq_broker import EmbeddedBroker

from .chromium import Chromium, Page
from .opening import open_view

pytestmark = pytest.mark.slow

HOSTILE = "</script><script>hit=1</script><img src=x onerror=hit=2>\"'`${hit=3}{{hit}}&lt;"
SELECTOR = "note <> '<img src=x onerror=\"hit=4\">'"

VIEWS = [
    "overview",
    "queues",
    "topics",
    "subscriptions",
    "dead-letters",
    "scheduled",
    "connections",
    "taps",
    "rules",
    f"destination/{quote('queue:' + HOSTILE, safe='')}",
    f"destination/{quote('queue:' + HOSTILE, safe='')}/messages",
    f"destination/{quote('queue:' + HOSTILE, safe='')}/send",
    f"destination/{quote('topic:' + HOSTILE, safe='')}",
    f"workbench?selector={quote(SELECTOR)}&destination={quote('queue:' + HOSTILE)}",
]


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    """Everything in it that has a name or a text is hostile."""
    settings = {"destinations": {f"queue:{HOSTILE}": {"max_attempts": 1}}}
    with (
        EmbeddedBroker(http=True, namespace=HOSTILE, settings=settings) as broker,
        ConnectionFactory(broker.url).create_context() as client,
        ConnectionFactory(broker.url).create_connection() as connection,
    ):
        open_tap(connection, HOSTILE, Queue(HOSTILE), selector=SELECTOR)
        fill(client)
        client.create_consumer(client.create_queue(HOSTILE), SELECTOR + " AND JMSPriority = 9")
        yield broker


def fill(client: JMSContext) -> None:
    client.set_client_id(HOSTILE)
    queue, topic = client.create_queue(HOSTILE), client.create_topic(HOSTILE)
    client.create_durable_consumer(topic, HOSTILE, SELECTOR).close()
    with client.create_context(JMSContext.SESSION_TRANSACTED) as failing:
        failing.create_producer().send(queue, HOSTILE)
        failing.commit()
        consumer = failing.create_consumer(queue)
        assert consumer.receive(60_000) is not None
        failing.rollback()
        consumer.close()
    text = TextMessage(json.dumps({HOSTILE: HOSTILE}))
    text.set_string_property("note", HOSTILE)
    text.set_jms_type(HOSTILE)
    text.set_jms_correlation_id(HOSTILE)
    text.set_jms_reply_to(queue)
    values = MapMessage()
    values.set_string(HOSTILE, HOSTILE)
    values.set_jms_type("map")
    for message in (text, values):
        client.create_producer().send(queue, message)
        client.create_producer().send(topic, message)
    client.create_producer().set_delivery_delay(3_600_000).set_jms_type(HOSTILE).send(queue, "later")


def open_hostile(page: Page, broker: EmbeddedBroker, view: str) -> None:
    open_view(page, broker, f"#/{quote(HOSTILE, safe='')}/{view}")


def harmless(page: Page) -> None:
    """Nothing ran, nothing was added to the page, nothing was refused by its policy."""
    assert page.value("typeof hit") == "undefined"
    assert page.value("document.querySelectorAll('img, iframe, object, main script, [onerror], [onclick]').length") == 0
    assert page.value("document.scripts.length") == 1
    assert page.problems == []


@pytest.fixture(scope="module")
def visitor(chromium: Chromium) -> Iterator[Page]:
    """One page that goes through all views."""
    with chromium.page() as page:
        yield page


@pytest.mark.parametrize("view", VIEWS, ids=[view.partition("?")[0].partition("%")[0] + view[-8:] for view in VIEWS])
def test_every_view_shows_them_as_they_are(visitor: Page, broker: EmbeddedBroker, view: str) -> None:
    open_hostile(visitor, broker, view)
    if view.startswith("workbench"):
        visitor.shows("1 of 2", ".card:has(.sample)")
        visitor.until("document.querySelectorAll('.sample details').length === 2")
        visitor.click(".sample summary")
    else:
        shown = "main" if view.startswith("destination") else "body"
        visitor.until(f"document.querySelector('{shown}').textContent.includes({json.dumps(HOSTILE)})")
    harmless(visitor)


def test_a_message_in_all_its_views(page: Page, broker: EmbeddedBroker) -> None:
    for kind, chips in ((HOSTILE, ("JSON", "Text")), ("map", ("Map",))):
        selector = quote("JMSType = '{}'".format(kind.replace("'", "''")))
        open_hostile(page, broker, f"destination/{quote('queue:' + HOSTILE, safe='')}/messages?selector={selector}")
        page.click("td.main a")
        for chip in chips:
            page.click("button.chip", chip)
            page.until("document.querySelector('.body-view').textContent.includes('onerror=hit=2')")
            harmless(page)


def test_errors_that_echo_input(page: Page, broker: EmbeddedBroker) -> None:
    open_hostile(page, broker, "workbench")
    page.fill("textarea.selector", f"a = 1 {HOSTILE}")
    page.until("document.querySelector('.caret') !== null")
    page.fill("input[list]", HOSTILE + "!")
    page.open(f"{broker.http_url}/#/default/destination/{quote('queue:<img src=x onerror=hit=5>', safe='')}")
    page.shows("This does not exist.")
    page.open(f"{broker.http_url}/#/<img src=x onerror=hit=6>/<script>hit=7<%2Fscript>?like=<b>")
    page.shows("There is no such view.")
    assert page.value("typeof hit") == "undefined"
    assert page.value("document.querySelectorAll('img, main b, main script').length") == 0
    assert page.complaints == []


def test_dialogs_and_notices(page: Page, broker: EmbeddedBroker) -> None:
    open_hostile(page, broker, f"destination/{quote('queue:' + HOSTILE, safe='')}")
    page.click("details.actions summary")
    page.click(".menu-list button", "Copy messages…")
    page.fill("dialog input[type=text]:not(.selector)", f"copy{HOSTILE}")
    page.click("dialog button[type=submit]", "Copy 2 messages")
    page.says("Copied 2 messages.")
    harmless(page)


def test_the_policy_blocks_injected_scripts(page: Page, broker: EmbeddedBroker) -> None:
    """The second line of defence, were there ever a mistake in the first."""
    open_hostile(page, broker, "queues")
    for attempt in (
        "document.body.innerHTML = '<b>x</b>'",
        "document.body.insertAdjacentHTML('beforeend', '<b>x</b>')",
        "document.write('<b>x</b>')",
        "new DOMParser().parseFromString('<b>x</b>', 'text/html')",
    ):
        assert (
            page.value(f"(() => {{ try {{ {attempt}; return 'ran'; }} catch (e) {{ return e.name; }} }})()")
            == "TypeError"
        )
    inline = "Object.assign(document.createElement('div'), {title: 'x'}).setAttribute('onclick', 'hit=8')"
    page.value(f"(() => {{ try {{ {inline} }} catch {{}} }})()")
    assert page.value("typeof hit") == "undefined"
    page.problems.clear()  # they are all about this
