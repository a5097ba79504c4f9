"""The commands on the management API, against a broker with real messages in it."""

from __future__ import annotations

import io
import json
import os
import pty
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from operator import itemgetter
from pathlib import Path

import pytest
from rich.console import Console
from tests.site.cli.conftest import Sievemq

from sievemq import ConnectionFactory, JMSContext, Queue, Topic
from sievemq._management import TIMEOUT
from sievemq.cli.manage import access, top
from sievemq.cli.manage.output import period, print_rows, span
from sievemq.taps import find_tap
from sievemq_broker import EmbeddedBroker
from sievemq_broker.session.tally import Refusal


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch, sievemq: Sievemq) -> Iterator[EmbeddedBroker]:
    """A broker with a management port, which the commands find."""
    with EmbeddedBroker(http=True) as broker:
        monkeypatch.setenv("SIEVEMQ_URL", broker.url)
        monkeypatch.setenv("SIEVEMQ_HTTP_URL", str(broker.http_url))
        yield broker


@pytest.fixture
def context(broker: EmbeddedBroker) -> Iterator[JMSContext]:
    with ConnectionFactory(broker.url, client_id="shop").create_context(JMSContext.CLIENT_ACKNOWLEDGE) as context:
        yield context


def fill(context: JMSContext, count: int = 10, name: str = "orders") -> None:
    producer = context.create_producer()
    for number in range(count):
        producer.set_property("n", number).send(Queue(name), f"{number}")


def bodies(context: JMSContext, name: str) -> list[str]:
    return [message.get_body(str) or "" for message in context.create_browser(Queue(name))]


def test_the_record_of_actions(sievemq: Sievemq, context: JMSContext) -> None:
    fill(context, 3)
    sievemq("queue", "purge", "orders", "--yes")
    shown = sievemq("audit", "--like", "purge")
    assert shown.lines[0].split("\t")[1:] == [
        "user", "action", "namespace", "address", "touched", "outcome", "from", "via", "details"
    ]  # fmt: skip
    (row,) = (line.split("\t")[1:] for line in shown.lines[1:])
    assert row == ["", "purge_messages", "default", "queue:orders", "3", "done", "127.0.0.1", "cli", "limit 3"]
    fill(context, 1)
    sievemq("move", "orders", "other", "--number", "5", "--yes")
    (moved,) = (json.loads(line) for line in sievemq("audit", "--number", "1", "--json").lines)
    assert (moved["action"], moved["details"]["to"]) == ("move_messages", "queue:other")


def test_the_whole_record_is_exported(sievemq: Sievemq, broker: EmbeddedBroker) -> None:
    addresses = [f"queue:q{number}" for number in range(1_050)]  # more than a page has
    record = broker.server.audit.record
    broker.call(lambda _: [record("pause_destination", via="http", address=address) for address in addresses])
    lines = sievemq("audit", "--number", "0", "--json").lines
    assert [json.loads(line)["address"] for line in lines] == addresses[::-1]


def test_lists(sievemq: Sievemq, context: JMSContext) -> None:
    fill(context)
    fill(context, 2, "other")
    assert sievemq("queue", "create", "third").out == "queue:third exists\n"
    shown = sievemq("queue", "ls", "--sort", "-depth")
    assert shown.lines[0].split("\t")[:4] == ["queue", "ready", "in flight", "scheduled"]
    assert [line.split("\t")[:2] for line in shown.lines[1:]] == [["orders", "10"], ["other", "2"], ["third", "0"]]
    assert [json.loads(line)["address"] for line in sievemq("queue", "ls", "--like", "o*", "--json").lines] == [
        "queue:orders",
        "queue:other",
    ]
    assert len(sievemq("queue", "ls", "-n", "1", "--json").lines) == 1
    facts = sievemq("queue", "info", "orders")
    assert "ready" in facts.out
    assert json.loads(sievemq("queue", "info", "orders", "--json").out)["depth"] == 10
    assert sievemq("topic", "create", "prices").out == "topic:prices exists\n"
    assert sievemq("topic", "ls").lines[1].startswith("prices\t")
    assert json.loads(sievemq("topic", "info", "prices", "--json").out)["kind"] == "topic"


