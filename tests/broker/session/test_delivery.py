"""Order, expiry, delay and the delivery guarantee (sections 26, 27, 33 of the API map), driven by commands."""

from __future__ import annotations

import pytest

from sievemq_broker.domain.broker import Broker
from sievemq_broker.domain.policy import DestinationPolicy, DomainSettings
from sievemq_core.errors import ErrorCode
from sievemq_core.wire.commands import Command

from .harness import Client, World, envelope

NON_PERSISTENT, PERSISTENT = 1, 2


def with_mode(text: str, mode: int, **more: object) -> tuple[object, ...]:
    fields = envelope(text, **more)
    return (*fields[:3], mode, *fields[4:])


# -- order ------------------------------------------------------------------------------------------------------------


def test_ord_02_sessions_are_independent_but_each_keeps_its_order(world: World, client: Client) -> None:
    one, two = client.session(), client.session()
    for n in range(10):
        client.queue_send(two, envelope(f"two{n}"))
        client.queue_send(one, envelope(f"one{n}"))
    world.settle()
    got = client.consumer(client.session(), credit=100).all()
    assert [text for text in got if text.startswith("one")] == [f"one{n}" for n in range(10)]
    assert [text for text in got if text.startswith("two")] == [f"two{n}" for n in range(10)]


def test_ord_04_delivery_modes_do_not_overtake_each_other_here(world: World, client: Client) -> None:
    """The rule would allow it; never the reverse."""
    session = client.session()
    for n, mode in enumerate((PERSISTENT, NON_PERSISTENT, NON_PERSISTENT, PERSISTENT)):
        client.queue_send(session, with_mode(str(n), mode))
    world.settle()
    assert client.consumer(session).all() == ["0", "1", "2", "3"]


def test_ord_06_a_selector_keeps_the_order(client: Client) -> None:
    session = client.session()
    for n in range(20):
        client.send(session, str(n), properties={"odd": n % 2 == 1})
    assert client.consumer(session, selector="odd", credit=50).all() == [str(n) for n in range(1, 20, 2)]


# -- expiry and delay -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", [NON_PERSISTENT, PERSISTENT])
def test_exp_03_exp_07_exp_13_both_delivery_modes_obey_expiry_and_delay(
    world: World, client: Client, mode: int
) -> None:
    session = client.session()
    start = world.now
    client.queue_send(session, with_mode("expires", mode, expiration=start + 100))
    client.queue_send(session, with_mode("delayed", mode, delivery_time=start + 200))
    client.queue_send(session, with_mode("never", mode, delivery_time=start + 200, expiration=start + 150))
    world.settle()
    assert client.browse() == [(1, "expires")]
    world.later(100)
    assert client.browse() == []
    consumer = client.consumer(session)
    world.later(99)
    assert consumer.all() == []
    world.later(1)
    assert consumer.all() == ["delayed"]


# -- subscriptions ----------------------------------------------------------------------------------------------------


def test_sub_22_sub_23_filters_work_at_publication(world: World) -> None:
    client, other = world.client(client_id="me"), world.client()
    session = client.session()
    durable = {"subscription": "s", "durable": True}
    client.consumer(session, "topic:t", selector="a = 1", no_local=True, **durable).close()
    client.send(session, "mine", to="topic:t", properties={"a": 1})
    sender = other.session()
    other.send(sender, "no", to="topic:t", properties={"a": 2})
    other.send(sender, "yes", to="topic:t", properties={"a": 1})
    again = client.consumer(session, "topic:t", selector="a = 1", no_local=True, **durable)
    assert again.all() == ["yes"]


def test_sub_25_sub_27_sub_30_unsubscribe_belongs_to_the_client_id(world: World) -> None:
    one, two, nobody = world.client(client_id="one"), world.client(client_id="two"), world.client()
    for client in (one, two):
        client.consumer(client.session(), "topic:t", subscription="s", durable=True)
    nobody.consumer(nobody.session(), "topic:t", subscription="s", durable=True, shared=True).close()
    assert one.refused(Command.UNSUBSCRIBE, "s")[0] == ErrorCode.SUBSCRIPTION_IN_USE
    nobody.ask(Command.UNSUBSCRIBE, "s")
    nobody.send(nobody.session(), "a", to="topic:t")
    assert [c.all() for client in (one, two) for c in client.consumers.values()] == [["a"], ["a"]]


# -- the guarantee ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", [NON_PERSISTENT, PERSISTENT])
def test_rel_01_rel_02_no_mode_is_lost_or_doubled_while_the_broker_lives(
    world: World, client: Client, other: Client, mode: int
) -> None:
    session = client.session()
    for n in range(20):
        client.queue_send(session, with_mode(str(n), mode))
    world.settle()
    consumer = other.consumer(other.session(), credit=5)
    assert len(consumer.receive(2)) == 2
    consumer.acknowledge()
    other.drop()
    rest = client.consumer(session, credit=50).all()
    assert sorted(int(text.partition("#")[0]) for text in rest) == list(range(2, 20))


def test_rel_03_rel_04_subscriptions_active_and_inactive(world: World) -> None:
    client = world.client(client_id="me")
    session = client.session()
    plain = client.consumer(session, "topic:t")
    durable = client.consumer(session, "topic:t", subscription="s", durable=True)
    plain.close()
    durable.close()
    client.queue_send(session, with_mode("a", NON_PERSISTENT), "topic:t")
    client.queue_send(session, with_mode("b", PERSISTENT), "topic:t")
    world.settle()
    assert client.consumer(session, "topic:t").all() == []
    assert client.consumer(session, "topic:t", subscription="s", durable=True).all() == ["a", "b"]


def test_rel_05_rel_06_a_limit_refuses_the_new_and_keeps_the_old() -> None:
    world = World(broker=Broker(DomainSettings(default_policy=DestinationPolicy(max_messages=3))))
    client = world.client()
    client.send(client.session(), *"abcde")
    assert len(client.take(Command.SEND_FAILED)) == 2
    assert [text for _, text in client.browse()] == ["a", "b", "c"]
