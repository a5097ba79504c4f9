"""Nobody starves (MCO-14, D-23): messages that idle consumers have buffered are asked back for one that waits.

consumer.want ── served from the queue ───────────────────────────────► answered at once
      └── others hold matching messages that they may not have handed to their application
             └── RECALL to them; each answers RELEASE, with what was still in its buffer
                    ├── something came back: it goes to the one that waits, and answers its WANT
                    └── all answered and still nothing: ask for what lies behind, or answer
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import TYPE_CHECKING

from sievemq_broker.domain.groups import group_of
from sievemq_broker.domain.view import ALL_SCANNED

if TYPE_CHECKING:
    from sievemq_broker.domain.consumer import Consumer
    from sievemq_broker.domain.view import View

__all__ = ["answered", "left", "scanned", "want"]


def want(consumer: Consumer, now: int) -> bool:
    """See Consumer.want."""
    if not consumer.open:
        return True
    view = consumer.view
    # Its buffer was empty when it said so; what was delivered since may be on its way and is not handed out yet.
    if consumer.asked:
        return False
    if consumer.credit < 1:
        consumer.credit = 1  # a WANT means: one message at least
    if not consumer.waiting:
        consumer.waiting = True
        view.waiting.append(consumer)
    if not consumer.listed:
        consumer.listed = True
        view.ready.append(consumer)
    if consumer.queue.depth:
        consumer.queue.serve(view, now)
        if not consumer.waiting:
            return True
    if view.scanning != ALL_SCANNED or _ask_others(consumer):
        consumer.asked = True
        return False
    return True


def answered(holder: Consumer, tags: Sequence[int] | None, now: int) -> None:
    """A consumer gave messages back, which may be its answer to a recall.

    Args:
        holder: the consumer.
        tags: what it gave back; None if everything, so that no recall to it is open any more.
        now: ms epoch.
    """
    while holder.recalled:
        asked, waiter = holder.recalled[0]
        if tags is not None:
            if tags and not set(asked).intersection(tags):
                return  # given back for another reason; the answer is still to come
            kept = set(asked).difference(tags)
            if kept:  # not in its buffer any more: handed to the application, and so is all before
                holder.handed = max(holder.handed, *kept)
        holder.recalled.popleft()
        waiter.pending -= 1
        if waiter.asked and not waiter.pending and waiter.open:
            _ask_on(waiter)
        if tags is not None:
            return


def left(consumer: Consumer, now: int) -> None:
    """A consumer was closed: who waits for its answer waits no longer."""
    consumer.asked = consumer.waiting = False
    answered(consumer, None, now)


def scanned(view: View) -> None:
    """A view knows the whole backlog: those who still wait there can be answered."""
    for consumer in view.consumers:
        if consumer.asked and not consumer.pending:
            _ask_on(consumer)


def _ask_on(waiter: Consumer) -> None:
    if waiter.view.scanning == ALL_SCANNED and not _ask_others(waiter):
        waiter.asked = False
        waiter.port.settled(waiter.id)


def _ask_others(waiter: Consumer) -> bool:
    """Recall up to `waiter.credit` messages, oldest first, at most half of what each other consumer may have
    buffered: so one that works shares with the one that waits, and one that sleeps is emptied in a few rounds."""
    wanted = waiter.credit
    for holder in waiter.queue.consumers:
        if wanted <= 0:
            break
        if holder is waiter or holder.tag <= holder.handed:
            continue
        half = (holder.tag - max(holder.handed, holder.base) + 1) >> 1
        tags = _matching(holder, waiter, min(wanted, half))
        if tags:
            wanted -= len(tags)
            waiter.pending += 1
            holder.recalled.append((tags, waiter))
            holder.port.recall(holder.id, tags)
    return waiter.pending > 0


def _matching(holder: Consumer, waiter: Consumer, limit: int) -> list[int]:
    """Tags of up to `limit` messages in the holder's buffer that the waiter may have, oldest first. A message is tested
    once per distinct selector, however often somebody waits: where the search ended is remembered."""
    view = waiter.view
    own = view is holder.view or view.condition is None
    start = max(holder.handed, holder.base, 0 if own else holder.looked.get(view, 0))
    out = {tag for tags, _ in holder.recalled for tag in tags}
    found: list[int] = []
    tag = start
    for tag, entry in enumerate(islice(holder.window, start - holder.base, None), start + 1):
        if entry is None or tag in out or (holder.view.groups is not None and group_of(entry.envelope) is not None):
            continue  # a group stays with its owner
        if own or view.matches(entry):
            found.append(tag)
            if len(found) == limit:
                break
    if not own:
        holder.looked[view] = tag
    return found
