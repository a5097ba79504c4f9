"""Spans and measurements of both APIs, over a real broker, by OpenTelemetry's own SDK."""

from __future__ import annotations

import asyncio
import importlib.util
import subprocess
import sys
import threading
from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest
from opentelemetry import trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode
from tests.behaviour.rules.messages.test_foreign import Foreign

import sievemq
import sievemq.aio
from sievemq import ConnectionFactory, InvalidDestinationException, JMSContext, Queue, Session, TextMessage, Topic
from sievemq.telemetry import creation_context, instrument, process, uninstrument
from sievemq.telemetry.context import carried
from sievemq.telemetry.instrumentor import SieveMQInstrumentor
from sievemq_broker import EmbeddedBroker
from sievemq_core.limits import MAX_PROPERTIES_BYTES
from sievemq_core.message.envelope import pack_properties
from sievemq_core.message.values import PropertyValue


@pytest.fixture
def url() -> Iterator[str]:
    with EmbeddedBroker() as broker:
        yield broker.url


class Recorded:
    """What was exported so far."""

    def __init__(self, continue_trace: bool = False) -> None:
        self._spans = InMemorySpanExporter()
        self.tracers = TracerProvider()
        self.tracers.add_span_processor(SimpleSpanProcessor(self._spans))
        self._reader = InMemoryMetricReader()
        self.meters = MeterProvider([self._reader])
        instrument(tracer_provider=self.tracers, meter_provider=self.meters, continue_trace=continue_trace)

    def spans(self) -> dict[str, ReadableSpan]:
        spans = self._spans.get_finished_spans()
        found = {span.name: span for span in spans}
        assert len(found) == len(spans), [span.name for span in spans]
        return found

    def metrics(self) -> dict[tuple[str, object], float]:
        """Count of a measurement by instrument and operation."""
        data = self._reader.get_metrics_data()
        assert data is not None
        return {
            (metric.name, (point.attributes or {}).get("messaging.operation.name")): getattr(point, "count", None)
            or getattr(point, "value", 0)
            for resource in data.resource_metrics
            for scope in resource.scope_metrics
            for metric in scope.metrics
            for point in metric.data.data_points
        }


@pytest.fixture
def recorded() -> Iterator[Recorded]:
    recorded = Recorded()
    yield recorded
    uninstrument()
    recorded.tracers.shutdown()
    recorded.meters.shutdown()


def linked(span: ReadableSpan) -> list[int]:
    return [link.context.span_id for link in span.links]


def span_id(span: ReadableSpan) -> int:
    assert span.context is not None
    return span.context.span_id


def test_a_receive_links_to_the_send(url: str, recorded: Recorded) -> None:
    message = TextMessage("x", properties={"region": "EU"})
    message.set_jms_correlation_id("c-1")
    with ConnectionFactory(url, client_id="shop").create_context() as context:
        context.create_producer().send(Queue("orders"), message)
        received = context.create_consumer(Queue("orders")).receive(60_000)
        assert received is not None
    spans = recorded.spans()
    sent, taken = spans["send queue:orders"], spans["receive queue:orders"]
    assert (sent.kind, taken.kind) == (SpanKind.PRODUCER, SpanKind.CLIENT)
    assert linked(taken) == [span_id(sent)]
    assert dict(sent.attributes or {}) == {
        "messaging.system": "sievemq",
        "messaging.operation.name": "send",
        "messaging.operation.type": "send",
        "messaging.destination.name": "queue:orders",
        "messaging.client.id": "shop",
        "server.address": "127.0.0.1",
        "server.port": urlsplit(url).port,
        "messaging.message.id": received.get_jms_message_id(),
        "messaging.message.conversation_id": "c-1",
    }
    assert (received.get_string_property("traceparent") or "").split("-")[2] == f"{span_id(sent):016x}"
    assert list(message.get_property_names()) == ["region"]  # the application's own is as it was
    counts = recorded.metrics()
    assert counts["messaging.client.sent.messages", "send"] == 1
    assert counts["messaging.client.consumed.messages", "receive"] == 1
    assert counts["messaging.client.operation.duration", "receive"] == 1


