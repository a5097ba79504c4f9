"""A process that follows several shards takes one of them: a loop, threads and rows that do as the test says."""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from sievemq.cli import run
from sievemq_broker.clock import Clock
from sievemq_broker.config import ConfigError, load
from sievemq_broker.domain.store import AwayError, FencedError, StoreError
from sievemq_broker.server import process
from sievemq_broker.server.durability.candidates import Candidate, Candidates
from sievemq_broker.server.durability.keeper import Keeper
from sievemq_broker.server.durability.slot import Slot
from sievemq_broker.server.server import Server, shared_rules
from sievemq_broker.server.shard import Shard
from sievemq_broker.store.follower import Follower
from sievemq_broker.store.lease import Lease, Leases, Owner, Sight, Terms

from .sharing import DEADLINE, LONG, Access, Row, SharingBroker, World, get

TERMS = Terms(beat=1.0, lease=10.0, margin=2.0, patience=100.0)
NAMES = ("a", "b", "c")


class Loop:
    """The time of all processes."""

    def __init__(self) -> None:
        self.time = 1_000.0
        self._timers: list[tuple[float, int, SimpleNamespace, Callable[[], None]]] = []
        self._number = itertools.count()

    def call_later(self, seconds: float, call: Callable[[], None]) -> Any:
        timer = SimpleNamespace(is_cancelled=False)
        timer.cancel = lambda: setattr(timer, "is_cancelled", True)
        heapq.heappush(self._timers, (self.time + seconds, next(self._number), timer, call))
        return timer

    def call_soon_threadsafe(self, call: Callable[..., None], *arguments: object) -> None:
        call(*arguments)

    def run(self, seconds: float) -> None:
        until = self.time + seconds
        while self._timers and self._timers[0][0] <= until:
            self.time, _, timer, call = heapq.heappop(self._timers)
            if not timer.is_cancelled:
                call()
        self.time = until


class Faulty(Access):
    """How one process reaches the row of one shard.

    Attributes:
        before_take: called before a take; what it raises is raised.
        after_take: called after one, likewise: the answer is lost.
        before_look: called before a look, likewise.
        looks: that were made.
    """

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.before_take: Callable[[], None] = lambda: None
        self.after_take: Callable[[], None] = lambda: None
        self.before_look: Callable[[], None] = lambda: None
        self.looks = 0

    def leases(self) -> Leases:
        return FaultyRow(self)


class FaultyRow(Row):
    _access: Faulty

    def look(self) -> Sight:
        self._access.looks += 1
        self._access.before_look()
        return super().look()

    def take(self, seen: Sight, token: str, owner: Owner) -> bool:
        self._access.before_take()
        taken = super().take(seen, token, owner)
        self._access.after_take()
        return taken


class Built:
    """Takes the place of the thread that builds messages."""

    def __init__(self, follower: Follower, shard: str, shards: int) -> None:
        self.follower = follower
        self.is_dropped = False

    def start(self) -> None:
        pass

    def drop(self) -> None:
        self.is_dropped = True


class Process:
    """A process that follows shards, as far as it may take one."""

    def __init__(self, name: str, loop: Loop, worlds: dict[str, World]) -> None:
        self.name = name
        #: Owners whose address refuses connections.
        self.dead: set[str] = set()
        self.loop = loop
        self.accesses = {shard: Faulty(world) for shard, world in worlds.items()}
        self.taken: list[str] = []
        self.failure: StoreError | None = None
        self.heard: list[str] = []
        self.candidates = Candidates(cast("Any", self.accesses), 0, cast("Any", Built))

    def start(self) -> Process:
        self.candidates.start(self._keep, self._took, self._failed)
        return self

    def _keep(self, candidate: Candidate, slot: Slot) -> Keeper:
        worker = cast("Any", SimpleNamespace(put=lambda call: call(), end=lambda: None))
        owner = Owner(self.name, f"sievemq://{self.name}", "", "")
        lease, leases = Lease(TERMS, f"{self.name} {candidate.name}"), candidate.source.leases()
        loop, clock = cast("Any", self.loop), lambda: self.loop.time
        return Keeper(
            loop, lease, leases, owner, candidate, cast("Any", self), worker, worker, clock,
            lambda address: address not in self.dead, slot=slot, shard=candidate.name,
        )  # fmt: skip

    def _took(self, candidate: Candidate) -> None:
        self.taken.append(candidate.name)
        assert candidate.keeper is not None
        candidate.keeper.restored()

    def _failed(self, error: StoreError) -> None:
        self.failure = error

    # -- the shard that it owns

    writes = 0

    def silence(self, reason: str | None) -> None:
        self.heard.append("silent" if reason else "speaks")

    def asked(self) -> None:
        self.heard.append("asked")

    def gone(self, error: StoreError) -> None:
        self.heard.append("gone")

    def hangs(self, seconds: float) -> bool:
        return False


