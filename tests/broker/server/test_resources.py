"""What a broker's process takes of its machine, in metrics and in the API."""

from __future__ import annotations

import json
import sys
import urllib.request
from contextlib import ExitStack
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from sievemq_broker import EmbeddedBroker
from sievemq_broker.server.watch.resources import read_resources


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells all of it")
def test_what_this_process_takes() -> None:
    taken = read_resources()
    assert 1_000_000 < taken.memory_bytes < taken.memory_limit
    assert taken.files > 2
    assert taken.cpu_seconds > 0
    with ExitStack() as opened:
        for _ in range(50):  # brokers of other tests close files meanwhile
            opened.enter_context(Path("/dev/null").open())
        assert read_resources().files > taken.files


def test_a_system_that_tells_nothing(tmp_path: Path) -> None:
    taken = read_resources(tmp_path)
    assert (taken.memory_bytes, taken.files) == (0, 0)


def test_the_api_and_metrics_show_it() -> None:
    with EmbeddedBroker(http=True) as broker:
        with urllib.request.urlopen(f"{broker.http_url}/api/v1/broker") as answer:
            shown = json.load(answer)
        with urllib.request.urlopen(f"{broker.http_url}/metrics") as answer:
            families = text_string_to_metric_families(answer.read().decode())
            found = {sample.name: sample.value for family in families for sample in family.samples}
    assert found["process_cpu_seconds_total"] >= shown["process"]["cpu_seconds"] > 0
    assert found["process_max_fds"] == shown["process"]["files_limit"]
    assert found["sievemq_process_memory_limit_bytes"] == shown["process"]["memory_limit"]
    assert found["sievemq_connections_limit"] == shown["connections_limit"]
    assert shown["slow_consumers"] == 0