@pytest.mark.parametrize("buffered", [False, True])
@pytest.mark.parametrize(
    "form",
    ["body", "no_wait", "iteration", "classic", "of a class", "no_wait of a class", "iteration of a class"],
)
def test_every_form_of_receive(url: str, recorded: Recorded, form: str, buffered: bool) -> None:
    with ConnectionFactory(url).create_context() as context:
        consumer = None if buffered else context.create_consumer(Queue("q"))
        context.create_producer().set_property("n", 1).send(Queue("q"), "x")
        consumer = consumer or context.create_consumer(Queue("q"))
        match form:
            case "body":
                assert consumer.receive_body(str, 60_000) == "x"
            case "no_wait":
                assert consumer.receive_no_wait() is not None
                assert consumer.receive_no_wait() is None  # finds nothing: no span
            case "iteration":
                assert next(iter(consumer)).get_body(str) == "x"
            case "classic":
                assert consumer.receive(60_000) is not None
            case "of a class":
                assert consumer.receive(60_000, TextMessage) is not None
            case "no_wait of a class":
                assert consumer.receive_no_wait(TextMessage) is not None
            case "iteration of a class":
                assert next(consumer.messages(TextMessage)).get_text() == "x"
    names = [span.name for span in recorded._spans.get_finished_spans()]
    assert sorted(names) == ["receive queue:q", "send queue:q"]


@pytest.mark.parametrize("buffered", [False, True])
async def test_every_form_of_asyncio_receive(url: str, recorded: Recorded, buffered: bool) -> None:
    async with await sievemq.aio.ConnectionFactory(url).create_context() as context:
        producer = context.create_producer()
        if buffered:
            for _ in range(7):
                await producer.send(Queue("q"), "x")
        consumer = await context.create_consumer(Queue("q"))
        for form in range(7):
            if not buffered:
                await producer.send(Queue("q"), "x")
            match form:
                case 0:
                    assert await consumer.receive(60_000) is not None
                case 1:
                    assert await consumer.receive_body(str, 60_000) == "x"
                case 2:
                    assert await anext(consumer) is not None
                case 3:
                    assert await consumer.receive_no_wait() is not None
                case 4:
                    assert await consumer.receive(60_000, TextMessage) is not None
                case 5:
                    assert await consumer.receive_no_wait(TextMessage) is not None
                case 6:
                    assert await anext(consumer.messages(TextMessage)) is not None
    names = [span.name for span in recorded._spans.get_finished_spans()]
    assert (names.count("send queue:q"), names.count("receive queue:q"), len(names)) == (7, 7, 14)


async def test_the_asyncio_api(url: str, recorded: Recorded) -> None:
    async with await sievemq.aio.ConnectionFactory(url).create_context(Session.CLIENT_ACKNOWLEDGE) as context:
        await context.create_producer().send(Queue("q"), {"a": 1})
        consumer = await context.create_consumer(Queue("q"))
        async for message in consumer:
            await message.acknowledge()
            break
        assert await consumer.receive_no_wait() is None
    spans = recorded.spans()
    assert spans.keys() == {"send queue:q", "receive queue:q", "acknowledge"}
    assert linked(spans["receive queue:q"]) == [span_id(spans["send queue:q"])]
    assert (spans["acknowledge"].attributes or {})["messaging.operation.type"] == "settle"
    assert (spans["send queue:q"].attributes or {})["server.port"] == urlsplit(url).port


@pytest.mark.parametrize("continue_trace", [False, True])
async def test_listeners(url: str, continue_trace: bool) -> None:
    recorded = Recorded(continue_trace)
    try:
        inner: list[int] = []
        heard: list[int] = []
        both = asyncio.Event()
        loop = asyncio.get_running_loop()

        def note(_: sievemq.Message) -> None:
            inner.append(trace.get_current_span().get_span_context().span_id)
            loop.call_soon_threadsafe(both.set)

        async def listen(_: sievemq.Message) -> None:
            heard.append(trace.get_current_span().get_span_context().span_id)
            await both.wait()

        with ConnectionFactory(url).create_context() as context:
            context.create_consumer(Topic("t")).set_message_listener(note)
            async with await sievemq.aio.ConnectionFactory(url).create_context() as other:
                (await other.create_consumer(Topic("t"))).set_message_listener(listen)
                await other.create_producer().send(Topic("t"), "x")
                await both.wait()
        processed = [span for span in recorded._spans.get_finished_spans() if span.name == "process topic:t"]
        (sent,) = [span for span in recorded._spans.get_finished_spans() if span.name == "send topic:t"]
        assert sorted(map(span_id, processed)) == sorted(inner + heard)
        for span in processed:
            assert linked(span) == [span_id(sent)]
            assert span.kind is SpanKind.CONSUMER
            assert (span.parent is not None and span.parent.span_id == span_id(sent)) is continue_trace
        assert recorded.metrics()["messaging.process.duration", "process"] == len(processed)
    finally:
        uninstrument()
        recorded.tracers.shutdown()
        recorded.meters.shutdown()