@pytest.fixture
def loop() -> Loop:
    return Loop()


@pytest.fixture
def worlds() -> dict[str, World]:
    return {name: World() for name in NAMES}


def owned(world: World, token: str = "another") -> None:
    """Another process owns the shard."""
    world.set(token=token, epoch=1, owner=Owner(token, f"sievemq://{token}", "", ""), released=False)


def beating(loop: Loop, *worlds: World) -> None:
    """The owners of these shards live from now on."""

    def beat() -> None:
        for world in worlds:
            world.set(beat=world.sight.beat + 1)
        loop.call_later(TERMS.beat, beat)

    beat()


def new_spare(loop: Loop, worlds: dict[str, World]) -> Process:
    """A process that follows all shards; each has an owner that lives."""
    for world in worlds.values():
        owned(world)
    beating(loop, *worlds.values())
    process = Process("p", loop, worlds).start()
    loop.run(3)
    return process


def owners(worlds: dict[str, World]) -> list[str]:
    return [world.sight.token for world in worlds.values()]


# -- one take at a time -----------------------------------------------------------------------------------------------


def test_processes_that_start_together_take_one_shard_each(loop: Loop, worlds: dict[str, World]) -> None:
    processes = [Process(name, loop, worlds).start() for name in ("p", "q", "r", "s")]
    loop.run(5)
    assert [each.taken for each in processes] == [["a"], ["b"], ["c"], []]
    assert owners(worlds) == ["p a", "q b", "r c"]
    assert processes[3].candidates.follows.is_set()


def test_two_shards_that_are_free_at_once_go_to_two_processes(loop: Loop, worlds: dict[str, World]) -> None:
    for world in worlds.values():
        owned(world)
    beating(loop, *worlds.values())
    first, second = Process("p", loop, worlds).start(), Process("q", loop, worlds).start()
    loop.run(20)
    assert first.taken == second.taken == []
    for name in ("a", "c"):
        worlds[name].set(released=True)
    loop.run(5)
    assert sorted([first.taken, second.taken]) == [["a"], ["c"]]
    assert worlds["b"].sight.token == "another"


def test_one_process_takes_one_of_two_free_shards(loop: Loop, worlds: dict[str, World]) -> None:
    one = Process("p", loop, worlds).start()
    loop.run(60)
    assert one.taken == ["a"]
    assert owners(worlds) == ["p a", "", ""]


def test_an_owner_follows_no_other_shard(loop: Loop, worlds: dict[str, World]) -> None:
    one = new_spare(loop, worlds)
    followed = dict(one.candidates.followed)
    built = [followed[name].following for name in ("a", "c")]
    worlds["b"].set(released=True)
    loop.run(3)
    looks = [access.looks for access in one.accesses.values()]
    loop.run(9)
    assert [one.accesses[name].looks for name in ("a", "c")] == [looks[0], looks[2]]
    assert [one.accesses[name].closed for name in NAMES] == [["lease"], [], ["lease"]]
    assert all(cast("Any", each).is_dropped for each in built)
    assert list(one.candidates.followed) == ["b"]
    assert not cast("Any", followed["b"].following).is_dropped, "the takeover uses what was built"


