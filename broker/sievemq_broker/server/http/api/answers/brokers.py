"""The broker."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from sievemq_broker.server.http.api.answers.common import Answer, Counters, Rates

__all__ = ["BlockedPlace", "BrokerInfo", "Holdings", "Memory"]


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


class BlockedPlace(Answer, kw_only=True):
    """A limit at which senders wait."""

    namespace: str
    address: Annotated[str | None, Meta(description="The queue or topic; null for a limit of more than one.")]
    text: Annotated[str, Meta(description="Which limit that is.")]
    senders: Annotated[int, Meta(description="Sessions that wait there.")]
    since: Annotated[int, Meta(description="Since when the first of them does.")]
    connections: Annotated[list[str], Meta(description="Ids of their connections, the first ten.")]


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
    blocked: Annotated[str | None, Meta(description="Why producers are blocked; null while they are not.")]
    blocked_connections: Annotated[int, Meta(description="Connections with sends that a limit blocks.")]
    blocked_since: Annotated[int | None, Meta(description="When the first of them was blocked; null if none is.")]
    blocked_at: Annotated[list[BlockedPlace], Meta(description="The limits that block them, at most twenty.")]
    memory: Annotated[Memory | None, Meta(description="null for users without the right to view everything.")]
    namespaces: int
    destinations: int
    connections: int
    consumers: int
    messages: Holdings
    totals: Counters
    rates: Rates
    user: Annotated[str | None, Meta(description="The calling user; null without users.")]
