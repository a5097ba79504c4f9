"""The end of a turn, what it has time for (decision 0026), and the poll for input before the loop blocks (0022)."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest

from sievemq_broker.server.net import turn as module
from sievemq_broker.server.net.turn import PIECE_SECONDS, TURN_SECONDS, TURNS_AT_ONCE, WRITE_SECONDS, Turn


class Loop:
    """A loop whose clock and callbacks are the test's."""

    def __init__(self) -> None:
        self.now = 1.0
        self.ready: deque[asyncio.Handle] = deque()
        self.faults: list[str] = []

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        self.faults.append(str(context["exception"]))

    def time(self) -> float:
        return self.now

    def call_soon(self, callback: Callable[[], Any]) -> asyncio.Handle:
        self.ready.append(handle := asyncio.Handle(callback, (), self))  # type: ignore[arg-type]
        return handle

    def get_debug(self) -> bool:
        return False

    def run(self) -> bool:
        """What is ready now; False if nothing is, and the loop would sleep."""
        for _ in range(count := len(self.ready)):
            handle = self.ready.popleft()
            if not handle.cancelled():
                handle._run()
        return count > 0


class Writer:
    dirty = False
    commits = None

    def flush(self) -> None:
        self.dirty = False


class Stage:
    """A turn object on a loop, and a processor that others may want."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.loop = Loop()
        self.gave_way = 0
        monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=self.loop.time))
        monkeypatch.setattr(module, "_give_way", self.give_way)

    def make(self, busy_poll: int) -> Turn:
        return Turn(self.loop, busy_poll)  # type: ignore[arg-type]

    def give_way(self) -> None:
        self.gave_way += 1
        self.loop.now += 10e-6

    def feed(self, turn: Turn, after: float) -> None:
        """Something comes so many seconds after now, and is carried out."""
        self.loop.now += after
        turn.mark(Writer())
        assert self.loop.run()

    def looks(self) -> int:
        """How often the loop looks until it sleeps."""
        before = self.gave_way
        for _ in range(1_000):
            if not self.loop.run():
                return self.gave_way - before
        raise AssertionError("it never sleeps")


@pytest.fixture
def stage(monkeypatch: pytest.MonkeyPatch) -> Stage:
    return Stage(monkeypatch)


def test_the_loop_polls_for_the_configured_time_behind_each_turn(stage: Stage) -> None:
    turn = stage.make(200)
    for after in (1.0, 100e-6, 300e-6):
        stage.feed(turn, after)
        assert stage.looks() == 20


def test_input_during_a_poll_is_a_turn_and_extends_the_poll(stage: Stage) -> None:
    turn = stage.make(200)
    stage.feed(turn, 1.0)
    for _ in range(50):
        assert stage.loop.run()
        assert stage.loop.run()
        turn.mark(Writer())
        assert stage.loop.run()
        assert len(stage.loop.ready) == 1, "one look is under way, not one for each turn"
    assert stage.looks() > 0


def test_zero_is_never(stage: Stage) -> None:
    turn = stage.make(0)
    for _ in range(3):
        stage.feed(turn, 10e-6)
        assert stage.looks() == 0


# -- what a turn has time for ----------------------------------------------------------------------------------------


class Slow:
    """A link that takes its time to write, and may have more to be carried out."""

    commits = None

    def __init__(self, stage: Stage, name: str = "", seconds: float = 0.0) -> None:
        self.stage, self.name, self.seconds = stage, name, seconds
        self.dirty = False
        self.flushed = 0
        self.caught_up = 0

    def flush(self) -> None:
        self.dirty = False
        self.flushed += 1
        self.stage.loop.now += self.seconds

    def catch_up(self) -> None:
        self.caught_up += 1
        self.stage.loop.now += PIECE_SECONDS


def test_a_turn_writes_within_its_time_and_the_next_flushes_the_rest(stage: Stage) -> None:
    turn = stage.make(0)
    links = [Slow(stage, seconds=0.001) for _ in range(100)]
    for link in links:
        turn.mark(link)
    written = []
    while stage.loop.run():
        written.append(sum(link.flushed for link in links))
    first = round((TURN_SECONDS + WRITE_SECONDS) / 0.001) + 1
    assert written[0] == first
    assert [later - earlier for earlier, later in pairwise(written)][:-1] == [first] * (len(written) - 2)
    assert [link.flushed for link in links] == [1] * 100
    assert turn.latency.count == len(written)


def test_a_link_is_flushed_in_every_turn_however_long(stage: Stage) -> None:
    turn = stage.make(0)
    receives, asks = [Slow(stage, seconds=1.0) for _ in range(3)], [Slow(stage, seconds=1.0) for _ in range(2)]
    for link in receives:
        turn.mark(link)
    for link in asks:
        turn.fed(link)
    stage.loop.now += 10.0
    # one of each kind, as long as there are both
    for heard, asked in ((1, 1), (2, 2), (3, 2)):
        assert stage.loop.run()
        assert sum(link.flushed for link in receives) == heard
        assert sum(link.flushed for link in asks) == asked
    assert not stage.loop.run()


def test_requests_are_answered_before_fan_out_only_links(stage: Stage) -> None:
    turn = stage.make(0)
    hearers = [Slow(stage, seconds=0.001) for _ in range(100)]
    asks = Slow(stage)
    for link in hearers:
        turn.mark(link)
    stage.loop.run()
    assert not all(link.flushed for link in hearers)
    turn.fed(asks)
    stage.loop.run()
    assert asks.flushed == 1
    assert not all(link.flushed for link in hearers)


def test_a_request_is_answered_before_fan_out_also_where_its_link_has_output_already(stage: Stage) -> None:
    turn = stage.make(0)
    hearers = [Slow(stage, seconds=0.001) for _ in range(100)]
    for link in hearers:
        turn.mark(link)
    turn.fed(hearers[-1])
    turn.mark(hearers[-1])
    stage.loop.run()
    assert hearers[-1].flushed == 1
    while stage.loop.run():
        pass
    assert [link.flushed for link in hearers] == [1] * 100


def test_requests_whose_answers_a_turn_had_no_time_for_come_first_in_the_next(stage: Stage) -> None:
    turn = stage.make(0)
    asks = [Slow(stage, seconds=0.004) for _ in range(3)]
    hearers = [Slow(stage, seconds=0.001) for _ in range(100)]
    for link in asks:
        turn.fed(link)
    for link in hearers:
        turn.mark(link)
    stage.loop.run()
    assert [link.flushed for link in asks] == [1, 1, 0]
    assert turn.has(asks[2])
    stage.loop.run()
    assert [link.flushed for link in asks] == [1, 1, 1]
    assert not turn.has(asks[2])


def test_links_note_their_commands_with_the_store_of_their_shard(stage: Stage) -> None:
    class Store:
        """The part of the writes to a store that a turn knows."""

        def __init__(self) -> None:
            self.calls: list[tuple[str, str]] = []

        def work_on_with(self, worked: Callable[[], None]) -> None:
            """The turn goes on with verbs that waited for a write."""

        def fed(self, peer: str) -> None:
            self.calls.append(("fed", peer))

        def note(self, peer: str) -> None:
            self.calls.append(("note", peer))

        def end_turn(self) -> None:
            self.calls.append(("end", ""))

        def give_way(self) -> None:
            assert self.calls[-1] == ("end", "")

    stores = Store(), Store()
    turn = Turn(stage.loop, 0, commits=stores)  # type: ignore[arg-type]
    for number, store in enumerate((*stores, None)):
        link: Any = Slow(stage)
        link.commits, link.connection = store, SimpleNamespace(peer=f"peer {number}")
        turn.fed(link)
        turn.mark(link)
    stage.loop.run()
    for number, store in enumerate(stores):
        assert store.calls == [("fed", f"peer {number}"), ("note", f"peer {number}"), ("end", "")]


def test_output_queued_during_a_flush_is_written_in_the_next_turn(stage: Stage) -> None:
    turn = stage.make(0)
    first, second = Slow(stage), Slow(stage)
    first.flush = lambda: (setattr(first, "dirty", False), turn.mark(second))  # type: ignore[method-assign]
    turn.mark(first)
    stage.loop.run()
    assert not second.flushed
    stage.loop.run()
    assert second.flushed == 1
    assert not stage.loop.run()


def test_late_links_share_a_slice_of_a_turn_and_the_rest_serves_present_ones(stage: Stage) -> None:
    turn = stage.make(0)
    late = [Slow(stage) for _ in range(3)]
    for link in late:
        turn.put_off(link, brief=False)
    for count in (1, 2, 3):
        stage.loop.ready.popleft()._run()  # they catch up
        assert sum(link.caught_up for link in late) == count
        assert turn.grant(), "there is time left for somebody else"
        assert not turn.spent()
        stage.loop.now += PIECE_SECONDS + 1e-6
        assert turn.spent()
        assert not turn.grant(), "and for nobody else"
        stage.loop.ready.popleft()._run()  # the turn's end
        stage.loop.now += 1.0
    assert not turn.late
    assert not stage.loop.ready


def test_late_links_have_their_time_however_long_writes_take(stage: Stage) -> None:
    """A link with more to deliver is marked by its flush: the next turn begins when the writes of this one are done."""
    turn = stage.make(0)

    def flush(link: Slow) -> None:
        turn.mark(link)
        stage.loop.now += 0.001

    for _ in range(10):
        hearer = Slow(stage)
        hearer.flush = lambda link=hearer: flush(link)  # type: ignore[method-assign, misc]
        turn.mark(hearer)
    late = [Slow(stage) for _ in range(4)]
    for number, link in enumerate(late):
        turn.put_off(link, brief=number < 2)
    for _ in range(5):
        stage.loop.run()
    assert all(link.caught_up for link in late)


def test_short_backlogs_are_served_before_floods(stage: Stage) -> None:
    turn = stage.make(0)
    order: list[str] = []
    for kind in ("much", "little"):
        for number in range(4):
            link = Slow(stage, f"{kind} {number}")
            link.catch_up = lambda name=link.name: order.append(name)  # type: ignore[method-assign, misc]
            turn.put_off(link, brief=kind == "little")
    assert turn.late
    stage.loop.run()
    assert order == [f"{kind} {number}" for kind in ("little", "much") for number in range(4)]
    assert not turn.late


def test_a_short_backlog_is_served_in_a_turn_that_others_have_begun(stage: Stage) -> None:
    turn = stage.make(0)
    served: list[float] = []
    for _ in range(2):
        little = Slow(stage)
        little.catch_up = lambda: served.append(stage.loop.now)  # type: ignore[method-assign]
        turn.put_off(little, brief=True)
    assert turn.grant()
    stage.loop.now = late = stage.loop.now + PIECE_SECONDS
    turn._catch_up()
    assert served == [late]


def test_floods_do_not_starve_beside_short_backlogs(stage: Stage) -> None:
    turn = stage.make(0)
    much = Slow(stage)

    def catch_up() -> None:
        stage.loop.now += PIECE_SECONDS
        turn.put_off(little, brief=True)

    for _ in range(10):
        little = Slow(stage)
        little.catch_up = catch_up  # type: ignore[method-assign]
        turn.put_off(little, brief=True)
    turn.put_off(much, brief=False)
    stage.loop.run()
    assert much.caught_up


@pytest.mark.parametrize("brief", [True, False])
def test_a_fault_of_a_late_link_does_not_end_the_turns_of_others(stage: Stage, brief: bool) -> None:
    turn = stage.make(0)
    faulty, other = Slow(stage), Slow(stage)

    def fail() -> None:
        raise ZeroDivisionError("a bug")

    faulty.catch_up = fail  # type: ignore[method-assign]
    for link in (faulty, other):
        turn.put_off(link, brief=brief)
    stage.loop.run()
    stage.loop.run()
    assert stage.loop.faults == ["a bug"]
    assert other.caught_up


def test_a_grant_ends_with_the_turn(stage: Stage) -> None:
    turn = stage.make(0)
    assert turn.grant()
    stage.loop.now += TURN_SECONDS - PIECE_SECONDS / 2
    assert turn.grant()
    stage.loop.now += PIECE_SECONDS / 2 + 1e-6
    assert turn.spent()
    stage.loop.run()
    assert turn.grant()
    assert turn.latency.last == pytest.approx(TURN_SECONDS, rel=1e-3)


def test_a_grant_ends_before_output_is_written(stage: Stage) -> None:
    """A flush carries out one frame that has waited: it must not use the rest of the grant."""
    turn = stage.make(0)
    link = Slow(stage)
    spent: list[bool] = []
    link.flush = lambda: spent.append(turn.spent())  # type: ignore[method-assign]
    assert turn.grant()
    turn.fed(link)
    assert not turn.spent()
    stage.loop.run()
    assert spent == [True]


def test_an_end_that_was_not_scheduled_says_nothing_of_how_long_turns_are(stage: Stage) -> None:
    """The clock was moved: what became due goes out at once."""
    turn = stage.make(0)
    stage.feed(turn, 0.0)
    stage.loop.now += 100.0
    turn.end()
    assert turn.latency.last == 0.0


def test_a_turn_that_is_ended_at_once_is_not_ended_again(stage: Stage) -> None:
    """Otherwise each would add an end to every later turn of the loop, as long as links have output."""
    turn = stage.make(0)
    for _ in range(5):
        turn.mark(Slow(stage, seconds=2 * TURN_SECONDS))
        turn.mark(Slow(stage, seconds=2 * TURN_SECONDS))
        turn.end()
    before = stage.loop.now
    stage.loop.run()
    assert stage.loop.now - before == pytest.approx(2 * TURN_SECONDS), "one link is flushed in each turn"
    assert len(stage.loop.ready) == 1


def test_every_turn_is_counted_once_however_seldom_the_histogram_is_read(stage: Stage) -> None:
    turn = stage.make(0)
    turns = 2 * TURNS_AT_ONCE + 1
    for _ in range(turns):
        stage.feed(turn, 0.0)
        stage.loop.run()
    assert len(turn._durations) == 1
    assert turn.latency.count == turns
    assert turn.latency.count == turns
