"""Which request has created a tap or a durable subscription, so that it can be undone (D-42)."""

from __future__ import annotations

from typing import TypeAlias

RequestId: TypeAlias = tuple[str, int]
"""A request of a client: its connection, its number there. A client that resumes a lost connection keeps both."""


class Origin:
    """The request that has created something, until another one uses it: what somebody else relies on is not undone.
    Not kept over a restart of the broker.

    Args:
        request: that has created it; None for one that cannot be undone.
    """

    __slots__ = ("_request",)

    def __init__(self, request: RequestId | None = None) -> None:
        self._request = request

    def is_request(self, request: RequestId) -> bool:
        """True if this request has created it, and none but that one has used it."""
        return self._request == request

    def used_by(self, request: RequestId | None) -> None:
        """A request uses it; perhaps the one that has created it, repeated because its answer was lost."""
        if self._request != request:
            self._request = None
