"""AMQP messages to envelopes and back, addresses, filters (docs/protocols.md has the tables).

Qpid JMS is the reference of what is mapped to what. A message of an AMQP client keeps its sections: they travel behind
the envelope's fields, and another AMQP client gets them byte for byte. The fields have what selectors and other clients
need.

    13 amqp_head   bin   message-annotations, properties, application-properties and body, as they came; up to the
                         content of the body if that is the envelope's body
    14 amqp_tail   bin   what stands behind that content; nil if `amqp_head` has all
"""

from __future__ import annotations

from contextlib import suppress
from functools import lru_cache
from typing import Any, Final, NamedTuple
from uuid import UUID

from sievemq_broker.domain.broker_properties import set_by_broker
from sievemq_broker.protocols.amqp.composites import Composite, composite_of, write
from sievemq_broker.protocols.amqp.performatives import Header, Properties
from sievemq_broker.protocols.amqp.types import (
    MESSAGE_VALUES,
    Array,
    Char,
    Described,
    Reader,
    Symbol,
    Timestamp,
    UByte,
    UInt,
    ULong,
    UShort,
    encode,
    malformed,
)
from sievemq_broker.protocols.foreign import CONVERTED_VALUES, refuse_schedule
from sievemq_core.errors import AddressError, ErrorCode, FormatError, ProtocolError, RequestError, SieveError, shown
from sievemq_core.message.body import decode_map, decode_stream, encode_map, encode_stream, encode_text
from sievemq_core.message.destination import Address, Kind, parse_address
from sievemq_core.message.envelope import (
    BODY,
    BODY_KIND,
    CORRELATION_ID,
    DELIVERY_MODE,
    DELIVERY_TIME,
    ENVELOPE_FIELDS,
    EXPIRATION,
    MESSAGE_ID,
    PRIORITY,
    REPLY_TO,
    TIMESTAMP,
    TYPE,
    BodyKind,
    EnvelopeFields,
    pack_properties,
    unpack_properties,
)
from sievemq_core.message.headers import NON_PERSISTENT, PERSISTENT, bytes_of_id, id_of_bytes
from sievemq_core.message.values import INT_MAX, LONG_MAX, Byte, Long, PropertyValue, Short, normalise, normalise_field
from sievemq_core.message.values import Char as JmsChar

AMQP_HEAD: Final = ENVELOPE_FIELDS
AMQP_TAIL: Final = ENVELOPE_FIELDS + 1

#: Sections by their descriptors.
_HEADER, _DELIVERY_ANNOTATIONS, _ANNOTATIONS, _PROPERTIES, _APPLICATION = 0x70, 0x71, 0x72, 0x73, 0x74
_DATA, _SEQUENCE, _VALUE, _FOOTER = 0x75, 0x76, 0x77, 0x78
_SECTIONS: Final = {
    f"amqp:{name}": code
    for name, code in (
        ("header:list", _HEADER), ("delivery-annotations:map", _DELIVERY_ANNOTATIONS),
        ("message-annotations:map", _ANNOTATIONS), ("properties:list", _PROPERTIES),
        ("application-properties:map", _APPLICATION), ("data:binary", _DATA), ("amqp-sequence:list", _SEQUENCE),
        ("amqp-value:*", _VALUE), ("footer:map", _FOOTER),
    )
}  # fmt: skip

#: Properties of a dynamic node whose types are fixed: name, types, what a client may ask for.
_NODE_PROPERTIES: Final = (
    ("lifetime-policy", (Described, Composite), "a policy such as delete-on-close"),
    ("supported-dist-modes", (Symbol, Array), "a symbol, or an array of symbols"),
)

# Annotations of JMS.
_MESSAGE_TYPE: Final = Symbol("x-opt-jms-msg-type")
_DESTINATION_KIND: Final = Symbol("x-opt-jms-dest")
_REPLY_KIND: Final = Symbol("x-opt-jms-reply-to")
_DELIVER_AT: Final = Symbol("x-opt-delivery-time")
_DELIVER_IN: Final = Symbol("x-opt-delivery-delay")

