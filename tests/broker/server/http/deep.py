"""A queue with many messages, and how often the loop turned meanwhile."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from sievemq_broker import EmbeddedBroker
from sievemq_core.message.envelope import Envelope, pack_properties


def fill(broker: Any, namespace: str, address: str, count: int) -> None:
    """Put messages with the property `n` into a queue, without a client."""
    space = broker.namespace(namespace)
    for number in range(count):
        packed, letters = pack_properties({"n": number})
        space.send(address, Envelope((None, 1, 4, 1, 0, 0, None, None, None, packed, letters, 1, b"x" * 50)), 1)


class Turns:
    """Turns of the loop, and the longest of them: seconds of the processor, since the machine may be busy."""

    def __init__(self) -> None:
        self.count = 0
        self.longest = 0.0


@contextmanager
def longest_turn(broker: EmbeddedBroker) -> Iterator[Turns]:
    """Count the turns of the broker's loop."""
    turns = Turns()
    loop: Any = broker._loop
    going = True
    last = 0.0

    def turn() -> None:
        nonlocal last
        turns.count += 1
        now = time.thread_time()
        if last:
            turns.longest = max(turns.longest, now - last)
        last = now
        if going:
            loop.call_soon(turn)

    loop.call_soon_threadsafe(turn)
    try:
        yield turns
    finally:
        going = False
