"""The inner form of Text-, Map- and StreamMessage bodies (docs/protocol.md). A broker carries them unread.

    TEXT    UTF-8; surrogates as three bytes each, so that any Python text survives (TXT-03)
    MAP     msgpack [types | nil, {name: value}]
    STREAM  msgpack [types | nil, [value, …]]

`types` has a letter per value in order, as for properties; nil where every value's msgpack form says its type. BYTES
are the bytes themselves; the form of OBJECT belongs to the client.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import msgpack

from sievemq_core.errors import FormatError
from sievemq_core.limits import MAX_BODY_VALUES
from sievemq_core.message.values import (
    AMBIGUOUS,
    LONG_MAX,
    BodyValue,
    Byte,
    Char,
    Float,
    Short,
    letter_of,
    to_long,
)

_pack = msgpack.Packer(use_bin_type=True, unicode_errors="surrogatepass").pack

_LETTERED = AMBIGUOUS | {Char}
_FIELD_TYPES = frozenset({bool, int, float, str, bytes, type(None)})
_WRAP: dict[str, Callable[[Any], Any]] = {"b": Byte, "h": Short, "l": to_long, "f": Float, "c": Char}
#: What a letter may stand at; a letter at anything else is a broken body.
_FORMS: dict[str, frozenset[type]] = {
    "z": frozenset({bool}),
    **dict.fromkeys("bhil", frozenset({int})),
    **dict.fromkeys("fd", frozenset({float})),
    "s": frozenset({str, type(None)}),
    "c": frozenset({str}),
    "x": frozenset({bytes}),
}


def encode_text(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-8", "surrogatepass")


def decode_text(body: bytes) -> str:
    """The text of a TextMessage's body.

    Raises:
        FormatError: the body is not UTF-8.
    """
    try:
        return body.decode()
    except UnicodeDecodeError:
        try:
            return body.decode("utf-8", "surrogatepass")
        except UnicodeDecodeError as error:
            raise FormatError(f"the body of a TextMessage is not UTF-8: {error}") from error


def encode_map(entries: Mapping[str, BodyValue]) -> bytes:
    """The body of a MapMessage of held values.

    Raises:
        FormatError: they are too many.
    """
    packed: bytes = _pack((_letters(entries.values()), entries))
    check_count(packed, "a MapMessage")
    return packed


def encode_stream(values: list[BodyValue]) -> bytes:
    """The body of a StreamMessage of held values.

    Raises:
        FormatError: they are too many.
    """
    packed: bytes = _pack((_letters(values), values))
    check_count(packed, "a StreamMessage")
    return packed


def decode_map(body: bytes, most: int | None = None) -> dict[str, BodyValue]:
    """The held values of a MapMessage's body.

    Args:
        most: values that it may have, if these are fewer than MAX_BODY_VALUES.

    Raises:
        FormatError: the body is something else, or has more values.
    """
    letters, entries = _unpack(body, "MapMessage", most)
    if type(entries) is not dict or not all(type(name) is str for name in entries):
        raise FormatError("the body of a MapMessage must hold a map with text keys")
    return dict(zip(entries, _typed(letters, list(entries.values()), "MapMessage"), strict=True))


def decode_stream(body: bytes, most: int | None = None) -> list[BodyValue]:
    """The held values of a StreamMessage's body.

    Args:
        most: values that it may have, if these are fewer than MAX_BODY_VALUES.

    Raises:
        FormatError: the body is something else, or has more values.
    """
    letters, values = _unpack(body, "StreamMessage", most)
    if type(values) is not list:
        raise FormatError("the body of a StreamMessage must hold an array")
    return _typed(letters, values, "StreamMessage")


# By a value's first byte, the bytes to the next value; 0 where a length follows. The next values of an array, a map or
# an extension are what it holds.
_STEPS: Final = [1] * 256
for _number in range(32):
    _STEPS[0xA0 + _number] = 1 + _number
for _byte, _step in {0xCA: 5, 0xCB: 9, 0xCC: 2, 0xCD: 3, 0xCE: 5, 0xCF: 9, 0xD0: 2, 0xD1: 3, 0xD2: 5, 0xD3: 9}.items():
    _STEPS[_byte] = _step
for _byte in (0xD4, 0xD5, 0xD6, 0xD7, 0xD8):
    _STEPS[_byte] = 2
#: Width of the length; whether that number of bytes follows; bytes of an extension's type.
_LENGTHS: Final = {
    0xC4: (1, True, 0), 0xC5: (2, True, 0), 0xC6: (4, True, 0), 0xD9: (1, True, 0), 0xDA: (2, True, 0),
    0xDB: (4, True, 0), 0xC7: (1, False, 1), 0xC8: (2, False, 1), 0xC9: (4, False, 1), 0xDC: (2, False, 0),
    0xDD: (4, False, 0), 0xDE: (2, False, 0), 0xDF: (4, False, 0),
}  # fmt: skip
for _byte in _LENGTHS:
    _STEPS[_byte] = 0


def check_count(body: bytes, of: str, most: int | None = None) -> None:
    """Count the values of a packed body before they are unpacked; extensions contain packed values, too.

    A body of at most that many bytes cannot contain more values and is not examined. Examining a larger one takes some
    0.2 µs for each value.

    Args:
        most: values that there may be, MAX_BODY_VALUES unless it is given.

    Raises:
        FormatError: there are more.
    """
    if most is None:
        most = MAX_BODY_VALUES
    position, end = 0, len(body)
    if end <= most:
        return
    count = 0
    while position < end:
        count += 1
        if count > most:
            raise FormatError(
                f"the body of {of} holds more than {most:,} values; send them in several messages or as the "
                "bytes of a BytesMessage"
            )
        byte = body[position]
        step = _STEPS[byte]
        if step:
            position += step
        else:
            width, skip, more = _LENGTHS[byte]
            if skip:
                position += int.from_bytes(body[position + 1 : position + 1 + width])
            position += 1 + width + more


def _letters(values: Iterable[BodyValue]) -> str | None:
    values = list(values)
    if _LETTERED.isdisjoint(map(type, values)):
        return None
    return "".join(map(letter_of, values))


def _unpack(body: bytes, kind: str, most: int | None) -> tuple[str | None, Any]:
    check_count(body, f"a {kind}", most)
    try:
        decoded = msgpack.unpackb(body, unicode_errors="surrogatepass")
    except (ValueError, TypeError, msgpack.UnpackException) as error:  # TypeError: an unhashable key
        raise FormatError(f"the body of a {kind} cannot be decoded: {error or type(error).__name__}") from error
    if type(decoded) is not list or len(decoded) < 2 or type(decoded[0]) not in (str, type(None)):
        raise FormatError(f"the body of a {kind} must be an array of types and values")
    return decoded[0], decoded[1]


def _typed(letters: str | None, values: list[Any], kind: str) -> list[BodyValue]:
    if not _FIELD_TYPES.issuperset(map(type, values)):
        raise FormatError(f"the body of a {kind} must hold scalars only")
    if any(type(value) is int and value > LONG_MAX for value in values):
        raise FormatError(f"the body of a {kind} holds an integer that does not fit 64 bits, signed")
    if letters is None:
        return values
    if len(letters) != len(values):
        raise FormatError(f"the body of a {kind} has {len(letters)} type letters for {len(values)} values")
    for position, (letter, value) in enumerate(zip(letters, values, strict=True)):
        if type(value) not in _FORMS.get(letter, ()):
            raise FormatError(f"the body of a {kind} has a {type(value).__name__} with the type letter {letter!r}")
        if letter in "bhlfc":
            values[position] = _WRAP[letter](value)
    return values
