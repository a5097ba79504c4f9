"""Subcommands from entry points."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib.metadata import EntryPoint, entry_points
from typing import Any

import typer

from sievemq.cli.exits import USAGE
from sievemq_core.output import complain

GROUP = "sievemq.commands"

# What a package's commands need beside the package itself, which is always installed.
_EXTRAS = {"sievemq": "cli", "sievemq_broker": "broker", "sievemq_testing": "demo", "sievemq_spark": "spark"}

_HELP = """SieveMQ: an in-memory, JMS-style message broker.

Destinations are written queue:NAME or topic:NAME; a bare NAME is a queue.

Exit codes: 0 done, 1 failed, 2 usage, 3 not found, 4 refused by a check."""


class MissingExtraError(Exception):
    """A command whose packages are not installed; the text names what to install."""


def build(arguments: Sequence[str]) -> Callable[[Sequence[str]], int]:
    """The command line with the subcommands that `arguments` may need: the one that is named, or else all.

    Raises:
        MissingExtraError: the one that is named needs an extra that is not installed.
    """
    points = {point.name: point for point in sorted(entry_points(group=GROUP), key=lambda point: point.name)}
    app = typer.Typer(
        help=_HELP,
        no_args_is_help=True,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_root)
    if arguments and arguments[0] in points:
        _add(app, points[arguments[0]])
    else:
        for point in points.values():
            try:
                _add(app, point)
            except MissingExtraError as error:
                app.command(point.name, help=f"({error})")(_unavailable(str(error)))
    command = typer.main.get_command(app)

    def call(args: Sequence[str]) -> int:
        try:
            command.main(args=list(args), prog_name="sievemq")
        except SystemExit as end:
            return end.code if isinstance(end.code, int) else int(end.code is not None)
        return 0

    return call


def _root() -> None:
    """Options that all commands share would stand here."""


def _add(app: typer.Typer, point: EntryPoint) -> None:
    package = point.module.partition(".")[0]
    try:
        loaded: Any = point.load()
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] in _EXTRAS:
            raise  # one of ours: a fault, not a missing extra
        extra = _EXTRAS.get(package, "all")
        raise MissingExtraError(
            f"`{point.name}` needs an extra: pip install '.[{extra}]' in a clone of SieveMQ"
        ) from error
    if isinstance(loaded, typer.Typer):
        app.add_typer(loaded, name=point.name)
    else:
        app.command(point.name)(loaded)


def _unavailable(text: str) -> Callable[[], None]:
    def command() -> None:
        complain(f"sievemq: {text}")
        raise typer.Exit(USAGE)

    return command
