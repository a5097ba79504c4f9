"""The test kit runs on the packages of its own extra; what needs others says so."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from sievemq_broker import EmbeddedBroker
from sievemq_broker.users.passwords import hash_password

ROOT = Path(__file__).parents[3]
#: Everything that only other extras install.
ABSENT = (
    "typer", "click", "rich", "starlette", "uvicorn", "wsproto", "h11", "anyio", "prometheus_client", "argon2",
    "scramp", "msgspec", "uvloop",
)  # fmt: skip


def run(program: str) -> str:
    """The output of a program in a process without those packages."""
    absent = f"import sys; sys.modules.update(dict.fromkeys({ABSENT!r}))\n"
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", absent + program],
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_extra_names_pytest_alone() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    (requirement,) = project["optional-dependencies"]["test"]
    assert requirement.startswith("pytest>=")


def test_a_broker_with_users_and_a_data_directory(tmp_path: Path) -> None:
    printed = run(
        "from sievemq import ConnectionFactory, Queue\n"
        "from sievemq_testing import TestBroker\n"
        f"with TestBroker(users={{'anna': 'rosebud'}}, data_dir={str(tmp_path)!r}) as broker:\n"
        "    with ConnectionFactory(broker.url).create_context('anna', 'rosebud') as context:\n"
        "        context.create_producer().send(Queue('orders'), 'x')\n"
        "        print(context.create_consumer(Queue('orders')).receive_body(str, 60_000))\n"
    )
    assert printed == "x\n"


def test_amqp_clients_are_offered_what_works() -> None:
    program = (
        "import socket\n"
        "from sievemq_broker import EmbeddedBroker\n"
        "with EmbeddedBroker(users={'anna': 'rosebud'}) as broker:\n"
        "    with socket.create_connection(('127.0.0.1', broker.port)) as client:\n"
        "        client.sendall(b'AMQP\\x03\\x01\\x00\\x00')\n"
        "        answer = client.recv(8, socket.MSG_WAITALL) + client.recv(1_000)\n"
        "print(b'PLAIN' in answer, b'SCRAM' in answer)\n"
    )
    assert run(program) == "True False\n"


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ("http=True", "HTTP needs starlette, uvicorn, prometheus_client, msgspec"),
        (f"users={{'a': {hash_password('x')!r}}}", "A user with a hashed password needs argon2"),
        (f"users={{'a': {hash_password('x', scram=True)!r}}}", "A user with keys of SCRAM needs scramp"),
    ],
)
def test_what_needs_another_extra_names_it(options: str, what: str) -> None:
    printed = run(
        "from sievemq_broker import EmbeddedBroker\n"
        "try:\n"
        f"    EmbeddedBroker({options})\n"
        "except ImportError as error:\n"
        "    print(error)\n"
    )
    assert printed == f"{what}, which the extra `broker` installs: pip install 'sievemq[broker]'\n"
    EmbeddedBroker(http=True)
