"""docs/tracing.md: its program prints what it says."""

from __future__ import annotations

import pytest

from sievemq.observers import Observer
from sievemq_broker import EmbeddedBroker

from .programs import ROOT, output_of, programs_of

TEXT = (ROOT / "docs" / "tracing.md").read_text(encoding="utf-8")
PROGRAMS = programs_of(TEXT)


@pytest.mark.parametrize(("program", "printed"), PROGRAMS, ids=["observer"])
def test_programs_print_the_shown_output(program: str, printed: str) -> None:
    with EmbeddedBroker() as broker:
        assert output_of(program, broker.url) == printed


def test_the_table_has_every_hook() -> None:
    hooks = [name for name in vars(Observer) if not name.startswith("_")]
    assert [row.split("(")[0].strip("| `") for row in TEXT.splitlines() if row.startswith("| `") and "(" in row][
        -len(hooks) :
    ] == hooks
