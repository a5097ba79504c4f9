"""Browsing (section 16): pages in delivery order, nothing changed."""

from __future__ import annotations

import pytest

from sievemq_core.errors import ErrorCode, RequestError

from .support import NOW, World, message, selector


def test_brw_03_the_order_of_delivery() -> None:
    world = World()
    consumer = world.consumer("queue:q", credit=2)
    world.send("queue:q", *(message(f"m{n}", priority=4 + n % 2) for n in range(6)))
    consumer.recover(1, world.now)  # m0 was handed, m1 only buffered
    shown = world.browse("queue:q", limit=2)
    assert shown == ["m1", "m3", "m5", "m0", "m2", "m4"]
    consumer.grant(10, world.now)
    assert world.got(consumer)[2:] == shown


def test_brw_04_nothing_changes() -> None:
    world = World()
    world.send("queue:q", "a", "b")
    for _ in range(3):
        _, page = world.namespace.browse("queue:q", None, None, 10, NOW)
        assert [count for count, _ in page] == [1, 1]
    assert world.counts(world.consumer("queue:q")) == [("a", 1), ("b", 1)]


def test_a_redelivered_message_shows_the_count_that_its_receiver_will_see() -> None:
    world = World()
    world.send("queue:q", "a")
    world.consumer("queue:q").abandon(world.now)
    _, page = world.namespace.browse("queue:q", None, None, 10, NOW)
    assert page[0][0] == 2


def test_brw_05_arrivals_between_pages_do_no_harm() -> None:
    world = World()
    world.send("queue:q", *(f"m{n}" for n in range(6)))
    cursor, first = world.namespace.browse("queue:q", None, None, 3, NOW)
    world.send("queue:q", message("urgent", priority=9))
    consumer = world.consumer("queue:q", credit=5)
    world.send("queue:q", "later")
    cursor, rest = world.namespace.browse("queue:q", None, cursor, 9, NOW)
    assert [envelope.fields[0] for _, envelope in first + rest] == ["m0", "m1", "m2", "m4", "m5", "later"]
    assert cursor is None
    assert consumer.unacknowledged == 5


def test_brw_07_what_is_in_flight_is_not_shown() -> None:
    world = World()
    world.send("queue:q", "a", "b")
    world.consumer("queue:q", credit=1)
    assert world.browse("queue:q") == ["b"]


def test_brw_04_no_queue_is_made() -> None:
    world = World()
    assert world.namespace.browse("queue:q", None, None, 10, NOW) == (None, [])
    assert not world.namespace.destinations
    with pytest.raises(RequestError, match="ends with the connection") as refused:
        world.namespace.browse("temporary-queue:c.1", None, None, 10, NOW)
    assert refused.value.code is ErrorCode.INVALID_DESTINATION


def test_brw_12_topics_cannot_be_browsed() -> None:
    with pytest.raises(RequestError) as caught:
        World().namespace.browse("topic:t", None, None, 10, NOW)
    assert caught.value.code is ErrorCode.INVALID_DESTINATION


def test_a_limit_of_nothing_only_verifies() -> None:
    world = World()
    world.send("queue:q", "a")
    cursor, page = world.namespace.browse("queue:q", None, None, 0, NOW)
    assert page == []
    assert [envelope.fields[0] for _, envelope in world.namespace.browse("queue:q", None, cursor, 9, NOW)[1]] == ["a"]
    assert world.namespace.browse("queue:none", None, None, 0, NOW) == (None, [])


@pytest.mark.parametrize("cursor", ["x", -1, True, 1.5, [1]])
def test_a_cursor_that_is_none_is_refused(cursor: object) -> None:
    with pytest.raises(RequestError):
        World().namespace.browse("queue:q", None, cursor, 10, NOW)


def test_a_page_with_a_selector_costs_a_bounded_amount() -> None:
    world = World()
    world.send("queue:q", *(message(f"m{n}", properties={"n": n}) for n in range(12_000)))
    cursor, page = world.namespace.browse("queue:q", selector("n = 11000"), None, 10, NOW)
    assert page == []
    assert cursor is not None
    assert world.browse("queue:q", "n = 11000") == ["m11000"]


def test_a_page_of_large_messages_ends_early() -> None:
    world = World()
    world.send("queue:q", *(message(f"m{n}", body=b"x" * 400_000) for n in range(5)))
    cursor, page = world.namespace.browse("queue:q", None, None, 10, NOW)
    assert len(page) == 3
    assert world.browse("queue:q") == [f"m{n}" for n in range(5)]
    assert cursor is not None


def test_browsing_leaves_messages_compact() -> None:
    world = World()
    envelope = message("a", properties={"n": 1})
    world.send("queue:q", envelope)
    world.namespace.browse("queue:q", selector("n = 1"), None, 10, NOW)
    assert envelope._properties is None
