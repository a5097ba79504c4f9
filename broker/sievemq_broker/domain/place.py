"""The name of a destination or subscription, for code that needs only the name: observers, dead letters, logs."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Place:
    """The name of the place where messages are.

    Attributes:
        namespace: its name.
        label: as in logs and errors, such as ``queue:orders`` or ``topic:prices/audit``.
        topic: label of the topic, for a subscription's queue; otherwise None.
        subscription: name of the subscription, None if it has none.
        client_id: of the subscription, None if it has none.
    """

    namespace: str
    label: str
    topic: str | None = None
    subscription: str | None = None
    client_id: str | None = None

    @property
    def destination(self) -> str:
        """Label of the queue, or of the topic."""
        return self.topic or self.label
