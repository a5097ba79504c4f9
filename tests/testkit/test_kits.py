"""The kits of other languages with their own runners, where those and their packages are at hand (`make kits`)."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from sievemq_broker import EmbeddedBroker

KITS = Path(__file__).parents[2] / "testkit"


def run(folder: Path, *command: str) -> None:
    with EmbeddedBroker(http=True, settings={"test_control": True}) as broker:
        environment = {**os.environ, "SIEVEMQ_HTTP_URL": broker.http_url, "GOFLAGS": "-mod=readonly", "GOPROXY": "off"}
        result = subprocess.run(
            command, cwd=folder, env=environment, capture_output=True, text=True, timeout=240, check=False
        )
    assert result.returncode == 0, result.stdout + result.stderr


@pytest.mark.skipif(
    shutil.which("node") is None or not (KITS / "node/node_modules/rhea/package.json").is_file(),
    reason="needs node, and npm install in testkit/node",
)
def test_node() -> None:
    run(KITS / "node", "node", "--test", "test/redelivery.test.mjs")


def has_modules() -> bool:
    """Go has what the kit's tests need, and asks nobody for it."""
    if shutil.which("go") is None:
        return False
    listed = subprocess.run(
        ["go", "list", "-test", "-deps", "./..."],
        cwd=KITS / "go",
        env={**os.environ, "GOFLAGS": "-mod=readonly", "GOPROXY": "off"},
        capture_output=True,
        timeout=60,
        check=False,
    )
    return listed.returncode == 0


def test_go() -> None:
    if not has_modules():
        pytest.skip("needs go, and go test once in testkit/go")
    run(KITS / "go", "go", "test", "-count=1", "./...")
