"""The envelope: typed properties packed and unpacked, lazy decoding, what a hostile sender may have packed."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sievemq_broker.server.net.codec import hasten
from sievemq_core.errors import FormatError, ProtocolError
from sievemq_core.limits import MAX_PROPERTIES, MAX_PROPERTIES_BYTES, MAX_PROPERTY_CHARS
from sievemq_core.message import envelope as module
from sievemq_core.message.envelope import (
    CORRELATION_ID,
    ENVELOPE_FIELDS,
    PROPERTIES,
    PROPERTY_TYPES,
    Envelope,
    pack_properties,
    unpack_properties,
    use_decoder,
)
from sievemq_core.message.values import Byte, Float, Long, PropertyValue, Short, letter_of, to_long
from sievemq_core.wire.codec import pack, unpack_value

FIELDS = ("ID:a:1", 1_700_000_000_000, 7, 2, 55, 66, b"corr", "queue:r", "t", None, None, 1, b"hi")


@pytest.fixture(params=["msgpack", "msgspec"], scope="module", autouse=True)
def decoder(request: pytest.FixtureRequest) -> Iterator[None]:
    """Everything here holds for both decoders."""
    if request.param == "msgspec":
        hasten()
    yield
    use_decoder(None)


def carrying(packed: bytes | None, letters: str | None) -> tuple[Any, ...]:
    fields = list(FIELDS)
    fields[PROPERTIES], fields[PROPERTY_TYPES] = packed, letters
    return tuple(fields)


def travelled(properties: dict[str, PropertyValue]) -> dict[str, PropertyValue]:
    """Packed into an envelope, over the wire, and unpacked."""
    fields = unpack_value(pack(carrying(*pack_properties(properties))))
    return unpack_properties(fields)


ALL_TYPES: dict[str, PropertyValue] = {
    "z": True, "b": Byte(-128), "h": Short(32767), "i": -(2**31), "l": Long(5), "L": 2**63 - 1, "f": Float(0.1),
    "d": 0.1, "s": "größer", "null": None, "surrogate": "\ud83d",
}  # fmt: skip


def typed(properties: dict[str, PropertyValue]) -> list[tuple[str, type, PropertyValue]]:
    return [(name, type(value), value) for name, value in properties.items()]


def test_every_type_survives() -> None:
    assert typed(travelled(ALL_TYPES)) == typed(ALL_TYPES)


@pytest.mark.parametrize("name", ALL_TYPES)
def test_every_type_alone_survives(name: str) -> None:
    one = {name: ALL_TYPES[name]}
    assert typed(travelled(one)) == typed(one)


def test_letters_travel_only_where_a_value_does_not_say_its_type() -> None:
    plain: dict[str, PropertyValue] = {"z": False, "i": 1, "l": 2**40, "d": 1.5, "s": "x", "n": None}
    assert pack_properties(plain)[1] is None
    assert pack_properties({**plain, "b": Byte(1)})[1] == "zildssb"
    assert pack_properties({}) == (None, None)


def test_not_a_number_and_infinities_survive() -> None:
    got = travelled({"nan": math.nan, "inf": math.inf, "f": Float(-math.inf)})
    assert math.isnan(got["nan"])  # type: ignore[arg-type]
    assert (got["inf"], got["f"], type(got["f"])) == (math.inf, -math.inf, Float)


values = st.one_of(
    st.booleans(), st.none(), st.text(), st.floats(allow_nan=False), st.integers(-(2**63), 2**63 - 1),
    st.integers(-128, 127).map(Byte), st.integers(-(2**15), 2**15 - 1).map(Short),
    st.integers(-(2**63), 2**63 - 1).map(to_long), st.floats(width=32, allow_nan=False).map(Float),
)  # fmt: skip


@given(st.dictionaries(st.text(), values, max_size=8))
def test_any_properties_survive(properties: dict[str, PropertyValue]) -> None:
    got = travelled(properties)
    assert typed(got) == typed(properties)
    assert [letter_of(v) for v in got.values()] == [letter_of(v) for v in properties.values()]


def test_limits_of_properties() -> None:
    pack_properties({str(n): n for n in range(MAX_PROPERTIES)})
    with pytest.raises(FormatError, match="this one has 1001"):
        pack_properties({str(n): n for n in range(MAX_PROPERTIES + 1)})
    with pytest.raises(FormatError, match=str(MAX_PROPERTIES_BYTES)):
        pack_properties({"x": "y" * MAX_PROPERTIES_BYTES})


def test_a_text_property_is_no_longer_than_a_selector_reads() -> None:
    """In characters, whatever each takes when packed."""
    for character in ("y", "\U0001f600"):
        pack_properties({"x": character * MAX_PROPERTY_CHARS, "y": character * 1_000})
        with pytest.raises(FormatError, match=f"'x' has {MAX_PROPERTY_CHARS + 1} characters"):
            pack_properties({"x": character * (MAX_PROPERTY_CHARS + 1)})


def p(value: object) -> bytes:
    packed: bytes = msgpack.packb(value)
    return packed


@pytest.mark.parametrize(
    ("packed", "letters"),
    [
        (b"", None), (b"\xc1", None), (p({"a": 1}) + b"\x00", None), (p({"a": 1})[:-1], None),
        (p([1]), None), (p("a"), None), (p(None), None),
        (p({"a": [1]}), None), (p({"a": {"b": 1}}), None), (p({"a": b"x"}), None), (p({b"a": 1}), None),
        (p({"a": msgpack.ExtType(5, b"x")}), None), (p({"a": msgpack.Timestamp(1)}), None), (b"\x81\x01\x02", None),
        (b"\x81\xa1\xff\x01", None), (p({"a": 2**63}), None), (p({"a": 2**64 - 1, "b": Byte(1)}), "lb"),
        (p({str(n): n for n in range(MAX_PROPERTIES + 1)}), None), (b"\xdf\xff\xff\xff\xff", None),
        (b"\x91" * 5000, None),
    ],
)  # fmt: skip
def test_properties_that_cannot_be(packed: bytes, letters: str | None) -> None:
    with pytest.raises(ProtocolError):
        unpack_properties(carrying(packed, letters))
    with pytest.raises(ProtocolError):
        _ = Envelope(carrying(packed, letters)).properties


@pytest.mark.parametrize(
    ("value", "letters"),
    [
        (1, ""), (1, "bb"), (300, "b"), (1.5, "b"), (True, "h"), ("1", "l"), ("x", "f"), (1, "q"), (1, "c"), (1, "x"),
        (1, "\ud800"), (1, 5),
    ],
)  # fmt: skip
def test_type_letters_that_do_not_fit_are_ignored(value: PropertyValue, letters: Any) -> None:
    """A message must not be unreadable for what only refines it (D-46)."""
    found = unpack_properties(carrying(p({"a": value}), letters))["a"]
    assert found == value
    assert type(found) is type(value)
    several = unpack_properties(carrying(p({"a": 300, "b": 2}), "bb"))
    assert list(map(type, several.values())) == [int, Byte]


def test_bytes_that_only_look_like_a_large_number_are_fine() -> None:
    assert travelled({"a": "\u03cf", "b": 2**62}) == {"a": "\u03cf", "b": 2**62}


def test_a_null_property_of_any_type_is_null() -> None:
    assert unpack_properties(carrying(p({"a": None, "b": 1}), "bb")) == {"a": None, "b": 1}


@given(st.binary(max_size=40), st.none() | st.text(alphabet="zbhilfdsqx", max_size=4))
def test_random_properties_raise_only_protocol_errors(packed: bytes, letters: str | None) -> None:
    try:
        got = unpack_properties(carrying(packed, letters))
    except ProtocolError:
        return
    assert all(type(name) is str for name in got)
    for value in got.values():
        letter_of(value)


# -- Envelope ---------------------------------------------------------------------------------------------------------


def test_an_envelope_decodes_the_brokers_fields() -> None:
    envelope = Envelope(FIELDS)
    assert len(FIELDS) == ENVELOPE_FIELDS
    assert (envelope.priority, envelope.expiration, envelope.delivery_time) == (7, 55, 66)
    assert unpack_value(envelope.packed) == FIELDS
    assert len(envelope) == len(envelope.packed)


def test_given_bytes_are_shared_not_packed_again() -> None:
    packed = pack(FIELDS)
    assert Envelope(FIELDS, packed).packed is packed


def test_fields_and_properties_are_decoded_once_and_again_after_compact() -> None:
    packed, letters = pack_properties(ALL_TYPES)
    envelope = Envelope(carrying(packed, letters))
    first = envelope.properties
    assert envelope.properties is first
    fields = envelope.fields
    envelope.compact()
    again = envelope.fields
    assert again == fields
    assert again is not fields
    assert envelope.fields is again
    assert envelope.properties is not first
    assert typed(envelope.properties) == typed(first)


def test_compact_survives_large_bodies_and_further_fields() -> None:
    fields = (*FIELDS[:12], bytes(3_000_000), "of a later version", (1, {"a": b"x"}))
    envelope = Envelope(fields)
    envelope.compact()
    assert envelope.fields == fields


def test_an_envelope_without_properties_has_none() -> None:
    assert Envelope(FIELDS).properties == {}


@pytest.mark.parametrize("correlation_id", ["c1", b"c1", None])
def test_the_correlation_id_of_what_waits_is_at_hand(correlation_id: str | bytes | None) -> None:
    fields = ("ID:1", 0, 4, 1, 0, 0, correlation_id, None, None, None, None, 2, b"body")
    envelope = Envelope(fields)
    assert envelope.correlation_id == correlation_id
    envelope.compact()
    assert envelope.correlation_id == correlation_id
    assert Envelope.from_packed(envelope.packed).correlation_id == correlation_id


def test_an_injected_decoder_decodes() -> None:
    packed, _ = pack_properties({"a": 1})
    seen: list[bytes] = []

    def decode(data: bytes) -> Any:
        seen.append(data)
        if len(seen) > 1:
            raise ValueError("not this one")
        return {"b": 2}

    before = module._decode
    use_decoder(decode)
    try:
        assert Envelope(carrying(packed, None)).read_properties() == {"b": 2}
        assert Envelope(carrying(packed, None)).read_properties() == {"a": 1}, "msgpack, where it will not"
    finally:
        use_decoder(before)
    assert seen == [packed, packed]


NO_ENVELOPES: list[Any] = [
    5, None, "x" * 13, b"x" * 13, {}, dict.fromkeys("abcdefghijklm"), (), FIELDS[:-1], FIELDS[:4],
    *((*FIELDS[:at], value, *FIELDS[at + 1 :]) for at in range(1, 6) for value in (None, "4", 4.0, True, ())),
    *((*FIELDS[:6], value, *FIELDS[7:]) for value in (5, True, ())),
]  # fmt: skip


@pytest.mark.parametrize("value", NO_ENVELOPES, ids=lambda value: f"{value!r:.60}")
def test_invalid_envelopes_are_refused(value: Any) -> None:
    with pytest.raises(ProtocolError, match=r"^the envelope of a message cannot be decoded: these are not its fields$"):
        Envelope.from_packed(msgpack.packb(value))


@pytest.mark.parametrize("packed", [b"", b"\xc1", b"\x9d", b"\x81\x80\x01", Envelope(FIELDS).packed + b"\xc0"])
def test_bytes_that_are_no_one_value_are_no_envelope(packed: bytes) -> None:
    with pytest.raises(ProtocolError, match=r"^the envelope of a message cannot be decoded"):
        Envelope.from_packed(packed)


@pytest.mark.parametrize("further", [msgpack.ExtType(5, b"x"), msgpack.Timestamp(1, 2), {"a": (1.5,)}])
def test_further_fields_are_carried_along_untouched(further: object) -> None:
    fields = (*FIELDS, further)
    assert msgpack.unpackb(Envelope(fields).packed, use_list=False) == fields


def outcome(packed: bytes) -> object:
    try:
        return typed(unpack_properties(carrying(packed, None)))
    except ProtocolError as error:
        return str(error)


@given(st.dictionaries(st.text(max_size=5), values, max_size=8), st.data())
def test_both_codecs_read_the_same_and_refuse_the_same(
    properties: dict[str, PropertyValue], data: st.DataObject
) -> None:
    packed = bytearray(p(properties))
    for _ in range(data.draw(st.integers(0, 3))):
        packed[data.draw(st.integers(0, len(packed) - 1))] = data.draw(st.integers(0, 255))
    found = outcome(bytes(packed))
    before = module._decode
    use_decoder(None)
    try:
        assert repr(outcome(bytes(packed))) == repr(found)  # NaN is not itself
    finally:
        use_decoder(before)


def test_both_codecs_have_the_same_limits() -> None:
    largest = {"a": 2**63 - 1, "b": -(2**63)}
    assert outcome(p(largest)) == typed(largest)
    assert outcome(p({"a": 1, "b": 2**63})) == "property 'b' is 9223372036854775808, which no JMS type holds"
    many = {f"p{number}": number for number in range(MAX_PROPERTIES)}
    assert outcome(p(many)) == typed(many)
    assert str(outcome(p({**many, "one more": 1}))).startswith("the properties of a message cannot be decoded")


def test_text_that_is_no_unicode_is_carried_by_both() -> None:
    fields = (*FIELDS[:CORRELATION_ID], "\ud800", *FIELDS[CORRELATION_ID + 1 :])
    assert Envelope.from_packed(Envelope(fields).packed).correlation_id == "\ud800"
    assert travelled({"a\udfff": "b\ud800"}) == {"a\udfff": "b\ud800"}


#: Values as other encoders write them, and what is none that a property may have; behind the name "a".
FORMS = {
    "long as uint8": b"\xcc\x07", "long as uint64": b"\xcf" + bytes(7) + b"\x07", "int8": b"\xd0\x07",
    "least long": b"\xd3\x80" + bytes(7), "largest long": b"\xcf\x7f" + b"\xff" * 7, "no long": b"\xcf\x80" + bytes(7),
    "float32": b"\xca\x3d\xcc\xcc\xcd", "float32 NaN": b"\xca\x7f\xc0\x00\x01",
    "least float32": b"\xca\x00\x00\x00\x01",
    "-0.0": b"\xcb\x80" + bytes(7), "-inf": b"\xcb\xff\xf0" + bytes(6),
    "signalling NaN": b"\xcb\x7f\xf0" + bytes(5) + b"\x01",
    "str8": b"\xd9\x01x", "str32": b"\xdb\x00\x00\x00\x01x", "NUL": b"\xa1\x00", "BOM": b"\xa4\xef\xbb\xbfx",
    "surrogate": b"\xa3\xed\xa0\x80", "overlong": b"\xa2\xc0\x80", "beyond Unicode": b"\xa4\xf4\x90\x80\x80",
    "bin": b"\xc4\x01x", "array": b"\x91\x01", "map": b"\x81\xa1b\x01", "ext": b"\xd4\x01x",
    "timestamp": b"\xd6\xff" + bytes(4),
    "never used": b"\xc1", "cut": b"\xcd\x01", "one more": b"\x01\x02", "very deep": b"\x91" * 5_000 + b"\x01",
}  # fmt: skip

#: Heads of the map, and names.
ODD_MAPS = {
    "map16": b"\xde\x00\x01\xa1a\x01", "map32": b"\xdf\x00\x00\x00\x01\xa1a\x01",
    "endless": b"\xdf\xff\xff\xff\xff\xa1a\x01",
    "the same name twice": b"\x82\xa1a\x01\xa1a\x02", "the same in another form": b"\x82\xa1a\x01\xd9\x01a\xc3",
    "bin as a name": b"\x81\xc4\x01a\x01", "int as a name": b"\x81\x01\x01", "nil as a name": b"\x81\xc0\x01",
    "surrogate as a name": b"\x81\xa3\xed\xa0\x80\x01", "no map": b"\x91\x01", "nil": b"\xc0", "nothing": b"",
}  # fmt: skip


@pytest.mark.parametrize("packed", [*(b"\x81\xa1a" + form for form in FORMS.values()), *ODD_MAPS.values()],
                         ids=[*FORMS, *ODD_MAPS])  # fmt: skip
def test_every_form_is_read_as_msgpack_reads_it(packed: bytes) -> None:
    found = outcome(packed)
    before = module._decode
    use_decoder(None)
    try:
        assert repr(outcome(packed)) == repr(found)
    finally:
        use_decoder(before)


@pytest.mark.parametrize("behind", [("new", b"packed", 1, 2.5, None, True), ()])
def test_kept_scalars_of_a_newer_version_stay(behind: tuple[object, ...]) -> None:
    packed = pack((*FIELDS, *behind))
    assert Envelope.from_packed(packed).packed is packed


@pytest.mark.parametrize("behind", [((),), ({},), (1, ((((),),),))])
def test_kept_field_that_could_not_be_delivered_is_left_out(behind: tuple[object, ...]) -> None:
    """As one was that an earlier version accepted."""
    envelope = Envelope.from_packed(pack((*FIELDS, *behind)))
    assert unpack_value(envelope.packed) == FIELDS
    assert envelope.fields == FIELDS