def test_a_take_that_is_refused_leaves_the_others_to_be_taken(loop: Loop, worlds: dict[str, World]) -> None:
    one = Process("p", loop, worlds)
    one.accesses["a"].before_take = lambda: owned(worlds["a"])  # it was faster
    one.start()
    assert one.taken == ["b"], "at once"
    assert owners(worlds) == ["another", "p b", ""]


def test_a_row_that_is_refused_as_it_was_seen_is_tried_again_at_the_next_tick(
    loop: Loop, worlds: dict[str, World]
) -> None:
    """By a proxy that leads to one server, then to another."""
    one, tries = Process("p", loop, worlds), 0

    def take(row: FaultyRow, seen: Sight, token: str, owner: Owner) -> bool:
        nonlocal tries
        tries += 1
        return False

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(FaultyRow, "take", take)
        one.start()
        loop.run(5)
        assert tries <= 11
    loop.run(1)
    assert one.taken == ["a"]


def lost() -> None:
    raise AwayError("no answer")


def test_a_take_whose_answer_is_lost_is_the_only_one(loop: Loop, worlds: dict[str, World]) -> None:
    """All shards are free, and the row that was asked for may be this process's."""
    one = Process("p", loop, worlds)
    one.accesses["a"].after_take = lost
    one.accesses["a"].before_look = lambda: None if not one.accesses["a"].looks > 1 else lost()
    one.start()
    loop.run(30)
    assert (one.taken, owners(worlds)) == ([], ["p a", "", ""])
    one.accesses["a"].after_take = one.accesses["a"].before_look = lambda: None
    loop.run(2)
    assert (one.taken, owners(worlds)) == (["a"], ["p a", "", ""])


def test_a_take_that_may_come_late_keeps_the_others_from_being_taken(loop: Loop, worlds: dict[str, World]) -> None:
    """It is still under way in the database when the row is seen untaken."""
    for world in worlds.values():
        owned(world)
    beating(loop, worlds["b"])
    one = Process("p", loop, worlds).start()
    one.accesses["a"].before_take = lost
    loop.run(11)
    assert one.candidates._slot.is_held_by(one.candidates.followed["a"].keeper)
    worlds["b"].set(released=True)
    loop.run(5)
    assert one.taken == [], "it may own the shard a"
    worlds["a"].set(token="p a", beat=0)  # it comes now
    one.accesses["a"].before_take = lambda: None
    loop.run(2)
    assert one.taken == ["a"]
    assert worlds["b"].sight.token == "another"


def test_a_take_that_cannot_succeed_any_more_is_over(loop: Loop, worlds: dict[str, World]) -> None:
    """Its answer is lost, and the owner lives again: its beat is another one."""
    for world in worlds.values():
        owned(world)
    beating(loop, worlds["b"], worlds["c"])
    one = Process("p", loop, worlds).start()
    one.accesses["a"].before_take = lost
    loop.run(11)
    worlds["c"].set(released=True)
    loop.run(3)
    assert one.taken == []
    worlds["a"].set(beat=7)
    loop.run(3)
    assert one.taken == ["c"]
    assert worlds["a"].sight.token == "another"


def test_two_owners_that_die_at_once_are_succeeded_by_two_processes(loop: Loop, worlds: dict[str, World]) -> None:
    for name, world in worlds.items():
        owned(world)
        world.set(owner=Owner(name, f"sievemq://{name}", f"{name}:7680", ""))
    beating(loop, worlds["a"])
    first, second = Process("p", loop, worlds).start(), Process("q", loop, worlds).start()
    loop.run(1.7)
    assert first.taken == second.taken == []
    first.dead = second.dead = {"b:7680", "c:7680"}
    loop.run(3)
    assert sorted([first.taken, second.taken]) == [["b"], ["c"]]


