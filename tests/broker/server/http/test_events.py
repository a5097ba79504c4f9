"""The stream of events, and the figures for charts."""

from __future__ import annotations

import asyncio
import http.client
import json
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

import pytest

from sievemq import ConnectionFactory
from sievemq_broker import EmbeddedBroker
from sievemq_broker.domain.policy import DestinationPolicy
from sievemq_broker.domain.work import TURN, Budget, finish
from sievemq_broker.server.http.api import series
from sievemq_broker.server.http.api.history import KEEP, Event, History
from sievemq_broker.server.http.api.hub import BUFFER, MAX_LISTENERS, Hub, Listener
from sievemq_broker.session.rights import Grant, Identity, Rights, Verb

from .conftest import DEADLINE, Api, at, send


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """A look each few milliseconds instead of each second."""
    monkeypatch.setattr(series, "STEP_SECONDS", 0.02)


class Stream:
    def __init__(self, response: http.client.HTTPResponse) -> None:
        self.response = response
        self.last = ""

    def __iter__(self) -> Iterator[tuple[str, Any]]:
        """Events by name; their times are checked here and left out, but for the tick's. `last` is the id of each."""
        name = ""
        for raw in self.response:
            line = raw.decode().rstrip("\n")
            if line.startswith("event: "):
                name = line[7:]
            elif line.startswith("data: "):
                about = json.loads(line[6:])
                if name == "heartbeat":
                    continue
                if name not in ("tick", "missed"):
                    assert about.pop("time") > 0
                yield name, about
            elif line.startswith("id: "):
                self.last = line[4:]

    def until(self, wanted: str) -> list[tuple[str, Any]]:
        """Everything up to the event of that name, ticks left out."""
        found = []
        for event in self:
            if event[0] != "tick" or wanted == "tick":
                found.append(event)
            if event[0] == wanted:
                return found
        raise AssertionError(f"the stream ended; {found}")


@contextmanager
def listening(broker: EmbeddedBroker, header: str | None = None, **query: str) -> Iterator[Stream]:
    parts = urlsplit(broker.http_url)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=DEADLINE)
    headers = {} if header is None else {"Last-Event-ID": header}
    connection.request("GET", f"/api/v1/events?{urlencode(query)}", headers=headers)
    response = connection.getresponse()
    try:
        assert response.status == 200, response.read()
        assert response.getheader("content-type") == "text/event-stream; charset=utf-8"
        yield Stream(response)
    finally:
        connection.close()
        response.close()


@pytest.fixture
def fresh() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(http=True) as broker:
        yield broker


@pytest.mark.parametrize("other", [Hub.ready, Hub.look])
def test_nothing_is_missed_while_another_listener_comes(
    fresh: EmbeddedBroker, other: Callable[[Hub], Awaitable[None]]
) -> None:
    """The state that a listener relies on, and a later one that is taken for another at the same time."""

    topic: Any = fresh.call(lambda broker: broker.namespace("n").create("topic:t"))

    async def events() -> list[str]:
        scheduler = fresh.server.shard.broker.scheduler
        hub = Hub(fresh.server, fresh._http.management.sampler)  # type: ignore[union-attr]
        listener = Listener(Identity(), None)
        hub.add(listener)
        scheduler.turn = 0  # only what follows here is done
        coming = [asyncio.ensure_future(act(hub)) for act in (Hub.ready, other)]
        await asyncio.sleep(0)
        scheduler.run(0, 1)
        await coming[0]
        fresh.server.shard.broker.namespace("n").subscriptions.subscribe(
            topic, "s", None, None, durable=False, shared=True, no_local=False, connection="c", temporary=False
        )
        scheduler.turn = TURN
        fresh.server.turn.worked()
        await coming[1]
        await hub.look()
        return [name for _, (name, _) in await listener.next(0)]

    assert fresh._loop is not None
    assert "subscription.created" in asyncio.run_coroutine_threadsafe(events(), fresh._loop).result(DEADLINE)


