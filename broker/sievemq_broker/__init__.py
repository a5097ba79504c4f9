"""The broker of SieveMQ: a domain without I/O, sessions that speak the wire protocol, and a server around them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sievemq_broker.embedded import EmbeddedBroker

__all__ = ["EmbeddedBroker"]


def __getattr__(name: str) -> object:
    # Lazily: the `sievemq` command imports this package to run `config check` and has no use for a server then.
    if name == "EmbeddedBroker":
        from sievemq_broker.embedded import EmbeddedBroker

        return EmbeddedBroker
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
