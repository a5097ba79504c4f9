"""A disk that is really full: a small file system of its own, for who may mount one."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from sievemq import ConnectionFactory, JMSContext, JMSRuntimeException

from .kill import COMMAND
from .test_salvage import run

#: The reserve takes 16 MiB of it.
DISK = "64m"
BODY = "x" * 20_000
PATIENCE = "?reconnect=60000&connect_timeout=60000"

MOUNT = {"tmpfs": f'mount -t tmpfs -o size={DISK} none "$1"', "ext4": 'mount -o loop "$1.image" "$1"'}

SCRIPT = """
{mount} || exit 77
shift
for life in 1 2; do
    "$@" &
    echo "{{\\"event\\": \\"pid\\", \\"pid\\": $!}}"
    wait $!
    echo "{{\\"event\\": \\"ended\\", \\"code\\": $?}}"
done
"""


def may_mount(folder: Path, kind: str) -> bool:
    """True if this process may have such mounts of its own."""
    if shutil.which("unshare") is None:
        return False
    if kind == "ext4":
        if shutil.which("mkfs.ext4") is None:
            return False
        image = f"{folder}.image"
        with Path(image).open("wb") as file:
            file.truncate(int(DISK[:-1]) * 1024 * 1024)
        subprocess.run(["mkfs.ext4", "-q", "-F", image], check=True)
    command = ["unshare", "--mount", "sh", "-c", MOUNT[kind], "sh", str(folder)]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


class Disk:
    """A broker on a file system that ends with it, started again once it has ended.

    Args:
        folder: where it is mounted.
        policy: what becomes of PERSISTENT sends.
        kind: of file system.
    """

    def __init__(self, folder: Path, policy: str, kind: str) -> None:
        environ = {name: value for name, value in os.environ.items() if not name.startswith("SIEVEMQ_")}
        broker = [
            *COMMAND, "broker", "--port", "0", "--http-port", "0", "--data-dir", f"{folder}/data",
            "--on-full-disk", policy, "--json-logs",
        ]  # fmt: skip
        self._folder = folder
        self.process = subprocess.Popen(
            ["unshare", "--mount", "sh", "-c", SCRIPT.format(mount=MOUNT[kind]), "sh", str(folder), *broker],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environ,
        )  # fmt: skip
        self._log: list[dict[str, Any]] = []
        self._more = threading.Condition()
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def inside(self, life: int) -> Path:
        """The file system, which is mounted for the broker alone."""
        return Path(f"/proc/{self.wait_for('pid', life)['pid']}/root{self._folder}")

    def fill(self, life: int) -> Path:
        """Another program takes all that is free; its file."""
        path = self.inside(life) / "other"
        with path.open("wb", buffering=0) as file, contextlib.suppress(OSError):
            for size in (1 << 20, 1 << 12, 1):
                with contextlib.suppress(OSError):
                    while file.write(bytes(size)):
                        pass
        return path

    def ready(self, life: int) -> tuple[int, dict[str, Any]]:
        """What /readyz answers."""
        url = str(self.wait_for("broker.ready", life)["http_url"]) + "/readyz"
        try:
            with urllib.request.urlopen(url, timeout=60) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as error:
            return error.code, json.load(error)

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
def disk(tmp_path: Path) -> Iterator[Callable[..., Disk]]:
    made: list[Disk] = []

    def make(policy: str, kind: str = "tmpfs") -> Disk:
        folder = tmp_path / "disk"
        folder.mkdir()
        if not may_mount(folder, kind):
            pytest.skip(f"needs the right to mount a file system ({kind})")
        made.append(Disk(folder, policy, kind))
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
        with pytest.raises(JMSRuntimeException, match="is full"):
            for number in range(10_000):
                producer.send(queue, f"{number} {BODY}")
                confirmed.append(number)
        full.wait_for("store.full")
        taken = take(context, 50)
    full.kill(1)
    with ConnectionFactory(full.url(2)).create_context() as context:
        taken += take(context, len(confirmed) - 50)
        while "warnings" in full.ready(2)[1]:
            pass
        context.create_producer().send(context.create_queue("q"), f"{len(confirmed)} again")
        assert take(context, 1) == [len(confirmed)]
    assert taken == confirmed


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["tmpfs", "ext4"])
def test_a_backup_does_no_harm_on_a_full_disk(disk: Callable[..., Disk], tmp_path: Path, kind: str) -> None:
    full = disk("fail", kind)

    def backup(to: Path) -> tuple[int, str]:
        done = subprocess.run(
            ["nsenter", "--mount", "--target", str(full.wait_for("pid", 1)["pid"]), *COMMAND,
             "store", "backup", str(tmp_path / "disk" / "data"), str(to)],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        return done.returncode, done.stdout + done.stderr

    with ConnectionFactory(full.url(1)).create_context() as context:
        queue, producer = context.create_queue("q"), context.create_producer()
        for number in range(500):
            producer.send(queue, f"{number} {BODY}")
        code, said = backup(tmp_path / "disk" / "backup")
        assert (code, "so the backup was given up" in said) == (1, True), said
        assert not list(full.inside(1).glob("backup*"))
        count = 500
        with pytest.raises(JMSRuntimeException, match="is full"):
            for count in range(500, 10_000):
                producer.send(queue, f"{count} {BODY}")
        code, said = backup(tmp_path / "elsewhere")
        assert (code, f"{count} messages" in said) == (0, True), said
        assert take(context, count) == list(range(count))
        while "warnings" in full.ready(1)[1]:
            pass
        context.create_producer().send(context.create_queue("q"), f"{count} again")
        assert take(context, 1) == [count]
    assert run("check", tmp_path / "elsewhere").exit_code == 0


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


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["tmpfs", "ext4"])
@pytest.mark.parametrize(("size", "batch"), [(1_000, 1_000), (200_000, 40), (9_000_000, 1)])
def test_a_broker_works_on_a_full_disk_and_starts_on_it(
    disk: Callable[..., Disk], kind: str, size: int, batch: int
) -> None:
    """Transactions of several MB, after which another program takes what is left; a kill; a start with no byte free."""
    full = disk("fail", kind)
    body = "x" * size
    confirmed: list[int] = []
    with ConnectionFactory(full.url(1)).create_context(JMSContext.SESSION_TRANSACTED) as context:
        queue, producer = context.create_queue("q"), context.create_producer()
        with pytest.raises(JMSRuntimeException, match="is full"):
            while len(confirmed) * size < 200_000_000:
                batch_of = range(len(confirmed), len(confirmed) + batch)
                for number in batch_of:
                    producer.send(queue, f"{number} {body}")
                context.commit()
                confirmed += batch_of
    assert confirmed
    full.fill(1)
    with ConnectionFactory(full.url(1)).create_context() as context:
        taken = take(context, len(confirmed) // 2)
        context.create_producer().set_delivery_mode(1).send(context.create_queue("other"), "0 not kept")
        assert context.create_consumer(context.create_queue("other")).receive(60_000) is not None
    full.fill(1)
    full.kill(1)
    with ConnectionFactory(full.url(2)).create_context() as context:
        full.fill(2)
        with pytest.raises(JMSRuntimeException, match=r"takes no PERSISTENT messages now: .* is full"):
            for _ in range(20):
                context.create_producer().send(context.create_queue("q2"), body * (4_000_000 // size + 1))
        taken += take(context, len(confirmed) - len(taken))
        code, answer = full.ready(2)
        assert code == 200, answer
        (full.inside(2) / "other").unlink()
    assert taken == confirmed
    full.kill(2, signal.SIGTERM)
    assert full.wait_for("ended", 2)["code"] == 0


@pytest.mark.slow
@pytest.mark.parametrize("ends", [True, False])
def test_a_broker_that_can_write_nothing_says_so_and_ends_or_goes_on(disk: Callable[..., Disk], ends: bool) -> None:
    """Another program has deleted the reserve and filled the disk."""
    full = disk("fail")
    with ConnectionFactory(full.url(1)).create_context() as context:
        queue, producer = context.create_queue("q"), context.create_producer()
        producer.send(queue, f"0 {BODY}")
        (full.inside(1) / "data/reserve").unlink()
        other = full.fill(1)
        producer.set_async(Silent()).send(queue, "1 " + "x" * 1_000_000)
        full.wait_for("store.stuck")
        code, answer = full.ready(1)
        assert (code, answer["status"]) == (503, "not ready")
        assert "the disk is full" in answer["reasons"][0]
        if ends:
            full.kill(1, signal.SIGTERM)
            assert full.wait_for("ended")["code"] == 1
            assert full.said("store.unwritten")
        else:
            other.unlink()
            assert take(context, 2) == [0, 1]
            assert full.ready(1)[0] == 200


class Silent:
    """A completion listener."""

    def on_completion(self, message: object) -> None:
        pass

    def on_exception(self, message: object, error: object) -> None:
        pass
