"""Namespaces."""

from __future__ import annotations

from sievemq_broker.server.http.api.answers.common import Answer

__all__ = ["Namespace", "Namespaces"]


class Namespace(Answer, kw_only=True):
    """A namespace."""

    name: str
    destinations: int
    connections: int
    depth: int
    in_flight: int
    scheduled: int


class Namespaces(Answer, kw_only=True):
    """A page of namespaces."""

    namespaces: list[Namespace]
    total: int
    next: str | None