_KINDS: Final = (Kind.QUEUE, Kind.TOPIC, Kind.TEMPORARY_QUEUE, Kind.TEMPORARY_TOPIC)
_MESSAGE_TYPES: Final = {
    BodyKind.NONE: 0, BodyKind.MAP: 2, BodyKind.BYTES: 3, BodyKind.OBJECT: 3, BodyKind.STREAM: 4, BodyKind.TEXT: 5,
}  # fmt: skip
_NONE, _MAP, _BYTES = int(BodyKind.NONE), int(BodyKind.MAP), int(BodyKind.BYTES)
_STREAM, _TEXT = int(BodyKind.STREAM), int(BodyKind.TEXT)
_EMPTY: Final = {2: _MAP, 3: _BYTES, 4: _STREAM, 5: _TEXT}

#: Annotations and properties of ActiveMQ for messages that are delivered several times, or later.
_SCHEDULES: Final = frozenset({
    "x-opt-delivery-cron", "x-opt-delivery-period", "x-opt-delivery-repeat",
    "AMQ_SCHEDULED_CRON", "AMQ_SCHEDULED_DELAY", "AMQ_SCHEDULED_PERIOD", "AMQ_SCHEDULED_REPEAT",
})  # fmt: skip
#: The property for the content-type, as the SDK's Json sets it.
_CONTENT_TYPE: Final = "content_type"
_OCTETS: Final = frozenset({"application/octet-stream", "application/x-java-serialized-object"})
_GROUP_ID, _GROUP_SEQUENCE = "JMSXGroupID", "JMSXGroupSeq"
#: A dead letter has such properties. They must be visible, so its sections are encoded again.
_BROKERS_OWN: Final = b"JMS_SieveMQ_"

_SELECTOR: Final = (0x0000468C00000004, "apache.org:selector-filter:string", "jms-selector")
_SQL: Final = (0x120, "amqp:sql-filter")
_NO_LOCAL: Final = (0x0000468C00000003, "apache.org:no-local-filter:list", "no-local")


# -- addresses --------------------------------------------------------------------------------------------------------


def kind_of(capabilities: list[str] | None) -> Kind | None:
    """The kind of destination that a terminus requests; None if it leaves that open."""
    for name in capabilities or ():
        with suppress(ValueError):
            return Kind(name)
    return None


def address_of(text: object, kind: Kind | None = None) -> str:
    """The address in a terminus or a message.

    Args:
        text: ``name``, ``queue:name``, ``topic:name``, also with ``//`` behind the colon.
        kind: of a bare name; a queue if it is None.

    Raises:
        AddressError: it names no destination.
        RequestError: it is no text.
    """
    if not isinstance(text, str):
        raise RequestError(f"an address must be a string, not {shown(text)}", ErrorCode.INVALID_DESTINATION)
    return _address_of(text, kind)


@lru_cache(maxsize=512)
def _address_of(text: str, kind: Kind | None) -> str:
    prefix, colon, name = text.partition("://")
    if colon and prefix in ("queue", "topic"):
        return str(Address(Kind(prefix), name))
    address = parse_address(text)
    if kind is not None and address.kind is Kind.QUEUE and not text.startswith("queue:"):
        address = Address(kind, text)
    return str(address)


class Filters(NamedTuple):
    """The filters of a source.

    Attributes:
        selector: condition; None for none.
        dialect: that it is written in; None for the broker's.
        no_local: not what this connection publishes.
        in_force: the filters that are carried out, as they came: the answer repeats them.
    """

    selector: str | None
    dialect: str | None
    no_local: bool
    in_force: dict[Any, Any]


def check_node_properties(properties: dict[Any, Any] | None) -> None:
    """Check the properties of a dynamic node (part 3, section 3.5.9). They ask for nothing that is not done anyway.

    Raises:
        RequestError: one has a value that it cannot have.
    """
    for name, types, instead in _NODE_PROPERTIES:
        given = (properties or {}).get(name)
        if given is not None and not isinstance(given, types):
            raise RequestError(
                f"the property {name} of a dynamic node must not be {shown(given)}; it is {instead}",
                ErrorCode.MESSAGE_FORMAT,
            )


