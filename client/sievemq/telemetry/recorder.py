"""Spans and measurements by the messaging conventions of OpenTelemetry (in development as of version 1.36)."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Final, TypeAlias

from opentelemetry import metrics, trace
from opentelemetry.context import Context
from opentelemetry.semconv._incubating.attributes import messaging_attributes as names
from opentelemetry.semconv._incubating.metrics import messaging_metrics as instruments
from opentelemetry.semconv.attributes.error_attributes import ERROR_TYPE
from opentelemetry.semconv.attributes.server_attributes import SERVER_ADDRESS, SERVER_PORT
from opentelemetry.trace import Link, Span, SpanKind, Status, StatusCode

from sievemq.destinations import Destination, TemporaryQueue, TemporaryTopic
from sievemq.messages import Message
from sievemq.observers import Client, Observer, Source
from sievemq.telemetry.context import carried, creation_context

if TYPE_CHECKING:
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.trace import TracerProvider

Attributes: TypeAlias = dict[str, "str | int | bool"]

_SYSTEM: Final = "sievemq"
_ANONYMOUS: Final = "(temporary)"
_BUCKETS: Final = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0)


class Recorder(Observer):
    """Makes spans and counts.

    Args:
        tracer_provider, meter_provider: None for the global ones.
        continue_trace: process spans are children of the send, not only linked to it.
    """

    def __init__(
        self, tracer_provider: TracerProvider | None, meter_provider: MeterProvider | None, continue_trace: bool
    ) -> None:
        self._tracer = trace.get_tracer("sievemq", tracer_provider=tracer_provider)
        meter = metrics.get_meter("sievemq", meter_provider=meter_provider)
        self._continue = continue_trace
        self._sent = meter.create_counter(
            instruments.MESSAGING_CLIENT_SENT_MESSAGES, "{message}", "Messages that were given to a send."
        )
        self._consumed = meter.create_counter(
            instruments.MESSAGING_CLIENT_CONSUMED_MESSAGES, "{message}", "Messages that the application was given."
        )
        self._duration = meter.create_histogram(
            instruments.MESSAGING_CLIENT_OPERATION_DURATION,
            "s",
            "How long operations of the client took.",
            explicit_bucket_boundaries_advisory=_BUCKETS,
        )
        self._processing = meter.create_histogram(
            instruments.MESSAGING_PROCESS_DURATION,
            "s",
            "How long listeners took.",
            explicit_bucket_boundaries_advisory=_BUCKETS,
        )

    @contextmanager
    def send(self, message: Message | None, destination: Destination | None, client: Client) -> Iterator[Span]:
        """Around a send."""
        start = time.perf_counter()
        attributes = _attributes("send", "send", destination, client)
        measured = _measured(attributes)
        # Its context becomes the message's creation context, which makes it a producer's span.
        with self._tracer.start_as_current_span(
            "send" if destination is None else f"send {_name(destination)}",
            kind=SpanKind.PRODUCER,
            attributes=attributes,
            record_exception=False,
            set_status_on_exception=False,
        ) as span:
            try:
                with nullcontext() if message is None else carried(message):
                    yield span
                if message is not None and span.is_recording():
                    span.set_attributes(_of_message(message))
            except Exception as error:
                _failed(span, error, measured)
                raise
            finally:
                self._duration.record(time.perf_counter() - start, measured)
                self._sent.add(1, measured)

    def received(self, message: Message, source: Source, seconds: float) -> None:
        """A receive has a message."""
        attributes = _attributes("receive", "receive", source.destination, source.client, source.subscription)
        span = self._tracer.start_span(
            f"receive {_name(source.destination)}",
            kind=SpanKind.CLIENT,
            attributes=attributes | _of_message(message),
            links=_links(creation_context(message)),
            start_time=time.time_ns() - int(seconds * 1e9),
        )
        span.end()
        measured = _measured(attributes)
        self._duration.record(seconds, measured)
        self._consumed.add(1, measured)

    def receive_failed(self, error: Exception, source: Source, seconds: float) -> None:
        """A receive has raised."""
        attributes = _attributes("receive", "receive", source.destination, source.client)
        span = self._tracer.start_span(
            f"receive {_name(source.destination)}",
            kind=SpanKind.CLIENT,
            attributes=attributes,
            start_time=time.time_ns() - int(seconds * 1e9),
        )
        measured = _measured(attributes)
        _failed(span, error, measured)
        span.end()
        self._duration.record(seconds, measured)

    def process(self, message: Message, source: Source) -> AbstractContextManager[Span]:
        return self.processing(message, source.destination, source.client, source.subscription, listener=True)

    @contextmanager
    def processing(
        self,
        message: Message,
        destination: Destination | None,
        client: Client | None = None,
        subscription: str | None = None,
        *,
        listener: bool = False,
    ) -> Iterator[Span]:
        """A span around the processing of a message.

        Args:
            destination: the consumer's, or the message's.
            client: the consumer's connection, if one is known.
            subscription: the subscription's name, if it has one.
            listener: a listener is called: the message is not counted yet.
        """
        attributes = _attributes("process", "process", destination, client, subscription)
        context = creation_context(message)
        start = time.perf_counter()
        measured = _measured(attributes)
        with self._tracer.start_as_current_span(
            f"process {_name(destination)}",
            context=context if self._continue else None,
            kind=SpanKind.CONSUMER,
            attributes=attributes | _of_message(message),
            links=_links(context),
            record_exception=False,
            set_status_on_exception=False,
        ) as span:
            try:
                yield span
            except Exception as error:
                _failed(span, error, measured)
                raise
            finally:
                self._processing.record(time.perf_counter() - start, measured)
                if listener:
                    self._consumed.add(1, measured)

    @contextmanager
    def settle(self, operation: str, client: Client) -> Iterator[None]:
        """Around acknowledge, commit, rollback, recover."""
        attributes = _attributes(operation, "settle", None, client)
        start = time.perf_counter()
        measured = _measured(attributes)
        with self._tracer.start_as_current_span(
            operation,
            kind=SpanKind.CLIENT,
            attributes=attributes,
            record_exception=False,
            set_status_on_exception=False,
        ) as span:
            try:
                yield
            except Exception as error:
                _failed(span, error, measured)
                raise
            finally:
                self._duration.record(time.perf_counter() - start, measured)


def _attributes(
    operation: str,
    kind: str,
    destination: Destination | None,
    client: Client | None = None,
    subscription: str | None = None,
) -> Attributes:
    attributes: Attributes = {
        names.MESSAGING_SYSTEM: _SYSTEM,
        names.MESSAGING_OPERATION_NAME: operation,
        names.MESSAGING_OPERATION_TYPE: kind,
    }
    if destination is not None:
        attributes[names.MESSAGING_DESTINATION_NAME] = _text(destination)
        if _temporary(destination):
            attributes[names.MESSAGING_DESTINATION_TEMPORARY] = True
            attributes[names.MESSAGING_DESTINATION_TEMPLATE] = _ANONYMOUS
    if client is not None:
        if client.client_id is not None:
            attributes[names.MESSAGING_CLIENT_ID] = client.client_id
        if client.peer is not None:
            attributes[SERVER_ADDRESS], attributes[SERVER_PORT] = client.peer
    if subscription is not None:
        attributes[names.MESSAGING_DESTINATION_SUBSCRIPTION_NAME] = subscription
    return attributes


def _of_message(message: Message) -> Attributes:
    attributes: Attributes = {}
    if (message_id := message.get_jms_message_id()) is not None:
        attributes[names.MESSAGING_MESSAGE_ID] = message_id
    if isinstance(correlation := message.get_jms_correlation_id(), str):
        attributes[names.MESSAGING_MESSAGE_CONVERSATION_ID] = correlation
    return attributes


def _measured(attributes: Attributes) -> Attributes:
    """The attributes of a measurement, without unbounded values such as names of temporary destinations."""
    kept: Attributes = {key: attributes[key] for key in _MEASURED if key in attributes}
    if names.MESSAGING_DESTINATION_TEMPLATE in attributes:
        kept[names.MESSAGING_DESTINATION_NAME] = _ANONYMOUS
    return kept


_MEASURED: Final[tuple[str, ...]] = (
    names.MESSAGING_SYSTEM,
    names.MESSAGING_OPERATION_NAME,
    names.MESSAGING_OPERATION_TYPE,
    names.MESSAGING_DESTINATION_NAME,
    names.MESSAGING_DESTINATION_SUBSCRIPTION_NAME,
    SERVER_ADDRESS,
    SERVER_PORT,
)


def _links(context: Context) -> list[Link]:
    sent = trace.get_current_span(context).get_span_context()
    return [Link(sent)] if sent.is_valid else []


def _failed(span: Span, error: Exception, measured: Attributes) -> None:
    measured[ERROR_TYPE] = type(error).__name__
    span.set_attribute(ERROR_TYPE, type(error).__name__)
    span.set_status(Status(StatusCode.ERROR, str(error)))
    span.record_exception(error)


def _temporary(destination: Destination) -> bool:
    return isinstance(destination, TemporaryQueue | TemporaryTopic)


def _text(destination: Destination) -> str:
    return str(destination)


def _name(destination: Destination | None) -> str:
    """For a span's name, of which there should not be too many."""
    if destination is None:
        return "(unknown)"
    return _ANONYMOUS if _temporary(destination) else _text(destination)
