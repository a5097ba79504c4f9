"""D-15, D-16 over a socket: a dialect per connection, per broker, per Selector, verified when the consumer is made."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from tests.broker.protocols.amqp import AmqpSocket, message
from tests.broker.protocols.stomp import StompSocket

from sievemq import ConnectionFactory, InvalidSelectorException, Message, Selector, TextMessage
from sievemq_broker import EmbeddedBroker
from sievemq_core.message.values import Byte, Float, Long, Short

SUITES = Path(__file__).parents[3] / "behaviour" / "conformance" / "selectors"
WRAPPERS = {"b": Byte, "h": Short, "i": int, "l": Long, "f": Float, "d": float}
SOON = 60_000
#: Header fields that a sender cannot choose.
BROKERS_OWN = {"JMSMessageID", "JMSTimestamp"}


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker() as broker:
        yield broker


@pytest.fixture(scope="module", params=["ibm-mq", "mqe"])
def by_default(request: pytest.FixtureRequest) -> Iterator[tuple[str, EmbeddedBroker]]:
    """A broker whose own dialect is another one."""
    with EmbeddedBroker(settings={"dialect": request.param}) as broker:
        yield request.param, broker


def value_of(data: Any) -> Any:
    if not isinstance(data, dict):
        return data
    return WRAPPERS[data["t"]](float(data["v"]) if data["t"] in "fd" else data["v"])


def cases(dialect: str) -> list[dict[str, Any]]:
    suite = json.loads((SUITES / f"{dialect}.json").read_text(encoding="utf-8"))
    found = [{**group, **case} for group in suite["groups"] for case in group["cases"]]
    return [case for case in found if "expect" in case and not BROKERS_OWN & (case.get("headers") or {}).keys()]


def errors(dialect: str) -> list[dict[str, Any]]:
    suite = json.loads((SUITES / f"{dialect}-errors.json").read_text(encoding="utf-8"))
    return [{**group, **case} for group in suite["groups"] for case in group["cases"]]


def selects(url: str, queue: str, case: dict[str, Any]) -> bool:
    """Does a consumer with the selector get the case's message?"""
    with ConnectionFactory(url).create_context() as context:
        destination = context.create_queue(queue)
        message = Message(properties={name: value_of(value) for name, value in case.get("properties", {}).items()})
        producer = context.create_producer()
        for name, value in (case.get("headers") or {}).items():
            match name:
                case "JMSType":
                    producer.set_jms_type(value)
                case "JMSPriority":
                    producer.set_priority(value)
                case "JMSDeliveryMode":
                    producer.set_delivery_mode({"NON_PERSISTENT": 1, "PERSISTENT": 2}[value])
                case "JMSCorrelationID":
                    if isinstance(value, dict):
                        producer.set_jms_correlation_id_as_bytes(bytes.fromhex(value["bytes"]))
                    else:
                        producer.set_jms_correlation_id(value)
        producer.send(destination, message)
        with context.create_consumer(destination, case["selector"]) as consumer:
            found = consumer.receive_no_wait() is not None
        if not found:
            assert context.create_consumer(destination).receive_no_wait() is not None
        return found


@pytest.mark.filterwarnings("ignore::sievemq.DoubtfulSelectorWarning")
@pytest.mark.parametrize("dialect", ["ibm-mq", "mqe"])
def test_sel_01_d15_d16_a_connection_chooses_its_dialect(broker: EmbeddedBroker, dialect: str) -> None:
    """Every case of the dialect's conformance data, through the wire and the queue's index."""
    chosen = cases(dialect)
    assert len(chosen) > 40
    for number, case in enumerate(chosen):
        got = selects(f"{broker.url}?selector_dialect={dialect}", f"{dialect}-{number}", case)
        assert got is (case["expect"] == "TRUE"), case


@pytest.mark.filterwarnings("ignore::sievemq.DoubtfulSelectorWarning")
def test_d15_d16_a_broker_has_a_default(by_default: tuple[str, EmbeddedBroker]) -> None:
    dialect, broker = by_default
    for number, case in enumerate(cases(dialect)[::3]):
        assert selects(broker.url, f"q{number}", case) is (case["expect"] == "TRUE"), case


def test_a_connection_is_freed_before_the_broker(by_default: tuple[str, EmbeddedBroker]) -> None:
    """`a NOT BETWEEN` on NULL is TRUE for IBM MQ, UNKNOWN in Jakarta Messaging, and refused in MQ Everyplace."""
    _, broker = by_default
    case = {"selector": "a NOT BETWEEN 1 AND 2", "properties": {}}
    assert not selects(f"{broker.url}?selector_dialect=jakarta", "first", case)
    assert selects(f"{broker.url}?selector_dialect=ibm-mq", "second", case)
    with pytest.raises(InvalidSelectorException):
        selects(f"{broker.url}?selector_dialect=mqe", "third", case)


