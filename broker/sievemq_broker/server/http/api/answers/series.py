"""Samples over time."""

from __future__ import annotations

from sievemq_broker.server.http.api.answers.common import Answer

__all__ = ["Series"]


class Series(Answer, kw_only=True):
    """Samples at equal steps, oldest first; all lists are as long as `times`."""

    times: list[int]
    depth: list[int]
    in_flight: list[int]
    in_rate: list[float]
    out_rate: list[float]
    step_seconds: float
