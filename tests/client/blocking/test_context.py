"""JMSContext, JMSProducer, JMSConsumer: sections 9, 11 and 14 of the API map."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from sievemq import (
    Byte,
    BytesMessage,
    ConnectionFactory,
    DeliveryMode,
    IllegalStateRuntimeException,
    InvalidClientIDRuntimeException,
    InvalidDestinationRuntimeException,
    InvalidSelectorRuntimeException,
    JMSConsumer,
    JMSContext,
    JMSRuntimeException,
    MapMessage,
    Message,
    MessageFormatRuntimeException,
    MessageNotWriteableRuntimeException,
    NumberFormatError,
    Queue,
    StreamMessage,
    TextMessage,
    Topic,
)

from .helpers import SOON, Background, receive_text, text


def test_ctx_01_clo_22_contexts_share_a_connection(context: JMSContext, queue: Queue) -> None:
    second = context.create_context(JMSContext.CLIENT_ACKNOWLEDGE)
    assert second.get_session_mode() == JMSContext.CLIENT_ACKNOWLEDGE
    assert second._connection is context._connection
    assert "stopped" in repr(second._connection)
    with pytest.raises(JMSRuntimeException):
        context.create_context(-1)
    second.close()
    context.create_producer().send(queue, "still open")
    assert receive_text(context.create_consumer(queue)) == "still open"


def test_ctx_02_jpr_09_a_light_producer(context: JMSContext) -> None:
    producer = context.create_producer()
    assert producer.get_delivery_mode() == DeliveryMode.PERSISTENT
    assert producer.get_priority() == 4
    assert producer.get_time_to_live() == 0
    assert producer.get_delivery_delay() == 0
    assert producer.get_disable_message_id() is False
    assert producer.get_disable_message_timestamp() is False
    chained = (
        producer.set_delivery_mode(1)
        .set_priority(9)
        .set_time_to_live(5)
        .set_delivery_delay(6)
        .set_disable_message_id(True)
        .set_disable_message_timestamp(True)
    )
    assert chained is producer
    assert (producer.get_delivery_mode(), producer.get_priority()) == (1, 9)
    assert (producer.get_time_to_live(), producer.get_delivery_delay()) == (5, 6)
    assert producer.get_disable_message_id() is producer.get_disable_message_timestamp() is True
    for setter, wrong in (
        (producer.set_delivery_mode, -1),
        (producer.set_priority, -1),
        (producer.set_time_to_live, -1),
        (producer.set_delivery_delay, -1),
    ):
        with pytest.raises(JMSRuntimeException):
            setter(wrong)
    assert not hasattr(producer, "close")


def test_ctx_03_client_id(factory: ConnectionFactory) -> None:
    with factory.create_context() as first, factory.create_context() as second:
        assert first.get_client_id() is None
        first.set_client_id("one")
        assert first.get_client_id() == "one"
        with pytest.raises(IllegalStateRuntimeException):
            first.set_client_id("two")
        with pytest.raises(InvalidClientIDRuntimeException):
            second.set_client_id("one")
        with pytest.raises(InvalidClientIDRuntimeException):
            second.set_client_id("")
        second.create_producer()
        with pytest.raises(IllegalStateRuntimeException):
            second.set_client_id("late")


def test_ctx_04_of_the_connection(context: JMSContext) -> None:
    assert context.get_meta_data().get_jms_version() == "3.1"
    assert context.get_exception_listener() is None
    context.set_exception_listener(print)
    assert context.get_exception_listener() is print


def test_ctx_05_start_and_stop_concern_all_contexts(context: JMSContext, queue: Queue) -> None:
    second = context.create_context(JMSContext.AUTO_ACKNOWLEDGE)
    consumer = second.create_consumer(queue)
    context.create_producer().send(queue, "x")
    context.stop()
    assert consumer.receive(20) is None
    context.start()
    assert receive_text(consumer) == "x"
    second.close()


def test_ctx_06_ctx_07_auto_start(context: JMSContext, queue: Queue) -> None:
    assert context.get_auto_start() is True
    context.set_auto_start(False)
    assert context.get_auto_start() is False
    context.create_producer().send(queue, "waits")
    consumer = context.create_consumer(queue)
    assert consumer.receive(20) is None
    context.set_auto_start(True)  # neither starts nor stops
    assert consumer.receive(20) is None
    context.stop()
    other = context.create_shared_consumer(Topic("t"), "s")  # undoes a stop made before it
    assert receive_text(consumer) == "waits"
    context.stop()  # and this one holds
    context.create_producer().send(queue, "held")
    assert consumer.receive(20) is None
    other.close()


@pytest.mark.parametrize("kind", ["create_consumer", "create_shared_consumer", "create_shared_durable_consumer"])
def test_ctx_07_ctx_12_ctx_13_every_consumer_starts(context: JMSContext, kind: str) -> None:
    create: Callable[..., JMSConsumer] = getattr(context, kind)
    consumer = create(Topic("t")) if kind == "create_consumer" else create(Topic("t"), "s")
    context.create_producer().send(Topic("t"), "hello")
    assert receive_text(consumer) == "hello"
    assert isinstance(consumer, JMSConsumer)
    consumer.close()
    if "durable" in kind:
        context.unsubscribe("s")


def test_ctx_13_durable(context: JMSContext) -> None:
    context.set_client_id("c")
    consumer = context.create_durable_consumer(Topic("t"), "s", "a = 1", no_local=False)
    assert consumer.get_message_selector() == "a = 1"
    context.create_producer().set_property("a", 1).send(Topic("t"), "hello")
    assert receive_text(consumer) == "hello"
    consumer.close()
    context.unsubscribe("s")
    assert not hasattr(context, "create_durable_subscriber")


def test_ctx_08_the_last_context_closes_the_connection(factory: ConnectionFactory) -> None:
    first = factory.create_context()
    second = first.create_context(JMSContext.AUTO_ACKNOWLEDGE)
    first.close()
    first.close()
    assert not second._connection._engine.closed
    second.close()
    assert second._connection._engine.closed


def test_ctx_08_contexts_closed_by_two_threads_at_once(factory: ConnectionFactory) -> None:
    for _ in range(20):
        first = factory.create_context()
        second = first.create_context(JMSContext.AUTO_ACKNOWLEDGE)
        calls = [Background(first.close), Background(second.close)]
        for call in calls:
            call.result()
        assert first._connection._engine.closed


def test_ctx_09_messages(context: JMSContext) -> None:
    assert type(context.create_message()) is Message
    assert context.create_text_message("x").get_text() == "x"
    assert isinstance(context.create_bytes_message(), BytesMessage)
    assert isinstance(context.create_map_message(), MapMessage)
    assert isinstance(context.create_stream_message(), StreamMessage)
    assert context.create_object_message([1]).get_object() == [1]


def test_ctx_14_destinations_and_browsers(context: JMSContext) -> None:
    temporary = context.create_temporary_queue()
    context.create_producer().send(temporary, "x")
    with context.create_browser(temporary) as browser:  # D-36: the context is not started
        assert [text(message) for message in browser] == ["x"]
    temporary.delete()
    context.create_temporary_topic().delete()
    assert context.create_queue("q") == Queue("q")
    assert context.create_topic("t") == Topic("t")
    with pytest.raises(InvalidDestinationRuntimeException):
        context.create_queue("")
    with pytest.raises(InvalidDestinationRuntimeException):
        context.create_consumer(None)  # type: ignore[arg-type]
    with pytest.raises(InvalidDestinationRuntimeException):
        context.unsubscribe("nobody")
    with pytest.raises(InvalidSelectorRuntimeException) as caught:
        context.create_consumer(Queue("q"), "a >")
    assert caught.value.position is not None


def test_clo_21_a_closed_context(context: JMSContext, queue: Queue) -> None:
    producer, consumer = context.create_producer(), context.create_consumer(queue)
    context.close()
    methods = [name for name in dir(JMSContext) if not name.startswith("_") and not name.isupper() and name != "close"]
    arguments: dict[str, tuple[Any, ...]] = {
        "create_context": (1,), "set_client_id": ("x",), "set_exception_listener": (None,), "set_auto_start": (True,),
        "create_consumer": (queue,), "create_shared_consumer": (Topic("t"), "s"), "create_browser": (queue,),
        "create_durable_consumer": (Topic("t"), "s"), "create_shared_durable_consumer": (Topic("t"), "s"),
        "create_queue": ("q",), "create_topic": ("t",), "unsubscribe": ("s",), "request": (queue, "x"),
    }  # fmt: skip
    assert len(methods) > 30
    for name in methods:
        with pytest.raises(IllegalStateRuntimeException):
            getattr(context, name)(*arguments.get(name, ()))
    for call in (
        lambda: producer.send(queue, "x"),  # JPR-20
        consumer.receive,
        consumer.receive_no_wait,
        lambda: consumer.receive_body(str),
        lambda: consumer.receive_body_no_wait(str),
        consumer.get_message_selector,
        consumer.get_message_listener,
        lambda: consumer.set_message_listener(None),
    ):
        with pytest.raises(IllegalStateRuntimeException):
            call()
    consumer.close()


# -- JMSProducer ------------------------------------------------------------------------------------------------------


def test_jpr_11_jpr_12_jpr_19_properties_are_set_on_every_message(context: JMSContext, queue: Queue) -> None:
    producer, consumer = context.create_producer(), context.create_consumer(queue)
    producer.set_property("a", 1).set_property("b", Byte(2)).set_string_property("c", "x").set_float_property("d", 0.5)
    producer.set_boolean_property("e", True).set_short_property("f", 3).set_long_property("g", 4)
    producer.set_int_property("h", 5).set_double_property("i", 1.5).set_object_property("j", None)
    producer.set_byte_property("k", 6)
    for body in ("one", TextMessage("two", properties={"a": "replaced", "z": 1})):
        producer.send(queue, body)
        message = consumer.receive(SOON)
        assert message is not None
        assert message.get_object_property("a") == 1
        assert message.get_byte_property("b") == 2
        assert message.get_string_property("c") == "x"
        assert message.get_float_property("d") == 0.5
        assert message.get_boolean_property("e") is True
        assert message.get_short_property("f") == 3
        assert message.property_exists("j")
        assert message.property_exists("z") is (body != "one")
    for wrong in (None, "", "1a"):
        with pytest.raises(ValueError):
            producer.set_property(wrong, 1)  # type: ignore[arg-type]
    with pytest.raises(MessageFormatRuntimeException):
        producer.set_property("a", [1])


def test_jpr_13_read_only_properties(context: JMSContext, queue: Queue) -> None:
    producer, consumer = context.create_producer(), context.create_consumer(queue)
    producer.send(queue, "x")
    received = consumer.receive(SOON)
    producer.send(queue, received)  # without properties to set: allowed
    received = consumer.receive(SOON)
    with pytest.raises(MessageNotWriteableRuntimeException):
        producer.set_property("a", 1).send(queue, received)


def test_jpr_14_to_jpr_17_reading_properties(context: JMSContext) -> None:
    producer = context.create_producer().set_property("a", 1).set_property("s", "12")
    names = producer.get_property_names()
    assert names == {"a", "s"}
    assert producer.property_exists("a")
    assert not producer.property_exists("b")
    assert producer.get_string_property("a") == "1"
    assert producer.get_long_property("s") == 12
    assert producer.get_int_property("a") == 1
    assert producer.get_double_property("s") == 12.0
    assert producer.get_float_property("s") == 12.0
    assert producer.get_byte_property("s") == producer.get_short_property("s") == 12
    assert producer.get_boolean_property("s") is False
    assert producer.get_object_property("a") == 1
    with pytest.raises(MessageFormatRuntimeException):
        producer.get_byte_property("a")
    with pytest.raises(NumberFormatError):
        producer.get_int_property("absent")
    producer.set_property("z", 1)
    assert "z" in names  # live
    assert not hasattr(names, "add")
    assert names & {"z"} == {"z"}
    assert "z" in repr(names)
    assert producer.clear_properties() is producer
    assert len(names) == 0


def test_jpr_18_headers(context: JMSContext, queue: Queue) -> None:
    producer, consumer = context.create_producer(), context.create_consumer(queue)
    assert producer.get_jms_correlation_id() is producer.get_jms_type() is producer.get_jms_reply_to() is None
    assert producer.get_jms_correlation_id_as_bytes() is None
    producer.set_jms_correlation_id("c").set_jms_type("t").set_jms_reply_to(Queue("r"))
    message = TextMessage()
    message.set_jms_type("own")
    producer.send(queue, message)
    received = consumer.receive(SOON)
    assert received is not None
    assert received.get_jms_correlation_id() == producer.get_jms_correlation_id() == "c"
    assert received.get_jms_type() == producer.get_jms_type() == "t"
    assert received.get_jms_reply_to() == producer.get_jms_reply_to() == Queue("r")
    producer.set_jms_correlation_id_as_bytes(b"\xff").set_jms_type(None).set_jms_reply_to(None)
    message = TextMessage()
    message.set_jms_type("own")
    producer.send(queue, message)
    received = consumer.receive(SOON)
    assert received is not None
    assert received.get_jms_correlation_id_as_bytes() == producer.get_jms_correlation_id_as_bytes() == b"\xff"
    assert received.get_jms_type() == "own"
    assert received.get_jms_reply_to() is None
    with pytest.raises(InvalidDestinationRuntimeException):
        producer.set_jms_reply_to("r")  # type: ignore[arg-type]
