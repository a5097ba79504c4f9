"""Topics and the four kinds of subscription (section 29)."""

from __future__ import annotations

from typing import Any

import pytest
from tests.broker.at_once import abandon, close, recover

from sievemq_broker.domain import DestinationPolicy, Topic
from sievemq_broker.domain.publishing import Sends
from sievemq_broker.domain.topic import MOST_LIMITED
from sievemq_core.errors import ErrorCode, RequestError

from .support import NOW, World, message

SHARED = {"subscription": "s", "shared": True}
DURABLE = {"subscription": "s", "durable": True, "client_id": "id"}
BOTH = {"subscription": "s", "durable": True, "shared": True}


def refused(world: World, *args: Any, **how: Any) -> RequestError:
    """The error of a consumer that is refused; nothing must be left behind."""
    topic = world.namespace.find("topic:t")
    before = len(topic.subscriptions) if isinstance(topic, Topic) else 0
    with pytest.raises(RequestError) as caught:
        world.consumer(*args, **how)
    topic = world.namespace.find("topic:t")
    assert (len(topic.subscriptions) if isinstance(topic, Topic) else 0) == before
    return caught.value


def test_sub_05_each_matching_subscription_receives_one_copy(world: World) -> None:
    world.send("topic:t", "before")
    everything, some = world.consumer("topic:t"), world.consumer("topic:t", "n = 1")
    world.send("topic:t", message("a", properties={"n": 1}), message("b"))
    assert (world.got(everything), world.got(some)) == (["a", "b"], ["a"])


@pytest.mark.parametrize("limited", [False, True], ids=["no limit", "limit"])
@pytest.mark.parametrize("batch", [False, True], ids=["send", "commit"])
@pytest.mark.parametrize("address", ["queue:d", "topic:d"])
def test_of_a_message_in_flight_only_the_packed_bytes_are_kept(address: str, batch: bool, limited: bool) -> None:
    policies = [("*", DestinationPolicy(max_messages=100))] if limited else []
    world = World(*policies)
    one, other = world.consumer(address, "n = 1 AND JMSType = 't'"), world.consumer(address, "n = 2")
    assert world.namespace.declare(address).policy.limited is limited
    envelope = message("a", properties={"n": 1}, type="t", correlation_id="c")
    if batch:
        world.namespace.commit(Sends([(address, envelope)]), world.now)
    else:
        world.namespace.send(address, envelope, world.now)
    assert (world.got(one), world.got(other)) == (["a"], [])
    held = one.window[0]
    assert held is not None
    assert held.envelope is envelope
    assert envelope._fields == "c"
    assert envelope._properties is None
    assert envelope.correlation_id == "c"
    recover(one, 1, world.now)  # it finds its way by what is decoded anew
    one.grant(1, world.now)
    assert world.counts(one) == [("a", 1), ("a", 2)]
    assert (envelope.properties, envelope.fields[8]) == ({"n": 1}, "t")


def test_sub_06_copies_are_independent(world: World) -> None:
    one, two = world.consumer("topic:t"), world.consumer("topic:t")
    world.send("topic:t", "a")
    one.acknowledge(1, world.now)
    recover(two, 1, world.now)
    two.grant(1, world.now)
    assert world.counts(two) == [("a", 1), ("a", 2)]
    assert world.counts(one) == [("a", 1)]


def test_the_bytes_of_copies_are_shared(world: World) -> None:
    for number in range(3):
        world.consumer("topic:t", credit=0, subscription=f"s{number}", shared=True)
    envelope = message("a")
    world.send("topic:t", envelope)
    topic = world.namespace.declare("topic:t")
    assert isinstance(topic, Topic)
    waiting = [subscription.queue.main.first() for subscription in topic.subscriptions]
    assert all(entry is not None and entry.envelope is envelope for entry in waiting)


def test_sub_07_a_shared_subscription_gives_each_message_to_one(world: World) -> None:
    one, two = world.consumer("topic:t", **SHARED), world.consumer("topic:t", **SHARED)
    world.send("topic:t", "a", "b")
    assert (world.got(one), world.got(two)) == (["a"], ["b"])


