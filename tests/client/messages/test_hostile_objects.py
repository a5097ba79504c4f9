"""ObjectMessage against bodies that somebody else made, and every kind of object that it takes, there and back."""

from __future__ import annotations

import datetime as dt
import decimal
import enum
import math
from collections.abc import Callable, Iterator
from dataclasses import InitVar, dataclass, field
from typing import Any

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sievemq import MessageFormatException, ObjectMessage, object_codec, register_type
from sievemq.messages.base import PENDING
from sievemq.object_codec import decode_object, encode_object
from sievemq_core.errors import FormatError
from sievemq_core.message.values import Byte, Char, Double, Float, Int, Long, Short


class Colour(enum.Enum):
    RED = "r"
    CRIMSON = RED
    BLUE = 2


class Named(enum.Enum):
    """Its members hide the attributes that an enum has."""

    name = 1
    value = 2


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


class Rights(enum.Flag):
    READ = 1
    WRITE = 2
    ADMIN = 1 << 70


class Kept(enum.IntFlag, boundary=enum.KEEP):
    ONE = 1


@dataclass(frozen=True)
class Line:
    name: str
    rights: Rights = Rights.READ
    prices: dict[int, decimal.Decimal] = field(default_factory=dict, hash=False)
    total: int = field(init=False, default=0)


@pytest.fixture(scope="module", autouse=True)
def registered() -> Iterator[None]:
    names, kinds = dict(object_codec._by_name), dict(object_codec._names)
    for kind in (Colour, Named, Level, Rights, Kept, Line):
        register_type(kind)
    yield
    object_codec._by_name.clear()
    object_codec._by_name.update(names)
    object_codec._names.clear()
    object_codec._names.update(kinds)


# -- what can be encoded can be decoded --------------------------------------------------------------------------------

offsets = st.integers(-86_399, 86_399).map(lambda seconds: dt.timezone(dt.timedelta(seconds=seconds)))
zones = st.none() | offsets
enums = st.sampled_from([*Colour, *Named, *Level]) | st.integers(0, 3).map(Rights) | st.integers(0, 1 << 70).map(Kept)
longest = st.integers(4_290, 4_300).map(lambda digits: 1 - 10**digits)
decimals = st.decimals().filter(lambda number: not number.is_snan())  # that has no hash
hashable = st.recursive(
    st.one_of(
        st.none(), st.booleans(), st.integers(), longest, st.floats(),
        st.text(st.characters(codec=None), max_size=5), st.binary(max_size=5), st.complex_numbers(),
        st.datetimes(timezones=zones), st.dates(), st.times(timezones=zones), st.timedeltas(),
        decimals, st.uuids(), enums,
        st.integers(-128, 127).map(Byte), st.integers(-32768, 32767).map(Short),
        st.integers(-(2**31), 2**31 - 1).map(Int), st.integers(-(2**63), 2**63 - 1).map(Long),
        st.floats(width=32).map(Float), st.floats().map(Double), st.characters(max_codepoint=0xFFFF).map(Char),
    ),
    lambda inner: st.lists(inner, max_size=3).map(tuple) | st.frozensets(inner, max_size=3),
    max_leaves=4,
)  # fmt: skip
values = st.recursive(
    hashable | st.just(decimal.Decimal("sNaN")),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.lists(inner, max_size=3).map(tuple),
        st.dictionaries(hashable, inner, max_size=3),
        st.sets(hashable, max_size=3),
        st.builds(
            Line, st.text(max_size=3), st.integers(0, 3).map(Rights), st.dictionaries(st.integers(), st.decimals())
        ),
    ),
    max_leaves=6,
)


def shape(value: Any) -> Any:
    """A value in a form that compares with NaN and with the order of sets."""
    if isinstance(value, (list, tuple)):
        return type(value), [shape(each) for each in value]
    if isinstance(value, (set, frozenset)):
        return type(value), sorted(repr(shape(each)) for each in value)
    if isinstance(value, dict):
        return dict, sorted((repr(shape(key)), repr(shape(each))) for key, each in value.items())
    if isinstance(value, (dt.datetime, dt.time)):
        return type(value), value.isoformat()
    return type(value), repr(value)


