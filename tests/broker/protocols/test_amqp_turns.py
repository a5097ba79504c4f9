"""What an AMQP client does with very many deliveries or links takes several turns, and costs what is in it."""

from __future__ import annotations

import random
from typing import Any

import pytest

from sievemq_broker.domain.journal import Journal
from sievemq_broker.domain.work import TURN
from sievemq_broker.protocols.amqp.frames import frame_of
from sievemq_broker.protocols.amqp.links import AmqpSession, OutgoingLink, Unsettled
from sievemq_broker.protocols.amqp.performatives import (
    Accepted,
    Close,
    Detach,
    Disposition,
    End,
    Flow,
    Header,
    Modified,
    Released,
    Transfer,
)
from sievemq_broker.session import SessionSettings

from ..session.harness import World
from .amqp import Amqp, message

MANY = 6 * TURN

#: Turns that it takes at least to meet all of them: the first slices are done at once.
SEVERAL = MANY // TURN - 2


@pytest.fixture
def world() -> World:
    return World()


def fill(world: World, count: int = MANY) -> None:
    """Messages in the queue q."""
    client = world.client()
    client.send(client.session(), *map(str, range(count)))


def holding(world: World, count: int = MANY) -> Amqp:
    """A client with so many deliveries that are not settled."""
    fill(world, count)
    client = Amqp(world)
    client.receiver(credit=0)
    client.grant(count, window=2**31 - 1)
    assert len(client.messages()) == count
    return client


def turns(client: Amqp, data: bytes) -> int:
    """The turns that the broker needs for these bytes, none of which does more than it may."""
    world = client.world
    client.broker.receive_data(data, world.now)
    count = 0
    while world.broker.work(world.now) or client.broker.behind or client.broker.has_data:
        count += 1
        if client.broker.behind:
            client.broker.catch_up(world.now)
        client.heard(client.broker.data_to_send())
    assert world.broker.scheduler.overrun == 0
    return count


def disposition(state: Any, first: int = 0, last: int = MANY - 1) -> bytes:
    return frame_of(Disposition(role=True, first=first, last=last, settled=False, state=state))


@pytest.mark.parametrize("state", [Accepted(), Released(), Modified(delivery_failed=True)])
def test_a_disposition_of_very_many_deliveries_takes_several_turns(world: World, state: Any) -> None:
    client = holding(world)
    assert turns(client, disposition(state)) >= SEVERAL
    assert client.one(Disposition).last == MANY - 1
    assert world.queue().in_flight == 0
    assert world.queue().depth == (0 if isinstance(state, Accepted) else MANY)


def test_frames_behind_such_a_disposition_wait_for_it(world: World) -> None:
    client = holding(world)
    client.frames.clear()
    client.broker.receive_data(disposition(Accepted()) + frame_of(End()), world.now)
    client.heard(client.broker.data_to_send())
    assert not client.all(End)
    client.rest()
    assert [type(frame.body) for frame in client.frames] == [Disposition, End]
    assert world.queue().depth == 0


def test_a_settlement_that_has_begun_is_completed_though_the_connection_is_lost(world: World) -> None:
    client = holding(world)
    client.broker.receive_data(disposition(Accepted()), world.now)
    while world.queue().in_flight == MANY:
        world.broker.work(world.now)
        client.broker.data_to_send()
    assert world.queue().in_flight > 0
    client.lose()
    while world.broker.work(world.now):
        pass
    assert (world.queue().in_flight, world.queue().depth) == (0, 0)


def test_a_disposition_whose_deliveries_are_not_found_yet_is_dropped_with_the_connection(world: World) -> None:
    client = holding(world)
    client.broker.receive_data(disposition(Accepted()), world.now)
    client.lose()
    while world.broker.work(world.now):
        pass
    assert (world.queue().in_flight, world.queue().depth) == (0, MANY)


def test_a_transaction_settles_very_many_deliveries_in_several_turns(world: World) -> None:
    client = holding(world)
    client.coordinator()
    name = client.declare(0)
    assert turns(client, disposition(client.within(name, Accepted()))) >= SEVERAL
    assert world.queue().in_flight == MANY
    assert isinstance(client.discharge(name, 1), Accepted)
    assert (world.queue().in_flight, world.queue().depth) == (0, 0)
    assert world.broker.scheduler.overrun == 0


@pytest.mark.parametrize("end", [Detach(handle=1, closed=True), End(), Close()])
def test_an_end_with_very_many_deliveries_returns_them_in_several_turns(world: World, end: Any) -> None:
    client = holding(world)
    assert turns(client, frame_of(end)) >= SEVERAL
    assert len(client.all(type(end))) == 1
    assert world.queue().depth == MANY


def test_detached_deliveries_come_again_in_their_order(world: World) -> None:
    client = holding(world)
    client.settle(Accepted(), 10, 20)
    turns(client, frame_of(Detach(handle=1, closed=True)))
    other = Amqp(world, container="other")
    other.receiver(credit=0)
    other.grant(MANY, window=2**31 - 1)
    assert other.messages() == [str(number) for number in range(MANY) if not 10 <= number <= 20]


