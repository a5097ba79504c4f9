"""What can be registered. Everything that cannot is refused at once, with the parameter or the argument at fault."""

from __future__ import annotations

import enum
import functools
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from typing import Annotated, Any, TypedDict

import pytest

import sievemq
import sievemq.aio
from sievemq import (
    Header,
    InvalidDestinationException,
    InvalidSelectorException,
    JMSContext,
    Listeners,
    Message,
    Property,
    Queue,
    Retry,
    TemporaryQueue,
    TextMessage,
)


class Place:
    """No plain data makes one."""


@dataclass
class Holder:
    place: Place


@dataclass
class Node:
    below: list[Node]


@pytest.fixture
def app() -> Listeners:
    return Listeners("sievemq://localhost")


def no_annotation(order) -> None: ...  # type: ignore[no-untyped-def]
def no_type(order: Place) -> None: ...
def no_type_inside(order: Holder) -> None: ...
def contains_itself(order: Node) -> None: ...
def two_bodies(order: str, more: str) -> None: ...
def several(*orders: str) -> None: ...
def mapping(**orders: str) -> None: ...
def no_header(kind: Annotated[str, Header("JMSKind")]) -> None: ...
def no_header_but_property(group: Annotated[str, Header("JMSXGroupID")]) -> None: ...
def no_property(kind: Annotated[str, Property("JMSType")]) -> None: ...
def no_property_name(kind: Annotated[str, Property("a b")]) -> None: ...
def no_parentheses(kind: Annotated[str, Property]) -> None: ...
def any_text(order: str | int) -> None: ...
def other_context(order: str, context: sievemq.aio.JMSContext) -> None: ...
def no_name(order: Nowhere) -> None: ...  # type: ignore[name-defined]  # noqa: F821


@pytest.mark.parametrize(
    ("function", "text"),
    [
        (no_annotation, "parameter 'order' of no_annotation(): it has no annotation"),
        (no_type, "parameter 'order' of no_type(): Place is no type"),
        (no_type_inside, "parameter 'order' of no_type_inside(): place of Holder: Place is no type"),
        (contains_itself, "parameter 'order' of contains_itself(): its type contains itself"),
        (two_bodies, "parameter 'more' of two_bodies(): the body is parameter 'order' already"),
        (several, "parameter 'orders' of several()"),
        (mapping, "parameter 'orders' of mapping()"),
        (no_header, "parameter 'kind' of no_header(): 'JMSKind' is no header. Headers are JMSCorrelationID"),
        (no_header_but_property, "a property is Property('JMSXGroupID')"),
        (no_property, "parameter 'kind' of no_property(): JMSType is a header: write Header('JMSType')"),
        (no_property_name, "parameter 'kind' of no_property_name(): 'a b' cannot name a property"),
        (no_parentheses, "parameter 'kind' of no_parentheses(): write Property(…), with parentheses"),
        (any_text, "parameter 'order' of any_text(): str | int could be any text"),
        (other_context, "parameter 'context' of other_context(): a context is of sievemq.blocking here"),
        (no_name, "an annotation of no_name() names nothing: name 'Nowhere' is not defined"),
    ],
)
def test_a_wrong_signature_names_the_parameter(app: Listeners, function: Callable[..., Any], text: str) -> None:
    with pytest.raises(TypeError) as raised:
        app.listener("orders")(function)
    assert text in str(raised.value)


def test_the_blocking_api_refuses_coroutine_functions(app: Listeners) -> None:
    async def take(order: str) -> None: ...

    with pytest.raises(TypeError, match="is a coroutine function"):
        app.listener("orders")(take)


def plain(message: Message) -> None: ...


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ({"concurrency": 0}, ValueError, "concurrency is a number from 1 to 1000, not 0"),
        ({"concurrency": True}, ValueError, "concurrency"),
        ({"retries": 3}, TypeError, "retries is a Retry"),
        ({"subscription": "s"}, ValueError, "queue:orders is a queue"),
        ({"destination": "topic:prices", "durable": True}, ValueError, "needs a name"),
        ({"destination": "topic:prices", "concurrency": 2}, ValueError, "name a subscription"),
        ({"destination": "tpoic:prices"}, ValueError, "tpoic"),
        ({"destination": ""}, InvalidDestinationException, ""),
        ({"destination": TemporaryQueue("1.1", None)}, ValueError, "ends with its connection"),
        ({"selector": "region = 'EU' ANDD 1"}, InvalidSelectorException, "ANDD"),
        ({"reply_to": "qeue:receipts"}, ValueError, "qeue"),
    ],
)
def test_a_wrong_argument_is_named(
    app: Listeners, arguments: dict[str, Any], error: type[Exception], text: str
) -> None:
    with pytest.raises(error) as raised:
        app.listener(**{"destination": "orders", **arguments})
    assert text in str(raised.value)


