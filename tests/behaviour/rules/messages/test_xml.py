"""Section 23.7: Map and Stream bodies as XML (XML), safe to read (D-20)."""

from __future__ import annotations

import math
from xml.etree import ElementTree as ET

import pytest

from sievemq import Byte, Char, Float, Long, MapMessage, MessageFormatException, Short, StreamMessage

VALUES = [
    True,
    False,
    Byte(1),
    Short(2),
    3,
    Long(4),
    2**40,
    Float(0.5),
    1.5,
    -math.inf,
    Char("c"),
    b"\xab\x01",
    b"",
    "x",
    "",
    None,
]


def fields_of(message: StreamMessage) -> list[object]:
    message.reset()
    return [message.read_object() for _ in range(len(message._body))]


def test_xml_01_a_stream_is_elements_in_order():
    assert StreamMessage([7, "x"]).to_xml() == "<stream><elt dt='i4'>7</elt><elt>x</elt></stream>"
    assert StreamMessage().to_xml() == "<stream></stream>"


def test_xml_01_mode_and_pointer_do_not_matter(deliver):
    message = StreamMessage([7, 8])
    before = message.to_xml()
    message.write_int(9)
    message.reset()
    message.read_int()
    assert message.to_xml() != before
    assert message.read_int() == 8
    assert deliver(StreamMessage([7, 8])).to_xml() == before


def test_xml_02_a_map_has_its_names_as_tags():
    assert MapMessage({"a": 7, "b": "x"}).to_xml() == "<map><a dt='i4'>7</a><b>x</b></map>"


@pytest.mark.parametrize("name", ["a b", "1a", "elt", "a:b", "größe", "xmlns", "<&>'\"", " ", "-", "\n"])
def test_xml_02_names_that_are_no_tags_stand_in_an_attribute(name):
    message = MapMessage({name: 7})
    assert "<elt name=" in message.to_xml()
    assert MapMessage.from_xml(message.to_xml()).get_body(dict) == {name: 7}
    assert ET.fromstring(message.to_xml())[0].get("name") == name


def test_xml_03_text_has_no_type():
    assert "dt=" not in StreamMessage(["x"]).to_xml()
    assert fields_of(StreamMessage.from_xml("<stream><elt dt='string'>x</elt></stream>")) == ["x"]


@pytest.mark.parametrize(
    ("value", "element"),
    [
        (True, "<elt dt='boolean'>1</elt>"), (False, "<elt dt='boolean'>0</elt>"), (Byte(-1), "<elt dt='i1'>-1</elt>"),
        (Short(2), "<elt dt='i2'>2</elt>"), (3, "<elt dt='i4'>3</elt>"), (Long(4), "<elt dt='i8'>4</elt>"),
        (Float(0.5), "<elt dt='r4'>0.5</elt>"), (1e10, "<elt dt='r8'>1.0E10</elt>"),
        (Char("c"), "<elt dt='char'>c</elt>"),
        (b"\xab\x01", "<elt dt='bin.hex'>AB01</elt>"), ("x", "<elt>x</elt>"),
    ],
)  # fmt: skip
def test_xml_04_type_codes(value, element):
    assert StreamMessage([value]).to_xml() == f"<stream>{element}</stream>"


def test_xml_05_a_null():
    text = StreamMessage([None]).to_xml()
    assert "<elt xsi:nil='true'></elt>" in text
    assert fields_of(StreamMessage.from_xml("<stream><elt xsi:nil='true'></elt></stream>")) == [None]
    assert fields_of(StreamMessage.from_xml(text)) == [None]
    assert len(ET.fromstring(text)) == 1  # a parser that knows namespaces reads it too


@pytest.mark.parametrize("text", ["<&>'\"", "  a  ", "\ta\r\nb\n", "]]>", "&amp;", "😀", " "])
def test_xml_06_text_is_escaped_and_blanks_are_data(text):
    for message in (StreamMessage([text]), StreamMessage([Char(text[0])]) if text[0] <= "\uffff" else StreamMessage()):
        again = StreamMessage.from_xml(message.to_xml())
        assert fields_of(again) == fields_of(message)
    assert MapMessage.from_xml(MapMessage({"a": text}).to_xml().encode()).get_string("a") == text