def filters_of(filters: dict[Any, Any] | None) -> Filters:
    """The filters of a source that are supported.

    Raises:
        RequestError: a selector is no text, or there are two.
    """
    selector: str | None = None
    dialect: str | None = None
    no_local = False
    in_force: dict[Any, Any] = {}
    for name, given in (filters or {}).items():
        value = given.value if isinstance(given, Described) else given
        named = (given.descriptor if isinstance(given, Described) else None, name)
        sql = any(each in _SQL for each in named)
        if sql or any(each in _SELECTOR for each in named):
            if selector is not None:
                raise RequestError("a source has one selector or SQL filter", ErrorCode.INVALID_SELECTOR)
            if not isinstance(value, str):
                raise RequestError(f"a selector must be a string, not {shown(value)}", ErrorCode.INVALID_SELECTOR)
            selector, dialect = value, "amqp" if sql else None
        elif any(each in _NO_LOCAL for each in named):
            no_local = True
        else:
            continue
        in_force[name] = given
    return Filters(selector, dialect, no_local, in_force)


# -- in ---------------------------------------------------------------------------------------------------------------


class _Sections:
    """The sections of a message.

    Args:
        payload: their bytes.

    Attributes:
        passed_on: where those begin that are passed on unchanged: behind header and delivery annotations.
        body: sections of the body: descriptor and value.
        begin, end: where the body begins and ends.
        content: where the content of its first section ends if that is a string or bytes.
        standard: where the section with the properties begins and ends.

    Raises:
        ProtocolError: these are no sections, or not in their order.
    """

    __slots__ = (
        "annotations", "application", "begin", "body", "content", "end", "header", "passed_on", "payload", "properties",
        "standard",
    )  # fmt: skip

    def __init__(self, payload: bytes) -> None:
        self.payload = payload
        self.header: Header = _NO_HEADER
        self.properties: Properties = _NO_PROPERTIES
        self.annotations: dict[Any, Any] = {}
        self.application: dict[Any, Any] = {}
        self.body: list[tuple[int, Any]] = []
        self.passed_on = self.begin = self.end = self.content = 0
        self.standard = (0, 0)
        at, end, last = 0, len(payload), 0
        reader = Reader(payload, 0, end, MESSAGE_VALUES)
        while at < end:
            descriptor = reader.descriptor()
            if descriptor is None:
                raise malformed(f"{payload[at]:#04x} begins no section of a message")
            code = _section_of(descriptor)
            if code < last or (code == last and code not in (_DATA, _SEQUENCE)):
                raise malformed("the sections of a message are not in their order")
            value = reader.described()
            self._take(code, value, at, reader.at)
            at, last = reader.at, code

    def whole_body(self) -> bytes:
        """All sections of the body, as they arrived."""
        return self.payload[self.begin : self.end]

    def _take(self, code: int, value: Any, begin: int, end: int) -> None:
        if code == _PROPERTIES:
            self.properties = composite_of(_PROPERTIES, value)
            self.standard = (begin, end)
        elif code in (_DATA, _SEQUENCE, _VALUE):
            if (code == _DATA and type(value) is not bytes) or (code == _SEQUENCE and type(value) is not list):
                raise malformed(f"a section of the body has {shown(value)}")
            if not self.body:
                self.begin = begin
                self.content = end if type(value) is bytes or type(value) is str else 0
            self.end = end
            self.body.append((code, value))
        elif code == _HEADER:
            self.header = composite_of(_HEADER, value)
            self.passed_on = end
        elif type(value) is not dict:
            raise malformed(f"annotations, properties and footers are maps, not {shown(value)}")
        elif code == _ANNOTATIONS:
            self.annotations = value
        elif code == _APPLICATION:
            self.application = value
        elif code == _DELIVERY_ANNOTATIONS:
            self.passed_on = end


_NO_HEADER: Final = Header()
_NO_PROPERTIES: Final = Properties()


