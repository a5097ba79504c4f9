"""Two worker processes of their own: what is sent to them can be pickled, and they find SieveMQ by themselves."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from sievemq import ConnectionFactory, Queue
from sievemq_broker import EmbeddedBroker

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(1_600)]


@pytest.mark.parametrize("master", ["local-cluster[2,1,1024]", "local[2]"])
def test_the_same_on_any_master(master: str, tmp_path: Path) -> None:
    with EmbeddedBroker() as broker, ConnectionFactory(broker.url).create_context() as context:
        producer = context.create_producer()
        for number in range(40):
            producer.set_property("n", number).send(Queue(("one", "two")[number % 2]), "x")
        done = subprocess.run(
            [sys.executable, Path(__file__).with_name("cluster_program.py"), master, broker.url, tmp_path / "archive"],
            capture_output=True,
            text=True,
            timeout=1_500,
            check=False,
        )
        assert done.returncode == 0, done.stderr[-3000:]
        assert json.loads(done.stdout.splitlines()[-1]) == [40, 40, [29, 0], 11, 29]
        assert sum(1 for _ in context.create_browser(Queue("again"))) == 11