def test_more_rows_than_a_page(sievemq: Sievemq, context: JMSContext, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(7):
        fill(context, 1, f"q{number}")
    monkeypatch.setattr("sievemq._management.ROWS", 3)
    assert len(sievemq("queue", "ls", "--json").lines) == 7
    assert len(sievemq("queue", "ls", "--json", "-n", "5").lines) == 5


def test_move_copy_delete(sievemq: Sievemq, context: JMSContext) -> None:
    fill(context)
    assert sievemq("move", "orders", "even", "-s", "n < 4", "--dry-run").out == "4 messages would be moved\n"
    assert len(bodies(context, "orders")) == 10
    assert sievemq("move", "orders", "even", "-s", "n < 4", "-n", "3", "--yes").out == "3 messages moved\n"
    assert (bodies(context, "even"), bodies(context, "orders")) == (["0", "1", "2"], [str(n) for n in range(3, 10)])
    done = sievemq("copy", "orders", "twin", "--yes", "--json")
    assert (json.loads(done.out)["touched"], bodies(context, "twin")) == (7, [str(n) for n in range(3, 10)])
    assert sievemq("delete", "orders", "-s", "n > 7", "--yes").out == "2 messages deleted\n"
    identity = next(iter(context.create_browser(Queue("orders")))).get_jms_message_id() or ""
    assert sievemq("delete", "orders", "--id", identity, "--yes").out == "1 message deleted\n"
    assert bodies(context, "orders") == ["4", "5", "6", "7"]
    mistyped = sievemq("move", "orders", "tpoic:prices", "--yes")
    assert mistyped.code
    assert "'tpoic' in 'tpoic:prices' is no kind of destination" in mistyped.err
    assert sievemq("move", "orders", "queue:tpoic:prices", "--yes").out == "4 messages moved\n"


def test_in_pieces(sievemq: Sievemq, context: JMSContext, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is touched once and in order, a copy is not copied again."""
    monkeypatch.setattr("sievemq.cli.manage.actions.PIECE", 3)
    fill(context)
    assert sievemq("copy", "orders", "twin", "-n", "4", "--yes").out == "4 messages copied\n"
    assert sievemq("move", "orders", "there", "--yes").out == "10 messages moved\n"
    assert (bodies(context, "there"), bodies(context, "twin")) == ([str(n) for n in range(10)], list("0123"))
    assert sievemq("queue", "purge", "there", "-n", "8", "--yes").out == "8 messages removed\n"
    assert bodies(context, "there") == ["8", "9"]


def test_indivisible_actions_get_the_time_of_their_parts(
    sievemq: Sievemq, context: JMSContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[float] = []
    post = access.Api.post

    def posted(api: access.Api, path: str, body: Mapping[str, object], timeout: float = TIMEOUT) -> object:
        waits.append(timeout)
        return post(api, path, body)

    monkeypatch.setattr("sievemq.cli.manage.actions.PIECE", 4)
    monkeypatch.setattr(access.Api, "post", posted)
    fill(context)
    assert sievemq("copy", "orders", "twin", "--yes").out == "10 messages copied\n"
    assert waits == [TIMEOUT, TIMEOUT * 3]  # the count, then 4 + 4 + 2
    waits.clear()
    assert sievemq("move", "orders", "there", "--yes").out == "10 messages moved\n"
    assert waits == [TIMEOUT] * 4


def test_messages_in_flight_stay(sievemq: Sievemq, context: JMSContext) -> None:
    fill(context, 3)
    consumer = context.create_consumer(Queue("orders"))
    message = consumer.receive(60_000)
    assert message is not None
    shown = sievemq("queue", "purge", "orders", "--yes")
    assert shown.code == 0
    message.acknowledge()
    assert json.loads(sievemq("queue", "info", "orders", "--json").out)["in_flight"] in (0, 2)  # buffered ones, if any


def test_destructive_commands_require_confirmation(sievemq: Sievemq, context: JMSContext) -> None:
    fill(context)
    refused = sievemq("queue", "purge", "orders", stdin=b"n\n")
    assert (refused.code, len(bodies(context, "orders"))) == (1, 10)
    assert "Remove 10 messages from queue:orders? [y/N]" in refused.err
    assert sievemq("queue", "purge", "orders", stdin=b"y\n").out == "10 messages removed\n"
    assert sievemq("queue", "purge", "orders").out == "0 messages removed\n"  # nothing to ask about
    fill(context, 2)
    assert sievemq("queue", "delete", "orders", "--dry-run").out == "queue:orders would be deleted with 2 messages\n"
    assert sievemq("queue", "delete", "orders", "--yes").out == "queue:orders deleted with 2 messages\n"
    assert sievemq("queue", "info", "orders").code == 3


def test_pause_and_resume(sievemq: Sievemq, context: JMSContext) -> None:
    assert sievemq("queue", "create", "orders").code == 0
    assert sievemq("queue", "pause", "orders").out == "queue:orders is paused\n"
    fill(context, 1)
    consumer = context.create_consumer(Queue("orders"))
    assert consumer.receive_no_wait() is None
    assert sievemq("queue", "resume", "orders").out == "queue:orders delivers\n"
    assert consumer.receive(60_000) is not None


def test_a_list_for_programs_has_a_fact_in_each_column(sievemq: Sievemq, context: JMSContext) -> None:
    fill(context, 1_234, "invoices")
    sievemq("queue", "pause", "invoices")
    head, row = (line.split("\t") for line in sievemq("queue", "ls").lines)
    of = dict(zip(head, row, strict=True))
    assert (row[0], of["ready"], of["state"], of["blocked"]) == ("invoices", "1234", "paused", "0")
    context.create_shared_consumer(Topic("prices"), "board").close()
    with context.create_shared_consumer(Topic("prices"), "board"):
        head, row = (line.split("\t") for line in sievemq("subscription", "ls").lines)
    of = dict(zip(head, row, strict=True))
    assert (of["subscription"], of["durable"], of["shared"]) == ("board", "", "yes")


def test_a_queue_at_its_limit_shows_its_blocked_senders(sievemq: Sievemq, monkeypatch: pytest.MonkeyPatch) -> None:
    rules = {"full": {"max_messages": 1, "at_limit": "block"}}
    with (
        EmbeddedBroker(http=True, settings={"destinations": rules}) as broker,
        ConnectionFactory(broker.url).create_context() as sender,
    ):
        monkeypatch.setenv("SIEVEMQ_HTTP_URL", broker.http_url or "")
        producer = sender.create_producer().set_delivery_mode(1)
        for _ in range(2):
            producer.send(Queue("full"), "x")
        while not broker.call(lambda domain: bool(domain.rooms.waiting)):
            pass
        head, row = (line.split("\t") for line in sievemq("queue", "ls").lines)
        of = dict(zip(head, row, strict=True))
        assert (of["queue"], of["state"], of["blocked"]) == ("full", "at-limit", "1")
        facts = sievemq("queue", "info", "full").lines
        assert any(line.split() == ["senders", "blocked", "1"] for line in facts)
        assert "queue:full  (at its limit, 1 blocked)" in sievemq("top").out
        head, row = (line.split("\t") for line in sievemq("connection", "ls").lines)
        assert dict(zip(head, row, strict=True))["waits at"] == "queue:full"
        broker.call(lambda domain: domain.namespace("default").queue("queue:full").clear())


def test_an_unknown_order_is_answered_with_the_valid_ones(sievemq: Sievemq, broker: EmbeddedBroker) -> None:
    done = sievemq("queue", "ls", "--sort", "-foo")
    assert done.code == 2
    assert done.err.startswith("sievemq: the parameter sort: '-foo' is none of -bytes, -consumers, -dead_lettered, ")
    said = " ".join(sievemq("queue", "ls", "--help").out.split())
    for order in ("address", "-dead_lettered", "-out_rate"):
        assert order in said
    assert "One JSON object per line." in said


def test_help_names_the_commands_there_are(sievemq: Sievemq) -> None:
    for group, commands in (
        ("queue", "ls, info, consumers, create, pause, resume, purge, delete"),
        ("topic", "ls, info, create, delete"),
        ("subscription", "ls, delete"),
        ("connection", "ls, refused, close"),
        ("consumer", "ls, close"),
        ("namespace", "ls, create, delete"),
        ("schedule", "ls, cancel"),
        ("dlq", "ls, retry, drop"),
        ("tap", "ls, info, create, delete"),
    ):
        shown = sievemq(group, "--help")
        assert commands in " ".join(shown.out.split())
        for command in commands.split(", "):
            assert sievemq(group, command, "--help").code == 0


def test_retrying_messages_that_are_no_dead_letters_is_an_error(sievemq: Sievemq, context: JMSContext) -> None:
    fill(context, 2, "payments")
    for more in ([], ["--dry-run"], ["--yes"]):
        done = sievemq("dlq", "retry", "payments", *more)
        assert (done.code, done.out) == (3, "")
        assert done.err == (
            "sievemq: queue:payments is no dead-letter queue and holds no dead letters; its dead letters go to "
            "queue:DLQ.payments\n"
        )


def test_only_a_dead_letter_queue_can_be_dropped(sievemq: Sievemq, context: JMSContext) -> None:
    fill(context, 2, "payments")
    for more in (["--yes"], ["--dry-run"], ["-s", "n = 1", "--yes"]):
        done = sievemq("dlq", "drop", "payments", *more)
        assert (done.code, done.out) == (3, "")
        assert done.err == (
            "sievemq: queue:payments is no dead-letter queue; its dead letters go to queue:DLQ.payments\n"
        )
    assert bodies(context, "payments") == ["0", "1"]


def test_dead_letters(sievemq: Sievemq, context: JMSContext) -> None:
    fill(context, 3)
    consumer = context.create_consumer(Queue("orders"))
    while consumer.receive_no_wait() is not None:
        context.recover()
    consumer.close()
    lines = sievemq("dlq", "ls").lines
    cells = lines[1].split("\t")
    assert cells[:4] == ["DLQ.orders", "3", "attempts", "queue:orders"]
    assert cells[lines[0].split("\t").index("failed by")] == "shop"
    assert json.loads(sievemq("dlq", "ls", "--json").out)["groups"][0]["messages"] == 3
    assert sievemq("dlq", "retry", "DLQ.orders", "-s", "n = 1", "--yes").out == "1 message sent back\n"
    assert bodies(context, "orders") == ["1"]
    dropped = sievemq("dlq", "drop", "DLQ.orders", "--yes")
    assert dropped.out == "2 messages deleted\n", dropped.err


def test_dead_letters_fit_a_terminal(broker: EmbeddedBroker, context: JMSContext) -> None:
    fill(context, 2, "payments")
    with context.create_consumer(Queue("payments")) as consumer:
        while consumer.receive_no_wait() is not None:
            context.recover()
    code, shown = on_terminal(["dlq", "ls"])
    lines = shown.decode().splitlines()
    assert (code, len(lines)) == (0, 2)
    assert re.search(r"DLQ\.payments +2  attempts  queue:payments  \d{4}-\d\d-\d\d \d\d:\d\d", lines[1])


@pytest.mark.parametrize(
    ("last", "shown"),
    [
        ("2026-11-28 07:01:59", "2026-11-28 07:01"),
        ("2026-11-28 09:30:00", "2026-11-28 07:01 to 09:30"),
        ("2026-12-01 00:00:00", "2026-11-28 07:01 to 12-01 00:00"),
        ("2027-01-01 00:00:00", "2026-11-28 07:01 to 2027-01-01 00:00"),
    ],
)
def test_a_period_is_short(last: str, shown: str) -> None:
    first, last_ms = (
        int(datetime.fromisoformat(f"{text}+00:00").timestamp() * 1000) for text in ("2026-11-28 07:01:02", last)
    )
    assert period(first, last_ms) == shown
    assert period(0, 0) == ""
    assert period(2**62, 2**62 + 1) == f"{2**62} ms to {2**62 + 1} ms"


def test_dead_letters_without_an_origin(sievemq: Sievemq, context: JMSContext, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are in nobody's way, and counted once, however many pieces the work has."""
    monkeypatch.setattr("sievemq.cli.manage.actions.PIECE", 2)
    fill(context, 4)
    consumer = context.create_consumer(Queue("orders"))
    while consumer.receive_no_wait() is not None:
        context.recover()
    consumer.close()
    for number in range(4, 9):
        context.create_producer().send(Queue("DLQ.orders"), f"{number}")  # no origin: the broker did not bury them
    assert len(sievemq("dlq", "ls").lines) == 3
    done = sievemq("dlq", "retry", "DLQ.orders", "--yes")
    assert done.out == "4 messages sent back, 5 left as they are\n"
    assert bodies(context, "orders") == list("0123")
    assert bodies(context, "DLQ.orders") == list("45678")


def test_a_time_that_no_calendar_has(sievemq: Sievemq, context: JMSContext) -> None:
    context.create_producer().set_delivery_delay(2**52).send(Queue("orders"), "later")
    shown = sievemq("schedule", "ls", "orders")
    assert (shown.code, len(shown.lines)) == (0, 2)
    assert shown.lines[1].split("\t")[0].endswith(" ms")


def test_schedule(sievemq: Sievemq, context: JMSContext) -> None:
    context.create_producer().set_delivery_delay(60_000).send(Queue("orders"), "later")
    assert len(sievemq("schedule", "ls", "orders").lines) == 2
    assert json.loads(sievemq("schedule", "ls", "orders", "--json").out)["state"] == "scheduled"
    assert sievemq("schedule", "cancel", "orders", "--yes").out == "1 message cancelled\n"
    assert len(sievemq("schedule", "ls", "orders").lines) == 1


def test_parties(sievemq: Sievemq, broker: EmbeddedBroker, context: JMSContext) -> None:
    subscriber = context.create_durable_consumer(Topic("prices"), "watch", "n > 1")
    context.create_producer().set_property("n", 2).send(Topic("prices"), "x")
    (line,) = sievemq("subscription", "ls", "--topic", "prices", "--json").lines
    assert (json.loads(line)["name"], json.loads(line)["selector"]) == ("watch", "n > 1")
    consumer = context.create_consumer(Queue("q"), "n = 1")
    (row,) = map(json.loads, sievemq("queue", "consumers", "q", "--json").lines)
    found = sievemq("consumer", "ls", "--client-id", "shop", "--sort", "address", "--json").lines
    assert [json.loads(line)["address"] for line in found] == ["queue:q", "topic:prices"]
    assert sievemq("consumer", "ls", "--like", "n = 1", "-n", "1").lines[-1].split("\t")[-1] == "queue:q"
    assert sievemq("consumer", "ls", "--only", "holding", "--connection", "nobody-1").lines[1:] == []
    assert len(sievemq("connection", "ls", "--like", "SHOP", "--sort", "-consumers").lines) == 2
    assert sievemq("connection", "ls", "--only", "blocked", "--json").out == ""
    assert sievemq("connection", "ls", "--sort", "size").code == 2
    assert sievemq("queue", "ls", "--only", "paused", "--json").out == ""
    assert sievemq("consumer", "close", "q", row["id"], "--yes").out == f"{row['id']} closed\n"
    assert sievemq("queue", "consumers", "q", "--json").out == ""
    consumer.close()
    subscriber.close()
    told = sievemq("subscription", "delete", "watch", "--client-id", "shop", "--yes")
    assert told.out.startswith("watch deleted with ")
    assert sievemq("subscription", "ls", "--json").out == ""
    (mine,) = map(json.loads, sievemq("connection", "ls", "--json").lines)
    assert mine["client_id"] == "shop"
    assert sievemq("connection", "close", mine["id"], "--yes").out == f"{mine['id']} closed\n"
    assert sievemq("namespace", "create", "tests").out == "tests exists\n"
    assert "tests" in sievemq("namespace", "ls").out
    assert sievemq("namespace", "delete", "tests", "--yes").out == "tests deleted with 0 messages\n"
    assert sievemq("namespace", "delete", "tests", "--yes").code == 3


def test_what_was_refused(sievemq: Sievemq, broker: EmbeddedBroker, context: JMSContext) -> None:
    assert sievemq("connection", "refused", "--json").out == ""
    broker.call(
        lambda _: broker.server.shard.services.tallies.refuse(
            Refusal("default", "queue:orders", "max_messages", "flooder"), broker.server.clock.now(), "c1", 5
        )
    )
    (row,) = map(json.loads, sievemq("connection", "refused", "--json").lines)
    assert (row["client"], row["count"]) == ("flooder", 5)
    shown = sievemq("connection", "refused").lines[1].split("\t")
    assert shown[:5] == ["flooder", "queue:orders", "send", "max_messages", "5"]
    assert shown[5].endswith("s ago")


def test_how_long_a_message_waits(sievemq: Sievemq, broker: EmbeddedBroker, context: JMSContext) -> None:
    fill(context, 1)
    broker.clock.advance(seconds=7_205)
    assert "oldest waits for" in sievemq("queue", "info", "orders").out
    shown = json.loads(sievemq("queue", "info", "orders", "--json").out)
    assert 7_205_000 <= shown["oldest_ms"] < 9_000_000
    assert bodies(context, "orders") == ["0"]
    sievemq("queue", "purge", "orders", "--yes")
    assert json.loads(sievemq("queue", "info", "orders", "--json").out)["oldest_ms"] == 0


def test_taps(sievemq: Sievemq, broker: EmbeddedBroker, context: JMSContext) -> None:
    assert sievemq("tap", "create", "orders", "a/b", "--retain-age", "7d", "--lease", "1h").out == (
        "a/b exists on queue:orders\n"
    )
    assert sievemq("tap", "create", "orders", "small", "--retain-messages", "2", "-s", "n > 0").code == 0
    fill(context, 5)
    broker.clock.advance(seconds=7_205)
    shown = sievemq("tap", "ls")
    assert shown.lines[0].split("\t")[:6] == ["tap", "on", "mode", "lag", "for", "missed"]
    (row,) = (line.split("\t") for line in shown.lines[1:])  # a/b's lease is over
    assert row[:4] == ["small", "queue:orders", "copy", "2"]
    assert row[4].startswith("2h")
    assert row[5] == "2"
    assert row[7:9] == ["", ""]
    with ConnectionFactory(broker.url, client_id="reader").create_connection() as connection:
        find_tap(connection, "small", Queue("orders"))[0].look(2)
        reader = sievemq("connection", "ls").lines[-1].split("\t")[0]
        assert sievemq("tap", "ls").lines[1].split("\t")[7:9] == [reader, "yes"]
    assert sievemq("tap", "ls").lines[1].split("\t")[7:9] == [reader, ""]
    info = sievemq("tap", "info", "orders", "small").out
    for text in ("2 messages, the oldest for 2h", "up to 2", "2 messages, 268,435,456 bytes", "n > 0", "3 to 4"):
        assert text in info
    assert json.loads(sievemq("tap", "info", "orders", "small", "--json").out)["missed"] == 2
    assert sievemq("tap", "ls", "--on", "topic:prices", "--json").out == ""
    assert sievemq("tap", "delete", "orders", "small", "--dry-run").out == "small would be deleted with 2 messages\n"
    assert sievemq("tap", "delete", "orders", "small", "--yes").out == "small deleted with 2 messages\n"
    for command in (["info"], ["delete", "--yes"]):
        gone = sievemq("tap", *command, "orders", "small")
        assert (gone.code, gone.out) == (3, "")
        assert "there is no tap 'small' on queue:orders" in gone.err
    for wrong, code in ((["--mode", "drain", "--lease", "0"], 1), (["-s", "n = = 1"], 4), (["--lease", "soon"], 2)):
        assert sievemq("tap", "create", "orders", "x", *wrong).code == code


@pytest.mark.parametrize(
    ("milliseconds", "text"),
    [(0, ""), (1, "1s"), (59_999, "59s"), (60_000, "1m"), (3_661_000, "1h 1m"), (90_000_000, "1d 1h")],
)
def test_spans(milliseconds: int, text: str) -> None:
    assert span(milliseconds) == text


def test_another_namespace(sievemq: Sievemq, broker: EmbeddedBroker) -> None:
    with ConnectionFactory(broker.url + "/a%2Fb").create_context() as context:
        fill(context, 2, "näme with / and %")
        shown = sievemq("queue", "info", "näme with / and %", "-N", "a/b", "--json")
        assert json.loads(shown.out)["depth"] == 2
    assert sievemq("queue", "ls", "--json").out == ""


def test_top(sievemq: Sievemq, context: JMSContext) -> None:
    fill(context, 1_234)
    shown = sievemq("top").out
    assert "ready 1,234" in shown
    assert "queue:orders" in shown
    assert len(sievemq("top", "--json", "--rounds", "2", "-i", "0.1").lines) == 2


def test_top_marks_paused_queues_and_dead_letters(
    sievemq: Sievemq, broker: EmbeddedBroker, context: JMSContext
) -> None:
    fill(context, 1)
    context.create_producer().send(context.create_queue("DLQ.orders"), "dead")
    broker.call(lambda domain: domain.namespace("default").queue("queue:orders").pause())
    shown = sievemq("top").out
    assert "queue:orders  (paused)" in shown
    assert "queue:DLQ.orders" in shown


@pytest.mark.parametrize(
    ("count", "shown"),
    [(0, "0 B"), (2048, "2 KiB"), (5 << 20, "5 MiB"), (3 << 30, "3.0 GiB"), (5 << 40, "5,120.0 GiB")],
)
def test_sizes_in_top(count: int, shown: str) -> None:
    assert top._size(count) == shown


def until_waiting(broker: EmbeddedBroker, waiting: bool) -> None:
    """Returns when some sender waits for room, or none does."""
    deadline = time.monotonic() + 60
    while broker.call(lambda domain: bool(domain.rooms.waiting)) is not waiting:
        assert time.monotonic() < deadline


def until_found(broker: EmbeddedBroker, *rules: str) -> None:
    """Returns when just these rules have found something."""
    deadline = time.monotonic() + 60
    while {rule.name for rule, number in broker.server.attention.totals.items() if number} != set(rules):
        assert time.monotonic() < deadline


def test_blocked_senders_are_shown_with_their_waiting_time(sievemq: Sievemq, monkeypatch: pytest.MonkeyPatch) -> None:
    rules = {"full": {"max_messages": 1, "at_limit": "block"}}
    off = {"no_consumer_seconds": 0, "full_seconds": 0, "limit_percent": 0}
    with EmbeddedBroker(http=True, settings={"destinations": rules, "attention": off}) as broker:
        monkeypatch.setenv("SIEVEMQ_HTTP_URL", str(broker.http_url))
        broker.clock.freeze()
        with ConnectionFactory(broker.url).create_context() as context:
            producer = context.create_producer().set_delivery_mode(1)
            for _ in range(2):
                producer.send(context.create_queue("full"), "x")
            until_waiting(broker, True)
            broker.clock.advance(seconds=75)
            titles, row = (line.split("\t") for line in sievemq("connection", "ls").lines)
            assert dict(zip(titles, row, strict=True))["waits to send"] == "1m 15s"
            until_found(broker, "senders_blocked")
            line = "1m 15s  queue:full (\\S+): waiting for room: 1 sender; queue:full is full; it may hold 1 message"
            assert re.search(line, sievemq("top").out)
            checked = sievemq("doctor")
            assert checked.code == 4
            row = dict(zip(*(line.split("\t") for line in checked.lines[:2]), strict=True))
            assert (row["severity"], row["for"]) == ("warning", "1m 15s")
            assert row["what to do"] == "Start consumers, purge or move messages, or raise the limit."
            assert [json.loads(line)["rule"] for line in sievemq("doctor", "--json").lines] == ["senders_blocked"]
            sievemq("queue", "purge", "full", "--yes")
            until_waiting(broker, False)
            until_found(broker)
            assert sievemq("doctor").code == 0
            titles, row = (line.split("\t") for line in sievemq("connection", "ls").lines)
            assert dict(zip(titles, row, strict=True))["waits to send"] == ""
            assert "Needs attention" not in sievemq("top").out


def test_a_notice_is_no_reason_for_doctor_to_fail(sievemq: Sievemq, broker: EmbeddedBroker) -> None:
    broker.call(lambda domain: domain.namespace("default").create("queue:orders").pause())
    until_found(broker, "paused")
    checked = sievemq("doctor")
    assert (checked.code, checked.lines[1].split("\t")[:2]) == (0, ["notice", "queue:orders"])


def test_doctor_of_a_broker_that_gives_no_answer(sievemq: Sievemq, monkeypatch: pytest.MonkeyPatch) -> None:
    with EmbeddedBroker(http=True, users={"ops": "secret"}) as broker:
        monkeypatch.setenv("SIEVEMQ_HTTP_URL", str(broker.http_url))
        assert (sievemq("doctor").code, sievemq("doctor").out) == (4, "")
        monkeypatch.setenv("SIEVEMQ_USER", "ops")
        monkeypatch.setenv("SIEVEMQ_PASSWORD", "wrong")
        refused = sievemq("doctor", "--json")
        assert (refused.code, refused.out) == (4, "")
        assert "password" in refused.err
    gone = sievemq("doctor")
    assert (gone.code, gone.out) == (1, "")


def test_lists_show_what_needs_attention(sievemq: Sievemq, monkeypatch: pytest.MonkeyPatch) -> None:
    thresholds = {"no_consumer_seconds": 1, "stuck_seconds": 1}
    with EmbeddedBroker(http=True, settings={"attention": thresholds}) as broker:
        monkeypatch.setenv("SIEVEMQ_HTTP_URL", str(broker.http_url))
        factory = ConnectionFactory(broker.url, client_id="holder")
        with factory.create_context(JMSContext.CLIENT_ACKNOWLEDGE) as context:
            fill(context, 1, "alone")
            fill(context, 1, "held")
            context.create_shared_durable_consumer(Topic("prices"), "board").close()
            context.create_producer().send(Topic("prices"), "dear")
            assert context.create_consumer(Queue("held")).receive(60_000) is not None
            deadline = time.monotonic() + 60
            while sum(broker.server.attention.totals.values()) < 3:
                broker.clock.advance(seconds=1)
                assert time.monotonic() < deadline
            rows = [line.split("\t") for line in sievemq("queue", "ls").lines]
            state = rows[0].index("state")
            assert {row[0]: row[state] for row in rows[1:]} == {"alone": "no-consumer", "held": "consumer-stuck"}
            for command in (("queue", "consumers", "held"), ("connection", "ls")):
                head, row = (line.split("\t") for line in sievemq(*command).lines)
                assert dict(zip(head, row, strict=True))["attention"] == "consumer-stuck"
            head, row = (line.split("\t") for line in sievemq("subscription", "ls").lines)
            assert dict(zip(head, row, strict=True))["attention"] == "no-consumer"


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["queue", "info", "nosuch"], 3, "there is no queue:nosuch in namespace 'default'"),
        (["queue", "ls", "--sort", "colour"], 2, "sort"),
        (["queue", "info", "topic:"], 2, "must not be empty"),
        (["move", "orders", "there", "-s", "n = = 1", "--yes"], 4, "      ^"),
        (["delete", "orders"], 2, "choose messages with"),
        (["connection", "close", "nobody", "--yes"], 3, "nobody"),
        (["queue", "ls", "--http", "nowhere"], 2, "no URL of a management port"),
        (["queue", "ls", "--http", "http://127.0.0.1:many"], 2, "no URL of a management port"),
        (["queue", "ls", "--http", "http://[::1"], 2, "no URL of a management port"),
        (["queue", "ls", "--http", "http://two words:1"], 1, "no management port answers"),
        (["queue", "ls", "--http", "http://127.0.0.1:1"], 1, "no management port answers at http://127.0.0.1:1"),
    ],
)
def test_mistakes(sievemq: Sievemq, context: JMSContext, arguments: list[str], code: int, says: str) -> None:
    fill(context, 1)
    done = sievemq(*arguments)
    assert done.code == code, done.err
    assert done.err.startswith("sievemq: ")
    assert says in done.err
    assert done.out == ""


