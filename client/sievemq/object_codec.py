"""The body of an ObjectMessage: plain data as msgpack, never pickle (D-19).

None, bool, int, float, str, bytes, list and dict are msgpack's own. What else is plain data travels as a msgpack
extension whose payload is msgpack again:

     1  tuple       [item, …]            6  date        "2026-01-31"
     2  set         [item, …]            7  time        "12:00:00+01:00"
     3  frozenset   [item, …]            8  timedelta   [days, seconds, microseconds]
     4  int beyond 64 bits  "123…"       9  Decimal     "1.10"
     5  datetime    "2026-01-31T…"      10  UUID        16 bytes
    11  a registered type   [name, {field: value}] of a dataclass, [name, "MEMBER"] of an enum,
                            [name, number] of an enum.Flag
    12  wrapper     [letter, value] of Byte, Short, Int, Long, Float, Double, Char
    13  complex     [real, imag]

A bytearray travels as bytes and arrives as bytes. msgpack's own timestamps are read as datetimes.

Decoding builds only these and what the application registered; nothing in a message names code. It takes time in
proportion to the size of the body: a large set or dict whose keys were chosen to collide is refused.
"""

from __future__ import annotations

import datetime as dt
import decimal
import enum
import inspect
import uuid
from collections.abc import Callable, Collection, Mapping, Sequence, Set
from dataclasses import MISSING, Field, is_dataclass
from dataclasses import fields as dataclass_fields
from typing import Any, ClassVar, Final, Protocol, TypeAlias, TypeVar, cast

import msgpack

from sievemq_core.errors import FormatError
from sievemq_core.message.body import check_count
from sievemq_core.message.values import Byte, Char, Double, Float, Int, Long, Short

C = TypeVar("C", bound=type)


class Registered(Protocol):
    """An object of a dataclass that was given to :func:`sievemq.register_type`."""

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]


#: What an ObjectMessage holds (D-19). Checked again when it is encoded: depth, range, registered types.
PlainData: TypeAlias = (
    "bool | int | float | complex | str | bytes | bytearray | dt.date | dt.time | dt.timedelta | decimal.Decimal"
    " | uuid.UUID | enum.Enum | Registered | Sequence[PlainData | None]"
    " | Set[PlainData | None] | Mapping[Any, PlainData | None]"
)

#: Extensions inside extensions: deeper than any real data, shallow enough for Python's stack.
_MAX_DEPTH: Final = 64

#: Python's own default limit for reading an int from text. Longer ones take quadratic time.
_MAX_DIGITS: Final = 4_300

#: Sets and dicts up to this size are not examined: even if all their keys collide, a key costs a microsecond or two.
_SMALL: Final = 256

#: Collisions allowed for each key of a larger one. Regular data, such as multiples of a power of two, has up to 50.
_COLLISIONS: Final = 128

_REGISTERED: Final = 11
_WRAPPER: Final = 12
_WRAPPERS: Final[dict[str, type]] = {
    "b": Byte, "h": Short, "i": Int, "l": Long, "f": Float, "d": Double, "c": Char,
}  # fmt: skip
_LETTERS: Final = {kind: letter for letter, kind in _WRAPPERS.items()}

_by_name: dict[str, type] = {}
_names: dict[type, str] = {}


def register_type(cls: C, name: str | None = None) -> C:
    """Let objects of a dataclass or enum travel in ObjectMessages. Both ends register it; usable as a decorator.

    Args:
        cls: a dataclass or an Enum. Objects are built by calling it, so what its ``__post_init__`` refuses does not
            get through. A field that the sender does not know takes its default; one that the receiver does not know is
            left out.
        name: what names it on the wire, the same at both ends; ``module.Class`` if not given.

    Returns:
        The class.

    Raises:
        TypeError: it is neither a dataclass nor an enum; or building it needs a value that no field keeps (an InitVar
            without a default).
        ValueError: another class has the name.

    >>> from dataclasses import dataclass
    >>> from sievemq.messages import ObjectMessage
    >>> @register_type
    ... @dataclass
    ... class Order:
    ...     number: int
    ...     lines: tuple[str, ...] = ()
    >>> ObjectMessage(Order(7, ("tea",))).get_object()
    Order(number=7, lines=('tea',))
    """
    if not isinstance(cls, type) or not (is_dataclass(cls) or issubclass(cls, enum.Enum)):
        raise TypeError(f"register_type takes a dataclass or an Enum class, not {cls!r:.80}")
    if is_dataclass(cls) and (parameter := _not_kept(cls)) is not None:
        raise TypeError(f"an object of {cls.__qualname__} cannot be built again: no field keeps {parameter!r}")
    if name is None:
        name = f"{cls.__module__}.{cls.__qualname__}"
    other = _by_name.get(name)
    # A module that is reloaded brings the same class again; only a different class of that name is a mistake.
    if other is not None and (other.__module__, other.__qualname__) != (cls.__module__, cls.__qualname__):
        raise ValueError(f"{other.__module__}.{other.__qualname__} is registered as {name!r} already")
    _by_name[name] = cls
    _names[cls] = name
    return cls


