"""MSG-21, D-31: messages of another implementation, known only by their public methods."""

from __future__ import annotations

import pytest
from tests.client.messages.envelope import send

import sievemq
from sievemq import (
    BytesMessage,
    MapMessage,
    Message,
    MessageFormatException,
    ObjectMessage,
    Queue,
    Selector,
    Short,
    StreamMessage,
    TextMessage,
    Topic,
)
from sievemq.messages import adopt, write_back


class Foreign:
    """Another library's message: a wrapper that is no Message and shows only what the API names."""

    def __init__(self, inner: Message) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> object:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._inner, name)


class ForeignStream(Foreign):
    """Its end of the stream is an exception of its own."""

    class MessageEOFException(Exception):  # noqa: N818
        pass

    def read_object(self) -> object:
        try:
            return self._inner.read_object()
        except sievemq.MessageEOFException:
            raise self.MessageEOFException("the end") from None


SAMPLES = [
    Message(), TextMessage("hi"), TextMessage(), BytesMessage(b"abc"), MapMessage({"a": Short(1), "b": None}),
    StreamMessage([Short(1), b"x", None]), ObjectMessage({"a": [1]}),
]  # fmt: skip


@pytest.mark.parametrize("inner", SAMPLES, ids=lambda message: type(message).__name__)
def test_msg_21_a_foreign_message_is_read_through_its_methods(inner, deliver):
    inner.set_jms_type("t")
    inner.set_jms_correlation_id("c")
    inner.set_jms_reply_to(Topic("replies"))
    inner.clear_properties()
    inner.set_short_property("p", 7)
    kind = ForeignStream if isinstance(inner, StreamMessage) else Foreign
    here = deliver(adopt(kind(inner)))
    assert type(here) is type(inner)
    assert (here.get_jms_type(), here.get_jms_correlation_id(), here.get_jms_reply_to()) == ("t", "c", Topic("replies"))
    assert type(here.get_object_property("p")) is Short
    assert here._fields[12] == inner._encode_body()


@pytest.mark.parametrize("inner", SAMPLES, ids=lambda message: type(message).__name__)
def test_msg_21_provider_headers_are_written_back(inner):
    foreign = Foreign(inner)
    ours = adopt(foreign)
    send(ours, "ID:c:9", 5, 6, 1, 7, 8, Queue("q"))
    write_back(foreign, ours)
    assert foreign.get_jms_message_id() == "ID:c:9"
    assert inner._fields[:6] == ("ID:c:9", 5, 6, 1, 7, 8)
    assert foreign.get_jms_destination() == Queue("q")


def test_our_own_message_is_not_copied():
    message = TextMessage("x")
    assert adopt(message) is message


def test_msg_21_a_foreign_reply_to_need_not_be_kept(deliver):
    class Elsewhere:
        pass

    class WithReplyTo(Foreign):
        def get_jms_reply_to(self) -> object:
            return Elsewhere()

    assert deliver(adopt(WithReplyTo(TextMessage("x")))).get_jms_reply_to() is None


def test_a_foreign_queue_is_understood():
    class TheirQueue:
        def get_queue_name(self) -> str:
            return "theirs"

    message = Message()
    message.set_jms_reply_to(TheirQueue())
    assert message.get_jms_reply_to() == Queue("theirs")


def test_jsx_11_receiver_properties_of_another_provider_are_dropped(deliver):
    here = deliver(TextMessage("x", properties={"a": 1}), count=3)
    assert dict(deliver(adopt(Foreign(here))).properties) == {"a": 1, "JMSXDeliveryCount": 1}


def test_a_read_error_in_a_foreign_stream_is_raised():
    class Broken(Foreign):
        def read_object(self) -> object:
            raise OSError("broken")

    with pytest.raises(OSError, match="broken"):
        adopt(Broken(StreamMessage([1])))


@pytest.mark.parametrize("value", [None, "text", 7, {}, object(), [TextMessage("x")], Message])
def test_exc_08_other_types_than_messages_are_refused(value):
    with pytest.raises(MessageFormatException, match="a message is needed"):
        adopt(value)


def test_a_value_that_ours_cannot_hold_is_refused():
    class WithList(Foreign):
        def get_object(self, name: str) -> object:
            return [name]

    with pytest.raises(MessageFormatException):
        adopt(WithList(MapMessage({"a": 1})))


def test_a_selector_sees_a_foreign_message():
    foreign = Foreign(TextMessage("x", properties={"region": "EU"}))
    assert Selector("region = 'EU'").matches(foreign)
