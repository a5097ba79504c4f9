"""Temporary destinations (section 28)."""

from __future__ import annotations

import pytest
from tests.broker.at_once import close, done

from sievemq_core.errors import ErrorCode, RequestError
from sievemq_core.message.destination import Kind

from .support import World


def test_tmp_01_names_are_unique_and_name_their_connection(world: World) -> None:
    made = [world.namespace.temporaries.create("c1", number == 3, number) for number in (1, 2, 3)]
    assert len(set(made)) == 3
    assert [address.kind for address in made] == [Kind.TEMPORARY_QUEUE, Kind.TEMPORARY_QUEUE, Kind.TEMPORARY_TOPIC]
    assert {address.owner for address in made} == {"c1"}


@pytest.mark.parametrize("topic", [False, True])
def test_tmp_02_to_04_the_owner_consumes_and_any_client_sends(world: World, topic: bool) -> None:
    address = str(world.namespace.temporaries.create("c1", topic, 1))
    with pytest.raises(RequestError) as caught:
        world.consumer(address, connection="c2")
    assert caught.value.code is ErrorCode.INVALID_DESTINATION
    world.ports.clear()
    consumer = world.consumer(address, connection="c1")
    world.send(address, "a", connection="c2")
    assert world.got(consumer) == ["a"]


@pytest.mark.parametrize("topic", [False, True])
def test_tmp_07_delete_is_refused_while_there_are_consumers(world: World, topic: bool) -> None:
    address = world.namespace.temporaries.create("c1", topic, 1)
    consumer = world.consumer(str(address), connection="c1")
    with pytest.raises(RequestError) as caught:
        world.namespace.temporaries.delete(address, "c1")
    assert caught.value.code is ErrorCode.ILLEGAL_STATE
    close(consumer, 0, world.now)
    with pytest.raises(RequestError) as caught:
        world.namespace.temporaries.delete(address, "c2")
    assert caught.value.code is ErrorCode.INVALID_DESTINATION
    world.namespace.temporaries.delete(address, "c1")
    with pytest.raises(RequestError):
        world.namespace.temporaries.delete(address, "c1")


def test_tmp_08_a_send_to_a_deleted_one_is_refused(world: World) -> None:
    address = str(world.namespace.temporaries.create("c1", False, 1))
    world.send(address, "a")
    done(world.now, world.namespace.temporaries.delete_all, "c1")  # TMP-06
    for call in (lambda: world.send(address, "b"), lambda: world.namespace.declare(address)):
        with pytest.raises(RequestError) as caught:
            call()
        assert caught.value.code is ErrorCode.INVALID_DESTINATION


def test_tmp_06_only_the_ended_connections_destinations_are_deleted(world: World) -> None:
    own, other = (str(world.namespace.temporaries.create(connection, False, 1)) for connection in ("c1", "c2"))
    consumer = world.consumer(own, connection="c1")
    done(world.now, world.namespace.temporaries.delete_all, "c1")
    assert world.namespace.find(own) is None
    assert list(world.namespace.temporaries._owned) == ["c2"]
    assert world.namespace.find(other) is not None
    assert len(world.port(consumer).closures) == 1


def test_tmp_10_no_durable_subscription_to_a_temporary_topic(world: World) -> None:
    address = str(world.namespace.temporaries.create("c1", True, 1))
    with pytest.raises(RequestError) as caught:
        world.consumer(address, subscription="s", durable=True, client_id="id", connection="c1")
    assert caught.value.code is ErrorCode.INVALID_DESTINATION
    world.ports.clear()
    consumer = world.consumer(address, subscription="s", shared=True, connection="c1")
    world.send(address, "a")
    assert world.got(consumer) == ["a"]


def test_ordinary_destinations_cannot_be_deleted_as_temporary(world: World) -> None:
    world.send("queue:q", "a")
    with pytest.raises(RequestError):
        world.namespace.temporaries.delete("queue:q", "c1")


def test_a_request_that_is_repeated_finds_the_one_that_it_has_made_at_the_limit_too(world: World) -> None:
    temporaries = world.namespace.temporaries
    address = temporaries.create("c1", False, 7, most=1)
    world.send(str(address), "a")
    assert temporaries.create("c1", False, 7, most=1) == address
    with pytest.raises(RequestError) as caught:
        temporaries.create("c1", False, 8, most=1)
    assert caught.value.code is ErrorCode.RESOURCE_ALLOCATION
    assert temporaries.count("c1") == 1
    assert world.got(world.consumer(str(address), connection="c1")) == ["a"]
