"""Properties of many messages as Arrow arrays, name by name: the values of a name are of one type as a rule.

All values of a page stand in one row, message behind message. The values of each name are converted together and put
into the row by position, one row for each type. What is unusual (text that UTF-8 cannot hold, letters that do not fit)
takes the slow way, value by value, as :func:`sievemq_spark.schema.typed` has it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain, compress
from typing import Annotated, Any, Final

import msgspec
import numpy as np
import pyarrow as pa

from sievemq_core.errors import ProtocolError
from sievemq_core.limits import MAX_PROPERTIES
from sievemq_core.message.envelope import PROPERTIES, EnvelopeFields, unpack_properties, well_formed
from sievemq_core.message.values import INT_MAX, INT_MIN, LONG_MAX, PropertyValue
from sievemq_spark.columns import TYPES
from sievemq_spark.errors import UnusualError
from sievemq_spark.schema import WIDENS, typed

_RANGES: Final = {"b": (-128, 127), "h": (-32768, 32767), "l": (-(2**63), 2**63 - 1)}
#: Takes the place of a letter where a message has none.
_UNSAID: Final = "?"
_IS_LETTER: Final = np.isin(np.arange(256), np.frombuffer(b"zbhilfds" + _UNSAID.encode(), np.uint8))
_NO_HEADERS: Final = (None,) * PROPERTIES


_NONE: Final[dict[str, Any]] = {}

_Value = str | Annotated[int, msgspec.Meta(le=LONG_MAX)] | float | bool | None
_decode: Final = msgspec.msgpack.Decoder(Annotated[dict[str, _Value], msgspec.Meta(max_length=MAX_PROPERTIES)]).decode


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

    Attributes:
        each: the properties of each message, as msgpack has them: not held in wrappers.

    """

    def __init__(self, packed: Sequence[bytes | None], letters: Sequence[str | None]) -> None:
        try:
            self.each: Sequence[dict[str, Any]] = [_NONE if each is None else _decode(each) for each in packed]
            self._read(letters)
        except (UnusualError, LookupError, ValueError, TypeError, OverflowError, RecursionError, pa.ArrowException):
            self._read_slowly(packed, letters)

    def _count(self) -> None:
        each = self.each
        self.offsets = np.zeros(len(each) + 1, np.int32)
        np.cumsum(np.fromiter(map(len, each), np.int32, len(each)), out=self.offsets[1:])
        self._alike = len(set(map(tuple, each))) == 1  # as most messages of a queue are
        if self._alike:
            number = {name: place for place, name in enumerate(each[0])}
            self._numbers = np.tile(np.arange(len(number), dtype=np.int32), len(each))
        else:
            names = list(chain.from_iterable(each))
            number = {name: place for place, name in enumerate(dict.fromkeys(names))}
            self._numbers = np.fromiter(map(number.__getitem__, names), np.int32, len(names))
        self._number = number
        self.names = pa.array(map(well_formed, number), pa.string())

    def _places(self) -> list[Any]:
        """Where the values of each name stand, as indexes into the row."""
        count = len(self._number)
        if self._alike:
            return [slice(place, None, count) for place in range(count)]
        ends = np.cumsum(np.bincount(self._numbers, minlength=count))
        return np.split(np.argsort(self._numbers, kind="stable"), ends[:-1])

    def _read(self, letters: Sequence[str | None]) -> None:
        self._count()
        total = len(self._numbers)
        values = np.fromiter(chain.from_iterable(map(dict.values, self.each)), object, total)
        rows = {kind: np.zeros(total, kind) for kind in (bool, int, float)}
        there = {kind: np.zeros(total, np.bool_) for kind in (bool, int, float, str, type(None))}
        for places in self._places():
            column = values[places].tolist()
            kinds = set(map(type, column))
            for kind in kinds:
                here, found = places, column
                if len(kinds) > 1:
                    chosen = [type(value) is kind for value in column]
                    here, found = np.arange(total)[places][chosen], list(compress(column, chosen))
                there[kind][here] = True
                if kind in rows:
                    rows[kind][here] = np.fromiter(found, kind, len(found))
        booleans, integers, reals, texts, _ = there.values()
        long, double = rows[int], rows[float]
        t = np.full(total, ord("s"), np.uint8)
        t[booleans] = ord("z")
        t[reals] = ord("d")
        t[integers] = ord("i")
        t[(long < INT_MIN) | (long > INT_MAX)] = ord("l")
        if any(letters):
            said = _joined(letters, self.each)
            said[there[type(None)]] = ord(_UNSAID)
            for letter, (low, high) in _RANGES.items():
                here = said == ord(letter)
                held = long[here]
                if not integers[here].all() or (len(held) and (held.min() < low or held.max() > high)):
                    raise UnusualError
                t[here] = ord(letter)
            here = said == ord("f")
            if not reals[here].all():
                raise UnusualError
            t[here] = ord("f")
            with np.errstate(over="ignore"):
                double[here] = double[here].astype(np.float32)
        self.t = t
        self.b, self.l = pa.array(rows[bool], mask=~booleans), pa.array(long, mask=~integers)
        self.d = pa.array(double, mask=~reals)
        self.s = _spread_texts(pa.array(values[texts], pa.string()), texts)

    def _read_slowly(self, packed: Sequence[bytes | None], letters: Sequence[str | None]) -> None:
        held = [properties_or_none((*_NO_HEADERS, *pair)) for pair in zip(packed, letters, strict=True)]
        self.each = held
        self._count()
        items = [typed(value) for each in held for value in each.values()]
        t, b, long, d, s = zip(*items, strict=True) if items else ((),) * 5
        self.t = np.frombuffer("".join(t).encode(), np.uint8)
        self.b, self.l = pa.array(b, pa.bool_()), pa.array(long, pa.int64())
        self.d, self.s = pa.array(d, pa.float64()), pa.array(s, pa.string())

    def maps(self, kind: pa.MapType) -> pa.MapArray:
        """The column `properties`."""
        keys = self.names.take(pa.array(self._numbers))
        total = len(self._numbers)
        t = pa.Array.from_buffers(
            pa.string(), total, [None, pa.py_buffer(np.arange(total + 1, dtype=np.int32)), pa.py_buffer(self.t)]
        )
        structs = pa.StructArray.from_arrays([t, self.b, self.l, self.d, self.s], fields=list(kind.item_type))
        return pa.MapArray.from_arrays(pa.array(self.offsets), keys, structs, type=kind)

    def promoted(self, columns: Mapping[str, str]) -> list[pa.Array]:
        """Columns of properties: the value where its type is the column's or widens to it, NULL elsewhere."""
        return [self._column(name, TYPES[kind]) for name, kind in columns.items()]

    def _column(self, name: str, letter: str) -> pa.Array:
        values = self.s if letter == "s" else self.b if letter == "z" else self.d if letter in "fd" else self.l
        places = np.full(len(self.each), -1, np.int64)
        if name in self._number:
            there = np.nonzero(self._numbers == self._number[name])[0]
            there = there[np.isin(self.t[there], np.frombuffer(WIDENS[letter].encode(), np.uint8))]
            places[np.searchsorted(self.offsets, there, "right") - 1] = there
        return values.take(pa.array(places, mask=places < 0))

    def values_of(self, name: str) -> list[PropertyValue]:
        """A property of each message, None where there is none."""
        if name not in self._number:
            return [None] * len(self.each)
        return [each.get(name) for each in self.each]


def _joined(letters: Sequence[str | None], each: Sequence[Mapping[str, Any]]) -> Any:
    said = [_UNSAID * len(one) if some is None else some for some, one in zip(letters, each, strict=True)]
    if list(map(len, said)) != list(map(len, each)):
        raise UnusualError
    joined = np.frombuffer(bytearray("".join(said), "ascii"), np.uint8)  # writable
    if not _IS_LETTER[joined].all():
        raise UnusualError
    return joined


def _spread_texts(texts: pa.StringArray, mask: Any) -> pa.StringArray:
    """Texts one behind the other as an array that has them where the mask is true, NULL elsewhere: their characters
    stay where they are."""
    _, offsets, characters = texts.buffers()
    if not len(texts):
        return pa.nulls(len(mask), pa.string())
    before = np.zeros(len(mask) + 1, np.int32)
    np.cumsum(mask, out=before[1:])
    spread = np.frombuffer(offsets, np.int32, len(texts) + 1)[before]
    there = np.packbits(mask, bitorder="little")
    return pa.StringArray.from_buffers(len(mask), pa.py_buffer(spread), characters, pa.py_buffer(there))
