"""AMQP clients of the tests, in memory and over a socket: what the broker says comes back as performatives."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable
from typing import Any, TypeVar

from sievemq_broker.protocols.amqp import AmqpConnection
from sievemq_broker.protocols.amqp.composites import Composite, read, write
from sievemq_broker.protocols.amqp.frames import (
    AMQP,
    AMQP_HEADER,
    SASL,
    SASL_HEADER,
    Frame,
    FrameParser,
    frame_of,
)
from sievemq_broker.protocols.amqp.performatives import (
    Attach,
    Begin,
    Close,
    Coordinator,
    Declare,
    Declared,
    Detach,
    Discharge,
    Disposition,
    Flow,
    Header,
    Open,
    Properties,
    SaslInit,
    Source,
    Target,
    TransactionalState,
    Transfer,
)
from sievemq_broker.protocols.amqp.types import Described, Symbol, ULong, decode, encode

from ..session.harness import World

#: Seconds that a socket waits for a frame.
SOON = 60

SELECTOR = 0x0000468C00000004

C = TypeVar("C", bound=Composite)


def message(
    body: object = "x",
    properties: dict[str, Any] | None = None,
    *,
    header: Header | None = None,
    standard: Properties | None = None,
    annotations: dict[str, Any] | None = None,
    section: int = 0x77,
) -> bytes:
    """The bytes of a message."""
    out = bytearray()
    if header is not None:
        write(header, out)
    if annotations is not None:
        encode(Described(ULong(0x72), {Symbol(name): value for name, value in annotations.items()}), out)
    if standard is not None:
        write(standard, out)
    if properties is not None:
        encode(Described(ULong(0x74), properties), out)
    encode(Described(ULong(section), body), out)
    return bytes(out)


def selector(text: object) -> dict[Symbol, Described]:
    """The filter of a source."""
    return {Symbol("jms-selector"): Described(ULong(SELECTOR), text)}


class Delivery:
    """A message that came.

    Args:
        transfer: the first of its transfers.
        payload: of all of them.
    """

    def __init__(self, transfer: Transfer, payload: bytes) -> None:
        self.id: int = transfer.delivery_id or 0
        self.handle = transfer.handle
        self.settled = transfer.settled
        self.payload = payload
        self.header = Header()
        self.standard = Properties()
        self.annotations: dict[Any, Any] = {}
        self.properties: dict[Any, Any] = {}
        self.body: Any = None
        at = 0
        while at < len(payload):
            section, at = decode(payload, at, len(payload), 1_000_000)
            match section.descriptor:
                case 0x70:
                    self.header = read(section)
                case 0x72:
                    self.annotations = section.value
                case 0x73:
                    self.standard = read(section)
                case 0x74:
                    self.properties = section.value
                case _:
                    self.body = section.value


class Peer:
    """A client, but for how its bytes travel."""

    def __init__(self) -> None:
        self.parser = FrameParser(2**24)
        self.frames: list[Frame] = []
        self.closed = False

    def feed(self, data: bytes) -> None:
        """Bytes go to the broker."""
        raise NotImplementedError

    def look(self) -> None:
        """Take what came, at least one frame if the network has to be waited for."""
        raise NotImplementedError

    def heard(self, data: bytes) -> None:
        """Bytes came."""
        self.parser.receive(data)
        while (frame := self.parser.next()) is not None:
            self.frames.append(frame)

    def say(self, performative: Composite | None, payload: bytes = b"", channel: int = 0, kind: int = AMQP) -> None:
        """A frame."""
        self.feed(frame_of(performative, channel, payload, kind))

    def all(self, kind: type[C]) -> list[C]:
        """Performatives of this kind that came, once."""
        found = [frame.body for frame in self.frames if isinstance(frame.body, kind)]
        self.frames = [frame for frame in self.frames if not isinstance(frame.body, kind)]
        return found

    def one(self, kind: type[C], that: Callable[[C], bool] = lambda _: True) -> C:
        """The next performative of this kind for which `that` is true."""
        while True:
            for at, frame in enumerate(self.frames):
                if isinstance(frame.body, kind) and that(frame.body):
                    del self.frames[at]
                    return frame.body
            self.look()

    # -- what clients do ----------------------------------------------------------------------------------------------

    def connect(
        self, container: str = "c", *, user: str | None = None, password: str = "", host: str | None = None, **more: Any
    ) -> None:
        """Sign in, open, and begin session 0."""
        if user is not None:
            self.feed(SASL_HEADER)
            response = b"\0" + user.encode() + b"\0" + password.encode()
            self.say(SaslInit(mechanism="PLAIN", initial_response=response), kind=SASL)
        self.feed(AMQP_HEADER)
        self.say(Open(container_id=container, hostname=host, **more))
        self.begin()

    def begin(self, channel: int = 0, window: int = 10_000) -> None:
        """Begin a session."""
        self.say(Begin(next_outgoing_id=0, incoming_window=window, outgoing_window=100), channel=channel)

    def sender(self, address: Any = "q", handle: int = 0, name: str = "", **more: Any) -> Attach:
        """Attach a producer; what the broker answers."""
        target = more.pop("target", None) or Target(address=address, capabilities=more.pop("capabilities", None))
        self.say(
            Attach(
                name=name or f"s{handle}", handle=handle, role=False, source=Source(), target=target,
                initial_delivery_count=0, **more,
            )
        )  # fmt: skip
        return self.one(Attach, lambda each: each.handle == handle)

    def receiver(
        self,
        address: Any = "q",
        handle: int = 1,
        credit: int = 10,
        name: str = "",
        *,
        settle: int = 0,
        most: int | None = None,
        **source: Any,
    ) -> Attach:
        """Attach a consumer, and grant credit; what the broker answers."""
        self.say(
            Attach(
                name=name or f"r{handle}", handle=handle, role=True, snd_settle_mode=settle,
                source=Source(address=address, **source), target=Target(), max_message_size=most,
            )
        )  # fmt: skip
        answer = self.one(Attach, lambda each: each.handle == handle)
        if credit and answer.source is not None:
            self.grant(credit, handle)
        return answer

    def grant(self, credit: int, handle: int = 1, count: int = 0, *, drain: bool = False, **more: Any) -> None:
        """Grant credit."""
        window = more.pop("window", 10_000)
        self.say(
            Flow(
                next_incoming_id=more.pop("next_in", 0), incoming_window=window, next_outgoing_id=0,
                outgoing_window=100, handle=handle, delivery_count=count, link_credit=credit, drain=drain, **more,
            )
        )  # fmt: skip

    def send(self, payload: bytes, number: int = 0, handle: int = 0, **more: Any) -> None:
        """A message in one transfer."""
        self.say(
            Transfer(handle=handle, delivery_id=number, delivery_tag=b"t%d" % number, message_format=0, **more), payload
        )

    def outcome(self, number: int = 0) -> Any:
        """What became of a delivery of this client."""
        settled = self.one(
            Disposition,
            lambda each: each.role and each.first <= number <= (each.first if each.last is None else each.last),
        )
        assert settled.settled
        return settled.state

    def receive(self) -> Delivery:
        """The next message."""
        first = None
        parts: list[bytes] = []
        while True:
            for at, frame in enumerate(self.frames):
                if isinstance(frame.body, Transfer):
                    del self.frames[at]
                    first = first or frame.body
                    parts.append(frame.payload)
                    if not frame.body.more:
                        return Delivery(first, b"".join(parts))
                    break
            else:
                self.look()

    def messages(self) -> list[Any]:
        """Bodies of the messages that came, once."""
        found = []
        while any(isinstance(frame.body, Transfer) for frame in self.frames):
            found.append(self.receive().body)
        return found

    def settle(self, state: Composite | None, first: int, last: int | None = None, *, settled: bool = True) -> None:
        """Settle deliveries of the broker."""
        self.say(Disposition(role=True, first=first, last=last, settled=settled, state=state))

    def coordinator(self, handle: int = 9) -> None:
        """Attach what declares transactions."""
        self.sender(handle=handle, target=Coordinator())

    def declare(self, number: int, handle: int = 9) -> bytes:
        """Begin a transaction."""
        self.send(message(described(Declare())), number, handle)
        state = self.outcome(number)
        assert isinstance(state, Declared)
        return state.txn_id

    def discharge(self, name: bytes, number: int, handle: int = 9, *, fail: bool = False) -> Any:
        """End a transaction; its outcome."""
        self.send(message(described(Discharge(txn_id=name, fail=fail))), number, handle)
        return self.outcome(number)

    def within(self, name: bytes, outcome: Composite | None = None) -> TransactionalState:
        """The state of what is part of a transaction."""
        return TransactionalState(txn_id=name, outcome=outcome)

    def error(self) -> Any:
        """Why the broker has ended the connection."""
        close = self.one(Close)
        assert close.error is not None
        return close.error

    def detached(self) -> Any:
        """Why the broker has detached a link."""
        detach = self.one(Detach)
        assert detach.closed
        return detach.error


def described(composite: Composite) -> Any:
    """A composite as the value of a message."""
    out = bytearray()
    write(composite, out)
    value, _ = decode(bytes(out), 0, len(out))
    return value


class Amqp(Peer):
    """One client of a World.

    Args:
        world: with the broker.
        connect: open, and begin session 0.
        more: as of :meth:`Peer.connect`.
    """

    def __init__(self, world: World, *, connect: bool = True, **more: Any) -> None:
        super().__init__()
        self.world = world
        self.broker = AmqpConnection(world.broker, world.services)
        if connect:
            self.connect(**more)

    def feed(self, data: bytes) -> None:
        """Bytes go to the broker, and its answers come back."""
        self.broker.receive_data(data, self.world.now)
        self.rest()

    def look(self) -> None:
        """Nothing more comes by itself."""
        before = len(self.frames)
        self.rest()
        assert len(self.frames) > before, self.frames

    def rest(self) -> None:
        """Turns of a loop, until there is nothing to do."""
        for _ in range(10_000):
            busy = False
            if self.broker.behind:
                self.broker.catch_up(self.world.now)
                busy = True
            if self.broker.has_data:
                self.heard(self.broker.data_to_send())
                busy = True
            while self.world.broker.work(self.world.now):
                busy = True
            if not busy and not self.broker.has_data:
                break
        else:
            raise AssertionError("it never comes to rest")
        if self.broker.closing and not self.closed:
            self.closed = True
            self.broker.lost(self.world.now)

    def lose(self) -> None:
        """The network fails."""
        self.closed = True
        self.broker.lost(self.world.now)


class AmqpSocket(Peer):
    """One client over TCP.

    Args:
        port: of the broker.
        connect: open, and begin session 0.
        tls: speaks TLS.
        more: as of :meth:`Peer.connect`.
    """

    def __init__(self, port: int, *, connect: bool = True, tls: ssl.SSLContext | None = None, **more: Any) -> None:
        super().__init__()
        self.socket = socket.create_connection(("127.0.0.1", port), SOON)
        if tls is not None:
            self.socket = tls.wrap_socket(self.socket, server_hostname="localhost")
        if connect:
            self.connect(**more)
            self.one(Begin)

    def __enter__(self) -> AmqpSocket:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def feed(self, data: bytes) -> None:
        """Bytes go to the broker."""
        self.socket.sendall(data)

    def look(self) -> None:
        """Wait for bytes."""
        data = self.socket.recv(65_536)
        assert data, "the broker has ended the connection"
        self.heard(data)

    def ended(self) -> None:
        """The broker says nothing more, and ends the connection."""
        try:
            while data := self.socket.recv(65_536):
                self.heard(data)
        except ConnectionError:
            pass
