"""Dead letters."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from sievemq_broker.server.http.api.answers.common import Answer, May

__all__ = ["DeadLetterGroup", "DeadLetterQueue", "DeadLetters"]


class DeadLetterGroup(Answer, kw_only=True):
    """Dead letters of one origin that died of one reason."""

    origin: str | None
    subscription: str | None
    reason: str | None
    messages: int
    first_failure: int
    last_failure: int


class DeadLetterQueue(Answer, kw_only=True):
    """A dead-letter queue."""

    address: str
    depth: int
    examined: Annotated[int, Meta(description="Messages that were looked at for the groups.")]
    groups: list[DeadLetterGroup]
    may: May


class DeadLetters(Answer, kw_only=True):
    """A page of dead-letter queues that hold something."""

    queues: list[DeadLetterQueue]
    total: int
    next: str | None
