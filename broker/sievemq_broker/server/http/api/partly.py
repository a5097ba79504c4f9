"""Reads the beginning of a packed body, value by value: the rest of a hostile message is never decoded."""

from __future__ import annotations

from base64 import b64encode
from typing import Any, Final

import msgpack

from sievemq_core.errors import FormatError

#: The extensions of an object (docs/protocol.md, ObjectMessage).
_EXTENSIONS: Final = {
    1: "tuple", 2: "set", 3: "frozenset", 4: "int", 5: "datetime", 6: "date", 7: "time", 8: "timedelta", 9: "Decimal",
    10: "UUID", 11: "registered", 12: "wrapper", 13: "complex",
}  # fmt: skip

#: First bytes of msgpack's arrays and maps.
_ARRAYS: Final = frozenset((*range(0x90, 0xA0), 0xDC, 0xDD))
_MAPS: Final = frozenset((*range(0x80, 0x90), 0xDE, 0xDF))

_CUT: Final = {"$type": "…"}
_MORE: Final = "there is more behind its end"

_pack: Final = msgpack.Packer(use_bin_type=True, unicode_errors="surrogatepass").pack


class _Reader:
    """Reads one value after the other."""

    __slots__ = ("_content", "_unpacker")

    def __init__(self, content: bytes) -> None:
        self._content = content
        self._unpacker = msgpack.Unpacker(
            strict_map_key=False, unicode_errors="surrogatepass", max_buffer_size=max(len(content), 1)
        )
        self._unpacker.feed(content)

    @property
    def at_end(self) -> bool:
        return bool(self._unpacker.tell() >= len(self._content))

    def array(self) -> int | None:
        """How many values follow in the array that begins here; None if none does."""
        return int(self._unpacker.read_array_header()) if self._next() in _ARRAYS else None

    def map(self) -> int | None:
        """How many pairs follow in the map that begins here; None if none does."""
        return int(self._unpacker.read_map_header()) if self._next() in _MAPS else None

    def scalar(self) -> Any:
        """The value that is next.

        Raises:
            FormatError: it is an array or a map.
        """
        if self._next() in _ARRAYS or self._next() in _MAPS:
            raise FormatError("the body must hold scalars only")
        return self._unpacker.unpack()

    def _next(self) -> int:
        return -1 if self.at_end else self._content[self._unpacker.tell()]


def beginning(content: bytes, limit: int, *, named: bool) -> tuple[bytes, bool]:
    """The body of a MapMessage or StreamMessage with only its first values.

    Args:
        content: of the body.
        limit: values.
        named: a MapMessage's.

    Returns:
        The body, and whether values were left out.

    Raises:
        FormatError: it cannot be decoded so far.
    """
    try:
        reader = _Reader(content)
        parts = reader.array()
        letters = reader.scalar() if parts else None
        count = reader.map() if named else reader.array()
        if parts is None or parts < 2 or count is None:
            raise ValueError(f"it is no array of types and {'a map' if named else 'an array'}")
        names, values = [], []
        for _ in range(min(count, limit)):
            if named:
                names.append(reader.scalar())
            values.append(reader.scalar())
        cut = count > limit
        if cut and isinstance(letters, str):
            letters = letters[: len(values)]
        elif parts == 2 and not cut and not reader.at_end:
            raise ValueError(_MORE)
        packed: bytes = _pack((letters, dict(zip(names, values, strict=True)) if named else values))
    except (ValueError, TypeError, msgpack.UnpackException) as error:
        raise FormatError(f"the body cannot be decoded: {error or type(error).__name__}") from None
    return packed, cut


class Outline:
    """The content of an object, as plain data: types that JSON lacks are named with `$type`. No Python object is
    created.

    Args:
        values: that are shown; what follows them is cut off.
        depth: levels that are shown.
    """

    __slots__ = ("_depth", "_left")

    def __init__(self, values: int, depth: int) -> None:
        self._left = values
        self._depth = depth

    def of(self, content: bytes) -> Any:
        """The outline of a packed object.

        Raises:
            FormatError: it cannot be decoded so far.
        """
        try:
            return self._whole(content, 0)
        except (ValueError, TypeError, msgpack.UnpackException) as error:
            text = f"the body of an ObjectMessage cannot be decoded: {error or type(error).__name__}"
            raise FormatError(text) from None

    def _whole(self, content: bytes, depth: int) -> Any:
        reader = _Reader(content)
        shown = self._show(reader, depth)
        if self._left >= 0 and not reader.at_end:
            raise ValueError(_MORE)
        return shown

    def _show(self, reader: _Reader, depth: int) -> Any:
        self._left = -1 if depth > self._depth else self._left - 1
        if self._left < 0:
            return _CUT
        if (count := reader.array()) is not None:
            return self._items(reader, count, depth + 1)
        if (count := reader.map()) is not None:
            pairs = self._pairs(reader, count, depth + 1)
            if all(isinstance(key, str) for key, _ in pairs):
                return dict(pairs)
            return {"$type": "dict", "value": pairs}
        value = reader.scalar()
        if isinstance(value, msgpack.ExtType):
            known = _EXTENSIONS.get(value.code)
            shown = None if known is None else self._whole(value.data, depth + 1)
            return {"$type": known or f"extension {value.code}", "value": shown}
        if isinstance(value, bytes):
            return {"$type": "bytes", "value": b64encode(value).decode()}
        if isinstance(value, float) and value - value != 0:
            return {"$type": "float", "value": str(value)}
        if isinstance(value, msgpack.Timestamp):
            return {"$type": "timestamp", "value": str(value)}
        return value

    def _items(self, reader: _Reader, count: int, depth: int) -> list[Any]:
        shown: list[Any] = []
        while len(shown) < count and self._left >= 0:
            shown.append(self._show(reader, depth))
        return shown

    def _pairs(self, reader: _Reader, count: int, depth: int) -> list[list[Any]]:
        shown: list[list[Any]] = []
        while len(shown) < count and self._left >= 0:
            key = self._show(reader, depth)
            if self._left < 0:
                break
            shown.append([key, self._show(reader, depth)])
        return shown