def test_sub_08_an_inactive_durable_subscription_collects(world: World) -> None:
    close(world.consumer("topic:t", **DURABLE), 0, world.now)
    world.send("topic:t", "a", "b")
    assert world.got(world.consumer("topic:t", **DURABLE)) == ["a", "b"]  # SUB-12


@pytest.mark.parametrize("how", [{}, SHARED])
def test_sub_09_a_non_durable_one_ends_with_its_last_consumer(world: World, how: dict[str, Any]) -> None:
    close(world.consumer("topic:t", credit=0, **how), 0, world.now)
    world.send("topic:t", "a")
    later = world.consumer("topic:t", **how)
    assert world.got(later) == []
    topic = world.namespace.declare("topic:t")
    assert isinstance(topic, Topic)
    assert len(topic.subscriptions) == 1
    abandon(later, world.now)
    assert (topic.subscriptions, world.namespace.subscriptions.shared) == ({}, {})


def test_sub_10_unshared_durable_needs_a_client_id() -> None:
    error = refused(World(), "topic:t", subscription="s", durable=True)
    assert error.code is ErrorCode.ILLEGAL_STATE


def test_sub_11_one_consumer_at_a_time_for_an_unshared_durable_one(world: World) -> None:
    first = world.consumer("topic:t", **DURABLE)
    assert refused(world, "topic:t", **DURABLE).code is ErrorCode.SUBSCRIPTION_IN_USE
    assert refused(world, "topic:other", "n = 1", **DURABLE).code is ErrorCode.SUBSCRIPTION_IN_USE
    close(first, 0, world.now)
    world.consumer("topic:t", **DURABLE)


@pytest.mark.parametrize(("address", "text", "no_local"), [
    ("topic:u", None, False), ("topic:t", "n = 1", False), ("topic:t", None, True),
])  # fmt: skip
def test_sub_13_a_changed_one_begins_empty(world: World, address: str, text: str | None, no_local: bool) -> None:
    close(world.consumer("topic:t", **DURABLE), 0, world.now)
    world.send("topic:t", message("old", properties={"n": 1}))
    changed = world.consumer(address, text, no_local=no_local, **DURABLE)
    world.send(address, message("new", properties={"n": 1}), connection="another")
    assert world.got(changed) == ["new"]
    close(changed, 1, world.now)
    world.send("topic:t", "gone")
    assert len(world.namespace.subscriptions.durable) == 1


def test_sub_13_not_while_messages_are_unacknowledged(world: World) -> None:
    consumer = world.consumer("topic:t", **DURABLE)
    world.send("topic:t", "a")
    close(consumer, 1, world.now)
    assert refused(world, "topic:t", "n = 1", **DURABLE).code is ErrorCode.SUBSCRIPTION_IN_USE
    consumer.acknowledge(1, world.now)
    world.consumer("topic:t", "n = 1", **DURABLE)


@pytest.mark.parametrize("how", [SHARED, BOTH])
@pytest.mark.parametrize(("address", "text"), [("topic:u", None), ("topic:t", "n = 1")])
def test_sub_14_active_and_shared_means_unchangeable(
    world: World, how: dict[str, Any], address: str, text: str | None
) -> None:
    consumer = world.consumer("topic:t", **how)
    assert refused(world, address, text, **how).code is ErrorCode.SUBSCRIPTION_IN_USE
    close(consumer, 0, world.now)
    world.consumer(address, text, **how)  # SUB-15


def test_sub_15_a_shared_durable_subscription_changes_while_unused(world: World) -> None:
    close(world.consumer("topic:t", **BOTH), 0, world.now)
    world.send("topic:t", message("old", properties={"n": 1}))
    assert world.got(world.consumer("topic:t", "n = 1", **BOTH)) == []


