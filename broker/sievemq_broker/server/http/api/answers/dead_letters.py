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

    def add(self, first_failure: object, last_failure: object) -> None:
        """Count a message, which may carry when it failed first and last."""
        self.messages += 1
        if isinstance(first_failure, int) and isinstance(last_failure, int):
            self.first_failure = min(self.first_failure or int(first_failure), int(first_failure))
            self.last_failure = max(self.last_failure, int(last_failure))


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
