"""Queues and topics."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta

from sievemq_broker.server.http.api.answers.common import Answer, Counters, May

__all__ = ["Destination", "DestinationDetails", "Destinations"]


class Destination(Answer, kw_only=True):
    """A queue or topic. For a topic, messages are those of all its subscriptions together."""

    namespace: str
    address: str
    kind: Literal["queue", "topic", "temporary-queue", "temporary-topic"]
    name: str
    depth: int
    in_flight: int
    scheduled: int
    bytes: int
    consumers: int
    subscriptions: int
    paused: bool
    at_limit: Annotated[bool, Meta(description="A limit leaves no room for a message; of a topic: in a subscription.")]
    blocked_senders: Annotated[int, Meta(description="Sessions whose next message waits for room here.")]
    dead_letter_queue: Annotated[bool, Meta(description="Others' dead letters end here.")]
    in_rate: float
    out_rate: float
    counters: Counters
    may: May


class Destinations(Answer, kw_only=True):
    """A page of destinations."""

    destinations: list[Destination]
    total: Annotated[int, Meta(description="How many there are on all pages.")]
    next: str | None


class DestinationDetails(Destination, kw_only=True):
    """A destination with its rules."""

    oldest_ms: Annotated[
        int,
        Meta(description="How long what has waited longest has waited, since it was sent or due; 0 if nothing does."),
    ]
    policy: Annotated[dict[str, Any], Meta(description="The rules that the administrator set for it.")]
    dead_letters: Annotated[str | None, Meta(description="Where its dead letters go.")]
    owner: Annotated[str | None, Meta(description="The connection of a temporary destination.")]
    selectors: Annotated[int, Meta(description="Distinct selectors in use on it.")]
    evaluations: Annotated[int, Meta(description="Selectors that were asked about arriving messages.")]
    matches: Annotated[int, Meta(description="Those that said yes.")]
