"""Which SieveMQ this is."""

from __future__ import annotations

from functools import cache
from importlib import metadata


@cache
def version() -> str:
    """The version of the installed distribution; "0+unknown" when run from files that were never installed."""
    try:
        return metadata.version("sievemq")
    except metadata.PackageNotFoundError:
        return "0+unknown"


def broker_name() -> str:
    return f"SieveMQ/{version()}"