def _not_kept(cls: type) -> str | None:
    """A parameter that building an object of a dataclass needs and no field keeps, such as an InitVar."""
    fields = {field.name for field in dataclass_fields(cast("Any", cls))}
    variadic = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    for parameter in inspect.signature(cls).parameters.values():
        if parameter.default is parameter.empty and parameter.kind not in variadic and parameter.name not in fields:
            return parameter.name
    return None


# -- encoding ---------------------------------------------------------------------------------------------------------


def encode_object(value: object) -> bytes:
    """Plain data as bytes.

    Raises:
        FormatError: something in it is neither plain data nor of a registered type; or it holds too many values.
    """
    try:
        data: bytes = _packer(0).pack(value)
    except Exception as error:  # also what a property of a registered class raises
        raise FormatError(f"this object cannot travel in an ObjectMessage: {_reason(error)}") from error
    check_count(data, "an ObjectMessage")
    return data


def _packer(depth: int) -> msgpack.Packer:
    # One per use: a shared packer must not be entered again by what `default` calls.
    def default(value: Any) -> msgpack.ExtType:
        return _extension(value, depth + 1)

    return msgpack.Packer(use_bin_type=True, strict_types=True, unicode_errors="surrogatepass", default=default)


def _extension(value: Any, depth: int) -> msgpack.ExtType:
    if depth > _MAX_DEPTH:
        raise ValueError(f"it is nested more than {_MAX_DEPTH} levels deep")
    kind = type(value)
    encoder = _ENCODERS.get(kind)
    if encoder is not None:
        code, form = encoder
        return msgpack.ExtType(code, _packer(depth).pack(form(value)))
    letter = _LETTERS.get(kind)
    if letter is not None:
        plain = int(value) if isinstance(value, int) else float(value) if isinstance(value, float) else str(value)
        return msgpack.ExtType(_WRAPPER, _packer(depth).pack([letter, plain]))
    name = _names.get(kind)
    if name is not None:
        content = _member(value) if isinstance(value, enum.Enum) else _contents(value)
        return msgpack.ExtType(_REGISTERED, _packer(depth).pack([name, content]))
    hint = "; register it with sievemq.register_type" if is_dataclass(kind) or issubclass(kind, enum.Enum) else ""
    raise TypeError(f"{kind.__module__}.{kind.__qualname__} is not plain data{hint}")


def _member(value: enum.Enum) -> object:
    return value._value_ if isinstance(value, enum.Flag) else value._name_  # a combination of flags has no name


def _contents(value: Any) -> dict[str, object]:
    return {field.name: getattr(value, field.name) for field in dataclass_fields(value)}


def _days(value: dt.timedelta) -> list[int]:
    return [value.days, value.seconds, value.microseconds]


def _digits(value: int) -> str:
    text = str(value)
    if len(text.lstrip("-")) > _MAX_DIGITS:
        raise ValueError(f"an int of {len(text)} digits")
    return text


def _items(value: Set[Any]) -> list[Any]:
    _refuse_collisions(value)
    return list(value)


_ENCODERS: Final[dict[type, tuple[int, Callable[[Any], Any]]]] = {
    tuple: (1, list),
    set: (2, _items),
    frozenset: (3, _items),
    int: (4, _digits),  # msgpack calls this only for types that it does not have
    dt.datetime: (5, dt.datetime.isoformat),
    dt.date: (6, dt.date.isoformat),
    dt.time: (7, dt.time.isoformat),
    dt.timedelta: (8, _days),
    decimal.Decimal: (9, str),
    uuid.UUID: (10, lambda value: value.bytes),
    complex: (13, lambda value: [value.real, value.imag]),
}


# -- decoding ---------------------------------------------------------------------------------------------------------


def decode_object(body: bytes) -> Any:
    """The data in bytes that :func:`encode_object` made, a fresh copy at every call.

    Raises:
        FormatError: the bytes are nothing of the kind, hold too many values, name a type that is not registered here,
            or hold a large set or dict whose keys collide; or a registered class raises.
    """
    check_count(body, "an ObjectMessage")
    return _unpack(body, 0)


