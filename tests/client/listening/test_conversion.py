"""Plain data becomes a value of a type, or the error names the place that does not fit."""

from __future__ import annotations

import datetime as dt
import enum
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Annotated, Any, Literal, NewType, NotRequired, TypedDict
from uuid import UUID

import msgspec
import pytest

from sievemq import (
    BytesMessage,
    Json,
    Listeners,
    MapMessage,
    Message,
    ObjectMessage,
    Reject,
    Short,
    TextMessage,
    register_type,
)
from sievemq.listening.conversion import converter
from sievemq.listening.replies import reply_of


class Colour(enum.Enum):
    RED = 1


class Row(TypedDict):
    price: float
    note: NotRequired[str]


class Item(msgspec.Struct):
    name: str
    count: int = 1


Number = NewType("Number", int)


@dataclass
class Order:
    rows: list[Row]
    colour: Colour = Colour.RED
    tags: set[str] = field(default_factory=set)
    item: Item | None = None
    kind: Literal["a", 1] = "a"


DAY = dt.date(2026, 1, 2)


@pytest.mark.parametrize(
    ("annotation", "value", "result"),
    [
        (int, Short(3), 3),
        (float, 3, 3.0),
        (Any, [1], [1]),
        (None, None, None),
        (int | None, None, None),
        (Number, 3, 3),
        (Annotated[int, "marked"], 3, 3),
        (list, [1], [1]),
        (list[int], [1, 2], [1, 2]),
        (Sequence[int], (1,), [1]),
        (frozenset[int], [1, 1], frozenset({1})),
        (tuple[int, str], [1, "a"], (1, "a")),
        (tuple[int, ...], [1, 2], (1, 2)),
        (tuple, [1, "a"], (1, "a")),
        (dict, {"a": 1}, {"a": 1}),
        (Mapping[str, float], {"a": 1}, {"a": 1.0}),
        (dt.date, "2026-01-02", DAY),
        (dt.date, DAY, DAY),
        (dt.datetime, "2026-01-02T03:04:05+00:00", dt.datetime(2026, 1, 2, 3, 4, 5, tzinfo=dt.UTC)),
        (UUID, "00000000-0000-0000-0000-000000000001", UUID(int=1)),
        (Decimal, "9.90", Decimal("9.90")),
        (Decimal, 3, Decimal(3)),
        (Row, {"price": 1, "more": 2}, {"price": 1.0, "more": 2}),
        (Item, {"name": "chair"}, Item("chair")),
        (
            Order,
            {"rows": [{"price": 1}], "colour": 1, "tags": ["a"], "item": {"name": "b"}, "kind": 1, "other": 1},
            Order([{"price": 1.0}], Colour.RED, {"a"}, Item("b"), 1),
        ),
        (Order, Order([]), Order([])),
    ],
)
def test_data_that_fits(annotation: Any, value: Any, result: Any) -> None:
    made = converter(annotation)(value)
    assert made == result
    assert type(made) is type(result)


@pytest.mark.parametrize(
    ("annotation", "value", "text"),
    [
        (int, True, "a whole number is needed, not True"),
        (float, "1", "a number is needed"),
        (str, 1, "a text is needed"),
        (dt.date, "soon", "a date in ISO form is needed"),
        (Decimal, "many", "a number is needed"),
        (Decimal, [], "a number is needed"),
        (Colour, 2, "2 is no Colour"),
        (Literal["a", 1], True, "one of 'a', 1 is needed"),
        (int | None, "x", "a whole number is needed, not 'x'; or null is needed, not 'x'"),
        (list[int], "12", "a list is needed"),
        (tuple[int, str], [1], "a list of 2 is needed"),
        (tuple[int, ...], 1, "a list is needed"),
        (dict[str, int], {"a": "b"}, "a: a whole number is needed"),
        (dict[str, int], [], "an object is needed"),
        (Row, [], "an object is needed"),
        (Row, {}, "price: it is missing"),
        (Item, {"name": 1}, "Expected `str`, got `int` - at `$.name`"),
        (Order, [], "an object is needed"),
        (Order, {}, "rows: it is missing"),
        (Order, {"rows": [{"price": 1}, {"price": "x"}]}, "rows[1].price: a number is needed, not 'x'"),
    ],
)
def test_data_that_does_not_fit(annotation: Any, value: Any, text: str) -> None:
    with pytest.raises(ValueError) as raised:
        converter(annotation)(value)
    assert text in str(raised.value)


