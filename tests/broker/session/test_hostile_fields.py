"""A field of a wrong type ends the connection that said it, with words that say which field and why; a number that is
only too large is answered. In either build: compiled code asks about types as well, and must not be who answers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from tests.core.wire.test_form import BAD, ENVELOPE, ENVELOPE_BAD, SPECS

from sievemq_core.errors import ErrorCode
from sievemq_core.wire.codec import pack
from sievemq_core.wire.commands import COMMANDS, Command, CommandSpec

from .harness import CLIENT, Client, World

KINDS = {
    "uint": "an unsigned integer", "bool": "a boolean", "str": "text", "map": "a map with text keys",
    "ids": "an array of unsigned integers",
}  # fmt: skip
#: What a command has in good form, by field or else by kind: all of it belongs to something that is there.
FIELDS: dict[str, Any] = {
    "request": 900, "session": 1, "consumer": 2, "sequence": 1, "envelope": ENVELOPE, "destination": "queue:q",
    "uint": 0, "bool": False, "str": "s", "map": {}, "ids": (), "any": None,
}  # fmt: skip
SAID = [spec for spec in SPECS if spec.sender != "broker" and spec.number != Command.HELLO]
#: At the edges of what 32 and 64 bits hold, and of what the protocol takes.
LARGE = [2**31, 2**32 - 1, 2**32, 2**53 + 1, 2**62, 2**62 + 1, 2**63 - 1, 2**63, 2**64 - 1]


def said(spec: CommandSpec, at: int, value: object) -> list[Any]:
    """The command with this in one of its fields."""
    fields = [None if f.kind.endswith("?") else FIELDS.get(f.name, FIELDS.get(f.kind)) for f in spec.fields]
    fields[at] = value
    return [spec.number, *fields]


def fields_of(kind: str) -> Iterator[Any]:
    for spec in SAID:
        for at, field in enumerate(spec.fields):
            if field.kind.removesuffix("?") == kind:
                yield pytest.param(spec, at, id=f"{spec.name}.{field.name}")


def wrong() -> Iterator[Any]:
    for kind in KINDS:
        for param in fields_of(kind):
            spec, at = param.values
            for value in BAD[kind]:
                if value == {1: 2}:  # the decoder refuses it already
                    continue
                if value is not None or not spec.fields[at].kind.endswith("?"):
                    yield pytest.param(spec, at, value, id=f"{param.id}={value!r:.25}")


def opened(world: World) -> Client:
    client = world.client()
    assert client.consumer(client.session(CLIENT)).id == 2
    return client


def say(client: Client, *commands: list[Any]) -> None:
    payload = b"".join(pack(tuple(command)) for command in commands)
    client.raw(len(payload).to_bytes(4, "big") + payload)


def check_the_end(client: Client, text: str) -> None:
    assert client.fatal == (Command.ERROR, 0, int(ErrorCode.MALFORMED_FRAME), text, {})
    assert not client.transport_open
    assert client.world.services.reports == []
    assert client.world.client().ask(Command.PING)


@pytest.mark.parametrize(("spec", "at", "value"), [*wrong()])
def test_a_wrong_type_is_named(spec: CommandSpec, at: int, value: object) -> None:
    client = opened(World())
    say(client, said(spec, at, value))
    field = spec.fields[at]
    wanted = KINDS[field.kind.removesuffix("?")] + (" or nil" if field.kind.endswith("?") else "")
    check_the_end(client, f"{spec.name}.{field.name} must be {wanted}, not {value!a}")


ENVELOPE_NAMES = [
    "message_id", "timestamp", "priority", "delivery_mode", "expiration", "delivery_time", "correlation_id", "reply_to",
    "type", "properties", "property_types", "body_kind", "body",
]  # fmt: skip


@pytest.mark.parametrize(("at", "value"), ENVELOPE_BAD)
@pytest.mark.parametrize("before", [0, 1, 3])  # alone; and behind others, where the types of the last one are known
def test_a_wrong_type_in_an_envelope_is_named(at: int, value: object, before: int) -> None:
    client = opened(World())
    fields = (*ENVELOPE[:at], value, *ENVELOPE[at + 1 :])
    good = [said(COMMANDS[Command.SEND], 1, 1 + sequence) for sequence in range(before)]
    say(client, *good, [Command.SEND, 1, 1 + before, "queue:q", fields])
    must = "must not be"
    if type(value) is int:
        must = {2: "must be 0 to 9, not", 3: "must be 1 or 2, not"}.get(at, must)
    check_the_end(client, f"an envelope's {ENVELOPE_NAMES[at]} {must} {value!a}")


@pytest.mark.parametrize("length", [0, 1, 12])
def test_too_short_an_envelope_is_shown(length: int) -> None:
    client = opened(World())
    fields = ENVELOPE[:length]
    say(client, [Command.SEND, 1, 1, "queue:q", fields])
    shown = ascii(fields) if len(ascii(fields)) <= 60 else ascii(fields)[:57] + "…"
    check_the_end(client, f"an envelope has 13 fields, unlike {shown}")


@pytest.mark.parametrize(("spec", "at"), [*fields_of("uint"), *fields_of("ids")])
def test_a_number_that_is_too_large_is_no_fault_of_the_broker(spec: CommandSpec, at: int) -> None:
    for number in LARGE:
        for value in [number] if spec.fields[at].kind == "uint" else [(number,), (number, 0), (2, number)]:
            world = World()
            client = opened(world)
            say(client, said(spec, at, value), [Command.PING, 901])
            world.later(1)
            assert world.services.reports == []
            if client.fatal is None:
                assert client.answer_to(901)[:2] == (Command.OK, 901)
            else:
                assert client.fatal[2] != ErrorCode.INTERNAL
            assert world.client().ask(Command.PING)


@pytest.mark.parametrize("value", LARGE)
@pytest.mark.parametrize("at", [1, 4, 5, 11])
def test_a_number_in_an_envelope_has_64_bits(at: int, value: int) -> None:
    world = World()
    client = opened(world)
    fields = (*ENVELOPE[:at], value, *ENVELOPE[at + 1 :])
    say(client, [Command.SEND, 1, 1, "queue:q", fields])
    world.settle()
    assert world.services.reports == []
    assert client.fatal is None
    if at == 11:
        assert client.take(Command.SEND_FAILED) == [
            (Command.SEND_FAILED, 1, 1, ErrorCode.MESSAGE_FORMAT, f"body kind {value} is unknown")
        ]
    else:
        assert client.take(Command.CONFIRM) == [(Command.CONFIRM, 1, 1)]
