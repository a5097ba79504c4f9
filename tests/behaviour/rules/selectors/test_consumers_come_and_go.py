"""Consumers with selectors on one queue or topic: who leaves takes nobody else along."""

from __future__ import annotations

import pytest
from tests.client.both import SOON, Api, text

from sievemq import Queue, Topic

#: A selector with two branches that ask for the same value, and what somebody else asks for.
TWICE = [
    ("kind = 'x' AND size > 3 OR kind IN ('x', 'y') AND size < 1 OR rush", "kind = 'x'"),
    ("kind LIKE 'x%' AND size > 3 OR (kind LIKE 'x%' OR kind LIKE 'y%') AND size <> 1 OR rush", "kind LIKE 'x%'"),
    ("size BETWEEN 1 AND 5 AND kind <> 'x' OR size BETWEEN 2 AND 6 OR rush", "size BETWEEN 1 AND 5"),
]


@pytest.mark.parametrize("place", [Queue("orders"), Topic("orders")], ids=["queue", "topic"])
@pytest.mark.parametrize(("selector", "other"), TWICE)
async def test_mco_10_sub_05_a_closed_consumer_leaves_equal_lookups_in_place(
    api: Api, place: Queue | Topic, selector: str, other: str
) -> None:
    session = await api.session()
    leaving = await session.create_consumer(place, selector)
    staying = await session.create_consumer(place, other)
    await leaving.close()
    producer = await session.create_producer(place)
    message = session.create_text_message("for who stays")
    message.set_string_property("kind", "x")
    message.set_int_property("size", 3)
    await producer.send(message)
    assert text(await staying.receive(SOON)) == "for who stays"
    again = await session.create_consumer(place, selector)  # its place is free
    await again.close()
