"""What answers have in common."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from sievemq_broker.session.rights import Verb

__all__ = ["Answer", "Counters", "Error", "May", "Rates"]


class Answer(msgspec.Struct, kw_only=True):
    """Base of all: every field is always there."""


May = Annotated[list[Verb], Meta(description="What the caller may do with it.")]


class Error(Answer, kw_only=True):
    """An error."""

    error: Annotated[str, Meta(description="Its name, such as INVALID_SELECTOR.")]
    text: Annotated[str, Meta(description="What is wrong, where, and what to do.")]
    details: dict[str, Any]


class Rates(Answer, kw_only=True):
    """Messages per second, lately."""

    in_rate: float
    out_rate: float


class Counters(Answer, kw_only=True):
    """What has happened since the destination was made."""

    enqueued: int
    delivered: int
    acknowledged: int
    redelivered: int
    expired: int
    dead_lettered: int
    removed: int
    published: Annotated[int, Meta(description="Messages sent to a topic; 0 for queues.")]
