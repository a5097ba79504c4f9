"""The session window of an AMQP client: transfers beyond it wait in their order, and take no memory of their own."""

from __future__ import annotations

from typing import Any

import pytest

from sievemq_broker.protocols.amqp.performatives import (
    Accepted,
    Attach,
    Detach,
    End,
    Flow,
    Source,
    Target,
    Transfer,
)
from sievemq_broker.session import SessionSettings
from sievemq_broker.session.rights import Grant, Identity, Rights, Verb

from ..session.harness import World
from .amqp import Amqp, message

#: Handle of the receiver on channel 1.
LINK = 5


@pytest.fixture
def world() -> World:
    return World()


def send(world: World, *bodies: str) -> None:
    """Another client has sent these to the queue q."""
    client = Amqp(world, container="sender")
    client.sender()
    for number, body in enumerate(bodies):
        client.send(message(body, {"n": number}), number)
        assert isinstance(client.outcome(number), Accepted)


def receiver(world: World, window: int, *, settle: int = 0, copy: bool = False, **more: Any) -> Amqp:
    """A client with a receiver of the queue q on channel 1, without credit."""
    client = Amqp(world, **more)
    client.begin(1, window=window)
    source = Source(address="q", distribution_mode="copy" if copy else None)
    link = Attach(name="w", handle=LINK, role=True, snd_settle_mode=settle, source=source, target=Target())
    client.say(link, channel=1)
    client.one(Attach)
    return client


def flow(client: Amqp, received: int, window: int, credit: int | None = None, **more: Any) -> None:
    """Open the window of channel 1, and grant credit."""
    link = {} if credit is None else {"handle": more.pop("handle", LINK), "delivery_count": more.pop("count", received)}
    client.say(
        Flow(
            next_incoming_id=received, incoming_window=window, next_outgoing_id=0, outgoing_window=1,
            link_credit=credit, **link, **more,
        ),
        channel=1,
    )  # fmt: skip


def test_messages_beyond_the_window_are_not_copied(world: World) -> None:
    client = receiver(world, 0)
    flow(client, 0, 0, credit=1_000)
    send(world, *("x" * 100_000 for _ in range(20)))
    client.rest()
    assert world.queue().in_flight == 20
    assert client.messages() == []
    (session,) = client.broker.outbox.behind
    (consumer,) = world.queue().consumers
    held = [entry.envelope.packed for entry in consumer.window if entry is not None]
    assert [id(packed) for *_, packed in session.waiting[0].waiting] == [id(packed) for packed in held]
    assert not session.rest


def test_what_waits_is_written_in_order_as_the_window_opens(world: World) -> None:
    client = receiver(world, 2)
    flow(client, 0, 2, credit=100)
    send(world, *map(str, range(10)))
    client.rest()
    found = client.messages()
    for received in range(2, 10):
        assert found == [str(number) for number in range(received)]
        flow(client, received, 1)
        found += client.messages()
    assert found == list(map(str, range(10)))
    client.settle(Accepted(), 0, 9)
    assert client.broker.outbox.behind == []


def test_more_than_a_turn_converts_is_written_over_some_turns(world: World) -> None:
    client = receiver(world, 0)
    flow(client, 0, 0, credit=1_000)
    bodies = [f"{number} {'x' * 3_000}" for number in range(50)]
    send(world, *bodies)
    flow(client, 0, 1_000)
    assert client.messages() == bodies


def test_a_message_that_fills_the_window_is_continued(world: World) -> None:
    client = receiver(world, 2, max_frame_size=512)
    flow(client, 0, 2, credit=100)
    send(world, "x" * 3_000, "y")
    client.rest()
    parts = [frame for frame in client.frames if isinstance(frame.body, Transfer)]
    assert [frame.body.more for frame in parts] == [True, True]
    flow(client, 2, 100)
    assert client.messages() == ["x" * 3_000, "y"]


def test_a_new_flow_grants_no_credit_for_what_waits(world: World) -> None:
    client = receiver(world, 1)
    flow(client, 0, 1, credit=3)
    send(world, *"abcdef")
    client.rest()
    assert client.messages() == ["a"]
    flow(client, 1, 0, credit=2, count=1)  # the same limit again
    assert world.queue().in_flight == 3
    flow(client, 1, 100)
    assert client.messages() == ["b", "c"]
    assert (world.queue().depth, world.queue().in_flight) == (3, 3)


