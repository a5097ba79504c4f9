"""The engine without I/O: against a broker's end that a test speaks for, or against the real broker in memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sievemq import Queue
from sievemq._engine import (
    ClientConnection,
    Completion,
    EngineConsumer,
    EngineOptions,
    EngineProducer,
    EngineSession,
    Handshake,
)
from sievemq.destinations import Destination
from sievemq_broker.domain.broker import Broker
from sievemq_broker.protocols.sieve import SieveConnection
from sievemq_broker.session import AuthenticationError, Identity, Peer, Services, SessionSettings
from sievemq_core.message.envelope import BodyKind
from sievemq_core.wire.commands import Command
from sievemq_core.wire.connection import WireConnection

NOW = 1_700_000_000_000


def envelope(text: str = "", expiration: int = 0) -> tuple[Any, ...]:
    """The fields of a text message."""
    return (None, NOW, 4, 2, expiration, NOW, None, None, None, None, None, int(BodyKind.TEXT), text.encode())


class Clock:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.now = NOW

    def __call__(self) -> int:
        return self.now


class FakeBroker:
    """The broker's end of a connection: sees every command the engine says, says what the test tells it."""

    def __init__(self, options: EngineOptions | None = None, **limits: int) -> None:
        self.clock = Clock()
        self.engine = ClientConnection(options or EngineOptions(heartbeat=0), self.clock)
        self.wire = WireConnection("broker")
        self.reported: list[Exception] = []
        self.engine.listen(self.reported.append, None, None)
        self.handshake: Handshake | None = self.engine.hello()
        self._limits = limits

    def welcome(self, heartbeat: int = 0, **features: Any) -> tuple[Any, ...]:
        """Answer HELLO; returns it."""
        (hello,) = self.heard()
        self.say(Command.WELCOME, 1, "SieveMQ/test", "i", "c1", heartbeat, self._limits, features)
        return hello

    def heard(self) -> list[tuple[Any, ...]]:
        """The commands that the engine has said since the last look."""
        speaker = self.handshake or self.engine
        return self.wire.receive_data(speaker.data_to_send())

    def say(self, *command: Any) -> None:
        self.wire.send(*command)
        self.feed(self.wire.data_to_send())

    def feed(self, data: bytes) -> None:
        """Bytes of the broker."""
        handshake = self.handshake
        if handshake is None:
            self.engine.receive_data(data)
            return
        handshake.receive_data(data)
        if handshake.welcome is not None:
            self.handshake = None
            self.engine.welcomed(handshake)

    def reopen(self) -> None:
        """Another transport, on which the lost connection is to be continued."""
        self.wire = WireConnection("broker")
        self.handshake = self.engine.hello()

    def grant(self, result: Any = None) -> tuple[Any, ...]:
        """Answer the last command heard, a request, with OK; returns it."""
        command = self.heard()[-1]
        self.say(Command.OK, command[1], result)
        return command

    def refuse(self, code: int, text: str = "refused", **details: Any) -> tuple[Any, ...]:
        """Answer the last command heard, a request, with ERROR; returns it."""
        command = self.heard()[-1]
        self.say(Command.ERROR, command[1], code, text, details)
        return command

    def session(self, mode: int = 1) -> EngineSession:
        session = self.engine.open_session(mode)
        self.grant()
        assert session.opened.done
        assert session.opened.error is None
        return session

    def consumer(self, session: EngineSession, destination: Destination = Queue("q"), **more: Any) -> EngineConsumer:  # noqa: B008
        consumer = session.open_consumer(destination, str(destination), **more)
        self.grant()
        consumer.opened.result()
        return consumer

    def producer(self, session: EngineSession, destination: Destination | None = Queue("q")) -> EngineProducer:  # noqa: B008
        return EngineProducer(session, destination)

    def deliver(self, consumer: EngineConsumer, *tags: int, count: int = 1, expiration: int = 0) -> None:
        """Messages whose text is their tag."""
        for tag in tags:
            self.say(Command.DELIVER, consumer.id, tag, count, envelope(str(tag), expiration))


class MemoryServices(Services[Peer]):
    """A rim without I/O for the real broker."""

    def __init__(self, world: World, settings: SessionSettings | None = None) -> None:
        super().__init__(settings)
        self._world = world
        self._ids = 0
        self.password: str | None = None

    def connection_id(self) -> str:
        self._ids += 1
        return f"c{self._ids}"

    def authenticate(self, peer: Peer, user: str | None, password: str | None, later: object) -> Identity:
        if self.password is not None and password != self.password:
            raise AuthenticationError("user name or password is wrong")
        return Identity(user)

    def now(self) -> int:
        return self._world.clock.now + self.clock_offset

    def report(self, peer: Peer, doing: str, error: BaseException) -> None:
        raise AssertionError(f"the broker failed while {doing}") from error


