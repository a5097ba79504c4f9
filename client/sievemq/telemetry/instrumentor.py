"""The entry point that ``opentelemetry-instrument`` loads."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from opentelemetry.instrumentation.instrumentor import BaseInstrumentor  # type: ignore[attr-defined, unused-ignore]

from sievemq.telemetry import instrument, uninstrument


class SieveMQInstrumentor(BaseInstrumentor):  # type: ignore[misc, unused-ignore]  # Any to mypy
    """``SieveMQInstrumentor().instrument()`` is :func:`sievemq.telemetry.instrument` with the same arguments."""

    def instrumentation_dependencies(self) -> Collection[str]:
        """SieveMQ itself, which is always installed."""
        return ()

    def _instrument(self, **keywords: Any) -> None:
        instrument(
            tracer_provider=keywords.get("tracer_provider"),
            meter_provider=keywords.get("meter_provider"),
            continue_trace=bool(keywords.get("continue_trace", False)),
        )

    def _uninstrument(self, **_: Any) -> None:
        uninstrument()
