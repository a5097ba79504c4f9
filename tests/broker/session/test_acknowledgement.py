"""Acknowledgement, recovery, redelivery (section 24 of the API map), driven by commands."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from sievemq_core.errors import ErrorCode
from sievemq_core.wire.commands import Command

from .harness import AUTO, CLIENT, DUPS_OK, TRANSACTED, World


def test_ack_01_an_acknowledged_message_is_never_delivered_again(world: World) -> None:
    """ACK-01, ACK-06."""
    client = world.client()
    session = client.session(AUTO)
    consumer = client.consumer(session)
    client.send(session, "a", "b")
    assert consumer.receive() == ["a"]
    consumer.acknowledge()
    client.drop()
    assert world.client().browse() == [(2, "b")]


def test_ack_03_acknowledgement_is_cumulative(world: World) -> None:
    client = world.client()
    session = client.session(DUPS_OK)
    consumer = client.consumer(session)
    client.send(session, "a", "b", "c", "d")
    assert consumer.receive(3) == ["a", "b", "c"]
    consumer.acknowledge(3)
    client.drop()
    assert world.client().browse() == [(2, "d")]


def test_ack_04_nothing_is_acknowledged_until_acknowledge(world: World) -> None:
    client = world.client()
    session = client.session(CLIENT)
    consumer = client.consumer(session)
    client.send(session, "a", "b")
    assert consumer.all() == ["a", "b"]
    client.ask(Command.CLOSE_SESSION, session, client.handed(session))
    assert world.client().browse() == [(2, "a"), (2, "b")]


def test_ack_05_acknowledge_covers_all_consumers_of_the_session_and_nothing_later(world: World) -> None:
    client = world.client()
    session = client.session(CLIENT)
    one, two = client.consumer(session, "queue:1"), client.consumer(session, "queue:2")
    other_session = client.session(CLIENT)
    other = client.consumer(other_session, "queue:3")
    for name in ("1", "2", "3"):
        client.send(session, "early", "late", to=f"queue:{name}")
    assert one.receive() == two.receive() == other.receive() == ["early"]
    client.ask(Command.ACKNOWLEDGE_ALL, session, client.handed(session))
    client.drop()
    after = world.client()
    # "late" was only buffered, but a lost connection cannot say so.
    assert after.browse("queue:1") == after.browse("queue:2") == [(2, "late")]
    assert after.browse("queue:3") == [(2, "early"), (2, "late")]


def test_ack_05_acknowledge_covers_closed_consumers(world: World) -> None:
    """ACK-19, MCO-09."""
    client = world.client()
    session = client.session(CLIENT)
    consumer = client.consumer(session)
    client.send(session, "a", "b")
    assert consumer.receive() == ["a"]
    consumer.close()
    assert client.browse() == [(1, "b")]
    client.ask(Command.ACKNOWLEDGE_ALL, session, client.handed(session))
    client.ask(Command.CLOSE_SESSION, session, ())
    assert client.browse() == [(1, "b")]


def test_ack_08_recover_delivers_again_in_order_and_marked(world: World) -> None:
    client = world.client()
    session = client.session(CLIENT)
    consumer = client.consumer(session)
    client.send(session, "a", "b", "c")
    assert consumer.all() == ["a", "b", "c"]
    client.recover(session)
    consumer.credit()
    assert consumer.all() == ["a#2", "b#2", "c#2"]
    client.recover(session)
    consumer.credit()
    assert consumer.all() == ["a#3", "b#3", "c#3"]


def test_ack_09_recover_after_a_partial_acknowledge(world: World) -> None:
    client = world.client()
    session = client.session(CLIENT)
    consumer = client.consumer(session)
    client.send(session, "a", "b", "c")
    assert consumer.receive() == ["a"]
    client.ask(Command.ACKNOWLEDGE_ALL, session, client.handed(session))
    assert consumer.receive() == ["b"]
    client.recover(session)
    consumer.credit()
    assert consumer.all() == ["b#2", "c"]


def test_ack_10_recover_with_nothing_handed_marks_nothing(world: World) -> None:
    client = world.client()
    session = client.session(AUTO)
    consumer = client.consumer(session)
    client.send(session, "a", "b")
    client.recover(session)
    consumer.credit()
    assert consumer.all() == ["a", "b"]


def test_ack_11_recover_in_a_listener_returns_the_message_in_hand(world: World) -> None:
    client = world.client()
    session = client.session(AUTO)
    consumer = client.consumer(session)
    client.send(session, "a", "b")
    assert consumer.receive() == ["a"]  # on_message(a) runs and calls recover
    client.recover(session)
    consumer.credit()
    assert consumer.all() == ["a#2", "b"]


def test_ack_12_recover_of_a_transacted_session_is_refused(world: World) -> None:
    client = world.client()
    session = client.session(TRANSACTED)
    code, text, _ = client.refused(Command.RECOVER, session, ())
    assert code == ErrorCode.ILLEGAL_STATE
    assert "ACK-12" in text


def test_ack_13_order_after_recover_is_by_priority_then_arrival(world: World) -> None:
    client = world.client()
    session = client.session(CLIENT)
    consumer = client.consumer(session)
    client.send(session, "a", "b")
    assert consumer.all() == ["a", "b"]
    client.queue(Command.CREDIT, consumer.id, 0)
    consumer_credit_spent = client.session(AUTO)
    client.recover(session)
    client.send(consumer_credit_spent, "urgent", priority=9)
    client.send(consumer_credit_spent, "c")
    consumer.credit()
    assert consumer.all() == ["urgent", "a#2", "b#2", "c"]


def test_ack_14_buffered_messages_return_unmarked(world: World) -> None:
    client = world.client()
    session = client.session(CLIENT)
    one, two = client.consumer(session, "queue:1"), client.consumer(session, "queue:2")
    client.send(session, "a", "b", to="queue:1")
    client.send(session, "c", to="queue:2")
    assert one.receive() == ["a"]
    client.recover(session)
    one.credit()
    two.credit()
    assert one.all() == ["a#2", "b"]
    assert two.all() == ["c"]


def test_recover_does_not_pass_messages_between_consumers_of_the_session(world: World) -> None:
    """What one consumer gives back is not delivered to its sister while the session recovers, and counted twice."""
    client = world.client()
    session = client.session(CLIENT)
    one = client.consumer(session, credit=1)
    two = client.consumer(session, credit=5)
    client.send(session, "a", "b", "c")
    got = one.all() + two.all()
    assert sorted(got) == ["a", "b", "c"]
    client.recover(session)
    one.credit()
    assert sorted(one.all()) == ["a#2", "b#2", "c#2"]
    assert two.all() == []


def test_recover_and_rollback_take_the_credit(world: World) -> None:
    client = world.client()
    session = client.session(CLIENT)
    consumer = client.consumer(session, credit=100)
    client.recover(session)
    client.send(session, "a")
    assert consumer.all() == []
    consumer.credit(1)
    assert consumer.all() == ["a"]


def test_ack_15_a_closed_session_leaves_its_messages_to_the_next_consumer(world: World) -> None:
    client, other = world.client(), world.client()
    session = client.session(CLIENT)
    consumer = client.consumer(session)
    client.send(session, "a", "b", "c")
    assert consumer.receive(2) == ["a", "b"]
    heir = other.consumer(other.session())
    client.ask(Command.CLOSE_SESSION, session, client.handed(session))
    assert heir.all() == ["a#2", "b#2", "c"]


def test_ack_16_so_does_a_durable_subscription(world: World) -> None:
    client = world.client(client_id="me")
    session = client.session(CLIENT)
    durable = {"subscription": "s", "durable": True}
    consumer = client.consumer(session, "topic:t", **durable)
    client.send(session, "a", "b", to="topic:t")
    assert consumer.receive() == ["a"]
    client.ask(Command.CLOSE_SESSION, session, client.handed(session))
    again = client.consumer(client.session(), "topic:t", **durable)
    assert again.all() == ["a#2", "b"]


def test_ack_18_a_lost_connection_returns_everything_marked(world: World) -> None:
    client, other = world.client(), world.client()
    consumer = client.consumer(client.session(CLIENT))
    sender = other.session()
    other.send(sender, "a", "b")
    assert consumer.receive() == ["a"]
    client.drop()
    assert other.consumer(sender).all() == ["a#2", "b#2"]


def test_ack_18_a_lost_connection_with_two_consumers_counts_once(world: World) -> None:
    client, other = world.client(), world.client()
    session = client.session(CLIENT)
    consumers = [client.consumer(session, credit=2) for _ in range(3)]
    sender = other.session()
    other.send(sender, "a", "b", "c")
    assert sum(len(c.all()) for c in consumers) == 3
    client.drop()
    assert other.consumer(sender).all() == ["a#2", "b#2", "c#2"]


def test_ack_19_ack_20_messages_of_a_closed_consumer_stay_with_the_session_until_recover(world: World) -> None:
    """MCO-09, MCO-10: what was buffered goes to others at once, what was handed does not."""
    client, other = world.client(), world.client()
    session = client.session(CLIENT)
    consumer = client.consumer(session)
    client.send(session, "a", "b", "c")
    assert consumer.receive() == ["a"]
    consumer.close()
    rival = other.consumer(other.session())
    assert rival.all() == ["b", "c"]
    client.recover(session)
    assert rival.all() == ["a#2"]  # ACK-20


def test_ack_19_close_in_the_own_listener_then_acknowledge(world: World) -> None:
    """MCO-08: the listener ends after its consumer was closed; its message is acknowledged as usual."""
    client = world.client()
    consumer = client.consumer(client.session(AUTO))
    client.send(consumer.session, "a", "b")
    assert consumer.receive() == ["a"]
    consumer.close()
    consumer.acknowledge()
    client.drop()
    assert world.client().browse() == [(1, "b")]


def test_ack_21_the_first_delivery_is_unmarked_even_after_travelling_to_a_buffer(world: World) -> None:
    client, other = world.client(), world.client()
    idle = client.consumer(client.session())
    client.send(idle.session, "a")
    assert [d.count for d in idle.deliveries] == [1]
    idle.close()
    assert other.consumer(other.session()).all() == ["a"]


def test_sub_33_shared_subscription_redelivers_messages_of_a_closed_session(world: World) -> None:
    client, other = world.client(), world.client()
    shared = {"subscription": "s", "shared": True}
    one = client.consumer(client.session(CLIENT), "topic:t", credit=2, **shared)
    client.send(one.session, "a", to="topic:t")
    two = other.consumer(other.session(), "topic:t", **shared)
    assert one.receive() == ["a"]
    client.ask(Command.CLOSE_SESSION, one.session, client.handed(one.session))
    assert two.all() == ["a#2"]


# -- what the broker refuses ------------------------------------------------------------------------------------------


def test_acknowledging_undelivered_messages_ends_the_connection_and_loses_no_message(world: World) -> None:
    client = world.client()
    consumer = client.consumer(client.session())
    client.send(consumer.session, "a")
    assert consumer.all() == ["a"]
    consumer.acknowledge(2)
    assert client.fatal is not None
    assert "never delivered tag 2" in client.fatal[3]
    assert world.client().browse() == [(2, "a")]


@pytest.mark.parametrize("command", [Command.ACKNOWLEDGE_ALL, Command.RECOVER, Command.CLOSE_SESSION])
@pytest.mark.parametrize("handed", [(1,), (1, 2, 3), (999, 1), (2, 50)])
def test_handed_that_cannot_be(world: World, command: int, handed: tuple[int, ...]) -> None:
    client = world.client()
    consumer = client.consumer(client.session(CLIENT))
    assert consumer.id == 2
    client.send(consumer.session, "a")
    client.request(command, consumer.session, handed)
    assert client.fatal is not None
    assert client.fatal[2] in (ErrorCode.MALFORMED_FRAME, ErrorCode.UNEXPECTED_COMMAND)
    assert world.client().browse() == [(2, "a")]


def test_handed_of_another_session_is_refused(world: World) -> None:
    client = world.client()
    one, two = client.consumer(client.session(CLIENT)), client.consumer(client.session(CLIENT), "queue:2")
    client.request(Command.ACKNOWLEDGE_ALL, one.session, (two.id, 0))
    assert client.fatal is not None
    assert f"consumer {two.id}, which is not one of session {one.session}" in client.fatal[3]


def test_ack_07_txn_13_acknowledge_all_of_a_transacted_session_is_refused(world: World) -> None:
    """TXN-13."""
    client = world.client()
    session = client.session(TRANSACTED)
    assert client.refused(Command.ACKNOWLEDGE_ALL, session, ())[0] == ErrorCode.ILLEGAL_STATE


def test_acknowledge_in_a_transacted_session_ends_the_connection(world: World) -> None:
    client = world.client()
    consumer = client.consumer(client.session(TRANSACTED))
    client.send(client.session(), "a")
    assert consumer.all() == ["a"]
    client.say(Command.ACKNOWLEDGE, consumer.id, 0, 5)  # credit alone is fine
    assert client.fatal is None
    consumer.acknowledge()
    assert client.fatal is not None
    assert client.fatal[2] == ErrorCode.UNEXPECTED_COMMAND


def test_ack_03_acknowledge_several_is_an_acknowledge_of_each(world: World) -> None:
    client = world.client()
    places = ["queue:1", "queue:2", "queue:3"]
    consumers = [
        client.consumer(client.session(mode), place)
        for mode, place in zip((AUTO, DUPS_OK, CLIENT), places, strict=True)
    ]
    sender = client.session()
    for consumer, place in zip(consumers, places, strict=True):
        client.send(sender, "a", "b", "c", to=place)
        assert consumer.receive(2) == ["a", "b"]
    one, two, three = consumers
    client.say(Command.ACKNOWLEDGE_SEVERAL, (one.id, 2, two.id, 1, three.id, 0))
    assert client.fatal is None
    client.drop()
    left = [[text for _, text in world.client().browse(place)] for place in places]
    assert left == [["c"], ["b", "c"], ["a", "b", "c"]]


def test_acknowledge_several_may_name_one_that_is_closed(world: World) -> None:
    client = world.client()
    session = client.session(CLIENT)
    held, gone = client.consumer(session), client.consumer(session, "queue:2")
    client.send(session, "a")
    assert held.receive() == ["a"]
    gone.close()
    held.close()  # MCO-09: what it was handed stays with the session
    client.say(Command.ACKNOWLEDGE_SEVERAL, (gone.id, 7, held.id, 1))
    assert client.fatal is None
    client.drop()
    assert world.client().browse() == []


@pytest.mark.parametrize("numbers", [lambda own: (own, 1, own), lambda own: (own, 2), lambda own: (own, 1, own + 1, 1)])
def test_a_wrong_acknowledge_several_ends_the_connection(
    world: World, numbers: Callable[[int], tuple[int, ...]]
) -> None:
    client = world.client()
    session = client.session(AUTO)
    consumer = client.consumer(session)
    client.send(session, "a")
    assert consumer.receive() == ["a"]
    client.say(Command.ACKNOWLEDGE_SEVERAL, numbers(consumer.id))
    assert client.fatal is not None


def test_acknowledge_several_in_a_transacted_session_ends_the_connection(world: World) -> None:
    client = world.client()
    consumer = client.consumer(client.session(TRANSACTED))
    client.send(client.session(), "a")
    assert consumer.all() == ["a"]
    client.say(Command.ACKNOWLEDGE_SEVERAL, (consumer.id, 1))
    assert client.fatal is not None
    assert client.fatal[2] == ErrorCode.UNEXPECTED_COMMAND
