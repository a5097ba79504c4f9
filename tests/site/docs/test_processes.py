"""docs/processes.md: the programs run, and a fork behaves as the page says."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sievemq import ConnectionFactory, Queue
from sievemq_broker import EmbeddedBroker

from .programs import ROOT, programs_of

TEXT = (ROOT / "docs/processes.md").read_text(encoding="utf-8")
FILES = dict(re.findall(r"^```py(?:thon)? (\S+)\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL))


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker() as broker:
        yield broker


def run(file: Path, url: str) -> str:
    done = subprocess.run(
        [sys.executable, "-W", "error", str(file)],
        cwd=file.parent, env={**os.environ, "SIEVEMQ_URL": url}, capture_output=True, text=True, timeout=180,
        check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_workers_of_multiprocessing(broker: EmbeddedBroker, tmp_path: Path) -> None:
    ((program, printed),) = programs_of(TEXT)
    file = tmp_path / "jobs.py"  # a child of `spawn` imports it
    file.write_text(program.replace("sievemq://localhost", broker.url))
    assert run(file, broker.url) == printed


def test_a_prefork_server(broker: EmbeddedBroker, tmp_path: Path) -> None:
    """The hooks and the application, with a fork in gunicorn's place."""
    for name, text in FILES.items():
        (tmp_path / name.replace(".conf", "_conf")).write_text(text)
    file = tmp_path / "master.py"
    file.write_text(
        "import os\n"
        "import application, gunicorn_conf\n"
        "for _ in range(2):\n"
        "    if not os.fork():\n"
        "        gunicorn_conf.post_fork(None, None)\n"
        "        assert application.application({}, lambda *given: None) == [b'accepted\\n']\n"
        "        gunicorn_conf.worker_exit(None, None)\n"
        "        os._exit(0)\n"
        "assert [os.wait()[1] for _ in range(2)] == [0, 0]\n"
    )
    run(file, broker.url)
    with ConnectionFactory(broker.url).create_context() as context:
        consumer = context.create_consumer(Queue("visits"))
        assert len({consumer.receive_body(str, 60_000) for _ in range(2)}) == 2


def test_a_fork_says_what_the_page_says(broker: EmbeddedBroker, tmp_path: Path) -> None:
    (quoted,) = re.findall(r"raises `(the connection to [^`]+)`", TEXT)
    file = tmp_path / "forks.py"
    file.write_text(
        "import os\n"
        "from sievemq import ConnectionFactory, JMSRuntimeException, Queue\n"
        "context = ConnectionFactory().create_context()\n"
        "if not os.fork():\n"
        "    try:\n"
        "        context.create_producer().send(Queue('forked'), 'from the child')\n"
        "    except JMSRuntimeException as error:\n"
        "        print(error, flush=True)\n"
        "    context.close()\n"
        "    os._exit(0)\n"
        "os.wait()\n"
        "context.create_producer().send(Queue('forked'), 'from the parent')\n"
        "print(context.create_consumer(Queue('forked')).receive_body(str, 60_000))\n"
        "context.close()\n"
    )
    text: Any = run(file, broker.url)
    assert text == f"{' '.join(quoted.split())}\nfrom the parent\n"