class FaultError(ValueError):
    """What Pydantic raises."""

    def error_count(self) -> int:
        return 1

    def errors(self) -> list[dict[str, Any]]:
        return [{"loc": ("rows", 1), "msg": "it is bad"}]


class Model:
    """What a model of Pydantic looks like from outside."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Model) and other.value == self.value

    __hash__ = None  # type: ignore[assignment]

    @classmethod
    def model_validate(cls, value: Any) -> Model:
        if "bad" in value:
            raise FaultError("1 validation error\n  bad, see https://errors.example")
        return cls(value)

    @classmethod
    def model_validate_json(cls, text: str | bytes) -> Model:
        return cls(text)

    def model_dump(self, mode: str) -> Any:
        return {"value": self.value}


def test_models_check_themselves() -> None:
    assert converter(Model)({"a": 1}) == Model({"a": 1})
    with pytest.raises(ValueError, match=r"^rows.1: it is bad$"):
        converter(Model)({"bad": 1})


def test_a_reason_is_short_whatever_the_data() -> None:
    """The log shows it, and no traceback whose text grows with the data."""

    @dataclass
    class Checked:
        name: str

        def __post_init__(self) -> None:
            raise ValueError(self.name)

    with pytest.raises(Reject) as raised:
        _read(Checked, TextMessage(Json({"name": "x" * 1_000_000})))
    assert len("".join(traceback.format_exception(raised.value))) < 10_000


def data_of(body: bytes) -> BytesMessage:
    message = BytesMessage()
    message.write_bytes(body)
    message.reset()
    return message


@register_type
@dataclass
class Thing:
    name: str


@pytest.mark.parametrize(
    ("annotation", "message", "result"),
    [
        (str, TextMessage("a"), "a"),
        (str, data_of("ä".encode()), "ä"),
        (bytes, TextMessage("ä"), "ä".encode()),
        (bytes, data_of(b""), b""),
        (Any, TextMessage("a"), "a"),
        (object, MapMessage({"a": 1}), {"a": 1}),
        (dict, TextMessage('{"a": 1}'), {"a": 1}),
        (Item, TextMessage('{"name": "chair"}'), Item("chair")),
        (Item, MapMessage({"name": "chair"}), Item("chair")),
        (Model, data_of(b"{}"), Model(b"{}")),
        (Model, MapMessage({"a": 1}), Model({"a": 1})),
        (Thing, ObjectMessage(Thing("a")), Thing("a")),
    ],
)
def test_bodies(annotation: Any, message: Message, result: Any) -> None:
    assert _read(annotation, message) == result


@pytest.mark.parametrize("message", [Message(), TextMessage(), ObjectMessage()])
def test_an_absent_body_does_not_fit(message: Message) -> None:
    with pytest.raises(Exception, match="the message has no body"):
        _read(Thing, message)


def _read(annotation: Any, message: Message) -> Any:
    app = Listeners("sievemq://localhost")

    def take(body: Any) -> Any:
        return body

    take.__annotations__["body"] = annotation
    app.listener("orders")(take)
    (made,) = app._registered.values()
    return made.plan.bind(None)(message)


@pytest.mark.parametrize(
    ("result", "body"),
    [
        ("a", "a"),
        (Json([1]), "[1]"),
        ({"a": {"b": DAY}}, '{"a":{"b":"2026-01-02"}}'),
        (Thing("a"), '{"name":"a"}'),
        (Item("a"), '{"name":"a","count":1}'),
        ([Item("a")], '[{"name":"a","count":1}]'),
        (Model(1), '{"value":1}'),
        ([Colour.RED, Decimal("1.5"), UUID(int=1), {1}], '[1,"1.5","00000000-0000-0000-0000-000000000001",[1]]'),
    ],
)
def test_results(result: Any, body: str) -> None:
    request = TextMessage("a")
    request.set_jms_correlation_id("7")
    reply = reply_of(result, request)
    assert reply.get_body(str) == body
    assert reply.get_jms_correlation_id() == "7"


def test_results_that_are_messages_or_bytes() -> None:
    message = Message()
    message.set_jms_correlation_id("8")
    request = TextMessage("a")
    assert reply_of(message, request) is message
    assert message.get_jms_correlation_id() == "8"
    reply = reply_of(b"abc", request)
    assert isinstance(reply, BytesMessage)
    with pytest.raises(Exception, match="of which no message can be made"):
        reply_of(object(), request)
