"""What code needs that waits, under the names that it has in both APIs: a lock, and a clock in seconds."""

from __future__ import annotations

import asyncio
from asyncio import Lock

__all__ = ["Lock", "now"]


def now() -> float:
    """The running loop's clock."""
    return asyncio.get_running_loop().time()
