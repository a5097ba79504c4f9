"""What holds between this client and the present broker: options, what WELCOME carried, the broker's clock."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any, Final

from sievemq._engine.options import EngineOptions
from sievemq._engine.selector import verified
from sievemq.exceptions import MessageFormatException, ResourceAllocationException
from sievemq_core.limits import MAX_BODY_BYTES
from sievemq_core.wire.codec import CommandTuple

__all__ = ["Terms"]

#: Unconfirmed sends of a session where the broker's WELCOME carries nothing.
_WINDOW_MESSAGES: Final = 1_000
_WINDOW_BYTES: Final = 8 * 1024 * 1024


class Terms:
    """Those of one connection.

    Args:
        options: the options of the connection.
        clock: returns the time in milliseconds since 1970-01-01 UTC.

    Attributes:
        client_id: the JMS client id, administered or set.
        peer: host and port that it was last connected to, as in the URL; None where the front does not name them.
        broker, incarnation, connection_id, features, limits: what WELCOME carried.
        id_prefix: message ids begin with it.
        window_messages, window_bytes: how much of a session's sends may be unconfirmed.
        max_body: bytes that a body may have.
        clock_offset: milliseconds to add to the clock: the broker's clock was moved (test clocks only).
        skipped: seconds that the broker's clock was moved forward by, in all: they count as time that a receive has
            waited. Moving it back gives nothing more time.
        next_message: gives the next message its number.
    """

    __slots__ = (
        "broker",
        "client_id",
        "clock",
        "clock_offset",
        "connection_id",
        "features",
        "id_prefix",
        "incarnation",
        "limits",
        "max_body",
        "next_message",
        "options",
        "peer",
        "skipped",
        "window_bytes",
        "window_messages",
    )

    def __init__(self, options: EngineOptions, clock: Callable[[], int]) -> None:
        self.options = options
        self.clock = clock
        self.client_id: str | None = options.client_id
        self.peer: tuple[str, int] | None = None
        self.broker = self.incarnation = self.connection_id = ""
        self.features: dict[str, Any] = {}
        self.limits: dict[str, Any] = {}
        self.id_prefix = "ID:"
        self.window_messages, self.window_bytes = _WINDOW_MESSAGES, _WINDOW_BYTES
        self.max_body = MAX_BODY_BYTES
        self.clock_offset = 0
        self.skipped = 0.0
        self.next_message: Callable[[], int] = itertools.count(1).__next__

    def welcome(self, command: CommandTuple) -> bool:
        """Take over what WELCOME carries; True if the broker's clock was moved forward meanwhile."""
        _, _, self.broker, self.incarnation, self.connection_id, _, limits, features, *_ = command
        self.id_prefix = f"ID:{self.connection_id}:"
        self.features = features
        self.limits = limits
        self.window_messages = _positive(limits.get("window_messages"), _WINDOW_MESSAGES)
        self.window_bytes = _positive(limits.get("window_bytes"), _WINDOW_BYTES)
        self.max_body = min(_positive(limits.get("body_bytes"), MAX_BODY_BYTES), MAX_BODY_BYTES)
        offset = features.get("clock_offset")
        return self.move_clock(offset if type(offset) is int else 0)

    def connected_to(self, peer: tuple[str, int] | None) -> None:
        """Note host and port of the present transport."""
        self.peer = peer

    def claim(self, client_id: str) -> None:
        """The broker has accepted a client id."""
        self.client_id = client_id

    # -- time ---------------------------------------------------------------------------------------------------------

    def move_clock(self, offset: int) -> bool:
        """Follow the broker's clock, which differs by so many ms; True if it was moved forward."""
        forward, self.clock_offset = offset - self.clock_offset, offset
        self.skipped += max(0, forward) / 1000.0
        return forward > 0

    def is_expired(self, expiration: Any) -> bool:
        """True if this time (ms since 1970), as a message says it, has passed on the broker's clock.

        Raises:
            MessageFormatException: it is no time.
        """
        try:
            return bool(expiration <= self.clock() + self.clock_offset)
        except TypeError as error:
            raise MessageFormatException("the broker delivered a message whose expiration is no number") from error

    # -- limits and checks --------------------------------------------------------------------------------------------

    def check_limit(self, limit: str, there: int, where: str) -> None:
        """Raise unless there may be one more. The broker checks this too; checking here saves the round trip.

        Args:
            limit: its name in WELCOME; what is counted.
            there: how many there are.
            where: whose limit it is, for people.

        Raises:
            ResourceAllocationException: there are as many as the broker allows.
        """
        most = self.limits.get(limit)
        if type(most) is int and 0 < most <= there:
            raise ResourceAllocationException(
                f"{where} has as many {limit} as the broker allows, {most}; close unused ones",
                "RESOURCE_ALLOCATION",
            )

    def check_selector(self, selector: Any) -> str | None:
        """The selector to send, None for none; checked as the broker will check it (SEL-01).

        Raises:
            InvalidSelectorException: with the place of the mistake.
        """
        return verified(selector, self.options.dialect or self.features.get("dialect") or "jakarta")


def _positive(value: object, default: int) -> int:
    return value if type(value) is int and value > 0 else default
