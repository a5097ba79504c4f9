"""Bytes at either end of a connection: commands in form, or a ProtocolError and a closed connection."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from tests.hostile.fuzz.targets.vectors import frames

from sievemq_core.errors import ProtocolError
from sievemq_core.wire.codec import pack
from sievemq_core.wire.commands import COMMANDS, Command
from sievemq_core.wire.connection import State, WireConnection, pack_frames
from sievemq_core.wire.form import examine

STATES = list(State)

#: What is small, or legal in form, and would cost the receiver much.
BOMBS = (
    b"\xdc\x3f\xff" * 300,
    b"\x93\x04\x01" + b"\xdd\0\0\x3f\xff" * 300,
    b"\x93\x04\x01" + b"\x91" * 1_000 + b"\xc0",
    b"\x92\x04" + b"\x91" * 1_000 + b"\xc0",
    b"\x80" * 1_000,
    b"\x91\0" * 1_000,
    b"\x93\x04\x01\xdc\3\xe8" + b"\x80" * 1_000,
)


def seeds() -> Iterator[bytes]:
    for role, name in ((0, "client"), (1, "broker")):
        for frame in frames(name):
            yield bytes([role | 2 * STATES.index(State.OPEN)]) + frame
    for frame in frames("broken"):
        yield b"\0" + frame
    for state in (State.HELLO, State.OPEN):
        for role in (0, 1):
            for bomb in BOMBS:
                yield bytes([role | 2 * STATES.index(state)]) + len(bomb).to_bytes(4, "big") + bomb


def run(data: bytes) -> None:
    """The first byte says which end in which state, and whether the rest comes in pieces."""
    if not data:
        return
    how, stream = data[0], data[1:]
    wire = WireConnection("client" if how & 1 else "broker", max_frame=1 << 16)
    wire._enter(STATES[(how >> 1) % len(STATES)])
    wire._frames.max_frame = 1 << 16
    step = 1 + (how >> 5) * 7 if how & 16 else max(1, len(stream))
    cuts = [*range(0, len(stream), step), len(stream)]
    for start, end in pairwise(cuts):
        try:
            heard = wire.receive_data(stream[start:end])
        except ProtocolError as error:
            assert wire.state is State.CLOSED
            assert error.code.fatal
            assert len(error.text) < 500
            return
        for command in heard:
            assert COMMANDS[command[0]].sender in ("both", "broker" if how & 1 else "client")
            if how & 1 and command[0] in (Command.DELIVER, Command.DELIVER_SEVERAL):
                continue  # what is in an envelope the broker has checked: a client takes that on trust
            assert examine(command) == command
            if wire.state is State.OPEN and command[0] not in (Command.HELLO, Command.WELCOME):
                again = WireConnection("client" if how & 1 else "broker", max_frame=1 << 16)
                again._enter(State.OPEN)
                again._frames.max_frame = 1 << 16
                assert again.receive_data(b"".join(pack_frames([pack(command)]))) == [command]
