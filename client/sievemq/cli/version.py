"""``sievemq version``"""

from __future__ import annotations

import json
import platform
from typing import Annotated

import typer

from sievemq_core.compiled import COMPILED
from sievemq_core.output import show
from sievemq_core.version import VERSION
from sievemq_core.wire.commands import PROTOCOL_VERSION


def version(as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False) -> None:
    """Print the version."""
    facts = {
        "sievemq": VERSION,
        "protocol": PROTOCOL_VERSION,
        "python": platform.python_version(),
        "compiled": COMPILED,
        "platform": platform.platform(terse=True),
    }
    if as_json:
        show(json.dumps(facts))
    else:
        build = f"protocol {facts['protocol']}, Python {facts['python']}{', compiled' if COMPILED else ''}"
        show(f"SieveMQ {facts['sievemq']} ({build})")