@pytest.mark.parametrize("active", [True, False])
def test_sub_16_shared_and_unshared_durable_do_not_mix(active: bool) -> None:
    for first, second in ((DURABLE, {**BOTH, "client_id": "id"}), ({**BOTH, "client_id": "id"}, DURABLE)):
        world = World()
        consumer = world.consumer("topic:t", **first)
        if not active:
            close(consumer, 0, world.now)
        assert refused(world, "topic:t", **second).code is ErrorCode.SUBSCRIPTION_IN_USE


def test_sub_17_durable_and_non_durable_of_one_name_are_two(world: World) -> None:
    one, two = world.consumer("topic:t", **SHARED), world.consumer("topic:t", **BOTH)
    world.send("topic:t", "a")
    assert world.got(one) == world.got(two) == ["a"]


def test_sub_18_one_name_and_different_client_ids_are_different(world: World) -> None:
    three = [world.consumer("topic:t", client_id=client_id, **SHARED) for client_id in (None, "a", "b")]
    world.send("topic:t", "a")
    assert [world.got(consumer) for consumer in three] == [["a"]] * 3


def test_sub_19_no_selector_in_any_spelling_is_no_change(world: World) -> None:
    close(world.consumer("topic:t", None, **DURABLE), 0, world.now)
    world.send("topic:t", "a")
    assert world.got(world.consumer("topic:t", "", **DURABLE)) == ["a"]


def test_sub_20_no_local_blocks_the_same_connection(world: World) -> None:
    consumer = world.consumer("topic:t", no_local=True, connection="c1")
    other = world.consumer("topic:t", connection="c1")
    for connection in ("c1", "c2", None):
        world.send("topic:t", f"from {connection}", connection=connection)
    assert world.got(consumer) == ["from c2", "from None"]
    assert len(world.got(other)) == 3


def test_sub_21_durable_no_local_blocks_the_client_id_also_after_reconnecting(world: World) -> None:
    world.namespace.client_ids.claim("id", "c1")
    close(world.consumer("topic:t", no_local=True, connection="c1", **DURABLE), 0, world.now)
    world.send("topic:t", "own", connection="c1")
    world.namespace.client_ids.free("id", "c1")
    world.namespace.client_ids.claim("id", "c2")
    world.send("topic:t", "own again", connection="c2")
    world.send("topic:t", "other", connection="c3")
    consumer = world.consumer("topic:t", no_local=True, connection="c2", **DURABLE)
    assert world.got(consumer) == ["other"]  # SUB-22: blocked ones were never in it


def test_ses_21_no_local_is_ignored_for_queues(world: World) -> None:
    consumer = world.consumer("queue:q", no_local=True, connection="c1")
    world.send("queue:q", "a", connection="c1")
    assert world.got(consumer) == ["a"]


def test_sub_23_the_selector_decides_at_publication(world: World) -> None:
    close(world.consumer("topic:t", "n = 1", **DURABLE), 0, world.now)
    world.send("topic:t", message("a", properties={"n": 1}), message("b"))
    subscription = world.namespace.subscriptions.durable["id", "s"]
    assert subscription.queue.depth == 1


def test_sub_24_to_26_unsubscribe(world: World) -> None:
    with pytest.raises(RequestError) as caught:
        world.namespace.unsubscribe("id", "s")
    assert caught.value.code is ErrorCode.INVALID_DESTINATION
    consumer = world.consumer("topic:t", **DURABLE)
    world.send("topic:t", "a")
    for settle in (lambda: close(consumer, 1, world.now), lambda: consumer.acknowledge(1, world.now)):
        with pytest.raises(RequestError) as caught:
            world.namespace.unsubscribe("id", "s")
        assert caught.value.code is ErrorCode.SUBSCRIPTION_IN_USE
        settle()
    with pytest.raises(RequestError):
        world.namespace.unsubscribe(None, "s")  # SUB-27
    world.namespace.unsubscribe("id", "s")
    assert world.namespace.subscriptions.durable == {}
    world.send("topic:t", "b")
    assert world.got(world.consumer("topic:t", **DURABLE)) == []


