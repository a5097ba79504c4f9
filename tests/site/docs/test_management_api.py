"""docs/operating.md on the management API: its commands run, its table names every endpoint there is."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from sievemq_broker import EmbeddedBroker
from sievemq_broker.server.http.api.assemble import ENDPOINTS

TEXT = (Path(__file__).parents[3] / "docs/operating.md").read_text(encoding="utf-8")
SECTION = TEXT.split("\n## Management API\n")[1].split("\n## ")[0]


def test_the_table_names_every_endpoint() -> None:
    rows = [line.split("|")[1] for line in SECTION.splitlines() if line.startswith("| `")]
    named = {path for row in rows for path in re.findall(r"`([^`]+)`", row)}
    whole = {path.replace("…/{address}", "/namespaces/{ns}/destinations/{address}") for path in named}
    assert whole == {endpoint.path for endpoint in ENDPOINTS}


def commands() -> list[str]:
    (block,) = re.findall(r"^```sh\n(.*?)^```$", SECTION, re.MULTILINE | re.DOTALL)
    lines = block.replace("\\\n", " ").splitlines()
    return [line for line in lines if not line.startswith("#")]


@pytest.mark.skipif(shutil.which("curl") is None, reason="needs curl")
def test_commands_print_the_shown_output() -> None:
    said: list[Any] = []
    with EmbeddedBroker(http=True) as broker:
        for command in commands():
            assert command.startswith("curl -s ")
            result = subprocess.run(
                ["bash", "-c", command],
                env={**os.environ, "API": f"{broker.http_url}/api/v1"},
                capture_output=True,
                text=True,
                timeout=180,
                check=True,
            )
            said.append(json.loads(result.stdout))
    found, sent, browsed, counted, moved, explained, checked, made, retried = said
    assert found["destinations"] == []
    assert sent["address"] == "queue:orders"
    assert browsed["messages"][0]["properties"]["amount"] == {"type": "short", "value": 2}
    assert (counted["matched"], counted["touched"]) == (1, 0)
    assert (moved["matched"], moved["touched"]) == (1, 1)
    assert explained["truth"] == "FALSE"
    assert (checked["error"], checked["details"]["position"]) == ("INVALID_SELECTOR", 7)
    assert made["dead_letter_queue"] is True
    assert retried["touched"] == 0