def test_ticks_carry_totals(fresh: EmbeddedBroker) -> None:
    api = Api(fresh)
    api.ok("POST", f"{at('queue:q')}/messages", {"body": "x"})
    with listening(fresh) as stream:
        for name, about in stream:
            if name == "tick" and about["depth"] == 1:
                break
        assert about["destinations"] == 1
        assert about["time"] > 0
        assert about["blocked"] is None
        fresh.clock.advance(seconds=1_000_000)
        later = next(tick for name, tick in stream if tick["time"] - about["time"] >= 1_000_000_000)
    assert later["depth"] == 1


def test_events_report_changes(fresh: EmbeddedBroker) -> None:
    api = Api(fresh)
    with listening(fresh) as stream:
        stream.until("tick")
        with ConnectionFactory(fresh.url).create_context(2) as context:
            consumer = context.create_consumer(context.create_queue("q"))
            seen = dict(stream.until("consumer.opened"))
            assert seen["destination.created"] == {"namespace": "default", "address": "queue:q"}
            opened = seen["connection.opened"]
            assert (opened["namespace"], opened["user"]) == ("default", None)
            assert seen["consumer.opened"] == {
                "namespace": "default",
                "address": "queue:q",
                "connection": opened["connection"],
                "consumer": 1,
            }
            fresh.call(
                lambda b: setattr(b.namespace("default").create("queue:q"), "policy", DestinationPolicy(max_attempts=1))
            )
            send(context, "queue:q", 1, 2)
            for _ in range(2):
                assert consumer.receive(60_000) is not None
            context.recover()
            dead = [about for name, about in stream.until("dead_lettered") if name == "dead_lettered"]
            assert dead == [{"namespace": "default", "address": "queue:q", "messages": 2}]
            api.act("queue:q", "pause")
            stream.until("destination.paused")
            api.act("queue:q", "resume")
            stream.until("destination.resumed")
            consumer.close()
            stream.until("consumer.closed")
        assert stream.until("connection.closed")[-1][1]["connection"] == opened["connection"]
        api.ok("DELETE", at("queue:q"))
        assert stream.until("destination.deleted")[-1][1]["address"] == "queue:q"
        fresh.call(lambda _: fresh.server.shard.services.flow("full"))
        assert stream.until("flow.blocked")[-1][1] == {"reason": "full"}
        fresh.call(lambda _: fresh.server.shard.services.flow(None))
        stream.until("flow.unblocked")


def test_events_report_actions_to_those_who_may_read_the_record(fresh: EmbeddedBroker) -> None:
    api = Api(fresh)
    api.ok("PUT", at("queue:q"))
    with listening(fresh) as stream:
        stream.until("tick")
        api.act("queue:q", "purge")
        _, about = stream.until("action")[-1]
        assert (about["action"], about["address"], about["touched"]) == ("purge_messages", "queue:q", 0)
    whole = Listener(Identity(), None)
    some = Listener(Identity("anna", Rights([Grant(frozenset({Verb.VIEW}), "queue:q", "default")])), None)
    for event in (("action", {"namespace": "default", "address": "queue:q"}), ("action", {})):
        assert whole.receives(event)
        assert not some.receives(event)


def test_events_of_one_namespace_only(fresh: EmbeddedBroker) -> None:
    with listening(fresh, namespace="mine") as stream:
        stream.until("tick")
        for namespace in ("other", "mine"):
            api = Api(fresh, namespace)
            api("POST", "/api/v1/namespaces", {"name": namespace})
            api.ok("PUT", at("queue:q"))
        found = [event for event in stream.until("destination.created") if event[0] != "action"]  # a look may part them
        assert found == [("destination.created", {"namespace": "mine", "address": "queue:q"})]


def test_the_stream_ends_with_the_broker() -> None:
    with EmbeddedBroker(http=True) as broker, listening(broker) as stream:
        stream.until("tick")
        broker.stop()
        assert all(name == "tick" for name, _ in stream)


