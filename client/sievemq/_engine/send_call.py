"""The forms in which a send can be called (D-27), as one: a destination or none, a message."""

from __future__ import annotations

from typing import Any

from sievemq._engine.producer import ABSENT, Absent
from sievemq.destinations import Destination

__all__ = ["destination_and_message"]


def destination_and_message(
    arguments: tuple[Any, ...], message: Any, destination: Destination | Absent | None
) -> tuple[Destination | Absent | None, Any]:
    """Sort the positional arguments of a send, ``(message)`` or ``(destination, message)``, and its keywords.

    Args:
        arguments: the positional ones.
        message: the keyword, or ABSENT.
        destination: the keyword, or ABSENT.

    Raises:
        TypeError: too many, too few, or one given twice, as Python would say it.
    """
    if len(arguments) > 2:
        raise TypeError(
            "send() takes a message, or a destination and a message, by position; delivery_mode, priority, "
            "time_to_live and completion_listener are given by name"
        )
    if len(arguments) == 2:
        if destination is not ABSENT or message is not ABSENT:
            raise TypeError("send() got its destination or message twice")
        return arguments[0], arguments[1]
    if arguments:
        if message is not ABSENT:
            if destination is not ABSENT:
                raise TypeError("send() got its destination or message twice")
            return arguments[0], message  # send(destination, message=…)
        return destination, arguments[0]
    if message is ABSENT:
        raise TypeError("send() needs a message")
    return destination, message
