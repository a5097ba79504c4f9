"""Where namespaces are: claims, assignments, and what handshakes wait for. Loop, thread and tables are the test's."""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections import deque
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest
from tests.broker.store.placing import DictPlaces, Tables

from sievemq_broker.domain.store import StoreError
from sievemq_broker.server import placement
from sievemq_broker.server.placement import Placement, Where, choose, elsewhere, fits, url_of
from sievemq_broker.store.lease import Owner
from sievemq_core.errors import ErrorCode, RequestError, SieveError

SHARDS = ("a", "b", "c")


class Rig:
    """The loop and the thread of one broker, and its placement. The thread makes a call when the test says so."""

    def __init__(self, tables: Tables, shard: str = "a", names: tuple[str, ...] = ()) -> None:
        self.tables = tables
        self.time = 0.0
        self._soon: deque[Callable[[], object]] = deque()
        self._timers: list[tuple[float, int, Any, Callable[[], object]]] = []
        self._number = itertools.count()
        self.thread: deque[Callable[[], None]] = deque()
        self.places = DictPlaces(tables)
        self.uses: dict[str, str] = {}
        self.dropped: list[str] = []
        #: Drops that are not stored yet; None if each is at once.
        self.unstored: list[Callable[[], None]] | None = None
        worker = SimpleNamespace(put=self.thread.append, end=self.create_future)
        self.placement = Placement(
            cast("Any", self), self.places, SHARDS, cast("Any", self), cast("Any", worker), 5.0, {7672}
        )
        if shard:
            tables.own(shard, f"token of {shard}", f"sievemq://{shard}:7672", f"http://{shard}:7680")
            owned = self.placement.own(shard, f"token of {shard}", names)
            self.run()
            owned.result()

    # -- the loop

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)  # type: ignore[arg-type]

    def get_debug(self) -> bool:
        return False

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """A future that failed, and that the test does not look at."""

    def call_soon(self, act: Callable[..., object], *args: object, context: object = None) -> None:
        self._soon.append(lambda: act(*args))

    call_soon_threadsafe = call_soon

    def call_later(self, delay: float, act: Callable[..., object], *args: object) -> Any:
        timer = SimpleNamespace(cancelled=False)
        timer.cancel = lambda: setattr(timer, "cancelled", True)
        heapq.heappush(self._timers, (self.time + delay, next(self._number), timer, lambda: act(*args)))
        return timer

    def turn(self) -> None:
        """What is due now in the loop, and not what follows from that."""
        for _ in range(len(self._soon)):
            self._soon.popleft()()

    def run(self) -> None:
        """Until nothing is to be done, but for timers."""
        while self._soon or self.thread:
            self.turn()
            if self.thread:
                self.thread.popleft()()

    def wait(self, seconds: float) -> None:
        end = self.time + seconds
        self.run()
        while self._timers and self._timers[0][0] <= end:
            self.time, _, timer, act = heapq.heappop(self._timers)
            if not timer.cancelled:
                act()
            self.run()
        self.time = end

    # -- the namespaces

    def use_of(self, namespace: str) -> str | None:
        return self.uses.get(namespace)

    def drop(self, namespace: str, then: Callable[[], None]) -> None:
        self.dropped.append(namespace)
        if self.unstored is None:
            then()
        else:
            self.unstored.append(then)

    # -- the verbs

    def claim(self, name: str, instead: str = "") -> Where:
        asked = self.placement.claim(name, instead)
        self.run()
        return asked.result()

    def assign(self, name: str, shard: str | None) -> Where:
        asked = self.placement.assign(name, shard)
        self.run()
        return asked.result()

    def enter(self, name: str, instead: str = "", protocol: str = "sieve", port: int = 7672) -> list[Any]:
        """What a client learns, once it does."""
        told: list[Any] = []
        at_once = self.placement.enter(name, instead, protocol, port, told.append)
        return told if at_once is None else [at_once]


@pytest.fixture
def tables() -> Tables:
    return Tables()


def refusal(asked: asyncio.Future[Any]) -> RequestError:
    error = asked.exception()
    assert isinstance(error, RequestError)
    return error


def test_a_new_name_gets_one_shard_whoever_asks(tables: Tables) -> None:
    a, b, c = (Rig(tables, shard) for shard in SHARDS)
    for number in range(20):
        places = {rig.claim(f"space{number}").shard for rig in (a, b, c)}
        assert places == {tables.rows[f"space{number}"]}
        here = [rig.placement.here(f"space{number}") for rig in (a, b, c)]
        assert here == [shard in places for shard in SHARDS]
    assert set(tables.rows.values()) == set(SHARDS)


