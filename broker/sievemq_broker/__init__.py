"""The broker of SieveMQ: a domain without I/O, sessions that speak the wire protocol, and a server around them."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sievemq_broker.embedded import EmbeddedBroker

__all__ = ["EmbeddedBroker"]


def __getattr__(name: str) -> object:
    # Lazily: the `sievemq` command imports this package to run `config check` and has no use for a server then.
    if name == "EmbeddedBroker":
        # By name, so that the layers below the server do not seem to import it through their own package.
        return importlib.import_module("sievemq_broker.embedded").EmbeddedBroker
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
