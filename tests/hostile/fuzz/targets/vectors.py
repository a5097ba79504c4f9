"""The byte vectors of the wire protocol's tests, as seeds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parents[3] / "behaviour" / "conformance" / "wire"


def vectors(name: str) -> list[dict[str, Any]]:
    """The vectors of a file."""
    found: list[dict[str, Any]] = json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))
    return found


def frames(name: str) -> list[bytes]:
    """The frames of a file, their lengths included."""
    return [bytes.fromhex(vector["hex"]) for vector in vectors(name)]
