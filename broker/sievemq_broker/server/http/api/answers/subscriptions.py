"""Subscriptions."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from sievemq_broker.server.http.api.answers.common import Answer, Counters, May

__all__ = ["Subscription", "Subscriptions"]


class Subscription(Answer, kw_only=True):
    """A subscription to a topic."""

    namespace: str
    topic: str
    name: str | None
    client_id: str | None
    durable: bool
    shared: bool
    no_local: bool
    active: Annotated[bool, Meta(description="It has a consumer.")]
    selector: str | None
    dialect: str | None
    depth: int
    in_flight: int
    scheduled: int
    bytes: int
    consumers: int
    paused: bool
    counters: Counters
    may: May


class Subscriptions(Answer, kw_only=True):
    """A page of subscriptions."""

    subscriptions: list[Subscription]
    total: int
    next: str | None
