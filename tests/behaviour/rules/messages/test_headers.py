"""Sections 20 and 22: headers (HDR) and JMSX properties (JSX), as far as the message object goes."""

from __future__ import annotations

import pytest
from tests.client.messages.envelope import fields_of, send

from sievemq import (
    InvalidDestinationException,
    Message,
    MessageFormatException,
    Queue,
    Selector,
    TemporaryQueue,
    TextMessage,
    Topic,
)
from sievemq.messages import received
from sievemq_core.limits import MAX_HEADER_CHARS

SENT = ("ID:c:1", 1_700_000_000_000, 7, 1, 1_700_000_060_000, 1_700_000_000_005)


def test_hdr_01_hdr_02_hdr_03_hdr_04_hdr_05_hdr_06_hdr_07_dif_08_headers_reach_the_receiver(deliver):
    here = deliver(Message(), destination=Topic("prices"))
    assert here.get_jms_destination() == Topic("prices")
    assert here.get_jms_delivery_mode() == 1
    assert here.get_jms_expiration() == 1_700_000_060_000
    assert here.get_jms_delivery_time() == 1_700_000_000_005
    assert here.get_jms_priority() == 7
    assert here.get_jms_message_id() == "ID:c:1"
    assert here.get_jms_timestamp() == 1_700_000_000_000


def test_hdr_06_hdr_07_ids_and_timestamps_can_be_absent():
    here = received(fields_of(Message(), None, 0, 4, 2, 0, 0), Queue("q"), 1, None)
    assert here.get_jms_message_id() is None
    assert here.get_jms_timestamp() == 0


def test_hdr_08_correlation_id(deliver):
    message = Message()
    assert message.get_jms_correlation_id() is None
    for text in ("ID:c:7", "my own", "", "größe"):
        message.set_jms_correlation_id(text)
        assert deliver(message).get_jms_correlation_id() == text
    message.set_jms_correlation_id(None)
    assert deliver(message).get_jms_correlation_id() is None


def test_hdr_09_correlation_id_as_bytes_is_copied(deliver):
    message, data = Message(), bytearray(b"\x00\xff\x01")
    message.set_jms_correlation_id_as_bytes(data)
    data[0] = 9
    for here in (message, deliver(message)):
        assert here.get_jms_correlation_id_as_bytes() == b"\x00\xff\x01"
        assert here.get_jms_correlation_id() == "\x00\\xff\x01"
    message.set_jms_correlation_id("ü")
    assert deliver(message).get_jms_correlation_id_as_bytes() == "ü".encode()
    message.set_jms_correlation_id_as_bytes(None)
    assert message.get_jms_correlation_id_as_bytes() is None
    with pytest.raises(MessageFormatException):
        message.set_jms_correlation_id_as_bytes("text")


@pytest.mark.parametrize("destination", [Queue("q"), Topic("t"), TemporaryQueue("c.1")])
def test_hdr_10_reply_to(destination, deliver):
    message = Message()
    assert deliver(message).get_jms_reply_to() is None
    message.set_jms_reply_to(destination)
    assert message.get_jms_reply_to() is destination
    reply_to = deliver(message).get_jms_reply_to()
    assert reply_to == destination
    assert type(reply_to) is type(destination)
    message.set_jms_reply_to(None)
    assert deliver(message).get_jms_reply_to() is None


def test_hdr_10_other_types_than_destinations_are_refused():
    with pytest.raises(InvalidDestinationException):
        Message().set_jms_reply_to("queue:q")


def test_hdr_11_type(deliver):
    message = Message()
    assert deliver(message).get_jms_type() is None
    message.set_jms_type("order")
    assert deliver(message).get_jms_type() == "order"


def test_hdr_12_redelivered_has_no_meaning_on_send(deliver):
    message = Message()
    message.set_jms_redelivered(True)
    assert message.get_jms_redelivered()
    assert not deliver(message).get_jms_redelivered()
    assert deliver(message, count=2).get_jms_redelivered()