def test_an_owner_that_is_found_dead_while_a_take_is_under_way_is_left(loop: Loop, worlds: dict[str, World]) -> None:
    for name, world in worlds.items():
        owned(world)
        world.set(owner=Owner(name, f"sievemq://{name}", f"{name}:7680", ""))
    beating(loop, worlds["a"], worlds["c"])
    one = Process("p", loop, worlds).start()
    loop.run(0.1)
    one.accesses["a"].after_take = lost
    one.accesses["a"].is_away = False
    worlds["a"].set(released=True)
    loop.run(0.6)
    assert worlds["a"].sight.token == "p a"
    one.accesses["a"].is_away = True
    one.dead = {"b:7680"}
    loop.run(30)
    assert (one.taken, worlds["b"].sight.token) == ([], "another")


# -- a shard that fails -----------------------------------------------------------------------------------------------


def damaged() -> None:
    raise StoreError("it is of a newer version")


def test_a_shard_that_cannot_be_followed_does_not_end_the_process(
    loop: Loop, worlds: dict[str, World], caplog: pytest.LogCaptureFixture
) -> None:
    for name in ("a", "c"):
        owned(worlds[name])
    beating(loop, worlds["a"], worlds["c"])
    one = Process("p", loop, worlds)
    one.accesses["b"].before_look = damaged
    one.start()
    loop.run(3)
    candidates = one.candidates
    assert candidates.warnings == ["shard b: it is not followed: it is of a newer version"]
    assert candidates.follows.is_set()
    assert "store.shard_failed" in caplog.text
    with pytest.raises(ValueError, match="does not follow the shard b: it follows a, c"):
        candidates.ask_for("b")
    worlds["c"].set(released=True)
    loop.run(3)
    assert (one.taken, one.failure) == (["c"], None)


def test_a_shard_that_fails_while_it_is_followed_is_dropped(loop: Loop, worlds: dict[str, World]) -> None:
    one = new_spare(loop, worlds)
    failing = one.candidates.followed["b"]
    built = cast("Any", failing.following)
    one.accesses["b"].before_look = damaged
    loop.run(3)
    assert (failing.keeper, failing.following, built.is_dropped) == (None, None, True)
    assert one.failure is None
    for name in ("a", "c"):
        one.accesses[name].before_look = damaged
    loop.run(3)
    assert isinstance(one.failure, StoreError)


def test_a_take_that_the_store_refuses_frees_the_slot(loop: Loop, worlds: dict[str, World]) -> None:
    one = Process("p", loop, worlds)
    one.accesses["a"].before_take = damaged
    one.start()
    loop.run(3)
    assert one.taken == ["b"]


def test_a_database_that_is_lost_is_one_warning(loop: Loop, worlds: dict[str, World]) -> None:
    one = new_spare(loop, worlds)
    for access in one.accesses.values():
        access.is_away = True
    loop.run(60)
    assert one.candidates.warnings == ["the store does not answer: the dictionary is away"]
    for access in one.accesses.values():
        access.is_away = False
    loop.run(3)
    assert (one.candidates.warnings, one.taken) == ([], [])
    one.accesses["a"].offset = 3.0
    loop.run(3)
    (warning,) = one.candidates.warnings
    assert warning.startswith("shard a: the clock differs")


# -- which one --------------------------------------------------------------------------------------------------------


def test_the_shard_that_is_wanted_is_looked_at_first() -> None:
    given = {"store": "postgresql://db/x", "shards": "a,b,c"}
    assert load(given, {}).settings.candidates == ("a", "b", "c")
    assert load(given | {"shard": "b"}, {}).settings.candidates == ("b", "a", "c")
    assert load({"store": "postgresql://db/x", "shard": "b"}, {}).settings.candidates == ("b",)
    one, other = (load(given | {"shards": names}, {}).settings for names in ("a,b", ["b", "a"]))
    assert shared_rules(one) == shared_rules(other) != shared_rules(load(given, {}).settings)


