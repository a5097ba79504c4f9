"""Where the examples' broker is: the one that SIEVEMQ_URL names, or an embedded one."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from sievemq_broker import EmbeddedBroker


@contextmanager
def broker_url() -> Iterator[str]:
    """The URL to give to a ConnectionFactory; the embedded broker lives as long as the `with` block."""
    if url := os.environ.get("SIEVEMQ_URL"):
        yield url
    else:
        with EmbeddedBroker() as broker:
            yield broker.url
