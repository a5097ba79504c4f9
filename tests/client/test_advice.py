"""Warnings of what is legal and hardly meant: a kind in a name, a doubtful selector."""

from __future__ import annotations

import pickle
import warnings
from collections.abc import Callable
from typing import Any

import pytest

from sievemq import (
    ConnectionFactory,
    Destination,
    DestinationNameWarning,
    DoubtfulSelectorWarning,
    JMSContext,
    Queue,
    Selector,
    SieveMQWarning,
    Topic,
    WildcardWarning,
)
from sievemq.destinations import parse_destination
from sievemq.taps import open_tap
from sievemq_testing import TestNamespace

from .both import Api


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda context: Queue("queue:orders"), r"this is queue:queue:orders\. Write Queue\('orders'\)$"),
        (lambda context: Queue("topic:prices"), r"this is queue:topic:prices\. Write Topic\('prices'\)$"),
        (lambda context: context.create_queue("queue:a"), r"Write Queue\('a'\)$"),
        (lambda context: context.create_topic("topic:a:b"), r"Write Topic\('a:b'\)$"),
    ],
)
def test_a_kind_in_a_name_warns_at_the_line_of_the_application(
    sievemq_context: JMSContext, make: Callable[[JMSContext], Destination], text: str
) -> None:
    with pytest.warns(DestinationNameWarning, match=text) as told:
        make(sievemq_context)
    assert [warning.filename for warning in told] == [__file__]


@pytest.mark.parametrize("name", ["urn:x", "queue", "queues:x", ":x", "Queue:x", "queue:"])
def test_other_names_with_a_colon_do_not(name: str) -> None:
    assert Queue(name).name == name  # warnings are errors


def test_a_destination_that_was_written_with_its_kind_does_not(sievemq_context: JMSContext) -> None:
    """Nor one that arrives."""
    destination = parse_destination("queue:queue:orders")
    assert destination.name == "queue:orders"
    assert parse_destination("temporary-queue:c.1") == pickle.loads(
        pickle.dumps(parse_destination("temporary-queue:c.1"))
    )
    sievemq_context.create_producer().send(destination, "x")
    received = sievemq_context.create_consumer(destination).receive(60_000)
    assert received is not None
    assert received.get_jms_destination() == destination


@pytest.mark.parametrize(
    ("selector", "text"),
    [
        ("region = EU", r"write text in quotes: 'EU' \(in the selector 'region = EU'\)"),
        ("a = 1 AND a = 2", "no message can match this selector"),
    ],
)
async def test_every_way_to_use_a_doubtful_selector_warns(api: Api, selector: str, text: str) -> None:
    context, session = await api.context(client_id="one"), await api.session(client_id="two")
    queue, topic = Queue("orders"), Topic("prices")
    for owner in (context, session):
        for create, arguments in (
            (owner.create_consumer, (queue,)), (owner.create_consumer, (topic,)), (owner.create_browser, (queue,)),
            (owner.create_shared_consumer, (topic, "shared")), (owner.create_durable_consumer, (topic, "durable")),
            (owner.create_shared_durable_consumer, (topic, "both")),
        ):  # fmt: skip
            with pytest.warns(DoubtfulSelectorWarning, match=text):
                await create(*arguments, selector)


def test_it_warns_with_the_findings_of_selector_at_the_line_of_the_application(sievemq_context: JMSContext) -> None:
    with pytest.warns(DoubtfulSelectorWarning) as told:
        sievemq_context.create_consumer(Queue("orders"), "region = EU")
    assert [warning.filename for warning in told] == [__file__]
    (finding,) = Selector("region = EU").warnings
    assert str(told[0].message).startswith(finding.message)


def test_taps_and_the_kit_warn_too(sievemq_url: str, sievemq_namespace: TestNamespace) -> None:
    with ConnectionFactory(sievemq_url).create_connection() as connection, pytest.warns(DoubtfulSelectorWarning):
        open_tap(connection, "audit", Queue("orders"), selector="region = EU")
    with pytest.warns(DoubtfulSelectorWarning) as told:
        sievemq_namespace.queue("orders").messages("region = EU")
    assert told[0].filename == __file__


def test_the_dialect_of_the_connection_decides(sievemq_url: str) -> None:
    """'5' = 5 is false in one language, and no mistake in another."""
    with ConnectionFactory(sievemq_url, selector_dialect="amqp").create_context() as context:
        expected = Selector("JMSPriority = 'x'", "amqp").warnings
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            context.create_consumer(Queue("orders"), "JMSPriority = 'x'")
    assert len(told) == len(expected)


def test_a_warning_that_is_an_error_leaves_no_consumer(sievemq_context: JMSContext, sievemq_namespace: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error", SieveMQWarning)
        with pytest.raises(DoubtfulSelectorWarning):
            sievemq_context.create_consumer(Queue("orders"), "region = EU")
        with pytest.raises(WildcardWarning):
            sievemq_context.create_consumer(Queue("orders.*"))
    assert sievemq_namespace.queue("orders").consumers == []
    sievemq_context.create_producer().send(Queue("orders"), "x")
    assert sievemq_context.create_consumer(Queue("orders")).receive_body(str, 60_000) == "x"
