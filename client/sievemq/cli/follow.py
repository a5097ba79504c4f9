"""Messages of a queue or topic as they arrive, without taking them: a tap of the command's own, read repeatedly."""

from __future__ import annotations

import secrets
from collections.abc import Generator, Iterator
from contextlib import suppress
from time import sleep
from typing import Final

from sievemq import JMSException, Message
from sievemq.blocking import Connection
from sievemq.destinations import Destination
from sievemq.messages import received
from sievemq.taps import TapPage, delete_tap, open_tap
from sievemq_core.counted import counted
from sievemq_core.output import complain

#: Seconds between two looks at the tap.
_INTERVAL: Final = 0.2
#: Ms after which the broker ends the tap of a command that was killed.
_LEASE: Final = 60_000
#: Messages that are read at a time.
_AT_ONCE: Final = 1_000


def arriving(connection: Connection, destination: Destination, selector: str | None) -> Generator[Message, None, None]:
    """The waiting messages, then each that arrives, in order of arrival; without end.

    Those that consumers take at once are among them. Of a topic none wait. Messages that the tap had no room for are
    reported.
    """
    name = f"browse {secrets.token_hex(6)}"
    tap, state = open_tap(
        connection,
        name,
        destination,
        selector=selector,
        start="earliest",
        lease=_LEASE,
        existing=True,
        stored=False,
        reader=name,
    )
    try:
        after, missed = state.first - 1, state.missed
        while True:
            state = tap.look(after, messages=_AT_ONCE)
            if state.missed > missed:
                complain(f"sievemq: {counted(state.missed - missed, 'message', form=',')} missed: they came too fast")
                missed = state.missed
            if state.upto <= after:
                sleep(_INTERVAL)
                continue
            for page in tap.pages(after, state.upto):
                yield from messages_of(page, destination)
            after = state.upto
            tap.acknowledge(after)
    finally:
        with suppress(JMSException):  # its lease ends it
            delete_tap(connection, name, destination)


def messages_of(page: TapPage, destination: Destination) -> Iterator[Message]:
    """The messages of a page."""
    for fields, count in zip(zip(*page.columns, strict=True), page.counts, strict=True):
        yield received(fields, destination, count, None)
