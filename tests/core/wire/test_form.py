"""The form of commands: what passes, what is refused, and that the quick check and the slow one always agree."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.cases import case

from sievemq_core.errors import ErrorCode, ProtocolError
from sievemq_core.message.envelope import ENVELOPE_FIELDS
from sievemq_core.wire.commands import COMMANDS, Command, CommandSpec
from sievemq_core.wire.form import FORMS, ROWS, TRUSTED_FORMS, check_envelope, check_headers, examine

ENVELOPE = ("ID:a:1", 1_700_000_000_000, 4, 2, 0, 0, None, None, None, None, None, 1, b"hi")
GOOD: dict[str, list[Any]] = {
    "uint": [0, 1, 2**63 - 1],
    "bool": [True, False],
    "str": ["", "text", "\ud800"],
    "bytes": [b"", b"x"],
    "map": [{}, {"a": 1}, {"a": {"b": None}}],
    "ids": [(), (1,), (0, 2**40, 3)],
    "envelope": [ENVELOPE, (*ENVELOPE[:6], b"correlation", *ENVELOPE[7:])],
    "envelopes": [(ENVELOPE,), (ENVELOPE, ENVELOPE)],
    "any": [None, 1, "x", b"x", (1, (2,)), {"a": 1}, -5, 1.5],
}
BAD: dict[str, list[Any]] = {
    "uint": [-1, True, False, 1.0, "1", b"1", None, (), {}],
    "bool": [0, 1, None, "true"],
    "str": [b"", 1, None, (), True],
    "bytes": ["", 1, None, ()],
    "map": [(), {b"a": 1}, {"a": 1, b"b": 2}, None, "a"],
    "ids": [(True,), (1, -1), (1.0,), ("1",), ((1,),), (None,), b"\x01\x02", None, 5, {1: 2}],
    "envelope": [None, (), ENVELOPE[:-1], b"x" * 13, "x" * 13, dict.fromkeys(range(13))],
    "envelopes": [
        None,
        (),
        ENVELOPE,
        (ENVELOPE, None),
        (ENVELOPE[:-1], ENVELOPE),
        (ENVELOPE, b"x" * 13),
        ("x" * 13,),
        b"x",
        {},
    ],
}
SPECS = sorted(COMMANDS.values(), key=lambda spec: spec.number)


def good(spec: CommandSpec) -> tuple[Any, ...]:
    return (spec.number, *(GOOD[field.kind.removesuffix("?")][-1] for field in spec.fields))


def cases(spec: CommandSpec, of: dict[str, list[Any]]) -> list[tuple[Any, ...]]:
    """The good command with one field changed, each field to each value."""
    found = []
    for position, field in enumerate(spec.fields, 1):
        optional = field.kind.endswith("?")
        values = list(of.get(field.kind.removesuffix("?"), ()))
        if of is GOOD and optional:
            values.append(None)
        for value in values:
            if of is BAD and optional and value is None:
                continue
            command = list(good(spec))
            command[position] = value
            found.append(tuple(command))
    return found


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.name)
def test_in_form(spec: CommandSpec) -> None:
    for command in cases(spec, GOOD):
        with case(command):
            assert examine(command) == command
            assert FORMS[command[0]](command)


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.name)
def test_not_in_form(spec: CommandSpec) -> None:
    for command in cases(spec, BAD):
        with case(command):
            # The good one first, twice: having been accepted must not make its lookalike acceptable.
            twin = good(spec)
            assert FORMS[command[0]](twin)
            assert FORMS[command[0]](twin)
            assert not FORMS[command[0]](command)
            with pytest.raises(ProtocolError) as caught:
                examine(command)
            assert caught.value.code is ErrorCode.MALFORMED_FRAME


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.name)
def test_a_field_too_few_is_refused_by_name(spec: CommandSpec) -> None:
    for length in range(sum(not field.optional for field in spec.fields)):
        command = good(spec)[: length + 1]
        assert not FORMS[spec.number](command)
        with pytest.raises(ProtocolError, match=f"{spec.name} without its field '{spec.fields[length].name}'"):
            examine(command)


OPTIONAL = [spec for spec in SPECS if spec.fields and spec.fields[-1].optional]


@pytest.mark.parametrize("spec", OPTIONAL, ids=lambda spec: spec.name)
def test_fields_that_may_be_left_out_have_their_default(spec: CommandSpec) -> None:
    needed = [field for field in spec.fields if not field.optional]
    assert [*needed, *(field for field in spec.fields if field.optional)] == list(spec.fields), "only at the end"
    command = good(spec)
    defaults = tuple(field.default for field in spec.fields[len(needed) :])
    assert examine(command[: 1 + len(needed)]) == (*command[: 1 + len(needed)], *defaults)


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.name)
def test_fields_of_a_newer_peer_are_cut_off(spec: CommandSpec) -> None:
    command = good(spec)
    longer = (*command, "new", {"x": (1,)})
    assert not FORMS[spec.number](longer)
    assert examine(longer) == command


@pytest.mark.parametrize(
    "value", [None, 5, "abc", b"\x19\x01\x02\x03", [], {}, {0: 25}, (), 1.5, (None,), ("0",), ((0,),)]
)
def test_invalid_commands_are_refused(value: object) -> None:
    for form in FORMS.values():
        assert not form(value)
    with pytest.raises(ProtocolError, match="array that begins with its number") as caught:
        examine(value)
    assert caught.value.code is ErrorCode.MALFORMED_FRAME


def test_bytes_that_spell_a_command_are_none() -> None:
    for spec in SPECS:
        assert not FORMS[spec.number](bytes([spec.number] + [1] * len(spec.fields)))


@pytest.mark.parametrize("number", [True, False, 1.0, 24.0])
def test_numbers_that_only_equal_a_command_are_none(number: Any) -> None:
    fields = good(COMMANDS[int(number)])[1:]
    assert not FORMS[int(number)]((number, *fields))
    with pytest.raises(ProtocolError):
        examine((number, *fields))


@pytest.mark.parametrize("number", [5, 23, 37, 63, 89, 2**63, -1])
def test_unknown_command(number: int) -> None:
    assert number not in FORMS
    with pytest.raises(ProtocolError, match=f"unknown command {number}") as caught:
        examine((number, 1, 2))
    assert caught.value.code is ErrorCode.UNKNOWN_COMMAND


# -- envelopes --------------------------------------------------------------------------------------------------------

ENVELOPE_BAD = [
    (0, 5), (0, b"ID"), (1, None), (1, 1.0), (1, True), (2, True), (2, 10), (2, -1), (2, None), (3, 0), (3, 3),
    (3, True), (4, None), (4, "0"), (5, None), (6, 1), (6, ()), (7, b""), (8, 1), (8, b""), (9, "text"), (9, {}),
    (10, b""), (10, ()), (11, None), (11, True), (12, "text"), (12, ()),
]  # fmt: skip


@pytest.mark.parametrize(("position", "value"), ENVELOPE_BAD)
@pytest.mark.parametrize("number", [Command.SEND, Command.DELIVER])
def test_envelope_with_a_wrong_field(number: int, position: int, value: Any) -> None:
    fields = list(ENVELOPE)
    command = list(good(COMMANDS[number]))
    command[4] = tuple(fields)
    assert FORMS[number](tuple(command))
    fields[position] = value
    command[4] = tuple(fields)
    assert not FORMS[number](tuple(command))
    with pytest.raises(ProtocolError, match="envelope"):
        examine(tuple(command))


def test_every_mix_of_optional_envelope_fields_is_in_form() -> None:
    command = list(good(COMMANDS[Command.SEND]))
    for mask in range(128):
        fields = list(ENVELOPE)
        for bit, (position, value) in enumerate(
            [(0, "ID:1"), (6, b"c"), (7, "queue:r"), (8, "t"), (9, b"\x80"), (10, ""), (12, b"")]
        ):
            fields[position] = value if mask & 1 << bit else None
        command[4] = tuple(fields)
        assert FORMS[Command.SEND](tuple(command))
        assert examine(tuple(command)) == tuple(command)


def test_envelope_of_a_newer_peer_keeps_its_further_fields() -> None:
    fields = (*ENVELOPE, "new", 1)
    assert len(ENVELOPE) == ENVELOPE_FIELDS
    command = (*good(COMMANDS[Command.SEND])[:4], fields)
    assert examine(command)[4] == fields
    check_envelope(fields)


def test_headers_of_impossible_length_are_named() -> None:
    assert check_headers(ENVELOPE) is None
    for position, name in ((0, "JMSMessageID"), (6, "JMSCorrelationID"), (7, "JMSReplyTo"), (8, "JMSType")):
        fields = list(ENVELOPE)
        fields[position] = "x" * 32_769
        assert name in str(check_headers(tuple(fields)))
    assert "body kind 6" in str(check_headers((*ENVELOPE[:11], 6, None)))


def test_an_error_does_not_quote_a_large_value() -> None:
    with pytest.raises(ProtocolError) as caught:
        examine((Command.SET_CLIENT_ID, 1, b"x" * 10_000_000))
    assert len(caught.value.text) < 200


def test_a_client_trusts_the_inside_of_what_its_broker_delivers() -> None:
    deliver = good(COMMANDS[Command.DELIVER])
    form = TRUSTED_FORMS[Command.DELIVER]
    assert form(deliver)
    assert form((*deliver[:4], (*ENVELOPE, "newer")))
    for envelope in (None, (), ENVELOPE[:-1], b"x" * 13, "x" * 13, dict.fromkeys(range(13))):
        assert not form((*deliver[:4], envelope))
    for position in range(1, 4):
        assert not form((*deliver[:position], -1, *deliver[position + 1 :]))
    several = good(COMMANDS[Command.DELIVER_SEVERAL])
    form = TRUSTED_FORMS[Command.DELIVER_SEVERAL]
    assert form(several)
    assert form((*several[:3], (ENVELOPE, (*ENVELOPE, "newer"))))
    for envelopes in BAD["envelopes"]:
        assert not form((*several[:3], envelopes))
    for position in range(1, 3):
        assert not form((*several[:position], -1, *several[position + 1 :]))
    trusted = {number for number in FORMS if FORMS[number] is not TRUSTED_FORMS[number]}
    assert trusted == {Command.DELIVER, Command.DELIVER_SEVERAL}


def in_row(number: int, commands: list[Any]) -> bool:
    try:
        return ROWS[number](commands)
    except (TypeError, ValueError):
        return False


@pytest.mark.parametrize("number", [int(Command.SEND), int(Command.DELIVER)])
def test_a_row_is_in_form_if_each_is_that_command_in_form(number: int) -> None:
    one = good(COMMANDS[number])
    assert in_row(number, [one])
    assert in_row(number, [one, one, one])
    others: list[Any] = [good(spec) for spec in SPECS if spec.number != number]
    others += cases(COMMANDS[number], BAD)
    others += [(), None, 5, "abcde", b"\x18\x01\x02\x03\x04", list(one), dict.fromkeys(one), one[:-1], (*one, "newer")]
    others += [(float(number), *one[1:]), (number + 1, *one[1:]), (True, *one[1:])]
    for other in others:
        for commands in ([other], [other, one], [one, other], [one, other, one]):
            assert not in_row(number, commands), other
    trusted = (*one[:4], (*ENVELOPE[:2], None, *ENVELOPE[3:]))
    assert in_row(number, [one, trusted]) is (number == Command.DELIVER)


# -- quick and slow agree ---------------------------------------------------------------------------------------------

scalars = st.one_of(
    st.none(), st.booleans(), st.integers(-(2**63), 2**64 - 1), st.floats(), st.text(max_size=5), st.binary(max_size=5)
)
values = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=5).map(tuple), st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(st.data())
@settings(max_examples=300, deadline=None)
def test_quick_and_slow_check_agree(data: st.DataObject) -> None:
    spec = data.draw(st.sampled_from(SPECS))
    command = list(good(spec))
    for _ in range(data.draw(st.integers(0, 2))):
        position = data.draw(st.integers(0, max(len(command) - 1, 0)))
        if position < len(command):
            content = command[position]
            if type(content) is tuple and content and data.draw(st.booleans()):
                inner = list(content)
                inner[data.draw(st.integers(0, len(inner) - 1))] = data.draw(values)
                command[position] = tuple(inner)
            else:
                command[position] = data.draw(values)
    command = command[: data.draw(st.integers(0, len(command)))] if data.draw(st.booleans()) else command
    value = tuple(command)
    quick = type(value[0]) is int and value[0] in FORMS and FORMS[value[0]](value) if value else False
    try:
        slow = examine(value) == value and len(value) == len(COMMANDS[value[0]].fields) + 1
    except ProtocolError:
        slow = False
    assert quick == slow


def test_an_envelope_without_fields_is_refused_before_any_other_came() -> None:
    done = subprocess.run(
        [sys.executable, "-c", "from sievemq_core.wire.form import FORMS; print(FORMS[0x18]((0x18, 1, 1, 'q', ())))"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout.strip() == "False"
