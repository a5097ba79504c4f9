"""A message on its way without a broker: encoded, packed, unpacked, received."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.client.messages.envelope import fields_of

from sievemq import Destination, Message, Queue
from sievemq.messages import received

Deliver = Callable[..., Any]


@pytest.fixture
def deliver() -> Deliver:
    """``deliver(message, count=1, destination=Queue("orders"))``: the message as a consumer gets it."""
    orders = Queue("orders")

    def deliver(message: Message, count: int = 1, destination: Destination = orders, **hooks: Any) -> Message:
        fields = fields_of(message, "ID:c:1", 1_700_000_000_000, 7, 1, 1_700_000_060_000, 1_700_000_000_005)
        return received(fields, destination, count, hooks.get("acknowledge"))

    return deliver