@pytest.mark.parametrize("dialect", ["ibm-mq", "mqe"])
def test_sel_02_a_dialects_own_grammar_is_checked_at_creation(broker: EmbeddedBroker, dialect: str) -> None:
    """Consumers, subscribers and browsers; the error says where, and the session goes on."""
    refused = errors(dialect)
    assert refused
    with ConnectionFactory(f"{broker.url}?selector_dialect={dialect}").create_context() as context:
        for case in refused:
            for make in (
                lambda text: context.create_consumer(context.create_queue("q"), text),
                lambda text: context.create_consumer(context.create_topic("t"), text),
                lambda text: context.create_browser(context.create_queue("q"), text).get_enumeration(),
            ):
                with pytest.raises(InvalidSelectorException) as caught:
                    next(iter(make(case["selector"])), None)
                assert case["fragment"] in str(caught.value).splitlines()[0]
        context.create_consumer(context.create_queue("q"), "a = 1").close()


def test_browsing_uses_the_dialect_of_the_connection(broker: EmbeddedBroker) -> None:
    for dialect, shown in (("jakarta", 0), ("ibm-mq", 1)):
        with ConnectionFactory(f"{broker.url}?selector_dialect={dialect}").create_context() as context:
            queue = context.create_queue(f"browsed-{dialect}")
            context.create_producer().send(queue, Message())
            assert len(list(context.create_browser(queue, "a NOT BETWEEN 1 AND 2"))) == shown


def test_subscriptions_of_two_dialects_are_two(broker: EmbeddedBroker) -> None:
    """The same text means two things: one evaluation must not serve both."""
    text = "a NOT BETWEEN 1 AND 2"
    factory = ConnectionFactory(f"{broker.url}?selector_dialect=ibm-mq")
    with factory.create_context() as ibm, ConnectionFactory(broker.url).create_context() as jakarta:
        consumers = [context.create_consumer(context.create_topic("both"), text) for context in (ibm, jakarta)]
        jakarta.create_producer().send(jakarta.create_topic("both"), Message())
        assert [consumer.receive_no_wait() is not None for consumer in consumers] == [True, False]


@pytest.mark.parametrize(("dialect", "truth"), [("jakarta", None), ("ibm-mq", True), ("mqe", InvalidSelectorException)])
def test_a_selector_names_its_dialect(dialect: str, truth: Any) -> None:
    if isinstance(truth, type):
        with pytest.raises(truth):
            Selector("a NOT BETWEEN 1 AND 2", dialect)
        return
    assert Selector("a NOT BETWEEN 1 AND 2", dialect).evaluate(Message()) is truth


@pytest.mark.parametrize("name", ["trace-id", "a.b", "order id", "NULL"])
def test_a_quoted_name_selects_what_other_protocols_send(name: str) -> None:
    """By the SDK with its option, by a STOMP header, and by a filter of AMQP."""
    text = f"\"{name}\" = 'x'"
    with EmbeddedBroker() as broker, ExitStack() as stack:
        context = stack.enter_context(ConnectionFactory(f"{broker.url}?selector_dialect=amqp").create_context())
        consumer = context.create_consumer(context.create_topic("t"), text)
        subscriber = stack.enter_context(StompSocket(broker.port))
        headers = {"selector": text, "selector-dialect": "amqp"}
        subscriber.confirmed("SUBSCRIBE", id="1", destination="/topic/t", **headers)
        stomp = stack.enter_context(StompSocket(broker.port))
        amqp = stack.enter_context(AmqpSocket(broker.port))
        amqp.sender("topic:t")
        for number, value in enumerate(["x", "y"]):
            stomp.confirmed("SEND", b"stomp", destination="/topic/t", **{name: value})
            amqp.send(message("amqp", {name: value}), number)
        received = [consumer.receive(SOON) for _ in range(2)]
        assert sorted(each.get_body(str) for each in received if each is not None) == ["amqp", "stomp"]
        assert all(Selector(text, "amqp").matches(each) for each in received if each is not None)
        assert sorted(subscriber.message() for _ in range(2)) == ["amqp", "stomp"]
        assert consumer.receive_no_wait() is None


@pytest.mark.parametrize("name", ["ESCAPE", "Escape"])
def test_d15_d16_escape_names_a_property_over_every_protocol(name: str) -> None:
    """A message has no dialect: whatever makes it may use the name."""
    with EmbeddedBroker() as broker, ExitStack() as stack:
        contexts = [
            stack.enter_context(ConnectionFactory(f"{broker.url}?selector_dialect={dialect}").create_context())
            for dialect in ("ibm-mq", "mqe")
        ]
        consumers = [each.create_consumer(each.create_topic("t"), f"{name} = 'x'") for each in contexts]
        topic = contexts[0].create_topic("t")
        contexts[0].create_producer().set_property(name, "x").send(topic, "sdk")
        contexts[1].create_producer().send(topic, TextMessage("message", properties={name: "x"}))
        stomp = stack.enter_context(StompSocket(broker.port))
        stomp.confirmed("SEND", b"stomp", destination="/topic/t", **{name: "x"})
        amqp = stack.enter_context(AmqpSocket(broker.port))
        amqp.sender("topic:t")
        amqp.send(message("amqp", {name: "x"}), 0)
        for consumer in consumers:
            assert [consumer.receive_body(str, SOON) for _ in range(4)] == ["sdk", "message", "stomp", "amqp"]
