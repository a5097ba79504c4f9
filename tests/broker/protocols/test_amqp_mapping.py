"""AMQP messages as envelopes, and envelopes as AMQP messages: headers, properties, bodies, ids."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sievemq_broker.protocols.amqp import mapping
from sievemq_broker.protocols.amqp.mapping import AMQP_HEAD, AMQP_TAIL, envelope_of, filters_of
from sievemq_broker.protocols.amqp.performatives import Header, Properties, Transfer
from sievemq_broker.protocols.amqp.types import (
    MESSAGE_VALUES,
    Char,
    Decimal,
    Described,
    Symbol,
    Timestamp,
    UByte,
    UInt,
    ULong,
    UShort,
)
from sievemq_core.errors import ErrorCode, ProtocolError, SieveError
from sievemq_core.message.body import decode_map, decode_stream, encode_map, encode_stream
from sievemq_core.message.envelope import (
    BODY,
    BODY_KIND,
    CORRELATION_ID,
    DELIVERY_TIME,
    ENVELOPE_FIELDS,
    EXPIRATION,
    MESSAGE_ID,
    REPLY_TO,
    TIMESTAMP,
    TYPE,
    BodyKind,
    Envelope,
    pack_properties,
    unpack_properties,
)
from sievemq_core.message.values import LONG_MAX, Byte, Float, Long, Short
from sievemq_core.message.values import Char as JmsChar

from .amqp import Delivery, message
from .test_amqp_types import VALUES_OF_ALL_KINDS

NOW = 1_700_000_000_000


def fields_of(payload: bytes) -> tuple[Any, ...]:
    return envelope_of(payload, "ID:made", NOW)[0]


def payload_of(fields: tuple[Any, ...], address: str, count: int, now: int) -> bytes:
    payload, _ = mapping.payload_of(fields, address, count, now)
    return payload


def delivery_of(payload: bytes) -> Delivery:
    return Delivery(Transfer(handle=0), payload)


def envelope(**values: Any) -> tuple[Any, ...]:
    """An envelope of another client."""
    fields: list[Any] = ["ID:1", NOW, 4, 2, 0, 0, None, None, None, None, None, int(BodyKind.TEXT), b"hello"]
    for name, value in values.items():
        fields[int(name[1:])] = value
    return tuple(fields)


# -- in ---------------------------------------------------------------------------------------------------------------


def test_headers_become_those_of_jms() -> None:
    standard = Properties(
        message_id="ID:7", to="q", subject="order", reply_to="answers", correlation_id="c", creation_time=NOW - 5,
        group_id="g", group_sequence=3, content_type="application/json",
    )  # fmt: skip
    annotations = {"x-opt-jms-reply-to": 1, "x-opt-delivery-time": Long(NOW + 9)}
    payload = message(
        "{}", {"n": 1}, header=Header(durable=True, priority=12, ttl=50), standard=standard, annotations=annotations
    )
    fields, to = envelope_of(payload, "ID:made", NOW)
    assert fields[:9] == ("ID:7", NOW - 5, 9, 2, NOW + 50, NOW + 9, "c", "topic:answers", "order")
    assert unpack_properties(fields) == {
        "n": 1, "JMSXGroupID": "g", "JMSXGroupSeq": 3, "content_type": "application/json"
    }  # fmt: skip
    assert to == "queue:q"
    Envelope(fields)


def test_absent_fields_have_defaults() -> None:
    fields, to = envelope_of(message(), "ID:made", NOW)
    assert fields[:11] == ("ID:made", 0, 4, 1, 0, 0, None, None, None, None, None)
    assert to is None
    assert fields_of(message(standard=Properties(absolute_expiry_time=NOW + 1)))[EXPIRATION] == NOW + 1
    assert fields_of(message(annotations={"x-opt-delivery-delay": UInt(5)}))[DELIVERY_TIME] == NOW + 5


@pytest.mark.parametrize(
    ("ttl", "absolute", "expires"),
    [
        (500, None, NOW + 500), (None, NOW + 60, NOW + 60), (500, NOW + 60, NOW + 60), (60, NOW + 500, NOW + 60),
        (500, NOW - 1, NOW - 1), (500, 0, NOW + 500), (500, -5, NOW + 500), (0, NOW + 60, NOW + 60), (None, None, 0),
    ],
)  # fmt: skip
def test_the_earlier_of_ttl_and_absolute_expiry_time_decides(
    ttl: int | None, absolute: int | None, expires: int
) -> None:
    given = message(header=Header(ttl=ttl), standard=Properties(absolute_expiry_time=absolute))
    assert fields_of(given)[EXPIRATION] == expires


@pytest.mark.parametrize("size", [1, 5_000])
@pytest.mark.parametrize("times", [1, 2])
@pytest.mark.parametrize("overridden", [0, NOW + 70, NOW + 5_000])
def test_a_delivery_has_the_expiry_time_that_the_broker_keeps(overridden: int, times: int, size: int) -> None:
    standard = Properties(
        message_id=UUID(int=1), user_id=b"u", to="q", subject="s", absolute_expiry_time=NOW + 600, group_sequence=4
    )
    given = message(b"x" * size, {"n": 1}, header=Header(ttl=500), standard=standard, annotations={"a": UInt(1)})
    fields = list(fields_of(given))
    assert fields[EXPIRATION] == NOW + 500
    fields[EXPIRATION] = overridden
    for _ in range(times):
        delivery = delivery_of(payload_of(tuple(fields), "queue:q", 1, NOW))
        assert delivery.standard == standard.having(absolute_expiry_time=overridden or None)
        assert (delivery.properties, delivery.annotations) == ({"n": 1}, {"a": UInt(1)})
        assert delivery.body == b"x" * size
        assert delivery.header.ttl == (overridden - NOW if overridden else None)


def test_the_first_acquirer_is_told_so() -> None:
    for count, first in ((1, True), (2, False)):
        assert delivery_of(payload_of(fields_of(message()), "queue:q", count, NOW)).header.first_acquirer is first


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, None), (True, True), (UByte(200), Short(200)), (UShort(65_535), 65_535), (UInt(7), Long(7)),
        (ULong(7), Long(7)), (ULong(2**64 - 1), str(2**64 - 1)), (Byte(-1), Byte(-1)), (Short(5), Short(5)), (5, 5),
        (Long(5), Long(5)), (Float(1.5), Float(1.5)), (1.5, 1.5), ("x", "x"), (Symbol("s"), "s"), (Char("c"), "c"),
        (Timestamp(9), Long(9)), (UUID(int=1), str(UUID(int=1))),
    ],
)  # fmt: skip
def test_application_properties_become_those_of_jms(value: Any, expected: Any) -> None:
    found = unpack_properties(fields_of(message(properties={"p": value})))["p"]
    assert (type(found), found) == (type(expected), expected)


@pytest.mark.parametrize("value", [b"x", [1], {"a": 1}, Decimal(0x74, b"\0\0\0\0"), Described(ULong(1), 2)])
def test_a_property_that_jms_has_not_is_kept_for_amqp_clients_alone(value: Any) -> None:
    payload = message(properties={"p": value, "n": 1})
    fields = fields_of(payload)
    assert unpack_properties(fields) == {"n": 1}
    assert delivery_of(payload_of(fields, "queue:q", 1, NOW)).properties == {"p": value, "n": 1}


@pytest.mark.parametrize(
    ("body", "section", "annotated", "kind", "content"),
    [
        ("text", 0x77, None, BodyKind.TEXT, b"text"),
        ("", 0x77, None, BodyKind.TEXT, b""),
        (None, 0x77, None, BodyKind.NONE, None),
        (None, 0x77, 5, BodyKind.TEXT, None),
        (None, 0x77, 3, BodyKind.BYTES, None),
        (b"data", 0x75, None, BodyKind.BYTES, b"data"),
        (b"", 0x75, None, BodyKind.BYTES, b""),
        (b"data", 0x77, None, BodyKind.BYTES, b"data"),
    ],
)
def test_bodies_of_one_value(body: Any, section: int, annotated: int | None, kind: BodyKind, content: Any) -> None:
    annotations = None if annotated is None else {"x-opt-jms-msg-type": Byte(annotated)}
    fields = fields_of(message(body, section=section, annotations=annotations))
    assert (fields[BODY_KIND], fields[BODY]) == (kind, content)


def test_bodies_of_several_values() -> None:
    fields = fields_of(message({"a": 1, "b": UInt(2), "c": b"x", "d": Char("e")}))
    assert fields[BODY_KIND] == BodyKind.MAP
    assert decode_map(fields[BODY]) == {"a": 1, "b": Long(2), "c": b"x", "d": JmsChar("e")}
    for section in (0x76, 0x77):
        fields = fields_of(message([1, "x", None], section=section))
        assert (fields[BODY_KIND], decode_stream(fields[BODY])) == (BodyKind.STREAM, [1, "x", None])
    assert decode_stream(fields_of(message(42))[BODY]) == [42]
    two = message(b"a", section=0x75) + message(b"b", section=0x75)
    fields = fields_of(two)
    assert (fields[BODY_KIND], fields[BODY]) == (BodyKind.BYTES, b"ab")
    assert payload_of(fields, "queue:q", 1, NOW).endswith(two)


def test_text_as_data_is_text_where_its_content_type_says_so() -> None:
    for content_type, data, kind in (
        ("text/plain; charset=utf-8", b"x", BodyKind.TEXT), ("application/json", b"{}", BodyKind.TEXT),
        ("text/plain", b"\xff", BodyKind.BYTES), ("application/octet-stream", b"x", BodyKind.BYTES),
        ("application/x-java-serialized-object", b"x", BodyKind.BYTES),
    ):  # fmt: skip
        fields = fields_of(message(data, standard=Properties(content_type=content_type), section=0x75))
        assert (fields[BODY_KIND], fields[BODY]) == (kind, data)


@pytest.mark.parametrize("body", [{"a": {"b": 1}}, {1: 2}, [[1]], Decimal(0x74, b"\0\0\0\0"), Described(ULong(1), 2)])
def test_a_body_that_jms_has_not_arrives_as_bytes_of_amqp(body: Any) -> None:
    payload = message(body)
    fields = fields_of(payload)
    assert (fields[BODY_KIND], fields[BODY]) == (BodyKind.BYTES, payload)
    assert payload_of(fields, "queue:q", 1, NOW).endswith(payload)


def test_an_array_in_a_body_is_bytes_of_amqp() -> None:
    payload = bytes.fromhex("005377") + bytes.fromhex("c10a02a10161e0040254 0102".replace(" ", ""))
    fields = fields_of(payload)
    assert (fields[BODY_KIND], fields[BODY]) == (BodyKind.BYTES, payload)


def test_the_body_is_held_once() -> None:
    fields = fields_of(message("x" * 10_000, {"n": 1}) + message({}, section=0x78))
    assert len(Envelope(fields).packed) < 10_200
    assert fields[AMQP_TAIL] == message({}, section=0x78)


IDS = [
    ("ID:1", "ID:1"), ("plain", "ID:AMQP_NO_PREFIX:plain"), (UUID(int=1), f"ID:AMQP_UUID:{UUID(int=1)}"),
    (ULong(5), "ID:AMQP_ULONG:5"), (b"\x01\xff", "ID:AMQP_BINARY:01FF"),
    ("ID:AMQP_UUID:x", "ID:AMQP_STRING:ID:AMQP_UUID:x"),
]  # fmt: skip


@pytest.mark.parametrize(("given_id", "text"), IDS)
def test_message_ids_have_a_form_that_gives_them_back(given_id: Any, text: str) -> None:
    fields = fields_of(message(standard=Properties(message_id=given_id)))
    assert fields[MESSAGE_ID] == text
    delivery = delivery_of(payload_of(fields[:ENVELOPE_FIELDS], "queue:q", 1, NOW))
    assert delivery.standard.message_id == given_id


@pytest.mark.parametrize(
    ("given_id", "text"), [("order-7", "order-7"), ("ID:1", "ID:1"), (b"", "ID:AMQP_BINARY:"), *IDS[2:]]
)
def test_correlation_ids(given_id: Any, text: Any) -> None:
    fields = fields_of(message(standard=Properties(correlation_id=given_id)))
    assert fields[CORRELATION_ID] == text
    delivery = delivery_of(payload_of(fields[:ENVELOPE_FIELDS], "queue:q", 1, NOW))
    assert delivery.standard.correlation_id == given_id


@pytest.mark.parametrize(
    ("payload", "says"),
    [
        (b"\x40", "no section"), (b"\x50\x72", "no section"), (message(section=0x79), "no section"),
        (message() + message(), "order"),
        (message(b"x", section=0x75) + message("x"), "several kinds"), (message(section=0x75), "the body"),
        (message(1, section=0x72) + message(), "maps"), (message({1: 2}, section=0x74) + message(),
        "name of an application"),
        (message(standard=Properties(message_id=1.5)), "message-id"),
        (message([None] * (MESSAGE_VALUES + 1)), "values"),
        (message(b"", section=0x75) * (MESSAGE_VALUES // 2 + 1), "values"),
    ],
)  # fmt: skip
def test_a_malformed_message_raises_with_the_reason(payload: bytes, says: str) -> None:
    with pytest.raises(ProtocolError, match=says):
        fields_of(payload)


@pytest.mark.parametrize(
    ("sections", "name"),
    [
        ({"annotations": {"x-opt-delivery-cron": "0 * * * *"}}, "x-opt-delivery-cron"),
        ({"annotations": {"x-opt-delivery-delay": UInt(5), "x-opt-delivery-period": UInt(5)}}, "x-opt-delivery-period"),
        ({"annotations": {"x-opt-delivery-repeat": UInt(5)}}, "x-opt-delivery-repeat"),
        ({"properties": {"AMQ_SCHEDULED_DELAY": 5}}, "AMQ_SCHEDULED_DELAY"),
        ({"properties": {"a": 1, "AMQ_SCHEDULED_CRON": "0 * * * *"}}, "AMQ_SCHEDULED_CRON"),
    ],
)
def test_a_schedule_of_activemq_is_refused(sections: dict[str, Any], name: str) -> None:
    with pytest.raises(SieveError, match=f"{name} is not supported.*x-opt-delivery-delay") as refused:
        fields_of(message(**sections))
    assert refused.value.code is ErrorCode.MESSAGE_FORMAT


@pytest.mark.parametrize("value", ["5", 5.5, ULong(2**63)])
@pytest.mark.parametrize("name", ["x-opt-delivery-delay", "x-opt-delivery-time"])
def test_a_delay_that_is_no_time_is_refused(name: str, value: Any) -> None:
    with pytest.raises(SieveError, match=f"{name} must be a number of ms") as refused:
        fields_of(message(annotations={name: value}))
    assert refused.value.code is ErrorCode.MESSAGE_FORMAT


def test_a_delay_is_at_most_the_last_time_there_is() -> None:
    assert fields_of(message(annotations={"x-opt-delivery-delay": Long(LONG_MAX)}))[DELIVERY_TIME] == LONG_MAX
    assert fields_of(message(annotations={"x-opt-delivery-delay": Long(-5)}))[DELIVERY_TIME] == 0


def test_a_property_that_is_too_long_is_refused() -> None:
    with pytest.raises(SieveError) as refused:
        fields_of(message(properties={"p": "x" * 1_000_000}))
    assert refused.value.code is ErrorCode.MESSAGE_FORMAT


@given(st.binary(max_size=120) | VALUES_OF_ALL_KINDS.map(message))
def test_every_accepted_message_can_be_delivered(payload: bytes) -> None:
    try:
        fields, _ = envelope_of(payload, "ID:made", NOW)
    except SieveError:
        return
    again = Envelope.from_packed(Envelope(fields).packed).fields
    assert payload_of(again, "queue:q", 1, NOW).endswith(payload)
    delivery_of(payload_of(again[:ENVELOPE_FIELDS], "topic:t", 2, NOW))


# -- out --------------------------------------------------------------------------------------------------------------


def test_a_message_of_another_client() -> None:
    packed, letters = pack_properties(
        {"n": 1, "s": Short(2), "JMSXGroupID": "g", "JMSXGroupSeq": 4, "content_type": "a/b"}
    )
    fields = envelope(_4=NOW + 500, _5=NOW - 1, _6="c", _7="topic:answers", _8="order", _9=packed, _10=letters)
    delivery = delivery_of(payload_of(fields, "queue:q", 3, NOW))
    assert delivery.header == Header(durable=True, priority=4, ttl=500, delivery_count=2)
    assert delivery.annotations == {
        "x-opt-jms-msg-type": 5, "x-opt-jms-dest": 0, "x-opt-jms-reply-to": 1, "x-opt-delivery-time": NOW - 1
    }  # fmt: skip
    assert delivery.standard == Properties(
        message_id="ID:1", to="queue:q", subject="order", reply_to="topic:answers", correlation_id="c",
        content_type="a/b", absolute_expiry_time=NOW + 500, creation_time=NOW, group_id="g", group_sequence=4,
    )  # fmt: skip
    assert delivery.properties == {"n": 1, "s": Short(2)}
    assert delivery.body == "hello"


@pytest.mark.parametrize(
    ("kind", "body", "expected"),
    [
        (BodyKind.NONE, None, None), (BodyKind.TEXT, None, None), (BodyKind.TEXT, b"", ""), (BodyKind.BYTES, None, b""),
        (BodyKind.OBJECT, b"pickled", b"pickled"), (BodyKind.MAP, None, {}), (BodyKind.STREAM, None, []),
        (BodyKind.MAP, encode_map({"a": 1, "c": JmsChar("d")}), {"a": 1, "c": Char("d")}),
        (BodyKind.STREAM, encode_stream([1, Long(2), b"x"]), [1, Long(2), b"x"]),
        (BodyKind.MAP, b"\xc1 no map", b"\xc1 no map"),
    ],
)  # fmt: skip
def test_bodies_of_other_clients(kind: BodyKind, body: bytes | None, expected: Any) -> None:
    found = delivery_of(payload_of(envelope(_11=int(kind), _12=body), "queue:q", 1, NOW)).body
    assert (type(found), found) == (type(expected), expected)


def test_a_dead_letter_shows_what_became_of_it() -> None:
    fields = list(fields_of(message("x", {"n": 1})))
    fields[9], fields[10] = pack_properties({"n": 1, "JMS_SieveMQ_DeadLetterReason": "rejected"})
    delivery = delivery_of(payload_of(tuple(fields), "queue:DLQ.q", 1, NOW))
    assert delivery.properties["JMS_SieveMQ_DeadLetterReason"] == "rejected"
    assert delivery.body == "x"


def test_a_property_that_is_the_brokers_is_not_kept_from_a_producer() -> None:
    fields = fields_of(message(properties={"JMS_SieveMQ_DeadLetterReason": "forged"}))
    assert len(fields) == ENVELOPE_FIELDS


@pytest.mark.parametrize("behind", [(b"\xff\xff", b""), (b"", None), ("text", b""), (b"\0\x53\x75\xa0\x05", b"\x40")])
def test_fields_behind_the_last_that_are_no_sections_are_not_believed(behind: tuple[Any, Any]) -> None:
    payload = payload_of((*envelope(), *behind), "queue:q", 1, NOW)
    assert delivery_of(payload).body in ("hello", None)


def test_properties_that_cannot_be_read_are_left_out() -> None:
    delivery = delivery_of(payload_of(envelope(_9=b"\xc1"), "queue:q", 1, NOW))
    assert (delivery.properties, delivery.body) == ({}, "hello")


# -- filters ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given_filters", "selector", "no_local"),
    [
        (None, None, False), ({}, None, False),
        ({Symbol("jms-selector"): Described(ULong(0x0000468C00000004), "a = 1")}, "a = 1", False),
        ({Symbol("any"): Described(Symbol("apache.org:selector-filter:string"), "a = 1")}, "a = 1", False),
        ({Symbol("jms-selector"): "a = 1"}, "a = 1", False),
        ({Symbol("no-local"): Described(ULong(0x0000468C00000003), [])}, None, True),
    ],
)  # fmt: skip
def test_filters_by_their_descriptor_or_name(given_filters: Any, selector: str | None, no_local: bool) -> None:
    found = filters_of(given_filters)
    assert (found.selector, found.no_local, found.in_force) == (selector, no_local, given_filters or {})


def test_a_selector_that_is_no_text_is_refused() -> None:
    with pytest.raises(SieveError) as refused:
        filters_of({Symbol("jms-selector"): Described(ULong(0x0000468C00000004), 5)})
    assert refused.value.code is ErrorCode.INVALID_SELECTOR


def test_the_envelope_has_what_it_must() -> None:
    fields = fields_of(message("x", standard=Properties(reply_to="q2")))
    assert (fields[REPLY_TO], fields[TIMESTAMP], fields[TYPE]) == ("queue:q2", 0, None)
    assert type(fields[AMQP_HEAD]) is bytes


@pytest.mark.parametrize(
    ("kind", "few", "many"),
    [
        (BodyKind.MAP, encode_map({f"n{n}": n for n in range(3_000)}), encode_map({f"n{n}": n for n in range(4_000)})),
        (BodyKind.STREAM, encode_stream([None] * 6_500), encode_stream([None] * 7_500)),
    ],
)
def test_a_body_of_very_many_values_arrives_as_bytes(kind: BodyKind, few: bytes, many: bytes) -> None:
    """Converting millions of them would take seconds, in one turn of the loop."""
    whole = delivery_of(payload_of(envelope(_11=int(kind), _12=few), "queue:q", 1, NOW))
    assert len(whole.body) in (3_000, 6_500)
    cut = delivery_of(payload_of(envelope(_11=int(kind), _12=many), "queue:q", 1, NOW))
    assert (cut.body, cut.annotations["x-opt-jms-msg-type"]) == (many, Byte(3))
