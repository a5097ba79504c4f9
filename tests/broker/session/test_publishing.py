"""A batch that takes several turns to publish: no client sees a part of it, and none waits for longer than it takes."""

from __future__ import annotations

from functools import partial
from itertools import pairwise

import pytest

from sievemq_broker.domain import DestinationPolicy
from sievemq_broker.domain.publishing import AT_ONCE
from sievemq_broker.domain.work import Budget, Task
from sievemq_core.errors import ErrorCode
from sievemq_core.wire.commands import Command

from .harness import AUTO, START, TRANSACTED, Client, World, envelope, failing

COUNT = AT_ONCE + 50
NUMBERS = [str(n) for n in range(COUNT)]


def staged(client: Client, *texts: str, to: str = "queue:q", batch: int = 0) -> str:
    session = client.session(TRANSACTED)
    client.send(session, *texts, to=to)
    return str(client.ask(Command.STAGE, session, "k", batch, 60_000))


def turns(world: World, limit: int = 1_000) -> int:
    """Let turns go by until there is nothing left to do; how many."""
    for turn in range(limit):
        more = world.broker.work(world.now, 100)
        world.settle()
        if not more:
            return turn
    raise AssertionError("it does not come to an end")


def texts(client: Client, destination: str = "queue:q") -> list[str]:
    return [text for _, text in client.browse(destination)]


def test_a_consumer_sees_nothing_and_then_everything(world: World) -> None:
    sender, reader, asker = world.client(), world.client(), world.client()
    waiting = reader.consumer(reader.session(AUTO), credit=2_000)
    other = asker.consumer(asker.session(AUTO), selector="region = 'EU'", credit=0)
    published = sender.request(Command.PUBLISH, "k", 0, (staged(sender, *NUMBERS),))
    wanted = asker.request(Command.WANT, other.id)
    world.broker.work(world.now, 100)
    world.settle()
    queue = world.broker.namespace("").queue("queue:q")
    assert queue.depth == 100
    assert queue.in_flight == 0
    assert (sender.answer_to(published), asker.answer_to(wanted)) == (None, None)
    assert turns(world) > 2
    assert sender.answer_to(published) == (Command.OK, published, COUNT)
    assert asker.answer_to(wanted) == (Command.OK, wanted, None)
    assert (waiting.all(), other.all()) == (NUMBERS, [])


def test_a_browse_waits_until_publishing_is_complete(world: World) -> None:
    sender, reader = world.client(), world.client()
    sender.request(Command.PUBLISH, "k", 0, (staged(sender, *NUMBERS),))
    world.broker.work(world.now, 100)
    page = reader.request(Command.BROWSE, "queue:q", None, None, None, 2)
    assert reader.answer_to(page) is None
    turns(world)
    answer = reader.answer_to(page)
    assert answer is not None
    assert [fields[12] for _, fields in answer[2][1:]] == [b"0", b"1"]
    assert texts(reader) == NUMBERS


def test_very_many_browses_that_wait_for_a_batch_take_several_turns(world: World) -> None:
    sender, lost, readers = world.client(), world.client(), [world.client() for _ in range(2)]
    sender.request(Command.PUBLISH, "k", 0, (staged(sender, *NUMBERS),))
    asked = [reader.request(Command.BROWSE, "queue:q", None, None, None, 2) for reader in readers * 50]
    lost.request(Command.BROWSE, "queue:q", None, None, None, 2)
    while world.broker.namespace("").publishing is not None:
        assert not any(reader.heard for reader in readers)
        world.broker.work(world.now)
        world.settle()
    lost.drop()
    answered = [0]
    while world.broker.work(world.now):
        world.settle()
        answered.append(sum([len(reader.heard) for reader in readers]))
    world.settle()
    assert max(later - earlier for earlier, later in pairwise(answered)) <= 4
    assert [[command[1] for command in reader.heard] for reader in readers] == [asked[::2], asked[1::2]]
    assert not lost.heard
    assert not world.services.reports


def test_sends_of_others_are_accepted_during_publishing_and_follow_it(world: World) -> None:
    sender, other = world.client(), world.client()
    session = other.session(AUTO)
    published = sender.request(Command.PUBLISH, "k", 0, (staged(sender, *NUMBERS),))
    world.broker.work(world.now, 100)
    other.send(session, "meanwhile", "and again")
    assert other.take(Command.CONFIRM)
    turns(world)
    assert sender.answer_to(published) is not None
    other.send(session, "later")
    found = texts(other)
    assert [text for text in found if text.isdigit()] == NUMBERS
    assert [text for text in found if not text.isdigit()] == ["meanwhile", "and again", "later"]
    assert found[-1] == "later"


