"""docs/protocol.md has the states of a connection as the code has them."""

from __future__ import annotations

from pathlib import Path

from sievemq_broker.session.life import EVENTS, STATES
from sievemq_core.wire.commands import COMMANDS
from sievemq_core.wire.connection import TRANSITIONS, State

PAGE = Path(__file__).resolve().parents[3] / "docs" / "protocol.md"


def rows(head: str) -> list[list[str]]:
    """The cells of the page's table with this head, row by row."""
    lines = iter(PAGE.read_text("utf-8").splitlines())
    assert head in lines, f"no table {head}"
    assert set(next(lines)) <= set("| -")
    found = []
    for line in lines:
        if not line.startswith("|"):
            break
        found.append([cell.strip() for cell in line.strip("|").split("|")])
    return found


def test_the_table_of_the_broker_s_end_is_that_of_the_code() -> None:
    drawn = [[state, *[STATES[after[at]] for after in EVENTS.values()]] for at, state in enumerate(STATES)]
    assert rows("| state | " + " | ".join(f"at {event}" for event in EVENTS) + " |") == drawn


def test_each_state_of_the_broker_s_end_is_explained() -> None:
    assert [row[0] for row in rows("| state | the broker |")] == list(STATES)


def test_the_commands_that_are_legal_in_a_state_are_those_of_the_code() -> None:
    drawn = []
    for state in State:
        row = [state.value]
        for role in ("client", "broker"):
            legal = {
                COMMANDS[number].name
                for at, number in TRANSITIONS
                if at is state and COMMANDS[number].sender in (role, "both")
            }
            row.append(shown(legal, {spec.name for spec in COMMANDS.values() if spec.sender in (role, "both")}))
        drawn.append(row)
    found = rows("| state | the client may send | the broker may send |")
    assert [[cell.partition(" (")[0].removesuffix(" 0") for cell in row] for row in found] == drawn


def shown(legal: set[str], known: set[str]) -> str:
    """Which commands these are, as the page writes it."""
    if not legal:
        return "nothing"
    if len(legal) <= 2:
        return ", ".join(sorted(legal, reverse=True))
    return f"everything but {', '.join(sorted(known - legal))}"
