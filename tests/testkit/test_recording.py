"""Recording what is sent, and sending it again in compressed time."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sievemq import BytesMessage, ConnectionFactory, JMSContext, MapMessage, Queue, TextMessage, Topic
from sievemq_core.message.values import Byte, Float
from sievemq_testing import Replay, TestBroker, TestNamespace
from sievemq_testing.recording import Recorded

ORDERS = Queue("orders")


def test_every_kind_of_message_comes_back_as_it_was(
    sievemq_test_broker: TestBroker, sievemq_namespace: TestNamespace, sievemq_context: JMSContext, tmp_path: Path
) -> None:
    file = tmp_path / "traffic.jsonl"
    text = TextMessage("grüße \ud800", properties={"b": Byte(1), "f": Float(0.5), "n": 7, "none": None, "ok": True})
    text.set_jms_correlation_id_as_bytes(b"\x00\xff")
    text.set_jms_type("greeting")
    text.set_jms_reply_to(Queue("replies"))
    binary = BytesMessage()
    binary.write_bytes(b"\x00\x01")
    with sievemq_test_broker.record(file, sievemq_namespace.name) as tape:
        producer = sievemq_context.create_producer()
        producer.set_priority(8).send(ORDERS, text)
        producer.set_priority(4).send(ORDERS, binary)
        producer.set_jms_correlation_id("c").send(ORDERS, MapMessage({"a": 1, "b": b"x"}))
        producer.set_jms_correlation_id(None).send(Topic("prices"), TextMessage(None))
    assert tape.messages == 4
    before = sievemq_namespace.queue("orders").messages()
    replay = Replay(file)
    assert len(replay) == 4
    sievemq_namespace.queue("orders").purge()
    assert replay.into(sievemq_namespace, timing=False) == 4
    after = sievemq_namespace.queue("orders").messages()
    for old, new in zip(before, after, strict=True):
        assert type(new) is type(old)
        assert new.get_jms_message_id() == old.get_jms_message_id()
        assert dict(new.properties) == dict(old.properties)
        assert list(map(type, new.properties.values())) == list(map(type, old.properties.values()))
        assert new._fields[12] == old._fields[12]
        assert (new.get_jms_type(), new.get_jms_reply_to()) == (old.get_jms_type(), old.get_jms_reply_to())
    assert after[0].get_jms_correlation_id_as_bytes() == b"\x00\xff"
    sievemq_namespace.topic("prices").assert_received(count=1)  # a replay is no client's send


def test_transactions_are_recorded_when_they_are_committed(
    sievemq_test_broker: TestBroker, sievemq_namespace: TestNamespace, tmp_path: Path
) -> None:
    file = tmp_path / "traffic.jsonl"
    with (
        sievemq_test_broker.record(file),
        ConnectionFactory(sievemq_namespace.url).create_context(JMSContext.SESSION_TRANSACTED) as context,
    ):
        context.create_producer().send(ORDERS, "rolled back")
        context.rollback()
        context.create_producer().send(ORDERS, "committed")
        context.commit()
        context.create_producer().send(ORDERS, "never ended")
        sievemq_namespace.faults.refuse("commit")
        with pytest.raises(Exception, match="rolled back"):
            context.commit()
    assert [line.envelope.fields[12] for line in Replay(file)] == [b"committed"]


def test_refused_sends_are_not_recorded(
    sievemq_test_broker: TestBroker, sievemq_namespace: TestNamespace, sievemq_context: JMSContext, tmp_path: Path
) -> None:
    sievemq_namespace.queue("orders").configure(max_messages=1)
    with sievemq_test_broker.record(tmp_path / "r") as tape:
        sievemq_context.create_producer().send(ORDERS, "one")
        with pytest.raises(Exception, match="max_messages"):
            sievemq_context.create_producer().send(ORDERS, "two")
    tape.stop()
    assert tape.messages == 1


def test_a_day_is_replayed_in_no_time(tmp_path: Path) -> None:
    file = tmp_path / "day.jsonl"
    hour = 3_600_000
    begin = 1_767_225_600_000
    lines = [
        {"at": begin, "destination": "orders", "message": {"kind": "text", "body": "a", "expiration": begin + hour}},
        {"at": begin + hour // 2, "destination": "orders", "message": {"kind": "text", "body": "b"}},
        {"at": begin + 24 * hour, "destination": "orders", "message": {"kind": "text", "body": "c"}},
    ]
    file.write_text("\n".join(map(json.dumps, lines)) + "\n\n")
    with TestBroker() as broker:
        here = broker.namespace("replayed")
        depths = []
        start = broker.clock.now()
        Replay(file).into(here, after_each=lambda _: depths.append(here.queue("orders").depth))
        assert depths == [1, 2, 2]  # the first has expired when the third comes
        assert [m.get_body(str) for m in here.queue("orders").messages()] == ["b", "c"]
        assert 86_400 <= (broker.clock.now() - start).total_seconds() < 86_430


def test_a_bad_line_is_named(tmp_path: Path) -> None:
    file = tmp_path / "bad.jsonl"
    file.write_text('{"at": 1, "destination": "q", "message": {}}\n{"at": 1}\n')
    with pytest.raises(ValueError, match=r"bad\.jsonl, line 2: not a line of a recording \(KeyError"):
        Replay(file)
    file.write_text("nonsense\n")
    with pytest.raises(ValueError, match="line 1"):
        Replay(file)


def test_a_line_may_be_short() -> None:
    item = Recorded.from_line('{"at": 5, "destination": "q", "message": {"properties": {"n": 1}}}')
    assert (item.at, item.namespace, item.destination) == (5, "default", "q")
    assert item.envelope.properties == {"n": 1}
    assert item.envelope.priority == 4
    assert Recorded.from_line(item.to_line()).envelope.packed == item.envelope.packed