class _Checked:
    """Sections of messages that were checked lately, so that they are not read again for each delivery. For each: its
    absolute-expiry-time, 0 if it has none."""

    __slots__ = ("_earlier", "_lately")

    def __init__(self) -> None:
        self._lately: dict[bytes, int] = {}
        self._earlier: dict[bytes, int] = {}

    def add(self, sections: bytes, expiry: int) -> None:
        """These are sections, and may be passed on."""
        if len(sections) < _FEW_BYTES:
            if len(self._lately) >= _MANY:
                self._earlier, self._lately = self._lately, {}
            self._lately[sections] = expiry

    def find(self, sections: bytes) -> int | None:
        """The absolute-expiry-time of these sections if they were added, and are remembered."""
        found = self._lately.get(sections)
        return self._earlier.get(sections) if found is None else found


#: The longest sections that are remembered, and how many, twice.
_FEW_BYTES: Final = 2_048
_MANY: Final = 1_000
_checked: Final = _Checked()


def _section_of(descriptor: object) -> int:
    """The number of a section."""
    number = _SECTIONS.get(descriptor) if isinstance(descriptor, str) else descriptor
    if not isinstance(number, int) or not _HEADER <= number <= _FOOTER:
        raise malformed(f"{shown(descriptor)} is no section of a message")
    return number


def value_of(payload: bytes) -> Any:
    """The value that is the body of a message; None if its body is another one.

    Raises:
        ProtocolError: it is no message.
    """
    body = _Sections(payload).body
    return body[0][1] if len(body) == 1 and body[0][0] == _VALUE else None


def envelope_of(payload: bytes, message_id: str | None, now: int) -> tuple[EnvelopeFields, str | None]:
    """The envelope of a message, and the address in its ``to``.

    Args:
        payload: bytes of all transfers of a delivery.
        message_id: the id that it gets if it has none.
        now: milliseconds since 1970.

    Returns:
        The fields; the address that `to` names, None without one.

    Raises:
        ProtocolError: it is no message.
        RequestError: MESSAGE_FORMAT, a section has what a message must not have.
    """
    message = _Sections(payload)
    header, properties, annotations = message.header, message.properties, message.annotations
    values = _application_properties(message.application)
    for named in (values, annotations):
        if named:
            refuse_schedule(named.keys(), _SCHEDULES, "x-opt-delivery-delay, the delivery delay of JMS,")
    if properties.group_id is not None:
        values[_GROUP_ID] = properties.group_id
        if properties.group_sequence is not None:
            values[_GROUP_SEQUENCE] = _signed(properties.group_sequence)
    content_type = properties.content_type
    if content_type is not None and content_type not in _OCTETS:
        values[_CONTENT_TYPE] = str(content_type)
    try:
        packed, letters = pack_properties(values)
        kind, body = _body_of(message)
    except FormatError as error:
        raise RequestError(error.text, ErrorCode.MESSAGE_FORMAT) from error
    given_id = _id_of(properties.message_id)
    at = properties.creation_time or 0
    expiry = properties.absolute_expiry_time or 0
    expires = now + header.ttl if header.ttl else expiry
    if 0 < expiry < expires:
        expires = expiry
    reply_to = None
    if properties.reply_to is not None:
        reply_to = address_of(properties.reply_to, _annotated_kind(annotations, _REPLY_KIND))
    to = None
    if properties.to is not None:
        to = address_of(properties.to, _annotated_kind(annotations, _DESTINATION_KIND))
    fields = (
        given_id if given_id is not None else message_id,
        max(at, 0),
        min(header.priority, 9),
        PERSISTENT if header.durable else NON_PERSISTENT,
        max(expires, 0),
        _delivery_time(annotations, now),
        _id_of(properties.correlation_id, correlation=True),
        reply_to,
        properties.subject,
        packed,
        letters,
        kind,
        body,
    )
    if b"JMS" in payload and _has_reserved(message.application):  # some of these are the broker's: encoded again
        return fields, to
    begin = message.passed_on
    _checked.add(payload[begin:], expiry)
    if body:
        for end in (message.content, message.end):
            if end - len(body) >= message.begin and payload[end - len(body) : end] == body:
                return (*fields, payload[begin : end - len(body)], payload[end:]), to
    return (*fields, payload[begin:], None), to


