"""What a keeper does as time goes by: a loop, a thread and a row that do as the test says."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from sievemq_broker.domain.store import AwayError, FencedError, StoreError
from sievemq_broker.server.durability.keeper import MEASURE_SECONDS, Keeper
from sievemq_broker.server.durability.probe import accepts
from sievemq_broker.server.durability.slot import Slot
from sievemq_broker.store.lease import Lease, Owner, Sight, Terms

TERMS = Terms(beat=1.0, lease=10.0, margin=2.0, patience=100.0)
OTHER = Owner("other:1", "sievemq://other", "other:7680", '{"dialect": "jakarta"}')
OURS = Owner("this:1", "sievemq://this", "this:7680", '{"dialect": "jakarta"}')


class Timer:
    def __init__(self) -> None:
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True


class Rig:
    """A keeper, and everything that it uses: the loop, the thread, the row, the shard."""

    def __init__(
        self,
        sight: Sight | None = None,
        terms: Terms = TERMS,
        *,
        connects: bool = False,
        asks: bool = False,
        slot: Slot | None = None,
    ) -> None:
        self.time = 1_000.0
        self._timers: list[tuple[float, int, Timer, Callable[[], None]]] = []
        self._number = itertools.count()
        self.sight = sight or Sight("theirs", 5, False, 3, OTHER, 7, 1, 0.0)
        #: Raised by the next calls.
        self.error: Exception | None = None
        #: Calls that wait for :meth:`answer`, if they are held.
        self.held: list[Callable[[], None]] | None = None
        self.took = 0.0
        self.calls: list[str] = []
        self.heard: list[str] = []
        self.stuck = self.is_dead = False
        self.lease = Lease(terms, "ours")
        #: Probes that are not answered for long, if there may be any.
        self.probes: list[Callable[[], None]] | None = None
        self.is_warm = True
        self.writes = 0
        probe, prober = None if connects else self.probe, SimpleNamespace(put=self._put_probe, end=lambda: None)
        self.keeper = Keeper(
            cast("Any", self), self.lease, self, OURS, self, self, cast("Any", self), cast("Any", prober),
            lambda: self.time, probe, slot=slot, asks=asks,
        )  # fmt: skip

    # -- the loop and the thread

    def call_later(self, seconds: float, call: Callable[[], None]) -> Timer:
        timer = Timer()
        heapq.heappush(self._timers, (self.time + seconds, next(self._number), timer, call))
        return timer

    def call_soon_threadsafe(self, call: Callable[..., None], *arguments: object) -> None:
        call(*arguments)

    def put(self, call: Callable[[], None]) -> None:
        if self.held is None:
            call()
        else:
            self.held.append(call)

    def _put_probe(self, call: Callable[[], None]) -> None:
        if self.probes is None:
            call()
        else:
            self.probes.append(call)

    def answer(self) -> None:
        held, self.held = self.held or [], None
        for call in held:
            call()

    def end(self) -> Any:
        self.calls.append("end")

    def run(self, seconds: float, each: Callable[[], None] = lambda: None) -> None:
        """Let time go by."""
        until = self.time + seconds
        while self._timers and self._timers[0][0] <= until:
            due, _, timer, call = heapq.heappop(self._timers)
            self.time = max(self.time, due)
            if not timer.cancelled:
                each()
                call()
        self.time = max(self.time, until)

    # -- the row

    def _begin(self, name: str) -> None:
        self.calls.append(name)
        self.time += self.took
        if self.error is not None:
            raise self.error

    def look(self) -> Sight:
        self._begin("look")
        return self.sight

    def take(self, seen: Sight, token: str, owner: Owner) -> bool:
        self._begin("take")
        if (seen.token, seen.beat, seen.released) != (self.sight.token, self.sight.beat, self.sight.released):
            return False
        self.sight = self.sight._replace(token=token, owner=owner, epoch=self.sight.epoch + 1, released=False, heir="")
        return True

    def ask(self, seen: Sight, token: str) -> bool:
        self._begin("ask")
        if (seen.token, self.sight.released) != (self.sight.token, False):
            return False
        self.sight = self.sight._replace(heir=token)
        return True

    def beat(self, token: str) -> str | None:
        self._begin("beat")
        return self.sight.heir if self.sight.token == token else None

    def release(self, token: str) -> None:
        self._begin("release")

    def close(self) -> None:
        self.calls.append("close")

    def probe(self, address: str) -> bool | None:
        self.calls.append(f"probe {address}")
        return not self.is_dead

    def lives(self) -> None:
        """The owner beats."""
        self.sight = self.sight._replace(beat=self.sight.beat + 1)

    # -- the shard

    def follow(self) -> None:
        self.heard.append("follow")

    def taken(self) -> None:
        self.heard.append("taken")

    def silence(self, reason: str | None) -> None:
        self.heard.append("speak" if reason is None else f"silent: {reason}")

    def asked(self) -> None:
        self.heard.append("asked")

    def failed(self, error: StoreError) -> None:
        self.heard.append(f"failed: {error}")
        assert self.calls[-1] == "look"

    def gone(self, error: StoreError) -> None:
        self.heard.append(f"gone: {error}")
        assert isinstance(error, FencedError)

    def hangs(self, seconds: float) -> bool:
        assert seconds == self.lease.terms.lease
        return self.stuck


def owning() -> Rig:
    """The rig of a process that owns a new shard."""
    rig = Rig(Sight("", 0, False, 0, None, 0, 1, 0.0))
    rig.keeper.start()
    assert rig.heard == ["taken"]
    rig.keeper.restored()
    rig.heard.clear()
    rig.calls.clear()
    return rig


def test_an_owner_warns_once_its_last_follower_has_gone(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    rig = owning()
    warnings: list[list[str]] = []
    for followers in (0, None, 1, 0, 0, 0, 2, None):
        rig.sight = rig.sight._replace(followers=followers)
        rig.run(MEASURE_SECONDS + 1)
        warnings.append(rig.keeper.warnings)
    gone = ["no follower: the last one has gone, and no broker would take the shard over"]
    assert warnings == [[], [], [], [], gone, gone, [], []], "one that was never followed is none that has lost it"
    assert caplog.text.count("store.no_follower") == 1
    assert caplog.text.count("store.has_follower") == 1, "it was told once"


# -- a follower


def test_a_shard_without_an_owner_is_taken_at_the_first_look() -> None:
    rig = Rig(Sight("", 0, False, 0, None, 0, 1, 0.0))
    rig.keeper.start()
    assert rig.calls == ["look", "take"]
    assert (rig.keeper.role, rig.sight.owner) == ("taking", OURS)


def test_a_living_owner_is_followed() -> None:
    rig = Rig()
    rig.keeper.start()
    rig.run(100, rig.lives)
    assert "taken" not in rig.heard
    assert rig.keeper.owner == OTHER
    assert rig.calls == ["look", "probe other:7680", *["look"] * 200], "twice in each beat"


def test_a_released_shard_is_taken_at_the_next_look() -> None:
    rig = Rig()
    rig.keeper.start()
    rig.sight = rig.sight._replace(released=True)
    assert rig.keeper.owner == OTHER
    rig.run(1)
    assert rig.heard[-1] == "taken"
    assert rig.keeper.owner is None


def test_the_owner_is_asked_once_to_hand_the_shard_over() -> None:
    rig = Rig(asks=True)
    rig.keeper.start()
    rig.run(5, rig.lives)
    assert rig.calls[:3] == ["look", "ask", "look"]
    assert rig.calls.count("ask") == 1
    assert rig.sight.heir == "ours"
    rig.sight = rig.sight._replace(released=True)
    rig.run(1)
    assert rig.heard[-1] == "taken"


def test_the_owner_is_asked_once_its_messages_are_built() -> None:
    rig = Rig(asks=True)
    rig.is_warm = False
    rig.keeper.start()
    rig.run(3, rig.lives)
    assert "ask" not in rig.calls
    rig.is_warm = True
    rig.run(1, rig.lives)
    assert "ask" in rig.calls


def test_an_owner_that_has_lost_the_shard_meanwhile_is_not_asked() -> None:
    rig = Rig(asks=True)
    rig.held = []
    rig.keeper.start()
    rig.answer()
    rig.held, seen = [], rig.sight
    rig.sight = seen._replace(token="third")
    rig.run(1)
    rig.answer()
    rig.run(1, rig.lives)
    assert rig.sight.heir == "ours", "the next owner was asked"


@pytest.mark.parametrize("sight", [{"released": True}, {"token": ""}, {"offset": 3.0}])
def test_nobody_is_asked_for_a_shard_that_is_free_or_may_not_be_taken(sight: dict[str, Any]) -> None:
    rig = Rig(Sight("theirs", 5, False, 3, OTHER, 7, 1, 0.0)._replace(**sight), asks=True)
    rig.keeper.start()
    rig.run(3)
    assert "ask" not in rig.calls


def test_an_owner_reports_at_each_beat_that_it_is_asked() -> None:
    rig = owning()
    rig.run(2)
    assert rig.heard == []
    rig.sight = rig.sight._replace(heir="theirs")
    rig.run(2)
    assert rig.heard == ["asked", "asked"]


def test_an_owner_that_is_still_is_followed_for_the_whole_lease() -> None:
    rig = Rig()
    rig.keeper.start()
    rig.run(9)
    assert "taken" not in rig.heard
    rig.run(2)
    assert rig.heard[-1] == "taken"


def test_the_owner_of_a_refusing_address_is_dead() -> None:
    rig = Rig()
    rig.keeper.start()
    rig.is_dead = True
    rig.calls.clear()
    rig.run(1)
    assert "probe other:7680" not in rig.calls
    rig.run(1)
    assert rig.calls[-2:] == ["probe other:7680", "take"]
    assert rig.heard[-1] == "taken"


def test_an_address_that_was_never_reached_shows_nothing() -> None:
    """That of a port which is open to the owner's own machine only refuses connections, however well the owner is."""
    rig = Rig()
    rig.is_dead = True
    rig.keeper.start()
    for _ in range(10):
        rig.run(5)
        rig.lives()
    assert set(rig.heard) == {"follow"}
    assert rig.calls.count("probe other:7680") == 6, "once in each lease"


