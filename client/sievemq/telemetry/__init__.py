"""Traces and metrics by OpenTelemetry, for applications that use SieveMQ. Needs the extra ``otel``.

    from sievemq.telemetry import instrument

    instrument()                       # before or after connections are made; uninstrument() ends it

or, without touching the program, ``opentelemetry-instrument python app.py``.

Both APIs are covered: sends, receives in all their forms (``receive``, ``receive_body``, iteration), listeners,
acknowledge, commit, rollback and recover. Names follow the messaging conventions of OpenTelemetry, which are still in
development: they may change with a minor version of SieveMQ.

- A send's context travels in the properties ``traceparent`` and ``tracestate`` (and ``baggage``): ordinary string
  properties that selectors can see. A message that is sent on with its properties read-only keeps the context it came
  with.
- The receive span *links* to that context. A listener's span begins a trace of its own, or continues the sender's with
  ``instrument(continue_trace=True)``. :func:`process` records the handling of a message from ``receive()``.
- A receive that finds nothing makes no span; what is only buffered has none either.

Without instrumentation the client runs none of this.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

try:
    from opentelemetry.trace import Span
except ImportError as error:  # pragma: no cover - names what to install
    raise ImportError("sievemq.telemetry needs OpenTelemetry: pip install 'sievemq[otel]'") from error

from sievemq.messages import Message
from sievemq.observers import observe, unobserve
from sievemq.telemetry.context import creation_context
from sievemq.telemetry.recorder import Recorder

if TYPE_CHECKING:
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.trace import TracerProvider

__all__ = ["creation_context", "instrument", "process", "uninstrument"]

_recorder: Recorder | None = None


def instrument(
    *,
    tracer_provider: TracerProvider | None = None,
    meter_provider: MeterProvider | None = None,
    continue_trace: bool = False,
) -> None:
    """Record what the clients of this process do from now on. Without effect while it is on already.

    Args:
        tracer_provider, meter_provider: where spans and measurements go; OpenTelemetry's global ones if not given.
        continue_trace: a listener's span is a child of the send's, in its trace, not only linked to it.
    """
    global _recorder
    if _recorder is None:
        _recorder = Recorder(tracer_provider, meter_provider, continue_trace)
        observe(_recorder)


def uninstrument() -> None:
    """Stop recording. Has no effect if nothing is recorded."""
    global _recorder
    if _recorder is not None:
        unobserve(_recorder)
        _recorder = None


@contextmanager
def process(message: Message) -> Iterator[Span]:
    """A span around the processing of a received message, linked to the span of its send.

        message = consumer.receive()
        with process(message):
            ...

    Args:
        message: a received message.

    Yields:
        The span, for attributes of your own. Records nothing unless :func:`instrument` was called.
    """
    recorder = _recorder if _recorder is not None else Recorder(None, None, False)
    with recorder.processing(message, message.get_jms_destination()) as span:
        yield span
