"""Composite types of AMQP 1.0 to bytes and back (part 1, section 1.4).

A composite travels as a described list whose descriptor is its number. `performatives.py` declares them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import Field, fields, replace
from typing import Any, Final, Self

from sievemq_broker.protocols.amqp.types import (
    Array,
    Described,
    Symbol,
    Timestamp,
    UByte,
    UInt,
    ULong,
    UShort,
    encode,
    encode_packed,
    encoder_of,
    malformed,
)
from sievemq_core.compiled import mypyc_attr
from sievemq_core.errors import shown

#: The Python types of the fields of each kind.
_KINDS: Final[dict[str, type]] = {
    "boolean": bool,
    "ubyte": UByte,
    "ushort": UShort,
    "uint": UInt,
    "ulong": ULong,
    "timestamp": Timestamp,
    "binary": bytes,
    "string": str,
    "symbol": Symbol,
    "map": dict,
}

#: Constructors. All descriptors are below 256.
_SMALL_ULONG, _NULL, _LIST, _EMPTY_LIST = 0x53, 0x40, 0xC0, 0x45


@mypyc_attr(allow_interpreted_subclasses=True)
class Composite:
    """A composite type."""

    __slots__ = ()

    def having(self, **fields: Any) -> Self:
        """A copy with other values for these fields."""
        return replace(self, **fields)  # type: ignore[type-var]  # each subclass is a dataclass


class _Member:
    """A field of a composite.

    Attributes:
        type: what a value is in Python; None where several are.
        write: appends a value.
    """

    __slots__ = ("default", "kind", "name", "required", "type", "write")

    def __init__(self, field: Field[Any]) -> None:
        self.name: str = field.name
        self.default: Any = field.default
        self.kind: str = field.metadata["kind"]
        self.required: bool = field.metadata["required"]
        self.type: Any = _KINDS.get(self.kind)
        self.write: Callable[[Any, bytearray], None] = _write_any if self.type is None else encoder_of(self.type)


class _Shape:
    """A composite type, as it travels.

    Attributes:
        head: the bytes in front of its list.
        make: its class; takes the values of all fields.
        required: positions of the fields that a peer must not leave out.
    """

    __slots__ = ("defaults", "head", "make", "members", "name", "required")

    def __init__(self, number: int, cls: type[Composite], members: list[_Member]) -> None:
        self.head: bytes = bytes((0, _SMALL_ULONG, number))
        self.name: str = cls.__name__.lower()
        self.make: Callable[..., Any] = cls
        self.members = members
        self.defaults: list[Any] = [each.default for each in members]
        self.required: list[int] = [at for at, each in enumerate(members) if each.required]


_SHAPES: Final[dict[type[Composite], _Shape]] = {}
_BY_DESCRIPTOR: Final[dict[object, _Shape]] = {}


def register(cls: type[Composite], number: int, name: str) -> None:
    """Have a composite type read and written from now on.

    Args:
        cls: a dataclass; the metadata of each field have its `kind`, and whether it is `required`.
    """
    shape = _Shape(number, cls, [_Member(each) for each in fields(cls)])  # type: ignore[arg-type]  # a dataclass
    _SHAPES[cls] = _BY_DESCRIPTOR[number] = _BY_DESCRIPTOR[name] = shape


def write(composite: Composite, out: bytearray) -> None:
    """Append a composite; fields at the end that have their default are left out."""
    shape = _SHAPES[type(composite)]
    members = shape.members
    values = [getattr(composite, each.name) for each in members]
    used = len(members)
    while used and not members[used - 1].required and values[used - 1] == members[used - 1].default:
        used -= 1
    out += shape.head
    if not used:
        out.append(_EMPTY_LIST)
        return
    packed = bytearray()
    for at in range(used):
        if values[at] is None:
            packed.append(_NULL)
        else:
            members[at].write(values[at], packed)
    encode_packed(_LIST, packed, used, out)


def _write_any(value: Any, out: bytearray) -> None:
    if isinstance(value, Composite):
        write(value, out)
    elif type(value) is list:  # of symbols
        code = 0xA3 if all(len(each) < 256 for each in value) else 0xB3
        encode(Array([Symbol(each) for each in value], code), out)
    else:
        encode(value, out)


def read(value: Any) -> Any:
    """The composite that a described list is; anything else is returned as it is.

    Raises:
        ProtocolError: a field has a wrong type, or is missing.
    """
    if not isinstance(value, Described):
        return value
    found = composite_of(value.descriptor, value.value)
    return value if found is None else found


def composite_of(descriptor: Any, given: Any) -> Any:
    """The composite with this descriptor; None if there is none.

    Raises:
        ProtocolError: a field has a wrong type, or is missing.
    """
    shape = _BY_DESCRIPTOR.get(descriptor) if isinstance(descriptor, (int, str)) else None
    if shape is None:
        return None
    if type(given) is not list:
        raise malformed(f"{shape.name} must be a list, not {shown(given)}")
    members = shape.members
    if len(given) > len(members):
        raise malformed(f"{shape.name} has {len(members)} fields, not {len(given)}")
    values = shape.defaults.copy()
    for at in range(len(given)):
        item = given[at]
        if item is not None:
            values[at] = item if type(item) is members[at].type else _checked(shape.name, members[at], item)
    for at in shape.required:
        if values[at] is None:
            raise malformed(f"{shape.name} needs {members[at].name.replace('_', '-')}")
    return shape.make(*values)


def _checked(name: str, member: _Member, item: Any) -> Any:
    if member.kind == "any":
        return read(item)
    if member.kind == "symbols":  # one of them may stand for the array (part 1, section 1.4, "multiple")
        found = item if isinstance(item, Array) else [item]
        if all(type(each) is Symbol for each in found):
            return [str(each) for each in found]
    raise malformed(f"{member.name.replace('_', '-')} of {name} must be a {member.kind}, not {shown(item)}")
