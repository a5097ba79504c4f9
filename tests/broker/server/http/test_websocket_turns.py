"""WebSocket frames are decoded in the time that the turn of the loop grants. Turn, link and socket are recordings."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any, cast

import pytest
from wsproto.connection import Connection, ConnectionType
from wsproto.events import BytesMessage, Event, Ping, Pong, TextMessage

from sievemq_broker.server.http.websocket import WebSocket

EMPTY = Pong()


class FakeTurn:
    """Grants the time for so many frames at a time, and for so many connections a turn."""

    def __init__(self, frames: int, connections: int = 1) -> None:
        self.frames, self.connections = frames, connections
        self.granted = self.decoded = 0
        self.late: deque[tuple[WebSocket, bool]] = deque()

    def grant(self) -> bool:
        self.granted += 1
        self.decoded = 0
        return self.granted <= self.connections

    def spent(self) -> bool:
        self.decoded += 1
        return self.decoded >= self.frames

    def put_off(self, link: WebSocket, *, brief: bool) -> None:
        self.late.append((link, brief))

    def next(self) -> None:
        """The next turn."""
        self.granted = 0
        for _ in range(min(len(self.late), self.connections)):
            self.grant()
            self.late.popleft()[0].catch_up()


class FakeLink:
    def __init__(self) -> None:
        self.calls: list[str] = []
        self.data = b""

    def __getattr__(self, name: str) -> Any:
        return lambda *_: self.calls.append(name)

    def data_received(self, data: bytes) -> None:
        self.data += data


class FakeSocket(asyncio.Transport):
    def __init__(self) -> None:
        super().__init__()
        self.reading = True
        self.sent = b""

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        pass

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.sent += bytes(data)

    def is_closing(self) -> bool:
        return False

    def close(self) -> None:
        self.reading = False

    def get_write_buffer_size(self) -> int:
        return len(self.sent)

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True


class Rig:
    def __init__(self, turn: FakeTurn) -> None:
        self.client = Connection(ConnectionType.CLIENT)
        self.link, self.socket = FakeLink(), FakeSocket()
        frames = Connection(ConnectionType.SERVER)
        self.websocket = WebSocket(
            self.socket, cast("Any", frames), cast("Any", self.link), cast("Any", turn), lambda: 0
        )
        self.websocket.begin(b"")

    def receive(self, *events: BytesMessage | Ping | Pong) -> None:
        self.websocket.data_received(b"".join([self.client.send(event) for event in events]))


def text(number: int) -> BytesMessage:
    return BytesMessage(data=b"%d," % number)


def test_a_read_is_decoded_as_far_as_there_is_time() -> None:
    turn = FakeTurn(frames=10)
    rig = Rig(turn)
    rig.receive(*[text(number) for number in range(25)])
    assert rig.link.data == b"".join(b"%d," % number for number in range(10))
    assert not rig.socket.reading
    turn.next()
    turn.next()
    assert rig.link.data == b"".join(b"%d," % number for number in range(25))
    assert rig.socket.reading
    assert not turn.late


def test_empty_frames_of_many_connections_have_the_time_of_one_turn() -> None:
    turn = FakeTurn(frames=20, connections=3)
    rigs = [Rig(turn) for _ in range(20)]
    for rig in rigs:
        rig.receive(*[EMPTY] * 9, text(1))
    assert sum(bool(rig.link.data) for rig in rigs) == 3
    assert sum(not rig.socket.reading for rig in rigs) == 17
    turns = 0
    while turn.late:
        turn.next()
        turns += 1
    assert turns == 6
    assert all(rig.link.data and rig.socket.reading for rig in rigs)


def test_a_read_without_time_left_waits_and_says_whether_it_is_brief() -> None:
    turn = FakeTurn(frames=1_000, connections=0)
    brief, long = Rig(turn), Rig(turn)
    brief.receive(text(1))
    long.receive(*[EMPTY] * 1_000)
    assert [(link, short) for link, short in turn.late] == [(brief.websocket, True), (long.websocket, False)]
    assert brief.link.data == b""
    turn.connections = 2
    turn.next()
    assert brief.link.data == b"1,"


def test_a_few_frames_left_are_brief() -> None:
    turn = FakeTurn(frames=2)
    rig = Rig(turn)
    rig.receive(*[text(number) for number in range(5)])
    assert [brief for _, brief in turn.late] == [True]
    turn.next()
    turn.next()
    assert rig.socket.reading
    rig.receive(*[EMPTY] * 1_000)
    assert [brief for _, brief in turn.late] == [False]


def test_bytes_that_arrive_behind_late_ones_are_decoded_after_them() -> None:
    turn = FakeTurn(frames=2)
    rig = Rig(turn)
    rig.receive(text(1), text(2), text(3))
    rig.receive(text(4))
    assert len(turn.late) == 1
    while turn.late:
        turn.next()
    assert rig.link.data == b"1,2,3,4,"


def test_nothing_is_decoded_while_the_link_wants_nothing() -> None:
    turn = FakeTurn(frames=2)
    rig = Rig(turn)
    rig.receive(text(1), text(2), text(3))
    rig.websocket.pause_reading()
    turn.next()
    assert rig.link.data == b"1,2,"
    rig.websocket.resume_reading()
    assert not rig.socket.reading
    turn.next()
    assert rig.link.data == b"1,2,3,"
    assert rig.socket.reading


def test_nothing_is_decoded_once_the_socket_is_gone() -> None:
    turn = FakeTurn(frames=2)
    rig = Rig(turn)
    rig.receive(text(1), text(2), text(3))
    rig.websocket.connection_lost(None)
    turn.next()
    rig.receive(text(4))
    assert rig.link.data == b"1,2,"
    assert rig.link.calls[-1] == "connection_lost"


@pytest.mark.parametrize("size", [11, 125, 126, 65_535, 65_536])
@pytest.mark.parametrize(
    ("letter", "kind"), [(b"x", TextMessage), ("ö".encode(), TextMessage), (b"\xff", BytesMessage)]
)
def test_a_stomp_frame_of_any_size_is_a_message(size: int, letter: bytes, kind: type[Event]) -> None:
    rig = Rig(FakeTurn(frames=1))
    frame = b"A\nn:%b%b\n\n\0\n" % (letter, b"x" * (size - 8 - len(letter)))
    assert len(frame) == size
    rig.websocket.write(frame + b"\n" + frame)
    rig.client.receive_data(rig.socket.sent)
    messages = [
        (type(event), event.data) for event in rig.client.events() if isinstance(event, (TextMessage, BytesMessage))
    ]
    content = frame.decode() if kind is TextMessage else frame
    assert messages == [(kind, content), (TextMessage, "\n"), (kind, content)]
