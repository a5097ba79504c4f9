"""What the journal keeps of taps and publishers, and what becomes of it after a restart.

A copy tap is there again as it was, its messages included: they are kept under a number of its own, and so is the place
of the first one. A drain tap is there again, but what it had taken is on its queue, marked: it counts as lost, and
comes again under new sequences. Of what was staged nothing is kept; the batches that were published are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sievemq_broker.domain.journal import Journal, Saved
from sievemq_core.selector import compile_selector

if TYPE_CHECKING:
    from sievemq_broker.domain.broker import Broker
    from sievemq_broker.domain.tap import CopyTap, Tap

__all__ = ["PUBLISHED", "TAP", "forget", "published", "record", "restore"]

#: Kinds of definitions.
TAP: Final = "tap"
PUBLISHED: Final = "published"


def record(journal: Journal, tap: Tap) -> None:
    """How a tap stands."""
    condition, terms = tap.condition, tap.terms
    journal.define(
        TAP,
        (tap.destination.namespace.name, tap.destination.label, tap.name),
        (
            tap.number,
            tap.id,
            tap.mode,
            None if condition is None else condition.text,
            None if condition is None else condition.dialect.name,
            (terms.messages, terms.bytes, terms.age, terms.lease),
            # what a copy holds is kept and counts on from here; what a drain holds is kept by its queue
            tap.log.first - 1 if tap.number else tap.log.last,
            tap.acknowledged,
            tap.lost,
            tap.missed,
            tap.owner,
        ),
    )


def forget(journal: Journal, tap: Tap) -> None:
    """A tap is gone."""
    journal.define(TAP, (tap.destination.namespace.name, tap.destination.label, tap.name), None)


def published(journal: Journal, namespace: str, key: tuple[str | None, str], batch: int | None) -> None:
    """The last batch that a user has published under a key; None to forget the key."""
    journal.define(PUBLISHED, (namespace, *key), None if batch is None else (batch,))


def restore(broker: Broker, saved: Saved, journal: Journal, now: int) -> dict[int, CopyTap]:
    """Taps and published batches as they were kept, before the messages are.

    Args:
        broker: with its destinations.
        saved: what was kept.
        journal: gives new numbers.
        now: ms epoch.

    Returns:
        The copy taps by number, still without their messages.
    """
    from sievemq_broker.domain.outcome_tap import OutcomeTap
    from sievemq_broker.domain.tap import CopyTap, DrainTap, TapTerms  # they record themselves through this module
    from sievemq_broker.domain.tap_log import TapLog

    for (name, owner, key), (batch, *_) in saved.definitions(PUBLISHED).items():
        broker.namespace(str(name)).stages.remember(None if owner is None else str(owner), str(key), batch)
    copies: dict[int, CopyTap] = {}
    for (name, label, title), value in saved.definitions(TAP).items():
        number, tap_id, mode, text, dialect, terms, behind, acknowledged, lost, missed, owner = value[:11]
        namespace = broker.namespace(str(name))
        destination = namespace.create(str(label))
        condition = None if text is None else compile_selector(text, dialect)
        arguments = (tap_id, str(title), destination, condition, TapTerms(*terms), now)
        tap: CopyTap | DrainTap
        if mode == "drain":
            tap = DrainTap(*arguments)  # type: ignore[arg-type]  # a queue: drains are made of nothing else
            tap.go_on_behind(behind)
            tap.lost, tap.missed = lost, missed
            if behind > max(acknowledged, lost):
                tap.lost, tap.missed = behind, missed + behind - max(acknowledged, lost)
        else:
            tap = copies[number] = (OutcomeTap if mode == "outcomes" else CopyTap)(*arguments)
            tap.number, tap.log = number, TapLog(behind)
            tap.lost, tap.missed = lost, missed
            journal.numbers_from(number + 1)
        tap.acknowledged, tap.owner = acknowledged, owner
        namespace.taps.add(tap)
    return copies
