"""The processes of a macro run: a broker started by its own command, and one process per part.

A part is ``role.py`` with a job as JSON. It says READY, waits for GO where it is the one that begins, and ends with
RESULT and JSON. All clocks are CLOCK_MONOTONIC, one for all processes.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from benchmarks.machine import cpu_seconds, processes_of, resident_mb
from benchmarks.workloads import Job, correlated, plan

ROLE = Path(__file__).with_name("role.py")
RUN_LIMIT_S = 120
#: How long a broker may take to start; RabbitMQ has taken a minute where six other processes wanted the same processor.
START_LIMIT_S = 240


def free_port() -> int:
    """A port of the loopback that nobody listens on at the moment."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


class Server:
    """A broker in a process of its own, on the loopback, ready when the constructor returns.

    Args:
        probe: bytes that it answers; b"" if it begins by itself, None if it is ready once it accepts connections.
        folder: the process's working directory.
    """

    def __init__(
        self,
        command: Sequence[str],
        port: int,
        url: str,
        *,
        probe: bytes | None = None,
        environment: Mapping[str, str] | None = None,
        folder: Path | None = None,
    ) -> None:
        self.port, self.url = port, url
        self._probe = probe
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - closed by stop
        start = time.monotonic()
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=self._log,
            env={**os.environ, **(environment or {})},
            cwd=folder,
        )
        while not self._answers():
            if self.process.poll() is not None or time.monotonic() - start > START_LIMIT_S:
                self._log.seek(0)
                text = self._log.read().decode(errors="replace")[-2000:]
                self.stop()
                raise RuntimeError(f"the broker did not start: {text}")
            time.sleep(0.002)
        self.start_ms = round((time.monotonic() - start) * 1e3, 1)

    def _answers(self) -> bool:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), timeout=1) as connection:
            if self._probe is None:
                return True
            connection.sendall(self._probe)
            return bool(connection.recv(16))
        return False

    def cpu_s(self) -> float:
        """Processor seconds so far, of its descendants as well."""
        return sum(map(cpu_seconds, processes_of(self.process.pid)))

    def rss_mb(self) -> float:
        """Resident megabytes, of its descendants as well."""
        return round(sum(map(resident_mb, processes_of(self.process.pid))), 1)

    def stop(self) -> None:
        """Ask it to end, as an operator would, and wait; then end what it has left behind."""
        started = processes_of(self.process.pid)[1:]
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        for pid in started:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._log.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()


class Broker(Server):
    """``sievemq broker``, in memory.

    Args:
        options: further ones of its command line.
        url: for its clients, with the place of the port.
        python: the interpreter beside which its command is installed.
    """

    def __init__(
        self, *options: str, url: str = "sievemq://127.0.0.1:{port}", python: str | Path = sys.executable
    ) -> None:
        port = free_port()
        command = [str(Path(python).with_name("sievemq")), "broker", "--host", "127.0.0.1", "--port", str(port)]
        super().__init__([*command, "--http-port", "0", *options], port, url.format(port=port))


def role_command(job: Job) -> list[str]:
    """How a part starts that is played by a driver under this Python."""
    return [sys.executable, str(ROLE), json.dumps(job)]


