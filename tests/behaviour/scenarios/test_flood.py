"""One producer of 512 MB into a queue that may hold 64 MiB, and a consumer that comes late, under each rule."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from sievemq import ConnectionFactory

LIMIT = 64 * 1024 * 1024
SIZE = 1024 * 1024
COUNT = 512
DEADLINE = 120.0
FLOODER = Path(__file__).with_name("flooder.py")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(600),
    pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads memory from /proc"),
]


class Flooded:
    """A broker's process with one rule."""

    def __init__(self, at_limit: str, *options: str) -> None:
        rules = {"flood": {"max_bytes": LIMIT, "at_limit": at_limit}}
        environ = {name: value for name, value in os.environ.items() if not name.startswith("SIEVEMQ_")}
        command = [sys.executable, "-c", "from sievemq.cli import main; main()", "broker", "--port=0", "--http-port=0"]
        self.process = subprocess.Popen(
            [*command, *options],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=environ | {"SIEVEMQ_DESTINATIONS": json.dumps(rules), "SIEVEMQ_JSON_LOGS": "true"},
        )
        assert self.process.stdout is not None
        for line in self.process.stdout:
            record = json.loads(line)
            if record["event"] == "broker.ready":
                break
        else:
            raise AssertionError("the broker did not start")
        self._reader = threading.Thread(target=self.process.stdout.read, daemon=True)
        self._reader.start()
        self.flooder: subprocess.Popen[str] | None = None
        self.url, self._http = record["url"], urlsplit(record["http_url"])
        self.metric("sievemq_connections")  # HTTP is there, and imported
        self.start = self.memory("VmRSS")

    def memory(self, line: str) -> int:
        """Bytes by /proc: VmRSS now, VmHWM at most so far."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        found = re.search(rf"{line}:\s+(\d+) kB", status)
        assert found
        return int(found[1]) * 1024

    def metric(self, name: str) -> float:
        """Sum of a metric's samples."""
        with urllib.request.urlopen(f"http://{self._http.netloc}/metrics", timeout=DEADLINE) as answer:
            text = answer.read().decode()
        return sum(float(line.rsplit(" ", 1)[1]) for line in text.splitlines() if re.match(rf"{name}[{{ ]", line))

    def until(self, name: str, least: float) -> None:
        deadline = time.monotonic() + DEADLINE
        while self.metric(name) < least:
            assert self.flooder is not None
            assert self.flooder.poll() in (None, 0)
            assert time.monotonic() < deadline, f"{name} did not come to {least}"

    def flood(self, mode: str) -> subprocess.Popen[str]:
        command = [sys.executable, str(FLOODER), self.url, "flood", str(COUNT), str(SIZE), mode]
        self.flooder = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        return self.flooder

    def drain(self, first: int = 0) -> list[int]:
        """Numbers of what is received until nothing comes and nothing is there, after `first` no matter what."""
        numbers = []
        with ConnectionFactory(self.url).create_context() as context:
            consumer = context.create_consumer(context.create_queue("flood"))
            while message := (
                consumer.receive(int(DEADLINE * 1000) if len(numbers) < first else 1000) or consumer.receive_no_wait()
            ):
                assert message.get_body_length() == SIZE
                numbers.append(message.get_int_property("number"))
        return numbers

    def check_memory(self) -> None:
        """It has never taken more than the limit and 64 MB over what it began with."""
        grown = self.memory("VmHWM") - self.start
        print(f"start {self.start / 1e6:.0f} MB, at most {grown / 1e6:.0f} MB more")
        assert grown <= LIMIT + 64_000_000

    def end(self) -> None:
        if self.flooder is not None:
            self.flooder.kill()
            self.flooder.communicate()
        self.process.terminate()
        self.process.wait(DEADLINE)
        self._reader.join(DEADLINE)
        assert self.process.stdout is not None
        self.process.stdout.close()


@pytest.fixture
def flooded(request: pytest.FixtureRequest) -> Iterator[Flooded]:
    broker = Flooded(request.param)
    try:
        yield broker
    finally:
        broker.end()


def taken(flooder: subprocess.Popen[str]) -> int:
    output, _ = flooder.communicate(timeout=DEADLINE)
    assert flooder.returncode == 0
    return int(output)


@pytest.mark.parametrize("flooded", ["block"], indirect=True)
@pytest.mark.parametrize("mode", ["confirmed", "unconfirmed"])
def test_block_loses_no_message_and_the_producer_waits(flooded: Flooded, mode: str) -> None:
    flooder = flooded.flood(mode)
    flooded.until("sievemq_blocked_producers", 1)
    assert flooder.poll() is None
    assert flooded.drain(COUNT) == list(range(COUNT))
    assert taken(flooder) == COUNT
    assert flooded.metric("sievemq_messages_dropped_total") == 0
    flooded.check_memory()


@pytest.mark.parametrize("flooded", ["fail"], indirect=True)
def test_fail_refuses_sends_and_loses_no_accepted_message(flooded: Flooded) -> None:
    flooder = flooded.flood("confirmed")
    assert flooder.stdout is not None
    assert flooder.stdout.readline() == "refused\n"
    numbers = flooded.drain()
    accepted = taken(flooder)
    numbers += flooded.drain()
    assert len(numbers) == accepted < COUNT
    assert numbers == sorted(set(numbers))
    flooded.check_memory()


@pytest.mark.parametrize("flooded", ["drop-oldest", "drop-newest"], indirect=True)
def test_drop_counts_each_dropped_message(flooded: Flooded) -> None:
    flooder = flooded.flood("unconfirmed")
    flooded.until("sievemq_messages_dropped_total", 1)
    numbers = flooded.drain()
    assert taken(flooder) == COUNT
    numbers += flooded.drain()
    assert numbers == sorted(set(numbers))
    assert len(numbers) + flooded.metric("sievemq_messages_dropped_total") == COUNT
    assert len(numbers) < COUNT
    flooded.check_memory()
