"""docs/coming-from: its programs print what they show; its table names what exists."""

from __future__ import annotations

import contextlib
import io
import re
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import sievemq
import sievemq_broker
from sievemq.url import options_as_rows
from sievemq_broker import EmbeddedBroker
from sievemq_broker.domain.policy import DestinationPolicy

from .programs import ROOT, programs_of

FOLDER = ROOT / "docs" / "coming-from"
PAGES = sorted(FOLDER.glob("[!R]*.md"))
TABLE = [
    row.split(" | ")
    for row in re.findall(r"^\| (.*) \|$", (FOLDER / "README.md").read_text("utf-8"), re.MULTILINE)
    if not row.startswith(("from |", "---"))
]
#: Where the table's names are from.
HOMES: list[Any] = [
    sievemq, sievemq_broker, sievemq.Listeners, sievemq.JMSContext, sievemq.JMSProducer, sievemq.JMSConsumer,
    sievemq.Message,
]  # fmt: skip


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker() as broker:
        yield broker


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_programs_print_the_shown_output(broker: EmbeddedBroker, page: Path) -> None:
    """In this process, each in a namespace of its own."""
    ((program, shown),) = programs_of(page.read_text("utf-8"))
    source = program.replace("sievemq://localhost", f"{broker.url}/{page.stem}")
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(source, str(page), "exec"), {"__name__": "__main__"})
    assert printed.getvalue() == shown


def test_the_table_has_rows_for_every_page_and_java() -> None:
    sources = {row[0] for row in TABLE}
    assert all(len(row) == 3 for row in TABLE)
    assert {re.sub(r"\W|py$", "", name).lower() for name in sources - {"JMS"}} == {
        re.sub(r"py$", "", page.stem) for page in PAGES
    }


def test_the_table_names_what_exists() -> None:
    options = {option["name"] for option in options_as_rows()}
    for *_, here in TABLE:
        for code in re.findall(r"`([^`]+)`", here):
            for name in re.findall(r"(\w+)\(", code):
                known = any(hasattr(home, name) for home in HOMES)
                assert known or name == timedelta.__name__, (name, here)
            for option in re.findall(r"ConnectionFactory\(url, (\w+)=", code):
                assert option in options, option
        if "rule" in here:
            rules = [code for code in re.findall(r"`(\w+)`", here) if "_" in code]
            assert [rule for rule in rules if rule not in DestinationPolicy.__dataclass_fields__] == []
