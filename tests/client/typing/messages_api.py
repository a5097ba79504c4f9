"""What a type checker must infer from the public API of messages. Checked by mypy, never run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, assert_type

from sievemq import (
    Byte,
    BytesMessage,
    Destination,
    IllegalStateRuntimeException,
    InvalidSelectorException,
    JMSException,
    MapMessage,
    Message,
    ObjectMessage,
    Queue,
    Selector,
    StreamMessage,
    TemporaryQueue,
    TextMessage,
    Topic,
    register_type,
)
from sievemq.url import BrokerURL, ClientOptions, parse_url


def headers(message: Message) -> None:
    assert_type(message.get_jms_message_id(), str | None)
    assert_type(message.get_jms_timestamp(), int)
    assert_type(message.get_jms_priority(), int)
    assert_type(message.get_jms_correlation_id(), str | None)
    assert_type(message.get_jms_correlation_id_as_bytes(), bytes | None)
    assert_type(message.get_jms_reply_to(), Destination | None)
    assert_type(message.get_jms_destination(), Destination | None)
    assert_type(message.get_jms_type(), str | None)
    assert_type(message.get_jms_redelivered(), bool)
    message.set_jms_reply_to(Queue("q"))
    message.set_jms_reply_to(None)
    message.set_jms_type(7)  # type: ignore[arg-type]
    message.set_jms_reply_to("queue:q")  # type: ignore[arg-type]


def properties(message: Message) -> None:
    assert_type(message.get_boolean_property("p"), bool)
    assert_type(message.get_byte_property("p"), int)
    assert_type(message.get_long_property("p"), int)
    assert_type(message.get_float_property("p"), float)
    assert_type(message.get_double_property("p"), float)
    assert_type(message.get_string_property("p"), str | None)
    assert_type(message.get_object_property("p"), bool | int | float | str | None)
    assert_type(message.get_property_names(), Iterator[str])
    assert_type(message.properties, Mapping[str, bool | int | float | str | None])
    message.set_int_property("p", Byte(1))
    message.set_string_property("p", None)
    message.set_int_property("p", "1")  # type: ignore[arg-type]
    message.set_boolean_property("p", 1)  # type: ignore[arg-type]
    message.properties["p"] = 1  # type: ignore[index]


def bodies(
    text: TextMessage, data: BytesMessage, entries: MapMessage, stream: StreamMessage, thing: ObjectMessage
) -> None:
    assert_type(text.get_text(), str | None)
    assert_type(text.get_body(str), str | None)
    assert_type(data.get_body(bytes), bytes | None)
    assert_type(data.read_utf(), str)
    assert_type(data.read_bytes(bytearray(3), 2), int)
    assert_type(entries.get_body(dict), dict[Any, Any] | None)
    assert_type(entries.get_bytes("n"), bytes | None)
    assert_type(entries.get_char("n"), str)
    assert_type(entries.get_map_names(), Iterator[str])
    assert_type(MapMessage.from_xml("<map/>"), MapMessage)
    assert_type(stream.read_string(), str | None)
    assert_type(stream.read_object(), bool | int | float | str | bytes | None)
    assert_type(thing.get_object(), Any)
    text.set_text(b"x")  # type: ignore[arg-type]
    data.read_bytes(b"x")  # type: ignore[arg-type]
    TextMessage("hi", properties={"region": "EU"})
    MapMessage({"a": 1}, properties={})
    StreamMessage([1, "x", None])
    TextMessage(7)  # type: ignore[arg-type]


@register_type
@dataclass
class Order:
    number: int


def registered(thing: ObjectMessage) -> None:
    assert_type(Order(7), Order)
    assert_type(thing.get_body(Order), Order | None)


def destinations() -> None:
    assert_type(Queue("q").get_queue_name(), str)
    assert_type(Topic("t").get_topic_name(), str)
    queue: Queue = TemporaryQueue("c.1")
    assert_type(str(queue), str)
    Queue(None)  # type: ignore[arg-type]


def selectors(message: Message) -> None:
    selector = Selector("a = 1", dialect="jakarta")
    assert_type(selector.matches(message), bool)
    assert_type(selector.evaluate(message), bool | None)
    assert_type(selector.canonical, str)


def exceptions() -> None:
    error = JMSException("r", "E1", OSError())
    assert_type(error.get_error_code(), str | None)
    assert_type(error.get_linked_exception(), BaseException | None)
    assert_type(InvalidSelectorException("r").position, int | None)
    IllegalStateRuntimeException(detail_message="r", error_code="E1", cause=error)


def urls() -> None:
    url = parse_url("sievemq://localhost", prefetch=1)
    assert_type(url, BrokerURL)
    assert_type(url.options, ClientOptions)
    assert_type(url.options.prefetch, int | None)
    assert_type(url.hosts, tuple[tuple[str, int], ...])
