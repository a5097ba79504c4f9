"""docs/client.md: its programs print what it says, its options and dead letters are those of the code."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from sievemq import ConnectionFactory, JMSContext, Queue, Topic
from sievemq.url import options_as_rows
from sievemq_broker import EmbeddedBroker
from sievemq_core.message.dead_letters import ERROR, FAILED_BY_USER

from .programs import output_of, programs_of

TEXT = (Path(__file__).parents[3] / "docs" / "client.md").read_text(encoding="utf-8")
PROGRAMS = programs_of(TEXT)


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker() as broker:
        yield broker


def test_all_programs_are_run() -> None:
    assert len(PROGRAMS) == 5
    assert TEXT.count("```python") == len(PROGRAMS)


@pytest.mark.parametrize(
    ("program", "printed"), PROGRAMS, ids=["asyncio", "workers", "requests", "prefetch", "broken off"]
)
def test_programs_print_the_shown_output(broker: EmbeddedBroker, program: str, printed: str) -> None:
    assert output_of(program, broker.url) == printed


def options_table() -> str:
    """The table of options, in Markdown."""
    lines = ["| option | default | | |", "| --- | --- | --- | --- |"]
    for row in options_as_rows():
        default = row["default"] or ("auto" if row["name"] == "prefetch" else "none")
        lines.append(f"| `{row['name']}` | {default} | {row['wanted']} | {row['reason']} |")
    return "\n".join(lines) + "\n"


def test_the_options_match_the_code() -> None:
    written = TEXT.split("<!-- table: made from the code -->\n")[1].split("<!-- end of table -->")[0]
    assert written.strip() == options_table().strip()


@pytest.mark.parametrize("destination", [Queue("orders"), Topic("orders")], ids=["queue", "topic"])
def test_the_table_lists_the_properties_of_a_dead_letter(broker: EmbeddedBroker, destination: Queue | Topic) -> None:
    named = {name for row in TEXT.splitlines() for name in re.findall(r"`(JMS_SieveMQ_\w+)`", row)}
    with (
        ConnectionFactory(f"{broker.url}?client_id=desk").create_context(JMSContext.SESSION_TRANSACTED) as context,
        context.create_consumer(destination) as consumer,
        context.create_consumer(Queue("DLQ.orders")) as letters,
    ):
        context.create_producer().send(destination, "broken")
        context.commit()
        for _ in range(6):
            assert consumer.receive(60_000) is not None
            context.rollback()
        letter = letters.receive(60_000)
        context.commit()
    assert letter is not None
    # A rollback states no reason, and there is no user.
    given = {name for name in letter.properties if name.startswith("JMS_SieveMQ_")}
    assert given == named - {ERROR, FAILED_BY_USER}
    assert letter.properties["JMS_SieveMQ_DeadLetterReason"] == "attempts"
    assert letter.properties["JMS_SieveMQ_DeadLetterOrigin"] == str(destination)