def test_a_port_without_http(sievemq: Sievemq, broker: EmbeddedBroker) -> None:
    done = sievemq("queue", "ls", "--http", f"http://127.0.0.1:{broker.port}")
    assert (done.code, done.out) == (1, "")
    assert done.err.startswith(f"sievemq: what answers at http://127.0.0.1:{broker.port} does not speak HTTP. ")
    assert "name the management port instead: 7680" in done.err
    assert done.err.isascii()


def test_the_default_namespace_has_no_name(sievemq: Sievemq, context: JMSContext) -> None:
    fill(context, 1)
    assert len(sievemq("queue", "ls", "-N", "").lines) == 2


def test_a_long_name_leaves_room_for_figures(sievemq: Sievemq, context: JMSContext) -> None:
    fill(context, 1_234, "long" * 100)
    row = sievemq("top").lines[-1]
    assert row.startswith("queue:longlong")
    assert row.split()[1] == "1,234"


def test_client_chosen_text_breaks_no_line(sievemq: Sievemq, context: JMSContext) -> None:
    with context.create_consumer(Queue("orders"), "a = '\x1b[2J\t\n'"):
        lines = sievemq("queue", "consumers", "orders").lines
    assert len(lines) == 2
    assert lines[1].endswith(r"a = '\x1b[2J\t\n'")