def test_the_shard_that_is_asked_for_is_handed_over(loop: Loop, worlds: dict[str, World]) -> None:
    for world in worlds.values():
        owned(world)
    beating(loop, *worlds.values())
    one, other = Process("p", loop, worlds), Process("q", loop, worlds).start()
    one.candidates.ask_for("b")
    one.start()
    for candidate in one.candidates.followed.values():
        if candidate.following is not None:
            candidate.following.follower.caught_up = True
    loop.run(2)
    assert [world.sight.heir for world in worlds.values()] == ["", "p b", ""]
    worlds["b"].set(released=True)
    loop.run(2)
    assert (one.taken, other.taken) == (["b"], [])


def test_followers_of_one_process_share_the_memory(worlds: dict[str, World], caplog: pytest.LogCaptureFixture) -> None:
    accesses = {name: Access(world) for name, world in worlds.items()}
    candidates = Candidates(cast("Any", accesses), 1_000, cast("Any", Built))
    one, other = (candidates.build(candidates.followed[name]).follower for name in ("a", "b"))
    for name, follower in (("a", one), ("b", other)):
        candidates.followed[name].following = cast("Any", Built(follower, name, 3))
    one.bytes, other.bytes = 600, 300
    assert not one._is_over()
    other.bytes = 400
    assert one._is_over()
    assert other._is_over()
    assert caplog.text.count("store.follower_full bytes=1000 limit=1000") == 2
    one.give_up()
    assert not other._is_over()


