"""A disk that is really full: a small file system of its own, for who may mount one."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from sievemq import ConnectionFactory, JMSContext, JMSRuntimeException

from .kill import COMMAND

#: The reserve takes 16 MiB of it, the log another 17 before it is used again.
DISK = "64m"
BODY = "x" * 20_000
PATIENCE = "?reconnect=60000&connect_timeout=60000"

SCRIPT = f"""
mount -t tmpfs -o size={DISK} none "$1" || exit 77
shift
for life in 1 2; do
    "$@" &
    echo "{{\\"event\\": \\"pid\\", \\"pid\\": $!}}"
    wait $!
done
"""


def may_mount(folder: Path) -> bool:
    """True if this process may have mounts of its own."""
    if shutil.which("unshare") is None:
        return False
    command = ["unshare", "--mount", "sh", "-c", 'mount -t tmpfs -o size=1m none "$1"', "sh", str(folder)]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


class Disk:
    """A broker on a file system that ends with it, killed once and started again.

    Args:
        folder: where it is mounted.
        policy: what becomes of PERSISTENT sends.
    """

    def __init__(self, folder: Path, policy: str) -> None:
        environ = {name: value for name, value in os.environ.items() if not name.startswith("SIEVEMQ_")}
        broker = [
            *COMMAND, "broker", "--port", "0", "--no-http", "--data-dir", f"{folder}/data",
            "--on-full-disk", policy, "--json-logs",
        ]  # fmt: skip
        self.process = subprocess.Popen(
            ["unshare", "--mount", "sh", "-c", SCRIPT, "sh", str(folder), *broker],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environ,
        )  # fmt: skip
        self._log: list[dict[str, Any]] = []
        self._more = threading.Condition()
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            with self._more, contextlib.suppress(ValueError):
                self._log.append(json.loads(line))
                self._more.notify_all()

    def wait_for(self, event: str, times: int = 1) -> dict[str, Any]:
        """The record of this event, when it has been logged so often."""
        with self._more:
            assert self._more.wait_for(lambda: self._count(event) >= times, 120), (event, self._log)
            return [record for record in self._log if record.get("event") == event][times - 1]

    def _count(self, event: str) -> int:
        return sum(record.get("event") == event for record in self._log)

    def said(self, event: str) -> bool:
        with self._more:
            return bool(self._count(event))

    def url(self, life: int) -> str:
        return str(self.wait_for("broker.ready", life)["url"]) + PATIENCE

    def kill(self, life: int, how: signal.Signals = signal.SIGKILL) -> None:
        """End the broker of this life."""
        os.kill(int(self.wait_for("pid", life)["pid"]), how)

    def end(self) -> None:
        """End it all."""
        for life in (1, 2):
            with contextlib.suppress(ProcessLookupError):
                if self.process.poll() is None:
                    self.kill(life)
        self.process.wait(60)
        self._reader.join()
        assert self.process.stdout is not None
        self.process.stdout.close()


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Callable[[str], Disk]]:
    if not may_mount(tmp_path):
        pytest.skip("a file system of its own needs the right to mount one")
    made: list[Disk] = []

    def make(policy: str) -> Disk:
        made.append(Disk(tmp_path, policy))
        return made[0]

    yield make
    for each in made:
        each.end()


def take(context: JMSContext, count: int) -> list[int]:
    """So many messages, in order."""
    consumer = context.create_consumer(context.create_queue("q"))
    taken = []
    for _ in range(count):
        message = consumer.receive(60_000)
        assert message is not None, f"{len(taken)} of {count} came"
        taken.append(int(message.get_body(str).split()[0]))
    consumer.close()
    return taken


@pytest.mark.slow
def test_consumers_continue_and_confirmed_messages_survive_a_kill(disk: Callable[[str], Disk]) -> None:
    full = disk("fail")
    with ConnectionFactory(full.url(1)).create_context() as context:
        queue, producer = context.create_queue("q"), context.create_producer()
        confirmed: list[int] = []
        with pytest.raises(JMSRuntimeException, match="the disk is full"):
            for number in range(10_000):
                producer.send(queue, f"{number} {BODY}")
                confirmed.append(number)
        full.wait_for("store.full")
        taken = take(context, 50)
    full.kill(1)
    with ConnectionFactory(full.url(2)).create_context() as context:  # it starts though the disk is full
        taken += take(context, len(confirmed) - 50)
        full.wait_for("store.has_room")
        context.create_producer().send(context.create_queue("q"), f"{len(confirmed)} again")
        assert take(context, 1) == [len(confirmed)]
    assert taken == confirmed


@pytest.mark.slow
def test_blocked_producers_continue_when_there_is_room_and_no_message_is_lost(disk: Callable[[str], Disk]) -> None:
    """Three times as much as the disk holds, in each of two lives."""
    full = disk("block")
    total = 0
    for life in (1, 2):
        url = full.url(life)
        count = 6_000
        failed: list[BaseException] = []

        def produce(first: int = total, url: str = url, count: int = count, failed: list[Any] = failed) -> None:
            try:
                with ConnectionFactory(url).create_context() as context:
                    queue, producer = context.create_queue("q"), context.create_producer()
                    for number in range(first, first + count):
                        producer.send(queue, f"{number} {BODY}")
            except BaseException as error:
                failed.append(error)

        producing = threading.Thread(target=produce)
        producing.start()
        full.wait_for("store.full", life)
        with ConnectionFactory(url).create_context() as context:
            assert take(context, count) == list(range(total, total + count))
        producing.join()
        assert not failed, failed
        full.wait_for("store.has_room", life)
        total += count
        full.kill(life)
