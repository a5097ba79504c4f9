"""Section 21: properties (PRP), and what section 1 says of their values (PY)."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from decimal import Decimal
from enum import StrEnum

import pytest

from sievemq import (
    Byte,
    Char,
    Double,
    Float,
    Int,
    InvalidSelectorException,
    Long,
    Message,
    MessageFormatException,
    MessageNotWriteableException,
    NullValueError,
    Selector,
    Short,
    TextMessage,
)
from sievemq_core.limits import MAX_NAME_CHARS, MAX_PROPERTIES
from sievemq_core.message.values import letter_of

SETTERS = ["boolean", "byte", "short", "int", "long", "float", "double", "string"]
SAMPLES = {
    "boolean": True, "byte": 7, "short": 300, "int": 70_000, "long": 2**40, "float": 0.5, "double": 0.1, "string": "x",
}  # fmt: skip
HELD = {
    "boolean": bool, "byte": Byte, "short": Short, "int": int, "long": int, "float": Float, "double": float,
    "string": str,
}  # fmt: skip


def set_property(message: Message, kind: str, name: str, value: object) -> None:
    getattr(message, f"set_{kind}_property")(name, value)


def get_property(message: Message, kind: str, name: str) -> object:
    return getattr(message, f"get_{kind}_property")(name)


@pytest.mark.parametrize("kind", SETTERS)
def test_prp_01_a_value_is_held_and_carried_with_its_type(kind, deliver):
    message = Message()
    set_property(message, kind, "p", SAMPLES[kind])
    for here in (message, deliver(message), deliver(deliver(message))):
        value = here.get_object_property("p")
        assert (type(value), value) == (HELD[kind], SAMPLES[kind])
        assert get_property(here, kind, "p") == SAMPLES[kind]


def test_prp_01_a_long_in_the_range_of_an_int_is_still_a_long(deliver):
    message = Message()
    message.set_long_property("p", 5)
    for here in (message, deliver(message)):
        assert type(here.get_object_property("p")) is Long
        with pytest.raises(MessageFormatException):
            here.get_int_property("p")


def test_prp_01_a_second_set_replaces_value_and_type(deliver):
    message = Message()
    message.set_byte_property("p", 1)
    message.set_string_property("p", "two")
    assert deliver(message).get_object_property("p") == "two"
    message.set_short_property("p", 3)
    assert type(deliver(message).get_object_property("p")) is Short


@pytest.mark.parametrize("value", [True, 5, 2**40, 1.5, "x", None, Byte(1), Short(1), Long(1), Float(0.5)])
def test_prp_02_set_object_property_takes_the_eight_types_and_none(value, deliver):
    message = Message()
    message.set_object_property("p", value)
    read = deliver(message).get_object_property("p")
    assert (type(read), read) == (type(value), value)


@pytest.mark.parametrize(
    "value", [[1], {"a": 1}, b"x", Char("x"), Decimal(1), object(), (1,), {1}, 2**63, -(2**63) - 1]
)
def test_prp_02_prp_13_set_object_property_refuses_everything_else(value):
    message = Message()
    with pytest.raises(MessageFormatException, match="property 'p'"):
        message.set_object_property("p", value)
    assert not message.property_exists("p")


def test_prp_04_absent_is_none():
    assert Message().get_object_property("absent") is None


def test_prp_05_a_null_string_exists(deliver):
    message = Message()
    message.set_string_property("p", None)
    for here in (message, deliver(message)):
        assert here.property_exists("p")
        assert here.get_object_property("p") is None
        assert here.get_string_property("p") is None
        assert not here.property_exists("q")


def test_prp_06_names_are_given_once_without_headers(deliver):
    message = Message(properties={"a": 1, "b": 2})
    message.set_jms_type("t")
    names = message.get_property_names()
    assert isinstance(names, Iterator)
    assert sorted(names) == ["a", "b"]
    assert list(names) == []
    assert sorted(deliver(message).get_property_names()) == ["JMSXDeliveryCount", "a", "b"]


def test_prp_06_properties_may_change_while_names_are_read():
    message = Message(properties={"a": 1, "b": 2})
    for name in message.get_property_names():
        message.set_int_property(f"{name}2", 1)
    assert len(message.properties) == 4


@pytest.mark.parametrize("kind", [*SETTERS, "object"])
@pytest.mark.parametrize("name", [None, ""])
def test_prp_07_a_name_must_not_be_none_or_empty(kind, name):
    with pytest.raises(ValueError):
        set_property(Message(), kind, name, SAMPLES.get(kind, "x"))


@pytest.mark.parametrize(
    "name",
    ["1a", "a b", "a-b", "a.b", " a", "a\n", "ä-", "a\0", "x" * (MAX_NAME_CHARS + 1), 7, b"a", True, "#", "a'b"],
)
def test_prp_08_a_name_obeys_the_rules_of_identifiers(name):
    with pytest.raises(ValueError, match="name"):
        Message().set_int_property(name, 1)


@pytest.mark.parametrize(
    "word", ["NULL", "TRUE", "FALSE", "NOT", "AND", "OR", "BETWEEN", "LIKE", "IN", "IS", "null", "Between"]
)
def test_prp_08_reserved_words_are_no_names(word):
    with pytest.raises(ValueError, match="reserved word"):
        Message().set_string_property(word, "x")


@pytest.mark.parametrize("name", ["a", "_a", "$a", "größe", "数量", "a1", "ANDY", "x" * MAX_NAME_CHARS])
def test_prp_08_names_that_are_allowed_can_be_selected_on(name):
    message = Message(properties={name: 7})
    assert Selector(f"{name} = 7").matches(message)


@pytest.mark.parametrize("name", ["ESCAPE", "Escape"])
def test_prp_08_a_word_that_some_dialect_does_not_reserve_is_a_name(name):
    """Jakarta Messaging reserves ESCAPE in selectors, other dialects do not, and a message has no dialect."""
    message = Message()
    message.set_int_property(name, 7)
    assert Selector(f"{name} = 7", dialect="ibm-mq").matches(message)
    with pytest.raises(InvalidSelectorException):
        Selector(f"{name} = 7")


def test_prp_09_names_are_case_sensitive(deliver):
    message = Message(properties={"a": 1, "A": 2})
    assert (deliver(message).get_int_property("a"), deliver(message).get_int_property("A")) == (1, 2)


@pytest.mark.parametrize("kind", [*SETTERS, "object"])
def test_prp_10_properties_of_a_received_message_are_read_only(kind, deliver):
    here = deliver(Message(properties={"a": 1}))
    with pytest.raises(MessageNotWriteableException, match=r"clear_properties\(\)"):
        set_property(here, kind, "p", SAMPLES.get(kind, "x"))
    assert here.get_int_property("a") == 1
    here.clear_properties()
    set_property(here, kind, "p", SAMPLES.get(kind, "x"))
    assert list(here.get_property_names()) == ["p"]


def test_prp_11_only_clear_properties_removes():
    message = Message(properties={"a": 1, "b": 2})
    assert not [name for name in dir(message) if "remove" in name or name.startswith(("del", "pop"))]
    message.clear_properties()
    assert list(message.get_property_names()) == []


@pytest.mark.parametrize("name", ["JMSXGroupID", "JMS_SieveMQ_Origin", "JMS_IBM_Format", "JMSXUserID", "jmsfoo"])
def test_prp_12_names_of_the_standard_and_of_providers_are_accepted(name):
    message = Message()
    message.set_string_property(name, "x")
    assert message.get_string_property(name) == "x"


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("JMSPriority", "is a header field"),
        ("JMSType", "is a header field"),
        ("JMSFoo", "belong to the standard"),
        ("JMSXGroupId", "did you mean JMSXGroupID"),
        ("JMS", "belong to the standard"),
    ],
)
def test_prp_12_other_names_beginning_with_jms_are_refused(name, hint):
    with pytest.raises(ValueError, match=hint):
        Message().set_string_property(name, "x")


def test_prp_14_selectors_see_the_stored_type(deliver):
    here = deliver(Message(properties={"n": "7", "i": 7}))
    assert here.get_int_property("n") == 7
    assert not Selector("n = 7").matches(here)
    assert Selector("i = 7 AND n = '7'").matches(here)


def test_the_mapping_view_is_read_only_and_live(deliver):
    message = TextMessage("x", properties={"a": Byte(1)})
    view = message.properties
    assert isinstance(view, Mapping)
    assert dict(view) == {"a": 1}
    message.set_int_property("b", 2)
    assert view["b"] == 2
    with pytest.raises(TypeError):
        view["c"] = 3
    message.clear_properties()
    assert not view
    assert dict(deliver(TextMessage(properties={"a": 1})).properties) == {"a": 1, "JMSXDeliveryCount": 1}


# -- values -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["byte", "short", "int", "long", "float", "double"])
def test_py_07_a_bool_is_no_number(kind):
    with pytest.raises(MessageFormatException):
        set_property(Message(), kind, "p", True)


def test_py_07_a_number_is_no_bool_and_a_bool_is_tested_before_int(deliver):
    message = Message()
    with pytest.raises(MessageFormatException):
        message.set_boolean_property("p", 1)
    message.set_object_property("p", True)
    assert deliver(message).get_object_property("p") is True


@pytest.mark.parametrize(("kind", "bits"), [("byte", 8), ("short", 16), ("int", 32), ("long", 64)])
def test_py_08_ranges_of_the_integers(kind, bits):
    message = Message()
    for edge in (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1):
        set_property(message, kind, "p", edge)
        assert get_property(message, kind, "p") == edge
    for beyond in (-(2 ** (bits - 1)) - 1, 2 ** (bits - 1), 10**5000):
        with pytest.raises(MessageFormatException):
            set_property(message, kind, "p", beyond)
    with pytest.raises(MessageFormatException):
        set_property(message, kind, "p", 1.0)


def test_py_09_a_float_is_rounded_to_single_when_set(deliver):
    message = Message()
    message.set_float_property("p", 0.1)
    assert message.get_float_property("p") == 0.10000000149011612
    assert deliver(message).get_double_property("p") == 0.10000000149011612
    message.set_float_property("p", 1e300)
    assert deliver(message).get_float_property("p") == math.inf


def test_py_10_a_double_keeps_every_bit(deliver):
    for value in (0.1, 5e-324, 1.7976931348623157e308, -0.0, math.inf):
        message = Message()
        message.set_double_property("p", value)
        read = deliver(message).get_double_property("p")
        assert math.copysign(1, read) == math.copysign(1, value)
        assert read == value
    message = Message()
    message.set_double_property("p", math.nan)
    assert math.isnan(deliver(message).get_double_property("p"))
    with pytest.raises(MessageFormatException):
        message.set_double_property("p", 10**400)


@pytest.mark.parametrize("kind", [kind for kind in SETTERS if kind != "string"])
def test_py_06_none_has_no_place_in_a_primitive(kind):
    with pytest.raises(NullValueError):
        set_property(Message(), kind, "p", None)


def test_py_13_plain_values_and_wrappers(deliver):
    values = {
        "z": True, "i": 5, "l": 2**31, "d": 1.5, "s": "x", "wb": Byte(5), "wh": Short(5), "wi": Int(5), "wl": Long(5),
        "wf": Float(1.5), "wd": Double(1.5),
    }  # fmt: skip
    here = deliver(Message(properties=values))
    kinds = {name: letter_of(here.get_object_property(name)) for name in values}
    assert kinds == {
        "z": "z", "i": "i", "l": "l", "d": "d", "s": "s", "wb": "b", "wh": "h", "wi": "i", "wl": "l", "wf": "f",
        "wd": "d",
    }  # fmt: skip
    with pytest.raises(MessageFormatException):
        here.get_int_property("l")


def test_py_13_text_of_an_enumeration_is_text(deliver):
    class Region(StrEnum):
        EU = "EU"

    message = Message(properties={"a": Region.EU})
    message.set_string_property("b", Region.EU)
    here = deliver(message)
    assert (here.get_string_property("a"), type(here.get_object_property("b"))) == ("EU", str)


def test_py_15_names_come_as_an_iterator():
    assert isinstance(Message().get_property_names(), Iterator)


def test_more_properties_than_a_message_may_have(deliver):
    message = Message(properties={f"p{n}": n for n in range(MAX_PROPERTIES)})
    assert len(deliver(message).properties) == MAX_PROPERTIES + 1
    message.set_int_property("one_more", 1)
    with pytest.raises(MessageFormatException, match=f"{MAX_PROPERTIES} properties"):
        deliver(message)


def test_bigger_properties_than_a_message_may_have(deliver):
    message = Message(properties={"p": "x" * 1_048_577})
    with pytest.raises(MessageFormatException, match="bytes in all"):
        deliver(message)
