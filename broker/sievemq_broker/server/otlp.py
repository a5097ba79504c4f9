"""The broker's metrics, and spans of messages that carry a trace, to an OpenTelemetry collector: the extra ``otlp``.

Metrics are those of `/metrics`, read by the same collector: nothing is defined or counted twice. A span is made for a
message whose sender was sampled (its property ``traceparent``), from its send to its outcome on a queue. Everything is
sent by threads of the SDK; if the collector is away, spans are dropped, and metrics are those of a later time.

Headers, certificates, time-outs and intervals are those of OpenTelemetry's own variables, such as
``OTEL_EXPORTER_OTLP_HEADERS`` and ``OTEL_METRIC_EXPORT_INTERVAL``.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import socket
import threading
from collections.abc import Callable, Iterable
from typing import Final, TypeVar

from opentelemetry import propagate
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.metrics import export as otel
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import Span, SpanKind, StatusCode
from prometheus_client.core import Metric

from sievemq_broker import logs
from sievemq_broker.config import Settings, shown
from sievemq_broker.domain.entry import Entry
from sievemq_broker.domain.place import Place
from sievemq_broker.domain.ports import Observed, Taker
from sievemq_broker.server.http.metrics import collected
from sievemq_broker.server.server import Server
from sievemq_core.errors import ProtocolError
from sievemq_core.message.envelope import CORRELATION_ID, MESSAGE_ID, PROPERTIES, TIMESTAMP, Envelope
from sievemq_core.version import VERSION

#: Messages with a trace whose deliveries are noted, and events of one; of further ones a span shows the outcome alone.
MOST_TRACED: Final = 10_000
_MOST_EVENTS: Final = 100

#: Seconds that the last spans may take at the end.
LAST_SPANS_SECONDS: Final = 2.0

#: Seconds between two exports, unless OTEL_METRIC_EXPORT_INTERVAL is set, in milliseconds.
INTERVAL_SECONDS: Final = 60.0

_CUMULATIVE: Final = otel.AggregationTemporality.CUMULATIVE
_SCOPE: Final = InstrumentationScope("sievemq_broker", VERSION)

T = TypeVar("T")

log = logs.get("otlp")


def resource(settings: Settings) -> Resource:
    """The broker as a resource; OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES go before."""
    instance = f"{socket.gethostname()}:{settings.port}"
    own = {"service.name": "sievemq", "service.version": VERSION, "service.instance.id": instance}
    return Resource.create().merge(Resource(own)).merge(OTELResourceDetector().detect())


def interval() -> float:
    """Seconds between two exports. What is set and is no positive number is ignored."""
    with contextlib.suppress(KeyError, ValueError):
        return max(0, int(os.environ["OTEL_METRIC_EXPORT_INTERVAL"])) / 1000 or INTERVAL_SECONDS
    return INTERVAL_SECONDS


async def _on_thread(call: Callable[[], T], seconds: float | None = None) -> T | None:
    """The result of a call on a thread that does not hold up the end of the process; None if it takes longer."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[T] = loop.create_future()

    def finish(result: T) -> None:
        if not done.done():
            done.set_result(result)

    def work() -> None:
        result = call()
        with contextlib.suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(finish, result)

    threading.Thread(target=work, name="otlp", daemon=True).start()
    with contextlib.suppress(TimeoutError):
        return await asyncio.wait_for(done, seconds)
    return None


class MetricExport:
    """Sends all metrics every so often.

    Args:
        server: the broker.
        exporter: where to; another one for tests.
    """

    def __init__(self, server: Server, exporter: otel.MetricExporter | None = None) -> None:
        self._server = server
        self._resource = resource(server.settings)
        self._exporter = exporter or OTLPMetricExporter(endpoint=f"{server.settings.otlp}/v1/metrics")
        self._task: asyncio.Task[None] | None = None
        self._works = True

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
        self._exporter.shutdown()

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(interval())
            try:
                await self.send()
            except Exception as error:  # a defect of the broker's: the next export may work
                log.fault("otlp.not_sent", error)

    async def send(self) -> None:
        """Send the metrics of this moment."""
        server = self._server
        families = list((await collected(server)).collect())
        now, start = server.clock.now() * 1_000_000, int(server.started_at * 1e9)
        works = bool(await _on_thread(lambda: self._send(families, start, now)))
        if works is not self._works:
            self._works = works
            if works:
                log.info("otlp.works", endpoint=shown(server.settings, "otlp"))
            else:
                log.warning(
                    "otlp.failed",
                    endpoint=shown(server.settings, "otlp"),
                    note="the next metrics are sent all the same",
                )

    def _send(self, families: list[Metric], start: int, now: int) -> bool:
        scoped = otel.ScopeMetrics(_SCOPE, [converted(family, start, now) for family in families], "")
        data = otel.MetricsData([otel.ResourceMetrics(self._resource, [scoped], "")])
        try:
            return self._exporter.export(data) is otel.MetricExportResult.SUCCESS
        except Exception as error:  # the SDK's, of many types
            log.debug("otlp.error", error=str(error))
            return False


def converted(family: Metric, start: int, now: int) -> otel.Metric:
    """A metric in OpenTelemetry's form. A receiver that writes to Prometheus gets the names of `/metrics` again.

    Args:
        start: since when it counts, ns since 1970.
        now: ns since 1970.
    """
    samples = family.samples
    data: otel.Sum | otel.Gauge | otel.Histogram
    if family.type == "histogram":
        data = otel.Histogram([_distribution(family, start, now)], _CUMULATIVE)
    else:
        points = [otel.NumberDataPoint(sample.labels, start, now, sample.value) for sample in samples]
        data = otel.Sum(points, _CUMULATIVE, True) if family.type == "counter" else otel.Gauge(points)
    name = f"{family.name}_info" if family.type == "info" else family.name
    unit = "s" if name.endswith("_seconds") else "By" if name.endswith("_bytes") else ""
    return otel.Metric(name, family.documentation, unit, data)