def test_an_address_that_is_reached_later_shows_the_end_of_its_owner() -> None:
    rig = Rig()
    rig.is_dead = True
    rig.keeper.start()
    rig.is_dead = False
    rig.run(11, rig.lives)
    rig.is_dead = True
    rig.run(3)
    assert rig.heard[-1] == "taken"


def test_the_address_of_the_next_owner_has_to_be_reached_anew() -> None:
    rig = Rig()
    rig.keeper.start()
    rig.is_dead = True
    rig.sight = rig.sight._replace(token="next", epoch=4, owner=OTHER._replace(address="next:7680"))
    rig.run(9)
    assert rig.calls.count("probe next:7680") == 1
    assert "taken" not in rig.heard


def test_probes_of_a_machine_that_is_cut_off_do_not_put_a_takeover_off(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig(terms=Terms(beat=0.5, lease=2.0, margin=0.4), connects=True)
    tried: list[object] = []

    def connect(address: object, timeout: float) -> None:
        tried.append(address)
        rig.time += timeout
        raise TimeoutError

    monkeypatch.setattr("sievemq_broker.server.durability.probe.socket.create_connection", connect)
    rig.keeper.start()
    rig.run(3)
    assert tried[0] == ("other", 7680)
    assert rig.heard[-1] == "taken"


def test_a_probe_that_hangs_does_not_put_a_takeover_off() -> None:
    """The name of a machine that is gone may resolve slowly."""
    rig = Rig()
    rig.keeper.start()
    rig.probes = []
    rig.run(9)
    assert "taken" not in rig.heard
    rig.run(2)
    assert rig.heard[-1] == "taken"


def test_the_answer_of_a_probe_counts_for_its_owner_alone() -> None:
    rig = Rig()
    rig.keeper.start()
    rig.is_dead = True
    rig.probes = []
    rig.run(2)
    (late,) = rig.probes
    rig.sight = rig.sight._replace(token="next", beat=0)
    rig.run(1)
    late()
    rig.run(3)
    assert "taken" not in rig.heard


def test_an_owner_that_comes_back_during_the_probe_keeps_its_shard() -> None:
    rig = Rig()
    rig.keeper.start()
    rig.is_dead = True
    probe = rig.probe

    def probed(address: str) -> bool:
        rig.lives()
        return probe(address)

    rig.keeper._probe._accepts = probed
    rig.run(2)
    assert rig.calls[-2:] == ["take", "look"]
    assert "taken" not in rig.heard


@pytest.mark.parametrize(
    ("name", "address", "is_dead"),
    [
        ("this:0", "this:7680", True),
        ("that:0", "this:7680", False),  # both are behind one name
        ("this:0", "this:7681", False),
        ("this:0", "127.0.0.1:7680", False),  # which each machine has
    ],
)
def test_an_owner_in_whose_place_this_process_was_started_is_dead(name: str, address: str, is_dead: bool) -> None:
    """Its address accepts connections: they are this process's."""
    rig = Rig(Sight("theirs", 5, False, 3, OTHER._replace(name=name, address=address), 7, 1, 0.0))
    if address.startswith("127."):
        rig.keeper._probe._own = OURS._replace(address=address)
    rig.keeper.start()
    rig.run(1)
    rig.lives()
    rig.run(2)
    assert "taken" not in rig.heard
    rig.run(2)
    assert ("taken" in rig.heard) is is_dead


def test_a_take_whose_answer_was_lost_is_found_at_the_next_look() -> None:
    rig = Rig(Sight("", 0, False, 0, None, 0, 1, 0.0))
    take = rig.take

    def lost(*arguments: Any) -> bool:
        take(*arguments)
        raise AwayError("lost")

    rig.take = lost  # type: ignore[method-assign]
    rig.keeper.start()
    assert rig.heard == []
    rig.take = take  # type: ignore[method-assign]
    rig.run(1)
    assert rig.heard == ["taken"]


def test_a_follower_waits_for_a_store_that_is_away() -> None:
    rig = Rig()
    rig.error = AwayError("away")
    rig.keeper.start()
    rig.run(1_000)
    assert rig.heard == []
    assert rig.keeper.warnings == ["the store does not answer: away"]
    rig.error = None
    rig.run(1, rig.lives)
    assert rig.keeper.warnings == []
    assert set(rig.heard) == {"follow"}


@pytest.mark.parametrize("error", [StoreError("no table"), ValueError("a bug")])
def test_a_follower_ends_with_the_reason_of_any_other_error(error: Exception) -> None:
    rig = Rig()
    rig.error = error
    rig.keeper.start()
    assert len(rig.heard) == 1
    assert str(error) in rig.heard[0]
    rig.run(10)
    assert rig.calls == ["look"]


def test_a_follower_whose_clock_is_wrong_takes_nothing() -> None:
    rig = Rig(Sight("theirs", 5, True, 3, OTHER, 7, 1, 3.0))
    rig.keeper.start()
    rig.run(100)
    assert "taken" not in rig.heard
    assert rig.keeper.warnings == ["the clock differs from the database's by +3.0 s: this broker takes no shard"]
    rig.sight = rig.sight._replace(offset=0.1)
    rig.run(1)
    assert rig.heard[-1] == "taken"


def test_lost_writes_are_counted() -> None:
    rig = Rig()
    rig.keeper.start()
    rig.sight = rig.sight._replace(writes=4, view=2)
    rig.run(1)
    assert rig.keeper.lost_writes == 3


@pytest.mark.parametrize(
    ("settings", "names"),
    [
        ('{"dialect": "ibm-mq"}', ["dialect"]),
        ('{"dialect": "jakarta", "new": 1}', ["new"]),
        ("{}", ["dialect"]),
        ("[]", ["settings"]),
        ("?", ["settings"]),
    ],
)
def test_settings_that_differ_have_names(settings: str, names: list[str]) -> None:
    rig = Rig(Sight("theirs", 5, False, 3, OTHER._replace(settings=settings), 7, 1, 0.0))
    rig.keeper.start()
    assert rig.keeper.differing == names


# -- an owner


def test_an_owner_beats_and_speaks() -> None:
    rig = owning()
    rig.run(100)
    assert rig.calls.count("beat") == 100
    assert rig.keeper.speaks()
    assert rig.heard == []


def test_an_owner_with_a_wrong_clock_says_so_and_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    rig = owning()
    rig.sight = rig.sight._replace(offset=-2.0)
    rig.run(2.5 * MEASURE_SECONDS)
    assert rig.calls.count("look") == 2
    assert rig.keeper.warnings == ["the clock differs from the database's by -2.0 s: messages expire by this clock"]
    assert caplog.text.count("clock.apart") == 1
    assert rig.heard == []


def test_an_owner_without_answers_is_silent_before_the_lease_is_over() -> None:
    rig = owning()
    rig.error = AwayError("away")
    rig.run(7)
    assert rig.keeper.speaks()
    rig.run(1)
    assert not rig.keeper.speaks()
    rig.run(1)
    assert rig.heard == ["silent: away"]
    rig.error = None
    rig.run(1)
    assert rig.keeper.speaks()
    assert rig.heard == ["silent: away", "speak"]
    assert rig.keeper.silences == 1


def test_an_owner_whose_call_hangs_is_silent_in_time() -> None:
    rig = owning()
    rig.held = []
    rig.run(9)
    assert not rig.keeper.speaks()
    assert rig.heard == ["silent: the store has not answered in time"]
    rig.answer()
    assert rig.heard[-1] == "silent: the store has not answered in time", "the answer is too old to count"
    rig.run(1)
    assert rig.heard[-1] == "speak"


def test_a_short_silence_is_reported_with_its_end() -> None:
    """The lease ends and is renewed between two looks: what was held back meanwhile must be released."""
    rig = owning()
    rig.held = []
    rig.run(6.5)
    rig.answer()
    rig.heard.clear()
    rig.held = []
    rig.run(1)
    rig.keeper.lease.until = rig.time - 0.1
    rig.answer()
    assert rig.heard == ["silent: the store has not answered in time", "speak"]


def test_an_owner_gives_up_after_its_patience() -> None:
    rig = owning()
    rig.error = AwayError("away")
    rig.run(200)
    assert rig.heard[-1].startswith("gone: the store was away for 100 seconds (store_patience)")
    calls = len(rig.calls)
    rig.run(100)
    assert len(rig.calls) == calls


def test_an_owner_that_another_one_supersedes_is_gone() -> None:
    rig = owning()
    rig.sight = rig.sight._replace(token="theirs")
    rig.run(1)
    assert rig.heard == ["gone: another broker has taken the shard over"]
    assert not rig.keeper.speaks()


def test_an_owner_whose_write_hangs_does_not_beat() -> None:
    """But it looks, so that it learns when another one takes over."""
    rig = owning()
    rig.stuck = True
    rig.run(9)
    assert set(rig.calls) == {"look"}
    assert not rig.keeper.speaks()
    rig.sight = rig.sight._replace(token="theirs")
    rig.run(1)
    assert rig.heard[-1] == "gone: another broker has taken the shard over"


def test_an_owner_beats_while_it_restores() -> None:
    rig = Rig(Sight("", 0, False, 0, None, 0, 1, 0.0))
    rig.keeper.start()
    rig.run(9)
    assert rig.calls[2:] == ["beat"] * 9
    assert not rig.keeper.speaks()
    rig.keeper.restored()
    assert rig.keeper.speaks()
    assert rig.heard == ["taken"]


def test_an_owner_that_restores_without_answers_begins_silent() -> None:
    rig = Rig(Sight("", 0, False, 0, None, 0, 1, 0.0))
    rig.keeper.start()
    rig.error = AwayError("away")
    rig.run(20)
    rig.keeper.restored()
    assert rig.heard == ["taken", "silent: away"]


@pytest.mark.parametrize("owns", [True, False])
def test_the_owner_alone_releases_the_shard(owns: bool) -> None:
    rig = owning() if owns else Rig()
    if not owns:
        rig.keeper.start()
    rig.keeper.close()
    assert rig.calls[-3:] == (["release", "close", "end"] if owns else ["probe other:7680", "close", "end"])
    calls = len(rig.calls)
    rig.run(10)
    assert len(rig.calls) == calls


def test_a_follower_that_ends_while_it_takes_the_shard_releases_it() -> None:
    """Otherwise the others would wait for the whole lease."""
    rig = Rig(Sight("", 0, False, 0, None, 0, 1, 0.0))
    rig.held = []
    rig.keeper.start()
    looking, rig.held = rig.held, []
    for call in looking:
        call()
    rig.keeper.close()
    rig.answer()
    assert rig.sight.token == "ours"
    assert rig.calls == ["look", "end", "take", "release", "close"]
    assert rig.heard == []


def test_an_owner_that_is_gone_releases_nothing() -> None:
    rig = owning()
    rig.keeper.fail()
    rig.keeper.close()
    assert rig.calls == ["look", "close", "end"]
    assert rig.heard == []


@pytest.mark.parametrize(("epoch", "token", "is_lost"), [(0, "former", True), (1, "next", True), (2, "next", False)])
def test_an_owner_whose_takeover_is_lost_logs_what_it_has_written(
    epoch: int, token: str, is_lost: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """The row is that of the owner before, or of the one after it, which has the same number as this one; or nothing is
    lost, and another one has taken over."""
    rig = owning()
    rig.writes = 7
    rig.sight = rig.sight._replace(token=token, epoch=epoch)
    rig.run(1)
    assert rig.heard == ["gone: another broker has taken the shard over"]
    assert ("store.lost_writes" in caplog.text) is is_lost
    assert ("writes=7" in caplog.text) is is_lost
    rig.keeper.fail()
    assert rig.calls == ["beat", "look"], "once"


def test_a_takeover_whose_answer_was_lost_counts_once(caplog: pytest.LogCaptureFixture) -> None:
    rig = Rig(Sight("theirs", 5, True, 3, OTHER, 7, 1, 0.0))
    take = rig.take

    def lost(*arguments: Any) -> bool:
        take(*arguments)
        raise AwayError("lost")

    rig.take = lost  # type: ignore[method-assign]
    rig.keeper.start()
    rig.take = lambda *_: True  # type: ignore[method-assign]
    rig.run(1)
    assert "store.taken" in caplog.text
    rig.sight = rig.sight._replace(token="next", epoch=rig.sight.epoch + 1)
    rig.run(1)
    assert rig.heard == ["taken", "gone: another broker has taken the shard over"]
    assert "store.lost_writes" not in caplog.text


def test_an_owner_that_is_gone_while_the_store_is_away_logs_no_loss(caplog: pytest.LogCaptureFixture) -> None:
    rig = owning()
    rig.error = AwayError("away")
    rig.keeper.fail()
    assert rig.calls == ["look"]
    assert "store.lost_writes" not in caplog.text


def test_the_end_is_orderly_though_the_store_is_away() -> None:
    rig = owning()
    rig.error = AwayError("away")
    rig.keeper.close()
    assert rig.calls == ["release", "end"]


# -- an address


def test_an_address_accepts_or_refuses_or_says_nothing() -> None:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        assert accepts(address, 60.0) is True
    assert accepts(address, 60.0) is False
    assert accepts("host.invalid:1", 60.0) is None
    assert accepts("no port", 60.0) is None
