"""Every composite type of AMQP 1.0 that is used here: performatives, terminuses, outcomes, SASL frames, sections.

In Python a composite is a dataclass with the fields of the specification; a field that a peer left out has its default.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, dataclass_transform

from sievemq_broker.protocols.amqp.composites import Composite, register


def member(kind: str, *, default: object = None, required: bool = False) -> Any:
    """A field of a composite.

    Args:
        kind: of its values, as the specification names it; "symbols" for several of them, "any" for any value.
        default: its value where a peer leaves it out.
        required: a peer must not leave it out.
    """
    return field(default=default, metadata={"kind": kind, "required": required})


@dataclass_transform(kw_only_default=True, field_specifiers=(member,))
def composite(number: int, name: str) -> Any:
    """Declare a class as a composite.

    Args:
        number: its descriptor.
        name: its symbolic descriptor, without the `amqp:` in front.
    """

    def declare(cls: type[Composite]) -> type[Composite]:
        made = dataclass(slots=True)(cls)
        register(made, number, f"amqp:{name}")
        return made

    return declare


@composite(0x10, "open:list")
class Open(Composite):
    """Opens a connection."""

    container_id: str = member("string", required=True)
    hostname: str | None = member("string", default=None)
    max_frame_size: int = member("uint", default=4294967295)
    channel_max: int = member("ushort", default=65535)
    idle_time_out: int | None = member("uint", default=None)
    outgoing_locales: list[str] | None = member("symbols", default=None)
    incoming_locales: list[str] | None = member("symbols", default=None)
    offered_capabilities: list[str] | None = member("symbols", default=None)
    desired_capabilities: list[str] | None = member("symbols", default=None)
    properties: dict[Any, Any] | None = member("map", default=None)


@composite(0x11, "begin:list")
class Begin(Composite):
    """Begins a session."""

    remote_channel: int | None = member("ushort", default=None)
    next_outgoing_id: int = member("uint", required=True)
    incoming_window: int = member("uint", required=True)
    outgoing_window: int = member("uint", required=True)
    handle_max: int = member("uint", default=4294967295)
    offered_capabilities: list[str] | None = member("symbols", default=None)
    desired_capabilities: list[str] | None = member("symbols", default=None)
    properties: dict[Any, Any] | None = member("map", default=None)


@composite(0x12, "attach:list")
class Attach(Composite):
    """Attaches a link: a producer or a consumer."""

    name: str = member("string", required=True)
    handle: int = member("uint", required=True)
    role: bool = member("boolean", required=True)
    snd_settle_mode: int = member("ubyte", default=2)
    rcv_settle_mode: int = member("ubyte", default=0)
    source: Any = member("any", default=None)
    target: Any = member("any", default=None)
    unsettled: dict[Any, Any] | None = member("map", default=None)
    incomplete_unsettled: bool = member("boolean", default=False)
    initial_delivery_count: int | None = member("uint", default=None)
    max_message_size: int | None = member("ulong", default=None)
    offered_capabilities: list[str] | None = member("symbols", default=None)
    desired_capabilities: list[str] | None = member("symbols", default=None)
    properties: dict[Any, Any] | None = member("map", default=None)


@composite(0x13, "flow:list")
class Flow(Composite):
    """Grants credit, and updates the window of a session."""

    next_incoming_id: int | None = member("uint", default=None)
    incoming_window: int = member("uint", required=True)
    next_outgoing_id: int = member("uint", required=True)
    outgoing_window: int = member("uint", required=True)
    handle: int | None = member("uint", default=None)
    delivery_count: int | None = member("uint", default=None)
    link_credit: int | None = member("uint", default=None)
    available: int | None = member("uint", default=None)
    drain: bool = member("boolean", default=False)
    echo: bool = member("boolean", default=False)
    properties: dict[Any, Any] | None = member("map", default=None)


@composite(0x14, "transfer:list")
class Transfer(Composite):
    """A message or a part of one; it follows the performative."""

    handle: int = member("uint", required=True)
    delivery_id: int | None = member("uint", default=None)
    delivery_tag: bytes | None = member("binary", default=None)
    message_format: int | None = member("uint", default=None)
    settled: bool | None = member("boolean", default=None)
    more: bool = member("boolean", default=False)
    rcv_settle_mode: int | None = member("ubyte", default=None)
    state: Any = member("any", default=None)
    resume: bool = member("boolean", default=False)
    aborted: bool = member("boolean", default=False)
    batchable: bool = member("boolean", default=False)


@composite(0x15, "disposition:list")
class Disposition(Composite):
    """The outcome of deliveries."""

    role: bool = member("boolean", required=True)
    first: int = member("uint", required=True)
    last: int | None = member("uint", default=None)
    settled: bool = member("boolean", default=False)
    state: Any = member("any", default=None)
    batchable: bool = member("boolean", default=False)


@composite(0x16, "detach:list")
class Detach(Composite):
    """Detaches a link."""

    handle: int = member("uint", required=True)
    closed: bool = member("boolean", default=False)
    error: Any = member("any", default=None)


@composite(0x17, "end:list")
class End(Composite):
    """Ends a session."""

    error: Any = member("any", default=None)


@composite(0x18, "close:list")
class Close(Composite):
    """Closes a connection."""

    error: Any = member("any", default=None)


@composite(0x1D, "error:list")
class Error(Composite):
    """The reason why a connection, session or link ended."""

    condition: str = member("symbol", required=True)
    description: str | None = member("string", default=None)
    info: dict[Any, Any] | None = member("map", default=None)


@composite(0x23, "received:list")
class Received(Composite):
    """The delivery has arrived in part."""

    section_number: int = member("uint", required=True)
    section_offset: int = member("ulong", required=True)


@composite(0x24, "accepted:list")
class Accepted(Composite):
    """The delivery was accepted."""


@composite(0x25, "rejected:list")
class Rejected(Composite):
    """The delivery is invalid."""

    error: Any = member("any", default=None)


@composite(0x26, "released:list")
class Released(Composite):
    """The delivery was not processed, and may be delivered again."""


@composite(0x27, "modified:list")
class Modified(Composite):
    """The delivery was not processed, and its annotations or its attempts may have changed."""

    delivery_failed: bool = member("boolean", default=False)
    undeliverable_here: bool = member("boolean", default=False)
    message_annotations: dict[Any, Any] | None = member("map", default=None)


@composite(0x28, "source:list")
class Source(Composite):
    """Where messages come from."""

    address: Any = member("any", default=None)
    durable: int = member("uint", default=0)
    expiry_policy: str | None = member("symbol", default=None)
    timeout: int = member("uint", default=0)
    dynamic: bool = member("boolean", default=False)
    dynamic_node_properties: dict[Any, Any] | None = member("map", default=None)
    distribution_mode: str | None = member("symbol", default=None)
    filter: dict[Any, Any] | None = member("map", default=None)
    default_outcome: Any = member("any", default=None)
    outcomes: list[str] | None = member("symbols", default=None)
    capabilities: list[str] | None = member("symbols", default=None)


@composite(0x29, "target:list")
class Target(Composite):
    """Where messages go."""

    address: Any = member("any", default=None)
    durable: int = member("uint", default=0)
    expiry_policy: str | None = member("symbol", default=None)
    timeout: int = member("uint", default=0)
    dynamic: bool = member("boolean", default=False)
    dynamic_node_properties: dict[Any, Any] | None = member("map", default=None)
    capabilities: list[str] | None = member("symbols", default=None)


@composite(0x2B, "delete-on-close:list")
class DeleteOnClose(Composite):
    """A dynamic node is deleted with its link."""


@composite(0x30, "coordinator:list")
class Coordinator(Composite):
    """Where transactions are declared."""

    capabilities: list[str] | None = member("symbols", default=None)


@composite(0x31, "declare:list")
class Declare(Composite):
    """Begins a transaction."""

    global_id: Any = member("any", default=None)


@composite(0x32, "discharge:list")
class Discharge(Composite):
    """Ends a transaction."""

    txn_id: bytes = member("binary", required=True)
    fail: bool = member("boolean", default=False)


@composite(0x33, "declared:list")
class Declared(Composite):
    """A transaction has begun."""

    txn_id: bytes = member("binary", required=True)


@composite(0x34, "transactional-state:list")
class TransactionalState(Composite):
    """A delivery is part of a transaction."""

    txn_id: bytes = member("binary", required=True)
    outcome: Any = member("any", default=None)


@composite(0x40, "sasl-mechanisms:list")
class SaslMechanisms(Composite):
    """How a client may sign in."""

    sasl_server_mechanisms: list[str] = member("symbols", required=True)


@composite(0x41, "sasl-init:list")
class SaslInit(Composite):
    """How it does."""

    mechanism: str = member("symbol", required=True)
    initial_response: bytes | None = member("binary", default=None)
    hostname: str | None = member("string", default=None)


@composite(0x42, "sasl-challenge:list")
class SaslChallenge(Composite):
    """What the broker answers to a part of a sign-in."""

    challenge: bytes = member("binary", required=True)


@composite(0x43, "sasl-response:list")
class SaslResponse(Composite):
    """The next part."""

    response: bytes = member("binary", required=True)


@composite(0x44, "sasl-outcome:list")
class SaslOutcome(Composite):
    """Whether it is accepted."""

    code: int = member("ubyte", required=True)
    additional_data: bytes | None = member("binary", default=None)


@composite(0x70, "header:list")
class Header(Composite):
    """Section: how a message is delivered."""

    durable: bool = member("boolean", default=False)
    priority: int = member("ubyte", default=4)
    ttl: int | None = member("uint", default=None)
    first_acquirer: bool = member("boolean", default=False)
    delivery_count: int = member("uint", default=0)


@composite(0x73, "properties:list")
class Properties(Composite):
    """Section: the standard properties of a message."""

    message_id: Any = member("any", default=None)
    user_id: bytes | None = member("binary", default=None)
    to: Any = member("any", default=None)
    subject: str | None = member("string", default=None)
    reply_to: Any = member("any", default=None)
    correlation_id: Any = member("any", default=None)
    content_type: str | None = member("symbol", default=None)
    content_encoding: str | None = member("symbol", default=None)
    absolute_expiry_time: int | None = member("timestamp", default=None)
    creation_time: int | None = member("timestamp", default=None)
    group_id: str | None = member("string", default=None)
    group_sequence: int | None = member("uint", default=None)
    reply_to_group_id: str | None = member("string", default=None)