def test_every_type_round_trips():
    again = fields_of(StreamMessage.from_xml(StreamMessage(VALUES).to_xml()))
    assert again == VALUES
    assert [type(value) for value in again] == [type(value) for value in VALUES]
    entries = {f"n{n}": value for n, value in enumerate(VALUES)}
    body = MapMessage.from_xml(MapMessage(entries).to_xml()).get_body(dict)
    assert body == entries
    assert [type(value) for value in body.values()] == [type(value) for value in VALUES]


def test_from_xml_returns_a_new_message():
    message = MapMessage.from_xml("<map><a>x</a></map>")
    message.set_int("b", 1)
    assert message.get_body(dict) == {"a": "x", "b": 1}
    stream = StreamMessage.from_xml("<stream/>")
    stream.write_int(1)


@pytest.mark.parametrize("text", ["\0", "\x1b", "\ud83d", "\ufffe"])
def test_a_character_that_xml_cannot_carry_is_named(text):
    with pytest.raises(MessageFormatException, match=r"field 0: XML cannot carry the character U\+"):
        StreamMessage([text]).to_xml()
    with pytest.raises(MessageFormatException, match="entry"):
        MapMessage({text: 1}).to_xml()


BOMB = """<?xml version="1.0"?><!DOCTYPE map [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;&a;&a;">]>
<map><x>&b;</x></map>"""
OUTSIDE = '<!DOCTYPE map SYSTEM "http://127.0.0.1:1/evil.dtd"><map><x>1</x></map>'


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (BOMB, "document type"), (OUTSIDE, "document type"), ("<map>&b;</map>", "not well-formed"),
        ("", "not well-formed"),
        ("<map>", "not well-formed"), ("<stream/>", "<map> is wanted"), ("<map><a><b/></a></map>", "inside a field"),
        ("<map>text</map>", "outside a field"), ("<map><a dt='i9'>1</a></map>", "dt='i9'"),
        ("<map><a dt='i1'>128</a></map>", "line 1.*128"), ("<map>\n<a dt='i4'> 1</a></map>", "line 2"),
        ("<map><a dt='boolean'>yes</a></map>", "boolean"), ("<map><a dt='char'>ab</a></map>", "code unit"),
        ("<map><a dt='bin.hex'>ABC</a></map>", "hexadecimal"), ("<map><elt name=''>1</elt></map>", "without a name"),
        ("<map><a xsi:nil='true'>1</a></map>", "null with a value"), ("<map><a>\ud83d</a></map>", "not well-formed"),
        (7, "text or bytes"),
    ],
)  # fmt: skip
def test_a_document_that_is_refused(text, problem):
    with pytest.raises(MessageFormatException, match=problem):
        MapMessage.from_xml(text)


def test_a_stream_has_only_elements_named_elt():
    with pytest.raises(MessageFormatException, match="is an <elt>"):
        StreamMessage.from_xml("<stream><a>1</a></stream>")


def test_too_many_fields_are_refused(monkeypatch):
    from sievemq.messages import xml

    monkeypatch.setattr(xml, "_MAX_FIELDS", 2)
    with pytest.raises(MessageFormatException, match="more than 2 fields"):
        StreamMessage.from_xml("<stream><elt/><elt/><elt/></stream>")


@pytest.mark.parametrize("encoding", ["ISO-8859-1", "US-ASCII", "UTF-16", "euc-jp", "nonsense"])
def test_the_declared_encoding_of_text_does_not_matter(encoding):
    document = f"<?xml version='1.0' encoding='{encoding}'?><map><a>é€</a></map>"
    assert MapMessage.from_xml(document).get_string("a") == "é€"


def test_the_declared_encoding_of_bytes_counts():
    document = "<?xml version='1.0' encoding='ISO-8859-1'?><stream><elt>é</elt></stream>"
    assert fields_of(StreamMessage.from_xml(document.encode("latin-1"))) == ["é"]


@pytest.mark.parametrize("encoding", ["euc-jp", "utf-7", "nonsense", "idna", "x" * 1_000])
def test_bytes_in_an_encoding_that_cannot_be_read_are_refused(encoding):
    document = f"<?xml version='1.0' encoding='{encoding}'?><map><a>1</a></map>"
    with pytest.raises(MessageFormatException, match="not well-formed"):
        MapMessage.from_xml(document.encode())
