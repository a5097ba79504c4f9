"""No consumer starves (MCO-14, D-23): messages that idle consumers have buffered are recalled for one that waits.

consumer.want ── served from the queue ───────────────────────────────► answered at once
      └── others hold matching messages that they may not have handed to their application
             └── RECALL to them; each answers RELEASE, with what was still in its buffer
                    ├── a message came back: it goes to the waiting consumer, and answers its WANT
                    └── all answered and there is none: ask for later messages, or answer

**Order** (ORD-01). A consumer that waits, as listeners and `receive` do, should not get messages older than its last
one while another consumer works on these. So its WANT is patient: younger messages are recalled at once, older ones
only from a consumer that makes no progress for IDLE_MS. A WANT that needs an answer at once (`receive_no_wait`, MCO-05)
is not patient.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Generator, Mapping, Sequence
from itertools import islice
from typing import Final

from sievemq_broker.domain.consumer import Consumer
from sievemq_broker.domain.deadlines import Deadlines
from sievemq_broker.domain.entry import DELAYED, Entry
from sievemq_broker.domain.turns import Turns, group_of
from sievemq_broker.domain.view import ALL_SCANNED, View
from sievemq_broker.matching.condition import units

#: A consumer that has neither acknowledged anything nor been granted credit for this many ms makes no progress. That is
#: long for a handler of thousands of messages, and short for a waiting user.
IDLE_MS: Final = 50

#: Units (condition.units) spent at once on searching buffers: a millisecond or two. More is pending work.
SEARCHED: Final = 500

#: Messages that are recalled from a consumer at a time.
RECALLED: Final = 4_000

#: Younger messages of which the oldest are recalled.
YOUNGER: Final = 8_000


class _Search:
    """The messages of a buffer that a view may have, as far as the buffer has been searched.

    Attributes:
        low: the search begins behind this tag.
        newest: a consumer whose latest message has a lower sequence needs a search of all messages.
        upto: the last tag that was searched.
        found: the matching messages by tag, oldest first; some may be gone meanwhile.
    """

    __slots__ = ("found", "low", "newest", "upto")

    def __init__(self) -> None:
        self.low = self.newest = self.upto = 0
        self.found: dict[int, Entry] = {}

    def begin_behind(self, tag: int, newest: int) -> None:
        """Messages up to this tag need not be searched for a consumer that has received the one with this sequence."""
        self.low = self.upto = tag
        self.newest = newest
        self.found.clear()

    def reach(self, tag: int) -> None:
        """The buffer has been searched up to this tag."""
        self.upto = tag

    def find(self, tag: int, entry: Entry) -> None:
        self.found[tag] = entry

    def drop(self, tags: list[int]) -> None:
        for tag in tags:
            del self.found[tag]


class _Claim:
    """The requests of one consumer to others, and of others to it.

    Attributes:
        brief: it stops waiting when its WANT is answered.
        lent: its WANT arrived without credit, so one credit was lent.
        patient: older messages are left to consumers that work on them.
        pending: unanswered recalls from others on its behalf.
        recalled: unanswered recalls from it: tags, and the consumer that waits for them; answered in this order.
    """

    __slots__ = (
        "_looking", "_recall", "_searches", "_young", "brief", "consumer", "lent", "patient", "pending", "recalled",
        "turns", "watched", "watchers",
    )  # fmt: skip

    #: What :class:`Deadlines` needs of an item: never void, and before the messages of the same millisecond.
    state: Final = DELAYED
    sequence: Final = 0

    def __init__(self, recall: Recall, consumer: Consumer, turns: Turns) -> None:
        self._recall = recall
        self.consumer = consumer
        self.turns = turns
        self.brief = self.lent = self.patient = False
        self.pending = 0
        self.recalled: deque[tuple[list[int], _Claim]] = deque()
        #: By view that does not get everything this one gets, and whether groups stay with their owners: searches of
        #: all messages, and of those younger than what the waiting consumer got.
        self._searches: defaultdict[tuple[View, bool], _Search] = defaultdict(_Search)
        self._young: defaultdict[tuple[View, bool], _Search] = defaultdict(_Search)
        #: True while a deadline is set to search again in the buffers of others; there is one at most.
        self._looking = False
        #: By other consumer: the time (ms epoch) since which it has made no progress.
        self.watched: dict[_Claim, tuple[int, tuple[int, int]]] = {}
        #: The reverse.
        self.watchers: set[_Claim] = set()

    def __lt__(self, other: object) -> bool:
        return False

    def __hash__(self) -> int:
        return id(self) >> 4  # the default; a compiled class with an order has no hash otherwise

    # -- one that waits -------------------------------------------------------------------------------------------

    def begin(self, patient: bool, brief: bool) -> bool:
        """Its consumer wants a message. False if an answer is under way already."""
        self.brief = brief
        # Its buffer was empty when it sent the request; later deliveries may be on their way and not handed out yet.
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
        """End a wait without a message; the application waits no longer, so nothing may be delivered later,
        unasked."""
        if self.brief and self.consumer.waiting:
            self.consumer.stop_waiting(self.lent)
            self.turns.stop_waiting(self.consumer)

    def has_answer(self) -> bool:
        """Another consumer has answered. True if all have."""
        self.pending -= 1
        return not self.pending

    def leave(self) -> None:
        """Its consumer was closed."""
        for holder in self.watched:
            holder.watchers.discard(self)
        self.watched.clear()
        for waiter in self.watchers:
            waiter.stop_watching(self)
        self.watchers.clear()

    def stop_watching(self, holder: _Claim) -> None:
        """Another consumer was closed."""
        self.watched.pop(holder, None)

    def on_jump(self, entry: object, by: int) -> None:
        """Do nothing: no time of the calendar is stored."""

    def on_deadline(self, entry: object, when: int, now: int) -> None:
        """Search again in the buffers of consumers that work, if this consumer still waits."""
        self._looking = False
        if self.consumer.open and self.consumer.waiting and self.consumer not in self._recall.awaiting:
            self._recall.ask(self, now)

    def ask(self, others: Sequence[Consumer], now: int, budget: int) -> tuple[bool, int]:
        """Recall up to as many messages as there is credit, oldest first, at most half of what each other consumer may
        have buffered. So a consumer that works shares with the one that waits, and one that hangs is emptied in a few
        rounds.

        Args:
            now: ms epoch.

        Returns:
            True if answers follow, and what is left of the budget. If nothing is left, call again: not all has been
            searched.
        """
        waiter = self.consumer
        wanted = waiter.credit
        look = False
        for holder in others:
            if wanted <= 0:
                break
            if holder is waiter or holder.tag <= holder.handed:
                continue
            half = (holder.tag - max(holder.handed, holder.base) + 1) >> 1
            limit = min(wanted, half, RECALLED)
            claim = self._recall.claim_of(holder)
            newest = waiter.newest if self.patient and not self._is_idle(claim, now) else None
            search, budget = claim.search(waiter.view, newest, budget)
            if budget <= 0:
                break
            if newest is None:
                tags = claim.matching(search, limit)
            else:
                tags, older = claim.younger(search, newest, limit)
                look = look or older
            if tags:
                wanted -= len(tags)
                self.pending += 1
                claim.recalled.append((tags, self))
                holder.port.recall(holder.id, tags)
        if look and not self._looking:
            self._looking = True
            self._recall.look_again(self, now)
        return self.pending > 0, budget

    def _is_idle(self, claim: _Claim, now: int) -> bool:
        """True if the holder has made no progress for IDLE_MS or more."""
        holder = claim.consumer
        granted = holder.credit + holder.withheld + holder.tag  # all credit it was ever granted
        progress = (holder.acknowledged, granted)
        watched = self.watched.get(claim)
        if watched is None or watched[1] != progress or now < watched[0]:  # the latter: the clock was set back
            self.watched[claim] = (now, progress)
            claim.watchers.add(self)
            return False
        return now - watched[0] >= IDLE_MS

    # -- one that holds messages ----------------------------------------------------------------------------------

    def search(self, view: View, newest: int | None, budget: int) -> tuple[_Search | None, int]:
        """Find the messages in the buffer that a view may have. A group stays with its owner. Each message is tested
        at most twice per distinct selector, however often a consumer waits.

        Args:
            newest: only messages with a higher sequence are needed; None for all.

        Returns:
            The search, None if the view gets everything; and what is left of the budget, 0 or less if not all has been
            searched.
        """
        holder = self.consumer
        grouped, condition = self.turns.groups is not None, view.condition
        own = view is holder.view or condition is None
        if own and not grouped:
            return None, budget
        search = self._search_of(view, grouped, newest)
        start = max(holder.handed, holder.base, search.upto)
        if start >= holder.tag:
            return search, budget
        for tag, entry in enumerate(islice(holder.window, start - holder.base, None), start + 1):
            if budget <= 0:
                return search, budget
            search.reach(tag)
            budget -= 1
            if entry is None:
                continue
            envelope = entry.envelope
            if condition is not None and not own:
                budget -= units(condition, envelope)
            if (not grouped or group_of(envelope) is None) and (own or view.matches(entry)):
                search.find(tag, entry)
            envelope.compact()
        return search, max(1, budget)

    def _search_of(self, view: View, grouped: bool, newest: int | None) -> _Search:
        """The search for a view. If only messages younger than `newest` are needed, it begins behind the last older
        one, since a window is mostly in the order of arrival."""
        if newest:
            young = self._young[view, grouped]
            if newest >= young.newest:
                holder = self.consumer
                start = max(holder.handed, holder.base, young.upto)
                for tag, entry in zip(range(holder.tag, start, -1), reversed(holder.window), strict=False):
                    if entry is not None and entry.sequence <= newest:
                        young.begin_behind(tag, newest)
                        break
                return young
        return self._searches[view, grouped]

    def _buffered(self, search: _Search | None, young: bool) -> Generator[tuple[int, Entry], None, None]:
        """Tags of messages in the buffer that a search has found, from the young end or the old one."""
        holder = self.consumer
        base, window = holder.base, holder.window
        start, end = max(holder.handed, base), base + len(window)
        out = {tag for tags, _ in self.recalled for tag in tags}
        if search is None:
            tags = range(end, start, -1) if young else range(start + 1, end + 1)
            entries = reversed(window) if young else islice(window, start - base, None)
            for tag, entry in zip(tags, entries, strict=False):
                if entry is not None and tag not in out:
                    yield tag, entry
            return
        gone: list[int] = []
        try:
            for tag, entry in reversed(search.found.items()) if young else search.found.items():
                if not start < tag <= end or window[tag - base - 1] is not entry:
                    gone.append(tag)
                elif tag not in out:
                    yield tag, entry
        finally:
            search.drop(gone)

    def younger(self, search: _Search | None, newest: int, limit: int) -> tuple[list[int], bool]:
        """As :meth:`matching`, for messages with a sequence above `newest`; and whether there may be older ones.
        Begins at the young end and stops at the first older message, since a window is mostly in the order of
        arrival."""
        holder = self.consumer
        found: list[int] = []
        older = search is not None and search.low > max(holder.handed, holder.base)
        if search is not None and not search.found:
            return found, older
        buffered = self._buffered(search, True)
        for tag, entry in buffered:
            if entry.sequence <= newest or len(found) == YOUNGER:
                older = True
                break
            found.append(tag)
        buffered.close()
        return found[::-1][:limit], older

    def matching(self, search: _Search | None, limit: int) -> list[int]:
        """Tags of up to `limit` messages in the buffer that the waiting consumer may have, oldest first."""
        buffered = self._buffered(search, False)
        found = [tag for tag, _ in islice(buffered, limit)]
        buffered.close()
        return found

    def emptied(self) -> None:
        """The window is empty."""
        self._searches.clear()
        self._young.clear()


class Recall:
    """The requests between the consumers of one queue.

    Args:
        on_pending: called when there is pending work.

    Attributes:
        awaiting: consumers whose WANT will be answered later.
    """

    __slots__ = ("_claims", "_consumers", "_deadlines", "_held", "_on_pending", "_turns", "_unfinished", "awaiting")

    def __init__(
        self,
        consumers: Sequence[Consumer],
        turns: Mapping[View, Turns],
        deadlines: Deadlines,
        on_pending: Callable[[], None],
    ) -> None:
        self._consumers = consumers
        self._turns = turns
        self._deadlines = deadlines
        self._claims: dict[Consumer, _Claim] = {}
        self._on_pending: Callable[[], None] | None = on_pending
        #: Consumers that wait until more of the others' buffers is searched.
        self._unfinished: dict[_Claim, None] = {}
        self._held = False
        self.awaiting: set[Consumer] = set()

    @property
    def is_open(self) -> bool:
        return any(claim.recalled for claim in self._claims.values())

    def claim_of(self, consumer: Consumer) -> _Claim:
        claim = self._claims.get(consumer)
        if claim is None:
            claim = self._claims[consumer] = _Claim(self, consumer, self._turns[consumer.view])
        return claim

    def begin(self, consumer: Consumer, patient: bool, brief: bool) -> bool:
        """A consumer wants a message, and is served before others from now on. False if an answer is under way
        already."""
        return self.claim_of(consumer).begin(patient, brief)

    def want(self, consumer: Consumer, now: int) -> bool:
        """A consumer wants a message, and was delivered none.

        Returns:
            False if the answer follows; True if there is none.
        """
        claim = self.claim_of(consumer)
        if self._is_open(claim):
            self.awaiting.add(consumer)
            return False
        if self.ask(claim, now):
            return False
        claim.give_up()
        return True

    def _is_open(self, claim: _Claim) -> bool:
        """True if the queue may still have a message for a consumer: not all were looked at, or delivered."""
        if claim.turns.view.scanning != ALL_SCANNED or self._held:
            return True
        consumer = claim.consumer
        if not consumer.port.writable:
            consumer.port.hold_back(consumer.id)
        return not consumer.port.writable

    def ask(self, claim: _Claim, now: int) -> bool:
        """Recall messages from other consumers for one that waits. True if answers follow."""
        return self._ask(claim, now, SEARCHED)[0]

    def _ask(self, claim: _Claim, now: int, budget: int) -> tuple[bool, int]:
        follows, left = claim.ask(self._consumers, now, budget)
        if not follows and left <= 0:
            if not self._unfinished and self._on_pending is not None:
                self._on_pending()
            self._unfinished[claim] = None
            follows = True
        if follows:
            self.awaiting.add(claim.consumer)
        return follows, left

    @property
    def searching(self) -> bool:
        """True if there is pending work for :meth:`work`."""
        return bool(self._unfinished)

    def work(self, budget: int, now: int) -> int:
        """Go on searching the buffers of consumers. Returns the cost, in units."""
        left = budget = min(budget, SEARCHED)
        while self._unfinished and left > 0:
            claim = next(iter(self._unfinished))
            del self._unfinished[claim]
            left -= 1
            if claim.consumer.open and claim.consumer in self.awaiting and not claim.pending:
                left = self._ask_on(claim, now, left)
        return budget - left

    def look_again(self, claim: _Claim, now: int) -> None:
        """Ask again, since other consumers have had time to make progress."""
        self._deadlines.push_span(now + IDLE_MS, claim, claim)

    def answer_with_message(self, consumer: Consumer) -> None:
        """A message was delivered to a consumer whose WANT was not answered yet."""
        self.awaiting.remove(consumer)
        consumer.port.settled(consumer.id)

    def answer(self, holder: Consumer, tags: Sequence[int] | None, now: int) -> None:
        """A consumer returned messages, which may be its answer to a recall.

        Args:
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
                    return  # returned for another reason; the answer is still to come
                kept = set(asked).difference(tags)
                if kept:  # no longer in its buffer: the application has it, and all before it
                    holder.note_handed(max(kept))
            recalled.popleft()
            if waiter.has_answer() and waiter.consumer in self.awaiting and waiter.consumer.open:
                self._ask_on(waiter, now)
            if tags is not None:
                return

    def leave(self, consumer: Consumer, now: int) -> None:
        """A consumer was closed: others no longer wait for its answer."""
        consumer.halt()
        self.awaiting.discard(consumer)
        claim = self._claims.get(consumer)
        if claim is not None:
            claim.leave()
            self.answer(consumer, None, now)
            del self._claims[consumer]

    def scanned(self, turns: Turns, now: int) -> None:
        """A view has everything from the backlog: consumers that still wait there can be answered."""
        for consumer in [one for one in turns.consumers if one in self.awaiting] if self.awaiting else ():
            claim = self._claims.get(consumer)
            if claim is not None and not claim.pending:
                self._ask_on(claim, now)

    def resumed(self, consumer: Consumer, now: int) -> None:
        """The port of a consumer is writable again, and it was delivered what there is: it can be answered."""
        if consumer in self.awaiting:
            claim = self._claims[consumer]
            if not claim.pending:
                self._ask_on(claim, now)

    def clear(self) -> None:
        """The queue is deleted: drop all requests and answers."""
        self._claims.clear()
        self._unfinished.clear()
        self._on_pending = None
        self.awaiting.clear()

    def hold(self) -> None:
        """A batch is being published: a WANT is answered when it is complete."""
        self._held = True

    def release(self) -> None:
        """The batch is complete."""
        self._held = False

    def _ask_on(self, claim: _Claim, now: int, budget: int = SEARCHED) -> int:
        """Ask again for a consumer that waits, or answer it. Returns what is left of the budget."""
        if self._is_open(claim):
            return budget
        follows, budget = self._ask(claim, now, budget)
        if not follows:
            self.awaiting.remove(claim.consumer)
            claim.give_up()
            claim.consumer.port.settled(claim.consumer.id)
        return budget
