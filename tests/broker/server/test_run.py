"""The process of `sievemq broker`: its start, its log, its end."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import queue
import shlex
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from sievemq_core.compiled import COMPILED
from sievemq_core.errors import ErrorCode, ProtocolError
from sievemq_core.wire.commands import Command
from sievemq_core.wire.connection import State

from .wire_client import DEADLINE, WireClient

COMMAND = [sys.executable, "-c", "from sievemq.cli import main; main()"]


class Process:
    """A broker process; its log lines as they come."""

    def __init__(self, *options: str, **environ: str) -> None:
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("SIEVEMQ_")}
        self.popen = subprocess.Popen(
            [*COMMAND, "broker", "--port", "0", "--http-port", "0", *options],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=inherited | environ,
        )
        self.lines: list[str] = []
        self._queue: queue.Queue[str | None] = queue.Queue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.popen.stdout is not None
        for line in self.popen.stdout:
            self._queue.put(line)
        self._queue.put(None)

    def event(self, name: str) -> dict[str, Any]:
        """The next log line of this event."""
        deadline = time.monotonic() + 2 * DEADLINE
        while True:
            line = self._queue.get(timeout=max(0.01, deadline - time.monotonic()))
            assert line is not None, f"the broker ended without {name}: {self.lines}"
            self.lines.append(line)
            with contextlib.suppress(ValueError):
                record = json.loads(line)
                if record["event"] == name:
                    return dict(record)

    def ready(self) -> tuple[int, str]:
        record = self.event("broker.ready")
        port = urlsplit(record["url"]).port
        assert port is not None
        return port, record["http_url"]

    def signal(self, number: int = signal.SIGTERM) -> None:
        self.popen.send_signal(number)

    def end(self) -> int:
        """Its exit code, with the rest of its log read."""
        code = self.popen.wait(2 * DEADLINE)
        self._reader.join(DEADLINE)
        while (line := self._queue.get(timeout=DEADLINE)) is not None:
            self.lines.append(line)
        return code

    def events(self) -> list[str]:
        return [json.loads(line)["event"] for line in self.lines if line.startswith("{")]

    def close(self) -> None:
        if self.popen.poll() is None:
            self.popen.terminate()  # in order, so that `make coverage` has its figures
            try:
                self.popen.wait(5)
            except subprocess.TimeoutExpired:
                self.popen.kill()
                self.popen.wait()
        self._reader.join(DEADLINE)
        assert self.popen.stdout is not None
        self.popen.stdout.close()


@pytest.fixture
def processes() -> Iterator[list[Process]]:
    started: list[Process] = []
    yield started
    for process in started:
        process.close()


def get(url: str, path: str) -> tuple[int, Any]:
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=DEADLINE)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())
    finally:
        connection.close()


def test_readiness_line_names_both_urls_and_they_answer(processes: list[Process]) -> None:
    processes.append(process := Process())
    record = process.event("broker.ready")
    assert record["compiled"] is COMPILED
    port, http_url = urlsplit(record["url"]).port, record["http_url"]
    assert get(http_url, "/readyz") == (200, {"status": "ready", "role": "owner", "reasons": []})
    assert port is not None
    with WireClient(port) as client:
        assert client.welcome[0] == Command.WELCOME
    process.signal()
    assert process.end() == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signal_ends_in_order_with_code_0(processes: list[Process], number: int) -> None:
    processes.append(process := Process())
    process.ready()
    process.signal(number)
    assert process.end() == 0
    assert process.events() == [
        "broker.ready",
        "broker.in_memory",
        "signal.received",
        "broker.stopping",
        "broker.stopped",
    ]


def test_sigterm_under_load_shuts_down_and_notifies_every_client(processes: list[Process]) -> None:
    """Producers keep sending while the broker goes: each is warned and gets a last word."""
    processes.append(process := Process("--drain-seconds", "0.5"))
    port, _ = process.ready()
    heard: list[list[tuple[Any, ...]]] = []

    def produce(number: int) -> None:
        commands: list[tuple[Any, ...]] = []
        heard.append(commands)
        with WireClient(port) as client:
            client.open_session()
            started.release()
            # The end of the stream (an AssertionError of read) may come while a confirm is waited for.
            with contextlib.suppress(OSError, ProtocolError, AssertionError):
                while client.wire.state is State.OPEN:
                    for _ in range(50):
                        client.send(f"queue:q{number}", b"x" * 200)
                    while not any(command[0] == Command.CONFIRM for command in client.waiting):
                        client.read()
                    commands += client.waiting
                    client.waiting.clear()
            with contextlib.suppress(OSError, AssertionError):
                while True:
                    client.read()
            commands += client.waiting

    started = threading.Semaphore(0)
    threads = [threading.Thread(target=produce, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for _ in threads:
        assert started.acquire(timeout=DEADLINE)
    process.signal()
    assert process.end() == 0
    for thread in threads:
        thread.join(DEADLINE)
    for commands in heard:
        assert Command.SHUTDOWN in [command[0] for command in commands]
        assert commands[-1][:3] == (Command.ERROR, 0, ErrorCode.SHUTTING_DOWN)
    assert len(heard) == 4
    assert process.events()[-1] == "broker.stopped"
    assert not any("exception" in line for line in process.lines)


def test_while_draining_readiness_fails_and_new_clients_are_refused(processes: list[Process]) -> None:
    processes.append(process := Process("--drain-seconds", "30"))
    port, http_url = process.ready()
    assert get(http_url, "/readyz")[0] == 200
    with WireClient(port) as client:
        client.open_session().open_consumer("queue:q", credit=5).send("queue:q")
        delivery = client.until(Command.DELIVER)  # unsettled work: the broker waits for it
        process.signal()
        grace = client.until(Command.SHUTDOWN)
        assert grace[1] == 30_000
        assert get(http_url, "/readyz") == (503, {"status": "not ready", "role": "owner", "reasons": ["draining"]})
        assert get(http_url, "/livez")[0] == 200
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port), DEADLINE)
        assert client.request(Command.PING)[0] == Command.OK
        client.say(Command.ACKNOWLEDGE, 1, delivery[2], 0)  # settled: now it may go
        assert client.until(Command.ERROR)[1:3] == (0, ErrorCode.SHUTTING_DOWN)
        assert client.at_end()
    assert process.end() == 0


def test_an_open_transaction_may_be_committed_while_draining(processes: list[Process]) -> None:
    processes.append(process := Process("--drain-seconds", "30"))
    port, _ = process.ready()
    with WireClient(port) as client, WireClient(port) as reader:
        reader.open_session().open_consumer("queue:q", credit=1)
        client.open_session(mode=0).send("queue:q").confirmed()
        process.signal()
        client.until(Command.SHUTDOWN)
        assert client.request(Command.PING)[0] == Command.OK  # staged, so it is waited for
        assert client.request(Command.COMMIT, 1, ())[0] == Command.OK
        tag = reader.until(Command.DELIVER)[2]
        reader.say(Command.ACKNOWLEDGE, 1, tag, 0)
        assert client.until(Command.ERROR)[2] == ErrorCode.SHUTTING_DOWN
    assert process.end() == 0


def test_shutdown_waits_for_no_client_beyond_the_deadline(processes: list[Process]) -> None:
    """One has an open transaction, one holds a message, one does not even read."""
    processes.append(process := Process("--drain-seconds", "1"))
    port, _ = process.ready()
    with WireClient(port) as staging, WireClient(port) as holding, WireClient(port) as deaf:
        staging.open_session(mode=0).send("queue:elsewhere").confirmed()
        for client in (holding, deaf):
            client.open_session().open_consumer("queue:q", credit=5).send("queue:q")
        holding.until(Command.DELIVER)
        process.signal()
        for client in (staging, holding):
            assert client.until(Command.ERROR)[2] == ErrorCode.SHUTTING_DOWN
        assert process.end() == 0


def test_second_signal_ends_the_waiting(processes: list[Process]) -> None:
    processes.append(process := Process("--drain-seconds", "60"))
    port, _ = process.ready()
    with WireClient(port) as client:
        client.open_session().open_consumer("queue:q", credit=5).send("queue:q").until(Command.DELIVER)
        process.signal()
        client.until(Command.SHUTDOWN)
        process.signal()
        assert client.until(Command.ERROR)[2] == ErrorCode.SHUTTING_DOWN
    assert process.end() == 0


@pytest.mark.parametrize(("option", "what"), [("--port", "wire"), ("--http-port", "HTTP")])
def test_port_in_use_is_reported_with_exit_code_1(processes: list[Process], option: str, what: str) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        processes.append(process := Process(option, str(port)))
        assert process.end() == 1
    record = json.loads(process.lines[-1])
    assert record["event"] == "broker.not_started"
    assert f"the {what} port {port} on 127.0.0.1 is in use by another process" in record["reason"]


def test_wrong_settings_are_reported_with_exit_code_2(processes: list[Process]) -> None:
    processes.append(process := Process("--host", "0.0.0.0"))
    assert process.end() == 2
    assert "--insecure" in process.lines[0]
    assert len(process.lines) == 1


def test_an_open_broker_logs_a_warning(processes: list[Process]) -> None:
    processes.append(process := Process("--insecure", SIEVEMQ_HOST="0.0.0.0"))
    process.ready()
    assert process.event("broker.insecure")["level"] == "warning"


def test_files_that_every_user_of_the_machine_can_reach_are_warned_of(
    processes: list[Process], certificates: Path, tmp_path: Path
) -> None:
    users, key, data = tmp_path / "the users", tmp_path / "server.key", tmp_path / "data"
    users.write_text("anna:rosebud\n")
    key.write_bytes((certificates / "server.key").read_bytes())
    data.mkdir()
    named = {
        "SIEVEMQ_USERS_FILE": str(users),
        "SIEVEMQ_TLS_CERT": str(certificates / "server.pem"),
        "SIEVEMQ_TLS_KEY": str(key),
        "SIEVEMQ_DATA_DIR": str(data),
    }
    for path, mode in ((users, 0o644), (key, 0o644), (data, 0o755)):
        path.chmod(mode)
    processes.append(process := Process(**named))
    process.ready()
    for path, mode in ((users, "0644"), (key, "0644"), (data, "0755")):
        record = process.event("file.exposed")
        assert (record["level"], record["path"], record["mode"]) == ("warning", str(path), mode)
        assert record["note"].endswith(f"chmod o-rwx {shlex.quote(str(path))}")
    process.signal()
    process.end()
    for path in (users, key, data):
        path.chmod(path.stat().st_mode & ~0o007)  # what the warning says
    processes.append(process := Process(**named))
    process.ready()
    process.signal()
    process.end()
    assert "file.exposed" not in process.events()


def test_passwords_never_reach_the_log(processes: list[Process], tmp_path: Path) -> None:
    secret = tmp_path / "users"
    secret.write_text("anna:rosebud\n")
    processes.append(process := Process("--log-level", "debug", SIEVEMQ_USERS_FILE=str(secret)))
    port, http_url = process.ready()
    with WireClient(port, user="anna", password="rosebud") as client:
        client.open_session().send("queue:q", b"the body").confirmed()
    with WireClient(port, user="anna", password="wrongpassword") as client:
        assert client.welcome[2] == ErrorCode.AUTHENTICATION
    assert get(http_url, "/api/v1/broker")[0] == 401
    process.signal()
    assert process.end() == 0
    log = "".join(process.lines)
    assert "rosebud" not in log
    assert "wrongpassword" not in log
    assert "the body" not in log


def test_console_lines_on_request(processes: list[Process]) -> None:
    processes.append(process := Process("--console-logs"))
    deadline = time.monotonic() + DEADLINE
    while "broker.ready" not in "".join(process.lines):
        line = process._queue.get(timeout=max(0.01, deadline - time.monotonic()))
        assert line is not None
        process.lines.append(line)
    assert not process.lines[0].startswith("{")
    assert "url=" in process.lines[0]
    process.signal()
    assert process.end() == 0


def test_passwords_in_clear_over_a_network_are_a_warning(processes: list[Process]) -> None:
    processes.append(process := Process(SIEVEMQ_HOST="0.0.0.0", SIEVEMQ_USERS="ann:secret"))
    assert process.event("broker.clear_text")["level"] == "warning"


def test_too_few_files_for_the_connections_are_a_warning(processes: list[Process]) -> None:
    resource = pytest.importorskip("resource")
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    if hard == resource.RLIM_INFINITY or hard > 1_000_000:
        pytest.skip("as many files as connections can be configured")
    processes.append(process := Process(SIEVEMQ_MAX_CONNECTIONS="1000000"))
    assert process.event("broker.few_files")["max_connections"] == 1_000_000


def test_idle_broker_is_small(processes: list[Process], monkeypatch: pytest.MonkeyPatch) -> None:
    status = Path("/proc/self/status")
    if not status.exists():
        pytest.skip("no /proc here to read the size from")
    monkeypatch.delenv("COVERAGE_PROCESS_CONFIG", raising=False)  # `make coverage` adds some megabytes
    processes.append(process := Process())
    _, http_url = process.ready()
    assert get(http_url, "/livez")[0] == 200
    lines = Path(f"/proc/{process.popen.pid}/status").read_text().splitlines()
    resident = next(int(line.split()[1]) for line in lines if line.startswith("VmRSS"))
    assert resident < 60 * 1024, f"{resident} KiB resident"
