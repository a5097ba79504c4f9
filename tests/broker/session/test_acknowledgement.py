"""Acknowledgement, recovery, redelivery (section 24 of the API map), driven by commands."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from sievemq_core.errors import ErrorCode
from sievemq_core.limits import MAX_CREDIT
from sievemq_core.wire.commands import Command

from .harness import AUTO, CLIENT, DUPS_OK, TRANSACTED, Client, World


def test_ack_12_recover_of_a_transacted_session_is_refused(client: Client) -> None:
    session = client.session(TRANSACTED)
    code, text, _ = client.refused(Command.RECOVER, session, ())
    assert code == ErrorCode.ILLEGAL_STATE
    assert "ACK-12" in text


def test_recover_does_not_pass_messages_between_consumers_of_the_session(client: Client) -> None:
    """What one consumer gives back is not delivered to its sister while the session recovers, and counted twice."""
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


def test_recover_and_rollback_take_the_credit(client: Client) -> None:
    session = client.session(CLIENT)
    consumer = client.consumer(session, credit=100)
    client.recover(session)
    client.send(session, "a")
    assert consumer.all() == []
    consumer.credit(1)
    assert consumer.all() == ["a"]


def test_ack_18_a_lost_connection_with_two_consumers_counts_once(client: Client, other: Client) -> None:
    session = client.session(CLIENT)
    consumers = [client.consumer(session, credit=2) for _ in range(3)]
    sender = other.session()
    other.send(sender, "a", "b", "c")
    assert sum(len(c.all()) for c in consumers) == 3
    client.drop()
    assert other.consumer(sender).all() == ["a#2", "b#2", "c#2"]


def test_ack_19_close_in_the_own_listener_then_acknowledge(world: World, client: Client) -> None:
    """MCO-08: the listener ends after its consumer was closed; its message is acknowledged as usual."""
    consumer = client.consumer(client.session(AUTO))
    client.send(consumer.session, "a", "b")
    assert consumer.receive() == ["a"]
    consumer.close()
    consumer.acknowledge()
    client.drop()
    assert world.client().browse() == [(1, "b")]


def test_ack_21_the_first_delivery_is_unmarked_even_after_travelling_to_a_buffer(client: Client, other: Client) -> None:
    idle = client.consumer(client.session())
    client.send(idle.session, "a")
    assert [d.count for d in idle.deliveries] == [1]
    idle.close()
    assert other.consumer(other.session()).all() == ["a"]


# -- what the broker refuses ------------------------------------------------------------------------------------------


def test_acknowledging_undelivered_messages_ends_the_connection_and_loses_no_message(
    world: World, client: Client
) -> None:
    consumer = client.consumer(client.session())
    client.send(consumer.session, "a")
    assert consumer.all() == ["a"]
    consumer.acknowledge(2)
    assert client.fatal is not None
    assert "never delivered tag 2" in client.fatal[3]
    assert world.client().browse() == [(2, "a")]


@pytest.mark.parametrize("command", [Command.ACKNOWLEDGE_ALL, Command.RECOVER, Command.CLOSE_SESSION])
@pytest.mark.parametrize("handed", [(1,), (1, 2, 3), (999, 1), (2, 50)])
def test_handed_that_cannot_be(world: World, client: Client, command: int, handed: tuple[int, ...]) -> None:
    consumer = client.consumer(client.session(CLIENT))
    assert consumer.id == 2
    client.send(consumer.session, "a")
    client.request(command, consumer.session, handed)
    assert client.fatal is not None
    assert client.fatal[2] in (ErrorCode.MALFORMED_FRAME, ErrorCode.UNEXPECTED_COMMAND)
    assert world.client().browse() == [(2, "a")]


def test_handed_of_another_session_is_refused(client: Client) -> None:
    one, two = client.consumer(client.session(CLIENT)), client.consumer(client.session(CLIENT), "queue:2")
    client.request(Command.ACKNOWLEDGE_ALL, one.session, (two.id, 0))
    assert client.fatal is not None
    assert f"consumer {two.id}, which is not one of session {one.session}" in client.fatal[3]


def test_ack_07_txn_13_acknowledge_all_of_a_transacted_session_is_refused(client: Client) -> None:
    """TXN-13."""
    session = client.session(TRANSACTED)
    assert client.refused(Command.ACKNOWLEDGE_ALL, session, ())[0] == ErrorCode.ILLEGAL_STATE


def test_acknowledge_in_a_transacted_session_ends_the_connection(client: Client) -> None:
    consumer = client.consumer(client.session(TRANSACTED))
    client.send(client.session(), "a")
    assert consumer.all() == ["a"]
    client.say(Command.ACKNOWLEDGE, consumer.id, 0, 5)  # credit alone is fine
    assert client.fatal is None
    consumer.acknowledge()
    assert client.fatal is not None
    assert client.fatal[2] == ErrorCode.UNEXPECTED_COMMAND


def test_ack_03_acknowledge_several_is_an_acknowledge_of_each(world: World, client: Client) -> None:
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


def test_acknowledge_several_may_name_a_closed_consumer(world: World, client: Client) -> None:
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
    client: Client, numbers: Callable[[int], tuple[int, ...]]
) -> None:
    session = client.session(AUTO)
    consumer = client.consumer(session)
    client.send(session, "a")
    assert consumer.receive() == ["a"]
    client.say(Command.ACKNOWLEDGE_SEVERAL, numbers(consumer.id))
    assert client.fatal is not None


def test_acknowledge_several_in_a_transacted_session_ends_the_connection(client: Client) -> None:
    consumer = client.consumer(client.session(TRANSACTED))
    client.send(client.session(), "a")
    assert consumer.all() == ["a"]
    client.say(Command.ACKNOWLEDGE_SEVERAL, (consumer.id, 1))
    assert client.fatal is not None
    assert client.fatal[2] == ErrorCode.UNEXPECTED_COMMAND


@pytest.mark.parametrize(
    ("mode", "settle"),
    [(TRANSACTED, ((1,), 0, 0)), (CLIENT, ((1,), 4, 0)), (CLIENT, ((1,), 0, MAX_CREDIT + 1)), (CLIENT, ((2,), 0, 0))],
    ids=["in a transaction", "an unknown outcome", "too much credit", "never delivered"],
)
def test_a_wrong_settle_ends_the_connection(world: World, client: Client, mode: int, settle: tuple[Any, ...]) -> None:
    consumer = client.consumer(client.session(mode))
    client.send(client.session(), "a")
    assert consumer.all() == ["a"]
    client.say(Command.SETTLE, consumer.id, *settle)
    assert client.fatal is not None
    assert world.client().browse() == [(2, "a")]


def test_settle_after_the_consumer_was_closed(client: Client) -> None:
    """MCO-09: the session keeps handed messages, and settles them one by one."""
    consumer = client.consumer(client.session(CLIENT))
    client.send(consumer.session, "a", "b")
    assert consumer.all() == ["a", "b"]
    consumer.close()
    client.say(Command.SETTLE, consumer.id, (2,), 0, 5)
    client.say(Command.SETTLE, consumer.id, (1,), 0, 5)
    client.say(Command.SETTLE, consumer.id, (1,), 0, 5)
    assert client.fatal is None
    assert client.broker.peer.deliveries.consumers == {}
    client.say(Command.SETTLE, consumer.id + 1, (1,), 0, 0)
    assert client.fatal is not None
