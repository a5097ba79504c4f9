"""Taps."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from sievemq_broker.server.http.api.answers.common import Answer

__all__ = ["Retention", "Tap", "Taps"]


class Retention(Answer, kw_only=True):
    """What a tap may hold, and how long."""

    messages: int
    bytes: int
    age: Annotated[int, Meta(description="ms that a copy is kept; 0: no limit.")]
    lease: Annotated[
        int,
        Meta(
            description="ms without a word from its reader, after which a drain gives back what it holds and a copy "
            "ends; 0: never."
        ),
    ]


class Tap(Answer, kw_only=True):
    """A tap: a named cursor on a destination, read in ranges until they are acknowledged."""

    namespace: str
    destination: str
    name: str
    id: Annotated[str, Meta(description="No other tap ever has it.")]
    mode: Literal["copy", "outcomes", "drain"]
    selector: str | None
    dialect: str | None
    owner: Annotated[str | None, Meta(description="The user that created it.")]
    first: Annotated[int, Meta(description="Sequence of the oldest message it holds.")]
    last: Annotated[int, Meta(description="Sequence of the latest there ever was.")]
    acknowledged: Annotated[int, Meta(description="The reader is done up to this sequence.")]
    lag: Annotated[int, Meta(description="Messages it holds that the reader is not done with.")]
    lag_ms: Annotated[int, Meta(description="How long the oldest of them has been there.")]
    bytes: int
    lost: Annotated[int, Meta(description="Up to this sequence messages went before the reader was done; 0: none.")]
    missed: Annotated[int, Meta(description="How many messages that was.")]
    retention: Retention
    heard: Annotated[int, Meta(description="When its reader was last heard of.")]
    lease_ends: Annotated[int, Meta(description="When its lease is over, unless it is heard of; 0: never.")]
    reader: Annotated[str | None, Meta(description="The connection that read last; null before the first.")]
    connected: Annotated[bool, Meta(description="That connection is still there.")]
    ended: Annotated[str | None, Meta(description="Why it takes nothing more; null while it does.")]
    yours: Annotated[bool, Meta(description="The caller may read, change and delete it.")]


class Taps(Answer, kw_only=True):
    """A page of taps."""

    taps: list[Tap]
    total: int
    next: str | None