def test_a_drained_link_is_answered_behind_what_waits(world: World) -> None:
    client = receiver(world, 1)
    flow(client, 0, 1, credit=10)
    send(world, *"abc")
    flow(client, 0, 1, credit=10, drain=True, count=0)
    assert client.messages() == ["a"]
    assert [each for each in client.all(Flow) if each.handle == LINK] == []
    flow(client, 1, 10)
    assert client.messages() == ["b", "c"]
    answer = client.one(Flow, lambda each: each.handle == LINK)
    assert (answer.delivery_count, answer.link_credit, answer.drain) == (10, 0, True)
    send(world, "d")
    client.rest()
    assert client.messages() == []


def test_credit_without_drain_ends_a_drain(world: World) -> None:
    client = receiver(world, 1)
    flow(client, 0, 1, credit=3)
    send(world, *"abc")
    flow(client, 0, 1, credit=3, drain=True, count=0)
    assert client.messages() == ["a"]
    flow(client, 1, 0, credit=9, count=1)
    flow(client, 1, 10)
    assert client.messages() == ["b", "c"]
    assert [each for each in client.all(Flow) if each.handle == LINK] == []
    send(world, "d")
    client.rest()
    assert client.messages() == ["d"]


@pytest.mark.parametrize(("body", "whole"), [("b", 1), ("b" * 3_000, 0)])
def test_a_detached_link_gets_nothing_when_the_window_opens(world: World, body: str, whole: int) -> None:
    client = receiver(world, 2, max_frame_size=512)
    flow(client, 0, 2, credit=10)
    send(world, "a", body, "c")
    client.rest()
    client.frames.clear()
    client.say(Detach(handle=LINK, closed=True), channel=1)
    assert client.one(Detach).closed
    client.frames.clear()
    flow(client, 2, 100)
    assert client.frames == []
    client.receiver(handle=2)
    deliveries = [client.receive() for _ in range(3)]
    # Of the second message only the first frame fitted if it has several: the client cannot have it.
    assert [(each.body, each.header.delivery_count) for each in deliveries] == [("a", 1), (body, whole), ("c", 0)]


def test_another_link_of_the_session_goes_on_after_a_detach(world: World) -> None:
    client = receiver(world, 1)
    flow(client, 0, 1, credit=2)
    send(world, "a", "b")
    client.rest()
    other = Attach(name="v", handle=6, role=True, source=Source(address="q"), target=Target())
    client.say(other, channel=1)
    client.say(
        Flow(
            next_incoming_id=0, incoming_window=1, next_outgoing_id=0, outgoing_window=1, handle=6, delivery_count=0,
            link_credit=5,
        ),
        channel=1,
    )  # fmt: skip
    send(world, "c")
    client.rest()
    assert client.messages() == ["a"]
    client.say(Detach(handle=LINK, closed=True), channel=1)
    flow(client, 1, 100)
    found = [client.receive() for _ in range(3)]
    assert {each.handle for each in found} == {6}
    assert sorted(each.body for each in found) == ["a", "b", "c"]


def test_messages_that_wait_return_with_their_session(world: World) -> None:
    client = receiver(world, 1)
    flow(client, 0, 1, credit=10)
    send(world, *"abc")
    client.rest()
    client.frames.clear()
    client.say(End(), channel=1)
    client.one(End)
    client.rest()
    assert (world.queue().depth, world.queue().in_flight) == (3, 0)
    client.receiver(handle=2)
    assert [client.receive().header.delivery_count for _ in range(3)] == [1, 0, 0]


def test_a_deleted_queue_takes_what_waits_along(world: World) -> None:
    client = receiver(world, 1)
    flow(client, 0, 1, credit=10)
    send(world, *"abc")
    client.rest()
    client.frames.clear()
    world.broker.namespaces["default"].delete("queue:q")
    client.rest()
    assert client.detached().condition == "amqp:resource-deleted"
    flow(client, 1, 100)
    assert client.messages() == []
    assert not client.closed


