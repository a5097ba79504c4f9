"""Consumers."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from sievemq_broker.server.http.api.answers.common import Answer

__all__ = ["Consumer", "Consumers"]


class Consumer(Answer, kw_only=True):
    """A consumer. `id` names it in the path that closes it."""

    id: str
    connection: str
    consumer: int
    namespace: str
    address: str
    subscription: str | None
    client_id: str | None
    user: str | None
    peer: str
    selector: str | None
    dialect: str | None
    credit: int
    in_flight: int
    delivered: int
    acknowledged: int
    waiting: Annotated[bool, Meta(description="It waits for a message and has none.")]
    congested: Annotated[
        bool, Meta(description="Its connection reads too slowly, or it holds messages and does nothing.")
    ]
    matched: Annotated[int, Meta(description="Messages that its selector matched.")]
    examined: Annotated[int, Meta(description="Messages that came by since this selector is in use here.")]
    match_ratio: Annotated[float | None, Meta(description="matched / examined; null before the first message.")]


class Consumers(Answer, kw_only=True):
    """A page of consumers."""

    consumers: list[Consumer]
    total: int
    next: str | None
