"""An application's mistake raises where it was made; its connection and its neighbours go on."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from sievemq import (
    BytesMessage,
    ConnectionFactory,
    IllegalStateException,
    IllegalStateRuntimeException,
    InvalidDestinationRuntimeException,
    InvalidSelectorRuntimeException,
    JMSContext,
    JMSRuntimeException,
    JMSSecurityRuntimeException,
    MessageFormatException,
    MessageFormatRuntimeException,
    MessageNotWriteableException,
    Queue,
    ResourceAllocationRuntimeException,
    Short,
    TextMessage,
)
from sievemq_broker import EmbeddedBroker

Mistake = Callable[[JMSContext], object]

ORDERS = Queue("orders")
TEXTS = ["one", "two", "three"]


def receive_and_change(context: JMSContext) -> None:
    """Set a property on a message as received from the broker."""
    with context.create_consumer(Queue("others")) as consumer:
        context.create_producer().send(Queue("others"), "read-only")
        message = consumer.receive(60_000)
        assert message is not None
        message.set_string_property("seen", "yes")


def use_closed_consumer(context: JMSContext) -> None:
    """Receive from a consumer that was closed."""
    consumer = context.create_consumer(Queue("others"))
    consumer.close()
    consumer.receive_no_wait()


def delete_used_temporary(context: JMSContext) -> None:
    """Delete a temporary queue that still has a consumer."""
    queue = context.create_temporary_queue()
    with context.create_consumer(queue):
        queue.delete()


MISTAKES: dict[str, tuple[Mistake, type[Exception], str]] = {
    "a selector with a mistake": (
        lambda context: context.create_consumer(ORDERS, "region == 'EU'"), InvalidSelectorRuntimeException, "write '='"
    ),
    "a selector that compares a string with an order": (
        lambda context: context.create_consumer(ORDERS, "region > 'EU'"), InvalidSelectorRuntimeException, "'EU'"
    ),
    "a property whose name is no identifier": (
        lambda context: context.create_producer().set_property("1st", 1), ValueError, "1st"
    ),
    "a property whose name is a reserved word": (
        lambda context: context.create_producer().set_property("between", 1), ValueError, "between"
    ),
    "a property without a name": (lambda context: TextMessage("").set_int_property("", 1), ValueError, "name"),
    "a property of a type that JMS has not": (
        lambda context: context.create_producer().set_property("list", [1]), MessageFormatRuntimeException, "list"
    ),
    "a property's value out of range": (
        lambda context: TextMessage("").set_short_property("n", 40_000), MessageFormatException, "40000"
    ),
    "a wrapped value out of range": (lambda context: Short(40_000), ValueError, "40000"),
    "a read-only message": (receive_and_change, MessageNotWriteableException, "read-only"),
    "a body read as something else": (
        lambda context: TextMessage("text").get_body(bytes), MessageFormatException, "bytes"
    ),
    "a message that is none": (
        lambda context: context.create_producer().send(ORDERS, object()), MessageFormatRuntimeException, "object"
    ),
    "no destination": (
        lambda context: context.create_producer().send(None, "lost"),  # type: ignore[arg-type]
        InvalidDestinationRuntimeException, "None",
    ),
    "a priority that does not exist": (
        lambda context: context.create_producer().set_priority(10), JMSRuntimeException, "10"
    ),
    "a subscription that does not exist": (
        lambda context: context.unsubscribe("nobody"), InvalidDestinationRuntimeException, "nobody"
    ),
    "commit without a transaction": (lambda context: context.commit(), IllegalStateRuntimeException, "transact"),
    "a closed consumer": (use_closed_consumer, IllegalStateRuntimeException, "closed"),
    "a temporary queue in use": (delete_used_temporary, IllegalStateException, "1 consumer"),
    "a body that is too large": (
        lambda context: context.create_producer().send(ORDERS, BytesMessage(bytes(65 * 1024 * 1024))),
        ResourceAllocationRuntimeException, "67108864",
    ),
}  # fmt: skip


@pytest.fixture
def neighbour(broker: EmbeddedBroker) -> Iterator[JMSContext]:
    """A context of somebody else."""
    with ConnectionFactory(broker.url).create_context() as context:
        yield context


@pytest.mark.parametrize(("mistake", "error", "text"), MISTAKES.values(), ids=MISTAKES)
def test_a_mistake_is_an_error_and_nothing_else(
    context: JMSContext, neighbour: JMSContext, mistake: Mistake, error: type[Exception], text: str
) -> None:
    for body in TEXTS:
        context.create_producer().send(ORDERS, body)
    with pytest.raises(error, match=text):
        mistake(context)
    # The connection that made it still sends, its neighbour still receives: what was there before, and what came after.
    context.create_producer().send(ORDERS, "four")
    with neighbour.create_consumer(ORDERS) as consumer:
        received = [consumer.receive(60_000) for _ in range(4)]
        assert consumer.receive_no_wait() is None
    assert [message and message.get_body(str) for message in received] == [*TEXTS, "four"]
    assert not any(message and message.get_jms_redelivered() for message in received)


def test_a_closed_context_raises_and_its_messages_reach_other_consumers(
    context: JMSContext, neighbour: JMSContext
) -> None:
    for body in TEXTS:
        context.create_producer().send(ORDERS, body)
    producer = context.create_producer()
    context.close()
    with pytest.raises(IllegalStateRuntimeException, match="closed"):
        producer.send(ORDERS, "too late")
    with pytest.raises(IllegalStateRuntimeException, match="closed"):
        context.create_consumer(ORDERS)
    context.close()  # again: no effect
    consumer = neighbour.create_consumer(ORDERS)
    assert [consumer.receive_body(str, 60_000) for _ in TEXTS] == TEXTS
    assert consumer.receive_no_wait() is None


def test_an_unknown_user_is_refused_and_others_continue() -> None:
    with EmbeddedBroker(users={"anna": "secret"}) as broker:
        factory = ConnectionFactory(broker.url)
        with factory.create_context("anna", "secret") as context:
            context.create_producer().send(ORDERS, "one")
            for name, password in (("anna", "wrong"), ("bert", "secret"), (None, None)):
                with pytest.raises(JMSSecurityRuntimeException):
                    factory.create_context(name, password)
            assert context.create_consumer(ORDERS).receive_body(str, 60_000) == "one"


def test_no_broker_listens_there(broker: EmbeddedBroker) -> None:
    port = broker.port
    broker.stop()
    with pytest.raises(JMSRuntimeException, match=str(port)):
        ConnectionFactory(f"sievemq://127.0.0.1:{port}?reconnect=0").create_context()
