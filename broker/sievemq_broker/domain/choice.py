"""Which consumer of a queue gets a message."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sievemq_broker.domain.entry import READY, Entry, key_of
from sievemq_broker.domain.groups import group_of
from sievemq_broker.domain.view import ALL_SCANNED, View

if TYPE_CHECKING:
    from sievemq_broker.domain.consumer import Consumer

__all__ = ["choose"]


def choose(main: View, entry: Entry, matched: list[View] | tuple[()]) -> Consumer | None:
    """The consumer whose turn it is: first those that wait, longest waiting first, then the one served longest ago.
    A view with an available consumer has nothing waiting that could be served, so nothing is overtaken."""
    best: Consumer | None = None
    for view in (main, *matched):
        if view.scanning != ALL_SCANNED and not _shown(view, entry):
            continue
        consumer = view.next_consumer()
        if consumer is not None and view.groups is not None and (group := group_of(entry.envelope)) is not None:
            owner = view.groups.owner(group)
            if owner is not None:
                consumer = owner if owner.can_take() else None
        if consumer is not None and (best is None or (consumer.waiting, -consumer.turn) > (best.waiting, -best.turn)):
            best = consumer
    return best


def _shown(view: View, entry: Entry) -> bool:
    """False if something the view's scan has still to find goes before `entry`, or is `entry`."""
    if entry.state == READY:
        return entry.envelope.priority > view.scanning
    return key_of(entry) <= view.scanned
