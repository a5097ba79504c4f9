"""Map and Stream bodies as XML, the way IBM MQ shows them to readers that do not know JMS (D-20, XML-01 to XML-06).

    <stream><elt dt='i4'>7</elt><elt>text</elt><elt xsi:nil='true'></elt></stream>
    <map><carrier>UA</carrier><delay dt='i2'>12</delay><elt name='air time' dt='r8'>1.5</elt></map>

Reading is safe against hostile documents: a document type declaration is refused, so there are no entities to expand
and nothing is ever fetched; size and number of fields are bounded.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final
from xml.parsers import expat

from sievemq.exceptions import MessageFormatException
from sievemq_core.errors import FormatError
from sievemq_core.limits import MAX_BODY_BYTES
from sievemq_core.message.conversion import parse_floating, parse_integer, text_of
from sievemq_core.message.values import BodyValue, Char, hold, letter_of

#: Fields of one document: more than any real body, few enough that a hostile one is no burden.
_MAX_FIELDS: Final = 1_000_000

_CODES: Final = {
    "z": "boolean", "b": "i1", "h": "i2", "i": "i4", "l": "i8", "f": "r4", "d": "r8", "c": "char", "x": "bin.hex",
    "s": "string",
}  # fmt: skip
_LETTERS: Final = {code: letter for letter, code in _CODES.items()}

#: Names that are written as tags; others are written in the attribute `name` (XML-02).
_TAG: Final = re.compile(r"(?![xX][mM][lL])[A-Za-z_][A-Za-z0-9_.-]*", re.ASCII)

# What XML 1.0 cannot carry in any form.
_FORBIDDEN: Final = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
# Parsers change or merge these unless they are written as character references.
_ESCAPES: Final = {"&": "&amp;", "<": "&lt;", ">": "&gt;", "'": "&apos;", "\r": "&#13;", "\n": "&#10;", "\t": "&#9;"}
_ESCAPED: Final = re.compile("[&<>'\r\n\t]")


# -- writing ----------------------------------------------------------------------------------------------------------


def stream_to_xml(values: Iterable[BodyValue]) -> str:
    """The fields of a StreamMessage as XML (XML-01).

    Raises:
        MessageFormatException: text with a character that XML cannot carry.
    """
    elements = [_element("elt", "", f"field {number}", value) for number, value in enumerate(values)]
    return _document("stream", elements)


def map_to_xml(entries: Mapping[str, BodyValue]) -> str:
    """The entries of a MapMessage as XML (XML-02).

    Raises:
        MessageFormatException: a name or text with a character that XML cannot carry.
    """
    elements = []
    for name, value in entries.items():
        where = f"entry {name!r:.60}"
        if _TAG.fullmatch(name) and name != "elt":
            elements.append(_element(name, "", where, value))
        else:
            elements.append(_element("elt", f" name='{_escape(name, where)}'", where, value))
    return _document("map", elements)


def _document(root: str, elements: list[str]) -> str:
    # the prefix of xsi:nil is declared where it is used, so that namespace-aware parsers take it too
    nil = any("xsi:nil=" in element for element in elements)
    declaration = " xmlns:xsi='http://www.w3.org/2001/XMLSchema-instance'" if nil else ""
    return f"<{root}{declaration}>{''.join(elements)}</{root}>"


def _element(tag: str, attribute: str, where: str, value: BodyValue) -> str:
    if value is None:
        return f"<{tag}{attribute} xsi:nil='true'></{tag}>"  # XML-05
    letter = letter_of(value)
    if letter == "s":
        kind = ""  # XML-03
    else:
        kind = f" dt='{_CODES[letter]}'"
    return f"<{tag}{attribute}{kind}>{_escape(_text(letter, value), where)}</{tag}>"


def _text(letter: str, value: BodyValue) -> str:
    if letter == "z":
        return "1" if value else "0"
    if isinstance(value, bytes):
        return value.hex().upper()
    return text_of(value)


def _escape(text: str, where: str) -> str:
    match = _FORBIDDEN.search(text)
    if match:
        raise MessageFormatException(f"{where}: XML cannot carry the character U+{ord(match[0]):04X}")
    return _ESCAPED.sub(lambda match: _ESCAPES[match[0]], text)


# -- reading ----------------------------------------------------------------------------------------------------------


def stream_from_xml(text: str | bytes) -> list[BodyValue]:
    """The fields of a ``<stream>`` document.

    Raises:
        MessageFormatException: it is not well formed or not of that form; names the line.
    """
    return [value for _, value in _read(text, "stream")]


def map_from_xml(text: str | bytes) -> dict[str, BodyValue]:
    """The entries of a ``<map>`` document; of two with one name the last counts (MAP-10).

    Raises:
        MessageFormatException: it is not well formed or not of that form; names the line.
    """
    return dict(_read(text, "map"))


def _read(text: str | bytes, root: str) -> list[tuple[str, BodyValue]]:
    if not isinstance(text, (str, bytes)):
        raise MessageFormatException(f"XML is text or bytes, not {type(text).__name__}")
    if len(text) > 4 * MAX_BODY_BYTES:  # hexadecimal doubles a body, tags may double it again
        raise MessageFormatException(f"an XML document of {len(text)} characters")
    # Text is decoded already: the encoding that its document declares is that of the bytes it came from.
    reader = _Reader(root, "utf-8" if isinstance(text, str) else None)
    try:
        reader.parser.Parse(text.encode("utf-8") if isinstance(text, str) else text, True)
    except (expat.ExpatError, ValueError, LookupError) as error:  # bytes may declare an encoding that expat lacks
        raise MessageFormatException(f"not well-formed XML: {error}") from error
    return reader.fields


class _Reader:
    """Follows one document of the form root / fields / text."""

    def __init__(self, root: str, encoding: str | None) -> None:
        self.fields: list[tuple[str, BodyValue]] = []
        self._root = root
        self._depth = 0
        self._name = ""
        self._kind: str | None = None
        self._text: list[str] = []
        self.parser = parser = expat.ParserCreate(encoding)
        parser.buffer_text = True
        parser.StartDoctypeDeclHandler = self._doctype
        parser.StartElementHandler = self._start
        parser.EndElementHandler = self._end
        parser.CharacterDataHandler = self._characters

    def _fail(self, problem: str) -> MessageFormatException:
        return MessageFormatException(f"line {self.parser.CurrentLineNumber} of the XML: {problem}")

    def _doctype(self, *_: object) -> None:
        raise self._fail("a document type declaration is not accepted")

    def _start(self, tag: str, attributes: dict[str, str]) -> None:
        self._depth += 1
        if self._depth == 1:
            if tag != self._root:
                raise self._fail(f"<{self._root}> is wanted, not <{tag:.60}>")
            return
        if self._depth > 2:
            raise self._fail(f"<{tag:.60}> inside a field")
        if len(self.fields) >= _MAX_FIELDS:
            raise self._fail(f"more than {_MAX_FIELDS} fields")
        if self._root == "stream" and tag != "elt":
            raise self._fail(f"a field of a stream is an <elt>, not <{tag:.60}>")
        self._name = attributes.get("name", tag) if tag == "elt" else tag
        self._kind = None if attributes.get("xsi:nil") in ("true", "1") else attributes.get("dt", "string")
        if self._kind is not None and self._kind not in _LETTERS:
            raise self._fail(f"dt='{self._kind:.60}' is none of {', '.join(_LETTERS)}")
        if self._root == "map" and not self._name:
            raise self._fail("an entry without a name")
        self._text.clear()

    def _characters(self, text: str) -> None:
        if self._depth == 2:
            self._text.append(text)
        elif text.strip():
            raise self._fail("text outside a field")

    def _end(self, _tag: str) -> None:
        self._depth -= 1
        if self._depth != 1:
            return
        text = "".join(self._text)
        if self._kind is None:
            if text:
                raise self._fail("a null with a value")
            value: BodyValue = None
        else:
            try:
                value = _value(_LETTERS[self._kind], text)
            except (FormatError, ValueError) as error:
                raise self._fail(f"{self._name:.60}: {error}") from error
        self.fields.append((self._name, value))


def _value(letter: str, text: str) -> BodyValue:
    if letter == "s":
        return text
    if letter == "z":
        if text not in ("1", "0", "true", "false"):
            raise FormatError(f"{text!r:.60} is not a boolean")
        return text in ("1", "true")
    if letter == "c":
        return Char(text)
    if letter == "x":
        return bytes.fromhex(text)
    return hold(letter, parse_integer(text, letter) if letter in "bhil" else parse_floating(text, letter))
