"""Traces by OpenTelemetry: the receiver's spans link to the send. Needs the extra `otel` and opentelemetry-sdk."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter, SpanExportResult

from sievemq import ConnectionFactory
from sievemq.telemetry import instrument, process


class Printer(SpanExporter):
    """Prints each span and what it links to; a program would export to a collector instead."""

    def __init__(self) -> None:
        self.names: dict[int, str] = {}

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        for span in spans:
            assert span.context is not None
            self.names[span.context.span_id] = span.name
            links = ", ".join(self.names[link.context.span_id] for link in span.links)
            print(f"{span.name} -> {links}" if links else span.name)
        return SpanExportResult.SUCCESS


def main() -> None:
    tracers = TracerProvider()
    tracers.add_span_processor(SimpleSpanProcessor(Printer()))
    instrument(tracer_provider=tracers)

    with ConnectionFactory().create_context() as context:
        queue = context.create_queue("example.traced")
        context.create_producer().send(queue, "hello")
        message = context.create_consumer(queue).receive(timedelta(minutes=1))
        assert message is not None
        with process(message):
            pass  # what the program does with it
    tracers.shutdown()


if __name__ == "__main__":
    main()
