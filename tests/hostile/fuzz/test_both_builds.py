"""Any commands, well-formed or not, to this build's broker and to the Python one's: the same bytes come back."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.hostile.fuzz.test_session import COMMANDS, NOW, OPENING, Rim, hello
from tests.twin import Twin

from sievemq_broker.domain.broker import Broker
from sievemq_broker.protocols.sieve import SieveConnection
from sievemq_core.wire.codec import pack
from sievemq_core.wire.commands import Command as Number
from sievemq_core.wire.connection import WireConnection, pack_frames

#: What stands where something else belongs.
WRONG = st.one_of(
    st.sampled_from([None, True, False, 0, 1, -1, 1.0, 2**63, 2**64 - 1, -(2**63), "", "x", b"", b"x"]),
    st.sampled_from([(), (1,), (1, 2, 3), (None,), ("x",), {}, {"a": 1}, {1: None}]),
)


@st.composite
def spoiled(draw: st.DrawFn) -> tuple[Any, ...]:
    """A command with one field that may be anything, or with one more or less."""
    fields = list(draw(st.one_of(COMMANDS)))
    place = draw(st.integers(1, len(fields)))
    if place == len(fields):
        fields = draw(st.sampled_from([fields[:-1], [*fields, None], fields[:1]])) or fields
    elif isinstance(fields[place], tuple) and fields[place] and draw(st.booleans()):
        inner = list(fields[place])
        inner[draw(st.integers(0, len(inner) - 1))] = draw(WRONG)
        fields[place] = tuple(inner)
    else:
        fields[place] = draw(WRONG)
    return tuple(fields)


def talk(said: list[tuple[Any, ...]], together: bool) -> list[str]:
    """What a connection is answered, what another one hears meanwhile, and what the broker finds wrong with itself."""
    rim, broker = Rim(), Broker()
    other, other_client = SieveConnection(broker, rim), WireConnection("client")
    hello(other, other_client)
    other.receive_data(b"".join(pack_frames([pack(each) for each in OPENING])), NOW)
    one, client = SieveConnection(broker, rim), WireConnection("client")
    hello(one, client)
    sequences: dict[object, int] = {}
    frames = [pack(each) for each in OPENING]
    for each in said:
        command = each
        if command[0] == Number.SEND and len(command) > 2:
            sequences[repr(command[1])] = sequences.get(repr(command[1]), 0) + 1
            command = (*command[:2], sequences[repr(command[1])], *command[3:])
        frames.append(pack(command))
    now, heard = NOW, []
    for data in pack_frames(frames) if together else [b"".join(pack_frames([frame])) for frame in frames]:
        one.receive_data(data, now)
        now += 1
        broker.work(now)
        broker.due(now)
        heard.append(repr((one.data_to_send(), other.data_to_send(), rim.faults)))
    broker.due(NOW + 10_000)
    while broker.work(NOW + 10_000):
        pass
    one.lost(NOW + 10_000)
    heard.append(repr((other.data_to_send(), rim.faults, sorted(rim.connections))))
    return heard


@pytest.fixture(scope="module")
def twin() -> Iterator[Twin]:
    twin = Twin(talk)
    yield twin
    twin.close()


@settings(max_examples=200)
@given(said=st.lists(st.one_of(*COMMANDS, *COMMANDS, spoiled()), min_size=1, max_size=15), together=st.booleans())
def test_they_are_answered_the_same(twin: Twin, said: list[tuple[Any, ...]], together: bool) -> None:
    twin.check(said, together)
