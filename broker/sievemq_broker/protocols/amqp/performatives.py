"""Every composite type of AMQP 1.0 that is used here: performatives, terminuses, outcomes, SASL frames, sections.

A composite travels as a described list whose descriptor is its number. In Python it is a dataclass with the fields of
the specification; a field that a peer left out has its default. :func:`read` checks the types of all fields.
"""

from __future__ import annotations

from dataclasses import Field, dataclass, field, fields, replace
from typing import Any, Final, Self, dataclass_transform

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
from sievemq_core.errors import shown

__all__ = [
    "Accepted", "Attach", "Begin", "Close", "Composite", "Coordinator", "Declare", "Declared", "DeleteOnClose",
    "Detach", "Discharge", "Disposition", "End", "Error", "Flow", "Header", "Modified", "Open", "Properties",
    "Received", "Rejected", "Released", "SaslChallenge", "SaslInit", "SaslMechanisms", "SaslOutcome",
    "SaslResponse", "Source", "Target", "TransactionalState", "Transfer", "read", "write",
]  # fmt: skip

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


def _f(kind: str, *, default: object = None, required: bool = False) -> Any:
    return field(default=default, metadata={"kind": kind, "required": required})


class Composite:
    """A composite type."""

    __slots__ = ()

    def having(self, **fields: Any) -> Self:
        """A copy with other values for these fields."""
        return replace(self, **fields)  # type: ignore[type-var]  # each subclass is a dataclass


class _Field:
    """A field of a composite.

    Attributes:
        name: of the attribute.
        kind: of its values.
        default: its value where a peer leaves it out.
        required: a peer must not leave it out.
        type: what a value is in Python; None where several are.
        write: appends a value.
    """

    __slots__ = ("default", "kind", "name", "required", "type", "write")

    def __init__(self, field: Field[Any]) -> None:
        self.name, self.default = field.name, field.default
        self.kind: str = field.metadata["kind"]
        self.required: bool = field.metadata["required"]
        self.type = _KINDS.get(self.kind)
        self.write = _write_any if self.type is None else encoder_of(self.type)


_NUMBERS: Final[dict[type[Composite], int]] = {}
_FIELDS: Final[dict[type[Composite], list[_Field]]] = {}
_BY_DESCRIPTOR: Final[dict[object, type[Composite]]] = {}
#: Constructors: all descriptors are below 256.
_SMALL_ULONG, _NULL, _LIST, _EMPTY_LIST = 0x53, 0x40, 0xC0, 0x45


def write(composite: Composite, out: bytearray) -> None:
    """Append a composite; fields at the end that have their default are left out."""
    packed = bytearray()
    used = end = 0
    for count, spec in enumerate(_FIELDS[type(composite)], 1):
        value = getattr(composite, spec.name)
        if value is None:
            packed.append(_NULL)
        else:
            spec.write(value, packed)
        if value != spec.default or spec.required:
            used, end = count, len(packed)
    out += bytes((0, _SMALL_ULONG, _NUMBERS[type(composite)]))
    if used:
        encode_packed(_LIST, packed[:end], used, out)
    else:
        out.append(_EMPTY_LIST)


def _write_any(value: Any, out: bytearray) -> None:
    if isinstance(value, Composite):
        write(value, out)
    elif type(value) is list:  # of symbols
        encode(Array([Symbol(each) for each in value], 0xA3), out)
    else:
        encode(value, out)


@dataclass_transform(kw_only_default=True, field_specifiers=(_f,))
def _composite(number: int, name: str) -> Any:
    def register(cls: type[Composite]) -> type[Composite]:
        made = dataclass(slots=True, kw_only=True)(cls)
        _NUMBERS[made] = number
        _BY_DESCRIPTOR[number] = _BY_DESCRIPTOR[f"amqp:{name}"] = made
        _FIELDS[made] = [_Field(each) for each in fields(made)]  # type: ignore[arg-type]  # it is a dataclass
        return made

    return register


@_composite(0x10, "open:list")
class Open(Composite):
    """Opens a connection."""

    container_id: str = _f("string", required=True)
    hostname: str | None = _f("string", default=None)
    max_frame_size: int = _f("uint", default=4294967295)
    channel_max: int = _f("ushort", default=65535)
    idle_time_out: int | None = _f("uint", default=None)
    outgoing_locales: list[str] | None = _f("symbols", default=None)
    incoming_locales: list[str] | None = _f("symbols", default=None)
    offered_capabilities: list[str] | None = _f("symbols", default=None)
    desired_capabilities: list[str] | None = _f("symbols", default=None)
    properties: dict[Any, Any] | None = _f("map", default=None)


@_composite(0x11, "begin:list")
class Begin(Composite):
    """Begins a session."""

    remote_channel: int | None = _f("ushort", default=None)
    next_outgoing_id: int = _f("uint", required=True)
    incoming_window: int = _f("uint", required=True)
    outgoing_window: int = _f("uint", required=True)
    handle_max: int = _f("uint", default=4294967295)
    offered_capabilities: list[str] | None = _f("symbols", default=None)
    desired_capabilities: list[str] | None = _f("symbols", default=None)
    properties: dict[Any, Any] | None = _f("map", default=None)