# -- settings ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"shards": "a,b"}, "shards needs store"),
        ({"store": "postgresql://db/x", "shards": "a,b", "shard": "c"}, "shard must be one of shards, which are a, b"),
        ({"store": "postgresql://db/x", "shards": "a,b,a"}, "must name each shard once"),
        ({"store": "postgresql://db/x", "shards": ["a", "b/c"]}, "must be 1 to 40 letters"),
        ({"store": "postgresql://db/x", "shards": ["a", "b" * 41]}, "must be 1 to 40 letters"),
        ({"store": "postgresql://db/x", "shards": 3}, "must be comma-separated names"),
    ],
)
def test_shards_that_cannot_be_used_are_refused(given: dict[str, object], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        load(given, {})


def test_a_handover_names_one_of_the_shards(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["broker", "--store", "postgresql://db/x", "--shards", "a,b", "--handover"]) == 2
    assert "--handover needs --shard: one of a, b" in capsys.readouterr().err


# -- a server ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def cluster(worlds: dict[str, World]) -> Iterator[list[SharingBroker]]:
    """The owners of three shards, and a spare process."""
    brokers = [SharingBroker(worlds, LONG, http=True) for _ in range(4)]
    try:
        for broker in brokers:
            broker.start()
        for broker in brokers[:3]:
            broker.wait_until_serving(DEADLINE)
        yield brokers
    finally:
        for broker in brokers:
            broker.stop()


def test_a_spare_process_shows_all_shards_and_takes_the_one_that_is_free(
    cluster: list[SharingBroker], worlds: dict[str, World]
) -> None:
    *owning, spare = cluster
    assert [broker.server.shard.name for broker in owning] == list(NAMES)
    assert get(spare, "/activez") == (503, {"role": "follower", "follows": list(NAMES)})
    assert get(spare, "/readyz")[0] == 200
    figures = get(spare, "/metrics")[1]
    for name in NAMES:
        assert f'sievemq_role{{role="follower",shard="{name}"}} 1.0' in figures
        assert f'sievemq_follower_messages{{shard="{name}"}} 0.0' in figures
    status, error = get(spare, "/api/v1/broker")
    assert (status, error["error"]) == (503, "FOLLOWER")
    assert [(each["shard"], each["owner"]) for each in error["details"]["shards"]] == [
        (broker.server.shard.name, broker.url) for broker in owning
    ]
    assert [get(broker, "/activez?shard=b")[0] for broker in cluster] == [503, 200, 503, 503]
    with pytest.raises(ValueError, match="owns the shard a, and follows none beside it"):
        owning[0].server.ask_for("b")
    owning[1].stop()
    spare.wait_until_serving(DEADLINE)
    assert get(spare, "/activez") == (200, {"role": "owner", "shard": "b"})
    figures = get(spare, "/metrics")[1]
    assert 'sievemq_role{role="owner",shard="b"} 1.0' in figures
    assert 'shard="a"' not in figures
    assert get(spare, "/api/v1/broker")[1]["shard"] == "b"
    assert worlds["b"].sight.epoch == 2
    assert [worlds[name].sight.epoch for name in ("a", "c")] == [1, 1]


def test_one_of_three_shards_is_handed_over(cluster: list[SharingBroker], worlds: dict[str, World]) -> None:
    *owning, spare = cluster
    assert spare._loop is not None
    spare._loop.call_soon_threadsafe(spare.server.ask_for, "c")
    spare.wait_until_serving(DEADLINE)
    assert spare.server.shard.name == "c"
    assert [broker.server.is_active for broker in owning] == [True, True, False]
    assert [world.sight.epoch for world in worlds.values()] == [1, 1, 2]


@pytest.mark.parametrize("amid_a_take", [False, True])
async def test_a_process_that_is_stopped_while_it_follows_owns_nothing(
    worlds: dict[str, World], amid_a_take: bool
) -> None:
    for world in worlds.values():
        owned(world)
    accesses = {name: Faulty(world) for name, world in worlds.items()}
    server = Server(load({"port": 0, "http": False, **LONG}, {}).settings, sources=accesses)
    port, stopping, candidates = process.bind(server), asyncio.Event(), server.candidates
    assert candidates is not None
    serving = asyncio.create_task(process._serve(server, port, stopping))
    await asyncio.wait_for(candidates.follows.wait(), DEADLINE)
    if amid_a_take:
        accesses["b"].after_take = server.give_up  # the answer comes when it is not wanted any more
        worlds["b"].set(released=True)
    else:
        stopping.set()
        server.give_up()
    assert await asyncio.wait_for(serving, DEADLINE) == 0
    assert [access.closed for access in accesses.values()] == [
        ["lease"], ["released", "lease"] if amid_a_take else ["lease"], ["lease"]
    ]  # fmt: skip
    assert [world.sight.released for world in worlds.values()] == [False, amid_a_take, False]


async def test_a_process_ends_if_it_can_follow_no_shard(worlds: dict[str, World]) -> None:
    accesses = {name: Faulty(world) for name, world in worlds.items()}
    for access in accesses.values():
        access.before_look = damaged
    server = Server(load({"port": 0, "http": False, **LONG}, {}).settings, sources=accesses)
    port = process.bind(server)
    assert await asyncio.wait_for(process._serve(server, port, asyncio.Event()), DEADLINE) == 1


async def test_a_damaged_shard_does_not_keep_processes_from_the_others(worlds: dict[str, World]) -> None:
    """Each process looks at it first."""
    owned(worlds["c"])
    settings = load({"port": 0, "http": False, **LONG}, {}).settings
    codes = []
    for _ in range(2):
        accesses = {name: Access(world) for name, world in worlds.items()}
        accesses["a"].before_reading = damaged
        stopping = asyncio.Event()
        server = Server(settings, sources=accesses)
        server.when_serving(stopping.set)
        codes.append(await asyncio.wait_for(process._serve(server, process.bind(server), stopping), DEADLINE))
    assert codes == [1, 0]
    assert server.shard.name == "b"


def test_a_broker_that_shares_no_store_asks_for_nothing() -> None:
    server = Server(load({}, {}).settings)
    assert (server.keepers, server.shard_warnings, server.is_shared) == ({}, [], False)
    with pytest.raises(ValueError, match="shares no store"):
        server.ask_for("a")


async def test_a_shard_that_is_lost_before_it_is_opened_is_not_served(worlds: dict[str, World]) -> None:
    shard, access = Shard(load({}, {}).settings, Clock()), Access(worlds["a"])
    shard.gone(FencedError("another broker has taken the shard over"))
    keeper = cast("Any", SimpleNamespace(lease=SimpleNamespace(token="t"), speaks=lambda: False))
    shard.own("a", cast("Any", access), keeper, None)
    with pytest.raises(FencedError):
        await shard.open()
    assert access.closed == []
