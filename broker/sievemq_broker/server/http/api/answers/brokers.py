"""The broker."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from sievemq_broker.server.http.api.answers.common import Answer, Counters, Rates

__all__ = ["BrokerInfo", "Holdings", "Memory"]


class Holdings(Answer, kw_only=True):
    """Messages held, by what they wait for."""

    ready: int
    in_flight: int
    scheduled: int
    bytes: int


class Memory(Answer, kw_only=True):
    """What messages take, estimated, and where producers are made to wait (0: nowhere)."""

    bytes: int
    limit: int


class BrokerInfo(Answer, kw_only=True):
    """The broker and its totals."""

    version: str
    incarnation: str
    phase: str
    url: str
    http_url: str | None
    durable: bool
    now: int
    uptime_seconds: float
    clock_offset_ms: int
    blocked: Annotated[str | None, Meta(description="Why producers are held back; null while they are not.")]
    blocked_connections: Annotated[int, Meta(description="That wait to send, at whatever limit.")]
    blocked_since: Annotated[int | None, Meta(description="Since when the first of them does; null if none does.")]
    memory: Annotated[Memory | None, Meta(description="null for a caller who may not view everything.")]
    namespaces: int
    destinations: int
    connections: int
    consumers: int
    messages: Holdings
    totals: Counters
    rates: Rates
    user: Annotated[str | None, Meta(description="Who asks; null where nobody has to say.")]