def test_hdr_13_hdr_18_dif_09_provider_headers_set_before_a_send_are_overwritten(deliver):
    message = Message()
    message.set_jms_message_id("ID:mine")
    message.set_jms_timestamp(1)
    message.set_jms_priority(0)
    message.set_jms_delivery_mode(2)
    message.set_jms_expiration(2)
    message.set_jms_delivery_time(3)
    message.set_jms_destination(Topic("elsewhere"))
    assert message.get_jms_message_id() == "ID:mine"
    here = deliver(message)
    assert here._fields[:6] == SENT
    assert here.get_jms_destination() == Queue("orders")


def test_hdr_14_send_sets_headers_on_the_senders_object():
    message = TextMessage("x")
    message.set_jms_correlation_id("c")
    fields_of(message, *SENT)
    assert message.get_jms_message_id() is None
    send(message, *SENT, Queue("q"))
    assert message.get_jms_message_id() == "ID:c:1"
    assert message.get_jms_timestamp() == 1_700_000_000_000
    assert message.get_jms_priority() == 7
    assert message.get_jms_delivery_mode() == 1
    assert message.get_jms_expiration() == 1_700_000_060_000
    assert message.get_jms_delivery_time() == 1_700_000_000_005
    assert message.get_jms_destination() == Queue("q")
    assert (message.get_jms_correlation_id(), message.get_text()) == ("c", "x")


def test_hdr_15_headers_of_a_received_message_can_be_set(deliver):
    sent = TextMessage("x", properties={"a": 1})
    here = deliver(sent)
    here.set_jms_type("t")
    here.set_jms_priority(1)
    here.set_jms_message_id("ID:x")
    here.set_jms_timestamp(5)
    here.set_jms_delivery_mode(2)
    here.set_jms_expiration(6)
    here.set_jms_delivery_time(7)
    here.set_jms_correlation_id("c")
    here.set_jms_reply_to(Queue("r"))
    here.set_jms_destination(None)
    here.set_jms_redelivered(True)
    assert here._fields[:9] == ("ID:x", 5, 1, 2, 6, 7, "c", Queue("r"), "t")
    assert (here.get_jms_destination(), here.get_jms_redelivered()) == (None, True)
    assert (here.get_text(), here.get_int_property("a")) == ("x", 1)
    assert sent.get_jms_type() is None


def test_hdr_16_defaults_before_any_send():
    message = Message()
    assert message.get_jms_destination() is None
    assert message.get_jms_message_id() is None
    assert message.get_jms_correlation_id() is None
    assert message.get_jms_reply_to() is None
    assert message.get_jms_type() is None
    assert message.get_jms_delivery_mode() == 2
    assert message.get_jms_priority() == 4
    assert message.get_jms_expiration() == 0
    assert message.get_jms_delivery_time() == 0
    assert message.get_jms_timestamp() == 0
    assert message.get_jms_redelivered() is False


def test_hdr_17_a_second_send_replaces_provider_fields_and_keeps_client_fields(deliver):
    message = TextMessage("x", properties={"a": 1})
    message.set_jms_type("t")
    message.set_jms_reply_to(Queue("r"))
    send(message, *SENT, Queue("q"))
    message.set_int_property("b", 2)
    send(message, "ID:c:2", 9, 4, 2, 0, 9, Queue("other"))
    assert (message.get_jms_message_id(), message.get_jms_timestamp()) == ("ID:c:2", 9)
    here = deliver(message)
    assert (here.get_jms_type(), here.get_jms_reply_to(), here.get_text()) == ("t", Queue("r"), "x")
    assert (here.get_int_property("a"), here.get_int_property("b")) == (1, 2)


def test_hdr_19_every_field_arrives(deliver):
    message = Message()
    message.set_jms_correlation_id("c")
    message.set_jms_reply_to(Queue("r"))
    message.set_jms_type("t")
    assert deliver(message)._fields[:9] == (*SENT, "c", "queue:r", "t")


