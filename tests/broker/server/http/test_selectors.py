"""The selector workbench over HTTP."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from sievemq import JMSContext
from sievemq_broker.server.http.api import selectors
from sievemq_core.limits import MAX_LIKE_SEARCHES, MAX_PROPERTY_CHARS

from .conftest import Api, at, send

CHECK, EXPLAIN = "/api/v1/selector/check", "/api/v1/selector/explain"


def test_a_valid_selector(api: Api) -> None:
    found = api.ok("POST", CHECK, {"selector": "NOT (region <> 'EU')  and amount > 5 AND amount < 3"})
    assert found["canonical"]
    assert found["names"] == ["amount", "region"]
    assert found["plan"]
    assert found["advice"][0].keys() == {"code", "message", "position", "length"}
    assert api.ok("POST", CHECK, {"selector": "amount / 2 = 1"})["portability"][0]["providers"]


def test_a_mistake_is_shown_where_it_is(api: Api) -> None:
    answer = api("POST", CHECK, {"selector": "region == 'EU'"})
    assert (answer.status, answer.error) == (422, "INVALID_SELECTOR")
    details = answer.json["details"]
    assert (details["position"], details["length"], details["hint"]) == (7, 2, "write '='")
    assert "\n         ^^" in answer.json["text"]


def test_dialects(api: Api) -> None:
    assert api.ok("POST", CHECK, {"selector": "a = 1", "dialect": "mqe"})["canonical"] == "mqe: a = 1"
    assert api("POST", CHECK, {"selector": "a > 1", "dialect": "mqe"}).error == "INVALID_SELECTOR"
    answer = api("POST", CHECK, {"selector": "a = 1", "dialect": "sql"})
    assert (answer.status, answer.error) == (400, "BAD_REQUEST")


def test_no_selector(api: Api) -> None:
    assert api.ok("POST", CHECK, {"selector": " "})["canonical"] == ""
    assert api.ok("POST", EXPLAIN, {"selector": " ", "message": {}})["matches"] is True


def test_why_a_given_message_matches(api: Api) -> None:
    message = {"properties": {"amount": {"type": "short", "value": 7}, "region": "EU"}, "priority": 9, "type": "order"}
    selector = "amount > 5 AND region = 'US' AND JMSPriority = 9 AND JMSType = 'order'"
    found = api.ok("POST", EXPLAIN, {"selector": selector, "message": message})
    assert (found["matches"], found["truth"]) == (False, "FALSE")
    parts = {part["condition"]: part for part in found["explanation"]["parts"]}
    assert parts["amount > 5"]["truth"] == "TRUE"
    assert "short" in parts["amount > 5"]["reason"]
    assert parts["region = 'US'"]["truth"] == "FALSE"
    assert "FALSE" in found["text"]
    assert api.ok("POST", EXPLAIN, {"selector": "absent = 1", "message": {}})["truth"] == "UNKNOWN"


def test_why_a_message_in_a_queue_matches(api: Api, context: JMSContext) -> None:
    send(context, "queue:q", 1, 2)
    (_, row) = api.get(f"{at('queue:q')}/messages")["messages"]
    where = {"namespace": api.namespace, "destination": "q", "id": row["id"]}
    assert api.ok("POST", EXPLAIN, {"selector": "n = 2", **where})["matches"] is True
    by_name = {**where, "id": row["message_id"]}
    assert api.ok("POST", EXPLAIN, {"selector": "n = 1", **by_name})["matches"] is False
    assert api("POST", EXPLAIN, {"selector": "n = 1", **where, "id": "99"}).status == 404
    assert api("POST", EXPLAIN, {"selector": "n = 1", **where, "destination": "none"}).status == 404
    assert api("POST", EXPLAIN, {"selector": "n = 1", **where, "destination": " "}).status == 422


def test_a_property_called_escape(api: Api) -> None:
    """D-16: a message may have one; the dialect says whether a selector can name it."""
    message = {"properties": {"ESCAPE": "x"}, "delivery_mode": "NON_PERSISTENT"}
    api.ok("POST", f"{at('queue:q')}/messages", message)
    selector = {"selector": "ESCAPE = 'x' AND JMSDeliveryMode = 1", "dialect": "mqe"}
    assert api.ok("POST", EXPLAIN, {**selector, "message": message})["matches"] is True
    assert api("POST", EXPLAIN, {**selector, "message": message, "dialect": "jakarta"}).status == 422


@pytest.mark.parametrize(
    "body",
    [
        {"selector": "a = 1"},
        {"selector": "a = 1", "namespace": "default", "id": "1"},
        {"selector": "a = 1", "message": {}, "id": "1"},
        {"selector": "a = 1", "message": {"color": 1}},
        {"message": {}},
        {"selector": None, "message": {}},
    ],
)
def test_incomplete_selectors(api: Api, body: object) -> None:
    answer = api("POST", EXPLAIN, body)
    assert (answer.status, answer.error) == (400, "BAD_REQUEST")


@pytest.mark.parametrize("path", [CHECK, EXPLAIN])
def test_costly_answers_are_made_beside_the_loop(api: Api, monkeypatch: pytest.MonkeyPatch, path: str) -> None:
    """Explaining 24 searches of the longest text took half a second, in which no client was served."""
    threads: list[int] = []
    for name in ("_checked", "_explained"):
        real = getattr(selectors, name)

        def recorded(*arguments: Any, real: Any = real) -> Any:
            threads.append(threading.get_ident())
            return real(*arguments)

        monkeypatch.setattr(selectors, name, recorded)
    text = " AND ".join(f"p NOT LIKE '%{'a' * 30}{number}b%'" for number in range(MAX_LIKE_SEARCHES))
    request = {"selector": text}
    if path == EXPLAIN:
        request |= {"message": {"properties": {"p": "a" * MAX_PROPERTY_CHARS}}}
    assert api.ok("POST", path, request)
    (thread,) = threads
    assert thread != api.broker.call(lambda _: threading.get_ident())