class Memory:
    """A client engine and the real broker's end of its connection."""

    def __init__(self, world: World, options: EngineOptions) -> None:
        self.engine = ClientConnection(options, world.clock)
        self.broker = SieveConnection(world.broker, world.services, address="memory")
        self.reported: list[Exception] = []
        self.engine.listen(self.reported.append, None, None)
        self.handshake: Handshake | None = self.engine.hello()
        self.cut = False

    def exchange(self, now: int) -> bool:
        """Carry bytes both ways once; True if there were any."""
        if self.cut:
            return False
        said = (self.handshake or self.engine).data_to_send()
        if said:
            self.broker.receive_data(said, now)
        heard = self.broker.data_to_send() if self.broker.has_data else b""
        if heard and self.handshake is None:
            self.engine.receive_data(heard)
        elif heard:
            self._answer(heard)
        if self.broker.closing and not self.broker.has_data:
            self.drop(now)
        return bool(said or heard)

    def greet(self, now: int) -> None:
        """Carry HELLO and WELCOME."""
        assert self.handshake is not None
        self.broker.receive_data(self.handshake.data_to_send(), now)
        self._answer(self.broker.data_to_send())

    def _answer(self, heard: bytes) -> None:
        handshake = self.handshake
        assert handshake is not None
        handshake.receive_data(heard)
        if handshake.welcome is not None:
            self.handshake = None
            self.engine.welcomed(handshake)
        elif handshake.error is not None:
            self.engine.give_up(handshake.error)

    def drop(self, now: int) -> None:
        """The transport breaks."""
        if not self.cut:
            self.cut = True
            self.handshake = None
            self.broker.lost(now)
            self.engine.lost(ConnectionResetError("cut"))

    def leave_half_dead(self) -> None:
        """The client loses the transport; the broker does not know yet."""
        self.cut = True
        self.handshake = None
        self.engine.lost(ConnectionResetError("cut"))

    def lose_answers(self, now: int) -> None:
        """What the client has said arrives, and what it would have been answered does not."""
        if not self.cut:
            said = (self.handshake or self.engine).data_to_send()
            if said:
                self.broker.receive_data(said, now)
            self.drop(now)

    def reopen(self) -> None:
        """Another transport, to the same broker."""
        broker = self.broker.peer
        self.broker = SieveConnection(broker.broker, broker.services, address="memory")
        self.cut = False
        self.handshake = self.engine.hello()


class World:
    """The real broker in memory, and engines connected to it."""

    def __init__(self, settings: SessionSettings | None = None) -> None:
        self.clock = Clock()
        self.broker = Broker()
        self.services = MemoryServices(self, settings)
        self.connections: list[Memory] = []

    def connect(self, start: bool = True, **options: Any) -> Memory:
        memory = Memory(self, EngineOptions(**{"heartbeat": 0, **options}))
        self.connections.append(memory)
        self.settle()
        memory.engine.check_open()
        if start:
            memory.engine.start()
        return memory

    def settle(self) -> None:
        """Carry bytes until both ends are silent."""
        now = self.services.now()
        self.broker.due(now)
        self.broker.work(now)
        while sum(memory.exchange(now) for memory in self.connections):
            self.broker.work(now)

    def result(self, completion: Completion[Any]) -> Any:
        """Settle, and the value of a completion that must be done by then."""
        self.settle()
        return completion.result()

    def session(self, memory: Memory, mode: int = 1) -> EngineSession:
        session = memory.engine.open_session(mode)
        self.result(session.opened)
        return session

    def consumer(self, session: EngineSession, destination: Destination = Queue("q"), **more: Any) -> EngineConsumer:  # noqa: B008
        consumer = session.open_consumer(destination, str(destination), **more)
        self.result(consumer.opened)
        self.settle()
        return consumer

    def receive(self, consumer: EngineConsumer) -> Any:
        """As a front's receive_no_wait does it."""
        message = consumer.take() if consumer.flowing else None
        if message is None:
            completion = consumer.want(answered=True)
            if completion is None:
                return None
            self.result(completion)
            message = consumer.take()
        if message is not None:
            if consumer.acknowledges_itself:
                consumer.settle()
            if consumer.taken >= consumer.credit.mark:
                consumer.top_up()
        return message


def fate(completion: Completion[Any] | None) -> Callable[[], str]:
    """What became of a completion, in a word."""

    def word() -> str:
        assert completion is not None
        return "open" if not completion.done else "failed" if completion.error else "done"

    return word
