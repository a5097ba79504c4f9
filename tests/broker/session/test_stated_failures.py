"""What a client states of a failure: a reason, a rule for the redelivery. Values of a wrong kind end its connection."""

from __future__ import annotations

from typing import Any

import pytest

from sievemq_broker.domain.failure import PLAIN, Failure
from sievemq_broker.session.checks import failure_of
from sievemq_core.errors import ErrorCode, ProtocolError
from sievemq_core.message.dead_letters import MAX_ERROR_CHARS
from sievemq_core.wire.commands import Command

from .harness import TRANSACTED, Client


@pytest.mark.parametrize(
    ("stated", "failure"),
    [
        (None, PLAIN),
        ({}, PLAIN),
        ({"unknown": 1}, PLAIN),
        ({"reject": True, "text": "no"}, Failure(reject=True, text="no")),
        ({"text": "\ud800" + "x" * 2_000}, Failure(text="\ufffd" + "x" * (MAX_ERROR_CHARS - 1))),
        ({"attempts": 3, "delay": 10, "factor": 2, "delay_max": 30}, Failure(False, "", 3, 10, 2.0, 30)),
    ],
)
def test_a_failure_is_read(stated: Any, failure: Failure) -> None:
    assert failure_of(stated) == failure


@pytest.mark.parametrize(
    "stated",
    [
        {"reject": 1},
        {"text": b"no"},
        {"attempts": True},
        {"attempts": -1},
        {"delay": 1.5},
        {"delay_max": 2**31},
        {"factor": 0.5},
        {"factor": float("nan")},
        {"factor": float("inf")},
        {"factor": "2"},
        {"factor": True},
    ],
)
def test_a_wrong_value_is_refused(stated: Any) -> None:
    with pytest.raises(ProtocolError, match="a failure is stated wrongly"):
        failure_of(stated)


def test_a_wrong_value_is_quoted_in_short() -> None:
    nested: Any = ()
    for _ in range(2_000):
        nested = (nested,)
    for value in (nested, {"a": nested}, b"x" * 1_000_000):
        with pytest.raises(ProtocolError) as raised:
            failure_of({"text": value, "other": "y" * 1_000_000})
        assert len(raised.value.text) < 200


def test_a_commit_with_a_wrong_one_is_refused_though_nothing_failed(client: Client) -> None:
    session = client.session(TRANSACTED)
    client.send(session, "a", to="queue:out")
    client.wire.send(Command.COMMIT, 99, session, (), {"text": 3})
    client.world.settle()
    assert client.fatal is not None
    assert client.fatal[2] == ErrorCode.MALFORMED_FRAME
    assert client.world.client().browse("queue:out") == []


def test_the_rule_of_the_client_takes_the_place_of_the_destinations() -> None:
    rule = Failure(attempts=9, delay=10, factor=2.0, delay_max=35)
    assert rule.limit(3) == 9
    assert [rule.delay_after(attempts, 1_000) for attempts in (1, 2, 3, 2_000)] == [10, 20, 35, 35]
    assert PLAIN.limit(3) == 3
    assert PLAIN.delay_after(1, 1_000) == 1_000
