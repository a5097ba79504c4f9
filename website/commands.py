"""The page of the command line, from the commands themselves."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.metadata import entry_points
from typing import Any

import typer

from website.markup import cell, literal, row

PAGE = "reference/command-line.md"


def page() -> str:
    """The page: each command with its arguments and options."""
    text = [
        "# Commands and options\n",
        "Every command as `--help` shows it. The [guide](../docs/cli.md) has conventions and exit codes.\n",
    ]
    for name, command in commands():
        text += _command(name, command)
    return "\n".join(text)


def commands() -> Iterator[tuple[str, Any]]:
    """Each command and group of `sievemq`, groups before what is in them, with its whole name."""
    for point in sorted(entry_points(group="sievemq.commands"), key=lambda point: point.name):
        loaded: Any = point.load()
        if not isinstance(loaded, typer.Typer):
            app = typer.Typer()
            app.command(point.name)(loaded)
            loaded = app
        yield from _walk(f"sievemq {point.name}", typer.main.get_command(loaded))


def _walk(name: str, command: Any) -> Iterator[tuple[str, Any]]:
    yield name, command
    for part, below in sorted(getattr(command, "commands", {}).items()):
        yield from _walk(f"{name} {part}", below)


def _command(name: str, command: Any) -> Iterator[str]:
    level = len(name.split())
    yield f"{'#' * level} `{name}`\n"
    yield literal(_plain(command.help or "")) + "\n"
    if getattr(command, "commands", None):
        return
    arguments = [each for each in command.params if each.param_type_name == "argument"]
    options = [each for each in command.params if each.param_type_name == "option" and not each.hidden]
    usage = " ".join([name, *(["[OPTIONS]"] if options else []), *(_usage(each) for each in arguments)])
    yield f"```text\n{usage}\n```\n"
    if arguments or options:
        yield "| argument or option | meaning |\n| --- | --- |"
        for each in arguments:
            yield row(f"`{_metavar(each)}`", _cell(each))
        for each in options:
            names = ", ".join(f"`{option}`" for option in [*each.opts, *each.secondary_opts])
            value = "" if each.is_flag or each.count else f" `{_metavar(each)}`"
            yield row(names + value, _cell(each))
        yield ""


def _usage(argument: Any) -> str:
    name = _metavar(argument) + ("…" if argument.nargs != 1 else "")
    return name if argument.required else f"[{name}]"


def _metavar(parameter: Any) -> str:
    if parameter.metavar:
        return str(parameter.metavar)
    choices = getattr(parameter.type, "choices", None)
    if choices:
        return " or ".join(str(getattr(choice, "value", choice)) for choice in choices)
    name = parameter.name if parameter.param_type_name == "argument" else parameter.type.name
    return str(name).upper().strip("_")


def _cell(parameter: Any) -> str:
    text = literal(_plain(getattr(parameter, "help", None) or ""))
    default = parameter.default
    if parameter.param_type_name == "option" and isinstance(default, (str, int)) and default not in (False, ""):
        text += f" Default: `{getattr(default, 'value', default)}`."
    return cell(text)


def _plain(text: str) -> str:
    """Help without what Click reads in it: form feeds and backspaces."""
    return text.partition("\f")[0].replace("\b", "").strip()