class Role:
    """One part of a run, in its own process."""

    def __init__(self, job: Job, command: Sequence[str]) -> None:
        self.job = job
        self.result: dict[str, Any] = {}
        self._ready, self._done = threading.Event(), threading.Event()
        self._errors: list[str] = []
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._readers = [threading.Thread(target=read, daemon=True) for read in (self._read, self._read_errors)]
        for reader in self._readers:
            reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith("READY"):
                self._ready.set()
            elif line.startswith("RESULT "):
                try:
                    self.result = json.loads(line.removeprefix("RESULT "))
                except ValueError as error:
                    self._errors.append(f"{error} in a result of {len(line)} characters that ends with {line[-40:]!r}")
                    break
        self._ready.set()
        self._done.set()

    def _read_errors(self) -> None:
        assert self.process.stderr is not None
        self._errors.extend(self.process.stderr)

    def wait_ready(self) -> None:
        if not self._ready.wait(60) or self._done.is_set():
            raise RuntimeError(f"{self.job['role']} did not get ready: {self.errors()}")

    def go(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("GO\n")
        self.process.stdin.flush()

    def wait_result(self, seconds: float) -> dict[str, Any]:
        self._done.wait(seconds)
        if not self.result:
            raise RuntimeError(f"{self.job['role']} gave no result within {seconds:.0f} s: {self.errors()}")
        return self.result

    def errors(self) -> str:
        return "".join(self._errors)[-1500:] or "no message"

    def stop(self) -> None:
        """End it, and close what led to it."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        for reader in self._readers:
            reader.join()
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
            if stream is not None:
                with contextlib.suppress(BrokenPipeError):
                    stream.close()


def run_workload(
    broker: Server,
    workload: str,
    n: int,
    size: int,
    api: str,
    run: str,
    command: Callable[[Job], Sequence[str]] = role_command,
) -> dict[str, Any]:
    """One run: start every part, give the sign, collect and check what they say.

    Args:
        api: the driver: ``blocking`` or ``aio``, or the name of a peer.
        run: text that makes the run's destinations its own.

    Raises:
        RuntimeError: a part failed, or what was received is not what was sent.
    """
    common = {"url": broker.url, "api": api}
    jobs = [{**job, **common} for job in plan(workload, n, size, run)]
    deadline = time.monotonic() + RUN_LIMIT_S
    roles: list[Role] = []
    try:
        if workload == "W6":  # first fill, then ask
            filler = Role(jobs[0], command(jobs[0]))
            roles.append(filler)
            filler.wait_ready()
            filler.go()
            filler.wait_result(deadline - time.monotonic())
            jobs = jobs[1:]
        roles.extend(Role(job, command(job)) for job in jobs[:-1])
        for role in roles[1 if workload == "W6" else 0 :]:
            role.wait_ready()
        roles.append(Role(jobs[-1], command(jobs[-1])))  # last: what it sends to warm up has a place to go
        roles[-1].wait_ready()
        first, responders = roles[-1], [role for role in roles if role.job["role"] == "respond"]
        cpu0 = broker.cpu_s()
        responding = sum(cpu_seconds(role.process.pid) for role in responders)
        first.go()
        for role in roles:
            if role.job["role"] != "respond":
                role.wait_result(max(1.0, deadline - time.monotonic()))
        cpu = broker.cpu_s() - cpu0
        responding = sum(cpu_seconds(role.process.pid) for role in responders) - responding
    finally:
        for role in roles:
            role.stop()
    if workload in ("W2", "W6"):
        row = _row_of_calls(workload, n, first.result)
    else:
        row = _row_of_flow(n, first.result, [role for role in roles if role.job["role"] == "consume"])
    row["cpu_s"]["broker"] = round(cpu, 2)
    if responders:
        row["cpu_s"]["responder"] = round(responding, 2)
    row["us_per_message"] = {part: round(used / row["msgs"] * 1e6, 2) for part, used in row["cpu_s"].items()}
    row["broker_rss_mb"] = broker.rss_mb()
    return row


def _row_of_calls(workload: str, n: int, caller: dict[str, Any]) -> dict[str, Any]:
    expected = n if workload == "W2" else len(correlated(n))
    if caller["received"] != expected or caller.get("mismatch"):
        raise RuntimeError(f"{workload}: {caller['received']} of {expected} received, {caller.get('mismatch')} wrong")
    seconds = (caller["t_end"] - caller["t_start"]) / 1e9
    return {
        "msgs": expected,
        "seconds": round(seconds, 3),
        "msgs_per_s": round(expected / seconds),
        "p50_us": caller["p50_us"],
        "p99_us": caller["p99_us"],
        "cpu_s": {"caller": caller["cpu_s"]},
    }


def _row_of_flow(n: int, producer: dict[str, Any], consumers: list[Role]) -> dict[str, Any]:
    needed = sum(sub["expected"] for role in consumers for sub in role.job["subs"])
    got = sum(role.result["received"] for role in consumers)
    total = sum(role.result["sum"] for role in consumers)
    if got != needed or total != needed // n * (n * (n - 1) // 2):
        raise RuntimeError(f"{got} of {needed} messages received, their numbers sum up to {total}")
    seconds = (max(role.result["t_end"] for role in consumers) - producer["t_start"]) / 1e9
    return {
        "msgs": got,
        "seconds": round(seconds, 3),
        "msgs_per_s": round(got / seconds),
        "send_per_s": round(n * 1e9 / (producer["t_end"] - producer["t_start"])),
        "cpu_s": {
            "producer": producer["cpu_s"],
            "consumers": round(sum(role.result["cpu_s"] for role in consumers), 2),
        },
    }