@pytest.mark.parametrize("setter", ["set_jms_message_id", "set_jms_correlation_id", "set_jms_type"])
def test_text_headers_refuse_other_types_and_too_much(setter):
    message = Message()
    with pytest.raises(MessageFormatException, match="is set from a str, not from int"):
        getattr(message, setter)(7)
    getattr(message, setter)("x" * MAX_HEADER_CHARS)
    with pytest.raises(MessageFormatException, match=str(MAX_HEADER_CHARS)):
        getattr(message, setter)("x" * (MAX_HEADER_CHARS + 1))


@pytest.mark.parametrize("name", ["timestamp", "priority", "delivery_mode", "expiration", "delivery_time"])
def test_py_05_times_and_numbers_are_ints(name):
    for value in (1.5, True, None, "1"):
        with pytest.raises(MessageFormatException):
            getattr(Message(), f"set_jms_{name}")(value)


# -- JMSX properties --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [1, 2, 7])
def test_jsx_01_dif_02_dif_03_the_delivery_count_starts_at_one(count, deliver):
    here = deliver(Message(), count=count)
    assert here.get_int_property("JMSXDeliveryCount") == count
    assert here.get_string_property("JMSXDeliveryCount") == str(count)
    assert here.property_exists("JMSXDeliveryCount")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        pytest.param("JMSXGroupID", "g", id="JSX-02"),
        pytest.param("JMSXGroupSeq", 1, id="JSX-03"),
    ],
)
def test_jmsx_properties_of_the_sender_are_carried(name, value, deliver):
    here = deliver(Message(properties={name: value}))
    assert here.get_object_property(name) == value


def test_jsx_10_properties_set_on_send_are_visible_to_both_ends(deliver):
    message = Message(properties={"JMSXGroupID": "g"})
    assert message.get_string_property("JMSXGroupID") == deliver(message).get_string_property("JMSXGroupID") == "g"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        pytest.param("JMSXConsumerTXID", "t", id="JSX-07"),
        pytest.param("JMSXRcvTimestamp", 5, id="JSX-08"),
        pytest.param("JMSXState", 2, id="JSX-09"),
        pytest.param("JMSXDeliveryCount", 99, id="JSX-11"),
    ],
)
def test_jmsx_properties_that_are_set_on_receive_do_not_survive_the_send(name, value, deliver):
    message = Message(properties={name: value, "a": 1})
    assert message.get_object_property(name) == value
    here = deliver(message)
    assert here.get_int_property("a") == 1
    assert here.get_object_property(name) != value
    assert here.property_exists(name) is (name == "JMSXDeliveryCount")


def test_jsx_11_a_message_passed_on_starts_a_new_count(deliver):
    here = deliver(Message(properties={"a": 1}), count=3)
    for look in (False, True):
        if look:
            assert here.get_int_property("JMSXDeliveryCount") == 3
        again = deliver(here)
        assert dict(again.properties) == {"a": 1, "JMSXDeliveryCount": 1}


def test_jsx_11_only_on_receive_properties_leave_none(deliver):
    here = deliver(Message(properties={"JMSXState": 1}))
    assert here._fields[9] is None


@pytest.mark.parametrize("count", [1, 2, 3])
def test_jsx_12_redelivered_and_count_agree(count, deliver):
    here = deliver(Message(), count=count)
    assert here.get_jms_redelivered() is (here.get_int_property("JMSXDeliveryCount") >= 2)


def test_jsx_14_selectors_may_name_them_whether_set_or_not(deliver):
    here = deliver(Message(properties={"JMSXGroupSeq": 3}))
    assert Selector("JMSXGroupSeq = 3 AND JMSXUserID IS NULL").matches(here)


def test_jsx_15_letter_case_is_exact():
    with pytest.raises(ValueError, match="JMSXGroupID"):
        Message().set_string_property("JMSXGroupid", "g")
