"""Answers that are none: the connection is lost with what was wrong, and nothing else gets out."""

from __future__ import annotations

from typing import Any

import pytest

from sievemq import JMSException, Queue
from sievemq._engine import EngineBrowser, EngineOptions
from sievemq_core.errors import ErrorCode
from sievemq_core.wire.commands import Command

from .harness import FakeBroker, envelope


@pytest.mark.parametrize("result", [None, 1, {}, {"a": 1}, (), b"queue:q"])
def test_a_temporary_destination_without_an_address(result: Any) -> None:
    broker = FakeBroker()
    broker.welcome()
    made = broker.engine.create_temporary(False)
    broker.grant(result)
    with pytest.raises(JMSException, match="must be an address"):
        made.result()
    assert broker.engine.failure is not None


@pytest.mark.parametrize(
    "result",
    [None, (), 5, {}, (None, 1), (None, ()), (None, (1,)), (None, ("x", envelope())), (None, (-1, envelope())),
     (None, (0, (1, 2))), (0, -1), (0, 1, 2)],
)  # fmt: skip
def test_an_invalid_page_is_refused(result: Any) -> None:
    broker = FakeBroker()
    broker.welcome()
    browser = EngineBrowser(broker.session(), Queue("q"), None)
    broker.grant(result)
    with pytest.raises(JMSException, match=r"BROWSE|envelope"):
        browser.opened.result()
    assert broker.engine.failure is not None


def test_a_page() -> None:
    broker = FakeBroker()
    broker.welcome()
    browser = EngineBrowser(broker.session(), Queue("q"), None)
    broker.grant((None, (1, envelope("x"))))
    assert browser.missing
    assert broker.engine.failure is None


@pytest.mark.parametrize(
    "memory",
    [{"sessions": (1, 2)}, {"sessions": ((1, "x", 0),)}, {"sessions": {"a": 1}}, {"refused": ((1, 1, 5),)},
     {"refused": ((1, 1, 5, None),)}, {"refused": "text"}],
)  # fmt: skip
def test_invalid_resumption_data_is_refused(memory: Any) -> None:
    broker = FakeBroker(EngineOptions(heartbeat=0, reconnect=1_000))
    broker.welcome()
    broker.session()
    broker.engine.lost(None)
    broker.reopen()
    broker.welcome(resumed=memory)
    assert broker.engine.failure is not None
    assert "not in form" in str(broker.engine.failure)


def test_an_answer_to_nothing() -> None:
    broker = FakeBroker()
    broker.welcome()
    broker.say(Command.OK, 99, {"a": 1})
    assert broker.engine.failure is None


HOSTILE = "no\x1b]0;owned\x07 \u202eexe\n  ^"
SHOWN = r"no\x1b]0;owned\x07 \u202eexe" + "\n  ^"


def test_an_errors_text_cannot_command_a_terminal() -> None:
    broker = FakeBroker()
    broker.welcome()
    made = broker.engine.create_temporary(False)
    broker.refuse(ErrorCode.SECURITY, HOSTILE)
    with pytest.raises(JMSException) as refused:
        made.result()
    assert str(refused.value) == SHOWN


def test_the_text_of_a_fatal_error_cannot_command_a_terminal() -> None:
    broker = FakeBroker()
    broker.welcome()
    broker.say(Command.ERROR, 0, ErrorCode.CLOSED_BY_ADMINISTRATOR, HOSTILE, {})
    assert str(broker.engine.failure) == SHOWN


def test_the_text_of_a_limit_cannot_command_a_terminal() -> None:
    broker = FakeBroker()
    broker.welcome()
    broker.say(Command.FLOW, True, HOSTILE)
    assert broker.engine.flow.broker_blocked == SHOWN.replace("\n", r"\n")