def test_two_brokers_claim_a_name_at_once(tables: Tables) -> None:
    """One of them has seen no pattern yet: the row decides."""
    a, b = Rig(tables, "a"), Rig(tables, "b")
    raced: list[Where] = []

    def race(call: str) -> None:
        if call == "claim" and not raced:
            tables.patterns["new*"] = "b"
            raced.append(b.claim("new one"))

    tables.patterns["new*"] = "a"
    a.places.before = race
    assert a.claim("new one").shard == raced[0].shard == "b"
    assert not a.placement.here("new one")
    assert b.placement.here("new one")


def test_what_is_here_is_known_without_a_query(tables: Tables) -> None:
    tables.rows |= {"mine": "a", "theirs": "b"}
    a = Rig(tables, "a", ("old",))
    calls = list(a.places.calls)
    assert a.enter("mine") == ["mine"]
    assert a.enter("old") == ["old"]
    assert a.places.calls == calls
    assert tables.rows["old"] == "a"


def test_a_name_elsewhere_is_asked_again_each_time(tables: Tables) -> None:
    tables.rows["space"] = "b"
    a = Rig(tables, "a")
    tables.own("b", "1", "sievemq://one:1")
    first = a.claim("space").owner
    tables.own("b", "2", "sievemq://two:2")
    second = a.claim("space").owner
    assert first is not None
    assert second is not None
    assert (first.url, second.url) == ("sievemq://one:1", "sievemq://two:2")


def test_patterns_choose_in_their_order_and_the_rest_depends_on_the_name(tables: Tables) -> None:
    patterns = [("eu-?", "b"), ("eu-*", "c"), ("gone-*", "no shard of it")]
    assert choose("eu-1", patterns, SHARDS) == "b"
    assert choose("eu-10", patterns, SHARDS) == "c"
    assert choose("gone-1", patterns, SHARDS) == choose("gone-1", (), ("c", "b", "a"))
    assert {choose(f"{n}", (), SHARDS) for n in range(20)} == set(SHARDS)
    assert fits("a[b]*", "a[b]\nc")
    assert not fits("a[b]*", "ab")


def test_a_name_from_before_the_cluster_goes_to_the_shard_that_has_it(tables: Tables) -> None:
    """Its owner has not said so yet."""
    tables.stored["old"] = "c"
    tables.patterns["*"] = "b"
    with pytest.raises(RequestError, match="'old' is in shard 'c'"):
        Rig(tables, "a").assign("old", "a")
    assert Rig(tables, "a").claim("old").shard == "c"


def test_a_namespace_that_two_shards_have_is_here_in_one(tables: Tables, caplog: pytest.LogCaptureFixture) -> None:
    tables.rows |= {"used": "b", "empty": "b"}
    a = Rig(tables, "")
    a.uses["used"] = "3 destinations"
    tables.own("a", "t", "sievemq://a:1")
    a.placement.own("a", "t", ("used", "empty"))
    a.run()
    assert a.dropped == ["empty"]
    assert not a.placement.here("used")
    assert not a.placement.here("empty")
    assert "namespace.elsewhere" in caplog.text


def test_a_client_that_needs_no_namespace_of_its_own_gets_the_one_of_its_host(tables: Tables) -> None:
    tables.rows |= {"host": "a", "other": "b"}
    a = Rig(tables, "a")
    tables.own("b", "t", "sievemq://b:1")
    assert a.claim("default", "host").name == "host"
    assert a.claim("default", "other") == Where("other", "b", tables.owners["b"][1])
    assert a.claim("default", "nobody").name == "default"
    assert "nobody" not in tables.rows
    told = a.enter("", "nobody")  # without a right in the default one
    a.run()
    assert told == [""]
    assert "nobody" not in tables.rows


def test_the_client_of_another_shard_learns_the_owner_by_its_protocol(tables: Tables) -> None:
    tables.rows["space"] = "b"
    a = Rig(tables, "a")
    tables.own("b", "t", "sievemqs://[::1]:7672", "https://b:7680", '{"amqp": 5671}')
    ways = {"sieve": 7672, "amqp": 7672, "stomp": 7672, "web": 7680}
    told = {way: a.enter("space", protocol=way.replace("web", "stomp"), port=port) for way, port in ways.items()}
    a.run()
    urls = {way: error.details["url"] for way, (error,) in told.items()}
    assert urls == {
        "sieve": "sievemqs://[::1]:7672",
        "amqp": "amqps://[::1]:5671",
        "stomp": "stomps://[::1]:7672",
        "web": "wss://b:7680/stomp",
    }
    assert {error.code for (error,) in told.values()} == {ErrorCode.REDIRECT}
    assert url_of(Owner("", "sievemq://b:1", "", ""), "web") == "sievemq://b:1"