def test_batches_are_published_in_order_and_once(world: World) -> None:
    """A PUBLISH that is repeated before its answer waits for the first, on any connection; a next batch too."""
    sender, other = world.client(), world.client()
    first, second = staged(sender, *NUMBERS), staged(sender, *(f"2{n}" for n in NUMBERS), batch=1)
    asked = [
        (client, client.request(Command.PUBLISH, "k", batch, (name,)))
        for client, batch, name in ((sender, 0, first), (other, 0, first), (other, 1, second), (sender, 0, first))
    ]
    turns(world)
    answers = [client.answer_to(request) for client, request in asked]
    assert [answer and answer[2] for answer in answers] == [COUNT, None, COUNT, None]
    assert texts(sender) == [*NUMBERS, *(f"2{n}" for n in NUMBERS)]


def test_a_publisher_may_disconnect(world: World) -> None:
    sender, reader = world.client(), world.client()
    sender.request(Command.PUBLISH, "k", 0, (staged(sender, *NUMBERS),))
    page = reader.request(Command.BROWSE, "queue:q", None, None, None, 2)
    sender.drop()
    reader.drop()
    turns(world)
    last = world.client()
    assert last.answer_to(page) is None
    assert texts(last) == NUMBERS


def test_a_topic_delivers_to_present_subscribers_and_not_to_later_ones(world: World) -> None:
    sender, reader = world.client(), world.client()
    session = reader.session(AUTO)
    there = reader.consumer(session, "topic:t", credit=2_000)
    gone = reader.consumer(session, "topic:t", credit=2_000)
    sender.request(Command.PUBLISH, "k", 0, (staged(sender, *NUMBERS, to="topic:t"),))
    world.broker.work(world.now, 100)
    came = reader.consumer(session, "topic:t", credit=2_000)
    gone.close()
    world.settle()
    assert there.all() == []
    turns(world)
    assert there.all() == NUMBERS
    assert came.all() == []
    sender.send(sender.session(AUTO), "later", to="topic:t")
    assert (there.all(), came.all()) == (["later"], ["later"])


def test_a_queue_that_is_deleted_takes_its_part_along(world: World) -> None:
    sender = world.client()
    names = (staged(sender, *NUMBERS), staged(sender, "kept", to="queue:other"))
    published = sender.request(Command.PUBLISH, "k", 0, names)
    world.broker.work(world.now, 100)
    world.broker.namespace("").delete("queue:q")
    turns(world)
    assert sender.answer_to(published) == (Command.OK, published, COUNT + 1)
    assert (texts(sender), texts(sender, "queue:other")) == ([], ["kept"])


def test_messages_that_expire_or_are_delayed_keep_their_place_among_the_others(world: World) -> None:
    sender = world.client()
    session = sender.session(TRANSACTED)
    for number in NUMBERS:
        kind = int(number) % 100
        more = {7: {"expiration": START + 40}, 8: {"delivery_time": START + 60_000}, 9: {"priority": 9}}.get(kind, {})
        sender.queue_send(session, envelope(number, **more), "queue:other" if kind == 10 else "queue:q")
    world.settle()
    name = sender.ask(Command.STAGE, session, "k", 0, 60_000)
    sender.request(Command.PUBLISH, "k", 0, (name,))
    turns(world)
    urgent = [number for number in NUMBERS if int(number) % 100 == 9]
    assert texts(sender, "queue:other") == [number for number in NUMBERS if int(number) % 100 == 10]
    usual = [number for number in NUMBERS if int(number) % 100 not in (8, 9, 10)]
    assert texts(sender) == urgent + usual
    world.later(50)
    assert texts(sender) == urgent + [number for number in usual if int(number) % 100 != 7]


def test_overrides_of_a_destination_apply(world: World) -> None:
    sender = world.client()
    name = staged(sender, *NUMBERS)
    queue = world.broker.namespace("").queue("queue:q")
    queue.policy = DestinationPolicy(priority=7)
    sender.request(Command.PUBLISH, "k", 0, (name,))
    turns(world)
    assert {entry.envelope.priority for entry in queue.main.waits(-1, COUNT)} == {7}


