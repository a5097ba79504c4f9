"""Answers that are none: the connection is lost with what was wrong, and nothing else gets out."""

from __future__ import annotations

from typing import Any

import pytest

from sievemq import JMSException, Queue
from sievemq._engine import EngineBrowser
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
     (None, (0, (1, 2)))],
)  # fmt: skip
def test_a_page_that_is_none(result: Any) -> None:
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


def test_an_answer_to_nothing() -> None:
    broker = FakeBroker()
    broker.welcome()
    broker.say(Command.OK, 99, {"a": 1})
    assert broker.engine.failure is None
