"""Fakes and helpers of the server's tests."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from sievemq_broker.clock import Clock
from sievemq_broker.domain import Broker
from sievemq_broker.session.life import CLOSING, Life
from sievemq_broker.session.transaction import StagedBytes


class FakeConnection:
    """The broker's end of a connection, and its client: records its input, sends what the test wants."""

    frame_bytes = frame_number = 0
    staged = StagedBytes(0)

    def __init__(self, address: str, wake: Callable[[], None] = lambda: None) -> None:
        self.address = address
        self.peer = self.member = self.out = self
        self.needs: list[object] = []
        self.broker = Broker()
        self.id = "welcomed"
        self.life = Life()
        self.life.welcome()
        self.received: list[bytes] = []
        self.calls: list[str] = []
        self.output = b""
        self.full = False
        #: What is left of what it was told: it carries out a byte at a time where the test says so.
        self.left = b""
        self.slow = False
        self.answer: Callable[[FakeConnection, bytes], None] | None = None
        self.deadline: int | None = None
        self.heartbeats = (0, 0)
        self.ticks = 0
        self.lost_event = asyncio.Event()

    @property
    def closing(self) -> bool:
        return self.life.state >= CLOSING

    @property
    def has_data(self) -> bool:
        return bool(self.output)

    @property
    def caught_up(self) -> bool:
        return not (self.left or self.full or self.frame_bytes)

    @property
    def behind(self) -> bool:
        return bool(self.left)

    @property
    def unpublished(self) -> int:
        return len(self.left)

    def catch_up(self, now: int) -> None:
        self.calls.append("catch_up")
        data, self.left = self.left, b""
        self.receive_data(data, now)

    def receive_data(self, data: bytes, now: int) -> None:
        assert not self.left
        if self.slow:
            data, self.left = data[:1], data[1:]
        self.received.append(data)
        if self.answer is not None:
            self.answer(self, data)

    def receive_eof(self, now: int) -> None:
        self.calls.append("eof")

    def lost(self, now: int) -> None:
        self.life.lose()
        self.calls.append("lost")
        self.lost_event.set()

    def data_to_send(self) -> bytes:
        output, self.output = self.output, b""
        return output

    def pause(self) -> None:
        self.calls.append("pause")

    def resume(self, now: int) -> None:
        self.calls.append("resume")

    def hold_back(self, held: bool) -> None:
        self.calls.append(f"hold_back {held}")

    def urgent_heartbeat(self) -> bytes:
        return b"beat"

    def end_output(self) -> None:
        self.calls.append("end_output")

    def tick(self, now: int) -> int | None:
        self.ticks += 1
        return self.deadline


class StandingClock(Clock):
    """A clock that shows what the test says."""

    __slots__ = ("time",)

    def __init__(self, time: int = 1_000) -> None:
        self.time = time

    def now(self) -> int:
        return self.time


class Handle:
    def __init__(self, when: float, callback: Callable[[], None]) -> None:
        self.when, self.callback, self.cancelled = when, callback, False

    def cancel(self) -> None:
        self.cancelled = True


class FakeLoop:
    """Only as much of a loop as timers use; nothing happens by itself."""

    def __init__(self) -> None:
        self.now = 100.0
        self.handles: list[Handle] = []

    def time(self) -> float:
        return self.now

    def call_at(self, when: float, callback: Callable[[], None]) -> Handle:
        self.handles.append(handle := Handle(when, callback))
        return handle

    def call_later(self, delay: float, callback: Callable[[], None]) -> Handle:
        return self.call_at(self.now + delay, callback)

    def call_soon(self, callback: Callable[..., None], *arguments: object) -> Handle:
        return self.call_at(self.now, lambda: callback(*arguments))

    def armed(self) -> list[float]:
        return [round(handle.when - self.now, 6) for handle in self.handles if not handle.cancelled]

    def fire(self) -> None:
        """The next timer's time comes."""
        handle = min((h for h in self.handles if not h.cancelled), key=lambda h: h.when)
        self.handles.remove(handle)
        self.now = max(self.now, handle.when)
        handle.callback()


@pytest.fixture
def clock() -> StandingClock:
    return StandingClock()
