"""The record of actions by itself: attempts are bounded, and an end of any kind is said."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from sievemq_broker.server.http.api.call import Call
from sievemq_broker.server.http.api.declare import Endpoint
from sievemq_broker.server.http.api.recording import Recording
from sievemq_broker.server.http.errors import ApiError, GoneError
from sievemq_broker.server.watch.audit import REPEATED_MS, Audit
from sievemq_broker.server.watch.history import History
from sievemq_broker.session.rights import Identity


class Clock:
    now = 1_000_000

    def __call__(self) -> int:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def audit(clock: Clock) -> Audit:
    return Audit(History(), clock)


def rows(audit: Audit) -> list[dict[str, Any]]:
    return list(audit.before())


def test_a_flood_of_different_attempts_is_bounded_and_leaves_the_actions(audit: Audit, clock: Clock) -> None:
    audit.record("purge_messages", via="http", user="ops", touched=5)
    for number in range(20_000):
        audit.attempted("sign_in", via="sieve", outcome="wrong", peer=f"192.0.2.{number}")
    assert [row["action"] for row in audit.before(only="actions")] == ["purge_messages"]
    attempts = list(audit.before(only="attempts"))
    assert len(attempts) < 1_000
    assert attempts[0]["details"] == {"others": True}
    clock.now += REPEATED_MS
    audit.look()
    newest = next(audit.before())
    assert newest["times"] > 19_000
    assert "peer" not in newest


def test_repeats_are_written_down_once_their_time_is_over(audit: Audit, clock: Clock) -> None:
    for _ in range(3):
        audit.attempted("sign_in", via="amqp", outcome="accepted", user="anna")
    clock.now += REPEATED_MS - 1
    audit.look()
    assert len(rows(audit)) == 1
    clock.now += 1
    audit.look()
    audit.look()
    assert [row.get("times", 1) for row in rows(audit)] == [2, 1]
    audit.attempted("sign_in", via="amqp", outcome="accepted", user="anna")
    assert len(rows(audit)) == 3
    clock.now -= 10 * REPEATED_MS  # the machine's clock was set back
    audit.look()
    audit.attempted("sign_in", via="amqp", outcome="accepted", user="anna")
    assert len(rows(audit)) == 4


def test_rows_of_both_kinds_are_in_order(audit: Audit) -> None:
    audit.record("a", via="http")
    audit.attempted("b", via="http", outcome="SECURITY")
    audit.record("c", via="http", address=None, touched=0, extra=1)
    assert [row["action"] for row in audit.since(0)] == ["a", "b", "c"]
    assert [row["action"] for row in rows(audit)] == ["c", "b", "a"]
    assert rows(audit)[0].items() >= {"touched": 0, "details": {"extra": 1}}.items()
    assert "address" not in rows(audit)[0]
    assert audit.last == rows(audit)[0]["id"]


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (GoneError(), [("purge", "ABANDONED", None)]),
        (asyncio.CancelledError(), [("purge", "ABANDONED", None)]),
        (ZeroDivisionError(), [("purge", "INTERNAL", None)]),
        (ApiError(409, "ILLEGAL_STATE", "half of it", {"applied": 7}), [("purge", "ILLEGAL_STATE", 7)]),
        (ApiError(409, "ILLEGAL_STATE", "nothing", {"applied": 0}), []),
        (ApiError(404, "NOT_FOUND", "nothing"), []),
        (ApiError(403, "SECURITY", "no"), [("purge", "SECURITY", None)]),
    ],
)
async def test_an_end_of_any_kind_is_recorded(audit: Audit, error: BaseException, expected: list[Any]) -> None:
    async def purge(call: Call[Any, Any]) -> None:
        raise error

    endpoint = Endpoint("POST", "/p", purge, None, None, None, None, (200,), "t")
    scope: dict[str, Any] = {"type": "http", "headers": [], "state": {}, "client": ("192.0.2.1", 5), "path": "/p"}
    call: Call[Any, Any] = Call(None, Identity("ops"), scope, None, None, {}, None, None, 200)  # type: ignore[arg-type]
    with pytest.raises(type(error)), Recording(audit, endpoint, Identity("ops"), scope, {"address": ":"}) as recording:
        await recording.answered(endpoint.handler, call)
    assert [(row["action"], row["outcome"], row.get("touched")) for row in rows(audit)] == expected
    assert all((row["user"], row["peer"]) == ("ops", "192.0.2.1") for row in rows(audit))


@pytest.mark.parametrize(
    ("headers", "via"),
    [
        ({}, "http"),
        ({"user-agent": "sievemq/1.2"}, "cli"),
        ({"user-agent": "curl/8", "sec-fetch-mode": "cors"}, "console"),
    ],
)
def test_a_row_says_how_the_call_came(audit: Audit, headers: dict[str, str], via: str) -> None:
    raw = [(name.encode(), value.encode()) for name, value in headers.items()]
    scope: dict[str, Any] = {"type": "http", "headers": raw, "state": {}, "path": "/p"}

    async def purge(call: Call[Any, Any]) -> None: ...

    endpoint = Endpoint("POST", "/p", purge, None, None, None, None, (200,), "t")
    with pytest.raises(ApiError), Recording(audit, endpoint, Identity(), scope, {}):
        raise ApiError(403, "SECURITY", "no")
    assert [row["via"] for row in rows(audit)] == [via]
