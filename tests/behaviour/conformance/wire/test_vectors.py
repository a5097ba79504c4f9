"""The vectors, in both directions: bytes to commands and commands to bytes; properties; bodies; broken bytes."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import msgpack
import pytest

from sievemq.destinations import Queue
from sievemq.exceptions import MessageEOFException
from sievemq.messages import BytesMessage, MapMessage, Message, ObjectMessage, StreamMessage, TextMessage, received
from sievemq_broker.domain.broker import Broker
from sievemq_broker.protocols.sieve import SieveConnection
from sievemq_broker.session import Identity, Peer, Services
from sievemq_core.errors import ErrorCode
from sievemq_core.message.envelope import pack_properties, unpack_properties
from sievemq_core.message.values import Byte, Char, Float, Long, Short
from sievemq_core.wire.codec import Decoder, pack
from sievemq_core.wire.commands import COMMANDS, Command
from sievemq_core.wire.connection import FrameReader, State, WireConnection, pack_frames
from sievemq_core.wire.form import examine

from .make_vectors import FILES, render

HERE = Path(__file__).parent
TYPES = {"b": Byte, "h": Short, "l": Long, "f": Float, "c": Char}


def load(name: str) -> list[Any]:
    vectors: list[Any] = json.loads((HERE / name).read_text("utf-8"))
    return [pytest.param(vector, id=vector["name"]) for vector in vectors]


def value_of(shown: Any) -> Any:
    """A value from its JSON form."""
    if isinstance(shown, list):
        return tuple(value_of(item) for item in shown)
    if isinstance(shown, dict):
        if set(shown) == {"bytes"}:
            return bytes.fromhex(shown["bytes"])
        if set(shown) == {"int"}:
            return int(shown["int"])
        if set(shown) == {"float"}:
            return float(shown["float"])
        if set(shown) == {"t", "v"}:
            return TYPES[shown["t"]](value_of(shown["v"]))
        return {key: value_of(item) for key, item in shown.items()}
    return shown


def wire_in(state: State, role: Any) -> WireConnection:
    wire = WireConnection(role)
    wire._enter(state)
    return wire


FRAMES = [(vector, "client") for vector in load("client.json")] + [(vector, "broker") for vector in load("broker.json")]


@pytest.mark.parametrize(
    ("vector", "speaker"),
    [pytest.param(param.values[0], who, id=f"{who}: {param.id}") for param, who in FRAMES],
)
def test_frames(vector: dict[str, Any], speaker: str) -> None:
    data = bytes.fromhex(vector["hex"])
    commands = [tuple(value_of(command)) for command in vector["commands"]]
    # hearing it
    listener = wire_in(State(vector["state"]), "broker" if speaker == "client" else "client")
    heard = [examine(command) for command in commands]  # with the fields that may be left out
    assert listener.receive_data(data) == heard
    # saying it
    said = b"".join(pack_frames([pack(command) for command in commands]))
    assert (said == data) is (vector["form"] == "shortest")
    again = wire_in(State(vector["state"]), "broker" if speaker == "client" else "client")
    assert again.receive_data(said) == heard
    # saying it through the state machine
    speaking = wire_in(State(vector["state"]), speaker)
    for command in commands:
        speaking.send(*command)
    assert speaking.data_to_send() == said


@pytest.mark.parametrize(("name", "speaker"), [("client.json", "client"), ("broker.json", "broker")])
def test_every_command_has_a_vector(name: str, speaker: str) -> None:
    shown = {command[0] for param in load(name) for command in param.values[0]["commands"]}
    assert shown == {number for number, spec in COMMANDS.items() if spec.sender in (speaker, "both")}


def same(a: Any, b: Any) -> bool:
    return (type(a), a) == (type(b), b) or (isinstance(a, float) and math.isnan(a) and math.isnan(b))


@pytest.mark.parametrize("vector", load("properties.json"))
def test_properties(vector: dict[str, Any]) -> None:
    packed = None if vector["hex"] is None else bytes.fromhex(vector["hex"])
    properties = {name: value_of(shown) for name, shown in vector["properties"].items()}
    fields = (None, 0, 4, 2, 0, 0, None, None, None, packed, vector["letters"], 0, None)
    read = unpack_properties(fields)
    assert list(read) == list(properties)
    assert all(same(read[name], value) for name, value in properties.items())
    assert pack_properties(properties) == (packed, vector["letters"])


@pytest.mark.parametrize("vector", load("bodies.json"))
def test_bodies_on_the_wire(vector: dict[str, Any]) -> None:
    """Without the message classes, as another language would read it."""
    data = None if vector["hex"] is None else bytes.fromhex(vector["hex"])
    value = value_of(vector["value"])
    if data is None:
        assert value is None
    elif vector["kind"] == 1:
        assert data.decode() == value
    elif vector["kind"] == 2:
        assert data == value
    elif vector["kind"] in (3, 4):
        letters, content = msgpack.unpackb(data, use_list=False)
        assert content == value
        if letters is not None:
            values = value.values() if isinstance(value, dict) else value
            kinds = [next((k for k, t in TYPES.items() if type(v) is t), "s") for v in values]
            assert "".join(kinds) == letters
    else:
        assert msgpack.unpackb(data, use_list=False) == value


@pytest.mark.parametrize("vector", load("bodies.json"))
def test_bodies_as_messages(vector: dict[str, Any]) -> None:
    data = None if vector["hex"] is None else bytes.fromhex(vector["hex"])
    value = value_of(vector["value"])
    fields = (None, 0, 4, 2, 0, 0, None, None, None, None, None, vector["kind"], data)
    message = received(fields, Queue("q"), 1, None)
    kinds: tuple[type[Message], ...] = (
        Message, TextMessage, BytesMessage, MapMessage, StreamMessage, ObjectMessage,
    )  # fmt: skip
    assert type(message) is kinds[vector["kind"]]
    if isinstance(message, StreamMessage):
        assert [message.read_object() for _ in value] == list(value)
        with pytest.raises(MessageEOFException):
            message.read_object()
    elif type(message) is not Message:
        assert message.get_body(object) == (b"" if value is None and type(message) is BytesMessage else value)
    written = kinds[vector["kind"]](*([] if value is None else [value]))
    assert written._encode_body() == data


class Rim(Services[Peer]):
    def connection_id(self) -> str:
        return "c1"

    def authenticate(self, peer: Peer, user: str | None, password: str | None, later: object) -> Identity:
        return Identity(user)

    def now(self) -> int:
        return 0

    def report(self, peer: Peer, doing: str, error: BaseException) -> None:
        raise AssertionError(doing) from error


@pytest.mark.parametrize("vector", load("broken.json"))
@pytest.mark.parametrize("size", [1, 1000])
def test_broken(vector: dict[str, Any], size: int) -> None:
    connection = SieveConnection(Broker(), Rim(), address="vector")
    connection.receive_data(b"".join(pack_frames([pack((1, 1, "", None, None, None, 0, "", None, {}))])), 0)
    connection.data_to_send()
    data = bytes.fromhex(vector["hex"]) + b"x" * vector.get("fill", 0)
    for start in range(0, len(data), size):
        connection.receive_data(data[start : start + size], 0)
    assert connection.closing
    [*_, last] = Decoder(100_000).decode(b"".join(FrameReader(100_000).feed(connection.data_to_send())))
    assert last[:3] == (Command.ERROR, 0, vector["code"])
    assert ErrorCode(vector["code"]).fatal


@pytest.mark.parametrize("name", FILES)
def test_the_script_writes_the_same_files(name: str) -> None:
    assert (HERE / name).read_text("utf-8") == render(FILES[name])
