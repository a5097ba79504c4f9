"""Metrics and spans of the broker at a collector."""

from __future__ import annotations

import asyncio
import http.cookiejar  # noqa: F401  of the exporter, which imports it late: a test run inside a test may forget it before
import itertools
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import BaseHTTPRequestHandler, HTTPServer
from queue import Queue
from types import SimpleNamespace

import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from prometheus_client.registry import Collector

from sievemq import ConnectionFactory
from sievemq_broker import EmbeddedBroker
from sievemq_broker.config import ConfigError, Settings, load
from sievemq_broker.domain.broker import Broker
from sievemq_broker.domain.policy import DomainSettings
from sievemq_broker.domain.settlement import Outcome
from sievemq_broker.domain.work import finish
from sievemq_broker.rules import parse_policies
from sievemq_broker.server import otlp
from sievemq_broker.server.server import Server
from sievemq_core.message.envelope import Envelope, pack_properties

from ..domain.support import Port

NOW = 1_700_000_000_000
SENDER = "4bf92f3577b34da6a3ce929d0e0e4736"
SAMPLED = f"00-{SENDER}-00f067aa0ba902b7-01"


@contextmanager
def collector(answers: list[int]) -> Iterator[tuple[str, Queue[tuple[str, bytes]]]]:
    """A collector that answers with these codes, then with 200: its URL, and what it has received."""
    received: Queue[tuple[str, bytes]] = Queue()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            received.put((self.path, self.rfile.read(int(self.headers["content-length"]))))
            self.send_response(answers.pop(0) if answers else 200)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Nothing."""

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", received
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_a_collector_gets_metrics_and_spans(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setenv("OTEL_METRIC_EXPORT_INTERVAL", "20")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_COMPRESSION", "none")
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "service.instance.id=mq-1")
    caplog.set_level("INFO", "sievemq_broker.otlp")
    collected, calls = otlp.collected, itertools.count()

    async def stumbling(server: Server) -> Collector:
        if next(calls) == 0:
            raise RuntimeError("a defect")
        return await collected(server)

    monkeypatch.setattr(otlp, "collected", stumbling)
    found = {"sievemq_messages_enqueued": Metric()}
    with collector([400]) as (url, received):

        def next_to(wanted: str) -> bytes:
            while True:
                path, body = received.get(timeout=60)
                if path == wanted:
                    return body

        with EmbeddedBroker(settings={"otlp": url + "/", "otlp_traces": True}) as broker:
            with ConnectionFactory(broker.url).create_context() as context:
                orders = context.create_queue("orders")
                context.create_producer().set_property("traceparent", SAMPLED).send(orders, "x")
                assert context.create_consumer(orders).receive_body(str, 60_000) == "x"
            while not any(point.as_int for point in found["sievemq_messages_enqueued"].sum.data_points):
                (of_broker,) = ExportMetricsServiceRequest.FromString(next_to("/v1/metrics")).resource_metrics
                found |= {metric.name: metric for metric in of_broker.scope_metrics[0].metrics}
            next_to("/v1/metrics")  # the first was refused, this comes after one that was not
        (spans,) = ExportTraceServiceRequest.FromString(next_to("/v1/traces")).resource_spans
    told = {pair.key: pair.value.string_value for pair in of_broker.resource.attributes}
    assert (told["service.name"], told["service.instance.id"]) == ("sievemq", "mq-1")
    enqueued = found["sievemq_messages_enqueued"].sum
    assert enqueued.is_monotonic
    assert {pair.key for pair in enqueued.data_points[0].attributes} == {"namespace", "kind"}
    assert found["sievemq_memory_bytes"].unit == "By"
    lag = found["sievemq_event_loop_lag_seconds"].histogram.data_points[0]
    assert lag.count == sum(lag.bucket_counts)
    assert len(lag.bucket_counts) == len(lag.explicit_bounds) + 1
    assert found["sievemq_build_info"].gauge.data_points[0].as_int == 1
    events = [vars(record)["event"] for record in caplog.records if record.name == "sievemq_broker.otlp"]
    assert events == ["otlp.not_sent", "otlp.failed", "otlp.works"]
    (span,) = spans.scope_spans[0].spans
    assert span.trace_id.hex() == SENDER
    assert [event.name for event in span.events] == ["accepted", "delivered"]
    attributes = {pair.key: pair.value.string_value for pair in span.attributes}
    assert attributes["messaging.sievemq.outcome"] == "acknowledged"


@pytest.mark.parametrize("given", [{"otlp": "localhost:4318"}, {"otlp": "ftp://localhost"}, {"otlp_traces": True}])
def test_what_no_collector_can_be_reached_with_is_refused(given: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match="collector"):
        load(given)


@pytest.mark.parametrize(("given", "seconds"), [(None, 60.0), ("500", 0.5), ("soon", 60.0), ("0", 60.0), ("-1", 60.0)])
def test_the_interval_of_exports(monkeypatch: pytest.MonkeyPatch, given: str | None, seconds: float) -> None:
    monkeypatch.delenv("OTEL_METRIC_EXPORT_INTERVAL", raising=False)
    if given is not None:
        monkeypatch.setenv("OTEL_METRIC_EXPORT_INTERVAL", given)
    assert otlp.interval() == seconds


def test_a_collector_that_does_not_answer_holds_nothing_up() -> None:
    held = threading.Event()

    async def stop() -> None:
        assert await otlp._on_thread(held.wait, 0.0) is None

    asyncio.run(stop())
    held.set()


class Traced:
    """A domain broker whose messages are traced."""

    def __init__(self, rules: dict[str, dict[str, object]] | None = None) -> None:
        self.now = NOW
        self.exporter = InMemorySpanExporter()
        self.tracing = otlp.Tracing(Settings(), lambda: self.now, self.exporter)
        settings = DomainSettings(policies=tuple(parse_policies(rules or {}).items()))
        self.broker = Broker(settings, observer=self.tracing)
        self.space = self.broker.namespace("")

    def send(self, context: str | None = SAMPLED, expiration: int = 0) -> None:
        properties, types = pack_properties({} if context is None else {"traceparent": context})
        fields = ("ID:1", NOW, 4, 2, expiration, 0, "order 7", None, None, properties, types, 0, None)
        self.space.send("queue:q", Envelope(fields), self.now)
        self.broker.finish(self.now)

    def spans(self) -> list[ReadableSpan]:
        asyncio.run(self.tracing.stop())
        return list(self.exporter.get_finished_spans())


def events_of(span: ReadableSpan) -> list[str]:
    return [event.name for event in span.events]


@pytest.mark.parametrize("context", [None, SAMPLED[:-1] + "0", "nonsense"])
def test_messages_of_senders_that_were_not_sampled_have_no_span(context: str | None) -> None:
    traced = Traced()
    traced.send(context)
    traced.space.delete("queue:q")
    assert [span.context.trace_id for span in traced.spans() if span.context] != [int(SENDER, 16)]


def test_a_message_that_fails_and_becomes_a_dead_letter() -> None:
    traced = Traced({"q": {"max_attempts": 2}})
    consumer = traced.space.open_consumer(Port(), 1, "queue:q", connection="c", credit=9, now=NOW)
    traced.send()
    for tag in (1, 2):
        traced.now += 1_000
        finish(partial(consumer.settle, [tag], Outcome.FAILED), traced.now)
        traced.broker.finish(traced.now)
    span = traced.spans()[0]
    assert span.name == "queue queue:q"
    assert events_of(span)[:4] == ["accepted", "delivered", "returned", "delivered"]
    assert span.status.description == "attempts"
    assert span.attributes is not None
    assert span.attributes["messaging.message.conversation_id"] == "order 7"
    assert span.end_time is not None
    assert span.start_time is not None
    assert span.end_time - span.start_time == 2_000_000_000


def test_an_expired_message_and_one_that_is_removed() -> None:
    traced = Traced()
    traced.send(expiration=NOW + 10)
    traced.send()
    traced.now += 20
    while (due := traced.broker.due(traced.now)) is not None and due <= traced.now:
        pass
    traced.space.delete("queue:q")
    outcomes = {span.attributes["messaging.sievemq.outcome"] for span in traced.spans() if span.attributes}
    assert outcomes == {"expired", "removed"}


def test_beyond_the_most_a_span_shows_the_outcome_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(otlp, "MOST_TRACED", 0)
    traced = Traced()
    traced.send()
    traced.now += 500
    traced.space.delete("queue:q")
    (span,) = traced.spans()
    assert events_of(span) == []
    assert span.start_time == NOW * 1_000_000


def test_properties_that_cannot_be_read_carry_no_trace() -> None:
    traced = Traced()
    fields = (None, 0, 4, 2, 0, 0, None, None, None, b"\xc1traceparent", None, 0, None)
    entry = SimpleNamespace(envelope=Envelope(fields), sequence=1)
    traced.tracing.accepted(traced.space.create("queue:q"), entry)  # type: ignore[arg-type]
    assert traced.spans() == []
