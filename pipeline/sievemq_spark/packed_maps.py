"""Many packed maps of scalars, read together: no Python object is made for a key or a value.

The maps stand in one buffer, one behind the other, and are walked side by side: one step finds the next key of each
map, and the value behind it. Then all values of one msgpack form are converted in one call, and Arrow copies the texts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa

from sievemq_core.limits import MAX_PROPERTIES
from sievemq_spark.errors import UnusualError

#: Forms of msgpack, by their first byte: what follows it.
_INTEGERS: Final = {
    0xCC: "u1", 0xCD: ">u2", 0xCE: ">u4", 0xCF: ">i8", 0xD0: "i1", 0xD1: ">i2", 0xD2: ">i4", 0xD3: ">i8",
}  # fmt: skip
_UNSIGNED_LONG: Final = 0xCF
_REALS: Final = {0xCA: ">f4", 0xCB: ">f8"}
_TEXTS: Final = {0xD9: "u1", 0xDA: ">u2"}  # their length
_NIL, _FALSE, _TRUE, _MAP = 0xC0, 0xC2, 0xC3, 0xDE

#: Kinds of values, by first byte; 0 is none that is read here.
INTEGER, REAL, BOOLEAN, TEXT, NULL = range(1, 6)
_KIND_OF: Final = np.zeros(256, np.uint8)
#: Bytes of a value, if its first byte determines them, else 0; those before a number or the characters of a text.
_SIZES: Final = np.zeros(256, np.int64)
_HEADS: Final = np.ones(256, np.int64)
#: The integers that are their first byte.
_SMALL: Final = np.zeros(256, np.int64)

_SMALL[:0x80], _SMALL[0xE0:] = np.arange(0x80), np.arange(-0x20, 0)
_KIND_OF[:0x80] = _KIND_OF[0xE0:] = INTEGER
_SIZES[:0x80] = _SIZES[0xE0:] = 1
_KIND_OF[0xA0:0xC0] = TEXT
_SIZES[0xA0:0xC0] = 1 + np.arange(32)
for _byte, _kind in ((_NIL, NULL), (_FALSE, BOOLEAN), (_TRUE, BOOLEAN)):
    _KIND_OF[_byte], _SIZES[_byte] = _kind, 1
for _table, _kind in ((_INTEGERS, INTEGER), (_REALS, REAL), (_TEXTS, TEXT)):
    for _byte, _form in _table.items():
        _KIND_OF[_byte] = _kind
        _HEADS[_byte] += np.dtype(_form).itemsize if _kind == TEXT else 0
        _SIZES[_byte] = 0 if _kind == TEXT else 1 + np.dtype(_form).itemsize


class PackedMaps:
    """The entries of many maps, map behind map.

    Args:
        packed: the maps; None is an empty one.

    Attributes:
        offsets: entries in all maps before each one; the last is the number of all.
        kinds: INTEGER, REAL, BOOLEAN, TEXT or NULL, for each value.

    Raises:
        UnusualError: a map has more than MAX_PROPERTIES entries, or is not whole; a key is no text; a value is no
            scalar, or text of 64 KiB or more.
        IndexError: the last map is not whole.
    """

    def __init__(self, packed: Sequence[bytes | None]) -> None:
        held = [b"\x80" if each is None else each for each in packed]
        self._data = data = np.frombuffer(b"".join((*held, bytes(8))), np.uint8)
        sizes = np.fromiter(map(len, held), np.int64, len(held))
        ends = np.cumsum(sizes)
        begins = ends - sizes
        long = data[begins] == _MAP
        counts = np.where(long, self._numbers(">u2", begins), data[begins] & 15).astype(np.int64)
        if not (long | (data[begins] >> 4 == 8)).all() or counts.max(initial=0) > MAX_PROPERTIES:
            raise UnusualError
        self.offsets = np.zeros(len(held) + 1, np.int32)
        np.cumsum(counts, out=self.offsets[1:])
        self._walk(begins + np.where(long, 3, 1), ends, counts)
        self._forms = data.take(self._values)
        self.kinds = _KIND_OF.take(self._forms)
        if not self.kinds.all():
            raise UnusualError

    def _walk(self, at: Any, ends: Any, counts: Any) -> None:
        """Find where each key and each value begins.

        Args:
            at, ends: where the first entry of each map begins, and where the map ends.
            counts: entries of each.
        """
        by_count = np.argsort(-counts, kind="stable")  # those with an entry of some number are the first ones then
        at, entry = at[by_count], self.offsets[:-1][by_count].astype(np.int64)
        keys, values = np.empty((2, self.offsets[-1]), np.int64)
        for some in np.cumsum(np.bincount(counts)[::-1])[-2::-1].tolist():
            here, place = at[:some], entry[:some]
            keys[place] = here
            here += self._sizes(here)
            values[place] = here
            here += self._sizes(here)
            place += 1
        if (at != ends[by_count]).any():
            raise UnusualError
        self._keys, self._values = keys, values

    def _sizes(self, at: Any) -> Any:
        """Bytes of the values that begin there."""
        forms = self._data.take(at)
        sizes = _SIZES.take(forms)
        if not sizes.all():
            for byte, form in _TEXTS.items():
                here = forms == byte
                sizes[here] = _HEADS[byte] + self._numbers(form, at[here])
            if not sizes.all():
                raise UnusualError
        return sizes

    def _numbers(self, form: str, at: Any) -> Any:
        """The numbers behind first bytes."""
        kind = np.dtype(form)
        return np.ndarray(len(self._data) - kind.itemsize, kind, self._data.data, 1, (1,))[at]

    def integers(self) -> Any:
        """The integers, 0 for other values.

        Raises:
            UnusualError: one is beyond a long.
        """
        found = _SMALL.take(self._forms)
        self._convert(_INTEGERS, found)
        if (found[self._forms == _UNSIGNED_LONG] < 0).any():
            raise UnusualError
        return found

    def reals(self) -> Any:
        """The floating-point numbers, 0 for other values."""
        found = np.zeros(len(self._forms))
        self._convert(_REALS, found)
        return found

    def _convert(self, forms: dict[int, str], found: Any) -> None:
        for byte, form in forms.items():
            here = np.flatnonzero(self._forms == byte)
            if len(here):
                with np.errstate(invalid="ignore"):  # a signaling NaN
                    found[here] = self._numbers(form, self._values.take(here))

    def booleans(self) -> Any:
        """True where the value is."""
        return self._forms == _TRUE

    def keys(self) -> pa.StringArray:
        """The keys.

        Raises:
            UnusualError: one is no text.
            ArrowInvalid: one is not UTF-8.
        """
        forms = self._data.take(self._keys)
        if (_KIND_OF.take(forms) != TEXT).any():
            raise UnusualError
        texts = self._pieces(self._keys + _HEADS.take(forms), self._values)
        return texts.take(pa.array(np.arange(0, len(texts), 2, dtype=np.int32))).cast(pa.string())

    def texts(self) -> pa.StringArray:
        """The texts, NULL for other values.

        Raises:
            ArrowInvalid: one is not UTF-8.
        """
        there = self.kinds == TEXT
        here = np.flatnonzero(there)
        begins = self._values.take(here)
        texts = self._pieces(begins + _HEADS.take(self._forms.take(here)), begins + self._sizes(begins))
        places = np.zeros(len(there), np.int32)
        places[here] = np.arange(0, len(texts), 2)
        return texts.take(pa.array(places, mask=~there)).cast(pa.string())

    def _pieces(self, begins: Any, ends: Any) -> pa.BinaryArray:
        """The buffer in pieces: those with an even number begin and end there."""
        bounds = np.full((len(begins) + 1, 2), len(self._data), np.int32)
        bounds[:-1, 0], bounds[:-1, 1] = begins, ends
        buffers = [None, pa.py_buffer(bounds), pa.py_buffer(self._data)]
        return pa.Array.from_buffers(pa.binary(), 2 * len(begins), buffers)
