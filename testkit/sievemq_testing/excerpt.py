"""The journal as text, for people who look at a failed test."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Final

from sievemq_broker.domain.entry import GONE
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
from sievemq_core.selector import CompiledSelector
from sievemq_testing.journal import Event, Fate, Journal

__all__ = ["LINES", "excerpt", "show_event", "show_message", "why_not"]

#: Events of an excerpt: what fits on a screen above the test's own error.
LINES: Final = 40

_WORDS: Final = {True: "TRUE", False: "FALSE", None: "UNKNOWN"}
_VALUE = 40
_PROPERTIES = 8
_EXPLAINED = 10


def show_message(envelope: Envelope) -> str:
    """A message in one line: what a selector may ask for, and the beginning of a text."""
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


def why_not(selector: CompiledSelector, envelope: Envelope) -> str:
    """Why a selector is not TRUE for a message, in one line."""
    try:
        explanation = selector.explain(envelope.properties, envelope.fields)
    except SieveError as error:
        return str(error)
    steps = explanation.steps
    leaves = [
        step
        for step, after in zip(steps, (*steps[1:], None), strict=True)
        if after is None or after.depth <= step.depth
    ]
    # What decided: the comparisons that are not TRUE; below a NOT it may be one that is.
    decisive = [step for step in leaves if step.truth is not True] or leaves
    reasons = [f"{step.text} is {_WORDS[step.truth]}{f' ({step.reason})' if step.reason else ''}" for step in decisive]
    return "; ".join(dict.fromkeys(reasons))


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


def excerpt(journal: Journal, lines: int | None = LINES) -> str:
    """The end of a journal, and why what was never delivered was not.

    Args:
        journal: of the namespace.
        lines: events to show; None for all.
    """
    events = list(journal)
    shown = events if lines is None else events[-lines:]
    text = [f"namespace {journal.namespace!r}: {len(events)} events"]
    hidden = len(events) - len(shown)
    if hidden:
        text[0] += f", the last {len(shown)} of them (--sievemq-trace shows all)"
    if journal.dropped:
        text[0] += f"; {journal.dropped} older ones were forgotten"
    text += map(show_event, shown)
    text += _left(journal)
    return "\n".join(text)


def _left(journal: Journal) -> Iterable[str]:
    """What was never delivered, and to whom it would not go."""
    undelivered = journal.undelivered()
    if undelivered:
        yield f"never delivered: {len(undelivered)}"
    for fate in undelivered[:_EXPLAINED]:
        yield f"  {fate.where} {show_message(fate.envelope)}"
        yield from _reasons(fate)
    if len(undelivered) > _EXPLAINED:
        yield f"  and {len(undelivered) - _EXPLAINED} more"
    held = [fate for entry, fate in journal.fates.items() if entry.state != GONE and fate.last == "delivered"]
    if held:
        yield f"delivered and never acknowledged: {len(held)}"
    for fate in held[:_EXPLAINED]:
        yield f"  {fate.where} {show_message(fate.envelope)}"
    if len(held) > _EXPLAINED:
        yield f"  and {len(held) - _EXPLAINED} more"


def _reasons(fate: Fate) -> Iterable[str]:
    if not fate.refused_by:
        yield "      nobody asked for it"
    for name, selector in list(fate.refused_by.items())[:3]:
        yield f'      {name} wants "{selector}": {why_not(selector, fate.envelope)}'
