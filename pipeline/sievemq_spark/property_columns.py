"""Properties of many messages as Arrow arrays.

All values of a page stand in one row, message behind message; each kind of value is converted in one call. What is
unusual (text that UTF-8 cannot hold, letters that do not fit) takes the slow way, value by value, as
:func:`sievemq_spark.schema.typed` has it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa

from sievemq_core.errors import ProtocolError
from sievemq_core.message.envelope import PROPERTIES, EnvelopeFields, unpack_properties, well_formed
from sievemq_core.message.values import INT_MAX, INT_MIN, PropertyValue
from sievemq_spark.errors import UnusualError
from sievemq_spark.packed_maps import BOOLEAN, INTEGER, NULL, REAL, TEXT, PackedMaps
from sievemq_spark.schema import WIDENS, typed

#: Letter of the JMS type of a value, by its kind; an integer beyond an int is a long.
_LETTERS: Final = np.zeros(6, np.uint8)
for _kind, _letter in ((INTEGER, "i"), (REAL, "d"), (BOOLEAN, "z"), (TEXT, "s"), (NULL, "s")):
    _LETTERS[_kind] = ord(_letter)
#: By letter: the kind that a value must have whose type only the letter tells, else 0; the least and greatest integer.
_WRAPPED: Final = np.zeros(256, np.uint8)
_LEAST: Final = np.full(256, -(2**63), np.int64)
_MOST: Final = np.full(256, 2**63 - 1, np.int64)
_WRAPPED[[ord(_letter) for _letter in "bhl"]], _WRAPPED[ord("f")] = INTEGER, REAL
for _letter, _bits in (("b", 7), ("h", 15)):
    _LEAST[ord(_letter)], _MOST[ord(_letter)] = -(2**_bits), 2**_bits - 1
#: Takes the place of a letter where a message has none.
_UNSAID: Final = "?"
_IS_LETTER: Final = np.isin(np.arange(256), np.frombuffer(b"zbhilfds" + _UNSAID.encode(), np.uint8))
_NO_HEADERS: Final = (None,) * PROPERTIES


def properties_or_none(fields: EnvelopeFields) -> dict[str, PropertyValue]:
    """The properties of a message; none if they cannot be decoded, as an earlier version of the broker accepted them:
    a page must not fail for one of its messages (D-46)."""
    try:
        return unpack_properties(fields)
    except ProtocolError:
        return {}


class PropertyColumns:
    """The properties of a page of messages. A message whose properties cannot be decoded has none.

    Args:
        packed, letters: fields `properties` and `property_types` of the messages' envelopes.
    """

    def __init__(self, packed: Sequence[bytes | None], letters: Sequence[str | None]) -> None:
        try:
            self._read(PackedMaps(packed), letters)
        except (UnusualError, IndexError, TypeError, ValueError):  # Arrow's are ValueErrors
            self._read_slowly(packed, letters)

    def _read(self, maps: PackedMaps, letters: Sequence[str | None]) -> None:
        if self._name(maps.keys(), maps.offsets):
            raise UnusualError
        kinds, long, double = maps.kinds, maps.integers(), maps.reals()
        t = _LETTERS.take(kinds)
        t[(long < INT_MIN) | (long > INT_MAX)] = ord("l")
        if any(letters):
            said = _joined(letters, np.diff(maps.offsets))
            wanted = _WRAPPED.take(said)
            wanted[kinds == NULL] = 0
            wrapped = wanted > 0
            if ((wanted != kinds) & wrapped).any():
                raise UnusualError
            if ((long < _LEAST.take(said)) | (long > _MOST.take(said))).any():
                raise UnusualError
            t = np.where(wrapped, said, t)
            with np.errstate(over="ignore", invalid="ignore"):  # a signaling NaN is invalid
                double = np.where(t == ord("f"), double.astype(np.float32), double)
        self.t = t
        self.b = pa.array(maps.booleans(), mask=kinds != BOOLEAN)
        self.l, self.d = pa.array(long, mask=kinds != INTEGER), pa.array(double, mask=kinds != REAL)
        self.s = maps.texts()

    def _read_slowly(self, packed: Sequence[bytes | None], letters: Sequence[str | None]) -> None:
        each = [properties_or_none((*_NO_HEADERS, *pair)) for pair in zip(packed, letters, strict=True)]
        names = [well_formed(name) for one in each for name in one]
        self._name(pa.array(names, pa.string()), np.cumsum([0, *map(len, each)], dtype=np.int32))
        items = [typed(value) for one in each for value in one.values()]
        t, b, long, d, s = zip(*items, strict=True) if items else ((),) * 5
        self.t = np.frombuffer("".join(t).encode(), np.uint8)
        self.b, self.l = pa.array(b, pa.bool_()), pa.array(long, pa.int64())
        self.d, self.s = pa.array(d, pa.float64()), pa.array(s, pa.string())

    def _name(self, keys: pa.StringArray, offsets: Any) -> bool:
        """Keep the names of all values, and where those of each message begin. True if a message has a name twice."""
        self._keys, self._offsets = keys, offsets
        counts = np.diff(offsets)
        names = keys[: counts[0]]
        numbers = np.tile(np.arange(len(names), dtype=np.int32), len(counts))
        alike = (counts == counts[0]).all() and keys.equals(names.take(pa.array(numbers)))  # as most of a queue are
        if not alike:
            encoded = keys.dictionary_encode()
            names, numbers = encoded.dictionary, encoded.indices.to_numpy()
        self._numbers, self._number = numbers, {name: number for number, name in enumerate(names.to_pylist())}
        if alike:
            return len(self._number) < len(names)
        places = np.repeat(np.arange(len(counts)), counts) * len(names) + numbers
        return len(np.unique(places)) < len(places)

    def maps(self, kind: pa.MapType) -> pa.MapArray:
        """The column `properties`."""
        total = len(self.t)
        t = pa.Array.from_buffers(
            pa.string(), total, [None, pa.py_buffer(np.arange(total + 1, dtype=np.int32)), pa.py_buffer(self.t)]
        )
        structs = pa.StructArray.from_arrays([t, self.b, self.l, self.d, self.s], fields=list(kind.item_type))
        return pa.MapArray.from_arrays(pa.array(self._offsets), self._keys, structs, type=kind)

    def column(self, name: str, letter: str) -> pa.Array:
        """A column of a property: the value where its type is the column's or widens to it, NULL elsewhere."""
        values = self.s if letter == "s" else self.b if letter == "z" else self.d if letter in "fd" else self.l
        count = len(self._offsets) - 1
        if name not in self._number:
            return pa.nulls(count, values.type)
        there = np.nonzero(self._numbers == self._number[name])[0]
        there = there[np.isin(self.t[there], np.frombuffer(WIDENS[letter].encode(), np.uint8))]
        places = np.full(count, -1, np.int64)
        places[np.searchsorted(self._offsets, there, "right") - 1] = there
        return values.take(pa.array(places, mask=places < 0))


def _joined(letters: Sequence[str | None], counts: Any) -> Any:
    said = [_UNSAID * count if some is None else some for some, count in zip(letters, counts.tolist(), strict=True)]
    if (np.fromiter(map(len, said), np.int64, len(said)) != counts).any():
        raise UnusualError
    joined = np.frombuffer("".join(said).encode("ascii"), np.uint8)
    if not _IS_LETTER.take(joined).all():
        raise UnusualError
    return joined
