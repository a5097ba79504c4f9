"""Messages that a raw client may send although no honest one does, by each door, read by each reader of the pipeline: a
page, a batch and an archive have all of the others. `tests/hostile/security/test_poison_messages.py` has the readers
that are no pipeline."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="needs the extra `spark`")

from tests.broker.protocols.amqp import AmqpSocket, message
from tests.broker.protocols.stomp import StompSocket
from tests.hostile.security.support import ask
from tests.hostile.security.test_hostile_frames import FIELDS, Peer
from tests.hostile.security.test_poison_messages import POISON, REFUSED

from sievemq import ConnectionFactory, Queue
from sievemq_broker import EmbeddedBroker
from sievemq_broker.protocols.amqp.performatives import Properties
from sievemq_broker.protocols.amqp.types import Timestamp, ULong
from sievemq_core.message.envelope import Envelope
from sievemq_core.wire.commands import Command
from sievemq_spark import links
from sievemq_spark.archive import archive, read_archive
from sievemq_spark.backtest import backtest
from sievemq_spark.report.html import write_html
from sievemq_spark.report.parts import parts_of
from sievemq_spark.retention import expire
from sievemq_spark.schema import COLUMNS, ddl
from sievemq_spark.source import SieveMQDataSource
from sievemq_spark.times import UNDATED

from .rows import batch_of
from .test_stream_reader import Stream, schema_of

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

NOW = 1_700_000_000_000
#: What clients send that count in another unit than milliseconds, and what no client should.
TIMES = {"ms": NOW, "us": NOW * 1_000, "ns": NOW * 1_000_000, "year 10000": 253_402_300_800_005,
         "last": 2**63 - 1, "before 1970": -NOW, "first": -(2**63), "none": 0}  # fmt: skip


@pytest.fixture
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(http=True) as broker:
        yield broker
    for connection in list(links._open.values()):
        connection.close()
    links._open.clear()


def browsed(broker: EmbeddedBroker) -> list[dict[str, Any]]:
    source = SieveMQDataSource({"url": broker.url, "destination": "q"})
    reader = source.reader(schema_of(COLUMNS))
    return [row for part in reader.partitions() for batch in reader.read(part) for row in batch.to_pylist()]


def test_odd_messages_of_each_door_are_rows(broker: EmbeddedBroker) -> None:
    stream = Stream(broker)
    accepted = [name for name in POISON if name not in REFUSED]
    with Peer(broker) as peer:
        peer.enter()
        for number, fields in enumerate([*POISON.values(), (*FIELDS[:12], b"behind")], start=1):
            peer.say((Command.SEND, 1, number, "queue:q", fields))
        peer.ping(9)
    with AmqpSocket(broker.port) as amqp:
        amqp.sender("q")
        for number, time in enumerate(TIMES.values()):
            odd = {"u": ULong(2**64 - 1), "n": 1}
            amqp.send(message("amqp", odd, standard=Properties(creation_time=Timestamp(time))), number)
            amqp.outcome(number)
    with StompSocket(broker.port) as stomp:
        more = {"n;type=long": "1", "é": "é"}
        stomp.confirmed("SEND", b"stomp", destination="/queue/q", expires=str(253_402_300_800_005), **more)
    path = "/api/v1/namespaces/default/destinations/queue:q/messages"
    assert ask(broker, path, "POST", {"body": "http", "properties": {"n": 2**64}}).status == 422
    assert ask(broker, path, "POST", {"body": "http", "properties": {"n": [1]}}).status == 422
    half = b'{"body": "http", "type": "\\ud800"}'
    assert ask(broker, path, "POST", half, content_type="application/json").status == 400
    assert ask(broker, path, "POST", {"body": "http", "properties": {"n": 2**63 - 1}}).status == 201
    with ConnectionFactory(broker.url).create_context() as context:
        context.create_producer().set_property("n", "\udfff").send(Queue("q"), "sdk \ud800")
    tapped = stream.read(stream.begin or {}, stream.plan())
    texts = [row["body_text"] for row in tapped[len(accepted) :]]
    assert texts == ["behind", *["amqp"] * len(TIMES), "stomp", "http", None]
    assert sorted(map(str, browsed(broker))) == sorted(map(str, tapped))
    rows = dict(zip(accepted, tapped, strict=False))
    assert rows["timestamp beyond a long"]["timestamp"] == 2**63 - 1
    assert rows["timestamp below zero"]["timestamp"] == -(2**63)
    assert rows["expiration beyond a long"]["expiration"] == 2**63 - 1
    assert rows["reply to half a character"]["reply_to"] == "\ufffd"
    assert dict(rows["property of half a character"]["properties"])["a"]["s"] == "\ufffd"
    assert [row["timestamp"] for row in tapped if row["body_text"] == "amqp"] == [max(0, t) for t in TIMES.values()]


def test_what_a_store_may_still_hold(broker: EmbeddedBroker) -> None:
    """Messages that an earlier version accepted."""
    stream = Stream(broker)
    odd = [POISON[name] for name in sorted(REFUSED) if not name.startswith("kind")]

    def put(domain: Any) -> None:
        for fields in (*odd, (*FIELDS[:12], b"behind")):
            domain.namespace("").send("queue:q", Envelope(fields), NOW)

    broker.call(put)
    rows = stream.read(stream.begin or {}, stream.plan())
    assert [row["properties"] for row in rows] == [[]] * (len(odd) + 1)
    assert rows[-1]["body_text"] == "behind"
    assert sorted(map(str, browsed(broker))) == sorted(map(str, rows))


def test_any_time_is_archived_and_reported(spark: Any, tmp_path: Path) -> None:
    """Those that no calendar has are under the day of messages without a time, and stay when old days leave."""
    fields = [("ID:" + name, time, *FIELDS[2:9], None, None, 1, name.encode()) for name, time in TIMES.items()]
    rows = [{**row, "properties": {}} for row in batch_of(fields).to_pylist()]
    frame = spark.createDataFrame([tuple(row[name] for name in COLUMNS) for row in rows], ddl())
    path = str(tmp_path / "odd")
    assert archive(spark, frame, path).added == len(TIMES)
    days = {row.body_text: row.date for row in read_archive(spark, path).select("body_text", "date").collect()}
    assert days == dict.fromkeys(TIMES, str(UNDATED)) | {"ms": "2023-11-14", "before 1970": "1916-02-18"}
    write_html(tmp_path / "report.html", "odd", parts_of(backtest(read_archive(spark, path), ["n = 1"])))
    assert [day[-15:] for day in expire(spark, path, date(2024, 1, 1)).days] == ["date=2023-11-14"]