def _delivery_time(annotations: dict[Any, Any], now: int) -> int:
    at, after = annotations.get(_DELIVER_AT), annotations.get(_DELIVER_IN)
    for name, given in ((_DELIVER_AT, at), (_DELIVER_IN, after)):
        if given is not None and not (isinstance(given, int) and given <= LONG_MAX):
            raise RequestError(f"{name} must be a number of ms, not {shown(given)}", ErrorCode.MESSAGE_FORMAT)
    if at is not None and at > 0:
        return int(at)
    return min(now + int(after), LONG_MAX) if after is not None and after > 0 else 0


def _annotated_kind(annotations: dict[Any, Any], name: Symbol) -> Kind | None:
    number = annotations.get(name)
    return _KINDS[number] if isinstance(number, int) and 0 <= number < len(_KINDS) else None


def _has_reserved(properties: dict[Any, Any]) -> bool:
    """True if a property has a name that only the broker sets, or one that is no text."""
    return any(type(name) is not str or set_by_broker(name) for name in properties)


def _application_properties(given: dict[Any, Any]) -> dict[str, PropertyValue]:
    values: dict[str, PropertyValue] = {}
    for name, value in given.items():
        if type(name) is not str:
            raise malformed(f"the name of an application property is {shown(name)}")
        if type(value) is bytes or not name:
            continue  # JMS has no such type or name: other AMQP clients get it
        if type(value) in _PLAIN:
            values[name] = value
            continue
        try:
            plain = _jms(value)
            values[name] = str(plain) if type(plain) is JmsChar else normalise(plain)
        except FormatError:  # no type of JMS either
            continue
    return values


def _signed(number: int) -> int:
    """An unsigned 32-bit number as JMS represents it."""
    return int(number) if number <= INT_MAX else int(number) - 2**32


#: Types of which any value is one of a property: a plain int has 32 bits here.
_PLAIN: Final = frozenset({type(None), bool, int, float, str})

#: Types that AMQP and JMS have alike.
_SAME: Final = frozenset({type(None), bool, int, float, str, bytes})


def _jms(value: Any) -> Any:
    """A value of AMQP as a value of JMS.

    Raises:
        FormatError: there is none.
    """
    if type(value) in _SAME:
        return value
    match value:
        case UByte():
            return Short(value)
        case UShort():
            return int(value)
        case UInt() | Timestamp():
            return Long(value)
        case ULong():
            return Long(value) if value <= LONG_MAX else str(int(value))
        case Char():
            return JmsChar(value) if len(value.encode("utf-16-be")) == 2 else str(value)
        case Symbol() | UUID():
            return str(value)
        case int() | float():  # Byte, Long, Float …
            return value
    raise FormatError(f"JMS has no value like {shown(value)}")


def _is_text(content_type: str | None) -> bool:
    if content_type is None or content_type in _OCTETS:
        return False
    plain = content_type.partition(";")[0].strip().lower()
    return plain.startswith("text/") or plain.endswith(("/json", "+json", "/xml", "+xml"))


def _body_of(message: _Sections) -> tuple[int, bytes | None]:
    kinds = {code for code, _ in message.body}
    if len(kinds) > 1 or (len(message.body) > 1 and _VALUE in kinds):
        raise malformed("a message has bodies of several kinds")
    if kinds == {_DATA}:
        body = b"".join(part for _, part in message.body)
        if _is_text(message.properties.content_type):
            with suppress(UnicodeDecodeError):
                body.decode()
                return _TEXT, body
        return _BYTES, body
    value: Any = [part for _, items in message.body for part in items] if kinds == {_SEQUENCE} else None
    if kinds == {_VALUE}:
        value = message.body[0][1]
    try:
        match value:
            case None:
                annotated = message.annotations.get(_MESSAGE_TYPE)
                return (_EMPTY.get(annotated, _NONE) if isinstance(annotated, int) else _NONE), None
            case bytes():
                return _BYTES, value
            case str():
                return _TEXT, encode_text(value)
            case dict():
                if not all(type(name) is str for name in value):
                    raise FormatError("names in a MapMessage are text")
                return _MAP, encode_map({name: normalise_field(_jms(each)) for name, each in value.items()})
            case list():
                return _STREAM, encode_stream([normalise_field(_jms(each)) for each in value])
            case _:
                return _STREAM, encode_stream([normalise_field(_jms(value))])
    except FormatError:  # structures that JMS has not: as bytes of AMQP
        return _BYTES, message.whole_body()


