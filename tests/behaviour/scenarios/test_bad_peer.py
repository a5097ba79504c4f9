"""A peer that breaks the protocol gets the reason and is cut off; others go on, and nothing accepted is lost."""

from __future__ import annotations

import socket
from types import TracebackType
from typing import Any, Self

import pytest

from sievemq import JMSConsumer, JMSContext
from sievemq_broker import EmbeddedBroker
from sievemq_core.errors import ErrorCode
from sievemq_core.limits import MAX_FRAME_BYTES
from sievemq_core.wire.codec import CommandTuple, Decoder, pack
from sievemq_core.wire.commands import PROTOCOL_VERSION, Command
from sievemq_core.wire.connection import FrameReader

HELLO = (Command.HELLO, PROTOCOL_VERSION, "", None, None, None, 0, "raw peer", None, {})


def frame(*commands: tuple[Any, ...]) -> bytes:
    """One frame with these commands, whatever they are."""
    payload = b"".join(pack(command) for command in commands)
    return len(payload).to_bytes(4, "big") + payload


class RawPeer:
    """A socket to a broker, and a decoder for what comes back."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=60)
        self._frames, self._decoder = FrameReader(MAX_FRAME_BYTES), Decoder(MAX_FRAME_BYTES)
        self._commands: list[CommandTuple] = []
        self.ended = False

    def say(self, data: bytes) -> None:
        """Write bytes as they are."""
        self._socket.sendall(data)

    def half_close(self) -> None:
        """Say that nothing more will come."""
        self._socket.shutdown(socket.SHUT_WR)

    def hear(self, number: int) -> CommandTuple:
        """The next command with this number; others before it are skipped."""
        while True:
            while self._commands:
                command = self._commands.pop(0)
                if command[0] == number:
                    return command
            assert not self.ended, f"the connection ended before command {number} came"
            self._read()

    def hear_end(self) -> None:
        """Wait until the broker has ended the connection."""
        while not self.ended:
            self._read()

    def _read(self) -> None:
        try:
            data = self._socket.recv(65536)
        except ConnectionResetError:  # it closed while bytes of ours were unread
            data = b""
        self.ended = not data
        for payload in self._frames.feed(data):
            self._commands += self._decoder.decode(payload)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._socket.close()


ENVELOPE = ("ID:raw:1", 0, 4, 1, 0, 0, None, None, None, None, None, 1, b"accepted")
SEND = (Command.SEND, 1, 1, "queue:orders", ENVELOPE)
OPEN_SESSION = (Command.OPEN_SESSION, 1, 1, 1)

# Sent after the handshake.
OPEN_CASES = {
    "not msgpack": (b"\x00\x00\x00\x04\xc1\xc1\xc1\xc1", ErrorCode.MALFORMED_FRAME, "msgpack"),
    "a frame of length zero": (bytes(4), ErrorCode.MALFORMED_FRAME, "zero"),
    "an oversized frame": (b"\xff\xff\xff\xff", ErrorCode.FRAME_TOO_LARGE, "4294967295 bytes"),
    "a frame that ends inside a command": (b"\x00\x00\x00\x02\x93\x01", ErrorCode.MALFORMED_FRAME, "inside a command"),
    "not a command": (b"\x00\x00\x00\x01\x07", ErrorCode.MALFORMED_FRAME, "array"),
    "an unknown command": (frame((999,)), ErrorCode.UNKNOWN_COMMAND, "999"),
    "a missing field": (frame((Command.PING,)), ErrorCode.MALFORMED_FRAME, "request"),
    "a field of the wrong type": (frame((Command.PING, "one")), ErrorCode.MALFORMED_FRAME, "request"),
    "an envelope of the wrong form": (
        frame((Command.SEND, 1, 1, "queue:orders", ("ID:raw:1", 0))), ErrorCode.MALFORMED_FRAME, "envelope"
    ),
    "a command of the other side": (frame((Command.CONFIRM, 1, 1)), ErrorCode.UNEXPECTED_COMMAND, "CONFIRM"),
    "a second HELLO": (frame(HELLO), ErrorCode.UNEXPECTED_COMMAND, "HELLO"),
}  # fmt: skip

# Sent in place of the handshake.
FIRST_CASES = {
    "another protocol": (b"GET / HTTP/1.1\r\n\r\n", ErrorCode.FRAME_TOO_LARGE, "bytes"),
    "a command before HELLO": (frame(OPEN_SESSION), ErrorCode.UNEXPECTED_COMMAND, "OPEN_SESSION"),
    "a protocol version from before the first": (
        frame((Command.HELLO, 0, *HELLO[2:])), ErrorCode.UNSUPPORTED_VERSION, str(PROTOCOL_VERSION)
    ),
}  # fmt: skip


@pytest.mark.parametrize(("data", "code", "text"), FIRST_CASES.values(), ids=FIRST_CASES)
def test_a_bad_beginning_is_answered_and_ended(
    broker: EmbeddedBroker, context: JMSContext, data: bytes, code: ErrorCode, text: str
) -> None:
    consumer = context.create_consumer(context.create_queue("orders"))
    with RawPeer(broker.port) as peer:
        peer.say(data)
        error = peer.hear(Command.ERROR)
        assert (error[1], error[2]) == (0, code)
        assert text in error[3]
        peer.hear_end()
    assert_works(context, consumer)


@pytest.mark.parametrize(("data", "code", "text"), OPEN_CASES.values(), ids=OPEN_CASES)
def test_bad_bytes_end_only_their_connection_and_lose_no_message(
    broker: EmbeddedBroker, context: JMSContext, data: bytes, code: ErrorCode, text: str
) -> None:
    with RawPeer(broker.port) as peer:
        peer.say(frame(HELLO))
        peer.hear(Command.WELCOME)
        peer.say(frame(OPEN_SESSION, SEND))
        assert peer.hear(Command.CONFIRM)[1:] == (1, 1)
        peer.say(data)
        error = peer.hear(Command.ERROR)
        assert (error[1], error[2]) == (0, code)
        assert text in error[3]
        peer.hear_end()
    consumer = context.create_consumer(context.create_queue("orders"))
    message = consumer.receive(60_000)
    assert message is not None
    assert message.get_body(str) == "accepted"
    assert not message.get_jms_redelivered()
    assert_works(context, consumer)


def test_a_truncated_frame_is_not_carried_out(broker: EmbeddedBroker, context: JMSContext) -> None:
    whole = frame((Command.SEND, 1, 2, "queue:orders", ENVELOPE))
    with RawPeer(broker.port) as peer:
        peer.say(frame(HELLO))
        peer.hear(Command.WELCOME)
        peer.say(frame(OPEN_SESSION, SEND))
        peer.hear(Command.CONFIRM)
        peer.say(whole[:-1])
        peer.half_close()
        peer.hear_end()
    consumer = context.create_consumer(context.create_queue("orders"))
    assert consumer.receive_body(str, 60_000) == "accepted"
    assert consumer.receive_no_wait() is None
    assert_works(context, consumer)


def test_a_frame_byte_by_byte_is_a_frame(broker: EmbeddedBroker, context: JMSContext) -> None:
    with RawPeer(broker.port) as peer:
        for data, answer in ((frame(HELLO), Command.WELCOME), (frame(OPEN_SESSION, SEND), Command.CONFIRM)):
            for byte in data:
                peer.say(bytes([byte]))
            peer.hear(answer)
    assert context.create_consumer(context.create_queue("orders")).receive_body(str, 60_000) == "accepted"


def assert_works(context: JMSContext, consumer: JMSConsumer) -> None:
    """The neighbour's connection still sends and receives."""
    context.create_producer().send(context.create_queue("orders"), "still here")
    assert consumer.receive_body(str, 60_000) == "still here"
