"""Whatever bytes come: commands in form, or a ProtocolError and a closed connection. Nothing else gets out."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from sievemq_core.errors import ProtocolError
from sievemq_core.wire.codec import Decoder, pack
from sievemq_core.wire.commands import COMMANDS, Command
from sievemq_core.wire.connection import FrameReader, State, WireConnection, pack_frames
from sievemq_core.wire.form import examine

text = st.text(max_size=20)
uint = st.integers(0, 2**63 - 1)
plain = st.one_of(st.none(), st.booleans(), st.integers(-(2**63), 2**64 - 1), text, st.binary(max_size=20))
envelopes = st.tuples(
    st.none() | text, uint, st.integers(0, 9), st.sampled_from([1, 2]), uint, uint,
    st.none() | text | st.binary(max_size=9), st.none() | text, st.none() | text, st.none() | st.binary(max_size=30),
    st.none() | text, st.integers(0, 5), st.none() | st.binary(max_size=50),
)  # fmt: skip
KINDS: dict[str, st.SearchStrategy[Any]] = {
    "uint": uint,
    "bool": st.booleans(),
    "str": text,
    "bytes": st.binary(max_size=20),
    "map": st.dictionaries(text, plain, max_size=3),
    "ids": st.lists(uint, max_size=5).map(tuple),
    "envelope": envelopes,
    "envelopes": st.lists(envelopes, min_size=1, max_size=4).map(tuple),
    "any": plain,
}


@st.composite
def commands(draw: st.DrawFn, sender: str | None = None) -> tuple[Any, ...]:
    among = [s for s in COMMANDS.values() if sender is None or s.sender in (sender, "both")]
    spec = draw(st.sampled_from(among))
    fields = []
    for field in spec.fields:
        strategy = KINDS[field.kind.removesuffix("?")]
        fields.append(draw(st.none() | strategy if field.kind.endswith("?") else strategy))
    return (spec.number, *fields)


def open_connection(role: Any) -> WireConnection:
    wire = WireConnection(role, max_frame=1 << 20)
    wire._enter(State.OPEN)
    wire._frames.max_frame = 1 << 20
    return wire


def feed(wire: WireConnection, pieces: list[bytes]) -> list[tuple[Any, ...]] | None:
    """The commands, or None if the connection was ended by a ProtocolError."""
    got: list[tuple[Any, ...]] = []
    for piece in pieces:
        try:
            got += wire.receive_data(piece)
        except ProtocolError as broken:
            error = broken
            break
    else:
        return got
    assert wire.state is State.CLOSED
    assert error.code.fatal
    assert len(error.text) < 500
    return None


def cut(data: bytes, at: list[int]) -> list[bytes]:
    points = sorted({min(point, len(data)) for point in at} | {0, len(data)})
    return [data[a:b] for a, b in pairwise(points)]


cuts = st.lists(st.integers(0, 400), max_size=6)


@given(st.lists(commands(), max_size=6), cuts)
@settings(max_examples=150)
def test_frames_round_trip_at_every_split(said: list[tuple[Any, ...]], at: list[int]) -> None:
    data = b"".join(pack_frames([pack(command) for command in said], gather=100))
    reader, decoder = FrameReader(1 << 20), Decoder(1 << 20)
    got = [c for piece in cut(data, at) for payload in reader.feed(piece) for c in decoder.decode(payload)]
    assert got == said
    assert reader.unfinished == 0


@given(st.lists(commands("client"), max_size=5), cuts)
@settings(max_examples=150)
def test_each_end_decodes_the_others_output(said: list[tuple[Any, ...]], at: list[int]) -> None:
    said = [c for c in said if c[0] not in (Command.HELLO, Command.GOODBYE)]
    client, broker = open_connection("client"), open_connection("broker")
    for command in said:
        client.send(*command)
    assert feed(broker, cut(client.data_to_send(), at)) == said


@given(st.binary(max_size=200), cuts, st.sampled_from(["client", "broker"]), st.sampled_from(list(State)))
@settings(max_examples=300)
@example(b"\x00\x00\x00\x01\xc1", [], "broker", State.OPEN)
@example(b"\x00\x00\x00\x00", [], "client", State.HELLO)
def test_random_bytes(data: bytes, at: list[int], role: str, state: State) -> None:
    wire = open_connection(role)
    wire._enter(state)
    feed(wire, cut(data, at))


@given(st.binary(max_size=300))
@settings(max_examples=300)
def test_random_payloads(payload: bytes) -> None:
    got = feed(open_connection("broker"), [len(payload).to_bytes(4, "big") + payload])
    for command in got or ():
        assert examine(command) == command


@given(
    st.lists(commands("client"), min_size=1, max_size=4),
    st.lists(st.tuples(st.integers(4, 300), st.integers(0, 255)), min_size=1, max_size=4),
)
@settings(max_examples=400)
def test_mutated_frames(said: list[tuple[Any, ...]], mutations: list[tuple[int, int]]) -> None:
    data = bytearray(b"".join(pack_frames([pack(command) for command in said])))
    for position, value in mutations:
        if position < len(data):
            data[position] = value
    got = feed(open_connection("broker"), [bytes(data)])
    for command in got or ():
        assert examine(command) == command
        assert COMMANDS[command[0]].sender in ("client", "both")


@given(st.lists(commands("client"), min_size=1, max_size=3), st.data())
@settings(max_examples=150)
def test_truncated_payloads(said: list[tuple[Any, ...]], data: st.DataObject) -> None:
    payload = b"".join(map(pack, said))
    payload = payload[: data.draw(st.integers(1, len(payload) - 1))] if len(payload) > 1 else payload
    whole = {len(b"".join(map(pack, said[:n]))) for n in range(len(said) + 1)}
    got = feed(open_connection("broker"), [len(payload).to_bytes(4, "big") + payload])
    if len(payload) not in whole:
        assert got is None


@given(st.integers(0, 2**32 - 1), st.binary(max_size=10))
def test_frame_lengths(length: int, behind: bytes) -> None:
    wire = WireConnection("broker", max_frame=1000)
    got = feed(wire, [length.to_bytes(4, "big") + behind])
    if length == 0 or length > 1000:
        assert got is None