def test_publish_at_a_limit_is_refused_or_done_in_one_turn(world: World) -> None:
    sender = world.client()
    name = staged(sender, *NUMBERS)
    queue = world.broker.namespace("").queue("queue:q")
    queue.policy = DestinationPolicy(max_messages=COUNT - 1)
    assert sender.refused(Command.PUBLISH, "k", 0, (name,))[0] == ErrorCode.RESOURCE_ALLOCATION
    assert queue.depth == 0
    queue.policy = DestinationPolicy(max_messages=COUNT)
    published = sender.request(Command.PUBLISH, "k", 0, (name,))
    turns(world)
    assert sender.answer_to(published) == (Command.OK, published, COUNT)
    assert (queue.depth, queue.reserved_messages) == (COUNT, 0)


def test_a_fault_during_publishing_affects_no_other_client(world: World) -> None:
    sender, other = world.client(), world.client()
    consumer = other.consumer(other.session(AUTO), credit=1_000)
    published = sender.request(Command.PUBLISH, "k", 0, (staged(sender, *NUMBERS),))
    with failing(world.broker.namespace("").queue("queue:q")):
        turns(world)
    assert sender.answer_to(published) is None
    assert sender.fatal is not None
    assert "while carrying out PUBLISH" in sender.fatal[3]
    assert world.services.reports.pop()[0] == "carrying out PUBLISH"
    other.send(other.session(AUTO), "after")
    assert consumer.all() == ["after"]


class _Undeliverable:
    """Watches a queue, and fails when a message is handed out."""

    def accepted(self, *_: object) -> None: ...

    def handed(self, *_: object) -> None:
        raise ZeroDivisionError


def test_a_fault_in_delivering_holds_no_other_queue_back(world: World) -> None:
    sender, reader = world.client(), world.client()
    consumers = [reader.consumer(reader.session(AUTO), f"queue:{name}", credit=2_000) for name in "abc"]
    world.broker.namespace("").queue("queue:b").observe(_Undeliverable())  # type: ignore[arg-type]
    names = tuple(staged(sender, *NUMBERS[:400], to=f"queue:{name}") for name in "abc")
    sender.request(Command.PUBLISH, "k", 0, names)
    turns(world)
    assert [consumers[at].all() for at in (0, 2)] == [NUMBERS[:400]] * 2
    assert sender.fatal is not None
    assert world.services.reports.pop()[0] == "carrying out PUBLISH"


def test_an_end_of_the_broker_carries_it_to_its_end(world: World) -> None:
    sender = world.client()
    published = sender.request(Command.PUBLISH, "k", 0, (staged(sender, *NUMBERS),))
    world.broker.work(world.now, 100)
    world.broker.finish(world.now)
    world.settle()
    assert sender.answer_to(published) == (Command.OK, published, COUNT)
    assert texts(sender) == NUMBERS


@pytest.mark.parametrize("lost", [True, False])
def test_later_commands_wait_for_each_command_that_has_begun(world: World, lost: bool) -> None:
    """A command that had waited for a batch may begin while another one is under way."""
    client = world.client()
    peer, over, acted = client.broker.peer, set[str](), list[str]()

    def until_over(name: str, now: int, budget: Budget) -> Task[None]:
        while name not in over:
            yield

    for name in ("a", "b"):
        make, act = partial(until_over, name), partial(lambda name, now: acted.append(name), name)
        world.broker.scheduler.start(name, make, world.now, later=True)
        job = world.broker.scheduler.last(name)
        assert job is not None
        peer.agenda.go_on_after(job, (Command.PING, 1), act, world.now, size=100)
    client.queue(Command.PING, 7)
    client.exchange()
    assert peer.unpublished >= 200
    if lost:
        client.broker.lost(world.now)
        over.update("ab")
        while world.broker.work(world.now):
            pass
        assert acted == []
        return
    for name in ("b", "a"):
        assert peer.agenda.behind
        assert client.answer_to(7) is None
        over.add(name)
        world.broker.work(world.now)
        client.exchange()
    assert acted == ["b", "a"]
    assert client.answer_to(7) is not None


@pytest.mark.parametrize("size", [1, 2])
def test_commands_without_effect_are_dropped_with_their_connection(world: World, size: int) -> None:
    client = world.client()
    peer = client.broker.peer

    def endless(now: int, budget: Budget) -> Task[None]:
        while True:
            yield

    for _ in range(size):
        peer.agenda.examine(endless, (Command.PING, 1), lambda _: None, world.now)
    assert world.broker.scheduler.is_busy(peer.agenda)
    client.drop()
    assert not world.broker.scheduler.is_busy(peer.agenda)
    assert not peer.agenda.behind