# -- ids: the forms of Qpid JMS, so that an id that is no text survives -----------------------------------------------

_NO_PREFIX, _AS_STRING, _AS_UUID, _AS_ULONG = (f"ID:AMQP_{form}:" for form in ("NO_PREFIX", "STRING", "UUID", "ULONG"))


def _id_of(value: Any, *, correlation: bool = False) -> str | None:
    """A message-id or correlation-id as text, so that selectors and all clients know it."""
    match value:
        case None:
            return None
        case str():
            if correlation and not value.startswith("ID:AMQP_"):
                return value
            if not value.startswith("ID:"):
                return _NO_PREFIX + value
            return _AS_STRING + value if value.startswith("ID:AMQP_") else value
        case UUID():
            return f"{_AS_UUID}{value}"
        case ULong():
            return f"{_AS_ULONG}{int(value)}"
        case bytes():
            return id_of_bytes(value)
    raise malformed(f"a message-id is a string, a uuid, a ulong or bytes, not {shown(value)}")


def _amqp_id(text: str | bytes | None) -> Any:
    """The reverse of :func:`_id_of`."""
    if not isinstance(text, str) or not text.startswith("ID:AMQP_"):
        return text
    data = bytes_of_id(text)
    if data is not None:
        return data
    with suppress(ValueError):
        for prefix, made in ((_NO_PREFIX, str), (_AS_STRING, str), (_AS_UUID, UUID)):
            if text.startswith(prefix):
                return made(text.removeprefix(prefix))
        if text.startswith(_AS_ULONG) and 0 <= (number := int(text.removeprefix(_AS_ULONG))) < 2**64:
            return ULong(number)
    return text


# -- out --------------------------------------------------------------------------------------------------------------


def payload_of(fields: EnvelopeFields, address: str, count: int, now: int) -> tuple[bytes, bool]:
    """The message for an AMQP client.

    Args:
        fields: of the envelope.
        address: of the destination that it is consumed from.
        count: of deliveries, this one included.
        now: milliseconds since 1970.

    Returns:
        Its bytes; and whether it had to be read for that, which takes time.
    """
    expiration = min(fields[EXPIRATION], LONG_MAX)
    ttl = min(max(expiration - now, 1), 2**32 - 1) if expiration else None
    header = _header(fields[DELIVERY_MODE] == PERSISTENT, fields[PRIORITY], ttl, max(count - 1, 0))
    kept = _kept(fields)
    if kept is not None:
        expiry = _checked.find(kept)
        if expiry is not None and (not expiry or expiry == expiration):
            return header + kept, False
        message = _passed_on(kept)
        if message is not None:
            expiry = message.properties.absolute_expiry_time or 0
            _checked.add(kept, expiry)
            if expiry and expiry != expiration:  # the ttl was shorter, or an administrator has decided
                return header + _expiring(message, expiration), True
            return header + kept, True
    out = bytearray(header)
    try:
        values: dict[str, Any] = unpack_properties(fields)
    except SieveError:
        values = {}  # as for a selector: nothing can be read from them
    kind = BodyKind(fields[BODY_KIND])
    body = _body(kind, fields[BODY])
    if body.descriptor == _DATA:
        kind = BodyKind.BYTES
    annotations: dict[Any, Any] = {
        _MESSAGE_TYPE: Byte(_MESSAGE_TYPES[kind]),
        _DESTINATION_KIND: Byte(_KINDS.index(parse_address(address).kind)),
    }
    reply_to = fields[REPLY_TO]
    if reply_to is not None:
        try:
            annotations[_REPLY_KIND] = Byte(_KINDS.index(parse_address(reply_to).kind))
        except AddressError:  # any client can send something else
            reply_to = None
    if fields[DELIVERY_TIME]:
        annotations[_DELIVER_AT] = Long(min(fields[DELIVERY_TIME], LONG_MAX))
    encode(Described(ULong(_ANNOTATIONS), annotations), out)
    content_type, group = values.pop(_CONTENT_TYPE, None), values.pop(_GROUP_ID, None)
    sequence = values.pop(_GROUP_SEQUENCE, None)
    if content_type is None and kind is BodyKind.BYTES:
        content_type = "application/octet-stream"
    write(
        Properties(
            message_id=_amqp_id(fields[MESSAGE_ID]),
            to=address,
            subject=fields[TYPE],
            reply_to=reply_to,
            correlation_id=_amqp_id(fields[CORRELATION_ID]),
            content_type=None if content_type is None else str(content_type),
            absolute_expiry_time=expiration or None,
            creation_time=min(fields[TIMESTAMP], LONG_MAX) or None,
            group_id=None if group is None else str(group),
            group_sequence=sequence % 2**32 if isinstance(sequence, int) else None,
        ),
        out,
    )
    if values:
        encode(Described(ULong(_APPLICATION), values), out)
    encode(body, out)
    return bytes(out), True


