"""Bodies of millions of values: no request has them decoded in one piece, or at all."""

from __future__ import annotations

import json
from functools import partial
from typing import Any

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sievemq import JMSContext
from sievemq_broker.domain.work import finish
from sievemq_broker.server.http.api.declare import MAX_JSON_VALUES
from sievemq_broker.server.http.api.operation import has_at_most
from sievemq_broker.server.http.api.partly import Outline, beginning
from sievemq_broker.server.http.api.shown import MAX_SHOWN
from sievemq_core.errors import FormatError
from sievemq_core.message.body import decode_map, decode_stream, encode_map, encode_stream
from sievemq_core.message.values import Short

from .conftest import Api, at

Q = "queue:q"
FOUR_MIB = 4 * 1024 * 1024


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b'{"body":[1' + b",1" * 2_000_000 + b"]}", id="stream"),
        pytest.param(b'{"body":[' + b"{}," * 1_300_000 + b"1]}", id="empty-maps"),
        pytest.param(b'{"body":' + b"[" * 2_000_000, id="nested"),
        pytest.param(b'{"body":"x","properties":{"p":[1' + b",1" * 2_000_000 + b"]}}", id="property"),
    ],
)
def test_json_of_too_many_values_is_refused_before_it_is_decoded(api: Api, body: bytes) -> None:
    answer = api.raw("POST", f"{at(Q)}/messages", body)
    assert (answer.status, answer.error) == (413, "REQUEST_TOO_LARGE")
    assert str(MAX_JSON_VALUES) in answer.json["text"]


@pytest.mark.parametrize(("values", "status"), [(2 * MAX_JSON_VALUES, 400), (11 * MAX_JSON_VALUES, 413)])
def test_definitions_may_have_more_values_than_a_message(api: Api, values: int, status: int) -> None:
    body = b'{"dry_run": true, "definitions": {"nothing": [1' + b",1" * values + b"]}}"
    answer = api.raw("POST", "/api/v1/definitions", body)
    assert answer.status == status, answer.content


def test_text_with_many_commas_and_quotes_is_sent(api: Api, context: JMSContext) -> None:
    text = 'a,"b",[c],{d}\\' * 180_000
    api.ok("POST", f"{at(Q)}/messages", {"body": text})
    assert context.create_consumer(context.create_queue("q")).receive_body(str, 60_000) == text


def test_a_body_of_many_values_is_sent_and_shown(api: Api, context: JMSContext) -> None:
    api.ok("POST", f"{at(Q)}/messages", {"body": list(range(MAX_SHOWN))})
    (row,) = api.get(f"{at(Q)}/messages")["messages"]
    body = api.get(f"{at(Q)}/messages/{row['id']}")["body"]
    assert [value["value"] for value in body["stream"]] == list(range(MAX_SHOWN))
    assert body["truncated"] is False


def send_packed(api: Api, kind: int, body: bytes) -> dict[str, Any]:
    """Send a body as it is, and look at it over HTTP with the largest `body_limit`."""
    from sievemq_core.wire.commands import Command

    from ..wire_client import WireClient

    with WireClient(api.broker.port, namespace=api.namespace) as client:
        client.open_session()
        client.sent += 1
        client.say(Command.SEND, 1, 1, Q, (None, 1, 4, 1, 0, 0, None, None, None, None, None, kind, body))
        client.confirmed()
    (row,) = api.get(f"{at(Q)}/messages")["messages"]
    answer = api("GET", f"{at(Q)}/messages/{row['id']}", body_limit=FOUR_MIB)
    assert len(answer.content) < 2 * FOUR_MIB, "no longer than its bytes as base64"
    found: dict[str, Any] = answer.json["body"]
    return found


ARRAY = b"\xdd" + (4_000_000).to_bytes(4, "big")


