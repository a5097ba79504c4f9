"""A message as one JSON object: what is wrong with a line is named."""

from __future__ import annotations

import json
from typing import Any

import pytest

from sievemq_core.errors import FormatError
from sievemq_core.message.body import encode_text
from sievemq_core.message.envelope import BODY, BODY_KIND, DELIVERY_MODE, PRIORITY, REPLY_TO, BodyKind
from sievemq_core.message.record import read_record


@pytest.mark.parametrize(
    ("line", "error"),
    [
        ({"properties": {"a": 10**400}, "property_types": {"a": "double"}}, "properties: a: 1"),
        ({"destination": ""}, "destination: a destination's name must not be empty"),
        ({"reply_to": "queue:"}, "reply_to: a destination's name must not be empty"),
        ({"properties": {str(n): 1 for n in range(1_001)}}, "a message may have 1000 properties"),
    ],
)
def test_a_wrong_key_is_named(line: dict[str, Any], error: str) -> None:
    with pytest.raises(FormatError) as raised:
        read_record(json.dumps(line))
    assert raised.value.text.startswith(error)


def test_a_line_without_keys_is_an_empty_message() -> None:
    fields, destination = read_record("{}")
    assert destination is None
    assert [fields[at] for at in (PRIORITY, DELIVERY_MODE, REPLY_TO, BODY_KIND, BODY)] == [4, 2, None, 0, None]


def test_a_packed_body_of_any_kind_is_read() -> None:
    fields, _ = read_record('{"kind": "text", "body": null, "packed": "aGk="}')
    assert (fields[BODY_KIND], fields[BODY]) == (BodyKind.TEXT, encode_text("hi"))


@pytest.mark.parametrize("key", ["tap", "subscription"])
def test_a_message_of_a_tap_or_subscription_has_no_destination_of_its_own(key: str) -> None:
    assert read_record(json.dumps({"destination": "topic:t", key: "x"})).destination is None
    assert read_record('{"destination": "temporary-queue:c1.1"}').destination is None
    assert read_record('{"destination": "t"}').destination == "queue:t"
