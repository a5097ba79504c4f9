"""A paused destination stays paused over a restart of a durable broker."""

from __future__ import annotations

import json
import urllib.request
from pathlib import Path
from typing import Any

from sievemq import ConnectionFactory, JMSContext, Queue, Topic
from sievemq_broker import EmbeddedBroker

from .kill import Life

SOON = 60_000


class Served(Life):
    """A broker process with a management port."""

    def __init__(self, directory: Path) -> None:
        super().__init__(1, directory, ("--http", "--http-port", "0"))

    def post(self, path: str) -> Any:
        url = f"{self.http_url}/api/v1/namespaces/default/destinations/{path}"
        request = urllib.request.Request(url, b"{}", {"Content-Type": "application/json"}, method="POST")
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.load(answer)

    def connect(self) -> JMSContext:
        return ConnectionFactory(f"sievemq://127.0.0.1:{self.port}?client_id=c").create_context()


def test_pause_survives_kill_9_until_it_is_resumed(tmp_path: Path) -> None:
    life = Served(tmp_path)
    life.start()
    with life.connect() as context:
        context.create_durable_consumer(Topic("prices"), "s").close()
        context.create_producer().send(Queue("hold"), "one").send(Topic("prices"), "two")
    for address in ("queue:hold", "topic:prices"):
        assert life.post(f"{address}/actions/pause")["touched"] == 1
    life.kill()
    life.start()
    with life.connect() as context:
        assert context.create_consumer(Queue("hold")).receive_no_wait() is None
        subscriber = context.create_durable_consumer(Topic("prices"), "s")
        assert subscriber.receive_no_wait() is None
        subscriber.close()
    for address in ("queue:hold", "topic:prices"):
        assert life.post(f"{address}/actions/resume")["touched"] == 1
    life.kill()
    life.start()
    with life.connect() as context:
        assert context.create_consumer(Queue("hold")).receive_body(str, SOON) == "one"
        assert context.create_durable_consumer(Topic("prices"), "s").receive_body(str, SOON) == "two"
    life.stop()
    assert life.accounts.faults == []


def test_a_deleted_destination_is_not_paused_when_it_is_made_again(tmp_path: Path) -> None:
    def pause_and_delete(broker: Any) -> None:
        space = broker.namespace("default")
        space.pause(space.declare("queue:q"))
        space.delete("queue:q")
        space.declare("queue:q")

    for _ in range(2):
        with EmbeddedBroker(data_dir=tmp_path) as broker:
            assert not broker.call(lambda found: found.namespace("default").declare("queue:q").paused)
            broker.call(pause_and_delete)


def test_a_paused_temporary_queue_leaves_nothing_behind(tmp_path: Path) -> None:
    with EmbeddedBroker(data_dir=tmp_path) as broker, ConnectionFactory(broker.url).create_context() as context:
        label = str(context.create_temporary_queue())
        broker.call(lambda found: (space := found.namespace("default")).pause(space.find(label)))
    with EmbeddedBroker(data_dir=tmp_path) as broker:
        assert broker.call(lambda found: list(found.namespace("default").destinations)) == []
