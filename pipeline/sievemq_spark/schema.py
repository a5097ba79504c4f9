"""A message as a row: the columns, and both ways between them. No Spark and no Arrow is needed for anything here.

    shard               STRING    name of the shard it was read from
    namespace           STRING    the broker's name for it; '' is the default one
    destination         STRING    queue:orders
    seq                 BIGINT    its place in what was read, from 1; with gaps if several tasks read a queue
    message_id          STRING    JMSMessageID
    correlation_id      STRING    JMSCorrelationID; NULL where it was set as bytes
    correlation_bytes   BINARY    JMSCorrelationID that was set as bytes
    type                STRING    JMSType
    reply_to            STRING    JMSReplyTo: queue:answers
    timestamp           BIGINT    JMSTimestamp: ms since 1970-01-01 UTC; 0 where the producer disabled it
    delivery_mode       INT       1 NON_PERSISTENT, 2 PERSISTENT
    priority            INT       0 … 9
    expiration          BIGINT    ms since 1970-01-01 UTC; 0 = never
    delivery_time       BIGINT    ms since 1970-01-01 UTC
    redelivered         BOOLEAN   JMSRedelivered
    delivery_count      INT       JMSXDeliveryCount
    group_id            STRING    JMSXGroupID, where it is a String
    group_seq           BIGINT    JMSXGroupSeq, where it is an integer
    body_kind           STRING    NONE, TEXT, BYTES, MAP, STREAM, OBJECT
    body_text           STRING    the text of a TextMessage
    body_bytes          BINARY    the body of any other message as it travelled
    size                BIGINT    bytes of body and packed properties
    properties          MAP       name -> struct<t STRING, b BOOLEAN, l BIGINT, d DOUBLE, s STRING>

Outcomes have rows of their own: where the message was, some of its headers, and

    seq                 BIGINT    the record's sequence in its tap
    subscription        STRING    of a topic, if it has a name
    outcome             STRING    acknowledged, expired, dead-lettered, dropped, removed
    reason              STRING    why, where there is more than one
    attempts            INT       attempts, the acknowledged one included
    selector            STRING    of the consumer that acknowledged it
    time                BIGINT    when that was: ms since 1970-01-01 UTC

A property's `t` is the letter of its JMS type (z b h i l f d s); exactly one other field holds the value: b a boolean,
l any integer, d a float (widened) or double, s a String; none for a null String. So no type is lost, and every
value can be compared as what it is.

Text in Spark is UTF-8. A lone surrogate, which JMS text may contain, becomes U+FFFD in a column; a body with one is
kept in `body_bytes` instead, where nothing changes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from sievemq_core.errors import FormatError
from sievemq_core.message.body import decode_map, decode_stream, decode_text, encode_text
from sievemq_core.message.envelope import (
    BodyKind,
    EnvelopeFields,
    pack_properties,
    well_formed,
)
from sievemq_core.message.values import TYPE_NAMES, Byte, Float, PropertyValue, Short, letter_of, to_long
from sievemq_spark.errors import PipelineError
from sievemq_spark.objects import decode_plain

PROPERTY_TYPE: Final = "struct<t:string,b:boolean,l:bigint,d:double,s:string>"

#: Column -> Spark type, in order.
COLUMNS: Final[dict[str, str]] = {
    "shard": "string",
    "namespace": "string",
    "destination": "string",
    "seq": "bigint",
    "message_id": "string",
    "correlation_id": "string",
    "correlation_bytes": "binary",
    "type": "string",
    "reply_to": "string",
    "timestamp": "bigint",
    "delivery_mode": "int",
    "priority": "int",
    "expiration": "bigint",
    "delivery_time": "bigint",
    "redelivered": "boolean",
    "delivery_count": "int",
    "group_id": "string",
    "group_seq": "bigint",
    "body_kind": "string",
    "body_text": "string",
    "body_bytes": "binary",
    "size": "bigint",
    "properties": f"map<string,{PROPERTY_TYPE}>",
}
COLUMN_NAMES: Final = frozenset(COLUMNS)

#: What became of a message: column -> Spark type, in order.
OUTCOME_COLUMNS: Final[dict[str, str]] = {
    "shard": "string",
    "namespace": "string",
    "destination": "string",
    "seq": "bigint",
    "message_id": "string",
    "correlation_id": "string",
    "type": "string",
    "timestamp": "bigint",
    "subscription": "string",
    "outcome": "string",
    "reason": "string",
    "attempts": "int",
    "selector": "string",
    "time": "bigint",
}

#: Columns that name the folders of an archive, from the outside in; the date is the day of the timestamp.
PARTITIONS: Final = ("namespace", "destination", "date")


class Typed(NamedTuple):
    """A property's value in the map; see the module's text."""

    t: str
    b: bool | None
    l: int | None  # noqa: E741  # the letter of the field
    d: float | None
    s: str | None


def ddl(promoted: Mapping[str, str] | None = None, columns: Mapping[str, str] = COLUMNS) -> str:
    names = [*columns.items(), *(promoted or {}).items()]
    return ", ".join(f"`{name.replace('`', '``')}` {kind}" for name, kind in names)


def typed(value: PropertyValue) -> Typed:
    """A property's value for the map."""
    kind = type(value)
    if kind is str:
        return Typed("s", None, None, None, well_formed(value))  # type: ignore[arg-type]  # a str, as just tested
    if value is None:
        return Typed("s", None, None, None, None)
    if kind is bool:
        return Typed("z", value, None, None, None)  # type: ignore[arg-type]
    if isinstance(value, int):
        return Typed(letter_of(value), None, int(value), None, None)
    return Typed(letter_of(value), None, None, float(value), None)


