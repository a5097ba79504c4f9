"""The pipeline's connections to a broker."""

from __future__ import annotations

from typing import Any

from sievemq import Connection, ConnectionFactory

__all__ = ["connect"]


def connect(url: str, user: str | None, password: str | None, dialect: str | None = None, **options: Any) -> Connection:
    """A connection that says whose it is; `options` as those of the URL."""
    chosen = options if dialect is None else {"selector_dialect": dialect, **options}
    return ConnectionFactory(url, application="sievemq-spark", **chosen).create_connection(user, password)