@given(values)
def test_any_object_that_can_be_encoded_can_be_decoded(value: Any) -> None:
    assert shape(decode_object(encode_object(value))) == shape(value)


def test_a_combination_of_flags_is_one_of_the_same_class() -> None:
    for flags in (Rights(0), Rights.READ, Rights.READ | Rights.ADMIN, Kept(0b1000)):
        assert ObjectMessage({flags}).get_object() == {flags}


def test_a_class_whose_objects_cannot_be_built_from_their_fields_is_not_registered() -> None:
    @dataclass
    class Salted:
        text: str
        salt: InitVar[str]

    with pytest.raises(TypeError, match="no field keeps 'salt'"):
        register_type(Salted)


def test_an_object_whose_attributes_cannot_be_read_is_not_sent() -> None:
    line = Line("tea")
    object.__delattr__(line, "name")
    with pytest.raises(MessageFormatException, match="name"):
        ObjectMessage(line)


# -- any failure is a MessageFormatException --------------------------------------------------------------------------


class RudeError(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text either")


@dataclass
class Hostile:
    number: int

    def __post_init__(self) -> None:
        if self.number < 0:
            raise RudeError

    def __hash__(self) -> int:
        raise RudeError

    def __repr__(self) -> str:
        raise RudeError


def body_of(value: object) -> ObjectMessage:
    message = ObjectMessage()
    message._body = msgpack.packb(value)
    return message


def extension(code: int, value: object) -> msgpack.ExtType:
    return msgpack.ExtType(code, msgpack.packb(value))


@pytest.mark.parametrize("code", range(16))
def test_any_content_of_an_extension_is_decoded_or_refused(code: int) -> None:
    contents = [
        None, True, 1, -1, -1.5, 2.0**200, math.nan, "", "x", "9" * 5000, "0123456789abcdef", b"", b"\0" * 16,
        [], [0] * 16, [1, 2], [1, 2, 3], [1, 2, 3, 4], [math.nan, 1, 2], [10**18, 1, 1], [[1], {}], {}, {"a": 1},
        *([letter, value] for letter in "bhilfdcz" for value in (None, 300, "", "nan", [1], 2.0**200)),
        *([name, value] for name in (f"{__name__}.Line", f"{__name__}.Rights", f"{__name__}.Colour", "os.system", [])
          for value in (None, 3, -(10**9), "RED", "a|b", ["RED"], {}, {"name": [], "rights": {}}, {"": 1})),
    ]  # fmt: skip
    for content in contents:
        message = body_of(extension(code, content))
        try:
            message.get_object()
        except MessageFormatException:
            pass
        repr(message)


def test_whatever_a_registered_class_raises_is_a_message_format_exception(monkeypatch: pytest.MonkeyPatch) -> None:
    name = "hostile"
    monkeypatch.setitem(object_codec._by_name, name, Hostile)
    for content in (extension(11, [name, {"number": -1}]), extension(2, [extension(11, [name, {"number": 1}])])):
        with pytest.raises(MessageFormatException, match="RudeError"):
            body_of(content).get_object()
    assert "bytes" in repr(body_of(extension(11, [name, {"number": 1}])))


def test_a_timestamp_of_msgpack_is_a_datetime() -> None:
    moment = dt.datetime(2026, 1, 31, 12, tzinfo=dt.UTC)
    message = ObjectMessage()
    message._body = msgpack.packb(msgpack.Timestamp.from_datetime(moment))
    assert message.get_object() == moment
    message._body = msgpack.packb(msgpack.Timestamp(2**60))
    with pytest.raises(MessageFormatException):
        message.get_object()


def test_the_repr_of_a_deep_object_does_not_raise() -> None:
    deep: Any = 1
    for _ in range(3):
        for _ in range(450):
            deep = [deep]
        deep = (deep,)
    message = ObjectMessage(deep)
    assert message._body is not PENDING
    assert repr(message).startswith("ObjectMessage(")  # newer Pythons write what 3.11 gives up at
    assert "ObjectMessage(" in str([message])


# -- linear time ------------------------------------------------------------------------------------------------------

_MODULUS = 2**61 - 1  # of the hash of numbers


def same_hash(count: int) -> list[int]:
    return [_MODULUS * (number + 64) for number in range(count)]


def one_chain(count: int) -> list[int]:
    """Numbers with different hashes whose probes meet in one chain of a table of 4,096 places."""
    mask, slot, keys, taken = 4095, 1, [], set()
    while len(keys) < 1_365:  # the places that a probe passes one after the other once its hash is used up
        keys.append(slot)
        taken.add(slot)
        slot = (5 * slot + 1) & mask
    found: list[tuple[int, int]] = []
    for key in range(4096, 4096 * 60):
        slot, rest, steps = key & mask, key, 0
        while slot in taken:
            rest >>= 5
            slot, steps = (5 * slot + rest + 1) & mask, steps + 1
        found.append((steps, key))
    found.sort(reverse=True)
    return keys + [key for _, key in found[:count]]


FLOODS = {
    "a set": lambda: extension(2, [extension(4, str(number)) for number in same_hash(2_000)]),
    "a frozenset": lambda: extension(3, [extension(4, str(number)) for number in same_hash(2_000)]),
    "a dict": lambda: {extension(4, str(number)): None for number in same_hash(2_000)},
    "tuples": lambda: extension(2, [extension(1, [extension(4, str(number))]) for number in same_hash(2_000)]),
    "Decimals": lambda: extension(2, [extension(9, str(number)) for number in same_hash(2_000)]),
    "UUIDs": lambda: extension(2, [extension_of_uuid(number) for number in same_hash(2_000)]),
    "different hashes, a dict": lambda: dict.fromkeys(one_chain(1_300)),
    "different hashes, a set": lambda: extension(2, one_chain(1_300)),
}


def extension_of_uuid(number: int) -> msgpack.ExtType:
    return extension(10, number.to_bytes(16, "big"))


@pytest.mark.parametrize("flood", FLOODS.values(), ids=FLOODS)
def test_keys_that_were_chosen_to_collide_are_refused(flood: Callable[[], object]) -> None:
    with pytest.raises(MessageFormatException, match="collide"):
        body_of(flood()).get_object()


@pytest.mark.parametrize(
    "keys",
    [
        *(
            pytest.param([number << bits for number in range(1, 3_000)], id=f"multiples of 2**{bits}")
            for bits in range(0, 64, 3)
        ),
        *(
            pytest.param([3 * number << bits for number in range(1, 3_000)], id=f"of 3 * 2**{bits}")
            for bits in (10, 17)
        ),
        pytest.param([(number // 50, number % 50) for number in range(3_000)], id="a grid of tuples"),
        pytest.param([number / 7 for number in range(3_000)], id="floats"),
        pytest.param([number * 2.0**200 for number in range(3_000)], id="large floats"),
        pytest.param([-number << 32 for number in range(3_000)], id="negative"),
        pytest.param([1_700_000_000_000 + number * 1_000 for number in range(3_000)], id="times"),
        pytest.param([decimal.Decimal(number) / 100 for number in range(3_000)], id="prices"),
        pytest.param([str(number) for number in range(3_000)], id="text"),
        pytest.param([dt.date.fromordinal(number) for number in range(1, 3_000)], id="dates"),
    ],
)
def test_regular_keys_are_taken(keys: list[Any]) -> None:
    assert ObjectMessage(set(keys)).get_object() == set(keys)
    assert ObjectMessage(dict.fromkeys(keys, 1)).get_object() == dict.fromkeys(keys, 1)


@given(st.sets(st.integers() | st.floats(allow_nan=False) | st.tuples(st.integers()), min_size=257, max_size=300))
def test_no_set_of_numbers_is_refused(keys: set[Any]) -> None:
    assert decode_object(encode_object(keys)) == keys


def test_a_set_that_its_receiver_would_refuse_is_not_sent() -> None:
    with pytest.raises(FormatError, match="collide"):
        encode_object(set(same_hash(2_000)))
