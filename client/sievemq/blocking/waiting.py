"""What code needs that waits, under the names that it has in both APIs: a lock, and a clock in seconds."""

from __future__ import annotations

from threading import Lock
from time import monotonic as now

__all__ = ["Lock", "now"]
