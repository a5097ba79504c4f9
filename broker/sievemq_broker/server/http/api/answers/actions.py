"""What an action has done."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from sievemq_broker.server.http.api.answers.common import Answer, Error

__all__ = ["Touched"]


class Touched(Answer, kw_only=True):
    """How many something was done to."""

    matched: Annotated[int, Meta(description="Chosen by selector, ids and limit.")]
    touched: Annotated[int, Meta(description="Handled; 0 in a dry run.")]
    dry_run: bool
    more: Annotated[bool, Meta(description="Others that would have been chosen are left.")]
    skipped: Annotated[int, Meta(description="Matched and could not be handled; they stay.")] = 0
    stopped: Annotated[
        Error | None, Meta(description="Why it ended early; what was handled before stays handled.")
    ] = None  # fmt: skip

    @classmethod
    def of(cls, matched: int, dry_run: bool) -> Touched:
        """All that was chosen was handled, or in a dry run nothing."""
        return cls(matched=matched, touched=0 if dry_run else matched, dry_run=dry_run, more=False)
