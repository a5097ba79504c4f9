"""The image, built and run for real: who it runs as, what it needs, how it starts, serves and ends.

Needs a Docker engine that DOCKER_HOST or the default socket leads to, and a Python base image that it has already:
SIEVEMQ_TEST_BASE_IMAGE names one. The builds and containers use the host's network, so an engine without a bridge will
do; they listen on the loopback only.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import threading
import time
from ast import literal_eval
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
from tests.ports import free_port

from sievemq import ConnectionFactory, JMSRuntimeException, JMSSecurityRuntimeException

pytestmark = [pytest.mark.docker, pytest.mark.slow, pytest.mark.timeout(900)]  # the first one builds the image

ROOT = Path(__file__).parents[3]
IMAGE = "sievemq:test"
BASES = ("python:3.13-slim", "python:3.12-slim", "python:3.11-slim", "local/python:3.11")
DEADLINE = 60.0


def docker(*arguments: str, check: bool = True, timeout: float = DEADLINE) -> str:
    done = subprocess.run(["docker", *arguments], capture_output=True, text=True, timeout=timeout, check=False)
    assert not check or done.returncode == 0, f"docker {' '.join(arguments)}: {done.stderr[-2000:]}"
    return done.stdout.strip()


def pip_arguments() -> list[str]:
    """Build arguments by which a build of the image takes packages from where pip takes them on this machine: pip's own
    settings here, those for which the Dockerfile has an argument. A folder of this machine a build cannot see."""
    known = (ROOT / "docker/Dockerfile").read_text(encoding="utf-8")
    listed = subprocess.run([sys.executable, "-m", "pip", "config", "list"], capture_output=True, text=True, check=True)
    arguments = []
    for line in listed.stdout.splitlines():
        setting, _, value = line.partition("=")
        name = "PIP_" + setting.rpartition(".")[2].upper().replace("-", "_")
        if f"ARG {name}" in known and "file:" not in value:
            arguments += ["--build-arg", f"{name}={literal_eval(value)}"]
    return arguments


def base_image() -> str:
    """A Python image that the engine has; the test is skipped without one."""
    if shutil.which("docker") is None:
        pytest.skip("no docker command here")
    answer = subprocess.run(["docker", "info"], capture_output=True, text=True, timeout=DEADLINE, check=False)
    if answer.returncode != 0:
        pytest.skip("no Docker engine answers; DOCKER_HOST says where one is")
    named = os.environ.get("SIEVEMQ_TEST_BASE_IMAGE")
    for base in (named,) if named else BASES:
        found = subprocess.run(["docker", "image", "inspect", base], capture_output=True, timeout=DEADLINE, check=False)
        if found.returncode == 0:
            return base
    pytest.skip(f"the engine has no Python base image: none of {named or ', '.join(BASES)}")


@pytest.fixture(scope="session")
def image() -> str:
    """The image, built from this tree."""
    options = ["--network", "host", "--build-arg", f"PYTHON_IMAGE={base_image()}", "--build-arg", "COMPILE_LEVEL=0"]
    options += pip_arguments()
    docker("build", *options, "-f", str(ROOT / "docker/Dockerfile"), "-t", IMAGE, str(ROOT), timeout=800)
    return IMAGE


class Container:
    """A running broker, locked down as far as an engine can."""

    def __init__(self, image: str, *options: str, command: tuple[str, ...] = ()) -> None:
        self.port, self.http_port = free_port(), free_port()
        begin = time.monotonic()
        self.id = docker(
            "run", "--detach", "--network", "host", "--read-only", "--cap-drop", "ALL",
            "--security-opt", "no-new-privileges", "--health-interval", "1s",
            "--env", "SIEVEMQ_HOST=127.0.0.1", "--env", f"SIEVEMQ_PORT={self.port}",
            "--env", f"SIEVEMQ_HTTP_PORT={self.http_port}", *options, image, *command,
        )  # fmt: skip
        self._follow = subprocess.Popen(
            ["docker", "logs", "--follow", self.id], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        self._timer = threading.Timer(DEADLINE, self._follow.kill)
        self._timer.start()
        self.events: list[dict[str, Any]] = []
        try:
            self.until("broker.ready")
        except BaseException:
            self.remove()
            raise
        self.ready_after = time.monotonic() - begin

    @property
    def url(self) -> str:
        return f"sievemq://127.0.0.1:{self.port}"

    def until(self, event: str) -> None:
        """Read the log up to an event."""
        assert self._follow.stdout is not None
        for line in self._follow.stdout:
            assert line.startswith("{"), f"not a line of JSON: {line}"
            self.events.append(json.loads(line))
            if self.events[-1]["event"] == event:
                return
        pytest.fail(f"the container's log ended without {event}: {self.events}")

    def execute(self, *command: str) -> str:
        return docker("exec", self.id, *command)

    def inspect(self) -> dict[str, Any]:
        return dict(json.loads(docker("inspect", self.id))[0])

    def remove(self) -> None:
        self._timer.cancel()
        docker("rm", "--force", self.id, check=False)
        self._follow.kill()
        self._follow.wait()
        assert self._follow.stdout is not None
        self._follow.stdout.close()


@pytest.fixture
def container(image: str) -> Iterator[Container]:
    running = Container(image)
    yield running
    running.remove()


def test_metadata(image: str) -> None:
    facts = json.loads(docker("image", "inspect", image))[0]["Config"]
    assert facts["Entrypoint"] == ["sievemq"]
    assert facts["Cmd"] == ["broker"]
    assert facts["User"] == "10001:10001"
    assert facts["StopSignal"] == "SIGTERM"
    assert set(facts["ExposedPorts"]) == {"7672/tcp", "7680/tcp"}
    assert facts["Healthcheck"]["Test"] == ["CMD", "sievemq", "healthcheck"]
    labels = facts["Labels"]
    assert labels["org.opencontainers.image.version"] == metadata.version("sievemq")
    assert labels["org.opencontainers.image.licenses"] == "Apache-2.0"
    environ = dict(entry.split("=", 1) for entry in facts["Env"])
    assert (environ["SIEVEMQ_HOST"], environ["SIEVEMQ_INSECURE"]) == ("0.0.0.0", "1")
    assert not [name for name in environ if name.startswith("PIP_") and "INDEX" in name]


def test_the_code_in_the_image_is_compiled_and_says_so(image: str, container: Container) -> None:
    facts = json.loads(docker("run", "--rm", "--network", "none", image, "version", "--json"))
    assert facts["compiled"] is True
    assert container.events[-1]["compiled"] is True


def test_image_has_no_compiler_no_sources_and_compiled_bytecode(image: str) -> None:
    program = (
        "import importlib.util, os, shutil, sys\n"
        "from sievemq_broker.server import process\n"
        "assert not any(map(shutil.which, ('gcc', 'cc', 'make', 'git'))), 'a compiler'\n"
        "assert not os.path.exists('/src'), 'the build context'\n"
        "assert os.path.exists(importlib.util.cache_from_source(process.__file__)), 'no bytecode'\n"
        "assert sys.flags.dont_write_bytecode\n"
        "print(os.getuid(), os.getgid())"
    )
    out = docker("run", "--rm", "--network", "none", "--entrypoint", "python", image, "-c", program)
    assert out == "10001 10001"


def test_the_image_runs_unprivileged_on_a_read_only_root(container: Container) -> None:
    with ConnectionFactory(container.url).create_context() as context:
        queue = context.create_queue("orders")
        consumer = context.create_consumer(queue, "region = 'EU'")
        producer = context.create_producer()
        for number in range(20):
            producer.set_property("region", "EU" if number % 2 else "US").send(queue, str(number))
        assert [consumer.receive_body(str, 60_000) for _ in range(10)] == [str(n) for n in range(1, 20, 2)]
        assert consumer.receive_body(str, 1) is None
    assert container.execute("id", "-u") == "10001"
    status = container.execute("cat", "/proc/1/status")
    assert "Uid:\t10001\t10001\t10001\t10001" in status
    assert "CapEff:\t0000000000000000" in status
    assert container.inspect()["HostConfig"]["ReadonlyRootfs"]


def test_healthcheck_inside_and_the_engines_view_of_it(container: Container) -> None:
    assert container.execute("sievemq", "healthcheck") == "ready"
    begin = "1970-01-01T00:00:00Z"
    arguments = ["events", "--since", begin, "--filter", f"container={container.id}", "--filter", "event=health_status"]
    with subprocess.Popen(["docker", *arguments], stdout=subprocess.PIPE, text=True) as events:
        timer = threading.Timer(DEADLINE, events.kill)
        timer.start()
        assert events.stdout is not None
        assert "health_status: healthy" in events.stdout.readline()
        events.kill()
        timer.cancel()
    assert container.inspect()["State"]["Health"]["Status"] == "healthy"


@pytest.mark.parametrize(
    ("options", "more"),
    [
        ((), ()),
        (("--user", "1234:0"), ()),
        (("--env", "SIEVEMQ_HTTP=false"), ()),
        ((), ("--no-http",)),
        (("--init",), ()),
    ],
)
def test_healthy_on_the_ports_that_the_command_names(
    image: str, options: tuple[str, ...], more: tuple[str, ...]
) -> None:
    """The environment names other ports, on which nothing listens."""
    port, http_port = free_port(), free_port()
    running = Container(image, *options, command=("broker", "--port", str(port), "--http-port", str(http_port), *more))
    try:
        assert running.execute("sievemq", "healthcheck") == "ready"
        ConnectionFactory(f"sievemq://127.0.0.1:{port}").create_context().close()
    finally:
        running.remove()


def test_stop_is_ordered_and_exits_0(container: Container) -> None:
    context = ConnectionFactory(container.url).create_context()
    consumer = context.create_consumer(context.create_queue("orders"))
    docker("stop", "--time", "20", container.id)  # after which the engine would kill it: code 137
    state = container.inspect()["State"]
    assert (state["ExitCode"], state["OOMKilled"]) == (0, False)
    container.until("broker.stopped")
    names = [event["event"] for event in container.events]
    assert names[-3:] == ["signal.received", "broker.stopping", "broker.stopped"]
    with pytest.raises(JMSRuntimeException):
        consumer.receive(60_000)
        context.create_producer().send(context.create_queue("orders"), "x")
    with contextlib.suppress(JMSRuntimeException):
        context.close()


def test_users_from_a_secret_file(image: str, tmp_path: Path) -> None:
    hashed = docker("run", "--rm", "--interactive", image, "user", "hash", check=False)
    assert hashed == ""  # nothing on its standard input: nothing is hashed
    secret = tmp_path / "users"
    secret.write_text("anna:rosebud\n")
    secret.chmod(0o444)
    tmp_path.chmod(0o755)
    running = Container(
        image, "--volume", f"{secret}:/run/secrets/users:ro", "--env", "SIEVEMQ_USERS_FILE=/run/secrets/users"
    )
    try:
        with pytest.raises(JMSSecurityRuntimeException):
            ConnectionFactory(running.url).create_context()
        ConnectionFactory(running.url).create_context("anna", "rosebud").close()
        assert running.execute("sievemq", "healthcheck") == "ready"
    finally:
        running.remove()


def test_an_open_image_logs_a_warning(container: Container, image: str) -> None:
    names = [event["event"] for event in container.events]
    assert "broker.insecure" not in names  # on the loopback there is nothing to warn of
    command = [
        "docker",
        "run",
        "--rm",
        "--network",
        "host",
        "--env",
        "SIEVEMQ_INSECURE=0",
        image,
        "broker",
        "--port",
        "0",
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE, check=False)
    assert done.returncode == 2
    assert "--insecure" in done.stderr


def test_not_large(container: Container, image: str) -> None:
    whole = int(json.loads(docker("image", "inspect", image))[0]["Size"])
    own = int(container.execute("du", "-sk", "/opt/sievemq").split()[0])
    print(f"image {whole / 1e6:.0f} MB, of which ours {own / 1024:.0f} MiB; ready after {container.ready_after:.2f} s")
    assert own < 80 * 1024
