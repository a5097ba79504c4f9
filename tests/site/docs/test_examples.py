"""Every example runs, and prints what it is there to show."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.interop import fetch
from tests.interop.results import from_junit

from sievemq_broker import EmbeddedBroker

EXAMPLES = Path(__file__).parents[3] / "examples"
FOREIGN = {"stompjs_client.mjs": ("@stomp/stompjs@7.3.0", "ws@8.18.3"), "rhea_client.mjs": ("rhea@3.0.5",)}
PROTON = "proton_client.py"
PRINTED = {
    "work_queue.py": {"piece 1 is done", "piece 3 is done (again)", "piece 6 is done"},
    "request_reply.py": {"hello -> HELLO", "is anybody there -> IS ANYBODY THERE"},
    "selective_subscribers.py": {
        "region = 'EU': 120 from EU, 900 from EU",
        "amount > 500: 700 from US, 900 from EU",
        "region = 'US' AND NOT (urgent = TRUE): 90 from US",
    },
    "transfer.py": {
        "first try: two chairs",
        "second try: two chairs - redelivered: True",
        "in the books: invoice for two chairs",
    },
    "stomp_client.py": {"processed: order over 120", "rejected: order over 300", "left: order over 50"},
    "traced.py": {
        "send queue:example.traced",
        "receive queue:example.traced -> send queue:example.traced",
        "process queue:example.traced -> send queue:example.traced",
    },
}


@pytest.mark.parametrize("name", PRINTED)
def test_an_example_runs(name: str) -> None:
    with EmbeddedBroker() as broker:
        result = subprocess.run(
            [sys.executable, "-W", "error", name],
            cwd=EXAMPLES,
            env={**os.environ, "SIEVEMQ_URL": broker.url},
            capture_output=True,
            text=True,
            timeout=180,
            check=False,
        )
    assert result.returncode == 0, result.stdout + result.stderr
    assert set(result.stdout.splitlines()) >= PRINTED[name]


@pytest.mark.slow  # its client comes from npm
@pytest.mark.parametrize("name", FOREIGN)
def test_an_example_in_javascript_runs(name: str) -> None:
    with _skipping():
        folder = fetch.node(*FOREIGN[name])
    script = folder / name
    script.write_text((EXAMPLES / name).read_text(encoding="utf-8"), encoding="utf-8")
    with EmbeddedBroker(http=True) as broker:
        url = f"{broker.http_url}/stomp".replace("http:", "ws:")
        output = _output("node", script, STOMP_URL=url, AMQP_URL=broker.amqp_url)
    assert output.splitlines() == ["processed: order over 120", "rejected: order over 300"]


@pytest.mark.slow  # its client comes from Debian
def test_the_example_with_proton_runs() -> None:
    with _skipping():
        root, _ = fetch.debian("python3-qpid-proton", "libqpid-proton11")
    [libraries] = root.glob("usr/lib/*-linux-gnu")
    path = root / "usr/lib/python3/dist-packages"
    with EmbeddedBroker() as broker:
        output = _output(
            "/usr/bin/python3", EXAMPLES / PROTON, AMQP_URL=broker.amqp_url, PYTHONPATH=path, LD_LIBRARY_PATH=libraries
        )
    assert output.splitlines() == ["processed: order over 120", "rejected: order over 300", "left: order over 50"]


@pytest.mark.slow  # its client comes from Maven Central
def test_the_example_with_junit_runs(tmp_path: Path) -> None:
    with _skipping():
        fetch.installed("mvn", "javac")
    project = shutil.copytree(EXAMPLES / "junit", tmp_path / "junit", ignore=shutil.ignore_patterns("target"))
    with EmbeddedBroker() as broker:
        _output("mvn", "-q", "-B", "-f", project, f"-Dbroker.url={broker.amqp_url}", "test")
    [report] = project.glob("target/surefire-reports/TEST-*.xml")
    results = from_junit(report)
    assert len(results) == 4
    assert all(each.passed for each in results)


@contextmanager
def _skipping() -> Iterator[None]:
    """Skip a test whose client cannot be had."""
    try:
        yield
    except fetch.MissingError as reason:
        pytest.skip(f"no such client here: {reason}")


def _output(*command: object, **environment: object) -> str:
    variables = {**os.environ, **{name: str(value) for name, value in environment.items()}}
    done = subprocess.run(
        [str(word) for word in command], env=variables, capture_output=True, text=True, timeout=280, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_every_example_is_listed_and_tested() -> None:
    programs = {path.name for path in EXAMPLES.iterdir() if path.suffix in (".py", ".mjs")}
    assert programs == {*PRINTED, *FOREIGN, PROTON}
    readme = (EXAMPLES / "README.md").read_text(encoding="utf-8")
    assert all(f"]({name})" in readme for name in programs)