def test_sub_28_names_may_be_long(world: World) -> None:
    name = "az-AZ_09." * 14
    world.consumer("topic:t", subscription=name, durable=True, shared=True)
    assert refused(world, "topic:t", subscription="x" * 256, shared=True).code is ErrorCode.ILLEGAL_STATE


@pytest.mark.parametrize("name", [None, ""])
def test_sub_29_a_name_is_needed(name: str | None) -> None:
    assert refused(World(), "topic:t", subscription=name, shared=True).code is ErrorCode.ILLEGAL_STATE


def test_sub_31_a_client_id_belongs_to_one_live_connection() -> None:
    namespace = World().namespace
    namespace.client_ids.claim("id", "c1")
    namespace.client_ids.claim("id", "c1")
    with pytest.raises(RequestError) as caught:
        namespace.client_ids.claim("id", "c2")
    assert caught.value.code is ErrorCode.INVALID_CLIENT_ID
    namespace.client_ids.free("id", "c2")  # not its own
    assert namespace.client_ids.of("c1") == "id"
    namespace.client_ids.free("id", "c1")
    namespace.client_ids.claim("id", "c2")
    for wrong in ("", "x" * 256):
        with pytest.raises(RequestError):
            namespace.client_ids.claim(wrong, "c3")


def test_sub_33_messages_of_a_closed_consumer_reach_another_marked(world: World) -> None:
    one, two = world.consumer("topic:t", **SHARED), world.consumer("topic:t", credit=0, **SHARED)
    world.send("topic:t", "a")
    close(one, 1, world.now)
    recover(one, 1, world.now)
    two.grant(1, world.now)
    assert world.counts(two) == [("a", 2)]


def test_ack_17_a_message_of_an_ended_subscription_is_dropped(world: World) -> None:
    consumer = world.consumer("topic:t")
    world.send("topic:t", "a")
    close(consumer, 1, world.now)
    recover(consumer, 1, world.now)
    assert consumer.unacknowledged == 0
    assert world.browse("queue:DLQ.t") == []


def test_ses_33_queues_have_no_subscriptions(world: World) -> None:
    for how in (SHARED, DURABLE, {"subscription": "s"}):
        assert refused(world, "queue:q", **how).code is ErrorCode.INVALID_DESTINATION


def test_exp_08_a_delayed_message_reaches_the_subscriptions_of_its_send(world: World) -> None:
    before = world.consumer("topic:t")
    close(world.consumer("topic:t", **DURABLE), 0, world.now)
    gone = world.consumer("topic:t")
    world.send("topic:t", message("later", at=NOW + 10))
    close(gone, 0, world.now)
    after = world.consumer("topic:t")
    assert world.got(before) == []
    world.advance(10)
    assert (world.got(before), world.got(after)) == (["later"], [])
    assert world.got(world.consumer("topic:t", **DURABLE)) == ["later"]


def test_a_topic_takes_a_message_for_all_or_for_none() -> None:
    world = World(("topic:t", DestinationPolicy(max_messages=1)))
    world.consumer("topic:t", "n = 1", subscription="one", durable=True, shared=True, credit=0)
    world.consumer("topic:t", subscription="two", durable=True, shared=True, credit=0)
    world.send("topic:t", message("a"))
    with pytest.raises(RequestError) as caught:
        world.send("topic:t", message("b", properties={"n": 1}))
    assert caught.value.code is ErrorCode.RESOURCE_ALLOCATION
    assert world.namespace.subscriptions.durable[None, "one"].queue.depth == 0
    with pytest.raises(RequestError):
        world.namespace.commit(Sends([("queue:q", message("c")), ("topic:t", message("d", properties={"n": 1}))]), NOW)
    assert world.browse("queue:q") == []


def test_each_distinct_selector_is_evaluated_once_per_message(world: World) -> None:
    for _ in range(20):
        world.consumer("topic:t", "n LIKE '%b'")
        world.consumer("topic:t", "n LIKE '%c'")
    world.send("topic:t", message("a", properties={"n": "ab"}))
    topic = world.namespace.declare("topic:t")
    assert isinstance(topic, Topic)
    assert (topic.index.evaluations, topic.index.matches) == (2, 1)


