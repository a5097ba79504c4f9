"""Every example runs, and prints what it is there to show."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.interop import fetch

from sievemq_broker import EmbeddedBroker

EXAMPLES = Path(__file__).parents[3] / "examples"
JAVASCRIPT = "stompjs_client.mjs"
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
def test_an_example_in_javascript_runs() -> None:
    try:
        folder = fetch.node("@stomp/stompjs@7.3.0", "ws@8.18.3")
    except fetch.MissingError as reason:
        pytest.skip(f"no client in JavaScript: {reason}")
    script = folder / JAVASCRIPT
    script.write_text((EXAMPLES / JAVASCRIPT).read_text(encoding="utf-8"), encoding="utf-8")
    with EmbeddedBroker(http=True) as broker:
        url = f"{broker.http_url}/stomp".replace("http:", "ws:")
        result = subprocess.run(
            ["node", script],
            env={**os.environ, "STOMP_URL": url},
            capture_output=True,
            text=True,
            timeout=180,
            check=False,
        )
    assert result.returncode == 0, result.stdout + result.stderr
    assert result.stdout.splitlines() == ["processed: order over 120", "rejected: order over 300"]


def test_every_example_is_listed_and_tested() -> None:
    programs = {path.name for path in EXAMPLES.iterdir() if path.suffix in (".py", ".mjs")}
    assert programs == {*PRINTED, JAVASCRIPT}
    readme = (EXAMPLES / "README.md").read_text(encoding="utf-8")
    assert all(f"]({name})" in readme for name in programs)