def _distribution(family: Metric, start: int, now: int) -> otel.HistogramDataPoint:
    """Of a histogram without labels; Prometheus adds its buckets up, OpenTelemetry does not."""
    buckets = [sample for sample in family.samples if sample.name.endswith("_bucket")]
    totals = [int(sample.value) for sample in buckets]
    counts = [total - before for total, before in zip(totals, (0, *totals), strict=False)]
    bounds = [float(sample.labels["le"]) for sample in buckets[:-1]]
    total = next(sample.value for sample in family.samples if sample.name.endswith("_sum"))
    return otel.HistogramDataPoint({}, start, now, totals[-1], total, counts, bounds, math.nan, math.nan)


class Tracing:
    """Makes a span of each traced message on a queue: an observer of the domain.

    Args:
        settings: of the broker.
        clock: its time, ms since 1970.
        exporter: where spans go; another one for tests.
    """

    def __init__(self, settings: Settings, clock: Callable[[], int], exporter: SpanExporter | None = None) -> None:
        self._clock = clock
        self._provider = TracerProvider(resource=resource(settings), shutdown_on_exit=False)
        out = exporter or OTLPSpanExporter(endpoint=f"{settings.otlp}/v1/traces")
        self._provider.add_span_processor(BatchSpanProcessor(out))
        self._tracer = self._provider.get_tracer("sievemq_broker", VERSION)
        #: What happened to traced messages, by queue and sequence: (event, ms since 1970).
        self._events: dict[tuple[Place, int], list[tuple[str, int]]] = {}

    async def stop(self) -> None:
        """Send the last spans."""
        await _on_thread(self._provider.shutdown, LAST_SPANS_SECONDS)

    def accepted(self, queue: Observed, entry: Entry) -> None:
        if len(self._events) < MOST_TRACED and _carried(entry.envelope) is not None:
            self._events[queue.place, entry.sequence] = [("accepted", self._clock())]

    def handed(self, queue: Observed, entry: Entry, consumer: Taker) -> None:
        self._note(queue, entry, "delivered")

    def released(self, queue: Observed, entry: Entry) -> None:
        self._note(queue, entry, "released")

    def returned(self, queue: Observed, entry: Entry) -> None:
        self._note(queue, entry, "returned")

    def failed(self, queue: Observed, entry: Entry) -> None:
        self._note(queue, entry, "failed")

    def acknowledged(self, queue: Observed, entry: Entry, consumer: Taker | None) -> None:
        self._end(queue, entry, "acknowledged")

    def expired(self, queue: Observed, entry: Entry) -> None:
        self._end(queue, entry, "expired", "the message expired")

    def dead_lettered(self, queue: Observed, entry: Entry, reason: str) -> None:
        self._end(queue, entry, "dead-lettered", reason)

    def removed(self, queue: Observed, entry: Entry, reason: str) -> None:
        self._end(queue, entry, "removed", reason)

    def refused(self, queue: Observed, envelope: Envelope) -> None:
        """Dropped at a limit: it never was on the queue."""

    def unreadable(self, queue: Observed, entry: Entry, error: Exception) -> None:
        """It stays on the queue."""

    def _note(self, queue: Observed, entry: Entry, event: str) -> None:
        events = self._events.get((queue.place, entry.sequence))
        if events is not None and len(events) < _MOST_EVENTS:
            events.append((event, self._clock()))

    def _end(self, queue: Observed, entry: Entry, outcome: str, problem: str = "") -> None:
        """Make the span, if the sender was sampled."""
        place, envelope = queue.place, entry.envelope
        events = self._events.pop((place, entry.sequence), None)
        context = _carried(envelope)
        if context is None:
            return
        now, fields = self._clock(), envelope.fields
        began = events[0][1] if events else min(now, fields[TIMESTAMP] or now)
        span = self._tracer.start_span(
            f"queue {place.destination}",
            context,
            SpanKind.INTERNAL,
            _attributes(place, fields[MESSAGE_ID], fields[CORRELATION_ID]),
            start_time=began * 1_000_000,
        )
        _finish(span, events or (), outcome, problem, now)


def _finish(span: Span, events: Iterable[tuple[str, int]], outcome: str, problem: str, now: int) -> None:
    for event, time in events:
        span.add_event(event, timestamp=time * 1_000_000)
    span.set_attribute("messaging.sievemq.outcome", outcome)
    if problem:
        span.set_status(StatusCode.ERROR, problem)
    span.end(now * 1_000_000)


def _attributes(place: Place, message_id: str | None, correlation: str | bytes | None) -> dict[str, str]:
    attributes = {
        "messaging.system": "sievemq",
        "messaging.destination.name": place.destination,
        "messaging.sievemq.namespace": place.namespace,
    }
    if message_id is not None:
        attributes["messaging.message.id"] = message_id
    if isinstance(correlation, str):
        attributes["messaging.message.conversation_id"] = correlation
    return attributes


def _carried(envelope: Envelope) -> Context | None:
    """The context that the message carries; None if there is none, as in most messages."""
    packed = envelope.fields[PROPERTIES]
    if packed is None or b"traceparent" not in packed:
        return None
    try:
        carrier = {name: value for name, value in envelope.properties.items() if isinstance(value, str)}
    except ProtocolError:
        return None
    return propagate.extract(carrier, Context())
