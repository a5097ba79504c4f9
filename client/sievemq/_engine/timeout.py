"""How long a receive may wait."""

from __future__ import annotations

from datetime import timedelta

from sievemq_core.durations import milliseconds

__all__ = ["check_timeout"]


def check_timeout(timeout: object) -> int:
    """The timeout of a receive in milliseconds (PY-05, MCO-04).

    Raises:
        ValueError: it is negative, neither an int nor a timedelta, or ``timedelta(0)``: as the int 0 it would wait
            without a limit, and a program that computes it means the opposite.
    """
    if isinstance(timeout, timedelta) and not timeout:
        raise ValueError(
            "a timeout of timedelta(0) is ambiguous: receive_no_wait() does not wait, receive() waits for ever"
        )
    return milliseconds("a timeout", timeout)
