"""The API of a broker with a data directory: what it says is done is on disk."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

from sievemq_broker import EmbeddedBroker

from .conftest import DEADLINE, Answer, Api, at

Q, R = "queue:q", "queue:r"


def test_changes_survive_a_restart(tmp_path: Path) -> None:
    with EmbeddedBroker(http=True, data_dir=tmp_path) as broker:
        api = Api(broker)
        for number in range(12):
            api.ok("POST", f"{at(Q)}/messages", {"body": "x", "properties": {"n": number}})
        for number in (98, 99):
            api.ok("POST", f"{at(Q)}/messages", {"properties": {"n": number}, "delivery_delay": 10**9})
        assert api.act(Q, "move", to=R, selector="n < 4")["touched"] == 4
        assert api.act(Q, "copy", to="queue:c", selector="n = 5")["touched"] == 1
        assert api.act(Q, "delete", selector="n = 4")["touched"] == 1
        assert api.act(Q, "cancel", selector="n = 98")["touched"] == 1
    with EmbeddedBroker(http=True, data_dir=tmp_path) as broker:
        api = Api(broker)
        assert api.ids(Q) == [str(n) for n in range(5, 12)]
        assert (api.ids(R), api.ids("queue:c")) == (["0", "1", "2", "3"], ["5"])
        assert api.ids(Q, state="scheduled") == ["99"]
        api.ok("DELETE", at(Q))
        assert api.act(R, "purge")["touched"] == 4
    with EmbeddedBroker(http=True, data_dir=tmp_path) as broker:
        api = Api(broker)
        assert sum(row["depth"] + row["scheduled"] for row in api.get("destinations")["destinations"]) == 1


def test_the_answer_waits_for_the_disk(tmp_path: Path) -> None:
    with EmbeddedBroker(http=True, data_dir=tmp_path) as broker:
        api = Api(broker)
        api.ok("PUT", at(Q))
        store: Any = broker.server.shard.commits._store  # type: ignore[union-attr]
        write, writing, may_write = store.write, threading.Event(), threading.Event()

        def slow(*arguments: Any) -> None:
            writing.set()
            assert may_write.wait(DEADLINE)
            write(*arguments)

        broker.call(lambda _: setattr(store, "write", slow))
        answers: list[Answer] = []
        sender = threading.Thread(target=lambda: answers.append(api("POST", f"{at(Q)}/messages", {"body": "x"})))
        sender.start()
        try:
            assert writing.wait(DEADLINE)
            assert api.get(at(Q))["depth"] == 1  # others are answered meanwhile
            assert answers == []
        finally:
            may_write.set()
            sender.join(DEADLINE)
        assert [answer.status for answer in answers] == [201]
