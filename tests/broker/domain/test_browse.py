"""Browsing (section 16): pages in delivery order, nothing changed."""

from __future__ import annotations

import pytest
from tests.broker.at_once import abandon, recover

from sievemq_core.errors import ErrorCode, RequestError

from .support import NOW, World, message, selector


def test_brw_03_the_order_of_delivery(world: World) -> None:
    consumer = world.consumer("queue:q", credit=2)
    world.send("queue:q", *(message(f"m{n}", priority=4 + n % 2) for n in range(6)))
    recover(consumer, 1, world.now)  # m0 was handed, m1 only buffered
    shown = world.browse("queue:q", limit=2)
    assert shown == ["m1", "m3", "m5", "m0", "m2", "m4"]
    consumer.grant(10, world.now)
    assert world.got(consumer)[2:] == shown


def test_brw_04_browsing_changes_no_state(world: World) -> None:
    world.send("queue:q", "a", "b")
    for _ in range(3):
        _, page = world.namespace.browse("queue:q", None, None, 10, NOW)
        assert [count for count, _ in page] == [1, 1]
    assert world.counts(world.consumer("queue:q")) == [("a", 1), ("b", 1)]


def test_a_redelivered_message_shows_the_count_that_its_receiver_will_see(world: World) -> None:
    world.send("queue:q", "a")
    abandon(world.consumer("queue:q"), world.now)
    _, page = world.namespace.browse("queue:q", None, None, 10, NOW)
    assert page[0][0] == 2


def test_brw_05_arrivals_between_pages_do_no_harm(world: World) -> None:
    world.send("queue:q", *(f"m{n}" for n in range(6)))
    cursor, first = world.namespace.browse("queue:q", None, None, 3, NOW)
    world.send("queue:q", message("urgent", priority=9))
    consumer = world.consumer("queue:q", credit=5)
    world.send("queue:q", "later")
    cursor, rest = world.namespace.browse("queue:q", None, cursor, 9, NOW)
    assert [envelope.fields[0] for _, envelope in first + rest] == ["m0", "m1", "m2", "m4", "m5", "later"]
    assert cursor is None
    assert consumer.unacknowledged == 5


def test_brw_07_messages_in_flight_are_not_shown(world: World) -> None:
    world.send("queue:q", "a", "b")
    world.consumer("queue:q", credit=1)
    assert world.browse("queue:q") == ["b"]


def test_brw_04_browsing_creates_no_queue(world: World) -> None:
    assert world.namespace.browse("queue:q", None, None, 10, NOW) == (None, [])
    assert not world.namespace.destinations
    with pytest.raises(RequestError, match="ends with the connection") as refused:
        world.namespace.browse("temporary-queue:c.1", None, None, 10, NOW)
    assert refused.value.code is ErrorCode.INVALID_DESTINATION


def test_brw_12_topics_cannot_be_browsed() -> None:
    with pytest.raises(RequestError) as caught:
        World().namespace.browse("topic:t", None, None, 10, NOW)
    assert caught.value.code is ErrorCode.INVALID_DESTINATION


def test_a_limit_of_zero_only_validates(world: World) -> None:
    world.send("queue:q", "a")
    cursor, page = world.namespace.browse("queue:q", None, None, 0, NOW)
    assert page == []
    assert [envelope.fields[0] for _, envelope in world.namespace.browse("queue:q", None, cursor, 9, NOW)[1]] == ["a"]
    assert world.namespace.browse("queue:none", None, None, 0, NOW) == (None, [])


@pytest.mark.parametrize("cursor", ["x", -1, True, 1.5, [1]])
def test_an_invalid_cursor_is_refused(cursor: object) -> None:
    with pytest.raises(RequestError):
        World().namespace.browse("queue:q", None, cursor, 10, NOW)


def test_a_page_with_a_selector_costs_a_bounded_amount(world: World) -> None:
    world.send("queue:q", *(message(f"m{n}", properties={"n": n}) for n in range(12_000)))
    cursor, page = world.namespace.browse("queue:q", selector("n = 11000"), None, 10, NOW)
    assert page == []
    assert cursor is not None
    assert world.browse("queue:q", "n = 11000") == ["m11000"]


def test_a_page_of_large_messages_ends_early(world: World) -> None:
    world.send("queue:q", *(message(f"m{n}", body=b"x" * 400_000) for n in range(5)))
    cursor, page = world.namespace.browse("queue:q", None, None, 10, NOW)
    assert len(page) == 3
    assert world.browse("queue:q") == [f"m{n}" for n in range(5)]
    assert cursor is not None


