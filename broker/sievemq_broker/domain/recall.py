"""Nobody starves (MCO-14, D-23): messages that idle consumers have buffered are asked back for one that waits.

consumer.want ── served from the queue ───────────────────────────────► answered at once
      └── others hold matching messages that they may not have handed to their application
             └── RECALL to them; each answers RELEASE, with what was still in its buffer
                    ├── something came back: it goes to the one that waits, and answers its WANT
                    └── all answered and still nothing: ask for what lies behind, or answer

**Order** (ORD-01). A consumer that only waits, as listeners and `receive` do, should not get messages older than what
it has got already while another works its way through them. So its WANT is patient: what is younger is recalled at
once; what is older only from a consumer that makes no progress for IDLE_MS. A WANT that asks for an answer
(`receive_no_wait`, MCO-05) is not patient.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import TYPE_CHECKING, Final

from sievemq_broker.domain.entry import DELAYED
from sievemq_broker.domain.groups import group_of
from sievemq_broker.domain.view import ALL_SCANNED

if TYPE_CHECKING:
    from sievemq_broker.domain.consumer import Consumer
    from sievemq_broker.domain.view import View

__all__ = ["IDLE_MS", "Look", "answered", "left", "scanned", "want"]

#: A consumer that has neither acknowledged anything nor been granted credit for so long makes no progress: long for a
#: handler of messages that come by the thousand, short for a person who waits for one.
IDLE_MS: Final = 50


class Look:
    """A deadline: has what others hold back from a consumer that waits been worked on? One per consumer at most."""

    __slots__ = ("_waiter",)

    #: As the heap of deadlines wants its items: never void, before the messages of the same millisecond.
    state: Final = DELAYED
    sequence: Final = 0

    def __init__(self, waiter: Consumer) -> None:
        self._waiter = waiter

    def __lt__(self, other: object) -> bool:
        return False

    def on_jump(self, entry: object, by: int) -> None:
        """Nobody knows when that is."""

    def on_deadline(self, entry: object, when: int, now: int) -> None:
        """Look again, if it still waits."""
        waiter = self._waiter
        waiter.looking = False
        if waiter.open and waiter.waiting and not waiter.asked and _ask_others(waiter, now):
            waiter.asked = True


def want(consumer: Consumer, now: int, patient: bool, brief: bool) -> bool:
    """See Consumer.want."""
    if not consumer.open:
        return True
    view = consumer.view
    consumer.brief = brief
    # Its buffer was empty when it said so; what was delivered since may be on its way and is not handed out yet.
    if consumer.asked:
        consumer.patient = consumer.patient and patient
        return False
    consumer.patient = patient
    consumer.lent = consumer.credit < 1
    if consumer.lent:
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
    if view.scanning != ALL_SCANNED or consumer.queue.held or _ask_others(consumer, now):
        consumer.asked = True
        return False
    if brief:
        _give_up(consumer)
    return True


def _give_up(consumer: Consumer) -> None:
    """The answer is nothing, and whoever asked does not go on waiting: nothing shall come later, unasked."""
    if consumer.waiting:
        consumer.waiting = False
        if consumer in consumer.view.waiting:
            consumer.view.waiting.remove(consumer)
        if consumer.lent and consumer.credit:
            consumer.credit -= 1


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
            _ask_on(waiter, now)
        if tags is not None:
            return


def left(consumer: Consumer, now: int) -> None:
    """A consumer was closed: who waits for its answer waits no longer."""
    consumer.asked = consumer.waiting = False
    for holder in consumer.watched:
        if holder.watchers is not None:
            holder.watchers.discard(consumer)
    consumer.watched.clear()
    if consumer.watchers:
        for waiter in consumer.watchers:
            waiter.watched.pop(consumer, None)
        consumer.watchers = None
    answered(consumer, None, now)


def scanned(view: View, now: int) -> None:
    """A view knows the whole backlog, or its queue a whole batch: those who still wait there can be answered."""
    for consumer in view.consumers:
        if consumer.asked and not consumer.pending:
            _ask_on(consumer, now)


def _ask_on(waiter: Consumer, now: int) -> None:
    if waiter.view.scanning == ALL_SCANNED and not waiter.queue.held and not _ask_others(waiter, now):
        waiter.asked = False
        if waiter.brief:
            _give_up(waiter)
        waiter.port.settled(waiter.id)


def _ask_others(waiter: Consumer, now: int) -> bool:
    """Recall up to `waiter.credit` messages, oldest first, at most half of what each other consumer may have
    buffered: so one that works shares with the one that waits, and one that sleeps is emptied in a few rounds."""
    wanted = waiter.credit
    look = False
    for holder in waiter.queue.consumers:
        if wanted <= 0:
            break
        if holder is waiter or holder.tag <= holder.handed:
            continue
        half = (holder.tag - max(holder.handed, holder.base) + 1) >> 1
        limit = min(wanted, half)
        if waiter.patient and not _is_idle(holder, waiter, now):
            tags, older = _younger(holder, waiter, limit)
            look = look or older
        else:
            tags = _matching(holder, waiter, limit)
        if tags:
            wanted -= len(tags)
            waiter.pending += 1
            holder.recalled.append((tags, waiter))
            holder.port.recall(holder.id, tags)
    if look and not waiter.looking:
        waiter.looking = True
        deadline = Look(waiter)
        waiter.queue.namespace.broker.deadlines.push_span(now + IDLE_MS, deadline, deadline)
    return waiter.pending > 0


def _is_idle(holder: Consumer, waiter: Consumer, now: int) -> bool:
    """True if the holder made no progress since the waiter began to watch it, IDLE_MS ago or more."""
    progress = (holder.acknowledged, holder.credit + holder.tag)  # the latter: all credit it was ever granted
    watched = waiter.watched.get(holder)
    if watched is None or watched[1] != progress or now < watched[0]:  # the latter: the clock was set back
        waiter.watched[holder] = (now, progress)
        if holder.watchers is None:
            holder.watchers = set()
        holder.watchers.add(waiter)
        return False
    return now - watched[0] >= IDLE_MS


def _younger(holder: Consumer, waiter: Consumer, limit: int) -> tuple[list[int], bool]:
    """As :func:`_matching`, of messages younger than all that the waiter got; and whether there may be older ones.

    Looks from the young end and stops at the first older message: a window has them mostly in the order of arrival."""
    view = waiter.view
    own = view is holder.view or view.condition is None
    end = holder.base + len(holder.window)
    start = max(holder.handed, holder.base, 0 if own else holder.looked.get(view, 0))
    # What a selector was tested on is not tested again; what lies before that may be older.
    tested = 0 if own else holder.glanced.get(view, 0)
    older = tested > start
    newest = waiter.newest
    out = {tag for tags, _ in holder.recalled for tag in tags}
    found: list[int] = []
    for tag, entry in zip(range(end, max(start, tested), -1), reversed(holder.window), strict=False):
        if entry is None or tag in out:
            continue
        if entry.sequence <= newest:
            older = True
            break
        if (holder.view.groups is None or group_of(entry.envelope) is None) and (own or view.matches(entry)):
            found.append(tag)
    if not own and len(found) <= limit:
        (holder.glanced if older else holder.looked)[view] = end
    return found[::-1][:limit], older


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
