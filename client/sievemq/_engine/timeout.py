"""How long a receive may wait."""

from __future__ import annotations

__all__ = ["check_timeout"]


def check_timeout(timeout: object) -> None:
    """Refuse what is no number of milliseconds (PY-05, MCO-04): half a second is 500, and 0.5 would be next to nothing.

    Raises:
        ValueError: it is negative, or no int.
    """
    if not isinstance(timeout, int) or isinstance(timeout, bool) or timeout < 0:
        raise ValueError(f"a timeout is an int of milliseconds that is not negative, not {timeout!r:.60}")
