"""What holds between this client and the present broker: options, what WELCOME carried, the broker's clock."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from math import inf
from typing import Any, Final

from sievemq._engine.options import EngineOptions
from sievemq._engine.selector import verified
from sievemq.exceptions import InvalidURLException, MessageFormatException, ResourceAllocationException
from sievemq.url import host_of
from sievemq_core.limits import MAX_BODY_BYTES
from sievemq_core.wire.codec import CommandTuple

#: Unconfirmed sends of a session where the broker's WELCOME carries nothing.
_SEND_WINDOW_MESSAGES: Final = 1_000
_SEND_WINDOW_BYTES: Final = 8 * 1024 * 1024

#: Brokers that a client remembers beside the hosts of its URL.
_MOST_OTHERS: Final = 16


class Terms:
    """Those of one connection.

    Args:
        clock: returns the time in milliseconds since 1970-01-01 UTC.

    Attributes:
        client_id: the JMS client id, administered or set.
        peer: host and port that it was last connected to, as in the URL; None where the front does not name them.
        others: host and port of brokers that may take over from the present one, as far as any WELCOME named them.
        broker, incarnation, connection_id, features, limits: what WELCOME carried.
        id_prefix: message ids begin with it.
        window_messages, window_bytes: how much of a session's sends may be unconfirmed.
        max_body: bytes that a body may have.
        skew: milliseconds by which the clock of the broker's machine is ahead of the clock here, as far as the broker's
            answers show.
        clock_offset: milliseconds to add to that: the broker's clock was moved (test clocks only).
        read, ahead: the broker's time is ``read() + ahead``: the clock here, or, while the broker's stands still (test
            clocks only), that time.
        skipped: seconds that the broker's clock was moved forward by, in all: they count as time that a receive has
            waited. Moving it back gives nothing more time.
        jumps: those that a WELCOME told of: when the clock was moved, on the clock here, and by how many seconds.
        next_message: gives the next message its number.
    """

    __slots__ = (
        "ahead", "broker", "client_id", "clock", "clock_offset", "connection_id", "features", "id_prefix",
        "incarnation", "jumps", "limits", "max_body", "next_message", "options", "others", "peer", "read", "skew",
        "skipped", "window_bytes", "window_messages",
    )  # fmt: skip

    def __init__(self, options: EngineOptions, clock: Callable[[], int]) -> None:
        self.options = options
        self.clock = clock
        self.client_id: str | None = options.client_id
        self.peer: tuple[str, int] | None = None
        self.others: list[tuple[str, int]] = []
        self.broker = self.incarnation = self.connection_id = ""
        self.features: dict[str, Any] = {}
        self.limits: dict[str, Any] = {}
        self.id_prefix = "ID:"
        self.window_messages, self.window_bytes = _SEND_WINDOW_MESSAGES, _SEND_WINDOW_BYTES
        self.max_body = MAX_BODY_BYTES
        self.skew = self.clock_offset = self.ahead = 0
        self.read = clock
        self.skipped = 0.0
        self.jumps: list[tuple[int, float]] = []
        self.next_message: Callable[[], int] = itertools.count(1).__next__

    def welcome(self, command: CommandTuple, asked: int) -> bool:
        """Take over what WELCOME carries.

        Args:
            asked: when HELLO was sent, by :attr:`clock`.

        Returns:
            True if the broker's clock was moved forward meanwhile.
        """
        _, _, self.broker, self.incarnation, self.connection_id, _, limits, features, *_ = command
        self.id_prefix = f"ID:{self.connection_id}:"
        self.features = features
        self.limits = limits
        self.window_messages = _positive(limits.get("window_messages"), _SEND_WINDOW_MESSAGES)
        self.window_bytes = _positive(limits.get("window_bytes"), _SEND_WINDOW_BYTES)
        self.max_body = min(_positive(limits.get("body_bytes"), MAX_BODY_BYTES), MAX_BODY_BYTES)
        self._learn(features.get("peers"))
        self.see_time(features.get("time"), asked)
        offset, moved_at, before = features.get("clock_offset"), features.get("moved_at"), self.skipped
        forward = self.move_clock(offset if type(offset) is int else 0, features.get("frozen_at"))
        if forward and type(moved_at) is int:
            self.jumps.append((moved_at - self.skew, self.skipped - before))
        return forward

    def connected_to(self, peer: tuple[str, int] | None) -> None:
        """Note host and port of the present transport."""
        self.peer = peer

    def hosts(self, configured: Sequence[tuple[str, int]]) -> tuple[Sequence[tuple[str, int]], int]:
        """Where the broker may be found again: the hosts of the URL, those that it has named, and the one to which the
        client was redirected; and the number of the one that it was connected to last."""
        peer = self.peer
        hosts = list(dict.fromkeys((*configured, *self.others, *(() if peer is None else (peer,)))))
        return hosts, 0 if peer is None else hosts.index(peer)

    def _learn(self, peers: object) -> None:
        for peer in peers if isinstance(peers, (list, tuple)) else ():
            try:
                other = host_of(peer if isinstance(peer, str) else "")
            except InvalidURLException:
                continue
            if other not in self.others and len(self.others) < _MOST_OTHERS:
                self.others.append(other)

    def claim(self, client_id: str) -> None:
        self.client_id = client_id

    # -- time ---------------------------------------------------------------------------------------------------------

    def now(self) -> int:
        """The broker's time: milliseconds since 1970-01-01 UTC."""
        return self.read() + self.ahead

    def see_time(self, time: object, asked: int) -> None:
        """The broker has told its time.

        The clock here is believed as long as the answer allows it: the broker read its own after the question was sent,
        and before the answer arrived. Otherwise the time of the broker counts from the arrival of the answer: it is
        then a little behind, so that nothing is taken for expired before the broker does so.

        Args:
            time: milliseconds since 1970 by the clock of the broker's machine; not an int where a broker tells none.
            asked: when the question was sent, by :attr:`clock`.
        """
        if type(time) is not int:
            return
        lowest, highest = time - self.clock(), time - asked
        if lowest <= 0 <= highest:
            self.skew = 0
        elif not lowest <= self.skew <= highest:
            self.skew = lowest
        if self.read is self.clock:
            self.ahead = self.skew + self.clock_offset

    def move_clock(self, offset: int, frozen_at: object) -> bool:
        """Follow the broker's clock.

        Args:
            offset: by how many ms a test has moved it.
            frozen_at: the time at which it stands still; no int if it runs.

        Returns:
            True if it was moved forward.
        """
        forward, self.clock_offset = offset - self.clock_offset, offset
        if type(frozen_at) is int:
            self.read, self.ahead = itertools.repeat(frozen_at).__next__, 0
        else:
            self.read, self.ahead = self.clock, self.skew + offset
        self.skipped += max(0, forward) / 1000.0
        return forward > 0

    def is_expired(self, expiration: Any) -> bool:
        """True if this time (ms since 1970), as a message says it, has passed on the broker's clock.

        Raises:
            MessageFormatException: it is no time.
        """
        try:
            return bool(expiration <= self.now())
        except TypeError as error:
            raise MessageFormatException("the broker delivered a message whose expiration is no number") from error

    # -- limits and checks --------------------------------------------------------------------------------------------

    def check_limit(self, limit: str, there: int, where: str) -> None:
        """Raise unless there may be one more. The broker checks this too; checking here saves the round trip.

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


class TimeLimit:
    """The time limit of a call that waits for a message: real time, and the time that a test skips meanwhile.

    Args:
        now: seconds, of any clock that never goes back.
        timeout: milliseconds; 0 or None for no limit.
    """

    __slots__ = ("_began", "_end", "_jumps", "_terms")

    def __init__(self, terms: Terms, now: float, timeout: int | None) -> None:
        self._terms = terms
        self._end = now + terms.skipped + timeout / 1000.0 if timeout else inf
        self._began, self._jumps = now, len(terms.jumps)

    def left(self, now: float) -> float:
        """Seconds that are left; infinite without a limit.

        A step of the clock counts for calls that had begun. While a connection is lost a client cannot see whether a
        call began before a step or after it; the WELCOME tells when the step was.
        """
        terms = self._terms
        left = self._end - now - terms.skipped
        if len(terms.jumps) > self._jumps:
            began = terms.clock() - (now - self._began) * 1000.0
            left += sum(seconds for moved_at, seconds in terms.jumps[self._jumps :] if moved_at <= began)
        return left

    @property
    def must_look(self) -> bool:
        """A step counted that the connection was told of by WELCOME: what became due by it may still be on its way."""
        return len(self._terms.jumps) > self._jumps


def _positive(value: object, default: int) -> int:
    return value if type(value) is int and value > 0 else default