def test_browsing_leaves_messages_compact(world: World) -> None:
    envelope = message("a", properties={"n": 1})
    world.send("queue:q", envelope)
    world.namespace.browse("queue:q", selector("n = 1"), None, 10, NOW)
    assert envelope._properties is None


def names_of_part(world: World, part: int, parts: int, text: str | None = None, limit: int = 1000) -> list[str]:
    """Names of what waits in a part, over all pages; sorted by the place that each has in the order of delivery."""
    found: list[tuple[int, str]] = []
    cursor: int | None = None
    while True:
        cursor, page = world.namespace.browse("queue:q", selector(text), cursor, limit, world.now, part, parts)
        found += [(place, str(envelope.fields[0])) for _, envelope, place in page]
        if cursor is None:
            assert found == sorted(found)
            return [name for _, name in found]


@pytest.mark.parametrize("parts", [1, 2, 3, 7])
def test_every_message_is_in_one_part_in_the_order_of_delivery(world: World, parts: int) -> None:
    world.send("queue:q", *(message(f"m{n}", priority=n % 10, properties={"n": n}) for n in range(2_000)))
    abandon(world.consumer("queue:q", credit=20), world.now)  # redelivered: another place
    order = world.browse("queue:q")
    for text, expected in (
        (None, order),
        ("n >= 500", [name for name in order if int(name[1:]) >= 500]),
    ):
        shown = [names_of_part(world, part, parts, text, limit=100) for part in range(parts)]
        assert sorted(name for names in shown for name in names) == sorted(expected)
        for names in shown:
            assert names == [name for name in expected if name in set(names)]
            assert len(names) > len(expected) / parts / 2


def test_places_give_the_order_of_delivery_over_all_parts(world: World) -> None:
    world.send("queue:q", *(message(f"m{n}", priority=n % 3) for n in range(100)))
    found = [
        (place, str(envelope.fields[0]))
        for part in range(3)
        for _, envelope, place in world.namespace.browse("queue:q", None, None, 1000, NOW, part, 3)[1]
    ]
    assert [name for _, name in sorted(found)] == world.browse("queue:q")


def test_a_message_redelivered_between_two_parts_is_shown_once(world: World) -> None:
    """Its place moves to the front, across whatever place would bound a part; its part stays."""
    world.send("queue:q", *(f"m{n}" for n in range(50)))
    shown = names_of_part(world, 1, 2)
    consumer = world.consumer("queue:q", credit=50)
    assert len(world.got(consumer)) == 50
    abandon(consumer, world.now)
    shown += names_of_part(world, 0, 2)
    assert sorted(shown) == sorted(f"m{n}" for n in range(50))


def test_a_message_redelivered_between_the_pages_of_a_part_is_shown_once(world: World) -> None:
    world.send("queue:q", *(f"m{n}" for n in range(50)))
    expected = names_of_part(world, 0, 2)
    cursor, first = world.namespace.browse("queue:q", None, None, 5, NOW, 0, 2)
    abandon(world.consumer("queue:q", credit=10), world.now)
    _, rest = world.namespace.browse("queue:q", None, cursor, 1000, NOW, 0, 2)
    assert [envelope.fields[0] for _, envelope, _ in first + rest] == expected


def test_messages_of_other_parts_cost_a_bounded_amount(world: World) -> None:
    world.send("queue:q", *(message(None, at=0) for _ in range(10_000)))  # type: ignore[arg-type]  # all in one part
    whole = {part: world.namespace.browse("queue:q", None, None, 1000, NOW, part, 5) for part in range(5)}
    assert sorted(len(page) for _, page in whole.values()) == [0, 0, 0, 0, 1000]
    assert all(cursor is not None for cursor, _ in whole.values())
    assert sum(len(names_of_part(world, part, 5)) for part in range(5)) == 10_000


@pytest.mark.parametrize(("part", "parts"), [(2, 2), (1, 0), (5, 3)])
def test_a_part_that_there_is_not_is_refused(part: int, parts: int) -> None:
    with pytest.raises(RequestError, match="parts count from 0") as refused:
        World().namespace.browse("queue:q", None, None, 10, NOW, part, parts)
    assert refused.value.code is ErrorCode.ILLEGAL_STATE