def test_event_streams_are_limited_and_a_closed_one_makes_room(
    fresh: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert MAX_LISTENERS > 1
    monkeypatch.setattr("sievemq_broker.server.http.api.hub.MAX_LISTENERS", 1)
    api = Api(fresh)
    with listening(fresh) as stream:
        stream.until("tick")
        answer = api("GET", "/api/v1/events")
        assert (answer.status, answer.error) == (429, "TOO_MANY_REQUESTS")
    hub = fresh._http.management.hub  # type: ignore[union-attr]
    for _ in range(2_000):
        if not fresh.call(lambda _: len(hub.listeners)):
            break
    with listening(fresh) as stream:
        stream.until("tick")


def everybody() -> Listener:
    return Listener(Identity(), None)


async def test_a_slow_listener_finds_the_latest_tick_and_how_many_events_it_missed() -> None:
    listener = everybody()
    for number in range(BUFFER + 7):
        listener.put(str(number), ("destination.created", {"namespace": "n", "address": f"queue:{number}"}))
        listener.tick(str(number), {"time": number})
    events = await listener.next(1)
    assert events[0] == (None, ("missed", {"events": 7, "reason": "slow"}))
    assert len(events) == BUFFER + 2
    assert events[-1] == (str(BUFFER + 6), ("tick", {"time": BUFFER + 6}))
    assert await listener.next(0) == []
    listener.put("x", ("flow.unblocked", {}))
    assert await listener.next(1) == [("x", ("flow.unblocked", {}))]


async def test_a_listener_receives_only_events_it_may_view() -> None:
    rights = Rights([Grant(frozenset({Verb.BROWSE}), "queue:mine.*", "n")])
    listener = Listener(Identity("anna", rights), None)
    created = [
        ("destination.created", {"namespace": namespace, "address": address})
        for namespace, address in (("n", "queue:mine.1"), ("n", "queue:yours"), ("m", "queue:mine.1"))
    ]
    # connections are visible to users who may view the whole namespace
    opened: list[Event] = [("connection.opened", {"namespace": n, "connection": "c"}) for n in ("m", "n")]
    assert list(filter(listener.receives, [*created, *opened])) == created[:1]
    listener.tick("1", {"time": 5, "blocked": None, "depth": 1_000})
    assert await listener.next(1) == [("1", ("tick", {"time": 5, "blocked": None}))]
    watcher = Listener(Identity("max", Rights([Grant(frozenset({Verb.VIEW}), "*", "n")])), None)
    assert list(filter(watcher.receives, opened)) == opened[1:]
    assert not watcher.receives_all
    assert everybody().receives_all


def test_events_report_subscriptions_and_taps(fresh: EmbeddedBroker) -> None:
    api = Api(fresh)
    with listening(fresh) as stream, ConnectionFactory(fresh.url).create_context() as context:
        stream.until("tick")
        context.create_shared_durable_consumer(context.create_topic("t"), "s").close()
        subscription = {"namespace": "default", "address": "topic:t", "client_id": None, "name": "s"}
        subscription |= {"durable": True, "shared": True}
        assert stream.until("subscription.created")[-1][1] == subscription
        context.unsubscribe("s")
        assert stream.until("subscription.deleted")[-1][1] == subscription
        api.ok("PUT", at("queue:q") + "/taps/archive", {"mode": "drain"})
        tap = {"namespace": "default", "address": "queue:q", "name": "archive", "mode": "drain"}
        assert stream.until("tap.created")[-1][1] == tap
        api.ok("DELETE", at("queue:q") + "/taps/archive")
        assert stream.until("tap.deleted")[-1][1] == tap


# -- a stream that broke off ------------------------------------------------------------------------------------------


def made(stream: Stream, address: str) -> list[str]:
    """Addresses of destinations that were made, up to this one."""
    found = []
    for name, about in stream:
        if name == "destination.created":
            found.append(about["address"])
            if about["address"] == address:
                return found
        assert name in ("tick", "action", "destination.created", "connection.opened"), (name, about)
    raise AssertionError(f"the stream ended; {found}")


@pytest.mark.parametrize("by_header", [False, True])
def test_a_resumed_client_gets_missed_answers_once(fresh: EmbeddedBroker, by_header: bool) -> None:
    api = Api(fresh)
    with listening(fresh) as stream:
        stream.until("tick")
        for name in "abc":
            api.ok("PUT", at(f"queue:{name}"))
        made(stream, "queue:a")
    for name in "de":
        api.ok("PUT", at(f"queue:{name}"))
    back = {"header": stream.last, "since": "nonsense"} if by_header else {"since": stream.last}
    with listening(fresh, **back) as stream:
        api.ok("PUT", at("queue:f"))
        assert made(stream, "queue:f") == [f"queue:{name}" for name in "bcdef"]


def test_a_stream_without_a_last_id_gets_only_later_events(fresh: EmbeddedBroker) -> None:
    api = Api(fresh)
    with listening(fresh) as stream:
        stream.until("tick")
        api.ok("PUT", at("queue:a"))
        made(stream, "queue:a")
    with listening(fresh) as stream:
        stream.until("tick")
        api.ok("PUT", at("queue:b"))
        assert made(stream, "queue:b") == ["queue:b"]


def test_an_event_id_of_another_run_is_reported(fresh: EmbeddedBroker) -> None:
    with listening(fresh, since="0123abcd.5.1") as stream:
        assert next(iter(stream)) == ("missed", {"events": None, "reason": "restarted"})


def test_events_are_dropped_when_unread_for_a_while(fresh: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sievemq_broker.server.http.api.hub.LINGER_SECONDS", 0.0)
    hub = fresh._http.management.hub  # type: ignore[union-attr]
    with listening(fresh) as stream:
        stream.until("tick")
    deadline = time.monotonic() + DEADLINE
    while fresh.call(lambda _: hub._known is None or hub._known.is_whole):
        assert time.monotonic() < deadline
    looks = fresh.call(lambda _: hub._history.look)
    Api(fresh).ok("PUT", at("queue:a"))
    with listening(fresh, since=f"{stream.last.split('.')[0]}.0") as stream:
        first = next(iter(stream))
    assert looks >= 1
    assert first == ("missed", {"events": None, "reason": "forgotten"})


def test_missed_events_go_only_to_users_with_the_right_to_view_them(fresh: EmbeddedBroker) -> None:
    hub = fresh._http.management.hub  # type: ignore[union-attr]
    api = Api(fresh)
    with listening(fresh) as stream:
        stream.until("tick")
        begin = stream.last
        for address in ("queue:mine.1", "queue:yours", "queue:mine.2", "topic:last"):
            api.ok("PUT", at(address))
        made(stream, "topic:last")
    rights = Rights([Grant(frozenset({Verb.BROWSE}), "queue:mine.*", "default")])
    listener = Listener(Identity("anna", rights), None)

    def come_back(_: object) -> list[str]:
        hub.add(listener, begin)
        hub.discard(listener)
        return [event[1]["address"] for _, event in listener._events]

    assert fresh.call(come_back) == ["queue:mine.1", "queue:mine.2"]


def happening(number: int, namespace: str = "n") -> Event:
    return ("destination.created", {"namespace": namespace, "address": f"queue:{number}"})


def every(_: Event) -> bool:
    return True


def test_a_history_counts_dropped_events() -> None:
    history = History()
    history.add([happening(0)])
    start = history.id_of(0)
    for number in range(1, KEEP + 10):
        history.add([happening(number)])
        history.add([])
    missed, told = history.since(start, every, True)
    assert missed == (10, "forgotten")
    assert [event for _, event in told] == [happening(number) for number in range(10, KEEP + 10)]
    # nobody learns how many there were that it must not see
    missed, told = history.since(start, lambda event: event[1]["address"] == "queue:11", False)
    assert missed == (None, "forgotten")
    assert [event for _, event in told] == [happening(11)]
    # from there on nothing is missing
    assert history.since(told[0][0], every, True)[0] is None
    assert history.since(history.id_of(history.look), every, True) == (None, [])


def test_a_history_continues_a_split_tick() -> None:
    history = History()
    history.add([happening(number, namespace) for number in range(4) for namespace in ("mine", "yours")])

    def mine(event: Event) -> bool:
        return event[1]["namespace"] == "mine"

    _, told = history.since(history.id_of(0), mine, False)
    assert [event_id.rpartition(".")[2] for event_id, _ in told] == ["1", "2", "3", "4"]
    for position, (event_id, _) in enumerate(told):
        assert history.since(event_id, mine, False) == (None, told[position + 1 :])


def test_a_tick_with_too_many_events_is_cut_and_counted() -> None:
    history = History()
    history.add([happening(number) for number in range(KEEP + 5)])
    missed, told = history.since(history.id_of(0), every, True)
    assert (missed, len(told)) == ((5, "forgotten"), KEEP)
    assert history.since(told[-1][0], every, True) == ((5, "forgotten"), [])
    history.add([happening(0)])
    missed, told = history.since(history.id_of(1, 100), every, True)
    assert missed == (KEEP + 5 - 100, "forgotten")
    assert [event for _, event in told] == [happening(0)]


def test_a_history_says_when_it_does_not_know(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sievemq_broker.server.http.api.history.COUNTED", 3)
    history = History()
    for number in range(KEEP + 5):
        history.add([happening(number)])
    assert history.since(history.id_of(1), every, True)[0] == (None, "forgotten")
    assert history.since(history.id_of(2), every, True)[0] == (3, "forgotten")
    run = history.id_of(1).partition(".")[0]
    for unknown in (
        "",
        run,
        f"{run}.x",
        f"{run}.1.x",
        f"{run}.1.1.1",
        f"{run}.{KEEP + 6}",
        f"{run}.²",
        "x.1",
        "." * 200,
    ):
        missed, told = history.since(unknown, every, True)
        assert missed == (None, "restarted"), unknown
        assert len(told) == KEEP


# -- series -----------------------------------------------------------------------------------------------------------


def test_depth_and_rates_of_a_queue(fresh: EmbeddedBroker) -> None:
    api = Api(fresh)
    api.ok("PUT", at("queue:q"))
    api.ok("PUT", at("queue:idle"))
    with listening(fresh) as stream:
        stream.until("tick")
        for _ in range(5):
            api.ok("POST", f"{at('queue:q')}/messages", {"body": "x"})
        for name, about in stream:
            if name == "tick" and about["depth"] == 5:
                break
    series_ = api.get(f"{at('queue:q')}/series")
    assert len(series_["times"]) == len(series_["depth"]) == len(series_["in_rate"]) == len(series_["out_rate"])
    assert series_["depth"][-1] == 5
    assert max(series_["in_rate"]) > 0
    assert set(series_["out_rate"]) == {0.0}
    assert series_["times"] == sorted(series_["times"])
    idle = api.get(f"{at('queue:idle')}/series")
    assert set(idle["depth"]) == {0}
    assert set(idle["in_rate"]) == {0.0}
    total = api.get("/api/v1/series")
    assert total["depth"][-1] == 5
    assert max(total["in_rate"]) > 0
    assert api.get("/api/v1/series", since=total["times"][-1] + 10_000_000)["times"] == []
    assert api.get("destinations", sort="-in_rate")["total"] == 2


def sampler_over(broker: EmbeddedBroker) -> series.Sampler:
    return series.Sampler(broker.server)


def looked(sampler: series.Sampler, times: int = 1) -> None:
    for _ in range(times):
        finish(sampler.sample, 0)


def counted(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """The queues and topics that looks of this thread visit from now on."""
    visited: list[object] = []
    figures = series._figures
    here = threading.get_ident()  # the broker's own sampler looks, too

    def note(of: Any) -> tuple[int, ...]:
        if threading.get_ident() == here:
            visited.append(of)
        return figures(of)

    monkeypatch.setattr(series, "_figures", note)
    return visited


def pieces(sampler: series.Sampler, visited: list[object]) -> list[int]:
    """How many queues and topics a look visits between two turns of the loop."""
    found: list[int] = []
    budget = Budget(100)
    for _ in sampler.sample(0, budget):
        found.append(len(visited) - sum(found))
        budget.renew(100)
    return [*found, len(visited) - sum(found)]


@pytest.fixture
def many(fresh: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch) -> tuple[series.Sampler, list[Any], list[object]]:
    """A sampler of 3,000 queues that visits 500 idle ones in a look, 50 at a time; and what it visits."""
    monkeypatch.setattr(series, "SWEEP", 500)
    fresh.call(lambda b: [b.namespace("n").create(f"queue:{n}") for n in range(3_000)])
    queues = list(fresh.call(lambda b: b.namespace("n").destinations).values())
    sampler = sampler_over(fresh)
    visited = counted(monkeypatch)
    pieces(sampler, visited)
    visited.clear()
    return sampler, queues, visited


def test_a_tick_does_the_same_work_at_any_number_of_queues(
    many: tuple[series.Sampler, list[Any], list[object]],
) -> None:
    sampler, queues, visited = many
    for _ in range(6):
        visited.clear()
        assert max(pieces(sampler, visited)) <= 50
        assert len(visited) == 500
    for queue in queues[:5]:
        queue.sequence += 1
    for _ in range(6):
        pieces(sampler, visited)
    for _ in range(6):
        for queue in queues[:5]:
            queue.sequence += 2
        visited.clear()
        taken = sampler.latest.taken
        assert max(pieces(sampler, visited)) <= 50
        assert len(visited) <= 505
        assert set(queues[:5]) <= set(visited)
        assert sampler.latest.taken - taken == 10


def test_each_idle_queue_is_visited_once_in_a_round(many: tuple[series.Sampler, list[Any], list[object]]) -> None:
    sampler, queues, visited = many
    queues[17].sequence += 4
    for queue in queues[2_000:2_010]:
        queue.pause()
    looks = 0
    while not sampler.tracks:
        pieces(sampler, visited)
        looks += 1
        assert looks <= 2 * 6
    assert list(sampler.tracks) == [queues[17]]
    assert sampler.latest.taken == 4
    visited.clear()
    while sampler.latest.paused < 10:
        pieces(sampler, visited)
        assert len(visited) <= 2 * 6 * 500
    assert sampler.latest.destinations == 3_000


def test_the_next_tick_finds_new_and_deleted_queues(
    fresh: EmbeddedBroker, many: tuple[series.Sampler, list[Any], list[object]]
) -> None:
    sampler, queues, visited = many
    queues[0].sequence += 3
    for _ in range(12):
        pieces(sampler, visited)
    fresh.call(lambda b: b.namespace("n").delete("queue:0"))
    new = fresh.call(lambda b: b.namespace("n").create("queue:new"))
    fresh.call(lambda b: b.namespace("n").delete("queue:new") and b.namespace("n").create("queue:newer"))
    pieces(sampler, visited)
    assert [queue.label for queue in sampler.changes.created] == ["queue:newer"]
    assert sampler.changes.deleted == [queues[0]]
    assert new not in visited
    assert not sampler.tracks
    assert (sampler.latest.destinations, sampler.latest.taken, sampler.latest.in_rate) == (3_000, 3, 0)


def test_a_subscription_deleted_amid_a_look_is_counted_once(fresh: EmbeddedBroker) -> None:
    with (
        ConnectionFactory(f"{fresh.url}/n").create_context() as context,
        context.create_shared_durable_consumer(context.create_topic("t"), "s") as consumer,
    ):
        send(context, "topic:t", 1)
        assert consumer.receive(60_000) is not None
    sampler, budget = sampler_over(fresh), Budget(1)
    look = sampler.sample(0, budget)
    next(look)
    fresh.call(lambda b: b.namespace("n").unsubscribe(None, "s"))
    budget.renew(100)
    assert not list(look)
    assert sampler.latest.given == 1
    looked(sampler)
    assert sampler.latest.given == 1


def test_ticks_begin_a_second_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(series, "STEP_SECONDS", 1.0)
    assert [series.pause(spent) for spent in (0.0, 0.25, 0.5)] == [1.0, 0.75, 0.5]
    assert series.pause(3.0) == 0.1  # the loop is busy: others have most of the time


def test_an_open_stream_begins_with_a_heartbeat_and_repeats_it_while_there_are_no_ticks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(series, "STEP_SECONDS", 3_600.0)
    monkeypatch.setattr("sievemq_broker.server.http.api.events.HEARTBEAT_SECONDS", 0.01)
    with EmbeddedBroker(http=True) as broker, listening(broker) as stream:
        heard = [line for line, _ in zip(stream.response, range(11), strict=False)]
    assert heard[2:] == [b"event: heartbeat\n", b'data: {"seconds":0.01}\n', b"\n"] * 3


def test_memory_is_bounded_at_any_number_of_queues(fresh: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(series, "MAX_TRACKS", 10)

    space = fresh.call(lambda b: b.namespace("n"))
    queues = [fresh.call(lambda _, n=n: space.create(f"queue:{n}")) for n in range(30)]
    sampler = sampler_over(fresh)
    looked(sampler)
    assert not sampler.tracks
    for queue in queues:
        queue.sequence += 1
    looked(sampler)
    assert list(sampler.tracks) == queues[20:]
    queues[20].sequence += 1
    queues[0].sequence += 1
    looked(sampler)
    assert list(sampler.tracks) == [*queues[22:], queues[20], queues[0]]
    looked(sampler, 2 * series.SAMPLES + 5)
    assert len(sampler.times) == series.SAMPLES
    assert all(len(track.depth) <= series.SAMPLES + 60 for track in sampler.tracks.values())
    fresh.call(lambda b: b.delete_namespace("n"))
    looked(sampler)
    assert not sampler.tracks
    assert sampler.latest.destinations == 0


def test_series_have_messages_in_flight(fresh: EmbeddedBroker) -> None:
    api = Api(fresh)
    with ConnectionFactory(fresh.url).create_context(2) as context:
        send(context, "queue:q", 1, 2, 3)
        assert context.create_consumer(context.create_queue("q")).receive(60_000) is not None
        for path in (f"{at('queue:q')}/series", "/api/v1/series"):
            deadline = time.monotonic() + DEADLINE
            while True:
                series = api.get(path)
                assert len(series["in_flight"]) == len(series["depth"]) == len(series["times"])
                if series["in_flight"] and series["in_flight"][-1] == 3 - series["depth"][-1] > 0:
                    break
                assert time.monotonic() < deadline


def test_a_topic_is_one_series(fresh: EmbeddedBroker) -> None:

    url = f"{fresh.url}/{quote('n', safe='')}"
    sampler = sampler_over(fresh)
    with ConnectionFactory(url).create_context() as context:
        context.create_shared_durable_consumer(context.create_topic("t"), "s").close()
        looked(sampler)
        send(context, "topic:t", 1, 2, 3)
    looked(sampler)
    (track,) = sampler.tracks.values()
    assert list(track.depth) == [3]
    assert track.in_rate[0] > 0
    assert (sampler.latest.taken, sampler.latest.depth) == (3, 3)
