"""The calling user."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from sievemq_broker.server.http.api.answers.common import Answer
from sievemq_broker.session.rights import Verb

__all__ = ["Right", "Session"]


class Right(Answer, kw_only=True):
    """Verbs on destinations that a pattern fits, in namespaces that a pattern fits."""

    may: list[Verb]
    destination: str
    namespace: str


class Session(Answer, kw_only=True):
    """The calling user, and what they may do."""

    user: Annotated[str | None, Meta(description="null without users.")]
    unlimited: Annotated[bool, Meta(description="They may do everything.")]
    rights: Annotated[list[Right], Meta(description="All their rights, or those in the namespace asked about.")]
    may: Annotated[list[Verb], Meta(description="What they may do with the destination asked about, or with all.")]
