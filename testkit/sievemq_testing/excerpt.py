"""The journal as text, for the report of a failed test."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from functools import partial
from typing import Final

from sievemq_broker.domain.entry import GONE
from sievemq_core.counted import counted
from sievemq_core.errors import SieveError
from sievemq_core.message.envelope import (
    BODY,
    BODY_KIND,
    CORRELATION_ID,
    MESSAGE_ID,
    PRIORITY,
    TYPE,
    BodyKind,
    Envelope,
)
from sievemq_testing.journal import Event, Fate, Journal
from sievemq_testing.reasons import due_in, held_by, idle, name_of, near_destination, why_not

#: Events of an excerpt: what fits on a screen above the test's own error.
LINES: Final = 40

#: Events that are shown at once: some milliseconds.
_PIECE: Final = 40

_VALUE = 40
_PROPERTIES = 8
_EXPLAINED = 10
_NAMESPACES = 3
_REASONS = 3


def show_message(envelope: Envelope) -> str:
    """A message in one line: headers and properties that selectors see, and the beginning of a text."""
    fields = envelope.fields
    parts = [str(fields[MESSAGE_ID] or "(no id)")]
    if fields[TYPE] is not None:
        parts.append(f"JMSType={_short(fields[TYPE])}")
    if fields[CORRELATION_ID] is not None:
        parts.append(f"JMSCorrelationID={_short(fields[CORRELATION_ID])}")
    if fields[PRIORITY] != 4:
        parts.append(f"JMSPriority={fields[PRIORITY]}")
    try:
        properties = envelope.properties
    except SieveError as error:
        parts.append(f"(its properties cannot be decoded: {error})")
    else:
        parts += [f"{name}={_short(value)}" for name, value in list(properties.items())[:_PROPERTIES]]
        if len(properties) > _PROPERTIES:
            parts.append(f"and {len(properties) - _PROPERTIES} more properties")
    body = fields[BODY]
    if body is not None:
        if fields[BODY_KIND] == BodyKind.TEXT:
            parts.append(_short(body.decode("utf-8", "replace")))
        else:
            parts.append(f"{len(body)} bytes of {BodyKind(fields[BODY_KIND]).name.lower()}")
    return " ".join(parts)


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _VALUE else f"{text[: _VALUE - 1]}…"


def show_event(event: Event) -> str:
    """One event in one line; a `not matched` has further ones, with the reasons."""
    time = datetime.fromtimestamp(event.at / 1000, UTC).strftime("%H:%M:%S.%f")[:-3]
    message = show_message(event.envelope) if event.envelope is not None and event.kind in _WITH_MESSAGE else (
        event.message_id
    )  # fmt: skip
    detail = f"({event.detail})" if event.detail and message else event.detail
    line = f"{time} {event.kind:<16}{event.where:<18} {message} {detail}".rstrip()
    if event.envelope is None:
        return line
    return "\n".join(
        [
            line,
            *(f'{"":>31}no to "{selector}": {why_not(selector, event.envelope)}' for selector in event.selectors[:3]),
        ]
    )


_WITH_MESSAGE = frozenset({"sent"})


def excerpt(
    journal: Journal,
    now: int,
    destinations: Iterable[str],
    lines: int | None = LINES,
    others: Iterable[Journal] = (),
) -> Iterator[str]:
    """The end of a journal, and why messages were never delivered.

    It comes in pieces: evaluating selectors on thousands of events takes seconds. It shows the moment of the first one.

    Args:
        now: the broker's time, ms since 1970.
        lines: events to show; None for all.

    Returns:
        Pieces of some lines each, to be joined by line ends.
    """
    events = list(journal)
    shown = events if lines is None else events[-lines:]
    head = f"namespace {journal.namespace!r}: {counted(len(events), 'event')}"
    hidden = len(events) - len(shown)
    if hidden:
        head += f", the last {len(shown)} of them (--sievemq-trace shows all)"
    if journal.dropped:
        head += f"; {journal.dropped} older ones were forgotten"
    names = tuple(destinations)
    unheard = {event.where for event in shown if event.kind == "not matched" and not event.selectors}
    near = {where: near_destination(where, names) for where in unheard}
    rest = [*_left(journal, now, names), *_elsewhere(others)]
    yield head
    for first in range(0, len(shown), _PIECE):
        text: list[str] = []
        for event in shown[first : first + _PIECE]:
            text.append(show_event(event))
            if event.kind == "not matched" and not event.selectors and near[event.where] is not None:
                text.append(f"{'':>31}there is {near[event.where]}")
        yield "\n".join(text)
    if rest:
        yield "\n".join(rest)


def _left(journal: Journal, now: int, destinations: tuple[str, ...]) -> Iterable[str]:
    yield from _section(
        "never delivered", [(fate, partial(_undelivered, destinations=destinations)) for fate in journal.undelivered()]
    )
    yield from _section("not due yet", [(fate, partial(_delayed, due=due, now=now)) for fate, due in journal.delayed()])
    held = [fate for entry, fate in journal.fates.items() if entry.state != GONE and fate.last == "delivered"]
    yield from _section("delivered and never acknowledged", [(fate, _holders) for fate in held])


def _section(title: str, explained: list[tuple[Fate, Callable[[Fate], list[str]]]]) -> Iterable[str]:
    if explained:
        yield f"{title}: {len(explained)}"
    for fate, reasons in explained[:_EXPLAINED]:
        yield f"  {fate.where} {show_message(fate.envelope)}"
        yield from (f"      {reason}" for reason in reasons(fate))
    if len(explained) > _EXPLAINED:
        yield f"  and {len(explained) - _EXPLAINED} more"


def _undelivered(fate: Fate, destinations: tuple[str, ...]) -> list[str]:
    """Why a message that waits was never delivered."""
    queue = fate.queue
    reasons = [
        f'{name} wants "{selector}": {why_not(selector, fate.envelope)}'
        for name, selector in list(fate.refused_by.items())[:_REASONS]
    ]
    reasons += [f"{name} was open, but {reason}" for name, reason in list(fate.passed_by.items())[:_REASONS]]
    for consumer in queue.consumers:
        name = name_of(consumer)
        if name not in fate.refused_by and len(reasons) < _REASONS:
            reasons.append(f"{name} is open, but {idle(consumer) or 'the broker has not delivered it yet'}")
    if queue.paused:
        reasons.append("the queue is paused")
    if not reasons:
        where = "on this subscription" if queue.place.topic is not None else f"on {queue.label}"
        there = near_destination(queue.label, destinations)
        reasons.append(f"no consumer is open {where}{f'; there is {there}' if there is not None else ''}")
    return reasons


def _delayed(_: Fate, due: int, now: int) -> list[str]:
    return [due_in(due - now)]


def _holders(fate: Fate) -> list[str]:
    holders = held_by([fate.queue])
    return [f"{name} holds it" for name, held in holders if any(envelope is fate.envelope for envelope in held)]


def _elsewhere(others: Iterable[Journal]) -> Iterable[str]:
    for other in list(others)[:_NAMESPACES]:
        yield f"namespace {other.namespace!r} was used meanwhile; its last event:"
        yield from (f"  {show_event(event)}" for event in list(other)[-1:])
        yield "  To use this test's namespace, the application connects with its URL (sievemq_url)."