def _unpack(data: bytes, depth: int) -> Any:
    if depth > _MAX_DEPTH:
        raise FormatError(f"an object nested more than {_MAX_DEPTH} levels deep")

    def extension(code: int, payload: bytes) -> Any:
        return _decode_extension(code, payload, depth + 1)

    try:
        return msgpack.unpackb(
            data,
            unicode_errors="surrogatepass",
            strict_map_key=False,
            ext_hook=extension,
            object_pairs_hook=_mapping,
            timestamp=3,
        )
    except FormatError:
        raise
    except Exception as error:  # the bytes decide what is called, and with what
        raise FormatError(f"an object that cannot be decoded: {_reason(error)}") from error


def _reason(error: Exception) -> str:
    try:
        return str(error) or type(error).__name__
    except Exception:
        return type(error).__name__


def _mapping(pairs: list[tuple[Any, Any]]) -> dict[Any, Any]:
    if len(pairs) > _SMALL and not all(type(key) is str for key, _ in pairs):
        _refuse_collisions([key for key, _ in pairs])
    return dict(pairs)


def _set(items: list[Any]) -> set[Any]:
    _refuse_collisions(items)
    return set(items)


def _frozenset(items: list[Any]) -> frozenset[Any]:
    _refuse_collisions(items)
    return frozenset(items)


def _refuse_collisions(keys: Collection[Any]) -> None:
    """Raise if building a set or dict of these keys would take much more than linear time.

    The hashes of text and bytes are secret, but those of numbers, and of tuples of them, are known. A sender can choose
    thousands that meet in one chain of CPython's hash tables. This fills the tables that such a set or dict passes
    through, with the same order of probes, and counts the collisions.

    Raises:
        FormatError: there are too many.
    """
    count = len(keys)
    if count <= _SMALL or all(type(key) is str or type(key) is bytes for key in keys):
        return
    hashes = [hash(key) for key in keys]
    size, filled = _SMALL, 0
    while filled < count:
        mask, filled = size - 1, min(count, size * 2 // 3)
        taken = bytearray(size)
        left = _COLLISIONS * max(filled, _SMALL)
        for code in hashes[:filled]:
            slot, rest = code & mask, code & 0xFFFF_FFFF_FFFF_FFFF
            while taken[slot]:
                rest >>= 5
                slot = (5 * slot + rest + 1) & mask
                left -= 1
                if left < 0:
                    raise FormatError(f"a set or dict of {count} keys, chosen so that they collide")
            taken[slot] = 1
        size *= 2


def _decode_extension(code: int, payload: bytes, depth: int) -> Any:
    content = _unpack(payload, depth)
    if code == _REGISTERED:
        name, values = content
        return _build(name, values)
    if code == _WRAPPER:
        letter, value = content
        return _WRAPPERS[letter](value)
    decoder = _DECODERS.get(code)
    if decoder is None:
        raise FormatError(f"an object with the unknown extension {code}")
    return decoder(content)


def _build(name: str, values: Any) -> Any:
    cls = _by_name.get(name)
    if cls is None:
        raise FormatError(
            f"an object of the type {name!r:.200}, which is not registered here; see sievemq.register_type"
        )
    if issubclass(cls, enum.Flag):
        return cls(values)
    if issubclass(cls, enum.Enum):
        return cls[values]
    known = {field.name: field for field in dataclass_fields(cast("Any", cls))}
    missing = [
        field.name
        for field in known.values()
        if field.init and field.name not in values and field.default is MISSING and field.default_factory is MISSING
    ]
    if missing:
        raise FormatError(f"an object of the type {name!r:.200} without its field {missing[0]!r}")
    try:
        built = cls(**{field: value for field, value in values.items() if field in known and known[field].init})
    except Exception as error:  # any exception of the application's __post_init__
        raise FormatError(f"an object of the type {name!r:.200} was refused by its class: {_reason(error)}") from error
    for field in known.values():
        if not field.init and field.name in values:
            object.__setattr__(built, field.name, values[field.name])
    return built


def _big_int(text: str) -> int:
    if len(text) > _MAX_DIGITS + 1:  # with a sign
        raise FormatError(f"an int of {len(text)} digits")
    return int(text)


_DECODERS: Final[dict[int, Callable[[Any], Any]]] = {
    1: tuple,
    2: _set,
    3: _frozenset,
    4: _big_int,
    5: dt.datetime.fromisoformat,
    6: dt.date.fromisoformat,
    7: dt.time.fromisoformat,
    8: lambda parts: dt.timedelta(*parts),
    9: decimal.Decimal,
    10: lambda data: uuid.UUID(bytes=data),
    13: lambda parts: complex(*parts),
}
