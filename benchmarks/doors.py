"""A client for every protocol of the broker, without an SDK, with the same verbs: what the floods are made of.

Each verb returns bytes, made beforehand and sent as fast as the broker takes them. What a client receives is searched
for marks and dropped: MARK is in the body of every message, and the answer to :meth:`Door.ask` contains its number.
"""

from __future__ import annotations

import json
import selectors
import socket
import struct
import threading
from contextlib import suppress
from typing import Any, ClassVar, NamedTuple

from sievemq_broker.protocols.amqp.frames import AMQP_HEADER, frame_of
from sievemq_broker.protocols.amqp.performatives import (
    Accepted,
    Attach,
    Begin,
    Coordinator,
    Declare,
    Discharge,
    Disposition,
    End,
    Flow,
    Open,
    Source,
    Target,
    TransactionalState,
    Transfer,
)
from sievemq_broker.protocols.amqp.types import Described, Symbol, ULong
from sievemq_core.limits import MAX_CREDIT
from sievemq_core.message.envelope import BodyKind, pack_properties
from sievemq_core.wire.commands import PROTOCOL_VERSION, Command
from sievemq_core.wire.connection import WireConnection

WAIT_S = 60.0
MARK = b"~mark~"
BODY = MARK + b"x" * 240
QTY = 7  # the property that all messages have
_PIECE = 60_000
_ANSWER = 1_000_000  # the number of the first request by which an answer is recognised


class Place(NamedTuple):
    """The ports of a broker."""

    port: int
    http_port: int


class Drain:
    """One thread that receives from many connections and drops what it has received.

    A thread for each connection would compete with the broker for the processors.
    """

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()
        self._thread: threading.Thread | None = None

    def add(self, door: Door) -> None:
        self._selector.register(door.sock, selectors.EVENT_READ, door)
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, daemon=True)
            self._thread.start()

    def _work(self) -> None:
        buffer = bytearray(1 << 20)
        while True:
            for key, _ in self._selector.select():
                door: Door = key.data
                size = 0
                with suppress(OSError):
                    size = door.sock.recv_into(buffer)
                    door.drained(size)
                if not size:
                    self._selector.unregister(key.fileobj)
                    assert door.emptied is not None
                    door.emptied.set()


