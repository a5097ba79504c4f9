"""What the console does changes the broker, and it says before how much it would change."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from sievemq import (
    BytesMessage,
    ConnectionFactory,
    JMSContext,
    MapMessage,
    Message,
    Queue,
    StreamMessage,
    TextMessage,
    Topic,
)
from sievemq.taps import open_tap
from sievemq_broker import EmbeddedBroker

from .chromium import Page
from .opening import open_view

pytestmark = pytest.mark.slow

Depth = Callable[[str], int]

WORK = "#/default/destination/queue%3Awork"


def send(client: JMSContext, queue: str, count: int, **properties: Any) -> None:
    producer = client.create_producer()
    for name, value in properties.items():
        producer.set_property(name, value)
    for number in range(count):
        producer.send(client.create_queue(queue), f"text {number}")


def more(page: Page, item: str) -> None:
    """Choose something from the menu of a queue."""
    page.click("details.actions summary")
    page.click(".menu-list button", item)
    page.until("document.querySelector('dialog[open]') !== null")


def confirm(page: Page, button: str, said: str) -> None:
    """Press the button that names the number, and wait for the message afterwards."""
    page.click("dialog button[type=submit]", button)
    page.says(said)
    page.until("document.querySelector('dialog') === null")


def test_purge_says_how_many_first(page: Page, broker: EmbeddedBroker, client: JMSContext, depth: Depth) -> None:
    send(client, "work", 1_234)
    open_view(page, broker, WORK)
    more(page, "Purge…")
    page.shows("1,234 messages are there.", "dialog .count")
    assert depth("queue:work") == 1_234  # nothing happened yet
    page.click("dialog button", "Cancel")
    page.until("document.querySelector('dialog') === null")
    assert depth("queue:work") == 1_234
    more(page, "Purge…")
    confirm(page, "Delete 1,234 messages", "Deleted 1,234 messages.")
    assert depth("queue:work") == 0
    page.until("document.querySelector('.facts dd').innerText === '0'")
    assert page.problems == []


def test_the_menu_closes_when_it_is_left(page: Page, broker: EmbeddedBroker, client: JMSContext) -> None:
    send(client, "work", 1)
    open_view(page, broker, WORK)
    is_open = "document.querySelector('details.actions').open"
    page.click("details.actions summary")
    page.until(is_open)
    page.click("h1")
    page.until(f"!{is_open}")
    page.click("details.actions summary")
    page.press("Tab")
    assert page.value("document.activeElement.innerText") == "Move messages…"
    page.press("Escape")
    page.until(f"!{is_open}")
    assert page.value("document.activeElement.innerText") == "More"


def test_move_by_selector_and_limit(page: Page, broker: EmbeddedBroker, client: JMSContext, depth: Depth) -> None:
    send(client, "work", 5, region="EU")
    send(client, "work", 7, region="US")
    open_view(page, broker, WORK)
    more(page, "Move messages…")
    page.shows("Enter a target", "dialog .count")
    page.fill("dialog input[type=text]:not(.selector)", "later")
    page.shows("12 messages match.", "dialog .count")
    page.fill("dialog input.selector", "region = 'US'")
    page.shows("7 messages match.", "dialog .count")
    page.fill("dialog input.selector", "region == 'US'")
    page.shows("^", "dialog .caret")
    page.until("document.querySelector('dialog button[type=submit]').disabled")
    page.fill("dialog input.selector", "region = 'US'")
    page.shows("7 messages match.", "dialog .count")
    page.fill("dialog input[type=number]", "3")
    page.shows("3 messages: the first that match.", "dialog .count")
    confirm(page, "Move 3 messages", "Moved 3 messages.")
    assert (depth("queue:work"), depth("queue:later")) == (9, 3)


def test_changes_after_counting_are_counted_again(
    page: Page, broker: EmbeddedBroker, client: JMSContext, depth: Depth
) -> None:
    send(client, "work", 3, region="EU")
    send(client, "work", 4, region="US")
    open_view(page, broker, WORK)
    more(page, "Delete messages…")
    page.fill("dialog input.selector", "region = 'EU'")
    page.shows("3 messages match.", "dialog .count")
    button = "document.querySelector('dialog button[type=submit]')"
    at_once = """(() => { const field = document.querySelector('dialog input.selector');
        field.value = 'region IS NOT NULL';
        field.dispatchEvent(new Event('input', { bubbles: true })); return %s.disabled; })()"""
    assert page.value(at_once % button) is True  # no moment in which it would do more than it says
    page.until(f"!{button}.disabled && {button}.innerText === 'Delete 7 messages'")
    assert depth("queue:work") == 7


def test_copy_and_delete_by_selector(page: Page, broker: EmbeddedBroker, client: JMSContext, depth: Depth) -> None:
    send(client, "work", 2, region="EU")
    send(client, "work", 3, region="US")
    open_view(page, broker, WORK)
    more(page, "Copy messages…")
    page.fill("dialog input[type=text]:not(.selector)", "queue:copy")
    confirm(page, "Copy 5 messages", "Copied 5 messages.")
    assert (depth("queue:work"), depth("queue:copy")) == (5, 5)
    more(page, "Delete messages…")
    page.shows("Enter a selector.", "dialog .count")
    page.fill("dialog input.selector", "region = 'EU'")
    confirm(page, "Delete 2 messages", "Deleted 2 messages.")
    assert depth("queue:work") == 3


def test_a_refusal_stays_in_the_dialog(page: Page, broker: EmbeddedBroker, client: JMSContext, depth: Depth) -> None:
    send(client, "work", 2)
    open_view(page, broker, WORK)
    more(page, "Move messages…")
    page.fill("dialog input[type=text]:not(.selector)", "queue:work")
    page.shows("queue:work is the source of the messages", "dialog .count")
    assert page.value("document.querySelector('dialog button[type=submit]').disabled") is True
    assert depth("queue:work") == 2


def test_chosen_messages(page: Page, broker: EmbeddedBroker, client: JMSContext, depth: Depth) -> None:
    send(client, "work", 4)
    open_view(page, broker, f"{WORK}/messages")
    page.until("document.querySelectorAll('tbody input[type=checkbox]').length === 4")
    page.click("tbody tr:nth-child(2) input[type=checkbox]")
    page.click("tbody tr:nth-child(4) input[type=checkbox]")
    page.shows("2 messages chosen")
    page.click(".chosen button", "Delete…")
    confirm(page, "Delete 2 messages", "Deleted 2 messages.")
    assert depth("queue:work") == 2
    page.until("document.querySelectorAll('tbody input[type=checkbox]').length === 2")
    page.click("td.main a")
    page.shows("JMSTimestamp")
    page.click("button", "Move…")
    page.fill("dialog input[type=text]", "aside")
    confirm(page, "Move 1 message", "Moved 1 message.")
    assert (depth("queue:work"), depth("queue:aside")) == (1, 1)


def test_pause_and_resume(page: Page, broker: EmbeddedBroker, client: JMSContext) -> None:
    send(client, "work", 1)
    consumer = client.create_consumer(client.create_queue("work"), "kind = 'x'")
    open_view(page, broker, WORK)
    page.click("button", "Pause")
    page.shows("paused", ".badges")
    client.create_producer().set_property("kind", "x").send(client.create_queue("work"), "held")
    assert consumer.receive_no_wait() is None
    page.click("button", "Resume")
    page.until("document.querySelector('.badges').innerText === ''")
    assert consumer.receive_body(str, 60_000) == "held"


def test_dead_letters_return_to_their_origin(
    page: Page, broker: EmbeddedBroker, client: JMSContext, depth: Depth
) -> None:
    send(client, "work", 3)
    open_view(page, broker, "#/default/dead-letters")
    page.shows("No dead letters.")
    with client.create_context(JMSContext.SESSION_TRANSACTED) as failing:
        consumer = failing.create_consumer(failing.create_queue("work"))
        while broker.call(
            lambda domain: domain.namespace("default").destinations["queue:work"].counts.dead_lettered < 3
        ):
            consumer.receive(60_000)
            failing.rollback()
    page.until("document.querySelector('td.number')?.innerText === '3'")  # the broker told that there are some
    (row,) = page.rows("Dead letters in queue:DLQ.work")
    assert row[:3] == ["failed too often", "queue:work", "3"]
    page.click("td button", "Retry…")
    assert "DeadLetterReason = 'attempts'" in page.value("document.querySelector('dialog .selector').value")
    confirm(page, "Retry 3 messages", "Sent back 3 messages.")
    page.shows("No dead letters.")
    assert depth("queue:work") == 3


def test_a_scheduled_message_is_cancelled(page: Page, broker: EmbeddedBroker, client: JMSContext) -> None:
    client.create_producer().set_delivery_delay(3_600_000).send(client.create_queue("work"), "later")
    open_view(page, broker, "#/default/scheduled")
    page.click("td button", "Cancel")
    confirm(page, "Cancel 1 message", "Cancelled 1 message.")
    page.shows("Nothing is scheduled.")
    assert broker.call(lambda domain: len(domain.namespace("default").destinations["queue:work"].scheduled)) == 0


def test_times_follow_the_brokers_clock(page: Page, broker: EmbeddedBroker, client: JMSContext) -> None:
    client.create_producer().set_delivery_delay(7_200_000).send(client.create_queue("work"), "later")
    broker.clock.advance(seconds=3_600)
    open_view(page, broker, "#/default/scheduled")
    page.until("/ in 5\\d m /.test(document.querySelector('td.when').innerText + ' ')")


def test_a_subscription_is_removed(page: Page, broker: EmbeddedBroker, client: JMSContext) -> None:
    client.set_client_id("desk")
    client.create_durable_consumer(client.create_topic("news"), "late").close()
    client.create_producer().send(client.create_topic("news"), "x")
    open_view(page, broker, "#/default/subscriptions")
    page.click("td.check input")
    page.shows("1 subscription chosen", ".chosen")
    page.click(".chosen button", "Remove…")
    page.shows("1 message in 1 subscription.", "dialog")
    page.click("dialog button", "Remove 1 message")
    page.says("Removed 1 subscription.")
    page.shows("No subscriptions.")
    assert broker.call(lambda domain: len(domain.namespace("default").subscriptions.durable)) == 0


def test_a_tap_with_its_lag_is_deleted(page: Page, broker: EmbeddedBroker, client: JMSContext) -> None:
    with ConnectionFactory(broker.url).create_connection() as connection:
        open_tap(connection, "audit", Queue("work"), selector="n > 0", retain_messages=4)
        open_tap(connection, "other", Topic("prices"))
        for number in range(7):
            client.create_producer().set_property("n", number).send(client.create_queue("work"), "x")
        open_view(page, broker, "#/default/taps")
        page.shows("connected")
    (row, other) = page.rows("Taps")
    assert row[0].splitlines() == ["audit copy nearly full"]
    assert row[1:4] == ["queue:work", "n > 0", "4"]
    assert row[5] == "2"  # missed
    assert page.value("document.querySelector('td[data-label=Holds] span').title").startswith(
        "100 % full: its limit is 4 "
    )
    assert other[:4] == ["other copy", "topic:prices", "every message", "0"]
    page.until("document.querySelector('main').innerText.includes('gone')")  # its reader went
    open_view(page, broker, "#/default/destination/queue%3Awork")
    assert [row[:3] for row in page.rows("Taps")] == [["audit copy nearly full", "n > 0", "4"]]
    page.click("section:not([hidden]) td.actions button", "Delete…")
    page.shows("4 messages that its reader has not read will be lost to the reader", "dialog")
    page.click("dialog button[type=submit]")
    page.says("The tap audit is deleted.")
    page.until("[...document.querySelectorAll('section[hidden] h2')].some((head) => head.textContent === 'Taps')")
    assert broker.call(lambda domain: [tap.name for tap in domain.namespace("default").taps]) == ["other"]


def test_a_connection_and_a_consumer_are_closed(page: Page, broker: EmbeddedBroker, client: JMSContext) -> None:
    send(client, "work", 1)
    consumer = client.create_consumer(client.create_queue("work"), "a = 1")
    open_view(page, broker, WORK)
    page.click("td.check input")
    page.click(".chosen button", "Close…")
    page.click("dialog button", "Close 1 consumer")
    page.says("Closed 1 consumer.")
    page.shows("No consumers.")
    del consumer
    open_view(page, broker, "#/default/connections")
    page.click("td.main a")
    page.click(".head button", "Close…")
    page.click("dialog button", "Close 1 connection")
    page.shows("No connections.")
    assert broker.call(lambda _: len(broker.server.shard.services.connections)) == 0


def test_the_queues_of_all_pages_are_chosen_and_purged(
    page: Page, broker: EmbeddedBroker, client: JMSContext, depth: Callable[[str], int]
) -> None:
    def make(domain: object) -> None:
        for number in range(60):
            domain.namespace("default").declare(f"queue:q{number:02}")  # type: ignore[attr-defined]

    broker.call(make)
    send(client, "q00", 2)
    send(client, "q59", 3)
    open_view(page, broker, "#/default/queues?like=q")
    page.shows("60 queues")
    page.click("th.check input")
    page.shows("50 queues chosen", ".chosen")
    page.click(".chosen button", "Choose all 60")
    page.shows("60 queues chosen", ".chosen")
    page.click(".chosen button", "Pause…")
    page.click("dialog button", "Pause 60 queues")
    page.says("Paused 60 queues.")
    page.until("document.querySelector('.chosen').hidden")
    assert broker.call(lambda domain: domain.namespace("default").destinations["queue:q59"].paused) is True
    page.click("th.check input")
    page.click("td.check input")  # all but one
    page.shows("49 queues chosen", ".chosen")
    page.click("td.check input")
    page.click(".chosen button", "Choose all 60")
    page.click(".chosen button", "Purge…")
    page.shows("5 messages in 60 queues.", "dialog")
    page.click("dialog button", "Purge 5 messages")
    page.says("Purged 60 queues.")
    assert (depth("queue:q00"), depth("queue:q59")) == (0, 0)
    assert page.problems == []


def test_queues_are_made_and_deleted(page: Page, broker: EmbeddedBroker) -> None:
    open_view(page, broker, "#/fresh/queues")  # an unused namespace
    page.shows("There is no namespace fresh.")
    page.click(".nothing button", "Make it")
    page.shows("No queues here.")
    page.click("button", "New queue")
    page.fill("dialog input", "a/b c?d#e%20")
    page.click("dialog button", "Create the queue")
    page.shows("queue:a/b c?d#e%20", "h1")
    names = broker.call(lambda domain: list(domain.namespace("fresh").destinations))
    assert names == ["queue:a/b c?d#e%20"]
    page.click("details.actions summary")
    page.click(".menu-list button", "Delete the queue…")
    page.shows("It is empty.", "dialog")
    page.click("dialog button", "Delete it")
    page.shows("No queues here.")
    assert broker.call(lambda domain: list(domain.namespace("fresh").destinations)) == []
    assert page.complaints == []


def received(client: JMSContext) -> Message:
    message = client.create_consumer(client.create_queue("work")).receive(60_000)
    assert message is not None
    return message


def test_sending_text_with_typed_properties(page: Page, broker: EmbeddedBroker, client: JMSContext) -> None:
    open_view(page, broker, f"{WORK}/send")
    page.fill("textarea", '{"order": 17}')
    for name, kind, value in (("region", "string", "EU"), ("size", "short", "7"), ("id", "long", "9007199254740993")):
        page.click("fieldset button", "Add a property")
        row = ".rows .row:last-child"
        page.fill(f"{row} .name", name)
        page.choose(f"{row} .kind", kind)
        page.fill(f"{row} .what", value)
    page.value("document.querySelector('.grid input').focus()")
    page.send("Input.insertText", text="order")
    page.click("button[type=submit]", "Send")
    page.says("Sent 1 message to queue:work.")
    message = received(client)
    assert isinstance(message, TextMessage)
    assert json.loads(message.get_text() or "") == {"order": 17}
    assert message.get_jms_type() == "order"
    assert message.get_string_property("region") == "EU"
    assert message.get_short_property("size") == 7
    assert message.get_long_property("id") == 9007199254740993


def test_a_value_of_a_wrong_type_is_not_sent(page: Page, broker: EmbeddedBroker) -> None:
    open_view(page, broker, f"{WORK}/send")
    page.click("fieldset button", "Add a property")
    page.fill(".rows .name", "size")
    page.choose(".rows .kind", "int")
    page.fill(".rows .what", "seven")
    page.click("button[type=submit]", "Send")
    page.shows("size: “seven” is no whole number", ".send .mistake")
    assert broker.call(lambda domain: dict(domain.namespace("default").destinations)) == {}


@pytest.mark.parametrize("kind", ["MAP", "STREAM", "BYTES"])
def test_sending_other_bodies(page: Page, broker: EmbeddedBroker, client: JMSContext, kind: str) -> None:
    open_view(page, broker, f"{WORK}/send")
    page.choose("fieldset select", kind)
    if kind == "BYTES":
        page.fill("textarea", "00 ff 1B")
    else:
        for name, letter, value in (("left", "int", "12"), ("sign", "char", "ß")):
            page.click("fieldset button", "Add an entry")
            if kind == "MAP":
                page.fill(".rows .row:last-child .name", name)
            page.choose(".rows .row:last-child .kind", letter)
            page.fill(".rows .row:last-child .what", value)
    page.click("button[type=submit]", "Send")
    page.says("Sent 1 message")
    message = received(client)
    if isinstance(message, MapMessage):
        assert (message.get_int("left"), message.get_char("sign")) == (12, "ß")
    elif isinstance(message, StreamMessage):
        assert (message.read_int(), message.read_char()) == (12, "ß")
    else:
        assert isinstance(message, BytesMessage)
        assert message.get_body(bytes) == b"\x00\xff\x1b"


def test_sending_a_message_like_another(page: Page, broker: EmbeddedBroker, client: JMSContext, depth: Depth) -> None:
    first = client.create_map_message()
    first.set_double("weight", 0.5)
    first.set_jms_correlation_id("cart-1")
    first.set_long_property("customer", 1)
    client.create_producer().set_priority(7).send(client.create_queue("work"), first)
    open_view(page, broker, f"{WORK}/messages")
    page.click("td.main a")
    page.click("a.button", "Send like this")
    page.until("document.querySelector('[aria-label=Properties] .what')?.value === '1'")
    page.click("button[type=submit]", "Send")
    page.says("Sent 1 message")
    assert depth("queue:work") == 2
    received(client)
    again = received(client)
    assert isinstance(again, MapMessage)
    assert (again.get_double("weight"), again.get_jms_correlation_id()) == (0.5, "cart-1")
    assert (again.get_long_property("customer"), again.get_jms_priority()) == (1, 7)
