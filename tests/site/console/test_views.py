"""Every view shows what is really in the broker."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from sievemq import ConnectionFactory, DeliveryMode, JMSContext, Queue
from sievemq.taps import open_tap
from sievemq_broker import EmbeddedBroker
from sievemq_broker.server.server import Server

from .chromium import Chromium, Page
from .opening import open_view

pytestmark = pytest.mark.slow

ORDERS = "#/default/destination/queue%3Aorders"


def test_overview(page: Page, shop_broker: EmbeddedBroker) -> None:
    open_view(page, shop_broker, "")
    page.until("document.querySelectorAll('.tile .spark').length === 8")
    shown = page.text(".tiles")
    for word in ("Messages in", "Ready", "In flight", "Memory", "of 8.0 MiB"):
        assert word in shown
    rows = {row[0].splitlines()[0]: row for row in page.rows("Deepest queues")}
    assert rows["orders"][1] == "204"
    page.shows("SieveMQ 0.", ".foot")
    page.until("document.querySelectorAll('.chart polyline').length >= 3")  # drawn, from ticks and the past
    assert "Rates: in" in page.value("document.querySelector('.chart').getAttribute('aria-label')")
    assert page.problems == []


def test_queues_are_filtered_and_sorted_and_the_address_says_so(page: Page, shop_broker: EmbeddedBroker) -> None:
    open_view(page, shop_broker, "#/default/queues")
    page.shows("10 queues")
    names = [row[0].splitlines()[0] for row in page.rows("Queues")]
    assert names == sorted(names)
    page.click("th button", "Ready")
    page.until("document.querySelector('tbody tr').innerText.includes('orders')")
    assert page.value("document.querySelector('th[aria-sort=descending]').innerText") == "Ready"
    page.press("/")
    page.send("Input.insertText", text="ship*us")
    page.shows("1 queue")
    assert [row[0] for row in page.rows("Queues")] == ["shipments.us"]
    assert page.value("location.hash") == "#/default/queues?sort=-depth&like=ship*us"
    assert page.problems == []


def test_lists_come_in_pages(page: Page, broker: EmbeddedBroker) -> None:
    def make(domain: object) -> None:
        for number in range(120):
            domain.namespace("default").declare(f"queue:q{number:03}")  # type: ignore[attr-defined]

    broker.call(make)
    open_view(page, broker, "#/default/queues")
    page.shows("120 queues")
    assert len(page.rows("Queues")) == 50
    page.click("button", "Next page")
    page.shows("q050")
    page.click("button", "Next page")
    page.shows("q119")
    assert len(page.rows("Queues")) == 20
    page.value("history.back()")
    page.shows("q050")
    page.value("history.back()")
    page.shows("q000")
    page.value("history.forward()")
    page.shows("q050")
    page.click("button", "Next page")
    page.shows("q119")
    page.click("button", "Previous page")
    page.shows("q050")
    page.click("button", "Previous page")
    page.shows("q000")
    page.until("Array.from(document.querySelectorAll('.pager button'), (b) => b.disabled).join() === 'true,true,false'")
    page.click("button", "Next page")
    page.shows("q050")
    page.click("button", "First page")
    page.shows("q000")


#: Lists take their time.
SLOW = """(() => { const real = fetch; window.fetch = async (...what) => {
    const answer = await real(...what);
    await new Promise((resolve) => setTimeout(resolve, 150));
    what[1]?.signal?.throwIfAborted();
    return answer; }; })()"""


def fill_topics(broker: EmbeddedBroker) -> list[object]:
    def make(domain: object) -> None:
        for number in range(220):
            domain.namespace("default").declare(f"topic:n{number:03}")  # type: ignore[attr-defined]

    broker.call(make)
    return []


def fill_subscriptions(broker: EmbeddedBroker) -> list[object]:
    context = ConnectionFactory(broker.url).create_context()
    topic = context.create_topic("prices")
    return [context, *(context.create_shared_durable_consumer(topic, f"n{number:03}") for number in range(220))]


def fill_taps(broker: EmbeddedBroker) -> list[object]:
    connection = ConnectionFactory(broker.url).create_connection()
    return [connection, *(open_tap(connection, f"n{number:03}", Queue("orders")) for number in range(220))]


def fill_connections(broker: EmbeddedBroker) -> list[object]:
    factory = ConnectionFactory(broker.url)
    contexts = [factory.create_context() for _ in range(220)]
    for number, context in enumerate(contexts):
        context.set_client_id(f"n{number:03}")
    return contexts


@pytest.mark.parametrize(
    ("view", "fill", "pages"),
    [
        ("topics", fill_topics, ("n000", "n050", "n100")),
        ("subscriptions", fill_subscriptions, ("n000", "n050", "n100")),
        ("taps", fill_taps, ("n000", "n050", "n100")),
        ("connections", fill_connections, ("n000", "n050", "n100")),
    ],
)
def test_a_list_keeps_its_place_whichever_way_its_pages_are_turned(
    page: Page,
    broker: EmbeddedBroker,
    view: str,
    fill: Callable[[EmbeddedBroker], list[object]],
    pages: tuple[str, str, str],
) -> None:
    """A click that comes before a page is there goes on from that page, even while the list is read again."""
    held = fill(broker)
    open_view(page, broker, f"#/default/{view}")
    first, second, third = pages
    page.shows(first)
    page.value(SLOW)
    for button, last in (("Next page", third), ("Previous page", first)):
        for _ in range(2):
            page.value("dispatchEvent(new HashChangeEvent('hashchange'))")  # the page is read again
            page.click("button", button)
        page.shows(last)
    for number in (second, third):
        page.click("button", "Next page")
        page.shows(number)
    for step, number in (("back", second), ("back", first), ("forward", second)):
        page.value(f"history.{step}()")
        page.shows(number)
        assert page.value("location.hash").split("?")[0] == f"#/default/{view}"
    page.click("button", "First page")
    page.shows(first)
    assert page.problems == []
    for each in held[:1] if view in ("subscriptions", "taps") else held:
        each.close()  # type: ignore[attr-defined]


def test_going_back_in_the_consumers_of_a_queue_stays_there(
    page: Page, broker: EmbeddedBroker, client: JMSContext
) -> None:
    queue = client.create_queue("orders")
    consumers = [client.create_consumer(queue, f"n = {number}") for number in range(1000, 1120)]
    open_view(page, broker, ORDERS)
    for selector in ("n = 1050", "n = 1100"):
        page.click("button", "Next page")
        page.shows(selector)
    for step, selector in (("back", "n = 1050"), ("back", "n = 1000"), ("forward", "n = 1050")):
        page.value(f"history.{step}()")
        page.shows(selector)
        assert page.value("location.hash").startswith(ORDERS)
    page.click("button", "Previous page")
    page.shows("n = 1000")
    assert len(consumers) == 120


def test_topics_with_their_subscriptions(page: Page, shop_broker: EmbeddedBroker) -> None:
    open_view(page, shop_broker, "#/default/topics")
    (row,) = page.rows("Topics")
    assert (row[0], row[1], row[4]) == ("prices", "40", "3")
    page.click("td a", "prices")
    page.until("document.querySelectorAll('table[aria-label=Subscriptions] tbody tr').length === 3")
    assert "board" in page.text("main")
    open_view(page, shop_broker, "#/default/subscriptions")
    page.until("document.querySelectorAll('.table[aria-label=Subscriptions] td.kinds').length === 3")
    rows = {row[1]: row for row in page.rows("Subscriptions")}
    assert rows["late"][3].split() == ["durable", "offline"]
    assert rows["late"][4:6] == ["currency = 'EUR'", "20"]
    assert rows["late"][2] == "desk-4"
    assert rows["archive"][3].split() == ["durable", "shared", "offline"]
    assert rows["unnamed"][4] == "change > 0.05"
    page.click("td a", "20")  # the messages that wait for it
    page.shows("Of the subscription late.")
    page.shows("20 messages on this page")
    assert page.problems == []


def test_queue_with_charts_consumers_and_rules(page: Page, shop_broker: EmbeddedBroker) -> None:
    open_view(page, shop_broker, ORDERS)
    page.shows("Selectors in use")
    assert len(page.value("Array.from(document.querySelectorAll('.chart'), c => c.getAttribute('aria-label'))")) == 2
    rows = {row[1]: row for row in page.rows("Consumers")}
    assert rows["picker-1"][2] == "region = 'EU' AND amount > 400"
    assert (rows["picker-2"][3], rows["picker-2"][5].split()[0]) == ("9.7 %", "22")
    assert rows["picker-3"][3] == "0 %"
    shown = page.text()
    for word in ("queue:DLQ.orders", "Milliseconds between attempts\n2,000", "50,000"):
        assert word in shown
    assert page.problems == []


def test_messages_by_selector_and_cursor(page: Page, shop_broker: EmbeddedBroker) -> None:
    open_view(page, shop_broker, f"{ORDERS}/messages")
    page.shows("50 messages on this page")
    page.click("button", "Next page")
    page.until("location.hash.includes('cursor=')")
    page.fill("input.selector", "region = 'APAC' AND items = 4")
    page.press("Enter")
    page.until("location.hash.includes('APAC') && !location.hash.includes('cursor=')")
    page.until("Array.from(document.querySelectorAll('td.properties')).every(c => c.innerText.includes('APAC'))")
    rows = page.rows("Messages")
    assert rows[0][1] == "order"
    assert "items 4" in rows[0][2].replace("\n", " ")
    page.choose("select:not([aria-label])", "in_flight")
    page.until("location.hash.includes('state=in_flight')")
    page.fill("input.selector", "")
    page.press("Enter")
    page.shows("26 messages on this page")
    assert page.problems == []


def test_a_mistake_in_a_selector_is_marked_as_it_is_typed(page: Page, shop_broker: EmbeddedBroker) -> None:
    open_view(page, shop_broker, f"{ORDERS}/messages")
    page.fill("input.selector", "region = 'ΕΥ𝔘' ANDD 1")
    page.until("document.querySelector('.caret mark')?.innerText === 'ANDD'")
    line, carets = page.value("document.querySelector('.caret').textContent").split("\n")
    assert carets == " " * line.index("ANDD") + "^^^^"
    assert page.value("document.querySelector('input.selector').getAttribute('aria-invalid')") == "true"
    page.fill("input.selector", "region = 'EU'")
    page.until("document.querySelector('.caret') === null")


@pytest.mark.parametrize(
    ("kind", "view", "words"),
    [
        ("stock", "Map", ["weight", "double", "0.75", "fragile", "boolean", "digest", "bytes"]),
        ("track", "Stream", ["Hamburg", "long", "1763700000000", "53.55"]),
        ("label", "Hex", ["00000000  25 50 44 46 2d 31 2e 37  0a 00 01 02", "%PDF-1.7·"]),
    ],
)
def test_bodies(page: Page, shop_broker: EmbeddedBroker, kind: str, view: str, words: list[str]) -> None:
    where = f"#/default/destination/queue%3Ainventory/messages?selector=JMSType%20%3D%20%27{kind}%27"
    open_view(page, shop_broker, where)
    page.click("td.main a")
    page.until("document.querySelector('.chip[aria-pressed=true]') !== null")
    assert page.value("document.querySelector('.chip[aria-pressed=true]').innerText") == view
    shown = page.text(".body-view")
    for word in words:
        assert word in shown


def test_the_reason_why_a_view_cannot_be_shown_stays_until_it_can(page: Page, shop_broker: EmbeddedBroker) -> None:
    """Also in a view that does not read its data at each tick."""
    open_view(page, shop_broker, "#/later/dead-letters")
    page.shows("There is no namespace later.")
    requests = "performance.getEntriesByType('resource').filter(({ name }) => name.includes('/dead-letters?')).length"
    page.until("document.body.classList.contains('live')")  # it may be read once for that
    page.until(f"{requests} > {page.value(requests) + 1}")
    page.shows("There is no namespace later.")
    page.click("button", "Make it")
    page.shows("No dead letters.")
    page.until("!document.body.innerText.includes('There is no namespace later.')")
    shop_broker.call(lambda broker: broker.delete_namespace("later"))


def test_a_line_of_bytes_is_not_broken(page: Page, shop_broker: EmbeddedBroker) -> None:
    where = "#/default/destination/queue%3Ainventory/messages?selector=JMSType%20%3D%20%27label%27"
    open_view(page, shop_broker, where)
    page.click("td.main a")
    page.until("document.querySelector('pre.hex') !== null")
    assert page.value(
        "(() => { const pre = document.querySelector('pre.hex'), style = getComputedStyle(pre); "
        "return [style.whiteSpace, pre.scrollWidth <= pre.clientWidth]; })()"
    ) == ["pre", True]


@pytest.mark.parametrize("view", ["overview", "queues", "subscriptions", "dead-letters"])
def test_a_namespace_that_does_not_exist(page: Page, shop_broker: EmbeddedBroker, view: str) -> None:
    open_view(page, shop_broker, f"#/nosuch/{view}")
    page.shows("There is no namespace nosuch.")
    assert page.value("document.querySelectorAll('h1').length") == 2  # that of the view is hidden
    page.until("document.querySelector('select[aria-label=Namespace]').selectedOptions[0].text.endsWith('not exist)')")
    page.click(".nothing a", "default")
    page.until("location.hash === '#/default/overview'")
    page.shows("Deepest queues")


def test_messages_in_flight_have_a_past(page: Page, shop_broker: EmbeddedBroker) -> None:
    open_view(page, shop_broker, "#/default/overview")
    first = (
        "document.querySelectorAll('.chart')[1].querySelector('.series{} .line').getAttribute('points').split(',')[0]"
    )
    page.until(f"{first.format(1)} === {first.format(0)}")
    open_view(page, shop_broker, ORDERS)
    page.until(f"{first.format(1).replace('[1]', '[0]')} === {first.format(0).replace('[1]', '[0]')}")


def test_charts_leave_gaps_open(page: Page, shop_broker: EmbeddedBroker) -> None:
    open_view(page, shop_broker, "#/default/overview")
    times = "[0, 1, 2, 3, 60, 61, 62].map((s) => ({ time: s * 1000 }))"
    parts = "import('/console/chart.js').then(({{ unbroken }}) => unbroken({}).map((part) => part.length))"
    assert page.value(parts.format(times)) == [4, 3]
    assert page.value(parts.format(f"{times}, [1500]")) == [2, 2, 3]


def test_a_message_with_typed_properties_and_json(page: Page, shop_broker: EmbeddedBroker) -> None:
    open_view(page, shop_broker, f"{ORDERS}/messages?selector=JMSCorrelationID%20%3D%20%27cart-00001%27")
    page.click("td.main a")
    page.shows("cart-00001")
    cells = page.value("Array.from(document.querySelectorAll('.typed tbody tr'), r => r.innerText.split(/\\s+/))")
    assert ["customer", "long", "4000000001"] in cells
    assert ["express", "boolean", "false"] in cells
    assert ["amount", "double", "49.5"] in cells
    assert '\n  "order": 1,' in page.text(".body-view")
    page.click("button.chip", "Text")
    page.shows('{"order": 1, ', ".body-view")
    assert page.problems == []


def test_dead_letters_by_reason(page: Page, shop_broker: EmbeddedBroker) -> None:
    open_view(page, shop_broker, "#/default/dead-letters")
    (attempts,) = page.rows("Dead letters in queue:DLQ.payments")
    assert attempts[:3] == ["failed too often", "queue:payments", "9"]
    (expired,) = page.rows("Dead letters in queue:DLQ.carts")
    assert expired[:3] == ["expired before delivery", "queue:carts", "1"]
    page.click("section:has(table[aria-label$=payments]) a.button", "Browse")
    page.shows("9 messages on this page")
    assert page.problems == []


def test_scheduled(page: Page, shop_broker: EmbeddedBroker) -> None:
    open_view(page, shop_broker, "#/default/scheduled")
    rows = page.rows("Scheduled")
    assert len(rows) == 4
    assert rows[0][1] == "queue:emails"
    assert re.search(r"\d\d:\d\d:\d\d in \d+ m", rows[0][2])
    assert rows[0][3] == "reminder"
    page.shows("4 messages", ".tools")
    page.click("th button", "Due")
    page.until("location.hash === '#/default/scheduled?sort=-due'")
    page.until(f"!document.querySelector('tbody tr').innerText.includes({rows[0][0]!r})")
    assert [row[0] for row in page.rows("Scheduled")] == [row[0] for row in reversed(rows)]
    open_view(page, shop_broker, "#/default/destination/queue%3Aemails/scheduled")
    page.until("document.querySelector('th[aria-sort=ascending]')")
    page.until("document.querySelectorAll('tbody tr').length === 4")
    first = page.rows("Scheduled in queue:emails")[0]
    page.click("th button", "Due")
    page.until("document.querySelector('th[aria-sort=descending]')")
    page.until(f"!document.querySelector('tbody tr').innerText.includes({first[0]!r})")
    assert page.problems == []


def test_connections(page: Page, shop_broker: EmbeddedBroker) -> None:
    open_view(page, shop_broker, "#/default/connections")
    rows = {row[1]: row for row in page.rows("Connections")}
    assert {"back-office", "till", "desk-4", "board", "picker-1", "picker-2", "picker-3"} <= set(rows)
    assert (rows["picker-2"][3], rows["picker-2"][7]) == ("–", "22")
    assert rows["board"][6] == "1"
    page.shows("connections", ".tools")
    page.press("/")
    page.send("Input.insertText", text="picker")
    page.shows("3 connections")
    assert page.value("document.querySelector('tfoot').innerText").split() == ["All", "3", "26"]
    page.click("th button", "Unacked")
    page.until("location.hash === '#/default/connections?like=picker&sort=-unacknowledged'")
    page.until("document.querySelector('tbody tr').innerText.includes('picker-2')")
    page.value("history.back()")  # each order is a step in the browser's history
    page.until("location.hash === '#/default/connections?like=picker'")
    page.choose("select[aria-label=Only]", "holding")
    page.shows("2 connections")
    assert page.problems == []


def test_a_connection_its_consumers_and_its_client_id_lead_to_each_other(
    page: Page, shop_broker: EmbeddedBroker
) -> None:
    open_view(page, shop_broker, "#/default/connections?like=picker-2")
    page.click("td.main a.id")
    page.shows("picker-2", ".facts")
    page.until("document.querySelectorAll('table[aria-label=Sessions] tbody tr').length === 1")
    (row,) = page.rows("Consumers")
    assert (row[1], row[2], row[5]) == ("queue:orders", "express AND items >= 3", "22")
    page.click("table[aria-label=Consumers] td.main a.id")
    page.shows("Consumer of queue:orders")
    held = page.rows("Messages that it holds")
    assert len(held) == 22
    assert page.value("document.querySelectorAll('main tbody .badge.warn').length") == 0  # at its first consumer
    page.click(".facts a", "picker-2")  # its client id
    page.shows("client id", ".lead")
    assert [len(page.rows(label)) for label in ("Connections", "Subscriptions", "Consumers")] == [1, 0, 1]
    page.click("table[aria-label=Consumers] td.main a.address")
    page.shows("queue:orders", "h1")
    page.until("document.querySelectorAll('table[aria-label=Consumers] tbody tr').length === 3")
    page.click("table[aria-label=Consumers] a.id", "picker-3")
    page.shows("picker-3", "h1")
    open_view(page, shop_broker, "#/default/subscriptions")
    page.click("td a.id", "desk-4")
    page.shows("desk-4", "h1")
    page.until("document.querySelectorAll('table[aria-label=Subscriptions] tbody tr').length === 2")
    assert page.value("document.querySelector('.places [aria-current]').innerText") == "Connections"
    assert page.problems == []


def test_blocked_senders_are_shown(page: Page) -> None:
    rules = {"full": {"max_messages": 1, "at_limit": "block"}}
    with (
        EmbeddedBroker(http=True, settings={"destinations": rules}) as broker,
        ConnectionFactory(broker.url, client_id="shop").create_context() as client,
    ):
        producer = client.create_producer().set_delivery_mode(1)
        for _ in range(2):
            producer.send(client.create_queue("full"), "x")
        open_view(page, broker, "#/default/connections")
        page.until("/^blocked \\d+ s$/.test(document.querySelector('td .badge.bad')?.innerText)")
        assert "it may hold 1" in page.value("document.querySelector('td .badge.bad').parentElement.title")
        page.click("td a", "queue:full")
        page.shows("at its limit, 1 sender blocked", "h1 .badge.bad")
        page.shows("senders wait")
        open_view(page, broker, "#/default/queues")
        page.shows("at its limit, 1 sender blocked", "td .badge.bad")
        open_view(page, broker, "#/default/overview")
        page.shows("queue:full, shop: waiting for room: 1 sender; queue:full is full; it may hold 1 message", ".alarms")
        page.shows("Start consumers, purge or move messages, or raise the limit.", ".alarms")
        page.click(".alarms a.id")
        page.shows("shop", ".facts")
        page.until("document.querySelector('table[aria-label=Sessions] tbody tr').cells[5].innerText !== ''")
        open_view(page, broker, "#/default/overview")
        page.click(".alarms a", "queue:full")
        page.shows("queue:full", "h1")
        open_view(page, broker, "#/default/overview")
        broker.call(lambda domain: domain.namespace("default").queue("queue:full").clear())
        page.until("!document.querySelector('.alarms').innerText.includes('waiting for room')")


def pause(broker: EmbeddedBroker, address: str) -> None:
    broker.call(lambda domain: domain.namespace("default").queue(address).pause())


def test_what_needs_attention_is_listed_and_marked(page: Page) -> None:
    thresholds = {"no_consumer_seconds": 1, "stuck_seconds": 1}
    rules = {"small": {"max_messages": 10}}
    with (
        EmbeddedBroker(http=True, settings={"attention": thresholds, "destinations": rules}) as broker,
        ConnectionFactory(broker.url, client_id="holder").create_context(JMSContext.CLIENT_ACKNOWLEDGE) as client,
    ):
        open_view(page, broker, "#/default/overview")
        page.until("document.body.classList.contains('live')")
        for name, number in (("alone", 3), ("held", 1), ("small", 9)):
            for _ in range(number):
                client.create_producer().send(client.create_queue(name), "x")
        client.create_consumer(client.create_queue("held")).receive(60_000)
        page.shows("queue:alone: no consumer is open; waiting: 3 messages", ".alarms")
        page.shows("queue:held, holder: a consumer does not acknowledge; it holds 1 message", ".alarms")
        page.shows("queue:small: 90 % of its limit is in use", ".alarms .calm")
        page.shows("queue:alone: no consumer is open; waiting: 3 messages", ".news")
        for name in "abcd":
            pause(broker, f"queue:{name}")
        page.shows("and 2 more", ".alarms")
        page.click(".alarms button", "Show them")
        page.shows("queue:d: deliveries are paused; waiting: 0 messages", ".alarms")
        open_view(page, broker, "#/default/queues")
        page.until("document.querySelectorAll('td .badge.bad').length === 3")
        rows = {row[0].split()[0]: row[0] for row in page.rows("Queues")}
        assert "no consumer" in rows["alone"]
        assert "stuck consumer" in rows["held"]
        assert "nearly full" in rows["small"]
        assert page.value("document.querySelector('progress[aria-label=\"limit of small, in use\"]').value") == 0.9
        assert page.value("document.querySelectorAll('td progress').length") == 1, "the others have no limit"
        open_view(page, broker, "#/default/connections")
        page.shows("stuck consumer", "td .badge.bad")
        page.click("nav a", "Overview")
        page.click(".alarms a", "queue:held")
        page.shows("stuck consumer", "h1 .badge.bad")
        page.shows("stuck consumer", "td .badge.bad")


def test_the_record_of_actions(page: Page, broker: EmbeddedBroker) -> None:
    def fill(server: Server) -> None:
        for number in range(120):
            server.audit.record("pause_destination", via="cli", user="ops", namespace="default", address="queue:q")
            server.audit.attempted("sign_in", via="sieve", outcome="wrong", user="anna", peer=f"192.0.2.{number}")
        server.audit.record(
            "move_messages", via="http", namespace="default", address="queue:q", touched=7, to="queue:r"
        )

    broker._submit(fill).result()
    open_view(page, broker, "#/default/record")
    page.until("document.querySelector('table[aria-label=Record] tbody tr')")
    first = page.rows("Record")[0]
    assert (first[1], first[2], first[3]) == ("move messages", "queue:q", "7")
    assert "queue:r" in first[4]
    page.click("th button", "How many")
    page.until("location.hash.includes('sort=-touched')")
    page.until("document.querySelector('table[aria-label=Record] tbody tr').innerText.includes('move')")
    page.click("th button", "When")
    page.click("button", "Next page")
    page.until("location.hash.includes('cursor=')")
    page.choose("main select", "attempts")
    page.until("document.querySelector('table[aria-label=Record] tbody .badge.bad')?.innerText === 'wrong'")
    page.fill("main input[type=search]", "pause")
    page.shows("Nothing is recorded here.")
    page.choose("main select", "")
    page.click("td a", "ops")
    page.shows("Only ops.")
    assert {row[5] for row in page.rows("Record")} == {"ops"}


def test_what_nobody_asked_for_has_no_user_in_the_record(page: Page, broker: EmbeddedBroker) -> None:
    def fill(server: Server) -> None:
        server.audit.record("read_users_file", via="file")
        server.audit.record("reload_settings", via="http")

    broker._submit(fill).result()
    open_view(page, broker, "#/default/record")
    page.until("document.querySelector('table[aria-label=Record] tbody tr')")
    assert {row[1]: row[5] for row in page.rows("Record")} == {"reload settings": "anonymous", "read users file": ""}


def test_workbench_explains(page: Page, shop_broker: EmbeddedBroker) -> None:
    open_view(page, shop_broker, "#/default/workbench?destination=queue%3Aorders")
    page.fill("textarea.selector", "(region='EU') AND NOT amount <> 12.5")
    page.shows("NOT amount <> 12.5 AND region = 'EU'", ".checked")
    page.until("document.querySelectorAll('.sample details').length === 8")
    page.until("document.querySelector('.sample .truth').innerText === 'TRUE'")
    page.shows("1 of 204 waiting messages would match", ".card:has(.sample)")
    page.click(".sample summary")
    page.shows("region is 'EU'", ".sample details[open]")
    page.shows("amount is 12.5 (double)", ".sample details[open]")
    page.shows("NOT (amount <> 12.5)", ".notes")  # what to write so that all providers agree
    for field, value in (("name", "region"), ("what", "US")):
        page.fill(f".rows .row:last-child .{field}", value)
    page.shows("region is 'US'", "section > .explanation")
    assert page.text("section > .explanation .truth") == "FALSE"
    assert page.problems == []


def test_workbench_marks_mistakes(page: Page, shop_broker: EmbeddedBroker) -> None:
    open_view(page, shop_broker, "#/default/workbench")
    page.fill("textarea.selector", "amount > 'many'")
    page.shows("Not valid", ".checked")
    page.until("document.querySelector('.caret mark') !== null")
    page.choose(".bench select", "mqe")
    page.fill("textarea.selector", "a = 1 OR b = 2")
    page.until("document.querySelector('.caret mark')?.innerText === 'a = 1 OR b = 2'")
    page.choose(".bench select", "jakarta")
    page.shows("a = 1 OR b = 2", ".checked")


def test_workbench_advises(page: Page, shop_broker: EmbeddedBroker) -> None:
    open_view(page, shop_broker, "#/default/workbench")
    page.fill("textarea.selector", "a = 1 AND a = 2")
    page.until("document.querySelector('.checked .advice') !== null")
    assert "never" in page.text(".checked .advice")
    page.value("location.hash = '#/default/workbench?selector=b+%3D+3'")  # typed, or a bookmark
    page.shows("b = 3", ".checked")


def test_alarms_and_what_happened(page: Page) -> None:
    with (
        EmbeddedBroker(http=True, settings={"max_memory_bytes": 1_000_000}) as broker,
        ConnectionFactory(broker.url).create_context() as client,
    ):
        client.set_client_id("filler")
        open_view(page, broker, "#/default/overview")
        page.until("document.body.classList.contains('live')")  # what was before that is not told
        producer = client.create_producer().set_delivery_mode(DeliveryMode.NON_PERSISTENT)
        producer.send(client.create_queue("deep"), "x" * 850_000)
        page.shows("85 % of the memory for messages is in use; at 100 % producers wait", ".alarms .warn")
        producer.send(client.create_queue("deep"), "x" * 300_000)
        page.shows("all producers wait: messages take", ".alarms .bad")
        page.until("document.querySelector('.places .badge.bad') !== null")
        page.shows("queue:deep was created", ".news")
        page.shows("Producers are blocked", ".news")
        assert client.create_consumer(client.create_queue("deep")).receive_body(str, 60_000) == "x" * 850_000
        page.until("document.querySelector('.alarms').childElementCount === 0")
        page.shows("Producers are no longer blocked", ".news")


def test_dead_letters_from_before_the_first_event(
    chromium: Chromium, broker: EmbeddedBroker, client: JMSContext
) -> None:
    late = """window.EventSource = class { wanted = [];
        constructor(url) { this.url = url; window.begin = () => {
            this.real = new Real(this.url); for (const each of this.wanted) this.real.addEventListener(...each); }; }
        addEventListener(...each) { this.wanted.push(each); }
        close() { this.real?.close(); } };"""
    with chromium.page() as page:
        page.send("Page.addScriptToEvaluateOnNewDocument", source=f"const Real = EventSource; {late}")
        open_view(page, broker, "#/default/dead-letters")
        page.shows("No dead letters.")
        client.create_producer().send(client.create_queue("work"), "x")
        with client.create_context(JMSContext.SESSION_TRANSACTED) as failing:
            consumer = failing.create_consumer(failing.create_queue("work"))
            while consumer.receive_no_wait() is not None:
                failing.rollback()
        page.until("window.begin && (begin(), true)")
        page.until("document.querySelector('td.number')?.innerText === '1'")


def test_a_selector_without_a_broker_to_check_it(page: Page) -> None:
    with EmbeddedBroker(http=True) as broker:
        broker.call(lambda domain: domain.namespace("default").declare("queue:work"))
        open_view(page, broker, "#/default/destination/queue%3Awork/messages")
    page.shows("The broker does not answer.", ".banner")
    page.value("location.hash = '#/default/destination/queue%3Awork/messages?selector=a+%3D+1'")
    page.until("document.querySelector('main input.selector').value === 'a = 1'")
    page.fill("main input.selector", "a = 2")
    page.press("Enter")
    page.says("The broker does not answer.")
    page.value("location.hash = '#/default/workbench?selector=a+%3D+1'")
    page.value("fetch('/api/v1/broker').catch(() => 0)")  # fails after those before


def test_figures_change_without_a_reload(page: Page, broker: EmbeddedBroker) -> None:
    open_view(page, broker, "#/default/queues")
    page.shows("No queues here.")
    page.value("window.stays = true")

    def send(domain: object) -> None:
        domain.namespace("default").declare("queue:late")  # type: ignore[attr-defined]

    broker.call(send)
    page.shows("late")
    page.open(f"{broker.http_url}/#/default/overview")
    page.shows("Deepest queues")
    assert page.value("window.stays") is True


def test_charts_of_a_longer_range_and_what_happened(page: Page, broker: EmbeddedBroker) -> None:
    def pause(domain: object) -> None:
        domain.namespace("default").declare("queue:orders").pause()  # type: ignore[attr-defined]

    open_view(page, broker, "#/default/overview")
    broker.call(pause)
    page.until("[...document.querySelectorAll('.event title')].some((it) => it.textContent.includes('was paused'))")
    page.click(".ranges button", "1 week")
    page.until("document.querySelector('.chart .time').textContent.includes('-')")  # with a date
    open_view(page, broker, ORDERS)
    assert page.value("document.querySelector('.ranges [aria-pressed=true]').innerText") == "1 week"
    open_view(page, broker, "#/default/history")
    happened = [row[1] for row in page.rows("What happened")]
    assert "queue:orders was paused" in happened
    assert happened[-1].startswith("The broker started")
    page.click("th button", "When")
    page.until("document.querySelector('table[aria-label] tbody tr').innerText.includes('The broker started')")
    page.fill("main input[type=search]", "paused")
    page.until("document.querySelectorAll('table[aria-label] tbody tr').length === 1")
    assert page.problems == []