async def test_what_was_begun_inside_a_span_is_not_part_of_it_for_ever(url: str, recorded: Recorded) -> None:
    """A listener, a completion listener and an exception listener, all of asyncio."""
    tracer = recorded.tracers.get_tracer("test")
    called: dict[str, object] = {}
    ready = {name: asyncio.Event() for name in ("message", "completion", "exception")}

    def note(name: str) -> None:
        called[name] = trace.get_current_span().get_span_context().trace_id
        ready[name].set()

    class Completed(sievemq.aio.CompletionListener):
        def on_completion(self, message: sievemq.Message) -> None:
            note("completion")

        def on_exception(self, message: sievemq.Message, exception: Exception) -> None: ...

    with tracer.start_as_current_span("startup") as startup:
        context = await sievemq.aio.ConnectionFactory(url).create_context()
        context.set_exception_listener(lambda _: note("exception"))
        (await context.create_consumer(Queue("a"))).set_message_listener(lambda _: note("message"))
        await context.create_producer().set_async(Completed()).send(Queue("b"), "x")
        context._connection._engine.outbox.report(sievemq.JMSException("x"))
    async with context:
        await context.create_producer().send(Queue("a"), "x")
        for event in ready.values():
            await event.wait()
    (processed,) = [span for span in recorded._spans.get_finished_spans() if span.name == "process queue:a"]
    assert processed.parent is None
    assert startup.get_span_context().trace_id not in called.values()


@pytest.mark.parametrize(
    "properties",
    [{f"p{number}": number for number in range(1_000)}, {f"p{number}": "x" * 32_000 for number in range(8)}],
)
def test_a_message_without_room_for_its_context_is_sent_without(
    url: str, recorded: Recorded, properties: dict[str, PropertyValue]
) -> None:
    if len(properties) < 1_000:
        properties["rest"] = "x" * (MAX_PROPERTIES_BYTES - len(pack_properties(properties)[0] or b"") - 10)
    message = TextMessage("x", properties=properties)
    with (
        ConnectionFactory(url).create_context() as context,
        recorded.tracers.get_tracer("test").start_as_current_span("s"),
    ):
        context.create_producer().send(Queue("q"), message)
        received = context.create_consumer(Queue("q")).receive(60_000)
        assert received is not None
        assert not received.property_exists("traceparent")
        small = TextMessage("x", properties={f"p{number}": number for number in range(998)})
        context.create_producer().send(Queue("q"), small)
        received = context.create_consumer(Queue("q")).receive(60_000)
        assert received is not None
        assert received.property_exists("traceparent")
    assert set(message.get_property_names()) == properties.keys()


def test_a_listener_that_raises(url: str, recorded: Recorded, caplog: pytest.LogCaptureFixture) -> None:
    redelivered = threading.Event()

    def listener(message: sievemq.Message) -> None:
        if not message.get_jms_redelivered():
            raise LookupError("no such order")
        redelivered.set()

    with ConnectionFactory(url).create_context() as context:
        consumer = context.create_consumer(Queue("q"))
        consumer.set_message_listener(listener)
        context.create_producer().send(Queue("q"), "x")
        assert redelivered.wait(60)
    failed = [span for span in recorded._spans.get_finished_spans() if span.status.status_code is StatusCode.ERROR]
    (span,) = failed
    assert span.name == "process queue:q"
    assert (span.attributes or {})["error.type"] == "LookupError"
    assert [event.name for event in span.events] == ["exception"]


@pytest.mark.parametrize("fails", [False, True])
def test_a_function_as_a_listener(url: str, recorded: Recorded, fails: bool) -> None:
    """Its reply is a child of its span, and so is what it raises, though that goes no further than to the broker."""
    app = sievemq.Listeners(url)

    @app.listener("queue:orders", reply_to="queue:receipts")
    def take(order: str, message: sievemq.Message) -> str:
        if fails and not message.get_jms_redelivered():
            raise LookupError(order)
        return f"took {order}"

    app.start()
    try:
        with ConnectionFactory(url).create_context() as context:
            context.create_producer().send(Queue("orders"), "o-1")
            assert context.create_consumer(Queue("receipts")).receive_body(str, 60_000) == "took o-1"
    finally:
        app.stop()
    spans = recorded._spans.get_finished_spans()
    (sent,) = (span for span in spans if span.name == "send queue:orders")
    (reply,) = (span for span in spans if span.name == "send queue:receipts")
    processed = [span for span in spans if span.name == "process queue:orders"]
    assert [linked(span) for span in processed] == [[span_id(sent)]] * (1 + fails)
    assert reply.parent is not None
    assert reply.parent.span_id == span_id(processed[-1])
    errors = [(span.attributes or {}).get("error.type") for span in processed]
    assert errors == ["LookupError", None][not fails :]