_HOLD: Final[dict[str, Callable[[Any], PropertyValue]]] = {"b": Byte, "h": Short, "l": to_long, "f": Float}


def untyped(item: Sequence[Any] | Mapping[str, Any] | None) -> PropertyValue:
    """The property's value from the map, in the form that message/values.py describes.

    Args:
        item: t, b, l, d, s in that order or by name, as Spark and Arrow give a struct; a map may have a NULL there.

    Raises:
        PipelineError: there is no such type, or its field is empty or out of range.
    """
    if item is None:
        raise PipelineError("its struct is NULL: leave it out of the map, or give it t = 's' for a null String")
    t, b, long, d, s = (item[name] for name in "tblds") if isinstance(item, Mapping) else item
    if t == "s" and (s is not None or (b is None and long is None and d is None)):
        return s  # type: ignore[no-any-return]
    value = b if t == "z" else long if t in ("b", "h", "i", "l") else d if t in ("f", "d") else None
    if value is None:
        raise PipelineError(
            f"its type t is {t!r} and its value b={b!r}, l={long!r}, d={d!r}, s={s!r}; a boolean is 'z' and stands "
            "in b, an integer 'b', 'h', 'i' or 'l' and stands in l, a float 'f' or 'd' and stands in d, "
            "text 's' and stands in s"
        )
    try:
        hold = _HOLD.get(t)
        result: PropertyValue = value if hold is None else hold(value)
    except (FormatError, TypeError) as error:
        raise PipelineError(f"its value does not fit its type, {TYPE_NAMES[t]}: {error}") from error
    if letter_of(result) != t:
        raise PipelineError(f"{value!r} does not fit its type, {TYPE_NAMES[t]}")
    return result


#: Letter of a column's type -> those of the properties that it holds.
WIDENS: Final = {"b": "b", "h": "bh", "i": "bhi", "l": "bhil", "f": "f", "d": "fd", "z": "z", "s": "s"}


