"""Connections."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from sievemq_broker.server.http.api.answers.common import Answer
from sievemq_broker.session.rights import Verb

__all__ = ["Connection", "Connections"]


class Connection(Answer, kw_only=True):
    """A connection of a client."""

    id: str
    peer: str
    namespace: str
    user: str | None
    client_id: str | None
    protocol: Annotated[str, Meta(description="What the client speaks: `sieve` is that of SieveMQ's own client.")]
    agent: Annotated[str, Meta(description="What the client says it is.")]
    sessions: int
    consumers: int
    unacknowledged: int
    congested: Annotated[bool, Meta(description="It reads too slowly; nothing is delivered to it for now.")]
    blocked_since: Annotated[int | None, Meta(description="Since when it waits to send; null if it does not.")]
    blocked_by: Annotated[str | None, Meta(description="At which limit that is.")]
    blocked_at: Annotated[str | None, Meta(description="The queue or topic of that limit; null if it has more.")]
    staged_bytes: Annotated[int, Meta(description="Held by its open transactions.")]
    temporary_destinations: int
    bytes_in: int
    bytes_out: int
    may: Annotated[list[Verb], Meta(description="What the caller may do with its namespace as a whole.")]


class Connections(Answer, kw_only=True):
    """A page of connections, oldest first."""

    connections: list[Connection]
    total: int
    next: str | None
