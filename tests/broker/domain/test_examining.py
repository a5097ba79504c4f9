"""Which sends have their selectors evaluated in slices before they are accepted."""

from __future__ import annotations

import pytest

from sievemq_broker.domain.publishing import Sends

from .support import World, message


@pytest.mark.parametrize(
    "addresses", [["topic:costly"], ["topic:plain", "topic:costly"], ["topic:costly", "topic:plain"]]
)
def test_a_batch_is_examined_if_any_of_its_destinations_has_costly_selectors(addresses: list[str]) -> None:
    world = World()
    world.consumer("topic:plain", "symbol = 'S7'")
    for number in range(600):  # all need the same value, so a message meets every one of them
        world.consumer("topic:costly", f"symbol = 'S7' AND price + {number} > 1")
    assert world.namespace.examining(Sends([(address, message("a")) for address in addresses])) is not None
    assert world.namespace.examining(Sends([("topic:plain", message("a")), ("topic:missing", message("b"))])) is None
