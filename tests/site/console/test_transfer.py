"""Messages in the console: laid out, copied, saved as files, imported, and shown as they arrive."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from tests.broker.store.sharing import until

from sievemq import ConnectionFactory, JMSContext, TextMessage
from sievemq_broker import EmbeddedBroker
from sievemq_broker.domain.policy import DestinationPolicy

from .chromium import Page
from .opening import open_view
from .test_actions import WORK, confirm, send

pytestmark = pytest.mark.slow

#: Keeps what would be saved and copied, and saves nothing.
KEEP = """window.saved = []; window.copied = [];
    URL.createObjectURL = (blob) => { blob.text().then((text) => saved.push(text)); return "blob:none"; };
    HTMLAnchorElement.prototype.click = function () { saved.push(this.download); };
    navigator.clipboard.writeText = async (text) => { copied.push(text); };"""


def choose_file(page: Page, text: str) -> None:
    """Choose a file with this content in the dialog."""
    page.value(f"""(() => {{ const data = new DataTransfer(), field = document.querySelector("dialog input[type=file]");
        data.items.add(new File([{json.dumps(text)}], "lines.ndjson")); field.files = data.files;
        field.dispatchEvent(new Event("change")); }})()""")


@pytest.mark.parametrize(
    ("kind", "text", "laid"),
    [
        ("json", '{"a":[1,{"b":[]},[[]]],"c":{},"d":"x, y: {}"}', None),
        ("json", '[9007199254740993,1e400,"\\"["]', '[\n  9007199254740993,\n  1e400,\n  "\\"["\n]'),
        ("json", "{a: 1}", ""),
        ("json", "words", ""),
        ("xml", "<a><b>1</b> <c/></a>", "<a>\n  <b>1</b>\n  <c/>\n</a>"),
        ("xml", '<?xml version="1.0"?><a x="1 > 0"><!-- < --><![CDATA[<b>]]></a>',
         '<?xml version="1.0"?>\n<a x="1 > 0">\n  <!-- < -->\n  <![CDATA[<b>]]>\n</a>'),
        ("xml", "<a>t<b>u</b>v</a>", "<a>t\n  <b>u</b>\n  v\n</a>"),
        ("xml", "<é:a>x</é:a>", "<é:a>x</é:a>"),
        ("xml", "<a></a >", "<a></a >"),
        ("xml", "<a><b></a></b>", ""),
        ("xml", "<a>", ""),
        ("xml", "<a>1 < 2</a>", ""),
        ("xml", "< a>", ""),
        pytest.param("xml", "<a" + " " * 250_000, "", id="a tag without an end, at once"),
    ],
)  # fmt: skip
def test_text_is_laid_out(page: Page, broker: EmbeddedBroker, kind: str, text: str, laid: str | None) -> None:
    open_view(page, broker, "#/default/queues")
    if laid is None:
        laid = json.dumps(json.loads(text), indent=2)
    shown = page.value(f"import('/console/pretty.js').then((pretty) => pretty.{kind}({json.dumps(text)}) ?? '')")
    assert shown == laid


def test_a_selection_is_exported_and_imported(
    page: Page, broker: EmbeddedBroker, client: JMSContext, depth: Callable[[str], int]
) -> None:
    client.create_producer().set_property("huge", 2**62).send(client.create_queue("work"), "one")
    send(client, "work", 3)
    open_view(page, broker, f"{WORK}/messages")
    page.value(KEEP)
    page.click("tbody tr:nth-child(1) input[type=checkbox]")
    page.click("tbody tr:nth-child(3) input[type=checkbox]")
    page.click(".chosen button", "Export")
    text = page.until("saved.length === 2 && saved.find((each) => each.includes('\\n'))")
    assert [json.loads(line)["body"] for line in text.splitlines()] == ["one", "text 1"]
    page.value("saved.length = 0")
    page.click(".tools button", "Export")
    page.until("saved.some((each) => each.split('\\n').length === 5)")
    assert page.value("saved.includes('queue-work.ndjson')")
    page.click("button", "Import…")
    choose_file(page, '{"kind": "text"}\n[]\n')
    page.shows("Message 2: it is no JSON object", "dialog .count")
    assert page.value("document.querySelector('dialog button[type=submit]').disabled")
    choose_file(page, f'{text}\n{{"kind": "text", "body": "late", "expiration": 1}}\n')
    page.shows("2 messages would be sent. 1 expired message left out.", "dialog .count")
    assert depth("queue:work") == 4
    confirm(page, "Send 2 messages", "Sent 2 messages. 1 expired message left out.")
    assert depth("queue:work") == 6
    messages = [*client.create_browser(client.create_queue("work"))]
    assert messages[4].get_long_property("huge") == 2**62


def test_an_import_that_was_stopped_goes_on_and_sends_nothing_twice(
    page: Page, broker: EmbeddedBroker, depth: Callable[[str], int]
) -> None:
    def room(messages: int) -> None:
        broker.call(
            lambda domain: setattr(domain.namespace("default").create("queue:work"), "policy", DestinationPolicy(
                max_messages=messages))
        )  # fmt: skip

    room(3)
    open_view(page, broker, f"{WORK}/messages")
    page.click("button", "Import…")
    choose_file(page, "".join(f'{{"kind": "text", "body": "{number}"}}\n' for number in range(5)))
    page.shows("5 messages would be sent.", "dialog .count")
    page.click("dialog button[type=submit]")
    page.shows("3 messages sent, then: message 4:", "dialog")
    assert depth("queue:work") == 3
    room(9)
    confirm(page, "Send the rest", "Sent 2 messages.")
    assert depth("queue:work") == 5


def test_a_message_is_copied_and_saved(page: Page, broker: EmbeddedBroker, client: JMSContext) -> None:
    client.create_producer().send(client.create_queue("work"), '{"a": 1}')
    open_view(page, broker, f"{WORK}/messages")
    assert page.rows("Messages")[0][3] == '{"a": 1}'
    page.click("td.main a")
    page.shows("JMSTimestamp")
    page.value(KEEP)
    page.click(".chip", "Copy")
    page.says("Copied.")
    page.click(".chip", "Text")
    page.click(".chip", "Copy")
    page.until("copied.length === 2")
    assert page.value("copied") == ['{\n  "a": 1\n}', '{"a": 1}']
    page.click(".chip", "Download")
    page.until("saved.length === 2")
    assert '{"a": 1}' in page.value("saved")
    assert any(name.endswith(".txt") for name in page.value("saved"))


def test_copying_works_without_a_secure_context(page: Page, broker: EmbeddedBroker, client: JMSContext) -> None:
    send(client, "work", 1)
    open_view(page, broker, f"{WORK}/messages")
    page.click("td.main a")
    page.shows("JMSTimestamp")
    page.value("navigator.clipboard.writeText = undefined; window.commands = [];"
               "document.execCommand = (name) => commands.push([name, getSelection().toString()])")  # fmt: skip
    page.click(".chip", "Copy")
    page.until("commands.length === 1")
    assert page.value("[commands[0][0], document.querySelector('textarea')]") == ["copy", None]


def test_arriving_messages_are_shown_and_stay(
    page: Page, broker: EmbeddedBroker, client: JMSContext, depth: Callable[[str], int]
) -> None:
    send(client, "work", 1, region="US")
    open_view(page, broker, f"{WORK}/tail?selector=region = 'EU'")
    page.shows("0 messages so far")
    send(client, "work", 2, region="EU")
    send(client, "work", 1, region="US")
    page.shows("2 messages so far")
    assert [row[3] for row in page.rows("Arriving messages")] == ["text 1", "text 0"]
    assert depth("queue:work") == 4
    page.click("button", "Stop")
    page.shows("Stopped.")
    page.fill("input.selector", "")
    page.value("document.dispatchEvent(new Event('visibilitychange'))")
    assert "Stopped." in page.text(".tools")
    page.click("button", "Follow")
    page.shows("0 messages so far")
    client.create_producer().send(client.create_queue("work"), TextMessage("another"))
    page.shows("1 message so far")
    page.click("td.main a")
    page.shows("JMSTimestamp")
    page.until("location.hash.includes('/messages/ID')")
    until(broker, lambda server: not list(server.shard.broker.namespace("default").taps))


def test_a_dead_letter_tells_who_failed_it_when_and_why(page: Page, broker: EmbeddedBroker) -> None:
    with ConnectionFactory(f"{broker.url}?client_id=billing").create_context(JMSContext.SESSION_TRANSACTED) as context:
        context.create_producer().send(context.create_queue("work"), "x")
        context.commit()
        consumer = context.create_consumer(context.create_queue("work"))
        for _ in range(6):
            assert consumer.receive(60_000) is not None
            context.rollback()
        consumer.close()
    open_view(page, broker, "#/default/dead-letters")
    (row,) = page.rows("Dead letters in queue:DLQ.work")
    assert "billing" in row[3]
    assert "ago" in row[3] or "now" in row[3]
    page.click("td a.button", "Browse")
    page.click("td.main a")
    page.shows("Why it is here")
    facts = page.text("section .facts")
    assert all(word in facts for word in ("failed too often", "billing", "127.0.0.1:", "Last failure", "queue:work"))
