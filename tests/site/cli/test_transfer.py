"""`sievemq export` and `import`: what was written is read back; wrong lines are named."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sievemq import (
    BytesMessage,
    ConnectionFactory,
    DeliveryMode,
    JMSContext,
    MapMessage,
    Message,
    ObjectMessage,
    Queue,
    StreamMessage,
    TextMessage,
    Topic,
)
from sievemq.blocking import Session
from sievemq.cli import transfer
from sievemq_broker import EmbeddedBroker
from sievemq_core.message.values import Byte, Char, Float, Short

from .conftest import Outcome, Sievemq

#: Headers that a send sets.
NEW = ("message_id", "timestamp", "destination", "delivery_time")
VALUES: dict[str, Any] = {
    "z": True, "b": Byte(1), "h": Short(2), "i": 3, "l": 2**60, "f": Float(0.5), "d": 0.1, "nan": float("nan"),
    "inf": float("-inf"), "s": "té\ud800xt", "none": None,
}  # fmt: skip


@pytest.fixture
def context(broker: EmbeddedBroker) -> Iterator[JMSContext]:
    with ConnectionFactory(broker.url).create_context() as context:
        yield context


def messages() -> list[Message]:
    mapped, streamed = MapMessage(), StreamMessage()
    for name, value in {**VALUES, "c": Char("x"), "x": b"\x00\xff"}.items():
        mapped.set_object(name, value)
        streamed.write_object(value)
    text = TextMessage("hello ☃ \ud800")
    for name, value in VALUES.items():
        text.set_object_property(name, value)
    text.set_jms_type("order")
    text.set_jms_reply_to(Topic("answers"))
    text.set_jms_correlation_id_as_bytes(b"\xff\x00")
    text.set_string_property("JMSXGroupID", "g")
    return [text, BytesMessage(b"\x00\xff"), BytesMessage(), TextMessage(None), mapped, streamed, MapMessage(),
            StreamMessage(), ObjectMessage([1, (2, 3)]), Message()]  # fmt: skip


def rows(outcome: Outcome) -> list[dict[str, Any]]:
    assert outcome.code == 0, outcome.err
    return [{k: v for k, v in json.loads(line).items() if k not in NEW} for line in outcome.lines]


def test_what_export_writes_import_reads(sievemq: Sievemq, context: JMSContext, tmp_path: Path) -> None:
    file = tmp_path / "orders.ndjson"
    producer = context.create_producer()
    for number, message in enumerate(messages()):
        producer.set_priority(number).set_delivery_mode(DeliveryMode.NON_PERSISTENT if number % 2 else 2)
        producer.set_time_to_live(3_600_000 if number == 3 else 0).send(Queue("orders"), message)
    count = len(messages())
    assert sievemq("export", "orders", "--out", str(file)).out == f"{count} messages exported to {file}\n"
    assert file.stat().st_mode & 0o777 == 0o600
    browsed = sievemq("browse", "orders", "--json")
    assert len(file.read_bytes().splitlines()) == count
    assert file.read_text(encoding="utf-8") == browsed.out
    before = rows(browsed)
    assert sievemq("import", str(file), "--dry-run").out == f"{count} messages would be sent\n"
    assert sievemq("import", str(file), "--to", "copies").out == f"{count} messages imported\n"
    after = rows(sievemq("browse", "copies", "--json"))
    for old, new in zip(before, after, strict=True):
        assert abs(old.pop("expiration") - new.pop("expiration")) < 60_000
        assert old == new
    assert sievemq("import", str(file)).code == 0
    assert len(sievemq("browse", "orders").lines) >= count
    objects = [m for m in context.create_browser(Queue("copies")) if isinstance(m, ObjectMessage)]
    assert [message.get_object() for message in objects] == [[1, (2, 3)]]


def test_standard_input_and_output(sievemq: Sievemq, context: JMSContext) -> None:
    for queue in ("one", "two"):
        for number in range(3):
            context.create_producer().set_property("n", number).send(Queue(queue), f"{queue} {number}")
    done = sievemq("export", "one", "two", "-n", "1", "-s", "n > 0")
    assert [json.loads(line)["body"] for line in done.lines] == ["one 1", "two 1"]
    assert done.err == "sievemq: 2 messages exported\n"
    lines = (done.out + "\n\n").encode()
    assert sievemq("import", "-", "--to", "topic:t", stdin=lines).out == "2 messages imported\n"
    assert sievemq("import", "-", "--dry-run", stdin=lines).out == "2 messages would be sent\n"
    broken = sievemq("import", "-", stdin=lines + b"{")
    assert broken.code == 2
    assert "the standard input, line 5: it is not JSON" in broken.err
    assert "sievemq: 0 messages imported before that" in broken.err


def test_times(sievemq: Sievemq, broker: EmbeddedBroker) -> None:
    now = round(time.time() * 1000)
    lines = [
        {"destination": "queue:q", "body": "gone", "kind": "text", "expiration": now - 1},
        {"destination": "queue:q", "body": "later", "kind": "text", "delivery_time": now + 3_600_000},
        {"destination": "queue:q", "body": "due", "kind": "text", "delivery_time": now - 1, "expiration": 0},
    ]
    given = "".join(json.dumps(line) + "\n" for line in lines).encode()
    assert sievemq("import", "-", stdin=given).out == "2 messages imported, 1 expired\n"
    queue = broker.call(lambda b: b.namespace("default").queue("queue:q"))
    assert broker.call(lambda b: (queue.depth, len(queue.scheduled))) == (1, 1)


def test_many_are_sent_in_batches(
    sievemq: Sievemq, broker: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(transfer, "_BATCH", 2)
    file = tmp_path / "many"
    file.write_text("\n".join(json.dumps({"destination": "q", "kind": "text", "body": str(n)}) for n in range(5)))
    assert sievemq("import", str(file)).out == "5 messages imported\n"
    assert sievemq("browse", "q").lines == ["0", "1", "2", "3", "4"]


def test_an_interrupted_commit_is_in_doubt(
    sievemq: Sievemq, broker: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit, calls = Session.commit, []

    def interrupted(session: Session) -> None:
        commit(session)
        calls.append(session)
        if len(calls) == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(Session, "commit", interrupted)
    monkeypatch.setattr(transfer, "_BATCH", 2)
    done = sievemq("import", "-", "--to", "q", stdin=b"{}\n" * 3)
    assert done.code == 130
    assert done.err.splitlines() == [
        "sievemq: interrupted: the last 1 message may be sent or not",
        "sievemq: 2 messages imported before that",
    ]


@pytest.mark.parametrize(
    ("line", "error"),
    [
        ("[]", "it is no JSON object"),
        ({"properties_error": "x"}, "properties: they could not be read when the line was written"),
        ({"properties": 1}, "properties: must be an object"),
        ({"properties": {"a": "x"}, "property_types": {"a": "int"}}, "properties: a: 'x' is no int"),
        ({"properties": {"a": 1}, "property_types": {"a": "inte"}}, "properties: a: 'inte' is not a type"),
        ({"properties": {"a": "x"}, "property_types": {"a": "double"}}, "properties: a: 'x' is no double"),
        ({"properties": {"a": [1]}}, "properties: a: [1] is no string"),
        ({"kind": "txt"}, "kind: must be one of none, text, bytes"),
        ({"kind": ["text"]}, "kind: must be one of none, text, bytes"),
        ({"properties": {"a": 1}, "property_types": {"a": ["int"]}}, "properties: a: ['int'] is not a type"),
        ({"delivery_mode": {}}, "delivery_mode: must be PERSISTENT or NON_PERSISTENT, not {}"),
        ("[" * 100_000, "it is not JSON: "),
        ({"kind": "text", "body": 1}, "body: it is none of a message of kind text"),
        ({"kind": "bytes", "body": "?"}, "body: not base64"),
        ({"kind": "bytes", "body": 1}, "body: not base64"),
        ({"kind": "map", "body": {"a": "x"}, "body_types": {"a": "bytes"}}, "body: a: not base64"),
        ({"kind": "object", "body": "[1]", "body_encoding": "repr"}, "body: it is none of a message of kind object"),
        ({"destination": 1}, "destination: must be text, not 1"),
        ({"destination": "topic:"}, "must not be empty"),
        ({"delivery_mode": 2}, "delivery_mode: must be PERSISTENT or NON_PERSISTENT, not 2"),
        ({"priority": 10}, "priority: must be a whole number from 0 to 9, not 10"),
        ({"expiration": -1}, "expiration: must be a whole number from 0 to"),
        ({"destination": None}, "destination: no queue or topic that it was sent to; name one with --to"),
        ({"destination": "temporary-queue:a.1"}, "no queue or topic that it was sent to; name one with --to"),
        ({"subscription": "s"}, "destination: no queue or topic that it was sent to; name one with --to"),
    ],
)
def test_a_wrong_line_is_named_and_nothing_is_sent(
    sievemq: Sievemq, broker: EmbeddedBroker, tmp_path: Path, line: Any, error: str
) -> None:
    file = tmp_path / "lines"
    wrong = line if isinstance(line, str) else json.dumps({"destination": "q", "body": None, **line})
    file.write_text(f'{{"destination": "q"}}\n{wrong}\n')
    done = sievemq("import", str(file))
    assert done.code == 2
    assert f"{file}, line 2: " in done.err
    assert error in done.err
    assert sievemq("browse", "q").code == 3


def test_unreadable_bodies_are_kept_as_they_are(sievemq: Sievemq, context: JMSContext) -> None:
    line = {"destination": "q", "kind": "map", "body": "/w==", "body_error": "it cannot be decoded"}
    assert sievemq("import", "-", stdin=json.dumps(line).encode()).code == 0
    record = json.loads(sievemq("browse", "q", "--json").out)
    assert (record["kind"], record["body"], record["body_encoding"]) == ("map", "/w==", "base64")
    typeless = {"destination": "q", "kind": "stream", "body": [1, "a", 0.5, True, None], "properties": {"n": 1}}
    assert sievemq("import", "-", stdin=json.dumps(typeless).encode()).code == 0
    record = json.loads(sievemq("browse", "q", "--json").lines[1])
    assert record["body_types"] == ["long", "string", "double", "boolean", "string"]


def test_mistakes(sievemq: Sievemq, context: JMSContext, tmp_path: Path) -> None:
    assert sievemq("export", "topic:t").code == 2
    assert sievemq("export", "nothing").code == 3
    assert sievemq("import", str(tmp_path / "nothing")).code == 2
    context.create_producer().send(Queue("orders"), "x")
    done = sievemq("export", "orders", "--out", str(tmp_path))
    assert done.code == 1
    assert f"{tmp_path} cannot be written" in done.err