@_composite(0x12, "attach:list")
class Attach(Composite):
    """Attaches a link: a producer or a consumer."""

    name: str = _f("string", required=True)
    handle: int = _f("uint", required=True)
    role: bool = _f("boolean", required=True)
    snd_settle_mode: int = _f("ubyte", default=2)
    rcv_settle_mode: int = _f("ubyte", default=0)
    source: Any = _f("any", default=None)
    target: Any = _f("any", default=None)
    unsettled: dict[Any, Any] | None = _f("map", default=None)
    incomplete_unsettled: bool = _f("boolean", default=False)
    initial_delivery_count: int | None = _f("uint", default=None)
    max_message_size: int | None = _f("ulong", default=None)
    offered_capabilities: list[str] | None = _f("symbols", default=None)
    desired_capabilities: list[str] | None = _f("symbols", default=None)
    properties: dict[Any, Any] | None = _f("map", default=None)


@_composite(0x13, "flow:list")
class Flow(Composite):
    """Grants credit, and updates the window of a session."""

    next_incoming_id: int | None = _f("uint", default=None)
    incoming_window: int = _f("uint", required=True)
    next_outgoing_id: int = _f("uint", required=True)
    outgoing_window: int = _f("uint", required=True)
    handle: int | None = _f("uint", default=None)
    delivery_count: int | None = _f("uint", default=None)
    link_credit: int | None = _f("uint", default=None)
    available: int | None = _f("uint", default=None)
    drain: bool = _f("boolean", default=False)
    echo: bool = _f("boolean", default=False)
    properties: dict[Any, Any] | None = _f("map", default=None)


@_composite(0x14, "transfer:list")
class Transfer(Composite):
    """A message or a part of one; it follows the performative."""

    handle: int = _f("uint", required=True)
    delivery_id: int | None = _f("uint", default=None)
    delivery_tag: bytes | None = _f("binary", default=None)
    message_format: int | None = _f("uint", default=None)
    settled: bool | None = _f("boolean", default=None)
    more: bool = _f("boolean", default=False)
    rcv_settle_mode: int | None = _f("ubyte", default=None)
    state: Any = _f("any", default=None)
    resume: bool = _f("boolean", default=False)
    aborted: bool = _f("boolean", default=False)
    batchable: bool = _f("boolean", default=False)


@_composite(0x15, "disposition:list")
class Disposition(Composite):
    """The outcome of deliveries."""

    role: bool = _f("boolean", required=True)
    first: int = _f("uint", required=True)
    last: int | None = _f("uint", default=None)
    settled: bool = _f("boolean", default=False)
    state: Any = _f("any", default=None)
    batchable: bool = _f("boolean", default=False)


@_composite(0x16, "detach:list")
class Detach(Composite):
    """Detaches a link."""

    handle: int = _f("uint", required=True)
    closed: bool = _f("boolean", default=False)
    error: Any = _f("any", default=None)


@_composite(0x17, "end:list")
class End(Composite):
    """Ends a session."""

    error: Any = _f("any", default=None)


@_composite(0x18, "close:list")
class Close(Composite):
    """Closes a connection."""

    error: Any = _f("any", default=None)


@_composite(0x1D, "error:list")
class Error(Composite):
    """The reason why a connection, session or link ended."""

    condition: str = _f("symbol", required=True)
    description: str | None = _f("string", default=None)
    info: dict[Any, Any] | None = _f("map", default=None)


@_composite(0x23, "received:list")
class Received(Composite):
    """The delivery has arrived in part."""

    section_number: int = _f("uint", required=True)
    section_offset: int = _f("ulong", required=True)


@_composite(0x24, "accepted:list")
class Accepted(Composite):
    """The delivery was accepted."""


@_composite(0x25, "rejected:list")
class Rejected(Composite):
    """The delivery is invalid."""

    error: Any = _f("any", default=None)


@_composite(0x26, "released:list")
class Released(Composite):
    """The delivery was not processed, and may be delivered again."""


@_composite(0x27, "modified:list")
class Modified(Composite):
    """The delivery was not processed, and its annotations or its attempts may have changed."""

    delivery_failed: bool = _f("boolean", default=False)
    undeliverable_here: bool = _f("boolean", default=False)
    message_annotations: dict[Any, Any] | None = _f("map", default=None)


@_composite(0x28, "source:list")
class Source(Composite):
    """Where messages come from."""

    address: Any = _f("any", default=None)
    durable: int = _f("uint", default=0)
    expiry_policy: str | None = _f("symbol", default=None)
    timeout: int = _f("uint", default=0)
    dynamic: bool = _f("boolean", default=False)
    dynamic_node_properties: dict[Any, Any] | None = _f("map", default=None)
    distribution_mode: str | None = _f("symbol", default=None)
    filter: dict[Any, Any] | None = _f("map", default=None)
    default_outcome: Any = _f("any", default=None)
    outcomes: list[str] | None = _f("symbols", default=None)
    capabilities: list[str] | None = _f("symbols", default=None)


