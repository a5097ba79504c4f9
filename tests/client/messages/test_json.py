"""Bodies of JSON, over both APIs."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest

from sievemq import (
    BytesMessage,
    Json,
    MapMessage,
    Message,
    MessageFormatException,
    MessageFormatRuntimeException,
    ObjectMessage,
    StreamMessage,
    TextMessage,
)

from ..both import SOON, Api, api, both_broker

__all__ = ["api", "both_broker"]

ORDER = {"id": 7, "lines": [{"sku": "egg", "count": 12}], "note": None, "name": "Zoë 🥚", "total": 3.5, "paid": True}


@pytest.mark.parametrize("value", [ORDER, [], {}, [ORDER, [ORDER]], "text", 7, None, False])
async def test_json_arrives_as_it_was_sent(api: Api, value: Any) -> None:
    context, session = await api.context(), await api.session()
    consumer = await context.create_consumer(api.queue(), "content_type = 'application/json'")
    await context.create_producer().send(api.queue(), Json(value))
    await context.create_producer().send(api.queue(), context.create_text_message(Json(value)))
    await (await session.create_producer(api.queue())).send(session.create_text_message(Json(value)))
    for _ in range(3):
        message = await consumer.receive(SOON)
        assert isinstance(message, TextMessage)
        assert message.get_json() == value


def test_json_is_a_text_message_that_any_client_reads() -> None:
    message = TextMessage(Json(ORDER), properties={"region": "EU"})
    assert message.get_text() == (
        '{"id":7,"lines":[{"sku":"egg","count":12}],"note":null,"name":"Zoë 🥚","total":3.5,"paid":true}'
    )
    assert dict(message.properties) == {"content_type": "application/json", "region": "EU"}
    assert TextMessage("[1]").get_json() == [1]
    assert BytesMessage(b"[1]").get_json() == [1]


@pytest.mark.parametrize(
    "value", [{"at": dt.datetime(2026, 1, 1, tzinfo=dt.UTC)}, float("nan"), {(1, 2): 3}, {1, 2}, b"x"]
)
def test_values_without_a_json_form_are_refused(value: object) -> None:
    with pytest.raises(MessageFormatException, match="cannot be encoded as JSON"):
        Json(value)


@pytest.mark.parametrize(
    "message",
    [
        TextMessage(), TextMessage("no json"), TextMessage(""), BytesMessage(b"\xff"), BytesMessage(), Message(),
        MapMessage({"a": 1}), StreamMessage(), ObjectMessage("[1]"), TextMessage("[" * 100_000),
    ],
    ids=repr,
)  # fmt: skip
def test_a_body_that_is_no_json(message: Message) -> None:
    with pytest.raises(MessageFormatException, match="JSON"):
        message.get_json()


async def test_nested_data_in_a_dict_names_the_way(api: Api) -> None:
    context = await api.context()
    with pytest.raises(
        MessageFormatRuntimeException,
        match=r"'lines': .*, not list\. Nested data is sent as Json\(…\), or by create_object",
    ):
        await context.create_producer().send(api.queue(), ORDER)