def properties_of(
    properties: Mapping[str, Sequence[Any] | Mapping[str, Any]] | Sequence[Any] | None,
) -> dict[str, PropertyValue]:
    """The properties out of a row's map (or Arrow's list of pairs).

    Raises:
        PipelineError: a value does not fit its type.
    """
    if not properties:
        return {}
    pairs = properties.items() if isinstance(properties, Mapping) else properties
    found: dict[str, PropertyValue] = {}
    for name, item in pairs:
        try:
            found[name] = untyped(item)
        except PipelineError as error:
            raise PipelineError(f"the property {name!r}: {error}") from error
    return found


KINDS: Final = {int(kind): kind.name for kind in BodyKind}
BODY_KINDS: Final = {kind.name: int(kind) for kind in BodyKind}


def body_of(kind: str, text: bytes | None, data: bytes | None) -> bytes | None:
    """The body of a message, of the columns body_text (as UTF-8) and body_bytes, which its receiver can decode.

    Raises:
        PipelineError: it cannot, or a column would be left out.
    """
    if kind == "TEXT":
        if text is not None and data is not None:
            raise PipelineError("it has a body_text and body_bytes, and a message has one body: clear one of them")
        body = data if text is None else text
    elif text is not None:
        fix = "leave body_kind out, or name it TEXT" if kind in ("NONE", "BYTES") else "map_body and the like make one"
        where = "has no body" if kind == "NONE" else "has its body in body_bytes"
        raise PipelineError(f"a message of the kind {kind} {where}, and this row has a body_text: {fix}")
    elif kind == "NONE" and data is not None:
        raise PipelineError("a message of the kind NONE has no body, and this row has body_bytes: name the kind BYTES")
    else:
        body = data
    if body is not None and kind in _DECODE:
        try:
            _DECODE[kind](body)
        except FormatError as error:
            raise PipelineError(f"{error} (column {'body_bytes' if text is None else 'body_text'})") from error
    return body


_DECODE: Final[dict[str, Callable[[bytes], object]]] = {
    "TEXT": decode_text, "MAP": decode_map, "STREAM": decode_stream, "OBJECT": decode_plain,
}  # fmt: skip


def kind_of(kind: str | None, text: object, data: object) -> str:
    """The kind of body that a row names or, without a name, has."""
    return kind or ("TEXT" if text is not None else "BYTES" if data is not None else "NONE")


def _body_of(row: Mapping[str, Any]) -> tuple[int, bytes | None]:
    text, data = row.get("body_text"), row.get("body_bytes")
    kind = kind_of(row.get("body_kind"), text, data)
    if kind not in BODY_KINDS:
        raise PipelineError(f"there is no body kind {kind!r} (column body_kind); there are {', '.join(BODY_KINDS)}")
    return BODY_KINDS[kind], body_of(kind, None if text is None else encode_text(text), data)


def envelope_of(row: Mapping[str, Any]) -> EnvelopeFields:
    """A row as the envelope of a message; columns that are missing or NULL count as a new message's.

    Raises:
        PipelineError: a body that no reader can decode, a body kind that there is not, or a property that does not
            fit its type.
    """
    kind, body = _body_of(row)
    try:
        packed, letters = pack_properties(properties_of(row.get("properties")))
    except FormatError as error:
        raise PipelineError(str(error)) from error
    correlation = row.get("correlation_id")
    priority, mode = row.get("priority"), row.get("delivery_mode")
    if priority is not None and not 0 <= priority <= 9:
        raise PipelineError(f"{priority} is no priority (column priority): it is 0 to 9")
    if mode is not None and mode not in (1, 2):
        raise PipelineError(f"{mode} is no delivery mode (column delivery_mode): 1 NON_PERSISTENT, 2 PERSISTENT")
    return (
        row.get("message_id"),
        row.get("timestamp") or 0,
        4 if priority is None else priority,
        2 if mode is None else mode,
        row.get("expiration") or 0,
        row.get("delivery_time") or 0,
        correlation if correlation is not None else row.get("correlation_bytes"),
        row.get("reply_to"),
        row.get("type"),
        packed,
        letters,
        kind,
        body,
    )
