"""What charts show: samples of an hour, a day and a week, and what has happened meanwhile."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path
from threading import Event, get_ident

import pytest

from sievemq_broker import EmbeddedBroker
from sievemq_broker.domain.broker import Broker
from sievemq_broker.domain.work import Budget, finish
from sievemq_broker.server.http.api import charts, management, requests, series
from sievemq_broker.server.http.api.ranges import LONGER, Ring
from sievemq_broker.server.server import Server

from ...domain.support import message
from .conftest import Api, at
from .test_events import listening

ANNA = {"password": "a", "rights": [{"may": ["view"], "destination": "queue:orders"}]}

HOUR, DAY, WEEK = range(3)


class Charted:
    """A broker whose clock stands at the begin of an hour, and a sampler that looks when it is told to."""

    def __init__(self, broker: EmbeddedBroker) -> None:
        self.broker = broker
        there = Event()
        broker.call(lambda _: broker.server.history.when_loaded(there.set))
        assert there.wait(60)
        self.sampler = broker.call(lambda _: series.Sampler(broker.server))
        broker.clock.freeze()
        hour = 3_600_000
        self.pass_time((hour - self.now % hour) / 1_000)
        self.start = self.now

    @property
    def now(self) -> int:
        return self.broker.server.clock.now()

    def pass_time(self, seconds: float) -> None:
        self.broker.clock.advance(seconds=seconds)

    def look(self, *depths: int) -> None:
        """Look once for each depth of the queue, which may only grow."""
        for depth in depths:
            self.broker.call(self._look, depth)

    def _look(self, broker: Broker, depth: int) -> None:
        queue = broker.namespace("default").declare("queue:q")
        while queue.depth < depth:
            broker.namespace("default").send("queue:q", message(), self.now)
        finish(self.sampler.sample, 0)


@pytest.fixture
def charted(tmp_path: Path) -> Iterator[Charted]:
    with EmbeddedBroker(data_dir=tmp_path) as broker:
        yield Charted(broker)


def basic(user: str) -> dict[str, str]:
    return {"Authorization": "Basic " + b64encode(f"{user}:a".encode()).decode()}


def depths(ring: Ring) -> list[int]:
    return ring.depth.tolist()


def test_a_longer_range_shows_the_peak_and_the_average_rate_of_each_step(charted: Charted) -> None:
    sampler = charted.sampler
    charted.look(0, 2, 6)
    charted.pass_time(30)
    charted.look(6, 7)
    assert depths(sampler.total.longer[HOUR]) == [6]
    times, ring = sampler.samples(sampler.total, HOUR)
    assert depths(ring) == [6, 7], "the step that is not over is there"
    assert times == [charted.start + 30_000, sampler.latest.time]
    (track,) = sampler.tracks.values()
    assert depths(track.longer[HOUR]) == [6]
    *_, in_rate, out_rate = track.longer[HOUR].latest(1)[0]
    assert 0 < in_rate == pytest.approx(sum(track.in_rate[:2]) / 2)
    assert out_rate == 0


def test_a_day_is_made_of_hours_steps_and_a_week_of_a_days(charted: Charted) -> None:
    sampler = charted.sampler
    charted.look(0, 3)
    for _ in range(7):
        charted.pass_time(600)
        charted.look(3)
    assert depths(sampler.total.longer[DAY]) == [3] * 7
    assert depths(sampler.total.longer[WEEK]) == [3]
    charted.look(9)
    assert depths(sampler.samples(sampler.total, WEEK)[1]) == [3, 9]


def test_rings_are_bounded(charted: Charted) -> None:
    longer, ring = LONGER[HOUR], Ring(LONGER[HOUR].samples)
    for number in range(1_000):
        ring.add(number, 0, 0.0, 0.0)
        assert len(ring.depth) <= longer.samples * 9 // 8
    assert ring.latest(2) == [(998, 0, 0.0, 0.0), (999, 0, 0.0, 0.0)]
    assert ring.latest(0) == []
    assert len(ring.latest(longer.samples)) == longer.samples


def test_many_queues_are_condensed_in_slices(charted: Charted) -> None:
    charted.look(0)
    space = charted.broker.server.shard.broker.namespace("default")
    charted.broker.call(lambda _: [space.send(f"queue:{n}", message(), charted.now) for n in range(50)])
    charted.look(0)
    charted.pass_time(30)

    def slices(_: Broker) -> int:
        budget, number = Budget(40), 0
        for _ in charted.sampler.sample(0, budget):
            budget.renew(40)
            number += 1
        return number

    assert charted.broker.call(slices) >= 5
    assert all(depths(track.longer[HOUR]) == [1] for track in charted.sampler.tracks.values())


def test_charts_of_everything_survive_a_restart_with_the_gap(tmp_path: Path) -> None:
    with EmbeddedBroker(data_dir=tmp_path) as broker:
        charted = Charted(broker)
        charted.look(0, 4)
        charted.pass_time(60)
        charted.look(4)
        start = charted.start
    with EmbeddedBroker(data_dir=tmp_path) as broker:
        charted = Charted(broker)
        charted.look(0)
        charted.pass_time(30)
        charted.look(0)
        sampler = charted.sampler
        assert depths(sampler.total.longer[HOUR]) == [4, 0]
        first, second = sampler.longer[HOUR].times
        assert first == start + 60_000
        assert second == charted.start + 30_000


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """A look each few milliseconds instead of each second."""
    monkeypatch.setattr(series, "STEP_SECONDS", 0.02)


@pytest.fixture
def served(quick: None) -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(http=True, settings={"users": {"admin": "a", "anna": ANNA}}) as broker:
        yield broker


def kept(api: Api, count: int) -> None:
    """Return when there are so many rows: each request is answered by the loop that looks."""
    rows = api.broker.server.history.rows("event", 1)
    while len(rows) < count:
        api.get("/api/v1/broker")


def test_a_broker_serves_although_kept_samples_are_not_what_they_should_be(tmp_path: Path) -> None:
    """Of another version, or damaged. And what the management port joins of the broker it joins on the loop."""
    where: list[int] = []
    folder = tmp_path / "history"
    folder.mkdir()
    (folder / "charthour").write_bytes(b'{"id":1,"time":1}\n')

    class Noted(series.Sampler):
        def __init__(self, server: Server) -> None:
            where.append(get_ident())
            super().__init__(server)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(management, "Sampler", Noted)
        with EmbeddedBroker(settings={"data_dir": str(tmp_path)}, http=True) as broker:
            assert Api(broker).get("/api/v1/series", range="1h")["depth"] is not None
            assert where == [broker.call(lambda _: get_ident())]


def test_the_api_gives_each_range(quick: None) -> None:
    with EmbeddedBroker(http=True) as broker:
        api = Api(broker)
        broker.call(lambda b: [b.namespace("default").send("queue:q", message(), 0) for _ in range(3)])
        api.ok("PUT", at("queue:idle"))
        with listening(broker) as stream:
            next(about for name, about in stream if name == "tick" and about["depth"] == 3)
        for path in ("/api/v1/series", f"{at('queue:q')}/series"):
            for longer in LONGER:
                found = api.get(path, range=longer.name)
                assert found["step_seconds"] == longer.step
                assert found["depth"][-1] == 3
        assert api.get("/api/v1/series")["step_seconds"] == 1
        assert set(api.get(f"{at('queue:idle')}/series", range="1w")["depth"]) == {0}
        assert api("GET", "/api/v1/series", range="2h").status == 400


def test_what_lies_before_the_range_is_left_out(charted: Charted) -> None:
    times = list(range(100_000_000, 500_000_000, 100_000_000))
    ring = Ring(len(times))
    for number in range(len(times)):
        ring.add(number, 0, 0.0, 0.0)
    answer = charts._series(requests.Samples(range="1d"), times, ring)
    assert answer.times == times[-1:]
    assert charts._series(requests.Samples(range="1w"), times, ring).times == times


def test_history_and_marks_go_by_the_rights_of_the_caller(served: EmbeddedBroker) -> None:
    admin, anna = (Api(served, **basic(name)) for name in ("admin", "anna"))
    for address in ("queue:orders", "queue:secret"):
        admin.ok("PUT", at(address))
    kept(admin, 3)
    for address in ("queue:orders", "queue:secret"):
        admin.act(address, "pause")
    kept(admin, 5)
    mark = admin.ok("POST", "/api/v1/history", {"text": "orders 1.4.2"})
    assert (mark["event"], mark["about"]) == ("mark", {"text": "orders 1.4.2", "user": "admin"})
    assert anna("POST", "/api/v1/history", {"text": "mine"}).error == "SECURITY"
    assert admin("POST", "/api/v1/history", {"text": ""}).status == 400
    everything = admin.get("/api/v1/history")["events"]
    assert mark in everything
    names = [row["event"] for row in everything]
    assert names[-1] == "broker.started"
    assert names.count("destination.created") == names.count("destination.paused") == 2
    seen = {row["about"].get("address") for row in anna.get("/api/v1/history")["events"]}
    assert "queue:orders" in seen
    assert "queue:secret" not in seen
    marks = admin.get("/api/v1/history", only="marks", address="queue:orders")["events"]
    assert [row["event"] for row in marks] == ["mark", "destination.paused", "broker.started"]
    assert admin.get("/api/v1/history", since=mark["time"], only="marks")["events"] == []
    assert admin.get("/api/v1/history", namespace="other", only="marks")["events"][0] == mark


def test_history_comes_in_pages(served: EmbeddedBroker) -> None:
    admin = Api(served, **basic("admin"))
    for number in range(5):
        admin.ok("POST", "/api/v1/history", {"text": str(number), "namespace": "default"})
    found, cursor = [], {}
    while True:
        page = admin.get("/api/v1/history", limit=2, only="marks", **cursor)
        found += [row["about"].get("text") for row in page["events"]]
        if page["next"] is None:
            break
        cursor = {"cursor": page["next"]}
    assert found == ["4", "3", "2", "1", "0", None]


def test_what_happens_while_nobody_listens_is_kept(served: EmbeddedBroker) -> None:
    admin = Api(served, **basic("admin"))
    admin.ok("PUT", at("queue:orders"))
    kept(admin, 2)
    created = admin.get("/api/v1/history")["events"][0]
    assert (created["event"], created["about"]["address"]) == ("destination.created", "queue:orders")
