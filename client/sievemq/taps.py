# Generated from sievemq/aio/taps.py by client/generate_blocking.py; change that file, then run `make format`.
"""Taps: named cursors in the broker, for programs that read what goes through a destination in ranges.

    with ConnectionFactory(url).create_connection() as connection:
        tap, _ = open_tap(connection, "audit", Queue("orders"), start="earliest")
        state = tap.look(after=0, messages=10_000)
        for page in tap.pages(0, state.upto):
            archive(page)
        tap.acknowledge(state.upto)

A range can be read again, by any connection and in any order, until it is acknowledged; that is what a consumer cannot
offer and what a reader needs that may fail in the middle. What a tap is and promises: docs/protocol.md, section 12.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

from sievemq._engine.outbox import Completion
from sievemq._engine.taps import (
    NOTHING,
    TAP_PAGE,
    TapPage,
    TapState,
    fields_of,
    name_of,
    number_of,
    page_of,
    state_of,
)
from sievemq.blocking.connection import Connection
from sievemq.destinations import Destination, parse_destination
from sievemq_core.durations import Milliseconds, milliseconds
from sievemq_core.wire.commands import Command

__all__ = ["Tap", "TapPage", "TapState", "delete_tap", "find_destinations", "find_tap", "open_tap"]


class Tap:
    """A tap as one connection sees it. Made by :func:`open_tap` and :func:`find_tap`.

    Args:
        connection: over which it is read.
        name: of the tap.
        destination: that it is on, in text.
        tap_id: which one is meant; no other is read or acknowledged.
    """

    __slots__ = ("_connection", "destination", "id", "name")

    def __init__(self, connection: Connection, name: str, destination: str, tap_id: str) -> None:
        self._connection = connection
        self.name = name
        self.destination = destination
        self.id = tap_id

    def __repr__(self) -> str:
        return f"<Tap {self.name!r} on {self.destination}>"

    def look(self, after: int, *, messages: int = 0, size: int = 0) -> TapState:
        """How far a reader that has read up to `after` may read. A drain takes from its queue what is needed for that.

        Args:
            after: a sequence.
            messages: that are wanted at most; 0 for all.
            size: bytes that are wanted at most, 160 for each message included; 0 for all.

        Raises:
            ValueError: a number is negative, or too large.
            JMSException: there is no such tap (error code NOT_FOUND); the connection is lost.
        """
        wanted = number_of("after", after), number_of("messages", messages), number_of("size", size)
        return state_of(self._ask(Command.LOOK_TAP, *wanted))

    def fetch(self, after: int, upto: int, limit: int = TAP_PAGE) -> TapPage:
        """Messages behind `after` up to `upto`, at most `limit` and at most what fits an answer.

        Raises:
            ValueError: a number is negative, or too large.
            JMSException: there is no such tap, or it is another one (NOT_FOUND); the connection is lost.
        """
        wanted = number_of("after", after), number_of("upto", upto), number_of("limit", limit, 1)
        return page_of(self._ask(Command.FETCH_TAP, self.id, *wanted))

    def pages(self, after: int, upto: int, limit: int = TAP_PAGE) -> Iterator[TapPage]:
        """All messages behind `after` up to `upto`, page by page. Those that are lost are not there: compare `first`.

        Raises:
            JMSException: as :meth:`fetch`.
        """
        while after < upto:
            page = self.fetch(after, upto, limit)
            if not page:
                return
            yield page
            after = page.first + len(page) - 1

    def acknowledge(self, upto: int) -> TapState:
        """Acknowledge everything up to a sequence: the broker may drop it. Repeating it has no effect.

        Raises:
            JMSException: as :meth:`fetch`.
        """
        return state_of(self._ask(Command.ACKNOWLEDGE_TAP, self.id, number_of("upto", upto)))

    def _ask(self, command: int, *fields: object) -> Any:
        return _ask(self._connection, command, self.name, self.destination, *fields)


def open_tap(
    connection: Connection,
    name: str,
    destination: Destination,
    mode: Literal["copy", "outcomes", "drain"] = "copy",
    *,
    selector: str | None = None,
    start: Literal["earliest", "latest"] = "latest",
    retain_messages: int | None = None,
    retain_bytes: int | None = None,
    retain_age: Milliseconds | None = None,
    lease: Milliseconds | None = None,
    existing: bool = False,
    stored: bool = True,
    reader: str | None = None,
) -> tuple[Tap, TapState]:
    """The tap with this name on a destination; created if there is none.

    Args:
        connection: over which it is read.
        name: 1 to 255 characters.
        destination: a queue, a topic, or a dead-letter queue.
        mode: ``copy`` keeps arrivals; ``outcomes`` the outcomes of messages; ``drain`` takes a queue's messages.
        selector: only of messages for which it is true.
        start: of a new copy of a queue: ``earliest`` begins with the waiting messages there.
        retain_messages, retain_bytes: that it may hold; the broker's defaults if not given.
        retain_age: how long a copy is kept, a timedelta or an int of milliseconds; 0 for no limit.
        lease: how long its reader may be silent, likewise; then a drain gives back what it holds and a copy ends.
        existing: create the tap only on an existing destination, or on the dead-letter queue of one.
        stored: false for a copy that the broker need not keep across a restart.
        reader: name of the only program that may read it, for as long as this connection is open.

    Returns:
        The tap and how it stands.

    Raises:
        ValueError: a name, mode or number that cannot be.
        InvalidSelectorException: the selector, with the place of the mistake.
        JMSException: it exists with another mode or selector; another reader has it (error code ILLEGAL_STATE); there
            is no such destination (error code NOT_FOUND); no right; a limit.
    """
    options = {
        "start": start,
        "retain_messages": retain_messages,
        "retain_bytes": retain_bytes,
        "retain_age": None if retain_age is None else milliseconds("retain_age", retain_age),
        "lease": None if lease is None else milliseconds("lease", lease),
        "existing": existing or None,
        "stored": None if stored else False,
        "reader": reader,
    }
    fields = fields_of(connection._engine, name, str(destination), mode, selector, options)
    engine = connection._engine
    engine.check_open()

    def undo(answer: Completion[Any]) -> None:  # otherwise a new one would keep messages without a reader
        engine.request(Command.DELETE_TAP, name, str(destination), answer.request)

    # One whose caller no longer waits would count as used by this call: if that is given up, too, nobody deletes it.
    connection._transport.undone()
    answer = connection._transport.ask(lambda: engine.request(Command.OPEN_TAP, *fields, undo=undo))
    state = state_of(answer)
    return Tap(connection, name, str(destination), state.id), state


def find_tap(connection: Connection, name: str, destination: Destination) -> tuple[Tap, TapState]:
    """The tap with this name on a destination, and its state. It takes no messages from a queue.

    Raises:
        JMSException: there is none (error code NOT_FOUND).
    """
    state = state_of(_ask(connection, Command.LOOK_TAP, name_of("a tap's name", name), str(destination), *NOTHING))
    return Tap(connection, name, str(destination), state.id), state


def delete_tap(connection: Connection, name: str, destination: Destination) -> bool:
    """End a tap; unacknowledged messages of a drain return as redelivered. False if there was none."""
    return bool(_ask(connection, Command.DELETE_TAP, name_of("a tap's name", name), str(destination)))


def find_destinations(connection: Connection, pattern: str) -> list[str]:
    """The queues or topics that fit a pattern, as far as the user may browse or consume them; no temporary ones.

    Args:
        connection: to the broker.
        pattern: ``queue:orders.*``: ``*`` is any characters, ``?`` one, ``[ab]`` one of these.

    Returns:
        Their addresses in text, sorted.

    Raises:
        InvalidDestinationException: the pattern is no address, or is of temporary destinations.
        ResourceAllocationException: it fits more than 10,000.
        JMSException: the connection is lost.
    """
    return sorted(_ask(connection, Command.FIND_DESTINATIONS, str(parse_destination(pattern))))


def _ask(connection: Connection, command: int, *fields: object) -> Any:
    engine = connection._engine
    engine.check_open()
    return connection._transport.ask(lambda: engine.request(command, *fields))