def test_credentials(sievemq: Sievemq, monkeypatch: pytest.MonkeyPatch) -> None:
    with EmbeddedBroker(users={"me": "secret"}, http=True) as broker:
        monkeypatch.setenv("SIEVEMQ_HTTP_URL", str(broker.http_url))
        assert sievemq("queue", "ls").code == 4
        monkeypatch.setenv("SIEVEMQ_PASSWORD", "wrong")
        assert sievemq("queue", "ls", "--user", "me").code == 4
        monkeypatch.setenv("SIEVEMQ_PASSWORD", "secret")
        assert sievemq("queue", "ls", "--user", "me").code == 0


def test_tls(sievemq: Sievemq, certificates: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ca, cert, key = (certificates / name for name in ("ca.pem", "client.pem", "client.key"))
    settings = {"tls_cert": str(certificates / "server.pem"), "tls_key": str(certificates / "server.key")}
    with EmbeddedBroker(http=True, settings={**settings, "tls_client_ca": str(ca)}) as broker:
        for query, code, says in (
            (f"?tls_ca={ca}&tls_cert={cert}&tls_key={key}", 0, ""),
            (f"?tls_ca={ca}", 4, "a client certificate is needed here"),
            ("?tls_verify=false", 4, "a client certificate is needed here"),
            ("", 1, "CERTIFICATE_VERIFY_FAILED"),
            ("?tls_ca=nowhere.pem", 2, "TLS cannot be set up with nowhere.pem"),
            (f"?tls_ca={ca}&tls_cert={ca}", 2, "TLS cannot be set up"),
            ("?tls_verify=no", 2, "'tls_verify=no' is no option here"),
            ("?verify=false", 2, "'verify' is no option here"),
            ("?tls_ca", 2, "are no options"),
        ):
            monkeypatch.setenv("SIEVEMQ_HTTP_URL", f"{broker.http_url}{query}")
            done = sievemq("queue", "ls")
            assert done.code == code, done.err
            assert says in done.err
        url = str(broker.http_url)
        unknown = sievemq("queue", "ls", "--http", url)
        assert (unknown.code, f"--http '{url}?tls_ca=FILE'" in unknown.err) == (1, True)
        clear = sievemq("queue", "ls", "--http", url.replace("https", "http"))
        assert (clear.code, "write https://" in clear.err) == (1, True)
    with EmbeddedBroker(http=True) as broker:
        tls = sievemq("queue", "ls", "--http", str(broker.http_url).replace("http", "https"))
        assert (tls.code, "write http://" in tls.err) == (1, True)
    clear = sievemq("queue", "ls", "--http", "http://127.0.0.1:1?tls_ca=server.pem")
    assert (clear.code, "tls_ca is for https" in clear.err) == (2, True)


def test_a_password_in_the_url_is_not_repeated(sievemq: Sievemq) -> None:
    done = sievemq("queue", "ls", "--http", "https://me:rosebud@127.0.0.1:1")
    assert done.code == 2
    assert "--user" in done.err
    assert "rosebud" not in done.err


def on_terminal(
    command: list[str], watch: Callable[[subprocess.Popen[bytes], bytes], object] = lambda process, shown: None
) -> tuple[int, bytes]:
    """Run a command on a terminal.

    Args:
        command: its arguments.
        watch: called with the process and all that is shown so far, whenever there is more.

    Returns:
        The exit code and what was shown.
    """
    main, terminal = pty.openpty()
    program = Path(sys.executable).with_name("sievemq")
    with subprocess.Popen([program, *command], stdin=terminal, stdout=terminal, stderr=terminal) as process:
        os.close(terminal)
        shown = b""
        try:
            while piece := os.read(main, 65_536):
                shown += piece
                watch(process, shown)
        except OSError:  # the terminal is closed
            pass
    os.close(main)
    return process.returncode, shown


def test_a_broker_on_a_terminal_ends_its_start_with_where_it_is(broker: EmbeddedBroker) -> None:
    ended: list[int] = []

    def end(process: subprocess.Popen[bytes], shown: bytes) -> None:
        if re.search(rb"Console  http://\S+\r\n", shown) and not ended:
            ended.append(len(shown))
            process.terminate()

    command = ["broker", "--host", "127.0.0.1", "--port", "0", "--http-port", "0"]
    code, shown = on_terminal(command, end)
    assert code == 0
    start = shown[: ended[0]].decode().splitlines()
    assert re.fullmatch(r"Clients  sievemq://127\.0\.0\.1:\d+", start[-2])
    assert re.fullmatch(r"Console  http://127\.0\.0\.1:\d+/?", start[-1])
    assert "broker.ready" not in "".join(start)


ROW = {"queue": "team0.orders.with.a.long.name", "ready": 12_345, "in flight": 2, "scheduled": 0, "bytes": 4_200_000,
       "consumers": 0, "in/s": 1.5, "out/s": 0, "state": "at-limit"}  # fmt: skip


@pytest.mark.parametrize(
    ("width", "hidden"),
    [
        (120, ""),
        (80, "(without scheduled, bytes, out/s: the terminal is narrow; --json has everything)\n"),
        (60, "(without in flight, scheduled, bytes, in/s, out/s: the terminal is narrow; --json has everything)\n"),
    ],
)
def test_a_narrow_terminal_lacks_what_matters_least(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, width: int, hidden: str
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    print_rows([ROW], {name: itemgetter(name) for name in ROW}, False, "")
    shown, said = capsys.readouterr()
    assert said == hidden
    titles, row = shown.splitlines()
    assert row.split()[:2] == ["team0.orders.with.a.long.name", "12,345"]
    assert ("consumers" in titles, "at-limit" in row) == (True, True)


@pytest.mark.parametrize("width", [60, 120])
def test_top_shows_names_on_a_narrow_terminal(broker: EmbeddedBroker, width: int) -> None:
    broker.call(lambda b: b.namespace("default").create("queue:team0.orders.with.a.long.name").pause())
    file = io.StringIO()
    Console(width=width, file=file).print(top._screen(top._look(access.Api(str(broker.http_url), None), 20, "address")))
    shown = file.getvalue()
    assert "queue:team0.orders.with.a.long.name  (pau" in shown
    assert ("out/s" in shown, "consumers" in shown) == (width == 120, True)


def test_a_name_that_is_too_long_is_continued(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "30")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    print_rows([{"queue": "q" * 50, "ready": 1}], {name: itemgetter(name) for name in ("queue", "ready")}, False, "")
    shown = re.sub(r"\x1b\[\d+m", "", capsys.readouterr().out)
    assert "".join(shown.split()) == f"queueready{'q' * 23}1{'q' * 27}"


def test_a_message_does_not_command_the_terminal(broker: EmbeddedBroker, context: JMSContext) -> None:
    context.create_producer().send(Queue("orders"), "one\x1b]0;two\x07\n\tthree")
    code, shown = on_terminal(["browse", "orders"])
    assert (code, shown) == (0, b"one\\x1b]0;two\\x07\r\n\tthree\r\n")


@pytest.mark.parametrize("command", [["browse", "orders", "--json"], ["queue", "consumers", "orders", "--json"]])
def test_json_does_not_command_the_terminal(broker: EmbeddedBroker, context: JMSContext, command: list[str]) -> None:
    context.create_producer().send(Queue("orders"), "grüße \x9b2J\u202e")
    with context.create_consumer(Queue("orders"), "a = '\x9b2J\u202e'"):
        code, shown = on_terminal(command)
        assert code == 0
        assert shown.decode().strip().isprintable()
        assert "\x9b2J\u202e" in "".join(map(str, json.loads(shown).values()))


def test_top_when_the_broker_goes_away(monkeypatch: pytest.MonkeyPatch) -> None:
    """It says so on the screen that is there afterwards, not on the one that it gives back."""
    broker = EmbeddedBroker(http=True)
    broker.start()
    monkeypatch.setenv("SIEVEMQ_HTTP_URL", str(broker.http_url))

    def watch(process: subprocess.Popen[bytes], shown: bytes) -> None:
        if b"in memory" in shown:
            broker.stop()

    code, shown = on_terminal(["top", "-i", "0.1"], watch)
    assert code == 1
    before, _, after = shown.rpartition(b"\x1b[?1049l")  # back from the other screen
    assert b"in memory" in before
    assert b"sievemq: no management port answers" in after


@pytest.mark.parametrize("command", [["queue", "ls"], ["top", "--rounds", "1"], ["dlq", "ls"]])
def test_on_a_terminal(broker: EmbeddedBroker, context: JMSContext, command: list[str]) -> None:
    """A table, in which a queue's name is no markup."""
    fill(context, 2, "[bold]orders[/bold]")
    code, shown = on_terminal(command)
    assert code == 0, shown
    assert (b"[bold]orders[/bold]" in shown) is (command[0] != "dlq")
    assert (b"no dead letters in namespace default" in shown) is (command[0] == "dlq")


def test_completion(monkeypatch: pytest.MonkeyPatch) -> None:
    program = Path(sys.executable).with_name("sievemq")
    asks = {**os.environ, "_SIEVEMQ_COMPLETE": "complete_bash", "COMP_WORDS": "sievemq dl", "COMP_CWORD": "1"}
    assert subprocess.check_output([program], env=asks, text=True).split() == ["dlq"]


def test_every_command_has_help(sievemq: Sievemq) -> None:
    for command in (["queue", "purge"], ["topic", "delete"], ["dlq", "retry"], ["schedule", "cancel"], ["top"]):
        shown = sievemq(*command, "--help")
        assert (shown.code, "Usage: sievemq " + " ".join(command) in shown.out) == (0, True)