def test_a_shard_without_an_owner_is_tried_again_by_its_clients(tables: Tables) -> None:
    tables.rows["space"] = "b"
    a = Rig(tables, "a")
    tables.own("b", "t")
    told = a.enter("space")
    a.run()
    assert (told[0].code, told[0].code.repairable) == (ErrorCode.UNAVAILABLE, True)
    assert "'b', which no broker owns" in str(told[0])
    assert elsewhere(Where("space", "c")).code is ErrorCode.UNAVAILABLE


def test_names_are_bounded_and_known_ones_go_on(tables: Tables, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(placement, "MAX_NAMES", 2)
    a = Rig(tables, "a")
    for number in range(2 * len(SHARDS)):
        a.claim(f"space{number}")
    told = a.enter("one more")
    found = a.placement.find("one more")
    known = a.enter("space0")
    a.run()
    assert told[0].code is ErrorCode.RESOURCE_ALLOCATION
    assert "as many names of namespaces as it may" in str(told[0])
    assert not found.result().is_claimed
    assert known[0] == "space0" or known[0].code in (ErrorCode.REDIRECT, ErrorCode.UNAVAILABLE)
    assert "one more" not in tables.rows


# -- a database that does not answer --------------------------------------------------------------------------------


def test_a_claim_whose_answer_is_lost_is_made_again(tables: Tables) -> None:
    a = Rig(tables, "a")
    tables.patterns["*"] = "a"
    a.places.after = lambda call: a.places.away() if call == "claim" else None

    def lose(call: str) -> None:
        if call == "claim":
            a.places.back()
            raise a_way()

    a.places.after = lose
    told = a.enter("space")
    a.wait(1)
    assert told == ["space"]
    assert tables.rows == {"space": "a"}


def a_way() -> Exception:
    from sievemq_broker.domain.store import AwayError

    return AwayError("no answer")


def test_a_handshake_waits_its_time_and_is_told_that_the_database_is_away(tables: Tables) -> None:
    tables.rows["known"] = "a"
    a = Rig(tables, "a")
    a.places.away()
    told = a.enter("space")
    assert a.enter("known") == ["known"]
    a.wait(4.9)
    assert told == []
    assert a.enter("known") == ["known"]
    a.wait(0.2)
    assert told[0].code is ErrorCode.UNAVAILABLE
    assert "the database has not answered" in str(told[0])
    a.places.back()
    again = a.enter("space")
    a.wait(1)
    assert len(told) == len(again) == 1
    assert a.placement._asks == {}


def test_a_call_that_hangs_holds_up_no_time_limit(tables: Tables) -> None:
    a = Rig(tables, "a")
    told = a.enter("space")
    a.thread.clear()  # it never returns
    a.wait(5)
    assert told[0].code is ErrorCode.UNAVAILABLE


def test_other_errors_of_the_database_are_told_at_once(tables: Tables, caplog: pytest.LogCaptureFixture) -> None:
    a = Rig(tables, "a")

    def fail(call: str) -> None:
        raise StoreError("there are no tables for several shards")

    a.places.before = fail
    told, listed, assigned = a.enter("space"), a.placement.listed(), a.placement.assign("space", "a")
    a.run()
    assert told[0].code is refusal(listed).code is refusal(assigned).code is ErrorCode.UNAVAILABLE
    assert str(told[0]) == "it cannot be found out where namespace 'space' is; the broker's log has the reason"
    assert caplog.text.count("placement.failed shard='a' reason='there are no tables for several shards'") == 1
    owned = a.placement.own("a", "t", ())
    a.run()
    assert isinstance(owned.exception(), StoreError)


def test_a_caller_that_is_gone_is_forgotten(tables: Tables) -> None:
    a = Rig(tables, "a")
    a.placement.claim("space").cancel()
    kept = a.placement.claim("other")
    a.run()
    assert a.placement._asks == {}
    assert kept.done()
    a.places.away()
    a.placement.claim("third").cancel()
    a.wait(20)
    assert a.placement._asks == {}


def test_many_names_are_asked_for_together_and_bounded(tables: Tables) -> None:
    a = Rig(tables, "a")
    told = [a.enter(f"space{n % 150}") for n in range(1_000)]
    a.run()
    assert all(len(each) == 1 for each in told)
    assert a.places.calls.count("find") <= 2 + 1_000 // 64
    assert len(tables.rows) == 150


def test_the_end_fails_what_waits(tables: Tables) -> None:
    a = Rig(tables, "a")
    a.places.away()
    told = a.enter("space")
    a.wait(1)
    a.placement.close()
    a.run()
    assert told[0].code is ErrorCode.UNAVAILABLE
    assert a.places.closed
    late = a.placement.listed()
    a.run()
    assert refusal(late).code is ErrorCode.UNAVAILABLE


# -- assigning ----------------------------------------------------------------------------------------------------


def test_a_name_that_is_nowhere_is_assigned_by_any_broker(tables: Tables) -> None:
    spare, b = Rig(tables, ""), Rig(tables, "b")
    assert spare.assign("space", "b") == Where("space", "b", tables.owners["b"][1])
    assert b.claim("space").shard == "b"
    assert spare.assign("space", "b").shard == "b"
    with pytest.raises(RequestError, match="is in shard 'b', at sievemq://b:7672") as refused:
        spare.assign("space", "c")
    assert refused.value.code is ErrorCode.REDIRECT


def test_an_empty_namespace_changes_its_shard(tables: Tables) -> None:
    a, b = Rig(tables, "a"), Rig(tables, "b")
    a.assign("space", "a")
    assert a.enter("space") == ["space"]
    assert a.assign("space", "b") == Where("space", "b")
    assert a.dropped == ["space"]
    told = a.enter("space")
    a.run()
    assert told[0].details == {"url": "sievemq://b:7672", "shard": "b", "namespace": "space"}
    assert b.claim("space").shard == "b"
    assert b.placement.here("space")


def test_a_name_of_this_shard_that_another_broker_has_claimed_is_moved_from_here(tables: Tables) -> None:
    a = Rig(tables, "a")
    tables.rows["space"] = "a"
    assert a.assign("space", "b").shard == "b"
    assert a.dropped == ["space"]


@pytest.mark.parametrize("to", ["b", "nowhere", None])
def test_a_namespace_in_use_stays(tables: Tables, to: str | None) -> None:
    tables.rows["space"] = "a"
    a = Rig(tables, "a")
    a.uses["space"] = "2 destinations"
    with pytest.raises(RequestError) as refused:
        a.assign("space", to)
    assert a.enter("space") == ["space"]
    assert tables.rows["space"] == "a"
    assert a.dropped == []
    if to == "b":
        assert refused.value.code is ErrorCode.ILLEGAL_STATE
        assert "2 destinations" in str(refused.value)
        assert "`sievemq browse --json`" in str(refused.value)
    assert a.assign("space", "a").shard == "a"


def test_a_handshake_that_arrives_during_the_move_waits_for_the_row(tables: Tables) -> None:
    tables.rows["space"] = "a"
    a = Rig(tables, "a")
    tables.own("b", "t", "sievemq://b:7672")
    moved = a.placement.assign("space", "b")
    assert not a.placement.here("space")
    told = a.enter("space")
    a.run()
    assert moved.result().shard == "b"
    assert told[0].code is ErrorCode.REDIRECT


def test_a_handshake_that_waits_for_a_move_costs_the_same_however_many_wait(tables: Tables) -> None:
    looked_at = 0

    class Name(str):
        __slots__ = ()

        def __hash__(self) -> int:
            nonlocal looked_at
            looked_at += 1
            return super().__hash__()

    tables.rows["space"] = "a"
    a = Rig(tables, "a")
    tables.own("b", "t", "sievemq://b:7672")
    a.places.away("move")
    a.placement.assign("space", "b")
    told = [a.enter(Name("space")) for _ in range(100)]
    assert looked_at < 1_000
    a.places.back()
    a.wait(1)
    assert [each[0].code for each in told] == [ErrorCode.REDIRECT] * 100


def test_a_handshake_that_was_told_here_before_the_move_asks_again(tables: Tables) -> None:
    """The namespace is assigned in the turn between the answer and the handshake that goes on with it."""
    a = Rig(tables, "a")
    tables.own("b", "t", "sievemq://b:7672")
    tables.rows["space"] = "a"
    told = a.enter("space")
    a.thread.popleft()()
    a.turn()  # the answer
    assert a.placement.here("space")
    assert told == []
    a.placement.assign("space", "b")
    a.run()
    assert told[0].code is ErrorCode.REDIRECT


def test_an_answer_of_before_the_move_does_not_count(tables: Tables) -> None:
    """The row was read before it was changed, and the answer arrives while it is being changed."""
    a = Rig(tables, "a")
    tables.own("b", "t", "sievemq://b:7672")
    tables.rows |= {"space": "a", "mine": "a"}
    first = a.enter("space")
    moving = a.placement.assign("space", "b")  # not known here yet: it looks, too
    a.run()
    assert moving.result().shard == "b"
    assert first[0] == "space" or first[0].code is ErrorCode.REDIRECT
    assert not a.placement.here("space")

    a.claim("mine")
    asked = a.placement.find("mine")
    late = a.placement.claim("fresh", "mine")
    assert asked.done()
    assert late.done()


def test_a_move_waits_until_the_drop_is_stored(tables: Tables) -> None:
    tables.rows["space"] = "a"
    a = Rig(tables, "a")
    a.unstored = []
    moved = a.placement.assign("space", "b")
    told = a.enter("space")
    a.wait(1)
    assert tables.rows["space"] == "a"
    assert told == []
    second = a.placement.assign("space", "c")
    a.wait(1)
    assert refusal(second).code is ErrorCode.ILLEGAL_STATE
    a.unstored[0]()
    a.run()
    assert moved.result().shard == tables.rows["space"] == "b"


def test_a_superseded_owner_moves_nothing(tables: Tables) -> None:
    tables.rows["space"] = "a"
    a = Rig(tables, "a")
    tables.own("a", "token of the next", "sievemq://next:1")
    with pytest.raises(RequestError, match="another broker owns the shard") as refused:
        a.assign("space", "b")
    assert refused.value.code is ErrorCode.UNAVAILABLE
    assert tables.rows["space"] == "a"


def test_a_move_whose_answer_is_lost_is_settled_before_anybody_is_told_here(tables: Tables) -> None:
    tables.rows["space"] = "a"
    a = Rig(tables, "a")
    tables.own("b", "t", "sievemq://b:7672")

    def lose(call: str) -> None:
        if call == "move":
            raise a_way()

    a.places.after = lose
    moved = a.placement.assign("space", "b")
    a.wait(4)
    told = a.enter("space")
    a.wait(1)
    assert refusal(moved).code is ErrorCode.UNAVAILABLE
    assert told == []
    a.places.back()
    a.wait(2)
    assert told[0].code is ErrorCode.REDIRECT
    assert a.placement._moving == set()
    second = a.placement.assign("space", "c")
    a.run()
    assert refusal(second).code is ErrorCode.REDIRECT


def test_two_moves_of_a_namespace_do_not_meet(tables: Tables) -> None:
    tables.rows["space"] = "a"
    a = Rig(tables, "a")
    tables.own("b", "t", "sievemq://b:7672")
    first, second = a.placement.assign("space", "b"), a.placement.assign("space", "c")
    a.run()
    assert first.result().shard == "b"
    assert refusal(second).code in (ErrorCode.REDIRECT, ErrorCode.ILLEGAL_STATE)
    assert tables.rows["space"] == "b"


def test_patterns_are_set_and_removed_by_any_broker(tables: Tables) -> None:
    spare = Rig(tables, "")
    spare.assign("eu-*", "b")
    spare.assign("*", "c")
    spare.assign("eu-*", "a")
    listed = spare.placement.listed()
    spare.run()
    assert listed.result().patterns == [("eu-*", "a"), ("*", "c")]
    assert spare.claim("eu-1").shard == "a"
    spare.assign("eu-*", None)
    assert spare.claim("eu-2").shard == "c"
    with pytest.raises(RequestError, match="there is no pattern 'eu-\\*'") as missing:
        spare.assign("eu-*", None)
    assert missing.value.code is ErrorCode.NOT_FOUND
    with pytest.raises(RequestError, match="there is no shard 'x'; there are a, b, c"):
        spare.assign("y-*", "x")


def test_finding_claims_nothing(tables: Tables) -> None:
    tables.patterns["*"] = "b"
    a = Rig(tables, "a")
    found = a.placement.find("space")
    a.run()
    assert found.result() == Where("space", "b", None, is_claimed=False)
    assert tables.rows == {}
    tables.rows["space"] = "a"
    assert a.claim("space").shard == "a"
    listed = a.placement.listed()
    a.run()
    assert listed.result().namespaces == {"space": "a"}
    assert [sight.shard for sight in listed.result().shards] == ["a"]


def test_a_redirect_is_an_error_of_the_core() -> None:
    assert issubclass(RequestError, SieveError)
    assert ErrorCode.REDIRECT.fatal
    assert not ErrorCode.REDIRECT.repairable
