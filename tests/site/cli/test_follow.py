"""`sievemq browse --follow`: arrivals are printed and stay, and the tap ends with the command."""

from __future__ import annotations

import threading

import pytest

from sievemq import ConnectionFactory, JMSContext, Queue, Topic
from sievemq.cli import follow
from sievemq_broker import EmbeddedBroker

from .conftest import Sievemq


def taps(broker: EmbeddedBroker) -> int:
    return broker.call(lambda b: len(b.namespace("default").taps))


def send(context: JMSContext, *bodies: str) -> None:
    for body in bodies:
        context.create_producer().set_property("body", body).send(Queue("orders"), body)


@pytest.fixture
def when_tapped(broker: EmbeddedBroker, context: JMSContext, monkeypatch: pytest.MonkeyPatch) -> None:
    """Messages arrive once the command waits for some, and a consumer takes them."""
    sent = threading.Event()

    def arrive(seconds: float) -> None:
        assert taps(broker) == 1
        if not sent.is_set():
            sent.set()
            send(context, "b", "c", "d")
            assert context.create_consumer(Queue("orders"), "body <> 'a'").receive(60_000) is not None

    monkeypatch.setattr(follow, "sleep", arrive)


@pytest.fixture
def context(broker: EmbeddedBroker) -> JMSContext:
    return ConnectionFactory(broker.url).create_context()


def test_waiting_messages_and_arrivals_are_printed(
    broker: EmbeddedBroker, context: JMSContext, sievemq: Sievemq, when_tapped: None
) -> None:
    send(context, "a")
    done = sievemq("browse", "orders", "--follow", "-n", "3", "--selector", "body <> 'c'")
    assert (done.code, done.out, done.err) == (0, "a\nb\nd\n", "")
    assert taps(broker) == 0
    assert sievemq("browse", "orders").lines[0] == "a"
    context.close()


def test_missed_messages_are_reported(
    broker: EmbeddedBroker, context: JMSContext, sievemq: Sievemq, when_tapped: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = follow.open_tap
    monkeypatch.setattr(follow, "open_tap", lambda *args, **options: opened(*args, **options, retain_messages=1))
    send(context, "a")
    done = sievemq("browse", "orders", "-f", "-n", "2")
    assert (done.code, done.out, done.err) == (0, "a\nd\n", "sievemq: 2 messages missed: they came too fast\n")
    context.close()


def test_what_is_published_to_a_topic_is_printed(
    broker: EmbeddedBroker, context: JMSContext, sievemq: Sievemq, monkeypatch: pytest.MonkeyPatch
) -> None:
    def publish(seconds: float) -> None:
        for body in ("b", "c"):
            context.create_producer().set_property("body", body).send(Topic("news"), body)

    monkeypatch.setattr(follow, "sleep", publish)
    context.create_producer().send(Topic("news"), "a")
    done = sievemq("browse", "topic:news", "--follow", "-n", "1", "-s", "body = 'c'")
    assert (done.code, done.out, done.err) == (0, "c\n", "")
    assert taps(broker) == 0
    refused = sievemq("browse", "topic:news")
    assert refused.code == 2
    assert "--follow shows what is published from now on" in refused.err
    assert sievemq("browse", "topic:none", "-f").code == 3
    context.close()


def test_a_queue_that_does_not_exist_is_3(broker: EmbeddedBroker, sievemq: Sievemq) -> None:
    assert sievemq("browse", "nothing", "--follow").code == 3