@_composite(0x29, "target:list")
class Target(Composite):
    """Where messages go."""

    address: Any = _f("any", default=None)
    durable: int = _f("uint", default=0)
    expiry_policy: str | None = _f("symbol", default=None)
    timeout: int = _f("uint", default=0)
    dynamic: bool = _f("boolean", default=False)
    dynamic_node_properties: dict[Any, Any] | None = _f("map", default=None)
    capabilities: list[str] | None = _f("symbols", default=None)


@_composite(0x2B, "delete-on-close:list")
class DeleteOnClose(Composite):
    """A dynamic node is deleted with its link."""


@_composite(0x30, "coordinator:list")
class Coordinator(Composite):
    """Where transactions are declared."""

    capabilities: list[str] | None = _f("symbols", default=None)


@_composite(0x31, "declare:list")
class Declare(Composite):
    """Begins a transaction."""

    global_id: Any = _f("any", default=None)


@_composite(0x32, "discharge:list")
class Discharge(Composite):
    """Ends a transaction."""

    txn_id: bytes = _f("binary", required=True)
    fail: bool = _f("boolean", default=False)


@_composite(0x33, "declared:list")
class Declared(Composite):
    """A transaction has begun."""

    txn_id: bytes = _f("binary", required=True)


@_composite(0x34, "transactional-state:list")
class TransactionalState(Composite):
    """A delivery is part of a transaction."""

    txn_id: bytes = _f("binary", required=True)
    outcome: Any = _f("any", default=None)


@_composite(0x40, "sasl-mechanisms:list")
class SaslMechanisms(Composite):
    """How a client may sign in."""

    sasl_server_mechanisms: list[str] = _f("symbols", required=True)


@_composite(0x41, "sasl-init:list")
class SaslInit(Composite):
    """How it does."""

    mechanism: str = _f("symbol", required=True)
    initial_response: bytes | None = _f("binary", default=None)
    hostname: str | None = _f("string", default=None)


@_composite(0x42, "sasl-challenge:list")
class SaslChallenge(Composite):
    """What the broker answers to a part of a sign-in."""

    challenge: bytes = _f("binary", required=True)


@_composite(0x43, "sasl-response:list")
class SaslResponse(Composite):
    """The next part."""

    response: bytes = _f("binary", required=True)


@_composite(0x44, "sasl-outcome:list")
class SaslOutcome(Composite):
    """Whether it is accepted."""

    code: int = _f("ubyte", required=True)
    additional_data: bytes | None = _f("binary", default=None)


@_composite(0x70, "header:list")
class Header(Composite):
    """Section: how a message is delivered."""

    durable: bool = _f("boolean", default=False)
    priority: int = _f("ubyte", default=4)
    ttl: int | None = _f("uint", default=None)
    first_acquirer: bool = _f("boolean", default=False)
    delivery_count: int = _f("uint", default=0)


@_composite(0x73, "properties:list")
class Properties(Composite):
    """Section: the standard properties of a message."""

    message_id: Any = _f("any", default=None)
    user_id: bytes | None = _f("binary", default=None)
    to: Any = _f("any", default=None)
    subject: str | None = _f("string", default=None)
    reply_to: Any = _f("any", default=None)
    correlation_id: Any = _f("any", default=None)
    content_type: str | None = _f("symbol", default=None)
    content_encoding: str | None = _f("symbol", default=None)
    absolute_expiry_time: int | None = _f("timestamp", default=None)
    creation_time: int | None = _f("timestamp", default=None)
    group_id: str | None = _f("string", default=None)
    group_sequence: int | None = _f("uint", default=None)
    reply_to_group_id: str | None = _f("string", default=None)


def read(value: Any) -> Any:
    """The composite that a described list is; anything else is returned as it is.

    Raises:
        ProtocolError: a field has a wrong type, or is missing.
    """
    if not isinstance(value, Described):
        return value
    descriptor = value.descriptor
    cls = _BY_DESCRIPTOR.get(descriptor) if isinstance(descriptor, (int, str)) else None
    if cls is None:
        return value
    name = cls.__name__.lower()
    if type(value.value) is not list:
        raise malformed(f"{name} must be a list, not {shown(value.value)}")
    specs = _FIELDS[cls]
    if len(value.value) > len(specs):
        raise malformed(f"{name} has {len(specs)} fields, not {len(value.value)}")
    made = cls()
    for spec, item in zip(specs, value.value, strict=False):
        if item is not None:
            setattr(made, spec.name, item if type(item) is spec.type else _checked(name, spec.name, spec.kind, item))
    for spec in specs:
        if spec.required and getattr(made, spec.name) is None:
            raise malformed(f"{name} needs {spec.name.replace('_', '-')}")
    return made


def _checked(name: str, field_name: str, kind: str, item: Any) -> Any:
    if kind == "any":
        return read(item)
    if kind == "symbols":  # one of them may stand for the array (part 1, section 1.4, "multiple")
        found = item if isinstance(item, Array) else [item]
        if all(type(each) is Symbol for each in found):
            return [str(each) for each in found]
    raise malformed(f"{field_name.replace('_', '-')} of {name} must be a {kind}, not {shown(item)}")
