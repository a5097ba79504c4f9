"""A COMMIT that takes several turns: all of it or nothing, while clients browse, come, go or die in the middle."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.broker.at_once import done

from sievemq_broker.domain import DestinationPolicy, Queue, management, publishing
from sievemq_broker.domain.broker import Broker
from sievemq_broker.domain.journal import Journal
from sievemq_broker.domain.management import Choice
from sievemq_broker.domain.policy import DomainSettings
from sievemq_broker.domain.work import TURN
from sievemq_core.errors import ErrorCode
from sievemq_core.message.envelope import BODY, Envelope
from sievemq_core.wire.commands import Command

from .harness import AUTO, TRANSACTED, Client, World, envelope, failing

LARGE = 10
SIZE = len(Envelope(envelope("m0")).packed)


@pytest.fixture(autouse=True)
def small_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """What passes five messages is large."""
    monkeypatch.setattr(publishing, "AT_ONCE", 5)


def world_with(**policies: DestinationPolicy) -> World:
    return World(broker=Broker(DomainSettings(policies=tuple((f"queue:{n}", p) for n, p in policies.items()))))


def names(begin: str, count: int = LARGE) -> list[str]:
    return [f"{begin}{n}" for n in range(count)]


def turn(world: World, messages: int = 1) -> bool:
    more = world.broker.work(world.now, messages)
    world.settle()
    return more


def turns(world: World) -> None:
    for _ in range(10_000):
        if not turn(world):
            return
    raise AssertionError("it does not come to an end")


def until_answered(world: World, client: Client, request: int) -> Iterator[None]:
    """Turn after turn until a request is granted."""
    for _ in range(1_000):
        turn(world)
        answer = client.answer_to(request)
        if answer is not None:
            assert answer == (Command.OK, request, None)
            return
        yield
    raise AssertionError("it is not answered")


def committing(client: Client, *texts: str, to: str = "queue:q", session: int | None = None) -> tuple[int, int]:
    """Sent and said COMMIT: the session and the request."""
    session = client.session(TRANSACTED) if session is None else session
    client.send(session, *texts, to=to)
    return session, client.request(Command.COMMIT, session, client.handed(session))


def texts_in(queue: Queue) -> list[str]:
    """What an administrator sees."""
    entries, _ = done(0, management.waiting, queue, None, -1, 1_000)
    return [str(entry.envelope.fields[12], "utf-8") for entry in entries]


def queue_of(world: World, address: str = "queue:q") -> Queue:
    return world.broker.namespace("").queue(address)


def test_a_consumer_a_browser_and_a_waiting_receive_see_nothing_and_then_everything(world: World) -> None:
    sender, reader, asker = world.client(), world.client(), world.client()
    waiting = reader.consumer(reader.session(AUTO), credit=1_000)
    empty = asker.consumer(asker.session(AUTO), selector="region = 'EU'", credit=0)
    _, request = committing(sender, *names("m"))
    wanted = asker.request(Command.WANT, empty.id)
    page = asker.request(Command.BROWSE, "queue:q", None, None, None, 100)
    turn(world, 7)
    assert queue_of(world).depth == 7
    assert sender.answer_to(request) is asker.answer_to(wanted) is asker.answer_to(page) is None
    assert waiting.deliveries == []
    turns(world)
    assert sender.answer_to(request) == (Command.OK, request, None)
    assert asker.answer_to(wanted) == (Command.OK, wanted, None)
    assert asker.answer_to(page) is not None
    assert waiting.all() == names("m")


def test_subscribers_are_served_in_slices_and_later_sends_follow(world: World) -> None:
    """Of a hundred subscribers each has a right to the whole batch at once."""
    sender, reader, other = world.client(), world.client(), world.client()
    session = reader.session(AUTO)
    consumers = [reader.consumer(session, "topic:t", credit=1_000) for _ in range(20)]
    _, request = committing(sender, *names("m"), to="topic:t")
    most, before, sent = 0, 0, False
    for _ in until_answered(world, sender, request):
        got = sum(len(consumer.deliveries) for consumer in consumers)
        most, before = max(most, got - before), got
        if got and not sent:
            sent = True
            assert not consumers[-1].deliveries, "it is not its turn yet"
            other.send(other.session(AUTO), "behind", to="topic:t")
    assert sent
    assert most <= 2 * LARGE + 20
    for consumer in consumers:
        assert consumer.all() == [*names("m"), "behind"]


def test_two_consumers_get_a_large_batch_in_slices_before_it_is_answered(world: World) -> None:
    sender, reader = world.client(), world.client()
    session = reader.session(AUTO)
    consumers = [reader.consumer(session, credit=1_000) for _ in range(2)]
    _, request = committing(sender, *names("m", 3 * TURN))
    most = got = 0
    while sender.answer_to(request) is None:
        turn(world, TURN)
        before, got = got, sum(len(consumer.deliveries) for consumer in consumers)
        most = max(most, got - before)
    assert got == 3 * TURN
    assert most <= TURN
    assert world.broker.scheduler.overrun <= 2
    for consumer in consumers:
        numbers = [int(name[1:]) for name in consumer.all()]
        assert numbers == sorted(numbers)


def test_a_tap_reports_the_commit_when_it_is_complete(world: World) -> None:
    sender, reader = world.client(), world.client()
    tap = reader.ask(Command.OPEN_TAP, "t", "queue:q", "copy", None, None, {})
    committing(sender, *names("m"))
    turn(world, 7)
    look = reader.request(Command.LOOK_TAP, "t", "queue:q", 0, 1_000, 1_000_000)
    fetch = reader.request(Command.FETCH_TAP, "t", "queue:q", tap["id"], 0, 1_000, 1_000)
    assert reader.answer_to(look) is reader.answer_to(fetch) is None
    turns(world)
    assert (answer := reader.answer_to(look)) is not None
    assert answer[2]["upto"] == LARGE
    assert (answer := reader.answer_to(fetch)) is not None
    assert [envelope[BODY] for envelope in answer[2][3]] == [name.encode() for name in names("m")]


def test_an_administrator_acts_on_messages_from_before_the_commit(world: World) -> None:
    sender, other = world.client(), world.client()
    session = other.session(AUTO)
    other.send(session, "before")
    other.send(session, "later", delivery_time=world.now + 60_000)
    _, request = committing(sender, *names("m"))
    turn(world, 7)
    queue = queue_of(world)
    sender.queue_send(sender.session(AUTO), ("ID:x", *queue.main.waits(-1, 1)[0].envelope.fields[1:]))
    assert texts_in(queue) == ["before"]
    assert done(0, queue.locate, [queue.sequence, "ID:x"], True) == []
    assert len(done(0, management.scheduled, queue, None, (-1, -1), 10)[0]) == 1
    moved = done(world.now, management.move, world.broker.namespace(""), "queue:r", queue, Choice())
    assert (moved.matched, moved.touched, moved.more) == (1, 1, False)
    assert done(world.now, management.purge, queue, Choice(dry_run=True)).matched == 1
    turns(world)
    assert sender.answer_to(request) == (Command.OK, request, None)
    assert set(names("m")) <= set(texts_in(queue))
    assert texts_in(queue_of(world, "queue:r")) == ["before"]


def test_consumed_messages_are_removed_in_the_first_turn(world: World) -> None:
    """Whether it happens is decided when it begins: a client that sends and consumes in one transaction may go then."""
    feeder, worker = world.client(), world.client(keep=60_000)
    feeder.send(feeder.session(AUTO), "in", to="queue:in")
    session = worker.session(TRANSACTED)
    consumer = worker.consumer(session, "queue:in", credit=1)
    assert consumer.all() == ["in"]
    _, request = committing(worker, *names("out"), session=session)
    turn(world, 3)
    assert worker.answer_to(request) is None
    worker.drop()
    turns(world)
    last = world.client()
    assert last.browse("queue:in") == []
    assert [text for _, text in last.browse()] == names("out")
    assert not world.services.reports


def test_a_resumed_client_learns_that_its_commit_completed(world: World) -> None:
    client = Client(world)
    client.hello(keep=60_000)
    client.take(Command.WELCOME)
    session, request = committing(client, *names("m"))
    turn(world, 3)
    client.drop()
    back = Client(world)
    back.hello(resume=client.broker.peer.member.id)
    (welcome,) = back.take(Command.WELCOME)
    assert [session, LARGE, request] in [list(known) for known in welcome[-1]["resumed"]["sessions"]]
    turns(world)
    assert [text for _, text in back.browse()] == names("m")


def test_a_waiting_commit_is_rolled_back_with_its_connection(world: World) -> None:
    first, second = world.client(), world.client()
    first.send(first.session(AUTO), "in", to="queue:in")
    session = second.session(TRANSACTED)
    assert second.consumer(session, "queue:in", credit=1).all() == ["in"]
    committing(first, *names("a"))
    committing(second, *names("b"), session=session)
    turn(world, 3)
    second.drop()
    turns(world)
    assert [text for _, text in first.browse()] == names("a")
    assert first.browse("queue:in") == [(2, "in")]


def test_two_are_carried_out_one_after_the_other_and_small_ones_meanwhile(world: World) -> None:
    first, second, third = world.client(), world.client(), world.client()
    reader = third.consumer(third.session(AUTO), credit=1_000)
    other = third.consumer(third.session(AUTO), "queue:elsewhere", credit=1_000)
    _, one = committing(first, *names("a"))
    _, two = committing(second, *names("b"))
    _, small = committing(third, "s", to="queue:elsewhere")
    assert third.answer_to(small) == (Command.OK, small, None)
    assert other.all() == ["s"]
    for _ in until_answered(world, first, one):
        assert second.answer_to(two) is None
    assert reader.all() == names("a")
    turns(world)
    assert second.answer_to(two) == (Command.OK, two, None)
    assert reader.all() == names("b")


def test_later_commands_of_the_session_run_after_the_commit(world: World, client: Client, other: Client) -> None:
    """A client waits for the answer; one that does not gets its answers in order, and its messages."""
    session, first = committing(client, *names("a"))
    client.send(session, "b")
    second = client.request(Command.COMMIT, session, ())
    client.send(session, "never")
    back = client.request(Command.ROLLBACK, session, ())
    closed = client.request(Command.CLOSE_SESSION, session, ())
    bye = client.request(Command.GOODBYE, ())
    assert all(client.answer_to(request) is None for request in (first, second, back, closed, bye))
    turns(world)
    heard = [command[1] for command in client.heard if command[0] == Command.OK]
    assert heard == [first, second, back, closed, bye]
    assert not client.transport_open
    browsed = [text for _, text in other.browse()]
    assert browsed[:LARGE] == names("a")
    assert "b" in browsed


@pytest.mark.parametrize("third", [False, True])
@pytest.mark.parametrize("verb", [Command.ROLLBACK, Command.CLOSE_SESSION, Command.COMMIT, Command.GOODBYE])
def test_a_commit_that_has_waited_comes_before_what_its_client_says_next(verb: Command, third: bool) -> None:
    """Between the end of a batch and the turn in which those that wait for it go on, and with another batch there."""
    for between in range(40):
        world = World()
        first, second, other = world.client(), world.client(), world.client()
        _, one = committing(first, *names("a"))
        session, waiting = committing(second, *names("b"))
        for _ in range(between):
            turn(world)
        if third:
            committing(other, *names("c"))
            turn(world)
        last = second.request(verb, *(() if verb is Command.GOODBYE else (session,)), ())
        turns(world)
        assert [command[1] for command in second.heard if command[0] == Command.OK] == [waiting, last], between
        assert Counter(texts_in(queue_of(world)))["b0"] == 1, between
        assert first.answer_to(one) == (Command.OK, one, None)


@pytest.mark.parametrize("verb", [Command.ROLLBACK, Command.CLOSE_SESSION, Command.COMMIT, Command.GOODBYE])
def test_commands_behind_a_commit_stay_in_order_whenever_they_arrive(verb: Command) -> None:
    for between in range(40):
        world = World()
        client = world.client()
        session, one = committing(client, *names("a"))
        two = client.request(Command.COMMIT, session, ())
        for _ in range(between):
            turn(world)
        last = client.request(verb, *(() if verb is Command.GOODBYE else (session,)), ())
        turns(world)
        assert [command[1] for command in client.heard if command[0] == Command.OK] == [one, two, last], between


def test_an_impossible_commit_is_rolled_back_whole(world: World) -> None:
    owner, sender = world.client(), world.client()
    temporary = owner.ask(Command.CREATE_TEMPORARY, False)
    session = sender.session(TRANSACTED)
    sender.send(session, *names("m"))
    sender.send(session, "reply", to=temporary)
    owner.drop()
    code, text, details = sender.refused(Command.COMMIT, session, ())
    assert (code, details["code"]) == (ErrorCode.TRANSACTION_ROLLED_BACK, ErrorCode.INVALID_DESTINATION)
    assert temporary in text
    assert world.broker.namespace("").publishing is None
    assert sender.browse() == []


@pytest.mark.parametrize("rule", ["block", "fail"])
def test_its_room_is_kept_for_it(rule: str) -> None:
    world = world_with(q=DestinationPolicy(max_messages=LARGE + 2, at_limit=rule))
    sender, other = world.client(), world.client()
    quick = other.session(AUTO)
    other.send(quick, "there")
    _, request = committing(sender, *names("m"))
    turn(world, 2)
    other.send(quick, "fits", "not")
    assert bool(other.take(Command.FLOW)) is (rule == "block")
    assert bool(other.take(Command.SEND_FAILED)) is (rule == "fail")
    for _ in until_answered(world, sender, request):
        assert queue_of(world).depth <= LARGE + 2
    assert (queue_of(world).reserved_messages, queue_of(world).reserved_bytes) == (0, 0)
    assert sorted(texts_in(queue_of(world))) == sorted(["there", *names("m"), "fits"])
    reader = other.consumer(other.session(AUTO), credit=100)
    turns(world)
    assert ("not" in reader.all()) is (rule == "block")


@pytest.mark.parametrize("policy", [{"max_messages": LARGE}, {"max_bytes": SIZE * LARGE}])
def test_at_a_limit_it_waits_whole_and_is_taken_whole(policy: dict[str, Any]) -> None:
    world = world_with(q=DestinationPolicy(at_limit="block", **policy))
    sender, other = world.client(), world.client()
    other.send(other.session(AUTO), "there")
    _, request = committing(sender, *names("m"))
    ((_, blocked, *_),) = sender.take(Command.FLOW)
    assert blocked
    turn(world)
    assert texts_in(queue_of(world)) == ["there"]
    # While it waits another namespace-wide batch is on its way: it is retried behind that.
    _, elsewhere = committing(other, *names("o"), to="queue:elsewhere")
    reader = other.consumer(other.session(AUTO), credit=1)
    assert reader.all() == ["there"]
    reader.acknowledge()
    turn(world)
    assert sender.answer_to(request) is None
    turns(world)
    assert other.answer_to(elsewhere) == (Command.OK, elsewhere, None)
    assert sender.answer_to(request) == (Command.OK, request, None)
    assert texts_in(queue_of(world)) == names("m")
    assert not world.broker.rooms.waiting


def test_more_than_the_limit_has_room_where_nothing_is_and_no_second_one_beside_it() -> None:
    world = world_with(q=DestinationPolicy(max_messages=3, at_limit="block"))
    sender, other = world.client(), world.client()
    _, request = committing(sender, *names("m"))
    other.send(other.session(AUTO), "late")  # nothing is there yet, but all of it is promised
    assert other.take(Command.FLOW)
    turns(world)
    assert sender.answer_to(request) == (Command.OK, request, None)
    assert texts_in(queue_of(world)) == names("m")


def test_an_ended_subscription_frees_its_reserved_room() -> None:
    policy = DestinationPolicy(max_messages=100, at_limit="block")
    world = World(broker=Broker(DomainSettings(policies=(("topic:t", policy),))))
    sender, reader = world.client(), world.client()
    session = reader.session(AUTO)
    there = reader.consumer(session, "topic:t", credit=0)
    gone = reader.consumer(session, "topic:t", credit=0)
    queues = [s.queue for s in world.broker.namespace("").declare("topic:t").subscriptions]  # type: ignore[union-attr]
    committing(sender, *names("m"), to="topic:t")
    turn(world, 4)
    gone.close()
    turns(world)
    there.credit(100)
    assert there.all() == names("m")
    assert [queue.reserved_messages for queue in queues] == [0, 0]


def test_overrides_apply_once_and_count_for_the_limit() -> None:
    policy = DestinationPolicy(priority=7, delay=1_000, max_messages=LARGE, at_limit="block")
    world = world_with(q=policy)
    sender = world.client()
    committing(sender, *names("m"))
    turns(world)
    entries = list(queue_of(world).scheduled.values())
    assert {(entry.envelope.priority, entry.envelope.delivery_time) for entry in entries} == {(7, world.now + 1_000)}
    assert len(entries) == LARGE


def test_a_fault_during_a_commit_is_reported_and_frees_reserved_room() -> None:
    world = world_with(q=DestinationPolicy(max_messages=LARGE, at_limit="block"))
    sender, other = world.client(), world.client()
    _, request = committing(sender, *names("m"))
    with failing(queue_of(world)):
        turns(world)
    assert sender.answer_to(request) is None
    assert sender.fatal is not None
    assert "while carrying out COMMIT" in sender.fatal[3]
    assert world.services.reports.pop()[0] == "carrying out COMMIT"
    assert queue_of(world).reserved_messages == 0
    other.send(other.session(AUTO), *names("o"))
    assert texts_in(queue_of(world)) == names("o")


def test_an_end_of_the_broker_carries_it_to_its_end(world: World) -> None:
    first, second = world.client(), world.client()
    _, one = committing(first, *names("a"))
    _, two = committing(second, *names("b"))
    turn(world, 3)
    world.broker.finish(world.now)
    world.settle()
    assert first.answer_to(one) == (Command.OK, one, None)
    assert second.answer_to(two) == (Command.OK, two, None)
    assert [text for _, text in first.browse()] == [*names("a"), *names("b")]


def test_the_commit_and_its_acknowledgements_are_one_write_and_others_are_written_meanwhile() -> None:
    world, journal = World(), Journal()
    world.broker.keep_in(journal)
    feeder, worker = world.client(), world.client()
    feeder.send(feeder.session(AUTO), "in", to="queue:in")
    session, other = worker.session(TRANSACTED), feeder.session(AUTO)
    assert worker.consumer(session, "queue:in", credit=1).all() == ["in"]
    journal.cut()
    _, request = committing(worker, *names("out"), session=session)
    meanwhile = 0
    for _ in until_answered(world, worker, request):
        feeder.send(other, "quick", to="queue:quick")
        parts = journal.cut().parts
        journal.written()
        assert sum(len(part.accepted) for part in parts) == 1, "of the other client"
        assert not any(part.gone for part in parts)
        meanwhile += 1
    assert meanwhile > 2
    parts = journal.cut().parts
    assert sum(len(part.accepted) for part in parts) == LARGE
    assert sum(len(part.gone) for part in parts) == 1


def test_the_write_that_completes_a_large_commit_is_small() -> None:
    world, journal = World(), Journal()
    world.broker.keep_in(journal)
    journal.ahead_bytes = 150
    worker = world.client()
    _, request = committing(worker, *names("a"))
    journal.cut()
    ahead = 0
    for _ in until_answered(world, worker, request):
        write = journal.cut()
        journal.written()
        assert write.bytes < 2 * journal.ahead_bytes
        ahead += sum(len(batch.accepted) for batch in write.ahead)
    last = journal.cut()
    assert sum(batch.ahead for batch in last.parts) == ahead >= LARGE - 2
    assert ahead + sum(len(batch.accepted) for batch in last.parts) == LARGE
    assert last.bytes < journal.ahead_bytes


# -- whatever the order ---------------------------------------------------------------------------------------------

ACTS = st.one_of(
    st.tuples(st.sampled_from(["send"]), st.integers(0, 3), st.integers(1, 12)),
    st.tuples(st.sampled_from(["commit", "rollback", "drop", "receive"]), st.integers(0, 3), st.just(0)),
    st.tuples(st.sampled_from(["turn", "look"]), st.just(0), st.integers(1, 8)),
)
LIMIT = 20


class Play:
    """Clients that commit, and what is known of their transactions."""

    def __init__(self, limit: int) -> None:
        policy = DestinationPolicy(max_messages=limit, at_limit="block")
        self.world = world_with(**({"q": policy} if limit else {}))
        self.limit = limit
        self.clients = [self.newcomer() for _ in range(4)]
        self.transactions: dict[str, int] = {}  # messages by name
        self.open: dict[int, tuple[str, int]] = {}  # by place: what its transaction is called, and has sent
        self.pending: list[tuple[Client, int, str]] = []
        self.committed: set[str] = set()
        self.undone: set[str] = set()
        self.received: list[str] = []
        reader = self.world.client()
        self.reader = reader.consumer(reader.session(AUTO), credit=0)
        self.watcher = self.world.client()

    def newcomer(self) -> tuple[Client, int]:
        client = self.world.client()
        return client, client.session(TRANSACTED)

    def send(self, place: int, count: int) -> None:
        client, session = self.clients[place]
        if any(waiting is client for waiting, _, _ in self.pending):
            return  # a client waits for the answer to its commit
        name, sent = self.open.get(place, (f"t{len(self.transactions)}", 0))
        client.send(session, *(f"{name}.{number}" for number in range(sent, sent + count)))
        self.open[place] = name, sent + count
        self.transactions[name] = sent + count

    def commit(self, place: int, _: int) -> None:
        client, session = self.clients[place]
        name, _ = self.open.pop(place, ("", 0))
        if name:
            self.pending.append((client, client.request(Command.COMMIT, session, ()), name))
        self.settle()

    def rollback(self, place: int, _: int) -> None:
        client, session = self.clients[place]
        name, _ = self.open.pop(place, ("", 0))
        if name:
            client.rollback(session)
            self.undone.add(name)

    def drop(self, place: int, _: int) -> None:
        client, _session = self.clients[place]
        client.drop()
        name, _sent = self.open.pop(place, ("", 0))
        self.undone |= {name} - {""}
        self.pending = [each for each in self.pending if each[0] is not client]  # in doubt: all or nothing
        self.clients[place] = self.newcomer()

    def receive(self, _: int, __: int) -> None:
        self.reader.credit(5)
        self.received += self.reader.all()
        self.reader.acknowledge()

    def turn(self, _: int, budget: int) -> None:
        turn(self.world, budget)
        self.settle()

    def look(self, *_: int) -> None:
        """Of each transaction all is there, or nothing; as much as has not been received."""
        queue = queue_of(self.world)
        buffered = [delivery.text for delivery in self.reader.deliveries]
        seen = Counter(text.split(".")[0] for text in [*texts_in(queue), *self.received, *buffered])
        for name, count in seen.items():
            assert count == self.transactions[name], name
            assert name not in self.undone
        if not queue.standstill.held:  # what is committed behind a batch that is being published shows when that does
            assert self.committed <= seen.keys()
        if self.limit:
            assert queue.depth <= max(self.limit, max(self.transactions.values(), default=0))

    def settle(self) -> None:
        for client, request, name in tuple(self.pending):
            if (answer := client.answer_to(request)) is not None:
                assert answer[0] == Command.OK
                self.pending.remove((client, request, name))
                self.committed.add(name)

    def end(self) -> None:
        for _ in range(10_000):
            more = turn(self.world)
            self.receive(0, 0)
            self.settle()
            self.look()
            if not more and not self.pending and not queue_of(self.world).depth:
                break
        assert not self.pending
        for name in {text.split(".")[0] for text in self.received}:
            own = [text for text in self.received if text.split(".")[0] == name]
            assert own == [f"{name}.{number}" for number in range(self.transactions[name])]
        assert not self.world.services.reports


@settings(max_examples=60, deadline=None)
@given(acts=st.lists(ACTS, max_size=40), limit=st.sampled_from([0, LIMIT]))
def test_in_any_order_each_transaction_is_there_whole_or_not_at_all(
    acts: list[tuple[str, int, int]], limit: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(publishing, "AT_ONCE", 5)
        play = Play(limit)
        for act, place, number in acts:
            getattr(play, act)(place, number)
            play.look()
        play.end()


def test_a_large_commit_ends_once_most_of_it_is_written_however_slow_the_disk_is() -> None:
    world, journal = World(), Journal()
    world.broker.keep_in(journal)
    journal.ahead_bytes = 150
    _, request = committing(worker := world.client(), *names("a"))
    journal.cut()
    writes = 0
    for turns, _ in enumerate(until_answered(world, worker, request), 1):
        if turns % 50 == 0:
            assert journal.is_awaited
            assert journal.cut().bytes < 2 * journal.ahead_bytes
            journal.written()
            writes += 1
    assert writes > 2
    assert not journal.is_awaited
    assert journal.cut().bytes < 2 * journal.ahead_bytes


def test_a_large_commit_ends_without_the_disk_when_the_broker_stops() -> None:
    world, journal = World(), Journal()
    world.broker.keep_in(journal)
    journal.ahead_bytes = 150
    _, request = committing(worker := world.client(), *names("a"))
    for _ in range(50):
        turn(world)
    assert worker.answer_to(request) is None
    world.broker.finish(world.now)
    world.settle()
    assert worker.answer_to(request) == (Command.OK, request, None)
    assert sum(len(batch.accepted) for batch in journal.cut().parts) == LARGE
