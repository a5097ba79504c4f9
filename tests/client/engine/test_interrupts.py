"""KeyboardInterrupt at any point of the engine: it works on, and nothing confirmed is lost or doubled (decision 0029).

The front's part is written out here: it calls :meth:`ClientConnection.interrupted`, and opens another transport.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from sievemq import JMSException, Queue, TextMessage
from sievemq._engine import Callbacks, Completion, EngineProducer, EngineSession, call

from ..interrupts import Interrupts
from .harness import Memory, World

pytestmark = pytest.mark.needs_python("counts the functions that it interrupts")

QUEUE = Queue("q")
AUTO, CLIENT, TRANSACTED = 1, 2, 0
#: Every so many points one is tried here, all of them in the slow part.
STRIDE = 11


class InterruptedMemory(Memory):
    """Carries bytes; the calls of the engine for that can be interrupted."""

    guard: Callable[[Callable[[], Any]], Any]

    def exchange(self, now: int) -> bool:
        if self.cut:
            return False
        said = self.handshake.data_to_send() if self.handshake else self.guard(self.engine.data_to_send)
        if said and not self.cut:
            self.broker.receive_data(said, now)
        heard = self.broker.data_to_send() if self.broker.has_data else b""
        if heard and not self.cut:
            handshake, self.handshake = self.handshake, None
            if handshake is None:
                self.guard(lambda: self.engine.receive_data(heard))
            else:
                handshake.receive_data(heard)
                self.guard(lambda: self.engine.welcomed(handshake))
        return bool(said or heard)


class Application:
    """Sends, receives, acknowledges; goes on after an interrupt. Its connection is lost once, too."""

    def __init__(self, mode: int, point: int) -> None:
        self.interrupts = Interrupts(point)
        self.world = world = World()
        self.memory = world.connect(reconnect=5_000)
        self.mode = mode
        self.session = world.session(self.memory, mode)
        self.sending = world.session(self.memory, AUTO)
        self.consumer = world.consumer(self.session)
        self.producer = EngineProducer(self.sending, QUEUE)
        self.memory.__class__ = InterruptedMemory  # from here on
        self.memory.guard = self.guard  # type: ignore[attr-defined]
        self.sure: list[str] = []  # sends that returned
        self.doubtful: list[str] = []  # the one that was interrupted
        self.fates: list[Completion[None]] = []
        self.called: list[str] = []
        self.listened: list[str] = []
        self.done: list[str] = []  # received, and acknowledged for certain
        self.open: list[str] = []  # received since
        self.unsure: list[str] = []  # the interrupted call may have acknowledged them

    def guard(self, call: Callable[[], Any], sending: bool = False) -> Any:
        """Make a call of the engine as a front does; None if it was interrupted."""
        try:
            with self.interrupts.armed():
                return call()
        except KeyboardInterrupt as error:
            sends = self.sending.sends
            torn = sends.torn
            if torn:
                sends.mend()
            if torn or not sending:
                self.memory.engine.interrupted(error)
                self.cut()
            return None

    def cut(self) -> None:
        memory = self.memory
        if not memory.cut:
            memory.cut = True
            memory.handshake = None
            memory.broker.lost(self.world.services.now())

    def settle(self) -> None:
        """Until all is quiet, with another transport where there is none."""
        memory = self.memory
        for _ in range(10):
            self.world.settle()
            if not memory.engine.down:
                return
            self.cut()
            memory.engine.attempt_failed(JMSException("none"))
            memory.reopen()
        raise AssertionError("it is lost again and again")

    def send(self, text: str, listened: bool = False) -> None:
        callbacks: Callbacks | None = (self.hear, lambda _, error: pytest.fail(str(error))) if listened else None
        sent: list[Any] = []
        self.guard(lambda: sent.append(self.producer.send(TextMessage(text), QUEUE, callbacks)), sending=True)
        if not sent:
            self.doubtful.append(text)
        else:
            self.sure.append(text)
            if listened:
                self.listened.append(text)
            if sent[0] is not None:
                self.fates.append(sent[0])

    def hear(self, message: Any) -> None:
        self.called.append(message.get_text())

    def receive(self) -> None:
        for _ in range(3):
            message = self.guard(self.consumer.take_for_good) if self.consumer.flowing else None
            if message is not None:
                break
            self.guard(lambda: self.consumer.want(answered=True))
            self.settle()
        else:
            return
        self.open.append(message.get_text())
        if self.mode == AUTO:
            self.done += self.open
            self.open.clear()
        if self.consumer.taken >= self.consumer.credit.mark:
            self.guard(self.consumer.top_up)

    def acknowledge(self) -> None:
        """What the mode has for it; messages of a call that was interrupted may be acknowledged or not."""
        if self.mode == AUTO:
            return
        verb = self.session.acknowledge if self.mode == CLIENT else self.session.commit
        asked: list[Completion[Any]] = []
        before = self.interrupts.place
        try:
            self.guard(lambda: asked.append(verb()))
            self.settle()
            if asked:
                asked[0].result()
                self.done += self.open
            elif before != self.interrupts.place:
                self.unsure += self.open
        except JMSException:  # the connection was lost before: they come again
            assert self.interrupts.place or self.memory.engine.outages
        self.open.clear()

    def run(self) -> None:
        self.send("m0")
        self.settle()
        self.send("m1", listened=True)
        self.send("m2")
        self.send("m3", listened=True)
        self.settle()
        self.receive()
        self.receive()
        self.acknowledge()
        self.receive()
        self.cut()
        self.guard(lambda: self.memory.engine.lost(ConnectionResetError("cut")))
        self.send("m4")
        self.settle()
        self.receive()
        self.acknowledge()
        self.receive()
        self.guard(lambda: self.session.close_consumer(self.consumer))
        self.settle()
        self.guard(self.session.close)
        self.settle()
        self.send("m5", listened=True)
        self.settle()
        self.send("after")
        self.settle()
        while self.sending.sends.calls:
            call(self.sending.sends.calls.popleft())

    def check(self) -> None:
        where = self.interrupts.place
        assert [fate.done and fate.error is None for fate in self.fates] == [True] * len(self.fates), where
        assert self.called == self.listened, where
        sends = self.sending.sends
        assert (sends.confirmed, len(sends.unconfirmed), sends.sent_bytes) == (sends.sequence, 0, sends.confirmed_bytes)
        # A reader of its own finds what was not acknowledged, each once and in order.
        reading = self.world.connect()
        other: EngineSession = self.world.session(reading, AUTO)
        consumer = self.world.consumer(other)
        left = []
        while (message := self.world.receive(consumer)) is not None:
            left.append(message.get_text())
        assert left == sorted(left, key=[f"m{n}" for n in range(6)].__add__(["after"]).index), where
        assert not set(left) & set(self.done), (where, left, self.done)
        lost = set(self.sure) - set(left) - set(self.done) - set(self.unsure)
        # In AUTO_ACKNOWLEDGE a receive that was interrupted may have acknowledged its message.
        assert len(lost) <= (self.mode == AUTO and " settle " in where), (where, lost)


def run(mode: int, point: int) -> Interrupts:
    application = Application(mode, point)
    try:
        application.run()
        application.check()
    except BaseException as error:
        error.add_note(f"interrupted at point {point}: {application.interrupts.place}")
        raise
    return application.interrupts


@pytest.mark.parametrize("mode", [AUTO, CLIENT, TRANSACTED])
def test_an_interrupt_anywhere_in_the_engine_loses_and_doubles_nothing(mode: int) -> None:
    points = run(mode, 0).points
    assert points > 500
    for point in range(1 + mode, points, STRIDE):
        assert run(mode, point).place


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("mode", [AUTO, CLIENT, TRANSACTED])
def test_an_interrupt_at_each_point_of_the_engine_loses_and_doubles_nothing(mode: int) -> None:
    for point in range(1, run(mode, 0).points):
        assert run(mode, point).place