def test_only_the_subscribers_of_a_value_are_evaluated(world: World) -> None:
    consumers = [world.consumer("topic:t", f"customer = {n} AND region = 'EU'") for n in range(500)]
    world.send("topic:t", message("a", properties={"customer": 250, "region": "EU"}))
    topic = world.namespace.declare("topic:t")
    assert isinstance(topic, Topic)
    assert topic.index.evaluations <= 2
    assert [n for n, consumer in enumerate(consumers) if world.got(consumer)] == [250]


def test_unreadable_properties_reach_consumers_without_a_selector(world: World) -> None:
    plain, picky = world.consumer("topic:t"), world.consumer("topic:t", "n = 1")
    world.send("topic:t", message("bad", properties=(b"\xc1", None)))
    assert (world.got(plain), world.got(picky)) == (["bad"], [])
    topic = world.namespace.declare("topic:t")
    assert isinstance(topic, Topic)
    assert (topic.unreadable, topic.published) == (1, 1)


def test_pausing_a_topic_holds_all_its_subscriptions_also_new_ones(world: World) -> None:
    old = world.consumer("topic:t")
    topic = world.namespace.declare("topic:t")
    assert isinstance(topic, Topic)
    topic.pause()
    new = world.consumer("topic:t")
    world.send("topic:t", "a")
    assert (world.got(old), world.got(new)) == ([], [])
    topic.unpause(world.now)
    assert (world.got(old), world.got(new)) == (["a"], ["a"])


def test_deleting_a_topic_ends_its_subscriptions(world: World) -> None:
    consumer = world.consumer("topic:t", **DURABLE)
    world.consumer("topic:t", **SHARED)
    world.namespace.delete("topic:t")
    assert world.port(consumer).closures[0][1] is ErrorCode.INVALID_DESTINATION
    assert (world.namespace.subscriptions.durable, world.namespace.subscriptions.shared) == ({}, {})
    close(consumer, 0, world.now)


def test_a_topic_with_limits_has_so_many_subscriptions_that_one_turn_checks_them() -> None:
    world = World(("topic:limited", DestinationPolicy(max_messages=10)))
    kept = {"subscription": "a", "client_id": "me", "durable": True}
    close(world.consumer("topic:limited", **kept), 0, NOW)
    for _ in range(MOST_LIMITED - 1):
        world.consumer("topic:limited")
    close(world.consumer("topic:other", **kept | {"subscription": "b"}), 0, NOW)
    for how in ({}, {"subscription": "s", "shared": True}, kept | {"subscription": "b"}):
        with pytest.raises(RequestError, match="end some, or set max_messages") as caught:
            world.consumer("topic:limited", **how)
        assert caught.value.code is ErrorCode.RESOURCE_ALLOCATION
        assert caught.value.details["limit"] == "limited_subscriptions"
    assert len(world.namespace.subscriptions.durable) == 2, "none was dropped for one that was refused"
    close(world.consumer("topic:limited", "JMSPriority > 4", **kept), 0, NOW)
    world.consumer("topic:limited", "JMSPriority > 4", **kept)
    for _ in range(MOST_LIMITED + 1):
        world.consumer("topic:free")


def test_named_subscriptions_are_limited_and_existing_ones_can_be_used() -> None:
    world = World(max_subscriptions=2)
    for name, how in (("a", {"durable": True}), ("b", {"shared": True})):
        world.consumer("topic:t", subscription=name, client_id="me", **how)
    with pytest.raises(RequestError, match="as many as are allowed") as caught:
        world.consumer("topic:t", subscription="c", client_id="me", durable=True)
    assert caught.value.code is ErrorCode.RESOURCE_ALLOCATION
    world.consumer("topic:t", subscription="b", client_id="me", shared=True)
    world.consumer("topic:t")
    assert len(world.namespace.subscriptions.durable) == 1