class Door:
    """A connection.

    Args:
        at: the broker.
        namespace: "" for the default one.
        transacted: its sends wait for :meth:`commit`, its settlements too.
    """

    name: ClassVar[str]
    #: Consumers that hold this many messages unsettled are allowed.
    most: ClassVar[int] = MAX_CREDIT
    #: Bytes of a frame that is a command of its own and changes nothing, sent before the client has signed in.
    nothing: ClassVar[bytes]
    #: What answers :meth:`commit`, if the answer to a request may come before; b"" if it cannot.
    committed: ClassVar[bytes] = b""
    #: The same of :meth:`end`.
    ended: ClassVar[bytes] = b""
    #: All that are open.
    open: ClassVar[list[Door]] = []
    _drain: ClassVar[Drain] = Drain()

    def __init__(self, at: Place, namespace: str = "", transacted: bool = False, signed_in: bool = True) -> None:
        self.sock = socket.create_connection(("127.0.0.1", self.port_of(at)), timeout=WAIT_S)
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.open.append(self)
        self.transacted = transacted
        self.asked = self.sent = self.came = 0
        self._last = b""
        #: Set once the drain has received everything; None while :meth:`until` reads.
        self.emptied: threading.Event | None = None
        self.begin()
        if signed_in:
            self.sign_in(namespace)

    def port_of(self, at: Place) -> int:
        return at.port

    def begin(self) -> None:
        """What comes before the client signs in."""

    def sign_in(self, namespace: str) -> None:
        raise NotImplementedError

    def subscribe(self, address: str, count: int = 1, *, settles: bool = False, qty: str = "") -> None:
        """Open so many consumers; they are opened when this returns.

        Args:
            address: of a queue or topic.
            count: how many.
            settles: the client settles what it receives, else it counts as received once it is sent.
            qty: the end of a selector, such as "> 5"; "{n}" in it is the consumer's number.
        """
        raise NotImplementedError

    def sends(self, address: str, count: int = 1, *, persistent: bool = True) -> bytes:
        """Messages; of a transaction, if it is transacted."""
        raise NotImplementedError

    def commit(self) -> bytes:
        raise NotImplementedError

    def settle(self, count: int) -> bytes:
        """One verb for all that the first consumer was sent, where the protocol has one."""
        raise NotImplementedError

    def end(self) -> bytes:
        """End the session with all that it holds unsettled."""
        raise NotImplementedError

    def request(self, number: int) -> tuple[bytes, bytes]:
        """A request that is answered once all before it is carried out; and a part of its answer."""
        raise NotImplementedError

    # -- bytes out and in ----------------------------------------------------------------------------------------------

    def wrap(self, data: bytes) -> bytes:
        """Bytes as they are on the wire."""
        return data

    def say(self, data: bytes) -> None:
        self.sock.sendall(self.wrap(data))

    def _read(self) -> bytes:
        data = self.sock.recv(262_144)
        if not data:
            raise ConnectionError(f"{self.name}: closed by the broker after {self._last!r}")
        self.came += (self._last[1 - len(MARK) :] + data).count(MARK)
        self._last = (self._last + data)[-300:]
        return data

    def until(self, mark: bytes, times: int = 1) -> bytes:
        """Read until a mark has come so many times; returns the bytes in which the last one was. Messages that came
        before the call count."""
        seen = b""
        if mark == MARK:
            while self.came < times:
                self._read()
            self.came -= times
            return seen
        while times > 0:
            seen = seen[1 - len(mark) :] + self._read()
            times -= seen.count(mark)
        return seen

    def ask(self) -> None:
        """Wait until all before this is carried out."""
        self.flood(b"")

    def flood(self, data: bytes, mark: bytes = b"", times: int = 1) -> None:
        """Send bytes as fast as they are taken; returns when they are carried out, or a mark has come so many times."""
        if not mark:
            self.asked += 1
            request, mark = self.request(_ANSWER + self.asked)
            data += request
        data = self.wrap(data)
        if len(data) < _PIECE:
            self.sock.sendall(data)
            self.until(mark, times)
            return
        writer = threading.Thread(target=self._write, args=(data,), daemon=True)
        writer.start()
        self.until(mark, times)
        writer.join()

    def _write(self, data: bytes) -> None:
        with suppress(OSError):  # the reader reports it
            self.sock.sendall(data)

    def drain(self) -> None:
        """Receive from now on without a look at it."""
        self.emptied = threading.Event()
        self._drain.add(self)

    def drained(self, size: int) -> None:
        """Bytes were received by the drain."""

    def close(self) -> None:
        with suppress(OSError):
            self.sock.shutdown(socket.SHUT_RDWR)
        if self.emptied is not None:
            self.emptied.wait()
        self.sock.close()

    @classmethod
    def close_all(cls) -> None:
        for door in cls.open:
            door.close()
        cls.open.clear()


