"""Options that belong together, as one parameter of a command."""

from __future__ import annotations

import inspect
from typing import Annotated, NamedTuple

import typer
from typer.testing import CliRunner

from sievemq.cli.grouping import grouped


class Where(NamedTuple):
    place: Annotated[str, typer.Option("--place", "-p")] = "here"
    floor: Annotated[int, typer.Option("--floor")] = 0


@grouped
def look(
    name: str, where: Where, *, loud: Annotated[bool, typer.Option("--loud")] = False, rest: tuple[int, int] = (1, 2)
) -> None:
    """Look for it."""
    typer.echo(f"{name} {where!r} {loud} {rest}")


app = typer.Typer()
app.command()(look)


def test_the_command_gets_the_tuple() -> None:
    run = CliRunner().invoke
    assert run(app, ["key"]).output == "key Where(place='here', floor=0) False (1, 2)\n"
    given = run(app, ["-p", "there", "--loud", "--rest", "3", "4", "key", "--floor", "2"])
    assert given.output == "key Where(place='there', floor=2) True (3, 4)\n"


def test_the_fields_replace_the_tuple() -> None:
    assert list(inspect.signature(look).parameters) == ["name", "place", "floor", "loud", "rest"]
    assert look.__doc__ == "Look for it."


class Shelf(NamedTuple):
    room: Annotated[str, typer.Argument()]
    row: Annotated[int, typer.Option("--row")] = 1


@grouped
def find(shelf: Shelf, titles: list[str]) -> None:
    typer.echo(f"{shelf!r} {titles}")


def test_a_field_without_a_default_must_be_given() -> None:
    shelves = typer.Typer()
    shelves.command()(find)
    run = CliRunner().invoke
    assert run(shelves, ["attic", "--row", "3", "a", "b"]).output == "Shelf(room='attic', row=3) ['a', 'b']\n"
    assert run(shelves, ["attic"]).exit_code == 2
