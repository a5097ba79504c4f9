"""No consumer starves (MCO-14, D-23): messages that idle consumers have buffered are recalled for one that waits.

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

from collections import deque
from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Final

from sievemq_broker.domain.consumer import Consumer
from sievemq_broker.domain.deadlines import Deadlines
from sievemq_broker.domain.entry import DELAYED
from sievemq_broker.domain.turns import Turns, group_of
from sievemq_broker.domain.view import ALL_SCANNED, View

__all__ = ["IDLE_MS", "Recall"]

#: A consumer that has neither acknowledged anything nor been granted credit for so long makes no progress: long for a
#: handler of messages that come by the thousand, short for one waiting person.
IDLE_MS: Final = 50


class _Claim:
    """What a consumer asks of others, and others of it.

    Attributes:
        brief: it does not go on waiting when its WANT is answered.
        lent: the WANT was worth a credit that was not granted.
        patient: older messages are left to consumers that work on them.
        pending: recalls sent to others on its behalf and not answered yet.
        recalled: recalls on their way to it: tags, and the consumer that waits for them; answered in this order.
    """

    __slots__ = (
        "_glanced",
        "_looked",
        "_looking",
        "_recall",
        "brief",
        "consumer",
        "lent",
        "patient",
        "pending",
        "recalled",
        "turns",
        "watched",
        "watchers",
    )

    #: As the heap of deadlines wants its items: never void, before the messages of the same millisecond.
    state: Final = DELAYED
    sequence: Final = 0

    def __init__(self, recall: Recall, consumer: Consumer, turns: Turns) -> None:
        self._recall = recall
        self.consumer = consumer
        self.turns = turns
        self.brief = self.lent = self.patient = False
        self.pending = 0
        self.recalled: deque[tuple[list[int], _Claim]] = deque()
        #: Per other view, up to which tag the window was searched in vain.
        self._looked: dict[View, int] = {}
        #: The same from the young end, as far as messages were younger than what the other had got.
        self._glanced: dict[View, int] = {}
        #: A deadline to look again at what others hold is on its way; one at most.
        self._looking = False
        #: Per other consumer: since when (ms epoch) it has been seen at this point of its work.
        self.watched: dict[_Claim, tuple[int, tuple[int, int]]] = {}
        #: The other way round.
        self.watchers: set[_Claim] = set()

    def __lt__(self, other: object) -> bool:
        return False

    def __hash__(self) -> int:
        return id(self) >> 4  # as without __lt__; compiled, what can be compared is not hashed otherwise

    # -- one that waits -------------------------------------------------------------------------------------------

    def begin(self, patient: bool, brief: bool) -> bool:
        """Its consumer wants a message; False if an answer is on its way already."""
        self.brief = brief
        # Its buffer was empty when it said so; what was delivered since may be on its way and is not handed out yet.
        if self.consumer in self._recall.awaiting:
            self.patient = self.patient and patient
            return False
        self.patient = patient
        waits = self.consumer.waiting
        self.lent = self.consumer.begin_waiting()
        if waits:
            self.turns.list_ready(self.consumer)
        else:
            self.turns.wait(self.consumer)
        return True

    def give_up(self) -> None:
        """The answer is nothing, and the application does not go on waiting: nothing shall come later, unasked."""
        if self.brief and self.consumer.waiting:
            self.consumer.stop_waiting(self.lent)
            self.turns.stop_waiting(self.consumer)

    def has_answer(self) -> bool:
        """One of those that were asked has answered. True if the others have, too."""
        self.pending -= 1
        return not self.pending

    def leave(self) -> None:
        """The consumer was closed."""
        for holder in self.watched:
            holder.watchers.discard(self)
        self.watched.clear()
        for waiter in self.watchers:
            waiter.stop_watching(self)
        self.watchers.clear()

    def stop_watching(self, holder: _Claim) -> None:
        """The other one was closed."""
        self.watched.pop(holder, None)

    def on_jump(self, entry: object, by: int) -> None:
        """It does not know when that is."""

    def on_deadline(self, entry: object, when: int, now: int) -> None:
        """Has what others hold back been worked on? Look again, if the consumer still waits."""
        self._looking = False
        if self.consumer.open and self.consumer.waiting and self.consumer not in self._recall.awaiting:
            self._recall.ask(self, now)

    def ask(self, others: Sequence[Consumer], now: int) -> bool:
        """Recall up to as many messages as there is credit, oldest first, at most half of what each other consumer may
        have buffered: so one that works shares with the one that waits, and one that sleeps is emptied in a few
        rounds. True if answers follow."""
        waiter = self.consumer
        wanted = waiter.credit
        look = False
        for holder in others:
            if wanted <= 0:
                break
            if holder is waiter or holder.tag <= holder.handed:
                continue
            half = (holder.tag - max(holder.handed, holder.base) + 1) >> 1
            limit = min(wanted, half)
            claim = self._recall.claim_of(holder)
            if self.patient and not self._is_idle(claim, now):
                tags, older = claim.younger(waiter, limit)
                look = look or older
            else:
                tags = claim.matching(waiter, limit)
            if tags:
                wanted -= len(tags)
                self.pending += 1
                claim.recalled.append((tags, self))
                holder.port.recall(holder.id, tags)
        if look and not self._looking:
            self._looking = True
            self._recall.look_again(self, now)
        return self.pending > 0

    def _is_idle(self, claim: _Claim, now: int) -> bool:
        """True if the holder made no progress since this began to watch it, IDLE_MS ago or more."""
        holder = claim.consumer
        progress = (holder.acknowledged, holder.credit + holder.tag)  # the latter: all credit it was ever granted
        watched = self.watched.get(claim)
        if watched is None or watched[1] != progress or now < watched[0]:  # the latter: the clock was set back
            self.watched[claim] = (now, progress)
            claim.watchers.add(self)
            return False
        return now - watched[0] >= IDLE_MS

    # -- one that holds messages ----------------------------------------------------------------------------------

    def younger(self, waiter: Consumer, limit: int) -> tuple[list[int], bool]:
        """As :meth:`matching`, of messages younger than all that the waiter got; and whether there may be older ones.

        Looks from the young end and stops at the first older message: a window has them mostly in the order of
        arrival."""
        holder, view = self.consumer, waiter.view
        own = view is holder.view or view.condition is None
        end = holder.base + len(holder.window)
        start = max(holder.handed, holder.base, 0 if own else self._looked.get(view, 0))
        # What a selector was tested on is not tested again; what lies before that may be older.
        tested = 0 if own else self._glanced.get(view, 0)
        older = tested > start
        newest = waiter.newest
        out = {tag for tags, _ in self.recalled for tag in tags}
        found: list[int] = []
        for tag, entry in zip(range(end, max(start, tested), -1), reversed(holder.window), strict=False):
            if entry is None or tag in out:
                continue
            if entry.sequence <= newest:
                older = True
                break
            if (self.turns.groups is None or group_of(entry.envelope) is None) and (own or view.matches(entry)):
                found.append(tag)
        if not own and len(found) <= limit:
            (self._glanced if older else self._looked)[view] = end
        return found[::-1][:limit], older

    def matching(self, waiter: Consumer, limit: int) -> list[int]:
        """Tags of up to `limit` messages in the buffer that the waiter may have, oldest first. A message is tested once
        per distinct selector, however often a consumer waits: where the search ended is remembered."""
        holder, view = self.consumer, waiter.view
        own = view is holder.view or view.condition is None
        start = max(holder.handed, holder.base, 0 if own else self._looked.get(view, 0))
        out = {tag for tags, _ in self.recalled for tag in tags}
        found: list[int] = []
        tag = start
        for tag, entry in enumerate(islice(holder.window, start - holder.base, None), start + 1):
            if entry is None or tag in out or (self.turns.groups is not None and group_of(entry.envelope) is not None):
                continue  # a group stays with its owner
            if own or view.matches(entry):
                found.append(tag)
                if len(found) == limit:
                    break
        if not own:
            self._looked[view] = tag
        return found

    def emptied(self) -> None:
        """The window is empty."""
        self._looked.clear()
        self._glanced.clear()


class Recall:
    """What the consumers of one queue that wait ask of the others.

    Args:
        consumers: all of them.
        turns: theirs, by view.
        deadlines: where to be called again.

    Attributes:
        awaiting: consumers whose WANT is not answered yet, though it will be.
    """

    __slots__ = ("_claims", "_consumers", "_deadlines", "_held", "_turns", "awaiting")

    def __init__(self, consumers: Sequence[Consumer], turns: Mapping[View, Turns], deadlines: Deadlines) -> None:
        self._consumers = consumers
        self._turns = turns
        self._deadlines = deadlines
        self._claims: dict[Consumer, _Claim] = {}
        self._held = False
        self.awaiting: set[Consumer] = set()

    @property
    def is_open(self) -> bool:
        """True while a consumer that was asked for messages has not answered."""
        return any(claim.recalled for claim in self._claims.values())

    def claim_of(self, consumer: Consumer) -> _Claim:
        """A consumer's requests, and the requests to it."""
        claim = self._claims.get(consumer)
        if claim is None:
            claim = self._claims[consumer] = _Claim(self, consumer, self._turns[consumer.view])
        return claim

    def begin(self, consumer: Consumer, patient: bool, brief: bool) -> bool:
        """A consumer wants a message, and goes before others from now on; False if an answer is on its way already."""
        return self.claim_of(consumer).begin(patient, brief)

    def want(self, consumer: Consumer, now: int) -> bool:
        """Nothing waits for a consumer that wants a message.

        Returns:
            False if the answer follows; True if there is none.
        """
        claim = self.claim_of(consumer)
        if claim.turns.view.scanning != ALL_SCANNED or self._held:
            self.awaiting.add(consumer)
            return False
        if self.ask(claim, now):
            return False
        claim.give_up()
        return True

    def ask(self, claim: _Claim, now: int) -> bool:
        """Ask others for what one waits for. True if answers follow."""
        if claim.ask(self._consumers, now):
            self.awaiting.add(claim.consumer)
            return True
        return False

    def look_again(self, claim: _Claim, now: int) -> None:
        """Ask once more when others have had time to make progress."""
        self._deadlines.push_span(now + IDLE_MS, claim, claim)

    def answer_with_message(self, consumer: Consumer) -> None:
        """A consumer whose WANT is not answered yet was delivered a message."""
        self.awaiting.remove(consumer)
        consumer.port.settled(consumer.id)

    def answer(self, holder: Consumer, tags: Sequence[int] | None, now: int) -> None:
        """A consumer gave messages back, which may be its answer to a recall.

        Args:
            holder: the consumer.
            tags: what it gave back; None if everything, so that no recall to it is open any more.
            now: ms epoch.
        """
        claim = self._claims.get(holder)
        if claim is None:
            return
        if tags is None:
            claim.emptied()
        recalled = claim.recalled
        while recalled:
            asked, waiter = recalled[0]
            if tags is not None:
                if tags and not set(asked).intersection(tags):
                    return  # given back for another reason; the answer is still to come
                kept = set(asked).difference(tags)
                if kept:  # not in its buffer any more: handed to the application, and so is all before
                    holder.note_handed(max(kept))
            recalled.popleft()
            if waiter.has_answer() and waiter.consumer in self.awaiting and waiter.consumer.open:
                self._ask_on(waiter, now)
            if tags is not None:
                return

    def leave(self, consumer: Consumer, now: int) -> None:
        """A consumer was closed: what waits for its answer waits no longer."""
        consumer.halt()
        self.awaiting.discard(consumer)
        claim = self._claims.get(consumer)
        if claim is not None:
            claim.leave()
            self.answer(consumer, None, now)
            del self._claims[consumer]

    def scanned(self, turns: Turns, now: int) -> None:
        """A view knows the whole backlog: consumers that still wait there can be answered."""
        for consumer in [one for one in turns.consumers if one in self.awaiting] if self.awaiting else ():
            claim = self._claims.get(consumer)
            if claim is not None and not claim.pending:
                self._ask_on(claim, now)

    def clear(self) -> None:
        """The queue is deleted: there are no further requests and answers."""
        self._claims.clear()
        self.awaiting.clear()

    def hold(self) -> None:
        """A batch is being published: a WANT is answered when it is complete."""
        self._held = True

    def release(self) -> None:
        """The batch is complete."""
        self._held = False

    def _ask_on(self, claim: _Claim, now: int) -> None:
        if claim.turns.view.scanning == ALL_SCANNED and not self._held and not self.ask(claim, now):
            self.awaiting.remove(claim.consumer)
            claim.give_up()
            claim.consumer.port.settled(claim.consumer.id)
