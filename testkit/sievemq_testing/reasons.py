"""Why a message was not delivered, not consumed, or not found: short texts for people."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from difflib import get_close_matches
from typing import Final

from sievemq_broker.domain.consumer import Consumer
from sievemq_broker.domain.queue import Queue
from sievemq_core.counted import counted
from sievemq_core.errors import SieveError
from sievemq_core.message.envelope import Envelope
from sievemq_core.selector import CompiledSelector
from sievemq_core.selector.explain import TRUTHS
from sievemq_core.selector.names import HEADERS

_ABSENT: Final = re.compile(r"(\S+) is absent")


def name_of(consumer: Consumer) -> str:
    return f"consumer {consumer.id} of {getattr(consumer.port, 'connection_id', '?')}"


def near(name: str, names: Iterable[str]) -> str | None:
    """The one of several names that was probably meant: in other letters, or one with few differences."""
    others = [other for other in names if other != name]
    same = [other for other in others if other.casefold() == name.casefold()]
    return next(iter(same or get_close_matches(name, others, 1, 0.8)), None)


def near_destination(label: str, labels: Iterable[str]) -> str | None:
    kind, _, name = label.partition(":")
    there = near(name, [other.partition(":")[2] for other in labels if other.startswith(f"{kind}:")])
    return None if there is None else f"{kind}:{there}"


def due_in(milliseconds: int) -> str:
    seconds = f"{max(0.1, round(milliseconds / 1000, 1)):.1f}".removesuffix(".0")
    return f"due in {seconds} s; advance the clock"


def why_not(selector: CompiledSelector, envelope: Envelope) -> str:
    """Why a selector is not TRUE for a message, in one line."""
    try:
        properties = envelope.properties
        explanation = selector.explain(properties, envelope.fields)
    except SieveError as error:
        return str(error)

    def with_near(reason: str) -> str:
        for name in _ABSENT.findall(reason):
            there = near(name, properties)
            if there is not None and name not in HEADERS:
                reason = reason.replace(f"{name} is absent", f"{name} is absent; there is {there}")
        return reason

    steps = explanation.steps
    leaves = [
        step
        for step, after in zip(steps, (*steps[1:], None), strict=True)
        if after is None or after.depth <= step.depth
    ]
    # The comparisons that decide: the ones that are not TRUE; below a NOT one may be TRUE.
    decisive = [step for step in leaves if step.truth is not True] or leaves
    reasons = [
        f"{step.text} is {TRUTHS[step.truth]}{f' ({with_near(step.reason)})' if step.reason else ''}"
        for step in decisive
    ]
    return "; ".join(dict.fromkeys(reasons))


def idle(consumer: Consumer) -> str:
    """Why a consumer takes no message, independent of its selector; empty if it can take one."""
    if consumer.credit or consumer.waiting:
        return ""
    if not consumer.tag:
        return "its connection was never started: call connection.start() (with prefetch=0: it has not called receive)"
    return f"it holds {counted(consumer.unacknowledged, 'message')} unacknowledged, as many as it may"


def held_by(queues: Iterable[Queue]) -> Iterator[tuple[str, list[Envelope]]]:
    """The consumers that hold messages unacknowledged, and these messages."""
    for queue in queues:
        for consumer in dict.fromkeys((*queue.consumers, *queue.holders)):
            held = [entry.envelope for entry in consumer.window if entry is not None]
            if held:
                yield name_of(consumer), held