def test_messages_count_as_acknowledged_once_the_window_has_let_them_through(world: World) -> None:
    client = receiver(world, 1, settle=1)
    flow(client, 0, 1, credit=10)
    send(world, *"abc")
    client.rest()
    assert client.messages() == ["a"]
    assert (world.queue().depth, world.queue().in_flight) == (0, 2)
    flow(client, 1, 1)
    client.rest()
    assert client.messages() == ["b"]
    client.lose()
    assert (world.queue().depth, world.queue().in_flight) == (1, 0)


def test_a_browser_reads_no_further_than_the_window(world: World) -> None:
    send(world, *map(str, range(250)))
    client = receiver(world, 3, copy=True)
    flow(client, 0, 3, credit=1_000)
    found = client.messages()
    assert found == ["0", "1", "2"]
    assert client.broker.outbox.behind == []
    while len(found) < 250:
        flow(client, len(found), 40)
        more = client.messages()
        assert len(more) == min(40, 250 - len(found))
        found += more
    assert found == list(map(str, range(250)))


def test_a_browser_is_drained_once_the_window_has_let_all_through(world: World) -> None:
    send(world, *"abc")
    client = receiver(world, 2, copy=True)
    flow(client, 0, 2, credit=10, drain=True)
    assert client.messages() == ["a", "b"]
    assert [each for each in client.all(Flow) if each.handle == LINK] == []
    flow(client, 2, 10)
    assert client.messages() == ["c"]
    answer = client.one(Flow, lambda each: each.handle == LINK)
    assert (answer.delivery_count, answer.link_credit) == (10, 0)


def test_a_browser_without_a_right_to_the_queue_any_more_is_detached(world: World) -> None:
    send(world, *map(str, range(150)))
    client = receiver(world, 1_000, copy=True)
    flow(client, 0, 1_000, credit=100)
    assert len(client.messages()) == 100
    client.broker.peer.entitle(Identity("ann", Rights([Grant(frozenset({Verb.SEND}), "*")])))
    flow(client, 100, 1_000, credit=100)
    assert client.one(Detach).error.condition == "amqp:unauthorized-access"
    flow(client, 100, 1_000, credit=100)  # that was on its way
    client.sender(handle=9)
    client.send(message("x"), 0, 9)
    assert isinstance(client.outcome(0), Accepted)
    client.say(Detach(handle=LINK, closed=True), channel=1)
    assert not client.closed


def test_several_browsers_share_a_window_that_is_smaller_than_what_they_read(world: World) -> None:
    send(world, *"abcd")
    client = receiver(world, 0, copy=True)
    handles = (LINK, 6, 7)
    source = Source(address="q", distribution_mode="copy")
    for handle in handles[1:]:
        client.say(Attach(name=f"w{handle}", handle=handle, role=True, source=source, target=Target()), channel=1)
    client.all(Attach)
    for handle in handles:
        flow(client, 0, 0, credit=10, handle=handle, count=0)
    flow(client, 0, 0)
    found = client.messages()
    assert found == []
    while len(found) < 12:
        flow(client, len(found), 1)
        more = client.messages()
        assert len(more) == 1
        found += more
    assert sorted(found) == sorted("abcd" * 3)


def test_a_shut_window_leaves_other_sessions_alone(world: World) -> None:
    client = receiver(world, 0)
    flow(client, 0, 0, credit=2)
    send(world, *"abc")
    client.rest()
    client.receiver(handle=2)
    assert client.receive().body == "c"
    flow(client, 0, 10)
    assert client.messages() == ["a", "b"]


def test_a_congested_transport_holds_back_what_the_window_lets_through() -> None:
    world = World(settings=SessionSettings(outbox_high=1_000))
    client = receiver(world, 0)
    flow(client, 0, 0, credit=100)
    send(world, *(f"{number} {'x' * 600}" for number in range(10)))
    client.broker.pause()
    flow(client, 0, 100)
    assert client.messages() == []
    client.broker.resume(world.now)
    client.rest()
    assert [body.split()[0] for body in client.messages()] == list(map(str, range(10)))
