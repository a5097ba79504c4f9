"""Section 23, MapMessage (MAP)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from sievemq import MapMessage, MessageNotWriteableException, NullValueError, NumberFormatError, Short

from .values import OBJECTS, TYPED


@pytest.mark.parametrize("kind", ["boolean", "byte", "short", "char", "int", "long", "float", "double", "string"])
def test_map_01_typed_entries(kind, deliver):
    for number, (written, value) in enumerate(TYPED):
        if written == kind:
            message = MapMessage()
            getattr(message, f"set_{kind}")(f"n{number}", value)
            assert getattr(deliver(message), f"get_{kind}")(f"n{number}") == value


@pytest.mark.parametrize(
    "kind", ["boolean", "byte", "short", "char", "int", "long", "float", "double", "string", "bytes", "object"]
)
@pytest.mark.parametrize("name", [None, "", 7])
def test_map_01_a_name_must_be_text_and_not_empty(kind, name):
    value = {"boolean": True, "char": "c", "string": "x", "bytes": b"x"}.get(kind, 1)
    with pytest.raises(ValueError):
        getattr(MapMessage(), f"set_{kind}")(name, value)


def test_map_02_set_bytes(deliver):
    message = MapMessage()
    message.set_bytes("a", b"abc")
    message.set_bytes("b", bytearray(b"abcdef"), 1, 2)
    message.set_bytes("c", None)
    here = deliver(message)
    assert (here.get_bytes("a"), here.get_bytes("b"), here.get_bytes("c")) == (b"abc", b"bc", None)
    with pytest.raises(IndexError):
        message.set_bytes("a", b"abc", 2, 2)


def test_map_03_map_04_nul_11_set_object_and_get_object_keep_the_type(deliver):
    here = deliver(MapMessage({f"n{n}": value for n, value in enumerate(OBJECTS)}))
    read = [here.get_object(f"n{n}") for n in range(len(OBJECTS))]
    assert read == OBJECTS
    assert [type(value) for value in read] == [type(value) for value in OBJECTS]


def test_map_05_a_name_never_set_is_a_null():
    message = MapMessage()
    assert (message.get_string("a"), message.get_bytes("a"), message.get_object("a")) == (None, None, None)
    assert message.get_boolean("a") is False
    for kind, error in (("int", NumberFormatError), ("float", NullValueError), ("char", NullValueError)):
        with pytest.raises(error, match="entry 'a'"):
            getattr(message, f"get_{kind}")("a")


def test_map_06_map_07_names_include_those_with_a_null(deliver):
    here = deliver(MapMessage({"a": None, "b": 1}))
    names = here.get_map_names()
    assert isinstance(names, Iterator)
    assert sorted(names) == ["a", "b"]
    assert here.item_exists("a")
    assert not here.item_exists("c")


def test_map_08_a_received_map_is_read_only(deliver):
    here = deliver(MapMessage({"a": 1}))
    with pytest.raises(MessageNotWriteableException, match=r"clear_body\(\)"):
        here.set_int("b", 1)
    with pytest.raises(MessageNotWriteableException):
        here.set_bytes("b", b"")
    here.clear_body()
    assert not here.item_exists("a")
    here.set_int("b", 1)
    assert here.get_body(dict) == {"b": 1}


def test_map_09_get_body_gives_all_entries_in_their_types(deliver):
    body = deliver(MapMessage({"a": Short(1), "b": "x", "c": None})).get_body(dict)
    assert body == {"a": 1, "b": "x", "c": None}
    assert type(body["a"]) is Short


def test_map_10_a_second_set_replaces_value_and_type(deliver):
    message = MapMessage({"a": Short(1)})
    message.set_string("a", "two")
    assert deliver(message).get_object("a") == "two"


@pytest.mark.parametrize("name", ["a b", "1", "NULL", "größe", "\0", "a.b", " "])
def test_map_11_names_are_any_text(name, deliver):
    assert deliver(MapMessage({name: 7})).get_int(name) == 7