def test_two_listeners_cannot_divide_a_queue_at_random(app: Listeners) -> None:
    app.listener("orders", selector="a = 1")(plain)
    app.listener("orders", selector="a = 2")(plain)
    app.listener("topic:orders")(plain)
    app.listener("topic:orders")(functools.wraps(plain)(lambda message: None))
    app.listener("topic:orders", subscription="s")(plain)
    for again in (
        app.listener("queue:orders", selector="a = 1"),
        app.listener("topic:orders"),
        app.listener(sievemq.Topic("orders"), subscription="s"),
    ):
        with pytest.raises(ValueError, match=r"plain\(\) at .* the others go to plain\(\)"):
            again(plain)
    assert "plain() at queue:orders where a = 2" in repr(app)


@pytest.mark.parametrize(
    "wrong",
    [
        {"attempts": 0},
        {"attempts": 1.5},
        {"backoff": 0.5},
        {"backoff": True},
        {"delay": -1},
        {"delay": 1.5},
        {"max_delay": 2**40},
    ],
)
def test_a_wrong_rule_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        Retry(**wrong)


def test_the_delays_of_a_rule() -> None:
    rule = Retry(attempts=5, delay=timedelta(minutes=1), backoff=3, max_delay=timedelta(minutes=10))
    assert rule.delays() == [timedelta(minutes=minutes) for minutes in (1, 3, 9, 10)]


def test_the_function_stays_as_it_is(app: Listeners) -> None:
    assert app.listener("orders")(plain) is plain


def test_a_method_and_keywords_are_called(app: Listeners) -> None:
    class Shop:
        def take(self, message: TextMessage, *, kind: Annotated[str | None, Header("JMSType")]) -> Any:
            return message, kind

        def __call__(self, message: Message, a: Annotated[int, Property()] = 3, b: Annotated[Decimal, Property()] = 4):  # type: ignore[no-untyped-def]
            return a, b

    message = TextMessage("a chair", properties={"b": "1.5"})
    message.set_jms_type("order")
    for listener, result in ((Shop().take, (message, "order")), (Shop(), (3, Decimal("1.5")))):
        app.listener(Queue("orders"), selector=f"a = {len(app._registered)}")(listener)
        *_, made = app._registered.values()
        assert made.plan.bind(None)(message) == result


class Colour(enum.Enum):
    RED = "red"


class Entry(TypedDict):
    colour: Colour


def test_a_body_is_absent_or_of_several_types(app: Listeners) -> None:
    bodies: list[Any] = []

    @app.listener("orders")
    def take(body: Entry | list[int] | None) -> None:
        bodies.append(body)

    (made,) = app._registered.values()
    call = made.plan.bind(None)
    for message in (TextMessage('{"colour": "red"}'), TextMessage("[1]"), TextMessage(), Message()):
        call(message)
    assert bodies == [{"colour": Colour.RED}, [1], None, None]
    with pytest.raises(sievemq.Reject, match="an object is needed"):
        call(TextMessage("1"))


def test_a_message_of_another_class_is_rejected(app: Listeners) -> None:
    @app.listener("orders")
    def take(message: TextMessage, context: JMSContext) -> None: ...

    (made,) = app._registered.values()
    with pytest.raises(sievemq.Reject, match="the message is a Message and no TextMessage"):
        made.plan.bind(None)(Message())


def test_an_unbounded_wait_for_the_broker_is_the_default() -> None:
    assert "reconnect=forever" in repr(Listeners("sievemq://localhost"))
    assert "reconnect=100" in repr(Listeners("sievemq://localhost?reconnect=100"))
    assert "reconnect=100" in repr(Listeners(reconnect=100))