class Sieve(Door):
    """SieveMQ's own protocol."""

    name = "sieve"
    nothing = bytes.fromhex("00000000")
    _DELIVERY_BYTES = 600  # more than a delivery has

    def begin(self) -> None:
        self.wire = WireConnection("client")
        self._alone = False  # one consumer, whose deliveries are acknowledged while they are drained
        self._came = self._done = 0

    def sign_in(self, namespace: str) -> None:
        features = {"deliver_several": True}
        data = self.said(
            Command.HELLO, PROTOCOL_VERSION, namespace, None, None, None, 0, "benchmark", None, features
        )  # fmt: skip
        self.say(data)
        welcome = self.sock.recv(65_536)
        self.wire.receive_data(welcome)
        self.say(self.said(Command.OPEN_SESSION, 1, 1, 0 if self.transacted else 1))
        self.ask()

    def said(self, *command: Any) -> bytes:
        self.wire.send(*command)
        return self.wire.data_to_send()

    def subscribe(self, address: str, count: int = 1, *, settles: bool = False, qty: str = "") -> None:
        self._alone = count == 1 and not settles
        for number in range(1, count + 1):
            selector = f"qty {qty.format(n=number)}" if qty else None
            self.wire.send(
                Command.OPEN_CONSUMER, number, 1, number, address, selector, None, False, None, False, False,
                MAX_CREDIT, 0,
            )  # fmt: skip
        self.flood(self.wire.data_to_send())

    def sends(
        self, address: str, count: int = 1, *, persistent: bool = True, kind: int = BodyKind.BYTES, body: bytes = BODY
    ) -> bytes:
        packed, letters = pack_properties({"qty": QTY})
        mode, parts = 2 if persistent else 1, []
        for _ in range(count):
            self.sent += 1
            fields = (f"ID:{self.sent}", 0, 4, mode, 0, 0, None, None, None, packed, letters, int(kind), body)
            self.wire.send(Command.SEND, 1, self.sent, address, fields)
            if self.wire.pending_bytes > _PIECE:
                parts.append(self.wire.data_to_send())
        return b"".join([*parts, self.wire.data_to_send()])

    def commit(self) -> bytes:
        return self.said(Command.COMMIT, 2, 1, (1, self._done) if self._done else ())

    def settle(self, count: int) -> bytes:
        if self.transacted:  # by its COMMIT
            self._done = count
            return b""
        return self.said(Command.ACKNOWLEDGE, 1, count, 0)

    def end(self) -> bytes:
        return self.said(Command.CLOSE_SESSION, 3, 1, ())

    def request(self, number: int) -> tuple[bytes, bytes]:
        return self.said(Command.PING, number), struct.pack(">BBI", Command.OK, 0xCE, number)

    def drained(self, size: int) -> None:
        self._came += size
        if self._alone and (count := self._came // self._DELIVERY_BYTES - self._done) > 1_000:
            self._done += count
            self.say(self.said(Command.ACKNOWLEDGE, 1, self._done, count))


class Stomp(Door):
    name = "stomp"
    nothing = b"\n"

    def sign_in(self, namespace: str) -> None:
        self._transaction = 0
        host = f"/{namespace}" if namespace else "localhost"
        self.say(_frame("CONNECT", accept_version="1.2", host=host, sievemq_types="infer"))
        self.until(b"CONNECTED")
        if self.transacted:
            self.say(self._begin())

    def _begin(self) -> bytes:
        self._transaction += 1
        return _frame("BEGIN", transaction=self._transaction)

    def _within(self) -> dict[str, Any]:
        return {"transaction": self._transaction} if self.transacted else {}

    def subscribe(self, address: str, count: int = 1, *, settles: bool = False, qty: str = "") -> None:
        frames = []
        for number in range(1, count + 1):
            more: dict[str, Any] = {"selector": f"qty {qty.format(n=number)}"} if qty else {}
            if settles:
                more |= {"ack": "client-individual" if self.transacted else "client", "prefetch_count": self.most}
            frames.append(_frame("SUBSCRIBE", id=number, destination=address, **more))
        self.flood(b"".join(frames))

    def sends(self, address: str, count: int = 1, *, persistent: bool = True) -> bytes:
        more = {"persistent": "true"} if persistent else {}
        return _frame("SEND", BODY, destination=address, qty=QTY, **more, **self._within()) * count

    def commit(self) -> bytes:
        return _frame("COMMIT", **self._within()) + self._begin()

    def settle(self, count: int) -> bytes:
        if self.transacted:  # one by one; the broker has given BEGIN the number 1
            return b"".join(_frame("ACK", id=f"2-{tag}", **self._within()) for tag in range(1, count + 1))
        return _frame("ACK", id=f"1-{count}")

    def end(self) -> bytes:
        return _frame("UNSUBSCRIBE", id=1)

    def request(self, number: int) -> tuple[bytes, bytes]:
        begin, abort = (
            _frame(name, transaction=f"r{number}", receipt=f"{name}-{number}") for name in ("BEGIN", "ABORT")
        )
        return begin + abort, b"ABORT-%d" % number


def _frame(command: str, body: bytes = b"", **headers: Any) -> bytes:
    if body:
        headers["content_length"] = len(body)
    lines = "".join(f"{name.replace('_', '-')}:{value}\n" for name, value in headers.items())
    return f"{command}\n{lines}\n".encode().replace(b"queue:", b"/queue/").replace(b"topic:", b"/topic/") + body + b"\0"


class WebSocket(Stomp):
    """STOMP over WebSocket."""

    name = "websocket"
    nothing = bytes((0x8A, 0x80, 0, 0, 0, 0))  # an empty pong

    def port_of(self, at: Place) -> int:
        return at.http_port

    def begin(self) -> None:
        self.sock.sendall(
            b"GET /stomp HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: MTIzNDU2Nzg5MDEyMzQ1Ng==\r\n"
            b"Sec-WebSocket-Protocol: v12.stomp\r\n\r\n"
        )
        self.until(b"\r\n\r\n")

    def wrap(self, data: bytes) -> bytes:
        return b"".join([_message(data[at : at + _PIECE]) for at in range(0, len(data), _PIECE)])


def _message(data: bytes) -> bytes:
    size = len(data)
    head = b"\x82%c" % (0x80 | size) if size < 126 else b"\x82\xfe%b" % size.to_bytes(2)
    return head + bytes(4) + data  # masked with zeros


class Amqp(Door):
    name = "amqp"
    most = 100_000
    nothing = bytes.fromhex("0000000802000000")

    OPEN, BEGIN, ATTACH, FLOW, TRANSFER, DISPOSITION, DETACH, END = (
        bytes((0, 0x53, number)) for number in range(0x10, 0x18)
    )
    committed, ended = DISPOSITION, END
    #: Channels: of messages, of requests and declares, of discharges. Each has delivery ids of its own.
    _MESSAGES, _REQUESTS, _DISCHARGES = range(3)
    #: durable, the property, the body
    _MESSAGE = b"\0\x53\x74\xc1\x08\x02\xa1\x03qty\x54%c\0\x53\x75\xa0%c%b" % (QTY, len(BODY), BODY)
    _DURABLE = bytes.fromhex("005370c0020141")

    def begin(self) -> None:
        self.say(AMQP_HEADER)

    def sign_in(self, namespace: str) -> None:
        self._links: dict[tuple[int, str], int] = {}
        self._ids = [0, 0, 0]
        self._transaction = b""
        host = f"/{namespace}" if namespace else "localhost"
        begin = Begin(next_outgoing_id=0, incoming_window=2**31 - 1, outgoing_window=2**31 - 1)
        begins = b"".join(frame_of(begin, channel) for channel in range(3))
        self.say(frame_of(Open(container_id="flood", hostname=host, max_frame_size=1 << 20)) + begins)
        self.until(self.BEGIN, 3)

    def _transfers(self, channel: int, target: Any, payload: bytes, count: int = 1, state: Any = None) -> bytes:
        """Transfers on the link to a target, which is made if it is not there; those of a transaction are settled."""
        key = channel, str(target.address) if isinstance(target, Target) else ""
        if key not in self._links:
            self._links[key] = 900_000 + len(self._links)
            self.say(frame_of(attach(self._links[key], target=target), channel))
            self.until(self.ATTACH)
        blank = b"\xff" * 4
        transfer = Transfer(
            handle=self._links[key], delivery_id=2**32 - 1, delivery_tag=blank, message_format=0,
            settled=state is not None, state=state,
        )  # fmt: skip
        frame = frame_of(transfer, channel, payload)
        first = self._ids[channel]
        self._ids[channel] += count
        return b"".join(frame.replace(blank, number.to_bytes(4), 2) for number in range(first, first + count))

    def _coordinate(self, channel: int, verb: Any) -> bytes:
        return self._transfers(channel, Coordinator(), b"\0\x53\x77" + frame_of(verb)[8:])

    def _state(self, outcome: Any = None) -> Any:
        if not self.transacted:
            return outcome
        if not self._transaction:
            declared = b"\0\x53\x33\xc0"
            self.say(self._coordinate(self._REQUESTS, Declare()))
            self._transaction = self.until(declared).partition(declared)[2][4:12]
        return TransactionalState(txn_id=self._transaction, outcome=outcome)

    def subscribe(
        self, address: str, count: int = 1, *, settles: bool = False, qty: str = "", credit: int = 2**31 - 1
    ) -> None:
        frames = []
        for number in range(1, count + 1):
            chosen = selected(qty.format(n=number)) if qty else None
            source = Source(address=address, filter=chosen)
            frames.append(frame_of(attach(number, source=source, settled=not settles)))
            if credit:
                flow = Flow(
                    next_incoming_id=0, incoming_window=2**31 - 1, next_outgoing_id=0, outgoing_window=1,
                    handle=number, delivery_count=0, link_credit=credit,
                )  # fmt: skip
                frames.append(frame_of(flow))
        self.flood(b"".join(frames))

    def sends(self, address: str, count: int = 1, *, persistent: bool = True) -> bytes:
        payload = (self._DURABLE if persistent else b"") + self._MESSAGE
        return self._transfers(self._MESSAGES, Target(address=address), payload, count, self._state())

    def commit(self) -> bytes:
        discharge = Discharge(txn_id=self._transaction, fail=False)
        self._transaction = b""
        return self._coordinate(self._DISCHARGES, discharge)

    def settle(self, count: int) -> bytes:
        state = self._state(Accepted())
        return frame_of(Disposition(role=True, first=0, last=count - 1, settled=False, state=state))

    def end(self) -> bytes:
        return frame_of(End())

    def request(self, number: int) -> tuple[bytes, bytes]:
        frame = attach(number, target=None)  # refused: a link by which a client sends needs a target
        return frame_of(frame, self._REQUESTS), f"!{number}!".encode()


def attach(handle: int, *, source: Source | None = None, target: Any = None, settled: bool = False) -> Attach:
    """A link; the client receives on it if it has a source."""
    return Attach(
        name=f"!{handle}!", handle=handle, role=source is not None, source=source or Source(),
        target=Target() if source else target, snd_settle_mode=1 if settled else 0, initial_delivery_count=0,
    )  # fmt: skip


def selected(qty: str) -> Any:
    return {Symbol("jms-selector"): Described(ULong(0x0000468C00000004), f"qty {qty}")}


class Http(Door):
    """The management API: it has sends, and no consumers."""

    name = "http"
    nothing = b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n"

    def port_of(self, at: Place) -> int:
        return at.http_port

    def sign_in(self, namespace: str) -> None:
        self._namespace = namespace or "default"

    def sends(self, address: str, count: int = 1, *, persistent: bool = True) -> bytes:
        mode = "PERSISTENT" if persistent else "NON_PERSISTENT"
        body = json.dumps({"body": BODY.decode(), "properties": {"qty": QTY}, "delivery_mode": mode}).encode()
        path = f"/api/v1/namespaces/{self._namespace}/destinations/{address}/messages"
        return http("POST", path, body) * count

    def request(self, number: int) -> tuple[bytes, bytes]:
        return http("GET", f"/!{number}!"), b"!%d!" % number


def http(method: str, path: str, body: bytes = b"") -> bytes:
    head = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\n"
    if body:
        head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n"
    return f"{head}\r\n".encode() + body


#: Doors for messages in both directions.
DOORS: tuple[type[Door], ...] = (Sieve, Amqp, Stomp, WebSocket)
