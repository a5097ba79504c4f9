"""Section 19: what all messages have in common (MSG), and the modes of section 23.1 (MOD)."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Mapping
from pathlib import Path

import pytest
from tests.client.messages.envelope import fields_of, send

import sievemq
from sievemq import (
    BytesMessage,
    IllegalStateException,
    MapMessage,
    Message,
    MessageFormatException,
    MessageNotReadableException,
    MessageNotWriteableException,
    ObjectMessage,
    Queue,
    StreamMessage,
    TextMessage,
)
from sievemq.messages import received

FILLED = {
    Message: Message,
    TextMessage: lambda: TextMessage("hi"),
    BytesMessage: lambda: BytesMessage(b"\x00\x01"),
    MapMessage: lambda: MapMessage({"a": 1}),
    StreamMessage: lambda: StreamMessage([1, "x"]),
    ObjectMessage: lambda: ObjectMessage([1, 2]),
}
KINDS = list(FILLED)


def body_of(message: Message) -> object:
    if isinstance(message, StreamMessage):
        fields = []
        while True:
            try:
                fields.append(message.read_object())
            except sievemq.MessageEOFException:
                return fields
    return message.get_body(object)


BODIES = {
    Message: None, TextMessage: "hi", BytesMessage: b"\x00\x01", MapMessage: {"a": 1}, StreamMessage: [1, "x"],
    ObjectMessage: [1, 2],
}  # fmt: skip


def write(message: Message) -> None:
    {
        TextMessage: lambda: message.set_text("x"),
        BytesMessage: lambda: message.write_byte(1),
        MapMessage: lambda: message.set_int("x", 1),
        StreamMessage: lambda: message.write_int(1),
        ObjectMessage: lambda: message.set_object(1),
    }[type(message)]()


def test_py_01_py_02_classes_and_methods_have_the_mirrored_names():
    wanted = {
        Message: "acknowledge clear_body clear_properties get_body is_body_assignable_to get_jms_message_id "
        "set_jms_message_id get_jms_correlation_id_as_bytes set_jms_correlation_id_as_bytes get_jms_redelivered "
        "get_jms_delivery_time property_exists get_property_names",
        TextMessage: "get_text set_text",
        ObjectMessage: "get_object set_object",
        BytesMessage: "get_body_length read_unsigned_byte read_unsigned_short read_utf write_utf reset write_object",
        StreamMessage: "read_object write_object read_string write_string reset",
        MapMessage: "get_map_names item_exists get_bytes set_bytes get_char set_char",
    }
    for kind, names in wanted.items():
        assert issubclass(kind, Message)
        assert [name for name in names.split() if not callable(getattr(kind, name, None))] == []


# -- acknowledgement --------------------------------------------------------------------------------------------------


def test_msg_01_msg_03_acknowledge_calls_the_session(deliver):
    calls = []
    here = deliver(TextMessage("x"), acknowledge=lambda: calls.append("acknowledged"))
    here.acknowledge()
    here.acknowledge()
    assert calls == ["acknowledged", "acknowledged"]  # what a second call means is the session's business


def test_msg_01_msg_20_a_closed_session_refuses_and_the_rest_stays_usable(deliver):
    def closed() -> None:
        raise IllegalStateException("the session is closed")

    here = deliver(TextMessage("x", properties={"a": 1}), acknowledge=closed)
    with pytest.raises(IllegalStateException):
        here.acknowledge()
    assert (here.get_text(), here.get_int_property("a")) == ("x", 1)


def test_msg_01_where_acknowledgement_has_no_effect(deliver):
    assert deliver(TextMessage("x")).acknowledge() is None


def test_msg_02_acknowledge_of_a_message_never_received():
    assert Message().acknowledge() is None


# -- clearing ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_msg_04_clear_body(kind, deliver):
    for message in (FILLED[kind](), deliver(FILLED[kind]())):
        message.set_jms_type("t")
        properties = dict(message.properties)
        message.clear_body()
        if kind is not Message:
            if kind is not StreamMessage:
                assert message.is_body_assignable_to(int)
            message.clear_body()
            write(message)
        assert message.get_jms_type() == "t"
        assert dict(message.properties) == properties


@pytest.mark.parametrize("kind", [BytesMessage, StreamMessage])
def test_msg_04_a_cleared_sequence_is_write_only(kind, deliver):
    message = deliver(FILLED[kind]())
    message.clear_body()
    with pytest.raises(MessageNotReadableException):
        message.read_byte()
    assert body_of(deliver(message)) in (b"", [])


@pytest.mark.parametrize("kind", KINDS)
def test_msg_05_mod_08_clear_properties_leaves_body_and_its_mode(kind, deliver):
    message = FILLED[kind]()
    message.set_int_property("a", 1)
    message.set_jms_type("t")
    here = deliver(message)
    here.clear_properties()
    assert list(here.get_property_names()) == []
    here.set_int_property("b", 2)
    assert (here.get_int_property("b"), here.get_jms_type()) == (2, "t")
    if kind is not Message:
        with pytest.raises(MessageNotWriteableException):
            write(here)
    assert body_of(here) == BODIES[kind]


@pytest.mark.parametrize("kind", KINDS[1:])
def test_mod_08_clear_body_leaves_properties_read_only(kind, deliver):
    here = deliver(FILLED[kind]())
    here.clear_body()
    with pytest.raises(MessageNotWriteableException):
        here.set_int_property("a", 1)


# -- get_body ---------------------------------------------------------------------------------------------------------

TYPES = [str, dict, bytes, list, int, bool, object, Mapping]
ASSIGNABLE = {
    TextMessage: {str, object}, BytesMessage: {bytes, object}, MapMessage: {dict, object, Mapping},
    ObjectMessage: {list, object}, StreamMessage: set(), Message: set(TYPES),
}  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("wanted", TYPES)
def test_msg_06_msg_07_msg_08_msg_12_msg_13_get_body_by_type(kind, wanted, deliver):
    for message in (FILLED[kind](), deliver(FILLED[kind]())):
        if wanted in ASSIGNABLE[kind]:
            assert message.is_body_assignable_to(wanted)
            assert message.get_body(wanted) == BODIES[kind]
        else:
            assert not message.is_body_assignable_to(wanted)
            with pytest.raises(MessageFormatException):
                message.get_body(wanted)


@pytest.mark.parametrize("kind", [TextMessage, BytesMessage, MapMessage, ObjectMessage, Message])
@pytest.mark.parametrize("wanted", TYPES)
def test_msg_09_without_a_body_get_body_is_none_for_every_other_type(kind, wanted, deliver):
    own = {MapMessage: dict, BytesMessage: bytes}.get(kind)
    for message in (kind(), deliver(kind())):
        assert message.is_body_assignable_to(wanted)
        if own is not None and issubclass(own, wanted):  # empty, and yet a body of its own type
            assert message.get_body(wanted) == own()
        else:
            assert message.get_body(wanted) is None


@pytest.mark.parametrize("kind", KINDS)
def test_get_body_takes_a_class(kind):
    for wanted in ("str", None, dict[str, int]):
        with pytest.raises(TypeError):
            FILLED[kind]().get_body(wanted)
        with pytest.raises(TypeError):
            FILLED[kind]().is_body_assignable_to(wanted)


def test_msg_10_mod_05_get_body_of_bytes_resets_before_and_after(deliver):
    message = BytesMessage(b"\x01\x02")
    assert message.get_body(bytes) == b"\x01\x02"
    assert message.read_byte() == 1  # it is read-only now
    assert message.get_body(bytes) == b"\x01\x02"
    assert message.read_byte() == 1
    here = deliver(BytesMessage(b"\x01\x02"))
    assert here.read_short() == 258
    assert here.get_body(bytes) == b"\x01\x02"
    assert here.read_short() == 258


@pytest.mark.parametrize("kind", [MapMessage, ObjectMessage])
def test_msg_11_get_body_is_a_copy(kind, deliver):
    for message in (FILLED[kind](), deliver(FILLED[kind]())):
        body = message.get_body(object)
        body.clear()
        assert message.get_body(object) == BODIES[kind]


def test_get_body_of_true_is_no_int():  # D-37
    message = ObjectMessage(True)
    assert message.get_body(bool) is True
    assert message.get_body(object) is True
    assert not message.is_body_assignable_to(int)
    with pytest.raises(MessageFormatException):
        message.get_body(int)


# -- modes ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS[1:])
def test_msg_14_mod_03_mod_07_a_received_message_is_read_only_but_for_headers(kind, deliver):
    here = deliver(FILLED[kind]())
    with pytest.raises(MessageNotWriteableException):
        here.set_int_property("a", 1)
    with pytest.raises(MessageNotWriteableException):
        write(here)
    here.set_jms_type("t")
    assert body_of(here) == BODIES[kind]


@pytest.mark.parametrize("kind", KINDS[1:])
def test_msg_15_mod_06_a_new_message_is_writable(kind):
    message = FILLED[kind]()
    write(message)
    message.set_int_property("a", 1)
    assert message.get_int_property("a") == 1


@pytest.mark.parametrize("kind", [TextMessage, MapMessage, ObjectMessage])
def test_mod_06_reads_and_writes_may_alternate(kind):
    message = FILLED[kind]()
    assert body_of(message) == BODIES[kind]
    write(message)
    assert body_of(message) != BODIES[kind]
    write(message)


@pytest.mark.parametrize("kind", KINDS)
def test_msg_16_a_send_leaves_the_senders_object_as_it_was(kind, deliver):
    message = FILLED[kind]()
    message.set_int_property("a", 1)
    deliver(message)
    send(message, "ID:c:1", 1, 4, 2, 0, 1, Queue("q"))
    message.set_int_property("b", 2)
    if kind is not Message:
        write(message)
    again = deliver(message)
    assert (again.get_int_property("a"), again.get_int_property("b")) == (1, 2)


def test_msg_17_two_receivers_and_the_sender_are_independent(deliver):
    message = MapMessage({"a": 1}, properties={"p": 1})
    fields = fields_of(message)
    one, two = (received(fields, Queue("q"), 1, None) for _ in range(2))
    message.set_int("a", 2)
    one.clear_body()
    one.clear_properties()
    one.set_jms_type("changed")
    assert (two.get_int("a"), two.get_int_property("p"), two.get_jms_type()) == (1, 1, None)
    one.set_int("a", 3)
    assert (message.get_int("a"), two.get_int("a")) == (2, 1)


@pytest.mark.parametrize("kind", KINDS)
def test_msg_18_a_redelivered_message_is_the_original(kind):
    fields = fields_of(FILLED[kind]())
    first = received(fields, Queue("q"), 1, None)
    first.clear_body()
    first.clear_properties()
    first.set_jms_correlation_id("changed")
    if kind is not Message:
        write(first)
    second = received(fields, Queue("q"), 2, None)
    assert body_of(second) == BODIES[kind]
    assert second.get_jms_correlation_id() is None
    assert dict(second.properties) == {"JMSXDeliveryCount": 2}
    assert second.get_jms_redelivered()


@pytest.mark.parametrize("kind", KINDS)
def test_msg_19_the_kind_is_kept_also_of_empty_messages(kind, deliver):
    assert type(deliver(kind())) is kind
    assert type(deliver(FILLED[kind]())) is kind
    assert body_of(deliver(FILLED[kind]())) == BODIES[kind]


@pytest.mark.parametrize("kind", KINDS)
def test_msg_20_a_message_needs_no_connection(kind, deliver):
    here = deliver(FILLED[kind]())
    assert body_of(here) == BODIES[kind]
    here.clear_properties()
    here.set_int_property("a", 1)
    assert here.get_int_property("a") == 1


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("look", [False, True])
def test_a_received_message_can_be_sent_on(kind, look, deliver):
    sent = FILLED[kind]()
    sent.set_float_property("f", 0.5)
    here = deliver(sent)
    if look:
        assert body_of(here) == BODIES[kind]
        assert here.get_float_property("f") == 0.5
    again = deliver(here)
    assert body_of(again) == BODIES[kind]
    assert type(again.get_object_property("f")) is sievemq.Float


@pytest.mark.parametrize("kind", [BytesMessage, StreamMessage])
def test_mod_01_mod_04_write_only_until_reset(kind):
    message = FILLED[kind]()
    with pytest.raises(MessageNotReadableException):
        message.read_byte()
    with pytest.raises(MessageNotReadableException):
        message.get_body_length() if kind is BytesMessage else message.read_object()
    write(message)  # the state was kept
    message.reset()
    assert message.read_boolean() is False if kind is BytesMessage else message.read_int() == 1


@pytest.mark.parametrize("kind", [BytesMessage, StreamMessage])
def test_mod_02_read_only_until_cleared(kind):
    message = FILLED[kind]()
    message.reset()
    with pytest.raises(MessageNotWriteableException):
        write(message)
    first = message.read_boolean() if kind is BytesMessage else message.read_object()
    message.reset()
    assert (message.read_boolean() if kind is BytesMessage else message.read_object()) == first
    with pytest.raises(MessageNotWriteableException):
        write(message)
    message.clear_body()
    write(message)
    with pytest.raises(MessageNotReadableException):
        message.read_byte()


@pytest.mark.parametrize("kind", [BytesMessage, StreamMessage])
def test_mod_09_a_completion_listeners_message_is_readable(kind):
    message = FILLED[kind]()
    message._completed()
    assert body_of(message) == BODIES[kind]


@pytest.mark.parametrize("kind", [Message, TextMessage, MapMessage, ObjectMessage])
def test_mod_09_other_messages_stay_writable_at_completion(kind):
    message = FILLED[kind]()
    message._completed()
    message.set_int_property("a", 1)
    assert body_of(message) == BODIES[kind]


BROKEN = [
    (TextMessage, b"\xff", "get_text", "UTF-8"),
    (MapMessage, b"\xc1", "get_map_names", "cannot be decoded"),
    (MapMessage, b"\x92\xc0\x90", "get_map_names", "text keys"),
    (MapMessage, b"\x92\xc0\x81\x01\x01", "get_map_names", "cannot be decoded"),
    (MapMessage, b"\x92\xa1i\x80", "get_map_names", "1 type letters for 0 values"),
    (MapMessage, b"\x92\xa1b\x81\xa1a\xa1x", "get_map_names", "type letter 'b'"),
    (MapMessage, b"\x92\xa1b\x81\xa1a\xcd\x01\x00", "get_map_names", "Byte"),
    (MapMessage, b"\x92\xa1?\x81\xa1a\x01", "get_map_names", "type letter"),
    (MapMessage, b"\x92\xc0\x81\xa1a\x90", "get_map_names", "scalars only"),
    (MapMessage, b"\x92\xc0\x81\xa1a\xcf\xff\xff\xff\xff\xff\xff\xff\xff", "get_map_names", "64 bits"),
    (StreamMessage, b"\x01", "reset", "array of types and values"),
    (StreamMessage, b"\x92\xc0\x80", "reset", "must hold an array"),
    (StreamMessage, b"\x92\x01\x90", "read_object", "array of types and values"),
    (StreamMessage, b"\x92\xa1c\x91\xa2xy", "read_object", "code unit"),
    (ObjectMessage, b"\xc1", "get_object", "cannot be decoded"),
]


@pytest.mark.parametrize(("kind", "body", "method", "text"), BROKEN)
def test_mod_10_a_malformed_body_is_a_message_format_exception_and_the_rest_can_be_read(kind, body, method, text):
    fields = list(fields_of(kind()))
    fields[12] = body
    here = received(tuple(fields), Queue("q"), 1, None)
    for _ in range(2):
        with pytest.raises(MessageFormatException, match=text):
            getattr(here, method)()
    assert here.get_int_property("JMSXDeliveryCount") == 1
    assert kind.__name__ in repr(here)


def test_malformed_properties_are_a_message_format_exception():
    fields = list(fields_of(TextMessage("x")))
    fields[9] = b"\xc1"
    here = received(tuple(fields), Queue("q"), 1, None)
    with pytest.raises(MessageFormatException):
        here.get_int_property("a")
    assert here.get_text() == "x"
    assert "cannot be decoded" in repr(here)


COPIES = [copy.copy, copy.deepcopy, lambda message: pickle.loads(pickle.dumps(message))]


@pytest.mark.parametrize("make", COPIES, ids=["copy", "deepcopy", "pickle"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("look", [False, True])
def test_msg_17_a_copy_is_independent(kind, make, look, deliver):
    sent = FILLED[kind]()
    sent.set_int_property("a", 1)
    sent.set_jms_type("t")
    for message in (sent, deliver(sent, acknowledge=lambda: pytest.fail("the copy belongs to no session"))):
        if look and message is not sent:
            assert body_of(message) == BODIES[kind]
        again = make(message)
        again.acknowledge()
        assert type(again) is kind
        assert again._encode_body() == message._encode_body()
        assert again.get_jms_type() == "t"
        again.clear_properties()
        again.set_int_property("b", 2)
        if kind is not Message:
            if message is not sent:
                with pytest.raises(MessageNotWriteableException):
                    write(again)
                again.clear_body()
            write(again)
            assert again._encode_body() != message._encode_body()
        assert message.get_int_property("a") == 1
        assert not message.property_exists("b")


def test_a_kind_of_a_later_version_arrives_as_a_message():
    fields = list(fields_of(Message(properties={"a": 1})))
    fields[11] = 99
    here = received((*fields, "later"), Queue("q"), 1, None)
    assert type(here) is Message
    assert here.get_int_property("a") == 1


# -- repr -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_the_repr_names_id_destination_and_body(kind, deliver):
    message = FILLED[kind]()
    message.set_jms_type("t")
    message.set_int_property("region", 7)
    for here in (message, deliver(message, count=2)):
        assert repr(here).startswith(f"{kind.__name__}(")
        assert "'region': 7" in repr(here)
        assert "type='t'" in repr(here)
    assert "redelivered" in repr(deliver(message, count=2))
    if kind in (TextMessage, ObjectMessage, BytesMessage):
        assert repr(BODIES[kind]) in repr(deliver(message))


@pytest.mark.parametrize(
    "message",
    [
        TextMessage("x" * 10**6),
        BytesMessage(b"x" * 10**6),
        MapMessage({f"n{n}": "x" * 1000 for n in range(250)}),
        StreamMessage(["x" * 1000] * 500),
        ObjectMessage(["x"] * 10**5),
        Message(properties={f"n{n}": "x" * 1000 for n in range(250)}),
    ],
    ids=lambda message: type(message).__name__,
)
def test_the_repr_is_never_huge(message, deliver):
    assert len(repr(message)) < 2000
    assert len(repr(deliver(message))) < 2500


# -- foreign messages -------------------------------------------------------------------------------------------------


def test_dif_01_a_forbidden_conversion_is_also_a_jms_exception():
    with pytest.raises(sievemq.JMSException):
        MapMessage({"a": 1}).get_byte("a")


def test_dif_04_methods_of_later_versions_exist():
    for name in ("get_jms_delivery_time", "get_body", "is_body_assignable_to"):
        assert callable(getattr(Message, name))


def test_dif_05_a_bad_selector_has_its_own_class():
    with pytest.raises(sievemq.InvalidSelectorException):
        sievemq.Selector("a =")


def test_py_23_the_client_never_unpickles():
    sources = Path(sievemq.__file__).parent.rglob("*.py")
    assert [path for path in sources if "import pickle" in path.read_text(encoding="utf-8")] == []
