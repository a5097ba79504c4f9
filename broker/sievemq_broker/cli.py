"""The subcommands that the broker adds to ``sievemq``: ``broker`` and ``config``."""

from __future__ import annotations

import inspect
import json
import os
from collections.abc import Callable, Mapping
from dataclasses import Field, fields
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from sievemq_broker.config import ConfigError, Loaded, Settings, env_name, load, shown
from sievemq_broker.extras import ALL, check_packages, has
from sievemq_core.output import complain, report
from sievemq_core.output import show as show_line

# Exit codes of every sievemq command; docs and `sievemq --help` list them.
FAILED, USAGE = 1, 2

#: Settings without an option of their own: tables stand in the file, and `--user` may be given again and again.
_TABLES = ("attention", "destinations", "namespaces", "users")

_VALUES = {"int": "NUMBER", "float": "SECONDS"}

#: What turns a flag off that is on by default, or neither: `no-` and its name, or this.
_OFF = {"json_logs": "console-logs"}


def _option(setting: Field[Any]) -> inspect.Parameter:
    """The parameter of Typer that is the option of a setting. `config.py` reads what is given."""
    name, default = setting.name, setting.default
    words = f"--{name.replace('_', '-')}"
    kind = str(setting.type).partition(" ")[0]
    is_flag = kind == "bool"
    if is_flag and default is not False:
        words += f"/--{_OFF.get(name, f'no-{words[2:]}')}"
    meaning: str = setting.metadata["meaning"]
    normally = "" if isinstance(default, bool) or not isinstance(default, int | float | str) else f"; {default}"
    text = f"{meaning[0].upper()}{meaning[1:]}{normally}. [{env_name(name)}]"
    return inspect.Parameter(
        name,
        inspect.Parameter.KEYWORD_ONLY,
        default=typer.Option(None, words, metavar=None if is_flag else _VALUES.get(kind, "TEXT"), help=text),
        annotation=bool | None if is_flag else str | None,
    )


def _with_settings(command: Callable[..., None]) -> Callable[..., None]:
    """Show Typer a command that has an option for each setting; the command gets them as keywords."""
    shown = [_option(setting) for setting in fields(Settings) if setting.name not in _TABLES]
    own = inspect.signature(command, eval_str=True).parameters.values()
    shown += [parameter for parameter in own if parameter.kind is not parameter.VAR_KEYWORD]
    command.__signature__ = inspect.Signature(shown)  # type: ignore[attr-defined]
    command.__annotations__ = {parameter.name: parameter.annotation for parameter in shown}
    return command


_ConfigFile = Annotated[
    Path | None, typer.Option("--config", help="TOML file with settings. [SIEVEMQ_CONFIG]", dir_okay=False)
]


@_with_settings
def broker(
    *,
    config_file: _ConfigFile = None,
    user: Annotated[
        list[str] | None,
        typer.Option(
            "--user",
            help="name:password of a user; repeatable. Other users of the machine can see command lines: "
            "prefer --users-file. [SIEVEMQ_USERS]",
        ),
    ] = None,
    handover: Annotated[
        bool,
        typer.Option(
            "--handover",
            help="Ask the broker that owns the shard to hand it over to this one, and to end (exit code 75). For an "
            "upgrade by hand: needs --store, and is no setting.",
        ),
    ] = False,
    **given: object,
) -> None:
    """Run a broker until SIGTERM or SIGINT.

    Every option with brackets is also a setting of the environment and of the file: `sievemq config show`.
    Exit codes: 0 ended in order, 1 could not start, 2 the settings are wrong, 75 another broker serves its shard.
    """
    _check_extra()
    given["users"] = ",".join(user) if user else None
    settings = _load(config_file, given).settings
    try:
        check_packages(settings)
    except ImportError as error:
        complain(f"sievemq: {error}")
        raise typer.Exit(USAGE) from None
    if handover and settings.store is None:
        complain("sievemq: --handover needs --store: without a shared store there is no other broker")
        raise typer.Exit(USAGE)
    if handover and settings.shards and settings.shard not in settings.shards:
        complain(f"sievemq: --handover needs --shard: one of {', '.join(settings.shards)}")
        raise typer.Exit(USAGE)
    from sievemq_broker.server.process import run  # `sievemq config` needs no server

    reread = partial(load, given, dict(os.environ), config_file)
    raise typer.Exit(run(settings, handover=handover, reread=reread))


def _check_extra() -> None:
    """The broker's packages are in an extra, and most are imported only once it runs: a missing one is reported now."""
    if not all(map(has, ALL)):
        complain("sievemq: `broker` needs an extra: pip install 'sievemq[broker]'")
        raise typer.Exit(USAGE)


def _load(config_file: Path | None, given: dict[str, object] | None = None) -> Loaded:
    try:
        return load(given, os.environ, config_file)
    except ConfigError as error:
        complain(f"sievemq: {error}")
        raise typer.Exit(USAGE) from None


config = typer.Typer(help="Show or check a broker's settings without starting one.", no_args_is_help=True)


@config.command()
def show(
    config_file: _ConfigFile = None,
    origin: Annotated[bool, typer.Option("--origin", help="Show the source of each value.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
) -> None:
    """Print the settings that a broker would start with, as its TOML file; secrets are masked."""
    loaded = _load(config_file)
    rows = [(name, shown(loaded.settings, name), loaded.origins[name]) for name in loaded.origins]
    if as_json:
        show_line(json.dumps({n: {"value": v, "origin": o} if origin else v for n, v, o in rows}, indent=2))
        return
    for name, value, source in rows:
        line = f"# {name} is not set" if value is None else f"{name} = {_toml(value)}"
        show_line(f"{line:<48}  # {source}" if origin else line)


@config.command()
def check(config_file: _ConfigFile = None) -> None:
    """Check the settings that a broker would start with. Exit codes: 0 valid, 2 invalid."""
    _load(config_file)
    report("The settings are fine.")


def _toml(value: object) -> str:
    if isinstance(value, Mapping):
        pairs = ", ".join(f"{json.dumps(key, ensure_ascii=False)} = {_toml(of)}" for key, of in value.items())
        return f"{{ {pairs} }}" if pairs else "{}"
    return json.dumps(value, ensure_ascii=False)  # numbers, booleans, strings and lists of them are the same in TOML
