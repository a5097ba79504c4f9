"""`sievemq request`: the reply, and what happens without one."""

from __future__ import annotations

import json
import threading

from sievemq import ConnectionFactory, JMSContext, Message, Queue, Topic
from sievemq.destinations import Destination
from sievemq_broker import EmbeddedBroker

from .conftest import Sievemq


def answer(context: JMSContext, destination: Destination) -> None:
    """Answer each request with its text in capitals."""

    def reply(request: Message) -> None:
        target = request.get_jms_reply_to()
        assert target is not None
        producer.set_property("kind", "reply").send(target, (request.get_body(str) or "").upper())

    producer = context.create_producer()
    context.create_consumer(destination).set_message_listener(reply)


def test_the_reply_is_printed(broker: EmbeddedBroker, sievemq: Sievemq) -> None:
    with ConnectionFactory(broker.url).create_context() as context:
        answer(context, Queue("prices"))
        done = sievemq("request", "prices", "tea", "--type", "question", "-p", "n=1")
        assert (done.code, done.out, done.err) == (0, "TEA\n", "")
        record = json.loads(sievemq("request", "prices", "-", "--json", stdin=b"milk").out)
        assert (record["body"], record["properties"]["kind"]) == ("MILK", "reply")
        assert "kind = 'reply'" in sievemq("request", "prices", "tea", "--verbose").out


def test_several_replies_of_a_topic(broker: EmbeddedBroker, sievemq: Sievemq) -> None:
    factory = ConnectionFactory(broker.url)
    with factory.create_context() as one, factory.create_context() as two:
        answer(one, Topic("prices"))
        answer(two, Topic("prices"))
        assert sievemq("request", "topic:prices", "tea", "-n", "2", "--wait", "0").lines == ["TEA", "TEA"]
        done = sievemq("request", "topic:prices", "tea", "-n", "3", "--wait", "200ms")
        assert (done.code, done.lines) == (3, ["TEA", "TEA"])
        assert done.err == "sievemq: 2 replies of 3 from topic:prices within 200ms\n"


def test_without_a_reply_it_is_not_found(broker: EmbeddedBroker, sievemq: Sievemq) -> None:
    done = sievemq("request", "nobody", "tea", "--wait", "1ms")
    assert (done.code, done.out, done.err) == (3, "", "sievemq: no reply from queue:nobody within 1ms\n")
    assert threading.active_count() < 20


def test_mistakes_are_2(broker: EmbeddedBroker, sievemq: Sievemq) -> None:
    for arguments in (
        ("q", "x", "--wait", "soon"),
        ("q", "x", "-p", "novalue"),
        ("tpoic:x", "y"),
        ("q", "x", "-n", "0"),
    ):
        assert sievemq("request", *arguments).code == 2