def test_a_flow_with_a_shut_window_looks_at_no_link(world: World) -> None:
    client = Amqp(world)
    client.receiver(credit=0)

    class Unread(dict[int, Any]):
        def values(self) -> Any:
            raise AssertionError

        __iter__ = items = values

    session = client.broker._channels[0]
    session.links = Unread(session.links)
    for _ in range(3):
        client.say(Flow(next_incoming_id=0, incoming_window=0, next_outgoing_id=0, outgoing_window=1))
    client.say(Flow(next_incoming_id=0, incoming_window=9, next_outgoing_id=0, outgoing_window=1, echo=True))
    assert client.one(Flow)


def test_a_large_message_in_small_frames_leaves_in_several_turns() -> None:
    world = World(SessionSettings(outbox_high=10_000))
    client = Amqp(world, max_frame_size=512)
    client.sender()
    client.receiver()
    client.grant(10, window=2**31 - 1)
    body = "x" * 200_000
    client.broker.receive_data(
        b"".join(
            frame_of(
                Transfer(handle=0, delivery_id=0, delivery_tag=b"t", message_format=0, more=at + 9_000 < len(whole)),
                0,
                whole[at : at + 9_000],
            )
            for whole in (message(body),)
            for at in range(0, len(whole), 9_000)
        ),
        world.now,
    )
    sizes = []
    while not any(isinstance(frame.body, Transfer) and not frame.body.more for frame in client.frames):
        data = client.broker.data_to_send()
        sizes.append(len(data))
        client.heard(data)
        world.broker.work(world.now)
        assert len(sizes) < 100
    assert max(sizes) < 12_000
    assert client.messages() == [body]


def link(session: AmqpSession, number: int) -> OutgoingLink:
    return OutgoingLink(session, number, "", number, "queue:q")


@pytest.mark.parametrize("seed", range(20))
def test_deliveries_are_found_by_range_and_by_link(seed: int) -> None:
    chosen = random.Random(seed)
    session = AmqpSession(0, 1, 10, 0)
    links = [link(session, number) for number in range(3)]
    unsettled, model, begun = Unsettled(), dict[int, tuple[OutgoingLink, int]](), 0
    for _ in range(300):
        each = chosen.choice(links)
        match chosen.randrange(5):
            case 0 | 1:
                for _ in range(chosen.randrange(1, 9)):
                    begun += chosen.choice((1, 1, 1, 3))
                    each.begin_delivery(begun, begun * 10)
                    unsettled.add(begun, each)
                    model[begun] = each, begun * 10
            case 2 | 3:
                first, most = chosen.randrange(-5, begun + 5), chosen.randrange(1, 9)
                last = first + chosen.choice((0, 1, 5, 40))
                wanted = [number for number in model if first <= number <= last][:most]
                assert unsettled.take(first, last, most) == [model.pop(number) for number in wanted]
            case _:
                most = chosen.randrange(1, 5)
                wanted = [number for number in reversed(model) if model[number][0] is each][:most]
                assert unsettled.take_of(each, most) == [model.pop(number)[1] for number in wanted]
        assert len(unsettled) == len(model)
    assert sorted(unsettled.take(0, begun, begun + 1), key=lambda pair: pair[1]) == list(model.values())
    assert (unsettled._firsts, unsettled._lasts) == ([], [])


def test_a_flush_without_time_for_a_whole_frame_goes_on_with_it_in_a_later_turn(world: World) -> None:
    fill(world, 4)
    client = Amqp(world)
    woken: list[bool] = []
    for handle in range(2):
        client.receiver(handle=handle, credit=0)
    for handle in range(2):
        client.grant(2, handle, window=2**31 - 1)
    assert len(client.messages()) == 4
    broker = client.broker
    broker.pause()
    broker.receive_data(disposition(Accepted(), last=3), world.now)
    assert world.queue().in_flight == 4, "the client does not read its output"
    broker.outbox._wake = lambda: woken.append(broker.behind)
    world.services.spent = lambda: True
    broker.resume(world.now)
    client.heard(broker.data_to_send())
    assert (world.queue().in_flight, woken) == (2, [True])
    client.rest()
    assert world.queue().in_flight == 0


def test_the_outcome_of_a_send_that_a_flush_carries_out_waits_for_the_disk(world: World) -> None:
    journal = Journal()
    world.broker.keep_in(journal)
    client = Amqp(world)
    client.sender()
    journal.cut()
    journal.written()
    client.broker.outbox.needs.clear()
    client.broker.pause()
    transfer = Transfer(handle=0, delivery_id=0, delivery_tag=b"t", message_format=0)
    client.broker.receive_data(frame_of(transfer, 0, message(header=Header(durable=True))), world.now)
    assert not journal.has_changes, "the client does not read its output"
    client.broker.resume(world.now)
    client.heard(client.broker.data_to_send())
    assert isinstance(client.outcome(), Accepted)
    assert journal.missing(client.broker.outbox.needs)


def test_the_outcome_of_a_send_that_stores_nothing_does_not_wait_for_the_writes_of_others(world: World) -> None:
    journal = Journal()
    world.broker.keep_in(journal)
    client, other = Amqp(world), world.client()
    client.sender()
    client.broker.outbox.needs.clear()
    other.send(other.session(), "stored", mode=2)
    assert journal.has_changes
    client.broker.pause()
    transfer = Transfer(handle=0, delivery_id=0, delivery_tag=b"t", message_format=0)
    client.broker.receive_data(frame_of(transfer, 0, message()), world.now)
    client.broker.resume(world.now)
    client.heard(client.broker.data_to_send())
    assert isinstance(client.outcome(), Accepted)
    assert not client.broker.outbox.needs
