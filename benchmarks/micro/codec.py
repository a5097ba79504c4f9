"""The codec: commands to bytes and back, beside what the msgpack package alone takes for the same bytes."""

from __future__ import annotations

import msgpack

from benchmarks.micro.timing import Row, compare
from benchmarks.workloads import body_of, properties_of
from sievemq_core.limits import MAX_FRAME_BYTES
from sievemq_core.message.envelope import Envelope, pack_properties, unpack_properties
from sievemq_core.wire.codec import delivery_head, pack
from sievemq_core.wire.commands import PROTOCOL_VERSION, Command
from sievemq_core.wire.connection import FrameReader, WireConnection, pack_frames

BATCH = 100


def envelope(size: int = 256) -> tuple[object, ...]:
    """The envelope of W1: three properties, a body of `size` bytes."""
    packed, types = pack_properties(properties_of("W1", 7))
    head = ("ID:0123456789abcdef:1000000", 1_763_700_000_000, 4, 1, 0, 0, None, None, None)
    return (*head, packed, types, 2, body_of(7, size))


def open_connection() -> WireConnection:
    """A broker's end of a connection whose handshake is done."""
    broker, client = WireConnection("broker"), WireConnection("client")
    client.send(Command.HELLO, PROTOCOL_VERSION, "", None, None, None, 0, "benchmark", None, {})
    broker.receive_data(client.data_to_send())
    broker.send(Command.WELCOME, PROTOCOL_VERSION, "SieveMQ", "1", "c", 0, {}, {})
    return broker


def run(seconds: float) -> list[Row]:
    """Every case, about `seconds` per stretch."""
    fields = envelope()
    command = (Command.SEND, 1, 1_000_000, "queue:orders", fields)
    packed = pack(command)
    payload = packed * BATCH
    held = Envelope(fields)
    commands = [packed] * BATCH
    frames = b"".join(pack_frames(commands))
    reader, broker = FrameReader(MAX_FRAME_BYTES), open_connection()
    bare = msgpack.Unpacker(use_list=False, max_buffer_size=MAX_FRAME_BYTES)
    bare_pack = msgpack.Packer().pack
    properties = properties_of("W1", 7)
    packed_properties = fields[9]

    def decode_bare() -> None:
        bare.feed(payload)
        list(bare)

    def frame_bare() -> None:
        len(payload).to_bytes(4, "big") + b"".join(commands)

    def deliver_bare() -> None:
        bare_pack((Command.DELIVER, 1, 1_000_000, 1, fields))

    def case(name: str, function: object, baseline: str, base: object, operations: int = 1) -> Row:
        return compare(name, function, baseline, base, operations, seconds)  # type: ignore[arg-type]

    return [
        case("pack SEND", lambda: pack(command), "msgpack", lambda: bare_pack(command)),
        case("receive SEND, form checked", lambda: broker.receive_data(frames), "msgpack", decode_bare, BATCH),
        case(
            "pack DELIVER around shared bytes",
            lambda: delivery_head(0x9550, 0xCE, 1, 0xCF, 1_000_000, 0xCE, 1) + held.packed,
            "msgpack",
            deliver_bare,
        ),
        case("frame 100 commands", lambda: pack_frames(commands), "join", frame_bare, BATCH),
        case("cut frames of 100 commands", lambda: reader.feed(frames), "slice", lambda: frames[4:], BATCH),
        case("make an Envelope", lambda: Envelope(fields), "msgpack", lambda: bare_pack(fields)),
        case("pack three properties", lambda: pack_properties(properties), "msgpack", lambda: bare_pack(properties)),
        case(
            "unpack three properties, checked",
            lambda: unpack_properties(fields),
            "msgpack",
            lambda: msgpack.unpackb(packed_properties),
        ),
    ]
