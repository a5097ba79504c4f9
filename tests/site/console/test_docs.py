"""docs/console.md names what the console has, and its pictures are there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from .screenshots import MAX_BYTES, PICTURES

ROOT = Path(__file__).parents[3]
TEXT = (ROOT / "docs" / "console.md").read_text("utf-8")
FRAME = (ROOT / "broker/sievemq_broker/server/http/console/frame.js").read_text("utf-8")

PICTURED = re.findall(r"images/([a-z-]+\.png)", TEXT)


def test_every_view_is_in_the_table_of_views() -> None:
    names = re.findall(r'^  \["[a-z-]+", "([^"]+)", "[a-z]"\],$', FRAME, re.MULTILINE)
    assert len(names) >= 10
    table = TEXT[TEXT.index("## Views") : TEXT.index("Figures are updated")]
    for name in names:
        assert re.search(rf"^\|.*\b{name}\b.*\|", table, re.MULTILINE), name


def test_every_picture_is_shown_and_made_by_the_script() -> None:
    others = ["dark.png", "phone.png", "incident.png"]  # the last one by incidents.py
    assert sorted(PICTURED) == sorted([f"{name}.png" for name, *_ in PICTURES] + others)


@pytest.mark.parametrize("name", PICTURED)
def test_pictures_are_small(name: str) -> None:
    data = (ROOT / "docs" / "images" / name).read_bytes()
    assert data.startswith(b"\x89PNG")
    assert len(data) <= MAX_BYTES