def test_of_a_stream_of_millions_the_first_values_are_shown(api: Api) -> None:
    body = send_packed(api, 4, b"\x92\xc0" + ARRAY + b"\x01" * 4_000_000)
    assert body["truncated"] is True
    assert body["stream"] == [{"type": "int", "value": 1}] * MAX_SHOWN


def test_of_an_object_of_millions_the_first_values_are_shown(api: Api) -> None:
    body = send_packed(api, 5, ARRAY + b"\x80" * 4_000_000)
    assert len(body["object"]) <= 2_001
    assert body["object"][:2] == [{}, {}]
    assert body["object"][-1] == {"$type": "…"}


@pytest.mark.parametrize(
    ("kind", "begin"), [(3, b"\x92\xc0\x81\xa1a"), (4, b"\x92\xc0\x91"), (4, b"\x92"), (3, b""), (4, b"\x93\xc0")]
)
def test_nested_values_in_flat_fields_are_not_decoded(api: Api, kind: int, begin: bytes) -> None:
    body = send_packed(api, kind, begin + ARRAY + b"\x80" * 3_000_000)
    if begin == b"\x93\xc0":
        assert "scalars" in body["unreadable"]
    assert body["unreadable"]


# -- the pieces -------------------------------------------------------------------------------------------------------

values = st.one_of(
    st.none(), st.booleans(), st.integers(-(2**31), 2**31 - 1), st.floats(allow_nan=False), st.text(), st.binary()
)


@given(st.lists(st.one_of(values, st.integers(-5, 5).map(Short)), max_size=8), st.integers(0, 9))
def test_a_preview_is_the_beginning_of_the_body(held: list[Any], limit: int) -> None:
    packed, cut = beginning(encode_stream(held), limit, named=False)
    assert (decode_stream(packed), cut) == (held[:limit], len(held) > limit)
    entries = {f"n{number}": value for number, value in enumerate(held)}
    packed, cut = beginning(encode_map(entries), limit, named=True)
    assert (decode_map(packed), cut) == (dict(list(entries.items())[:limit]), len(held) > limit)


@given(st.binary(max_size=40))
def test_anything_is_a_beginning_or_a_format_error(content: bytes) -> None:
    for read in (
        lambda: beginning(content, 3, named=True),
        lambda: beginning(content, 3, named=False),
        lambda: Outline(20, 3).of(content),
    ):
        try:
            read()
        except FormatError:
            pass


objects = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-(2**63), 2**63 - 1), st.text()),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(st.text(), inner, max_size=4)),
    max_leaves=20,
)


@given(objects)
def test_an_outline_of_plain_data_is_the_data(value: Any) -> None:
    assert Outline(2_000, 32).of(msgpack.packb(value)) == value


def test_an_outline_ends_at_its_depth_and_its_values() -> None:
    deep = msgpack.packb([[[["x"]]], "later"])
    assert Outline(2_000, 2).of(deep) == [[[{"$type": "…"}]]]
    assert Outline(3, 9).of(msgpack.packb(list(range(9)))) == [0, 1, {"$type": "…"}]


json_values = st.recursive(
    st.one_of(st.none(), st.integers(), st.text(alphabet='a,[{"\\é')),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(alphabet='b,"\\'), inner, max_size=3)),
    max_leaves=30,
)


def count(value: Any) -> int:
    """Commas and opening brackets that its JSON has outside of strings."""
    if not isinstance(value, (list, dict)):
        return 0
    inner = value.values() if isinstance(value, dict) else value
    return 1 + max(len(value) - 1, 0) + sum(map(count, inner))


@given(json_values, st.integers(-1, 1), st.booleans(), st.integers(1, 9))
def test_values_are_counted_outside_of_strings(value: Any, more: int, ascii_only: bool, piece: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sievemq_broker.server.http.api.operation._PIECE", piece)
        data = json.dumps(value, ensure_ascii=ascii_only).encode()
        limit = count(value) + more
        assert finish(partial(has_at_most, data, limit), 0) is (more >= 0)