@lru_cache(maxsize=64)
def _header(durable: bool, priority: int, ttl: int | None, delivery_count: int) -> bytes:
    out = bytearray()
    first = delivery_count == 0
    write(Header(durable=durable, priority=priority, ttl=ttl, first_acquirer=first, delivery_count=delivery_count), out)
    return bytes(out)


def _kept(fields: EnvelopeFields) -> bytes | None:
    """The unchecked sections that an AMQP client has sent; None for a message of another client or a dead letter."""
    if len(fields) <= AMQP_TAIL or type(fields[AMQP_HEAD]) is not bytes or _BROKERS_OWN in (fields[9] or b""):
        return None
    head, tail = fields[AMQP_HEAD], fields[AMQP_TAIL]
    return head if type(tail) is not bytes else b"".join((head, fields[BODY] or b"", tail))


def _passed_on(sections: bytes) -> _Sections | None:
    """These sections, if an AMQP client may get them. Any client can send such fields."""
    try:
        message = _Sections(sections)
    except ProtocolError:
        return None
    return None if message.passed_on or _has_reserved(message.application) else message


def _expiring(message: _Sections, expiration: int) -> bytes:
    """The sections of a message with another absolute-expiry-time; 0 for none."""
    out = bytearray()
    write(message.properties.having(absolute_expiry_time=expiration or None), out)
    begin, end = message.standard
    return b"".join((message.payload[:begin], out, message.payload[end:]))


def _body(kind: BodyKind, body: bytes | None) -> Described:
    try:
        match kind:
            case BodyKind.BYTES | BodyKind.OBJECT:
                return Described(ULong(_DATA), body or b"")
            case BodyKind.MAP if body:
                return Described(
                    ULong(_VALUE), {name: _amqp(each) for name, each in decode_map(body, CONVERTED_VALUES).items()}
                )
            case BodyKind.STREAM if body:
                return Described(ULong(_SEQUENCE), [_amqp(each) for each in decode_stream(body, CONVERTED_VALUES)])
            case BodyKind.STREAM:
                return Described(ULong(_SEQUENCE), [])
            case BodyKind.MAP:
                return Described(ULong(_VALUE), {})
            case BodyKind.TEXT if body is not None:
                return Described(ULong(_VALUE), body.decode("utf-8", "replace"))
    except SieveError:  # its producer has packed something else, or too many values
        return Described(ULong(_DATA), body or b"")
    return Described(ULong(_VALUE), None)


def _amqp(value: Any) -> Any:
    return Char(value) if type(value) is JmsChar else value