def test_a_message_that_two_threads_send_is_not_damaged(url: str, recorded: Recorded) -> None:
    """The other one has just sent it, and taken the context away that both found missing."""
    message = TextMessage("x", properties={"mine": 1})
    with trace.use_span(recorded.tracers.get_tracer("test").start_span("outer")), carried(message):
        assert message.property_exists("traceparent")
        del message._properties["traceparent"]  # type: ignore[union-attr]
    assert list(message.get_property_names()) == ["mine"]


def test_another_librarys_message_carries_the_context_too(url: str, recorded: Recorded) -> None:
    """It is sent as a message of ours, through the recorder again."""
    inner = TextMessage("x")
    with ConnectionFactory(url).create_connection() as connection, connection.create_session() as session:
        session.create_producer(Queue("orders")).send(Foreign(inner))  # type: ignore[call-overload]
    sent = recorded.spans()["send queue:orders"]
    assert (sent.attributes or {})["messaging.message.id"] == inner.get_jms_message_id()
    with ConnectionFactory(url).create_context() as context:
        message = context.create_consumer(Queue("orders")).receive(60_000)
        assert message is not None
        assert (message.get_string_property("traceparent") or "").split("-")[2] == f"{span_id(sent):016x}"


def test_a_refused_send(url: str, recorded: Recorded) -> None:
    with ConnectionFactory(url).create_connection() as connection, connection.create_session() as session:
        producer = session.create_producer(None)
        with pytest.raises(InvalidDestinationException):
            producer.send(None, TextMessage("x"))
    (span,) = recorded.spans().values()
    assert span.status.status_code is StatusCode.ERROR
    assert (span.attributes or {})["error.type"] == "InvalidDestinationException"
    assert recorded.metrics()["messaging.client.sent.messages", "send"] == 1


def test_forwarded_messages_keep_their_context(url: str, recorded: Recorded) -> None:
    """Its properties are read-only: nothing is put into them, and nothing fails."""
    with ConnectionFactory(url).create_context() as context:
        context.create_producer().send(Queue("a"), "x")
        message = context.create_consumer(Queue("a")).receive(60_000)
        assert message is not None
        before = message.get_string_property("traceparent")
        context.create_producer().send(Queue("b"), message)
        again = context.create_consumer(Queue("b")).receive(60_000)
        assert again is not None
        assert again.get_string_property("traceparent") == before
    assert linked(recorded.spans()["receive queue:b"]) == [span_id(recorded.spans()["send queue:a"])]


def test_a_transaction_and_processing(url: str, recorded: Recorded) -> None:
    with ConnectionFactory(url).create_context(JMSContext.SESSION_TRANSACTED) as context:
        context.create_producer().send(Queue("q"), "x")
        context.commit()
        message = context.create_consumer(Queue("q")).receive(60_000)
        assert message is not None
        with process(message) as span:
            span.set_attribute("app.order", 5)
            assert trace.get_current_span(creation_context(message)).get_span_context().is_valid
        context.rollback()
    spans = recorded.spans()
    assert spans.keys() == {"send queue:q", "commit", "receive queue:q", "process queue:q", "rollback"}
    assert linked(spans["process queue:q"]) == [span_id(spans["send queue:q"])]


def test_names_without_end_are_not_measured(url: str, recorded: Recorded) -> None:
    with ConnectionFactory(url).create_context() as context:
        queue = context.create_temporary_queue()
        context.create_producer().send(queue, "x")
        assert context.create_consumer(queue).receive(60_000) is not None
    spans = recorded.spans()
    assert spans.keys() == {"send (temporary)", "receive (temporary)"}
    assert (spans["send (temporary)"].attributes or {})["messaging.destination.name"] == str(queue)
    data = recorded._reader.get_metrics_data()
    assert data is not None
    assert str(queue) not in data.to_json()


def test_undone(url: str) -> None:
    SieveMQInstrumentor().instrument(tracer_provider=TracerProvider(), meter_provider=MeterProvider())
    SieveMQInstrumentor().uninstrument()
    with ConnectionFactory(url).create_context() as context:
        context.create_producer().send(Queue("q"), "x")
        message = context.create_consumer(Queue("q")).receive(60_000)
        assert message is not None
        assert list(message.get_property_names()) == ["JMSXDeliveryCount"]
        with process(message):  # records nothing, and does no harm
            pass


def test_the_client_does_not_load_it() -> None:
    code = "import sys, sievemq, sievemq.aio; sievemq.ConnectionFactory; print('opentelemetry' in sys.modules)"
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "False"


def test_without_the_extra() -> None:
    code = (
        "import sys; sys.modules['opentelemetry'] = None\n"
        "try:\n    import sievemq.telemetry\nexcept ImportError as error:\n    print(error)"
    )
    told = subprocess.check_output([sys.executable, "-c", code], text=True)
    assert "pip install 'sievemq[otel]'" in told
    assert importlib.util.find_spec("opentelemetry") is not None
