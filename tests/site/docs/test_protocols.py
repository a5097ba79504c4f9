"""docs/protocols.md: its program runs with a client that others wrote, and prints what it says."""

from __future__ import annotations

import subprocess
import sys

from sievemq_broker import EmbeddedBroker
from sievemq_broker.protocols import PROTOCOLS
from sievemq_broker.protocols.stomp.connection import PREFETCH
from sievemq_core.limits import MAX_CREDIT

from .programs import ROOT, modules_of

DOCUMENT = ROOT / "docs" / "protocols.md"


def test_the_program_prints_the_shown_output() -> None:
    [program] = modules_of(DOCUMENT).values()
    with EmbeddedBroker() as broker:
        done = subprocess.run(
            [sys.executable, "-W", "error", "-c", program.replace("7672", str(broker.port))],
            capture_output=True,
            text=True,
            timeout=180,
            check=False,
        )
    assert (done.stdout, done.stderr) == ("104.5 ACME\n", "")


def test_the_defaults_match_the_code() -> None:
    text = DOCUMENT.read_text("utf-8")
    assert f"The setting `protocols` (`{','.join(PROTOCOLS)}`)" in text
    assert f"messages that may be unsettled at once; {PREFETCH} unless given, {MAX_CREDIT:,} at most |" in text
