"""Doubtful selectors: the findings of Selector, and the broker's log. tests/client/test_advice.py has the client."""

from __future__ import annotations

import logging

import pytest

from sievemq import ConnectionFactory, Selector
from sievemq_broker import EmbeddedBroker


def test_sel_01_a_selector_warns_and_is_accepted() -> None:
    selector = Selector("a = 1 AND a = 2")
    assert [(warning.code, warning.message) for warning in selector.warnings] == [
        ("never-matches", "no message can match this selector")
    ]


@pytest.mark.filterwarnings("ignore::sievemq.DoubtfulSelectorWarning")
def test_the_broker_logs_a_warning_once_per_meaning(caplog: pytest.LogCaptureFixture) -> None:
    with (
        caplog.at_level(logging.WARNING, "sievemq_broker"),
        EmbeddedBroker() as broker,
        ConnectionFactory(broker.url).create_context() as context,
    ):
        queue = context.create_queue("q")
        for text in (
            "secret = 's3cr3t' AND secret = 'x'",
            "secret='x' AND secret='s3cr3t'",
            "a = 1",
            "b > 5 AND b < 3",
            "c > 5 AND c < 3".ljust(2_049),  # computed on demand
        ):
            context.create_consumer(queue, text).close()
        context.create_consumer(context.create_topic("t"), "b < 3 AND b > 5").close()
    found = [record for record in caplog.records if "selector.doubtful" in record.getMessage()]
    assert len(found) == 2
    assert "queue:q" in found[0].getMessage()
    assert "never-matches" in found[0].getMessage()
    assert "names='secret'" in found[0].getMessage()
    assert "s3cr3t" not in caplog.text
